// Sends many HTTP requests from one thread and notes when each piece of each answer came. Linux epoll, one
// connection per request.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"

namespace gapless {

struct LoadTarget {
  std::string host, port, path;
  std::string api_key;
};
// "http://host:port[/...]" -> host and port; [::1] in brackets. An error says what is wrong with it.
Result<LoadTarget> parse_url(const std::string& url);

struct LoadRequest {
  std::string body;
  double arrival = 0;  // seconds from the start; it is sent then, or when a connection is free
};

struct LoadRecord {
  double start = 0;                                    // seconds from the start of the run
  std::vector<double> stamps;                          // when each event with text came
  int status = 0;                                      // HTTP; 0: none came
  int64_t prompt_tokens = -1, completion_tokens = -1;  // of the usage block; -1: there was none
  std::string error;                                   // empty: the answer came whole
};

struct LoadLimits {
  int concurrency = 0;   // connections at the same time; 0: no limit
  double timeout = 600;  // seconds for one request
};

// Requests made as they are needed, and what becomes of them. All on the thread of run_load().
struct LoadFeed {
  std::function<std::optional<LoadRequest>()> next;  // in order of arrival; none: no more, not asked again
  std::function<void(size_t, LoadRecord)> done;      // as they end; requests are numbered from 0
  std::function<bool()> stopped;                     // asked once a second and more: true drops what is open
};
// Blocks until every request has ended. An error: the host cannot be resolved.
Status run_load(const LoadTarget& target, const LoadFeed& feed, LoadLimits limits);

// Blocks until every request has ended. One record per request, in order. An error: the host cannot be
// resolved.
Result<std::vector<LoadRecord>> run_load(const LoadTarget& target, const std::vector<LoadRequest>& requests,
                                         LoadLimits limits);

// What an event of /v1/completions tells: has it text, and the usage block if there is one.
void note_event(std::string_view json, double now, LoadRecord& record);

}  // namespace gapless
