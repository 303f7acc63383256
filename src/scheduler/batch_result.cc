// What the results of a batch do to its requests.
#include <algorithm>

#include "base/check.h"
#include "base/trace_names.h"
#include "scheduler/scheduler.h"

namespace gapless {

void Scheduler::process_batch_result(InFlight&& launched) {
  BatchResult result = std::move(launched.ticket).take();
  Phase process = phase(HostPhase::kProcess);
  process.set_args(launched.id, launched.batch.rows().size());
  CHECK_EQ(result.batch_id, launched.id);
  const auto rows = launched.batch.rows();
  if (!result.status.is_ok()) {
    result.rows.assign(rows.size(), RowResult{});
    for (RowResult& row : result.rows) row.status = RowStatus::kFailed;
  }
  CHECK_EQ(result.rows.size(), rows.size());
  count_step(launched.batch, result);
  on_batch_completed(launched.batch, launched.id);
  deltas_.reserve(deltas_.size() + rows.size());
  for (size_t i = 0; i < rows.size(); i++) {
    Req& req = *rows[i].req;
    RowResult& row = result.rows[i];
    if (req.state() == ReqState::kFinished || req.epoch != rows[i].epoch) {
      on_late_result(rows[i], row);
    } else if (row.status == RowStatus::kFailed) {
      Status status = result.status.is_ok() ? Status::internal("the step failed") : result.status;
      finish(req, {FinishReason::kError, {}, std::move(status)}, add_delta(req));
    } else {
      CHECK(row.status == RowStatus::kOk, "request {} was dropped by the device but has not ended",
            req.request().id);
      rows[i].prefill ? process_batch_result_prefill(rows[i], row)
                      : process_batch_result_decode(rows[i], row);
    }
  }
  retire_finished();
  send_deltas();
}

void Scheduler::count_step(const ScheduleBatch& batch, const BatchResult& result) {
  metrics_.steps(batch.mode()).add();
  metrics_.prefill_tokens.add(batch.n_prefill_tokens());
  const TraceName& name = batch.mode() == ForwardMode::kDecode   ? trace::kDecode
                          : batch.mode() == ForwardMode::kExtend ? trace::kExtend
                                                                 : trace::kMixed;
  device_trace_.add(name, result.times.started, result.times.ended, int64_t(result.batch_id),
                    int64_t(batch.rows().size()), batch.n_tokens());
  if (last_step_ended_ > 0) {
    metrics_.device_gap_seconds.observe(std::max(result.times.started - last_step_ended_, 0.0));
  }
  last_step_ended_ = result.times.ended;
  if (batch.has_masked_rows()) metrics_.mask_wait_seconds.observe(result.times.stood_still);
}

void Scheduler::process_batch_result_prefill(const ScheduledRow& row, RowResult& result) {
  Req& req = *row.req;
  req.kv_done = row.end_pos;
  append_prompt_logprobs(req, result);
  if (row.emits) {
    append_token(req, result);
  } else if (row.completes) {  // max_tokens 0: the prompt is all there is
    TokenDelta& delta = add_delta(req);
    delta.embedding = std::move(result.embedding);
    finish(req, {FinishReason::kLength, {}, {}}, delta);
  }
  if (req.admitted() && config_.radix_cache) {
    memory_.tree.insert_unfinished(req.held.prefix, std::span(req.ids).first(req.kv_done), req.held.tail);
  }
}

void Scheduler::process_batch_result_decode(const ScheduledRow& row, RowResult& result) {
  row.req->kv_done = row.end_pos;
  append_token(*row.req, result);
}

// The row belongs to an admission that has ended. A request that ended takes no more; one that was retracted
// keeps the token: it is exact, only its KV is lost, and so every retraction still makes progress.
void Scheduler::on_late_result(const ScheduledRow& row, RowResult& result) {
  if (row.req->state() == ReqState::kFinished) metrics_.late_rows(result.status).add();
  if (row.req->state() == ReqState::kFinished || !row.emits || result.status != RowStatus::kOk) return;
  CHECK(row.req->state() == ReqState::kWaiting && row.output_index == row.req->output_len(),
        "request {}: token {} arrives late after {}", row.req->request().id, row.output_index,
        row.req->output_len());
  append_prompt_logprobs(*row.req, result);
  append_token(*row.req, result);
}

void Scheduler::append_prompt_logprobs(Req& req, RowResult& result) {
  const size_t first = req.request().prompt_logprob_begin + 1 + req.prompt_logprobs.size();
  for (size_t i = 0; i < result.prompt_logprobs.size(); i++) {
    OutputToken& token = req.prompt_logprobs.emplace_back();
    token.id = req.ids[first + i];
    token.logprob = result.prompt_logprobs[i];
    if (i < result.prompt_top.size()) token.top = std::move(result.prompt_top[i]);
  }
}

void Scheduler::append_token(Req& req, RowResult& result) {
  const int32_t token = result.token, index = req.output_len();
  CHECK(token >= 0 && token < config_.vocab_size, "request {}: token {} of {}", req.request().id, token,
        config_.vocab_size);
  req.ids.push_back(token);
  TokenDelta& delta = add_delta(req);
  delta.token = {token, result.logprob, std::move(result.top)};

  const TokenEnd end = ends_by_token(req.params, config_.eos_ids, index, token);
  StopMatcher& text = req.stop_matcher;
  const bool with_end = req.request().include_stop;
  const std::string_view added = token_bytes_->text_of(token, req.request().skip_special_tokens);
  if (end == TokenEnd::kEos || end == TokenEnd::kStopToken) {
    // What was held back is text after all; the token itself is not, unless it is wanted.
    req.visible_bytes = text.text_bytes() + (with_end ? int64_t(added.size()) : 0);
    return finish(req, {FinishReason::kStop, token, {}}, delta);
  }
  if (req.grammar) {
    if (Status status = req.grammar->accept(token); !status.is_ok())
      return finish(req, {FinishReason::kError, {}, std::move(status)}, delta);
  }
  const auto stop = text.feed(added);
  if (stop) {
    req.visible_bytes = with_end ? text.text_bytes() : text.visible_bytes();
    return finish(req, {FinishReason::kStop, text.stop(*stop), {}}, delta);
  }
  if (req.grammar && req.grammar->is_complete()) {
    req.visible_bytes = text.text_bytes();
    return finish(req, {FinishReason::kStop, {}, {}}, delta);
  }
  if (end == TokenEnd::kLength) {
    req.visible_bytes = text.text_bytes();
    return finish(req, {FinishReason::kLength, {}, {}}, delta);
  }
  req.visible_bytes = delta.visible_bytes = text.visible_bytes();
}

TokenDelta& Scheduler::add_delta(Req& req) {
  TokenDelta& delta = deltas_.emplace_back();
  delta.id = req.request().id;
  delta.choice = req.choice;
  delta.visible_bytes = req.visible_bytes;
  if (std::exchange(req.first_delta_sent, true)) return delta;
  delta.first = true;
  delta.prompt_tokens = req.prompt_len;
  delta.cached_tokens = std::max(req.group.cached_tokens, 0);
  // All or none: a request that is aborted in the middle of its prompt has only some.
  const int32_t expected = req.prompt_len - 1 - req.request().prompt_logprob_begin;
  if (int32_t(req.prompt_logprobs.size()) == expected) delta.prompt_logprobs = std::move(req.prompt_logprobs);
  return delta;
}

void Scheduler::finish(Req& req, Finish finish, TokenDelta& delta) {
  metrics_.finished(finish.reason).add();
  delta.visible_bytes = req.visible_bytes;
  delta.finish = std::move(finish);
  if (req.state() == ReqState::kWaiting) {
    waiting_.erase(std::ranges::find(waiting_, &req));
  } else {
    release(req);
    if (chunked_req_ == &req) chunked_req_ = nullptr;
  }
  req.advance(ReqState::kFinished);
  finished_.push_back(&req);
}

// What a launched batch names stays as it is until the last of them has completed: leased, and out of the
// tree.
void Scheduler::release(Req& req) {
  ReqResources held = std::move(req.held);
  if (req.in_flight == 0) return give_back(req, req.kv_done, std::move(held));
  held.tail.hold();
  retiring_.push_back({req.last_batch_id, &req, req.kv_done, std::move(held)});
}

// The pages that are computed and whole go to the tree, for whoever asks for the same prefix next; everything
// else is free again.
void Scheduler::give_back(const Req& req, int32_t kv_done, ReqResources held) {
  if (!config_.radix_cache) return;
  memory_.tree.insert_finished(held.prefix, std::span(req.ids).first(kv_done), held.tail);
}

void Scheduler::on_batch_completed(const ScheduleBatch& batch, uint64_t id) {
  for (const ScheduledRow& row : batch.rows()) row.req->in_flight--;
  for (uint64_t hash : batch.pages_written()) writing_.remove(hash);
  std::erase_if(retiring_, [&](Retiring& r) {
    if (r.last_batch_id > id) return false;
    give_back(*r.req, r.kv_done, std::move(r.held));
    return true;
  });
}

// Forgets the requests that have ended and that no launched batch names any more.
void Scheduler::retire_finished() {
  if (finished_.empty()) return;
  std::erase_if(running_, [](const Req* req) { return req->state() == ReqState::kFinished; });
  std::erase_if(finished_, [this](Req* req) {
    if (req->in_flight > 0) return false;
    ReqGroup& group = req->group;
    if (--group.open == 0) groups_.erase(RequestId(group.request->id));
    return true;
  });
}

void Scheduler::send_deltas() {
  update_gauges();
  if (deltas_.empty()) return;
  metrics_.generation_tokens.add(
      double(std::ranges::count_if(deltas_, [](const TokenDelta& d) { return d.token.has_value(); })));
  Phase send = phase(HostPhase::kSend);
  send.set_args(deltas_.size());
  sink_.on_tokens(std::exchange(deltas_, {}));
}

}  // namespace gapless
