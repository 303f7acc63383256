// Everything that is loaded before a thread starts: the device, the weights, the tokenizer, the chat
// template, the forward side.
#pragma once

#include <memory>
#include <string>

#include "device/cpu/topology.h"
#include "engine/chat_template.h"
#include "engine/engine_api.h"
#include "engine/engine_options.h"
#include "engine/sizing.h"
#include "engine/tokenizer.h"
#include "kernels/isa.h"
#include "model/gguf.h"
#include "model/model.h"
#include "worker/model_runner.h"

namespace gapless {

struct LoadedModel {
  ModelFacts facts;
  Sizing sizing;
  ThreadChoice threads;
  MemoryLimit memory;
  std::string chat_template_source;  // "from the file", "built in: chatml", "file PATH", or why there is none
  std::unique_ptr<Device> device;
  std::unique_ptr<OpTable> table;  // the chosen instruction set's, with the chosen attention
  std::unique_ptr<Model> model;
  std::shared_ptr<const Tokenizer> tokenizer;
  std::unique_ptr<ChatTemplate> chat_template;  // null: none
  std::unique_ptr<ModelRunner> runner;
  std::unique_ptr<ModelWorker> worker;  // the normal loop's
};

// error_code of a Status about an option rather than a file: the command line is wrong.
inline constexpr const char* kUsageErrorCode = "usage";

// Blocks for as long as loading takes. Errors name the file, the key or the flag at fault.
Result<LoadedModel> load_parts(const EngineOptions& options);

// The tokenizer of a model file.
Result<Tokenizer> load_tokenizer(const GgufMetadata& metadata);

}  // namespace gapless
