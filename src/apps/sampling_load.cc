#include "apps/sampling_load.h"

#include <algorithm>
#include <random>

#include "base/clock.h"
#include "sampling/sampler.h"

namespace gapless {
namespace {

constexpr int32_t kPromptTokens = 256;
constexpr int32_t kPerStep = 4;  // samplings that share the cost of handing a step over
constexpr int32_t kSteps = 25;
constexpr float kHead = 12;  // of the logits of a few tokens above the others, as a model's answer has them

SamplingParams params_of(const std::string& kind, int32_t row) {
  SamplingParams p;
  p.seed = uint64_t(row) + 1;
  p.max_tokens = kPerStep * (kSteps + 1);
  p.temperature = kind == "temperature" || kind == "top-p" ? 0.8f : kind == "top-p-flat" ? 1.f : 0.f;
  if (kind == "top-p" || kind == "top-p-flat") p.top_p = 0.95f;
  if (kind == "penalties") {
    p.frequency_penalty = 0.01f;
    p.presence_penalty = 0.01f;
    p.repetition_penalty = 1.01f;
  }
  if (kind == "logprobs") p.top_logprobs = kMaxTopLogprobs;
  return p;
}

void fill_logits(const SamplingLoad& load, int64_t ld, float* logits) {
  std::mt19937 random(1);
  std::normal_distribution<float> tail(0, 1);
  for (int32_t r = 0; r < load.rows; r++) {
    float* row = logits + r * ld;
    for (int32_t i = 0; i < load.vocab; i++) row[i] = tail(random);
    for (int i = 0; i < 20 && load.kind != "top-p-flat"; i++)
      row[random() % uint32_t(load.vocab)] += kHead + tail(random);
  }
}

}  // namespace

std::vector<std::string> sampling_kinds() {
  return {"greedy", "temperature", "top-p", "top-p-flat", "penalties", "logprobs"};
}

Result<double> measure_sampling(Device& device, Stream& stream, const SamplingLoad& load) {
  const int64_t ld = load.vocab + 16;
  ASSIGN_OR_RETURN(const std::unique_ptr<Sampler> sampler,
                   Sampler::create(device, load.vocab, {}, load.rows));
  ASSIGN_OR_RETURN(const Buffer logits,
                   device.allocate(size_t(load.rows) * size_t(ld) * sizeof(float), MemoryKind::kDevice));
  fill_logits(load, ld, logits.as<float>());
  std::vector<int32_t> prompt;
  for (int32_t i = 0; i < kPromptTokens; i++)
    prompt.push_back(int32_t(int64_t(i) * load.vocab / kPromptTokens));
  std::vector<SlotStatePtr> states;
  std::vector<SlotState*> slots;
  std::vector<LogitRow> rows;
  for (int32_t r = 0; r < load.rows; r++) {
    states.push_back(sampler->prepare({.slot = r,
                                       .epoch = 1,
                                       .params = params_of(load.kind, r),
                                       .cached_tokens = 0,
                                       .prompt_ids = prompt,
                                       .output_ids = {}}));
    slots.push_back(states.back().get());
    rows.push_back({r, kSampleRow});
  }
  std::vector<SampleResult> results(rows.size());
  std::vector<FutureEntry> map(rows.size());
  std::vector<double> seconds;
  for (int32_t step = 0; step <= kSteps; step++) {
    auto ops = stream.new_ops();
    for (int32_t i = 0; i < kPerStep; i++)
      sampler->push(*ops, {.rows = {&load.rows, 0, load.rows},
                           .logit_rows = rows.data(),
                           .logits = logits.as<float>(),
                           .ld = ld,
                           .slots = slots.data(),
                           .future_map = map.data(),
                           .results = results.data()});
    const double begin = steady_seconds();
    RETURN_IF_ERROR(stream.submit(std::move(ops))->wait());
    if (step > 0) seconds.push_back((steady_seconds() - begin) / kPerStep);
  }
  std::nth_element(seconds.begin(), seconds.begin() + kSteps / 2, seconds.end());
  return seconds[kSteps / 2];
}

}  // namespace gapless
