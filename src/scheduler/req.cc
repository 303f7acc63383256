#include "scheduler/req.h"

#include "base/check.h"

namespace gapless {

const char* req_state_name(ReqState state) {
  static constexpr const char* kNames[] = {"waiting", "prefill", "decode", "finished"};
  return kNames[size_t(state)];
}

Req::Req(ReqGroup& group, int32_t choice, uint64_t arrival)
    : group(group),
      choice(choice),
      arrival(arrival),
      prompt_len(int32_t(group.request->prompt_ids.size())),
      params(group.request->params),
      ids(group.request->prompt_ids),
      stop_matcher(group.request->stop),
      grammar(group.request->grammar ? group.request->grammar->new_matcher() : nullptr) {
  params.choice = choice;
}

void Req::advance(ReqState to) {
  bool legal = false;
  switch (state_) {
    case ReqState::kWaiting:
      legal = to == ReqState::kPrefill || to == ReqState::kFinished;
      break;
    case ReqState::kPrefill:
    case ReqState::kDecode:
      legal = to != state_ && !(state_ == ReqState::kDecode && to == ReqState::kPrefill);
      break;
    case ReqState::kFinished:
      break;
  }
  CHECK(legal, "request {}.{}: {} -> {}", request().id, choice, req_state_name(state_), req_state_name(to));
  state_ = to;
}

std::span<const int32_t> Req::cacheable_ids() const {
  if (wants_prompt_logprobs()) return {};
  return std::span(ids).first(wants_embedding() ? size_t(request().embed_begin) : ids.size() - 1);
}

uint64_t Req::page_hash(int32_t index, int32_t page_size) {
  while (int32_t(page_hashes_.size()) <= index) {
    uint64_t h =
        page_hashes_.empty() ? std::hash<std::string>()(request().cache_namespace) : page_hashes_.back();
    const size_t begin = page_hashes_.size() * page_size;
    for (int32_t id : std::span(ids).subspan(begin, page_size)) {
      h = (h ^ uint32_t(id)) * 0x9e3779b97f4a7c15ull;  // odd, so each step is a bijection of h
      h ^= h >> 32;
    }
    page_hashes_.push_back(h);
  }
  return page_hashes_[index];
}

void Req::reset_for_retract() {
  advance(ReqState::kWaiting);
  epoch = 0;
  retracted = true;
  kv_launched = kv_done = 0;
}

}  // namespace gapless
