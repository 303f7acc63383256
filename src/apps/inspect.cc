// `gapless inspect`: what a model file holds and what serving it will take. Reads the header only.
#include "model/inspect.h"

#include <cstdio>

#include "apps/banner.h"
#include "apps/cli.h"
#include "device/cpu/topology.h"

namespace gapless {

namespace {

void print_row(const char* name, const std::string& text) {
  std::printf("%-14s %s\n", name, text.c_str());
}

std::string tensor_types(const ModelSummary& s) {
  std::string text;
  for (const TypeSummary& type : s.types) {
    text += fmt::format("{}{} {} ({})", text.empty() ? "" : ", ", type.tensors, type.dtype,
                        human_bytes(double(type.bytes)));
  }
  return text;
}

void print_shape(const ModelSummary& s) {
  const ModelConfig& c = s.config;
  print_row("architecture", fmt::format("{} {}", c.architecture, printable(c.name)));
  print_row("parameters", fmt::format("{}, {:.2f} bits each, mostly {}", human_count(double(c.n_params)),
                                      s.bits_per_weight, c.quantisation));
  print_row("layers", fmt::format("{} of width {}, feed-forward {}, {} heads of {} ({} for K and V)",
                                  c.n_layers, c.dim, c.ffn_dim, c.n_heads, c.head_dim, c.n_kv_heads));
  print_row("context", fmt::format("{} tokens", c.context_length));
  print_row("vocabulary", fmt::format("{} tokens, {}; the output head is {}", c.vocab_size, s.tokenizer,
                                      s.tied_embeddings ? "the embedding table" : "a matrix of its own"));
  print_row("chat template", s.has_chat_template ? "in the file" : "none: give one with --chat-template");
  print_row("tensors", fmt::format("{}: {}", s.tensors.size(), tensor_types(s)));
}

void print_memory(const ModelSummary& s) {
  const int64_t per_token = s.config.kv_bytes_per_token(KvDtype::kF16);
  const int64_t context = s.config.context_length;
  print_row(
      "KV cache",
      fmt::format("{} bytes per token in 16 bits, {} in int8; {} for one request with the whole context",
                  per_token, s.config.kv_bytes_per_token(KvDtype::kI8),
                  human_bytes(double(per_token * context))));
  const MemoryLimit limit = cgroup_memory_limit({});
  print_row("memory",
            fmt::format("{} of weights; {} with the KV cache of one whole context, {} with the default pool "
                        "full (a quarter of the {})",
                        human_bytes(double(s.weight_bytes)), human_bytes(double(s.memory_bytes(context))),
                        human_bytes(double(s.weight_bytes) + double(limit.bytes) / 4), limit.reason));
}

}  // namespace

int run_inspect(const InspectArgs& args) {
  Result<GgufFile> file = GgufFile::open(args.model);
  if (!file) return fail(kExitRuntime, file.status());
  print_row("file", fmt::format("{}, GGUF v{}, {}", file->name(), file->version(),
                                human_bytes(double(file->file_bytes()))));
  Result<ModelSummary> summary = inspect_model(*file);
  if (!summary) return fail(kExitRuntime, summary.status());
  print_shape(*summary);
  print_memory(*summary);
  if (args.tensors) {
    std::puts("");
    for (const TensorSummary& t : summary->tensors) {
      std::printf("%-6s %10s  %-20s %s\n", t.dtype.c_str(), human_bytes(double(t.bytes)).c_str(),
                  t.shape.c_str(), printable(t.name).c_str());
    }
  }
  return kExitOk;
}

}  // namespace gapless
