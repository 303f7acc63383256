// A grammar for tests of what schedules and samples: which tokens are allowed, and where the answer ends, is
// a hash of every token so far, so that a mask of another step or of another answer changes the answer.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "base/check.h"
#include "sampling/grammar.h"
#include "sampling/sampling_info.h"

namespace gapless::testing {

class HashGrammar : public Grammar {
 public:
  struct Options {
    uint64_t seed = 1;
    int32_t vocab_size = 0;
    std::vector<int32_t> eos_ids{};
    uint64_t allowed_percent = 30;
    uint64_t ends_one_in = 20;  // states in which it is complete
    int32_t fails_after = -1;   // tokens after which no mask can be made; -1: never
  };
  explicit HashGrammar(Options options) : o_(std::move(options)) {}

  class Matcher : public GrammarMatcher {
   public:
    explicit Matcher(const Options& o) : o_(o), state_(mix(o.seed, 0x9a3)) {}

    Status fill_mask(std::span<uint32_t> allowed) override {
      CHECK(!is_complete(), "a mask is asked for behind the end");
      if (n_ == o_.fails_after) return Status::invalid("the grammar gave up after {} tokens", n_);
      std::ranges::fill(allowed, 0u);
      for (int32_t id = 0; id < o_.vocab_size; id++)
        if (allows(id)) allowed[size_t(id) / 32] |= 1u << id % 32;
      return {};
    }
    Status accept(int32_t token) override {
      CHECK(!is_complete(), "token {} behind the end", token);
      if (!allows(token))
        return Status::internal("token {} after {} others is not in the grammar", token, n_);
      ended_ = is_eos(token);
      state_ = mix(state_, uint64_t(token));
      n_++;
      return {};
    }
    bool is_complete() const override { return ended_ || (n_ > 0 && state_ % o_.ends_one_in == 0); }

   private:
    static uint64_t mix(uint64_t h, uint64_t value) {
      h = (h ^ value) * 0x9e3779b97f4a7c15ull;
      return h ^ (h >> 29);
    }
    bool is_eos(int32_t id) const { return std::ranges::count(o_.eos_ids, id) > 0; }
    bool allows(int32_t id) const {
      const auto only = int32_t(state_ % uint64_t(o_.vocab_size));  // so that there is always one
      const bool forced = state_ % 5 == 0;
      return id == only || (!forced && mix(state_, uint64_t(id) + 1) % 100 < o_.allowed_percent);
    }
    const Options& o_;
    uint64_t state_;
    int32_t n_ = 0;
    bool ended_ = false;
  };

  std::unique_ptr<GrammarMatcher> new_matcher() const override { return std::make_unique<Matcher>(o_); }

 private:
  const Options o_;
};

}  // namespace gapless::testing
