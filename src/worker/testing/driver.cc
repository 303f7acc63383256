#include "worker/testing/driver.h"

namespace gapless::testing {

Driver::Driver(ModelWorkerClient& worker, uint64_t seed, Options options)
    : worker_(worker), options_(std::move(options)), random_(seed ^ 0x9e3779b97f4a7c15) {
  std::mt19937_64 requests(seed);  // the same whatever happens to them
  for (int32_t i = 0; i < kSeqs; i++) {
    TestRequest r{};
    r.slot = 1 + i;
    r.masked = requests() % 3 == 0;
    SamplingParams& p = r.params;
    p.max_tokens = 1 + int32_t(requests() % 12);
    p.temperature = requests() % 2 ? 1.f : 0.f;
    p.seed = requests();
    p.top_logprobs = int32_t(requests() % 3) - 1;
    if (requests() % 2) p.frequency_penalty = 1.f, p.repetition_penalty = 1.3f;
    if (requests() % 3 == 0) p.min_tokens = 4;
    // Makes ends by token likely.
    for (int32_t n = 0; n < 40; n++) p.stop_token_ids.push_back(int32_t(requests() % kVocab));
    if (requests() % 2) p.top_k = 20;
    for (int32_t n = 1 + int32_t(requests() % 14); n > 0; n--)
      r.prompt.push_back(int32_t(requests() % kVocab));
    requests_.push_back(std::move(r));
  }
}

bool Driver::all_finished() const {
  return std::ranges::all_of(requests_, &TestRequest::finished);
}

void Driver::run() {
  while ((!all_finished() || !in_flight_.empty()) && !::testing::Test::HasFatalFailure()) {
    const bool launched = in_flight_.size() < options_.depth && launch();
    between();
    if (launched) give_masks();
    if (launched && in_flight_.size() < options_.depth) continue;
    if (!in_flight_.empty()) process();
    between();
    give_masks();
  }
}

void Driver::admit(ModelWorkerBatch& batch, TestRequest& r) {
  r.admitted = true;
  r.epoch = next_epoch_++;
  r.launched_pos = 0;
  r.launched_outputs = int32_t(r.outputs.size());
  SlotInit init;
  init.slot = r.slot;
  init.epoch = r.epoch;
  init.params = r.params;
  init.prompt_ids = r.prompt;
  init.output_ids = r.outputs;
  batch.slot_inits.push_back(std::move(init));
  for (int32_t i = 0; i < 8; i++) batch.page_writes.push_back({r.slot, i, 1 + (r.slot - 1) * 8 + i});
}

void Driver::add_row(ModelWorkerBatch& batch, std::vector<Row>& rows, size_t at) {
  TestRequest& r = requests_[at];
  // Nothing is admitted again before all that was launched of it is known.
  if (!r.admitted && r.in_flight > 0) return;
  if (r.admitted && r.launched_outputs >= r.params.max_tokens) return;
  const int32_t room = 60 - int32_t(batch.input_ids.size());
  if (room <= 0) return;
  if (!r.admitted) admit(batch, r);
  const std::vector<int32_t> ids = r.ids();
  const int32_t known = int32_t(ids.size()), left = known - r.launched_pos;
  const bool prefill = left > 1;
  const int32_t n = prefill ? 1 + int32_t(random_() % uint64_t(std::min(left, room))) : 1;
  const bool emits = n >= left;
  batch.rows.push_back({.slot = r.slot,
                        .epoch = r.epoch,
                        .input_begin = int32_t(batch.input_ids.size()),
                        .n_tokens = n,
                        .start_pos = r.launched_pos,
                        .emits = emits,
                        .output_index = r.launched_outputs,
                        .masked = emits && r.masked});
  for (int32_t i = 0; i < n; i++) {
    const int32_t pos = r.launched_pos + i;
    batch.input_ids.push_back(pos < known ? ids[size_t(pos)] : placeholder(r.slot));
  }
  r.launched_pos += n;
  r.launched_outputs += emits;
  r.in_flight++;
  rows.push_back({at, r.epoch, emits, emits && r.masked});
}

bool Driver::launch() {
  const std::vector<TestRequest> before = requests_;
  ModelWorkerBatch batch;
  batch.mode = ForwardMode::kMixed;
  batch.id = next_id_++;
  std::vector<Row> rows;
  for (size_t i = 0; i < requests_.size(); i++) {
    TestRequest& r = requests_[i];
    if (r.finished || !chance(0.7)) continue;
    if (r.admitted && chance(options_.retract)) r.admitted = false;
    add_row(batch, rows, i);
  }
  if (rows.empty()) return false;
  Frozen frozen(std::move(batch));
  options_.on_launch(*frozen);
  PendingForward ticket = worker_.forward_batch_generation(std::move(frozen));
  between();
  if (chance(options_.recall) && ticket.try_recall()) {
    recalls_++;
    requests_ = before;
    return false;
  }
  in_flight_.push_back({std::move(ticket), std::move(rows)});
  return true;
}

// Of the launch behind which nothing is queued, when every token before it is known.
void Driver::give_masks() {
  if (in_flight_.size() != 1 || !in_flight_.back().ticket.waits_for_sampling_info()) return;
  SamplingInfo info;
  for (const Row& row : in_flight_.back().rows) {
    if (!row.masked) continue;
    const TestRequest& r = requests_[row.request];
    info.rows.push_back(r.finished || r.epoch != row.epoch ? RowMask::kEnded : RowMask::kAllowed);
    const size_t begin = info.allowed.size();
    info.allowed.resize(begin + mask_words(kVocab));
    const int32_t previous = r.ids().back();
    for (int32_t id = 0; id < kVocab; id++)
      if (allowed_after(previous, id)) info.allowed[begin + size_t(id / 32)] |= 1u << id % 32;
  }
  in_flight_.back().ticket.set_sampling_info(std::move(info));
}

void Driver::process() {
  InFlight oldest = std::move(in_flight_.front());
  in_flight_.pop_front();
  options_.wait(oldest.ticket.copy_done());
  const BatchResult result = std::move(oldest.ticket).take();
  ASSERT_TRUE(result.status.is_ok()) << result.status.message();
  ASSERT_EQ(result.rows.size(), oldest.rows.size());
  for (size_t i = 0; i < oldest.rows.size(); i++) {
    const Row& row = oldest.rows[i];
    TestRequest& r = requests_[row.request];
    r.in_flight--;
    dropped_ += result.rows[i].status == RowStatus::kDropped;
    if (r.finished) continue;
    // The late token of a retracted request counts.
    ASSERT_EQ(result.rows[i].status, RowStatus::kOk) << "slot " << r.slot;
    if (row.emits) append(r, result.rows[i]);
  }
}

void Driver::append(TestRequest& r, const RowResult& result) {
  const int32_t index = int32_t(r.outputs.size());
  ASSERT_GE(result.token, 0);
  ASSERT_TRUE(!r.masked || allowed_after(r.ids().back(), result.token));
  r.outputs.push_back(result.token);
  r.logprobs.push_back(result.logprob);
  for (const TokenLogprob& t : result.top) r.logprobs.push_back(t.logprob);
  const int32_t eos[] = {kEos};
  r.finished = ends_by_token(r.params, eos, index, result.token) != TokenEnd::kNo;
}

}  // namespace gapless::testing
