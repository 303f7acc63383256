#include "sampling/sampler_ops.h"

#include <algorithm>
#include <functional>
#include <limits>

#include "base/check.h"
#include "sampling/random.h"
#include "sampling/token_mask.h"

namespace gapless {
namespace {

using P = SamplerOpParams;
struct TopToken {
  float logit;
  int32_t id;
};

int32_t one_chunk(const P&) {
  return 1;
}
int32_t chunk_per_row(const P& p) {
  return p.w.counts->rows;
}
int32_t chunk_per_sampled_row(const P& p) {
  return p.w.counts->sampled;
}
int32_t chunk_per_raw_block(const P& p) {
  return p.w.counts->raw * p.w.n_blocks;
}
int32_t chunk_per_drawn_block(const P& p) {
  return p.w.counts->drawn * p.w.n_blocks;
}

// One row of the group and its place in the work memory.
struct Row {
  Row(const P& p, int32_t r)
      : info(p.p.logit_rows[p.p.rows.begin + r]),
        state(*p.p.slots[info.slot]),
        logits(p.p.logits + r * p.p.ld),
        result(p.p.results[p.p.rows.begin + r]),
        raw(p.w.raw + int64_t(r) * p.w.n_blocks, size_t(p.w.n_blocks)),
        changed(p.w.changed + int64_t(r) * p.w.n_blocks, size_t(p.w.n_blocks)),
        group_max(p.w.group_max + int64_t(r) * p.w.n_blocks * kGroupsPerBlock,
                  size_t(p.w.n_blocks) * kGroupsPerBlock),
        log_sum_exp(p.w.log_sum_exp[r]) {}

  bool sampled() const { return info.target == kSampleRow; }
  bool forced() const { return info.forced >= 0; }
  bool wants_logprobs() const { return info.target >= 0 || (sampled() && state.wants_logprobs()); }
  int32_t n_top(int32_t vocab) const {
    return std::clamp(state.params().top_logprobs, 0, std::min(kMaxTopLogprobs, vocab));
  }

  const LogitRow& info;
  SlotState& state;
  float* logits;
  SampleResult& result;
  std::span<BlockStats> raw, changed;
  std::span<float> group_max;
  double& log_sum_exp;
};

// The piece of a row that a chunk of a block op works on.
struct Piece {
  Piece(const P& p, const int32_t* rows, int32_t chunk)
      : row(p, rows[chunk / p.w.n_blocks]),
        block(chunk % p.w.n_blocks),
        begin(block * kVocabBlock),
        n(std::min(kVocabBlock, p.w.vocab - begin)) {}
  Row row;
  int32_t block, begin, n;
};

std::span<float> block_scratch(OpContext& context) {
  return {reinterpret_cast<float*>(context.scratch.data()), kVocabBlock};
}

// --- plan ---

void run_plan(const P& p, int32_t, OpContext&) {
  SamplerWork::Counts counts{.rows = p.p.rows.size(), .raw = 0, .drawn = 0, .sampled = 0};
  for (int32_t r = 0; r < counts.rows; ++r) {
    const Row row(p, r);
    if (row.wants_logprobs()) p.w.raw_rows[counts.raw++] = r;
    if (row.sampled() && !row.forced()) p.w.sampled_rows[counts.drawn++] = r;
  }
  counts.sampled = counts.drawn;
  for (int32_t r = 0; r < counts.rows; ++r)
    if (const Row row(p, r); row.sampled() && row.forced()) p.w.sampled_rows[counts.sampled++] = r;
  *p.w.counts = counts;
}

// --- logprobs ---

// The n largest of a list in which equal ones come by ascending id: the earlier stays in front.
void insert_top(std::span<TopToken> top, TopToken token) {
  if (!(token.logit > top.back().logit)) return;
  size_t at = top.size() - 1;
  for (; at > 0 && token.logit > top[at - 1].logit; --at) top[at] = top[at - 1];
  top[at] = token;
}

constexpr TopToken kNoToken{-std::numeric_limits<float>::infinity(), -1};

void run_logprobs(const P& p, int32_t chunk, OpContext& context) {
  const Piece piece(p, p.w.raw_rows, chunk);
  const float* x = piece.row.logits + piece.begin;
  BlockStats& stats = piece.row.raw[size_t(piece.block)];
  stats.max = p.w.math->max(x, piece.n, &piece.row.group_max[size_t(piece.block) * kGroupsPerBlock]);
  stats.sum = p.w.math->exp_sum(x, piece.n, stats.max.max, 1, block_scratch(context).data());
}

// The largest logits of a row, at most top.size() of them; what is left stays kNoToken. The n-th largest of
// the group maxima is reached by at least n logits, so only groups that reach it are read: about n of them,
// where the vocabulary has thousands.
void find_top(const Row& row, int32_t vocab, std::span<float> maxima, std::span<TopToken> top) {
  std::copy(row.group_max.begin(), row.group_max.end(), maxima.begin());
  float cut = -std::numeric_limits<float>::infinity();
  if (top.size() <= maxima.size()) {
    const auto nth = maxima.begin() + ptrdiff_t(top.size()) - 1;
    std::nth_element(maxima.begin(), nth, maxima.end(), std::greater<>());
    cut = *nth;
  }
  for (size_t g = 0; g < row.group_max.size(); ++g) {
    if (!(row.group_max[g] >= cut)) continue;
    const int32_t begin = int32_t(g) * kMaxGroup;
    for (int32_t i = begin; i < std::min(vocab, begin + kMaxGroup); ++i) insert_top(top, {row.logits[i], i});
  }
}

float logprob(double logit, double log_sum_exp) {
  return float(logit - log_sum_exp);
}

void finish_logprobs(const P& p, const Row& row, OpContext& context) {
  row.log_sum_exp = log_sum_exp(row.raw);
  const int32_t n_top = row.n_top(p.w.vocab);
  TopToken best[kMaxTopLogprobs];
  std::fill_n(best, n_top, kNoToken);
  if (n_top > 0) {
    const std::span<float> maxima(reinterpret_cast<float*>(context.scratch.data()), row.group_max.size());
    CHECK_LE(maxima.size_bytes(), context.scratch.size());
    find_top(row, p.w.vocab, maxima, {best, size_t(n_top)});
  }
  row.result.n_top = 0;
  for (int32_t i = 0; i < n_top && best[i].id >= 0; ++i)
    row.result.top[row.result.n_top++] = {best[i].id, logprob(double(best[i].logit), row.log_sum_exp)};
  if (!row.sampled()) row.result.logprob = logprob(double(row.logits[row.info.target]), row.log_sum_exp);
}

void run_change(const P& p, int32_t r, OpContext& context) {
  const Row row(p, r);
  row.result.token = -1;
  row.result.logprob = 0;
  row.result.n_top = 0;
  if (row.wants_logprobs()) finish_logprobs(p, row, context);
  if (row.sampled() && row.state.changes_logits()) row.state.change_logits(row.logits);
}

// --- sampling ---

// Sums are not needed where the draw is among candidates only.
bool needs_sums(const SlotState& state, int32_t vocab) {
  return !state.greedy() && (state.params().top_k == 0 || state.params().top_k >= vocab);
}

void run_scan(const P& p, int32_t chunk, OpContext& context) {
  const Piece piece(p, p.w.sampled_rows, chunk);
  float* x = piece.row.logits + piece.begin;
  if (piece.row.info.allowed) ban_others(piece.row.info.allowed, piece.begin, piece.n, x);
  BlockStats& stats = piece.row.changed[size_t(piece.block)];
  stats.max = p.w.math->max(x, piece.n, &piece.row.group_max[size_t(piece.block) * kGroupsPerBlock]);
  const SlotState& state = piece.row.state;
  if (!needs_sums(state, p.w.vocab)) return;
  // A block of which nothing is allowed has no weight; its exponentials would be of -inf minus -inf.
  if (stats.max.max == -std::numeric_limits<float>::infinity())
    stats.sum = 0;
  else
    stats.sum = p.w.math->exp_sum(x, piece.n, stats.max.max, 1 / state.params().temperature,
                                  block_scratch(context).data());
}

int32_t sample(const P& p, const Row& row, std::span<std::byte> scratch) {
  const SlotState& state = row.state;
  const SamplingParams& params = state.params();
  const int32_t most_likely = sample_greedy(row.changed);
  // Without a finite logit (everything banned) there is nothing to draw from.
  if (!(row.logits[most_likely] > -std::numeric_limits<float>::infinity()))
    return row.info.allowed ? first_allowed(row.info.allowed, p.w.vocab) : most_likely;
  if (state.greedy()) return most_likely;
  const double uniform =
      random_uniform(params.seed, params.choice, state.output_index(), RandomPurpose::kSampleToken);
  const SampledRow sampled{row.logits, p.w.vocab, row.changed, row.group_max, p.w.math};
  return state.filtered() ? sample_filtered(sampled, params, uniform, scratch)
                          : sample_all(sampled, params.temperature, uniform, scratch);
}

void run_finish(const P& p, int32_t i, OpContext& context) {
  const Row row(p, p.w.sampled_rows[i]);
  const int32_t token = row.forced() ? row.info.forced : sample(p, row, context.scratch);
  row.result.token = token;
  if (row.state.wants_logprobs())
    row.result.logprob = logprob(double(row.state.raw_logit(row.logits, token)), row.log_sum_exp);
  FutureEntry& entry = p.p.future_map[row.info.slot];
  entry.token = token;
  entry.output_index = row.state.output_index();
  row.state.advance(token);
}

}  // namespace

void push_sampler_ops(OpList& ops, const SamplerOpParams& params) {
  ops.push<one_chunk, run_plan>("sample_plan", params);
  ops.push<chunk_per_raw_block, run_logprobs>("sample_logprobs", params);
  ops.push<chunk_per_row, run_change>("sample_change", params);
  ops.push<chunk_per_drawn_block, run_scan>("sample_scan", params);
  ops.push<chunk_per_sampled_row, run_finish>("sample_finish", params);
}

}  // namespace gapless
