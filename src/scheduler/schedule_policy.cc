#include "scheduler/schedule_policy.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace gapless {

namespace {

RadixCache::Place find_place(const RadixCache& tree, const Req& req) {
  return tree.find(req.request().cache_namespace, req.cacheable_ids());
}

// Nodes weigh what waits in and below them; heavy subtrees come first and a node's own requests after those
// below it, so that requests that share a prefix run together (SGLang's dfs-weight).
class DfsWeight {
 public:
  DfsWeight(std::span<Req*> reqs, const RadixCache& tree) {
    for (Req* req : reqs) {
      const RadixNode* node = find_place(tree, *req).node;
      own_[node].push_back(req);
      for (const RadixNode* child = nullptr;; child = node, node = node->parent()) {
        if (child && weight_[child] == 1) children_[node].push_back(child);
        weight_[node]++;
        if (!node) break;  // above the roots
      }
    }
    size_t next = 0;
    emit(nullptr, reqs, next);
  }

 private:
  void emit(const RadixNode* node, std::span<Req*> out, size_t& next) {
    auto& children = children_[node];
    std::ranges::sort(children, [&](const RadixNode* a, const RadixNode* b) {
      return weight_[a] != weight_[b] ? weight_[a] > weight_[b] : a->id() < b->id();
    });
    for (const RadixNode* child : children) emit(child, out, next);
    for (Req* req : own_[node]) out[next++] = req;
  }
  std::unordered_map<const RadixNode*, int32_t> weight_;
  std::unordered_map<const RadixNode*, std::vector<const RadixNode*>> children_;
  std::unordered_map<const RadixNode*, std::vector<Req*>> own_;
};

void sort_lpm(std::span<Req*> reqs, const RadixCache& tree) {
  for (Req* req : reqs) {
    if (req->matched_version == tree.version()) continue;
    req->matched_version = tree.version();
    req->matched_hint = find_place(tree, *req).length;
  }
  std::ranges::stable_sort(reqs, std::greater(), [](const Req* r) { return r->matched_hint; });
}

// Own Fisher-Yates: std::shuffle may differ between libraries, and the order must be the same everywhere.
void shuffle(std::span<Req*> reqs, std::mt19937_64& rng) {
  for (size_t i = reqs.size(); i > 1; i--) std::swap(reqs[i - 1], reqs[rng() % i]);
}

}  // namespace

std::vector<Req*> calc_priority(const std::deque<Req*>& waiting, SchedulePolicy policy,
                                const RadixCache& tree, std::mt19937_64& rng, size_t limit) {
  if (policy == SchedulePolicy::kLpm && waiting.size() > kLpmQueueLimit) policy = SchedulePolicy::kFcfs;
  const size_t n = policy == SchedulePolicy::kFcfs ? std::min(limit, waiting.size()) : waiting.size();
  std::vector<Req*> order(waiting.begin(), waiting.begin() + n);
  const auto first_new = std::ranges::find_if(order, [](const Req* r) { return !r->retracted; });
  const std::span<Req*> rest(first_new, order.end());
  switch (policy) {
    case SchedulePolicy::kFcfs:
      break;
    case SchedulePolicy::kLpm:
      sort_lpm(rest, tree);
      break;
    case SchedulePolicy::kLof:
      std::ranges::stable_sort(rest, std::greater(), [](const Req* r) { return r->params.max_tokens; });
      break;
    case SchedulePolicy::kRandom:
      shuffle(rest, rng);
      break;
    case SchedulePolicy::kDfsWeight:
      DfsWeight(rest, tree);
      break;
  }
  return order;
}

NewTokenRatio::NewTokenRatio(double schedule_conservativeness)
    : init_(std::min(0.7 * schedule_conservativeness, 1.0)),
      min_(std::min(init_ * 0.14, 1.0)),
      decay_((init_ - min_) / 600),
      value_(init_) {}

void NewTokenRatio::on_decode_step() {
  value_ = std::max(value_ - decay_, min_);
}

void NewTokenRatio::on_retract(int64_t output_tokens, int64_t max_tokens, int64_t requests) {
  value_ = std::min(1.0, double(output_tokens + 20 * requests) / double(std::max<int64_t>(max_tokens, 1)));
}

void PagesBeingWritten::remove(uint64_t hash) {
  const auto it = count_.find(hash);
  CHECK(it != count_.end());
  if (--it->second == 0) count_.erase(it);
}

PrefillAdder::PrefillAdder(const SchedulerConfig& config, KvMemory& memory, PagesBeingWritten& writing,
                           const Budget& budget, ScheduleBatch& batch)
    : config_(config),
      memory_(memory),
      writing_(writing),
      budget_(budget),
      batch_(batch),
      rem_input_(std::max(config.max_prefill_tokens - batch.n_prefill_tokens(), 0)),
      rem_chunk_(chunk_tokens(config, budget.decode_rows) - batch.n_prefill_tokens()) {}

// Decode rows count against the chunk, but never take more than three quarters of it: a prompt always gets
// on, however many decode.
int32_t PrefillAdder::chunk_tokens(const SchedulerConfig& config, int32_t decode_rows) {
  const int32_t chunk = config.chunked_prefill_size;
  return chunk < 0 ? INT32_MAX : std::max(chunk - decode_rows, (chunk + 3) / 4);
}

int32_t PrefillAdder::clipped_new_tokens(const Req& req) {
  return std::min(std::max(req.params.max_tokens - req.output_len(), 0), kClipMaxTokensEstimate);
}

int32_t PrefillAdder::cut(int32_t start, int32_t end) const {
  const int32_t n = std::min(end - start, rem_chunk_);
  if (n == end - start) {
    // Uncut, but not too much for one step unless it is the only one.
    return n > rem_input_ && !batch_.empty() ? 0 : n;
  }
  // A cut at the end of a page lets the whole of what was computed enter the tree.
  const int32_t aligned = (start + n) / config_.page_size * config_.page_size;
  return aligned > start ? aligned - start : n;
}

void PrefillAdder::append(Req& req, int32_t n_tokens) {
  const size_t before = batch_.pages_written().size();
  const bool truncated = req.kv_launched + n_tokens < req.len();
  batch_.add_prefill(req, n_tokens);
  for (uint64_t hash : batch_.pages_written().subspan(before)) writing_.add(hash);
  rem_input_ = std::max(rem_input_ - n_tokens, 0);
  // At most one request is in the middle of its prompt, so nothing follows one that was cut.
  rem_chunk_ = truncated ? 0 : rem_chunk_ - n_tokens;
}

bool PrefillAdder::add_chunked_req(Req& req) {
  const int32_t n = cut(req.kv_launched, req.len());
  if (n > 0) append(req, n);
  return n > 0;
}

bool PrefillAdder::is_held(Req& req, int32_t cached_pages) const {
  const int32_t usable = int32_t(req.cacheable_ids().size()) / config_.page_size;
  return config_.radix_cache && cached_pages < usable &&
         writing_.contains(req.page_hash(cached_pages, config_.page_size));
}

bool PrefillAdder::fits(const Req& req, int32_t cached_pages) const {
  const int32_t page = config_.page_size;
  const int32_t prompt_pages = (req.len() + page - 1) / page - cached_pages;
  const int32_t available = memory_.available_pages() - budget_.reserved_pages;
  if (prompt_pages > available) return false;
  if (budget_.alone) return true;
  const int64_t total = int64_t(prompt_pages) * page + clipped_new_tokens(req);
  return total <= int64_t(available) * page - budget_.expected_tokens;
}

AddResult PrefillAdder::add_one_req(Req& req) {
  if (rem_chunk_ <= 0 || rem_input_ <= 0) return AddResult::kOther;
  // A retracted request is not admitted again before the result of its last launched batch: that token may
  // end it.
  if (req.in_flight > 0) return AddResult::kNoToken;
  std::vector<int32_t> cached;
  const auto ids = req.cacheable_ids().first(config_.radix_cache ? req.cacheable_ids().size() : 0);
  CacheHandle prefix = memory_.tree.match_prefix(req.request().cache_namespace, ids, cached);
  if (is_held(req, prefix.n_pages())) return AddResult::kHeld;
  // The lock counts: what it covers is no longer available.
  if (!fits(req, prefix.n_pages())) return AddResult::kNoToken;
  const int32_t n = cut(prefix.n_pages() * config_.page_size, req.len());
  if (n == 0) return AddResult::kOther;
  req.held.prefix = std::move(prefix);
  take_pages(req, cached);
  append(req, n);
  return AddResult::kAdded;
}

void PrefillAdder::take_pages(Req& req, const std::vector<int32_t>& cached) {
  const int32_t page = config_.page_size;
  req.advance(ReqState::kPrefill);
  req.epoch = ++memory_.admissions;
  // So that decoding does not allocate.
  req.ids.reserve(size_t(req.len()) + size_t(clipped_new_tokens(req)));
  // Those that were not delivered are computed again, so none comes twice.
  if (!req.first_delta_sent) req.prompt_logprobs.clear();
  req.held.slot = memory_.rows.allocate();
  req.held.tail = KvLease(memory_.allocator);
  memory_.allocate(req.held.tail, (req.len() + page - 1) / page - int32_t(cached.size()));
  for (int32_t p : cached) memory_.rows.append_page(req.held.slot, p);
  for (int32_t p : req.held.tail.pages()) memory_.rows.append_page(req.held.slot, p);
  req.kv_launched = req.kv_done = int32_t(cached.size()) * page;
  req.launched_outputs = req.output_len();
  batch_.init_slot(req, memory_);
  budget_.expected_tokens += clipped_new_tokens(req);
  budget_.alone = false;
}

}  // namespace gapless
