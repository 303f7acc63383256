#include "model/inspect.h"

#include <algorithm>
#include <map>

#include "model/model_config.h"
#include "model/registry.h"

namespace gapless {
namespace {

// As WeightPlan stores it: matrices repacked, everything else as float32.
int64_t loaded_bytes(const GgufTensor& tensor) {
  if (tensor.n_dims != 2) return tensor.elements() * int64_t(sizeof(float));
  return int64_t(
      packed_bytes(packed_layout_for(tensor.dtype), int32_t(tensor.dims[1]), int32_t(tensor.dims[0])));
}

Result<std::string> describe_tokenizer(const GgufMetadata& metadata) {
  ASSIGN_OR_RETURN(const std::string_view model, metadata.get_string("tokenizer.ggml.model", "none"));
  ASSIGN_OR_RETURN(const std::string_view pre, metadata.get_string("tokenizer.ggml.pre", ""));
  return std::string(model) + (pre.empty() ? "" : " (" + std::string(pre) + ")");
}

std::vector<TypeSummary> summarise_types(const GgufFile& file) {
  std::map<DType, TypeSummary> by_type;
  for (const GgufTensor& tensor : file.tensors()) {
    TypeSummary& type =
        by_type.try_emplace(tensor.dtype, TypeSummary{dtype_info(uint32_t(tensor.dtype))->name, 0, 0, 0})
            .first->second;
    ++type.tensors;
    type.elements += tensor.elements();
    type.bytes += int64_t(tensor.data.size());
  }
  std::vector<TypeSummary> types;
  for (const auto& [dtype, type] : by_type) types.push_back(type);
  std::stable_sort(types.begin(), types.end(),
                   [](const TypeSummary& a, const TypeSummary& b) { return a.bytes > b.bytes; });
  return types;
}

}  // namespace

Result<ModelSummary> inspect_model(const GgufFile& file) {
  RETURN_IF_ERROR(check_architecture(file));
  ModelSummary summary{};
  ASSIGN_OR_RETURN(summary.config, read_model_config(file));
  ASSIGN_OR_RETURN(summary.tokenizer, describe_tokenizer(file.metadata()));
  summary.gguf_version = file.version();
  summary.file_bytes = int64_t(file.file_bytes());
  summary.tied_embeddings = file.find_tensor("output.weight") == nullptr;
  summary.has_chat_template = file.metadata().has("tokenizer.chat_template");
  summary.types = summarise_types(file);
  int64_t data_bytes = 0;
  for (const GgufTensor& tensor : file.tensors()) {
    summary.weight_bytes += loaded_bytes(tensor);
    data_bytes += int64_t(tensor.data.size());
    summary.tensors.push_back({std::string(tensor.name), dtype_info(uint32_t(tensor.dtype))->name,
                               gguf_shape(tensor), int64_t(tensor.data.size())});
  }
  summary.bits_per_weight = 8.0 * double(data_bytes) / double(summary.config.n_params);
  return summary;
}

}  // namespace gapless
