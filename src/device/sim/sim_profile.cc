#include "device/sim/sim_profile.h"

#include <fmt/ranges.h>

namespace gapless {
namespace {

// --- machines ---

// Launch: "Constant time launch for straight-line CUDA graphs" (NVIDIA technical blog, 2024): 2.5 us of host
// time to launch a graph again, and about as much until its first kernel begins.
constexpr double kGraphLaunch = 5e-6;
// The same page: 14 us on the device for a straight line of 10 empty kernels. Charged once per layer, as if a
// layer were one kernel: a real step has several, so these steps are rather too short, and harder to hide
// host time behind.
constexpr double kKernel = 1.4e-6;

// NVIDIA H100 data sheet, SXM5 80 GB: 3.35 TB/s, 1,979 TFLOPS BF16 with sparsity, dense is half.
constexpr double kH100Bytes = 3.35e12, kH100Flops = 989.5e12, kH100Memory = 80e9;
// NVIDIA HGX B200 data sheet, per GPU: 8 TB/s, 4.5 PFLOPS BF16 with sparsity, dense is half, 180 GB.
constexpr double kB200Bytes = 8e12, kB200Flops = 2.25e15, kB200Memory = 180e9;
// Share of the memory that an engine takes for weights and KV cache: SGLang's and vLLM's usual 0.9.
constexpr double kMemoryShare = 0.9;

SimMachine gpu(double bytes, double flops, int32_t n_layers) {
  return {.bytes_per_second = bytes,
          .flops_per_second = flops,
          .launch_latency = kGraphLaunch,
          .step_overhead = kKernel * n_layers};
}

// --- models ---

constexpr int32_t kTimedVocab = 256;  // hashing and sampling 256 rows of it is a fraction of a B200's step

// KV: K and V, 8 heads, 2 bytes. Attention: 2 FLOPs each for Q*K and P*V per element of all query heads.
SimModel llama(int64_t weight_params, int32_t layers, int32_t heads, int32_t head_dim, int32_t context) {
  return {.weight_bytes = 2 * weight_params,
          .matmul_params = weight_params,
          .kv_bytes_per_token = int64_t{2} * layers * 8 * head_dim * 2,
          .attention_flops = int64_t{4} * layers * heads * head_dim,
          .n_layers = layers,
          .vocab_size = kTimedVocab,
          .context_length = context,
          .reads_all = false};
}

// Llama-3-8B, config.json: 8,030,261,248 parameters, of which a step does not read the input embedding
// (128,256 x 4,096; the head is a matrix of its own); 32 layers, 32 heads of 128, context 8,192.
SimModel llama3_8b() {
  return llama(8'030'261'248 - 128'256ll * 4096, 32, 32, 128, 8192);
}
// Llama-3.2-1B, config.json: 1,235,814,400 parameters, the head is the embedding; 16 layers, 32 heads of 64,
// context 131,072.
SimModel llama32_1b() {
  return llama(1'235'814'400, 16, 32, 64, 131'072);
}

SimProfile on_gpu(std::string name, double bytes, double flops, double memory, SimModel model) {
  model.max_kv_tokens =
      int64_t(memory * kMemoryShare - double(model.weight_bytes)) / model.kv_bytes_per_token;
  return {std::move(name), gpu(bytes, flops, model.n_layers), model};
}

// Gapless on 2 CPUs (docs/performance.md): 282 tok/s with one stream and 830 with 32, so 3.5 and 38.5 ms a
// step. The first is the reading of 98 MB of Q4_1 weights and 4.5 MB of KV, 29 GB/s; the second is 2 x 134.5
// million FLOPs for each of 32 rows, 223 GFLOP/s. Launch: waking the team, at most 50 us (device/cpu/
// cpu_stream.cc). Overhead: 300 ops of 0.1 us (cpu_stream.h). SmolLM2-135M, config.json: 30 layers, 9 heads
// of 64, 3 KV heads, context 8,192, tied embeddings.
SimProfile cpu_smollm2() {
  return {
      "cpu-smollm2",
      {.bytes_per_second = 29e9, .flops_per_second = 223e9, .launch_latency = 20e-6, .step_overhead = 30e-6},
      {.weight_bytes = 98'000'000,
       .matmul_params = 134'515'008,
       .kv_bytes_per_token = 2 * 30 * 3 * 64 * 2,
       .attention_flops = 4 * 30 * 9 * 64,
       .n_layers = 30,
       .vocab_size = kTimedVocab,
       .context_length = 8192,
       .reads_all = false}};
}

// For correctness: every step as fast as it can, every position read back. A vocabulary large enough that
// greedy answers differ and small enough that penalties, bans and stop tokens hit.
SimProfile zero() {
  return {"zero", {}, {.n_layers = 1, .vocab_size = 512, .context_length = 8192}};
}

std::vector<SimProfile> all_profiles() {
  return {on_gpu("h100-llama3-8b", kH100Bytes, kH100Flops, kH100Memory, llama3_8b()),
          on_gpu("h100-llama3.2-1b", kH100Bytes, kH100Flops, kH100Memory, llama32_1b()),
          on_gpu("b200-llama3.2-1b", kB200Bytes, kB200Flops, kB200Memory, llama32_1b()), cpu_smollm2(),
          zero()};
}

}  // namespace

std::vector<std::string> sim_profile_names() {
  std::vector<std::string> names;
  for (const SimProfile& profile : all_profiles()) names.push_back(profile.name);
  return names;
}

Result<SimProfile> find_sim_profile(std::string_view name) {
  for (SimProfile& profile : all_profiles())
    if (profile.name == name || (name.empty() && profile.name == "zero")) return std::move(profile);
  return Status::invalid("unknown profile '{}' of device 'sim'; known: {}", name,
                         fmt::join(sim_profile_names(), ", "))
      .with_param("device");
}

}  // namespace gapless
