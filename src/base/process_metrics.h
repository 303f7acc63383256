// What the process uses, under the names that Prometheus' own client libraries give it.
#pragma once

#include <string>

namespace gapless {

// Prometheus' text. Linux: read from /proc, which costs as much as listing the open descriptors. Any thread.
std::string process_metrics_text();

}  // namespace gapless
