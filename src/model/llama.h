// Llama and the models that share its GGUF architecture name: Llama 1 to 3, Mistral, SmolLM, SmolLM2,
// TinyLlama.
#pragma once

#include <memory>

#include "model/registry.h"

namespace gapless {

Result<std::unique_ptr<Model>> load_llama(const GgufFile& file, Device& device, const LoadOptions& options);

}  // namespace gapless
