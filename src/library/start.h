// Starts the engine behind the library's. A file of its own, because to its users the library's class has the
// name of the one it stands for (gapless::Engine): no file may include both engine/engine.h and
// gapless/engine.h.
#pragma once

#include <memory>

#include "engine/engine_api.h"
#include "engine/engine_options.h"

namespace gapless {

// Blocks while the model loads. Destroying what it returns ends open requests and joins all threads.
Result<std::unique_ptr<EngineApi>> start_engine(const EngineOptions& options);

}  // namespace gapless
