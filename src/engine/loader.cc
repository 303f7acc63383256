#include "engine/loader.h"

#include <chrono>
#include <filesystem>
#include <future>

#include "device/registry.h"
#include "device/sim/sim_device.h"
#include "model/gguf.h"
#include "model/registry.h"
#include "model/sim/sim_file.h"

namespace gapless {
namespace {

// Marks an error that the command line is to blame for.
template <class T>
Result<T> usage(Result<T> result) {
  if (result.is_ok()) return result;
  return Result<T>(result.status().with_error_code(kUsageErrorCode));
}

// `fallback` when the key is missing, an error when it is there with another type.
Result<std::optional<int32_t>> optional_id(const GgufMetadata& m, std::string_view key) {
  if (!m.has(key)) return std::optional<int32_t>();
  ASSIGN_OR_RETURN(const uint32_t id, m.get_u32(key));
  return std::optional<int32_t>(int32_t(id));
}
Result<std::optional<bool>> optional_bool(const GgufMetadata& m, std::string_view key) {
  if (!m.has(key)) return std::optional<bool>();
  ASSIGN_OR_RETURN(const bool value, m.get_bool(key));
  return std::optional<bool>(value);
}

Result<OpTable> choose_ops(const EngineOptions& options, Isa isa) {
  OpTable table = *op_table(isa);
  if (options.attention_backend == "reference") {
    table.attention = op_table(Isa::kReference)->attention;
  } else if (options.attention_backend != "cpu") {
    return Status::invalid("--attention-backend '{}': known are cpu, reference", options.attention_backend);
  }
  return table;
}

// A real model would be computed on this machine, as slowly as it is, under the name of a simulated one.
Status check_fits(const GgufFile& file, const SimDevice* sim) {
  ASSIGN_OR_RETURN(const std::string_view architecture,
                   file.metadata().get_string("general.architecture", ""));
  if (!sim || architecture == kSimArchitecture) return {};
  return Status::invalid(
             "--device {} simulates a machine with a model of its own and computes no {}: leave {} out, or "
             "leave "
             "--device out",
             sim->name(), printable(architecture), file.name())
      .with_error_code(kUsageErrorCode);
}

// The file of --model; without one, `memory` gets the model that the simulated device stands for.
Result<GgufFile> open_model(const EngineOptions& options, const Device& device,
                            std::vector<std::byte>& memory) {
  const auto* sim = dynamic_cast<const SimDevice*>(&device);
  if (!options.model_path.empty()) {
    ASSIGN_OR_RETURN(GgufFile file, GgufFile::open(options.model_path));
    RETURN_IF_ERROR(check_fits(file, sim));
    return file;
  }
  if (!sim) return usage(Result<GgufFile>(Status::invalid("give FILE, the path of a .gguf model")));
  memory = sim_model_file(sim->profile());
  return GgufFile::parse(device.name(), memory);
}

// The template asked for, else the file's own, else none; `source` says which, or why there is none and what
// to do. asked: the text of the first.
Result<std::unique_ptr<ChatTemplate>> choose_chat_template(const EngineOptions& options, std::string asked,
                                                           const GgufMetadata& metadata,
                                                           const Tokenizer& tokenizer, std::string& source) {
  std::string text;
  if (!options.chat_template.empty()) {
    text = std::move(asked);
    source = options.chat_template;
  } else if (metadata.has("tokenizer.chat_template")) {
    ASSIGN_OR_RETURN(const std::string_view own, metadata.get_string("tokenizer.chat_template"));
    text = own;
    source = "from the file";
  } else {
    source = "the file has no chat template; give one with --chat-template NAME or PATH";
    return std::unique_ptr<ChatTemplate>();
  }
  ASSIGN_OR_RETURN(ChatTemplate compiled, ChatTemplate::compile(text, tokenizer));
  return std::make_unique<ChatTemplate>(std::move(compiled));
}

// Empty for -1: no such token.
std::string spelling(const Tokenizer& tokenizer, int32_t id) {
  return id < 0 ? std::string() : std::string(tokenizer.token_bytes().of(id));
}

ModelFacts facts_of(const EngineOptions& options, const GgufFile& file, const ModelConfig& config,
                    const LoadedModel& parts) {
  const std::filesystem::path path(file.name());
  const ChatTemplate* chat = parts.chat_template.get();
  const std::string own_name = (path.extension() == ".gguf" ? path.stem() : path.filename()).string();
  return {.id = options.served_model_name.empty() ? own_name : options.served_model_name,
          .path = file.name(),
          .architecture = config.architecture,
          .name = config.name,
          .quantisation = config.quantisation,
          .n_params = config.n_params,
          .file_bytes = int64_t(file.file_bytes()),
          .created = std::chrono::duration_cast<std::chrono::seconds>(
                         std::chrono::system_clock::now().time_since_epoch())
                         .count(),
          .vocab_size = config.vocab_size,
          .context_length = parts.sizing.scheduler.context_length,
          .trained_context_length = config.context_length,
          .embedding_dim = config.embedding_dim,
          .device = parts.device->name(),
          .page_size = parts.sizing.scheduler.page_size,
          .max_running_requests = parts.sizing.scheduler.max_running_requests,
          .has_chat_template = chat != nullptr,
          .tool_format = chat ? &chat->tool_format() : &tool_formats().front(),
          .marks_reasoning = chat && chat->marks_reasoning(),
          .chat_template = chat ? chat->source() : "",
          .bos_token = spelling(*parts.tokenizer, parts.tokenizer->bos_id()),
          .eos_token = spelling(*parts.tokenizer, parts.tokenizer->eos_id())};
}

}  // namespace

Result<Tokenizer> load_tokenizer(const GgufMetadata& m) {
  const std::string prefix = "tokenizer.ggml.";
  TokenizerData data;
  ASSIGN_OR_RETURN(data.model, m.get_string(prefix + "model"));
  ASSIGN_OR_RETURN(data.pre, m.get_string(prefix + "pre", ""));
  ASSIGN_OR_RETURN(data.tokens, m.get_strings(prefix + "tokens"));
  if (m.has(prefix + "token_type")) {
    ASSIGN_OR_RETURN(data.types, m.get_i32s(prefix + "token_type"));
  }
  if (m.has(prefix + "scores")) {
    ASSIGN_OR_RETURN(data.scores, m.get_f32s(prefix + "scores"));
  }
  if (m.has(prefix + "merges")) {
    ASSIGN_OR_RETURN(data.merges, m.get_strings(prefix + "merges"));
  }
  ASSIGN_OR_RETURN(data.bos_id, optional_id(m, prefix + "bos_token_id"));
  ASSIGN_OR_RETURN(data.eos_id, optional_id(m, prefix + "eos_token_id"));
  ASSIGN_OR_RETURN(data.eot_id, optional_id(m, prefix + "eot_token_id"));
  ASSIGN_OR_RETURN(data.eom_id, optional_id(m, prefix + "eom_token_id"));
  ASSIGN_OR_RETURN(data.unk_id, optional_id(m, prefix + "unknown_token_id"));
  ASSIGN_OR_RETURN(data.add_bos, optional_bool(m, prefix + "add_bos_token"));
  ASSIGN_OR_RETURN(data.add_eos, optional_bool(m, prefix + "add_eos_token"));
  ASSIGN_OR_RETURN(data.add_space_prefix, optional_bool(m, prefix + "add_space_prefix"));
  Result<Tokenizer> tokenizer = Tokenizer::create(data);
  if (!tokenizer.is_ok()) return Status::invalid("{}: {}", m.file_name(), tokenizer.status().message());
  return tokenizer;
}

Result<LoadedModel> load_parts(const EngineOptions& options) {
  LoadedModel parts;
  parts.memory = cgroup_memory_limit({});
  parts.threads =
      options.threads > 0 ? ThreadChoice{options.threads, "--threads"} : default_threads(SystemPaths{});
  ASSIGN_OR_RETURN(const Isa isa, usage(parse_isa(options.isa)));
  ASSIGN_OR_RETURN(OpTable table, usage(choose_ops(options, isa)));
  parts.table = std::make_unique<OpTable>(table);
  ASSIGN_OR_RETURN(parts.device, usage(make_device(options.device, {.threads = parts.threads.threads})));
  std::string asked_template;
  if (!options.chat_template.empty()) {  // before the model: what is wrong with a flag is said at once
    ASSIGN_OR_RETURN(asked_template, usage(load_chat_template(options.chat_template)));
  }
  std::vector<std::byte> made_file;
  ASSIGN_OR_RETURN(const GgufFile file, open_model(options, *parts.device, made_file));

  // The tokenizer of a large vocabulary takes as long as the weights: side by side.
  auto tokenizer = std::async(std::launch::async, [&] { return load_tokenizer(file.metadata()); });
  ASSIGN_OR_RETURN(parts.model, load_model(file, *parts.device, {.threads = parts.threads.threads}));
  Result<Tokenizer> loaded_tokenizer = tokenizer.get();
  RETURN_IF_ERROR(loaded_tokenizer.status());
  parts.tokenizer = std::make_shared<const Tokenizer>(std::move(loaded_tokenizer).value());
  const ModelConfig& config = parts.model->config();
  if (parts.tokenizer->vocab_size() != config.vocab_size)
    return Status::invalid("{}: the tokenizer has {} tokens, the weights {}", file.name(),
                           parts.tokenizer->vocab_size(), config.vocab_size);
  ASSIGN_OR_RETURN(parts.chat_template,
                   choose_chat_template(options, std::move(asked_template), file.metadata(), *parts.tokenizer,
                                        parts.chat_template_source));

  ASSIGN_OR_RETURN(parts.sizing, usage(resolve_sizing(options, config, parts.tokenizer->eos_ids(),
                                                      int64_t(parts.memory.bytes))));
  ASSIGN_OR_RETURN(parts.runner,
                   ModelRunner::create(*parts.device, *parts.model, *parts.table, parts.sizing.runner));
  parts.worker = std::make_unique<ModelWorker>(*parts.runner);
  parts.facts = facts_of(options, file, config, parts);
  return parts;
}

}  // namespace gapless
