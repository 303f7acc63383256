// What a user of the library asks for, in the engine's words. Pure functions: any thread.
#pragma once

#include <gapless/engine.h>

#include "engine/engine_api.h"
#include "engine/engine_options.h"

namespace gapless {

// What cannot be meant is refused when the engine starts.
EngineOptions engine_options(const v1::Engine::Options& options);

// The engine refuses what is out of range.
GenerateRequest generate_request(v1::Engine::Request request);

// Of an error.
v1::Engine::Failure failure_of(const Status& status);

}  // namespace gapless
