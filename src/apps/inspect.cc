// `gapless inspect`: what a model file holds and what serving it will take. Reads the header only.
#include <cstdio>
#include <map>

#include "apps/banner.h"
#include "apps/cli.h"
#include "device/cpu/topology.h"
#include "model/gguf.h"
#include "model/model_config.h"
#include "model/registry.h"

namespace gapless {

namespace {

void print_row(const char* name, const std::string& text) {
  std::printf("%-15s%s\n", name, text.c_str());
}

const char* type_name(const GgufTensor& tensor) {
  return dtype_info(uint32_t(tensor.dtype))->name;
}

std::string string_or(const GgufMetadata& metadata, std::string_view key, std::string fallback) {
  Result<std::string_view> value = metadata.get_string(key, fallback);
  return value ? std::string(*value) : fallback;
}

// "Q4_1 210 (88.2 MB), F32 61 (0.1 MB)"
std::string tensor_types(const GgufFile& file) {
  std::map<std::string, std::pair<int, size_t>> types;
  for (const GgufTensor& tensor : file.tensors()) {
    auto& [count, bytes] = types[type_name(tensor)];
    ++count;
    bytes += tensor.data.size();
  }
  std::string text;
  for (const auto& [name, sum] : types) {
    text += fmt::format("{}{} {} ({})", text.empty() ? "" : ", ", name, sum.first,
                        human_bytes(double(sum.second)));
  }
  return text;
}

// Matrices are repacked for the kernels; the sum is what load_model() allocates, less its padding.
int64_t weight_bytes(const GgufFile& file) {
  int64_t bytes = 0;
  for (const GgufTensor& t : file.tensors()) {
    const bool matrix = t.n_dims == 2;
    bytes += matrix
                 ? int64_t(packed_bytes(packed_layout_for(t.dtype), int32_t(t.dims[1]), int32_t(t.dims[0])))
                 : t.elements() * 4;
  }
  return bytes;
}

std::string tokenizer_text(const GgufMetadata& m) {
  const Result<uint64_t> tokens = m.array_length("tokenizer.ggml.tokens");
  return fmt::format("{} tokens, {} (pre-tokenizer {})", tokens ? *tokens : 0,
                     string_or(m, "tokenizer.ggml.model", "unknown"),
                     string_or(m, "tokenizer.ggml.pre", "default"));
}

void print_shape(const ModelConfig& c) {
  print_row("parameters", fmt::format("{}, mostly {}", human_count(double(c.n_params)), c.quantisation));
  print_row("layers", fmt::format("{} of width {}, feed-forward {}, {} heads ({} for K and V) of {}",
                                  c.n_layers, c.dim, c.ffn_dim, c.n_heads, c.n_kv_heads, c.head_dim));
  print_row("context", fmt::format("{} tokens", c.context_length));
}

void print_memory(const GgufFile& file, const ModelConfig& c) {
  const double per_token = double(c.kv_bytes_per_token());
  const double full_context = per_token * c.context_length;
  print_row("KV cache",
            fmt::format("{} bytes per token (16 bits); one request with the whole context takes {}",
                        c.kv_bytes_per_token(), human_bytes(full_context)));
  const MemoryLimit limit = cgroup_memory_limit({});
  const double weights = double(weight_bytes(file)), pool = double(limit.bytes) / 4;
  print_row(
      "memory",
      fmt::format(
          "{} of weights, and the KV cache in use: at most {} by default, a quarter of the {} (--kv-mem)",
          human_bytes(weights), human_bytes(pool), limit.reason));
}

void print_tensors(const GgufFile& file) {
  std::printf("\n");
  for (const GgufTensor& t : file.tensors()) {
    std::printf("%-6s%-24s%s\n", type_name(t), gguf_shape(t).c_str(), printable(t.name).c_str());
  }
}

}  // namespace

int run_inspect(const InspectArgs& args) {
  Result<GgufFile> file = GgufFile::open(args.model);
  if (!file) return fail(kExitRuntime, file.status());
  const GgufMetadata& m = file->metadata();
  print_row("file", fmt::format("{}, GGUF v{}, {}", file->name(), file->version(),
                                human_bytes(double(file->file_bytes()))));
  print_row("architecture",
            fmt::format("{} ({})", printable(string_or(m, "general.architecture", "not named")),
                        printable(string_or(m, "general.name", "no name"))));
  print_row("tensors", fmt::format("{}: {}", file->tensors().size(), tensor_types(*file)));
  print_row("tokenizer", tokenizer_text(m));
  print_row("chat template",
            m.has("tokenizer.chat_template") ? "in the file" : "none (give one with --chat-template)");
  const Status known = check_architecture(*file);
  const Result<ModelConfig> config = known.is_ok() ? read_model_config(*file) : known;
  if (config) {
    print_shape(*config);
    print_memory(*file, *config);
  }
  if (args.tensors) print_tensors(*file);
  return config ? kExitOk : fail(kExitRuntime, config.status());
}

}  // namespace gapless
