// The live view's events as JSON: the fields of their objects, without the braces (LiveEvent::fields). Times
// are seconds of the tracer's clock: `start` is its beginning in steady_seconds().
#pragma once

#include <string>

#include "engine/engine_api.h"
#include "scheduler/snapshot.h"
#include "server/live_steps.h"

namespace gapless {

std::string hello_fields(const EngineApi& engine);
// "steps": {...}
void write_steps(std::string& out, const StepsReport& steps, double start);
// Requests are left out, and counted, beyond `max_bytes`.
std::string state_fields(const SchedulerSnapshot& snapshot, double start, size_t max_bytes);
// {"text": ..., "args": [...]}
std::string trace_name_json(const TraceName& name);

}  // namespace gapless
