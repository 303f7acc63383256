#include "library/start.h"

#include "engine/engine.h"

namespace gapless {

Result<std::unique_ptr<EngineApi>> start_engine(const EngineOptions& options) {
  ASSIGN_OR_RETURN(std::unique_ptr<Engine> engine, Engine::create(options));
  return std::unique_ptr<EngineApi>(std::move(engine));
}

}  // namespace gapless
