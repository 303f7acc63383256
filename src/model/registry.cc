#include "model/registry.h"

#include <fmt/ranges.h>

#include "model/gemma3.h"
#include "model/llama.h"
#include "model/sim/sim_model.h"

namespace gapless {
namespace {

struct Architecture {
  const char* name;  // general.architecture
  Result<std::unique_ptr<Model>> (*load)(const GgufFile&, Device&, const LoadOptions&);
};

constexpr Architecture kArchitectures[] = {
    {"llama", load_llama},
    {"gemma3", load_gemma3},
    {"sim", load_sim},
};

const Architecture* find(std::string_view name) {
  for (const Architecture& architecture : kArchitectures) {
    if (name == architecture.name) return &architecture;
  }
  return nullptr;
}

}  // namespace

std::vector<std::string> known_architectures() {
  std::vector<std::string> names;
  for (const Architecture& architecture : kArchitectures) names.emplace_back(architecture.name);
  return names;
}

Status check_architecture(const GgufFile& file) {
  ASSIGN_OR_RETURN(const std::string_view name, file.metadata().get_string("general.architecture"));
  if (!find(name)) {
    return Status::invalid("{}: architecture {} is not known; known are: {}", file.name(), printable(name),
                           fmt::join(known_architectures(), ", "));
  }
  ASSIGN_OR_RETURN(const uint32_t parts, file.metadata().get_u32("split.count", 1));
  if (parts > 1) {
    return Status::invalid("{}: this is one of {} parts of a model: merge them into one file first",
                           file.name(), parts);
  }
  return {};
}

Result<std::unique_ptr<Model>> load_model(const GgufFile& file, Device& device, const LoadOptions& options) {
  RETURN_IF_ERROR(check_architecture(file));
  return find(*file.metadata().get_string("general.architecture"))->load(file, device, options);
}

}  // namespace gapless
