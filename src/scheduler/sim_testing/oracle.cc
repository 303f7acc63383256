#include "scheduler/sim_testing/oracle.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <optional>

#include "base/check.h"
#include "kernels/numeric.h"
#include "model/sim/sim_logits.h"
#include "sampling/sampling_info.h"

namespace gapless::sim_testing {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

bool contains(const std::vector<int32_t>& ids, int32_t id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

// --- sums, in the documented order ---

// e^((x - reference) * scale) of each, and their sum: 16 lanes, then halves added together.
struct Weights {
  std::vector<float> each;
  float sum = 0;
};
Weights weights_of(const std::vector<float>& logits, float reference, float scale) {
  Weights w;
  float lanes[16] = {};
  for (size_t i = 0; i < logits.size(); i++) {
    w.each.push_back(numeric::exp((logits[i] - reference) * scale));
    lanes[i % 16] += w.each.back();
  }
  for (int half : {8, 4, 2, 1}) {
    for (int l = 0; l < half; l++) lanes[l] += lanes[l + half];
  }
  w.sum = lanes[0];
  return w;
}

// --- logprobs: of the model's own distribution ---

ExpectedToken with_logprobs(const std::vector<float>& logits, int32_t token, int32_t n_top) {
  const float most = *std::max_element(logits.begin(), logits.end());
  const double log_sum = double(most) + std::log(double(weights_of(logits, most, 1).sum));
  const auto logprob = [&](int32_t id) { return float(double(logits[size_t(id)]) - log_sum); };
  ExpectedToken out{token, logprob(token), {}};
  if (n_top == 0) return out;
  std::vector<int32_t> ids;
  for (size_t i = 0; i < logits.size(); i++) ids.push_back(int32_t(i));
  std::stable_sort(ids.begin(), ids.end(),
                   [&](int32_t a, int32_t b) { return logits[size_t(a)] > logits[size_t(b)]; });
  for (int32_t i = 0; i < n_top; i++) out.top.push_back({ids[size_t(i)], logprob(ids[size_t(i)])});
  return out;
}

// --- what changes the logits ---

// `ids`: prompt and output so far.
void change(std::vector<float>& logits, const Vocabulary& v, const SamplingParams& p,
            const std::vector<int32_t>& ids, size_t prompt_len) {
  for (const auto& [token, bias] : p.logit_bias) {
    if (bias <= -100) {
      logits[size_t(token)] = kNever;
    } else {
      logits[size_t(token)] += bias;
    }
  }
  std::map<int32_t, int32_t> outputs;  // 0: in the prompt only
  for (size_t i = 0; i < ids.size(); i++) outputs[ids[i]] += i >= prompt_len;
  for (const auto& [token, count] : outputs) {
    float& logit = logits[size_t(token)];
    if (count > 0) {
      logit -= p.frequency_penalty * float(count);
      logit -= p.presence_penalty;
    }
    if (p.repetition_penalty != 1) {
      logit = logit > 0 ? logit / p.repetition_penalty : logit * p.repetition_penalty;
    }
  }
  if (int32_t(ids.size() - prompt_len) >= p.min_tokens) return;
  for (int32_t id : v.eos_ids) logits[size_t(id)] = kNever;
  for (int32_t id : p.stop_token_ids) logits[size_t(id)] = kNever;
}

// What the grammar does not allow goes. The token that it forces, or, where bans leave none of those that it
// allows, the lowest of them; -1: there is a choice.
int32_t limit(std::vector<float>& logits, GrammarMatcher& grammar) {
  std::vector<uint32_t> allowed(mask_words(int32_t(logits.size())));
  CHECK(grammar.fill_mask(allowed).is_ok());
  int32_t lowest = -1, n = 0;
  bool finite = false;
  for (size_t id = 0; id < logits.size(); id++) {
    if (!(allowed[id / 32] >> id % 32 & 1)) {
      logits[id] = kNever;
      continue;
    }
    if (n++ == 0) lowest = int32_t(id);
    finite |= logits[id] > kNever;
  }
  return n == 1 || !finite ? lowest : -1;
}

// --- the draw ---

// Philox4x32-10 of the 128-bit counter (output index, choice, 0, 0) and the seed as key.
double uniform(uint64_t seed, uint32_t choice, uint32_t output_index) {
  uint32_t c0 = output_index, c1 = choice, c2 = 0, c3 = 0;
  auto k0 = uint32_t(seed), k1 = uint32_t(seed >> 32);
  for (int round = 0; round < 10; round++) {
    const uint64_t a = uint64_t(0xD2511F53u) * c0, b = uint64_t(0xCD9E8D57u) * c2;
    c0 = uint32_t(b >> 32) ^ c1 ^ k0;
    c2 = uint32_t(a >> 32) ^ c3 ^ k1;
    c1 = uint32_t(b);
    c3 = uint32_t(a);
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return double((uint64_t(c0) << 32 | c1) >> 11) / double(uint64_t(1) << 53);
}

// The first of `order` at which the running sum of its weights exceeds the target.
int32_t pick(const std::vector<int32_t>& order, const std::vector<float>& weights, double target) {
  int32_t last = order.front();
  double sum = 0;
  for (int32_t id : order) {
    if (!(weights[size_t(id)] > 0)) continue;
    last = id;
    sum += double(weights[size_t(id)]);
    if (sum > target) break;
  }
  return last;
}

int32_t draw(const std::vector<float>& logits, const SamplingParams& p, double u) {
  const auto vocab = int32_t(logits.size());
  const auto most = std::max_element(logits.begin(), logits.end());
  if (p.temperature == 0 || p.top_k == 1) return int32_t(most - logits.begin());
  const Weights w = weights_of(logits, *most, 1 / p.temperature);
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  if (p.top_k == 0 && p.top_p == 1 && p.min_p == 0) return pick(order, w.each, u * double(w.sum));

  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return logits[size_t(a)] > logits[size_t(b)]; });
  while (logits[size_t(order.back())] == kNever) order.pop_back();
  double all = double(w.sum);
  if (p.top_k > 0 && p.top_k < vocab) {
    order.resize(std::min(order.size(), size_t(p.top_k)));
    all = 0;
    for (int32_t id : order) all += double(w.each[size_t(id)]);
  }
  double kept = 0;
  size_t n = 0;
  for (; n < order.size(); n++) {
    const float weight = w.each[size_t(order[n])];
    if (n > 0 && ((p.top_p < 1 && kept >= double(p.top_p) * all) || weight < p.min_p)) break;
    kept += double(weight);
  }
  order.resize(n);
  return pick(order, w.each, u * kept);
}

// --- how an answer ends ---

// The stop string whose end comes first in the text, the longest of several.
std::optional<std::string> find_stop(const std::vector<std::string>& stops, const std::string& text,
                                     int64_t& visible) {
  for (size_t end = 1; end <= text.size(); end++) {
    const std::string* found = nullptr;
    for (const std::string& stop : stops) {
      if (std::string_view(text).substr(0, end).ends_with(stop) && (!found || stop.size() > found->size()))
        found = &stop;
    }
    if (!found) continue;
    visible = int64_t(end - found->size());
    return *found;
  }
  return std::nullopt;
}

// False: the answer goes on.
bool ends(Answer& a, std::string& text, const Vocabulary& v, const Request& r, GrammarMatcher* grammar) {
  const SamplingParams& p = r.params;
  const int32_t token = a.tokens.back().id, n = int32_t(a.tokens.size());
  a.visible_bytes = int64_t(text.size());
  const bool eos = !p.ignore_eos && contains(v.eos_ids, token);
  if (n > p.min_tokens && (eos || contains(p.stop_token_ids, token))) {
    a.reason = FinishReason::kStop;
    a.matched = token;
    return true;
  }
  if (!r.skip_special_tokens || !v.tokens.control[size_t(token)]) text += v.tokens.of(token);
  a.visible_bytes = int64_t(text.size());
  if (const auto stop = find_stop(r.stop, text, a.visible_bytes)) {
    a.reason = FinishReason::kStop;
    a.matched = *stop;
    return true;
  }
  if (grammar) {
    CHECK(grammar->accept(token).is_ok());
    if (grammar->is_complete()) {
      a.reason = FinishReason::kStop;
      return true;
    }
  }
  return n == p.max_tokens;
}

std::vector<float> logits_after(const Vocabulary& v, const std::vector<int32_t>& ids, size_t n) {
  return sim_logits(std::span(ids).first(n), v.size, SimReadback::kAll);
}

}  // namespace

std::vector<int32_t> Answer::ids() const {
  std::vector<int32_t> out;
  for (const ExpectedToken& t : tokens) out.push_back(t.id);
  return out;
}

Answer expected_answer(const Vocabulary& v, const Request& r, int32_t choice) {
  Answer a;
  const SamplingParams& p = r.params;
  std::vector<int32_t> ids = r.prompt_ids;
  const int32_t n_top = std::max(p.top_logprobs, 0);
  if (r.prompt_logprob_begin >= 0) {
    for (auto at = size_t(r.prompt_logprob_begin); at + 1 < ids.size(); at++)
      a.prompt_logprobs.push_back(with_logprobs(logits_after(v, ids, at + 1), ids[at + 1], n_top));
  }
  std::string text;
  const auto grammar = r.grammar ? r.grammar->new_matcher() : nullptr;
  for (bool ended = p.max_tokens == 0; !ended;) {
    const std::vector<float> raw = logits_after(v, ids, ids.size());
    std::vector<float> logits = raw;
    change(logits, v, p, ids, r.prompt_ids.size());
    const int32_t forced = grammar ? limit(logits, *grammar) : -1;
    const int32_t token =
        forced >= 0
            ? forced
            : draw(logits, p, uniform(p.seed, uint32_t(choice), uint32_t(ids.size() - r.prompt_ids.size())));
    a.tokens.push_back(p.top_logprobs < 0 ? ExpectedToken{token, 0, {}} : with_logprobs(raw, token, n_top));
    ids.push_back(token);
    ended = ends(a, text, v, r, grammar.get());
  }
  return a;
}

}  // namespace gapless::sim_testing
