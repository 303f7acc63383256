#include "apps/trace_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "server/json_writer.h"

namespace gapless {

namespace {

using Json = nlohmann::json;

template <class T>
T member(const Json& event, const char* key, T otherwise) {
  const auto it = event.find(key);
  return it == event.end() ? otherwise : it->get<T>();
}

FileSpan span_of(const Json& event) {
  FileSpan span;
  span.name = event.at("name").get<std::string>();
  span.begin = event.at("ts").get<double>();
  span.end = span.begin + event.at("dur").get<double>();
  const Json args = member(event, "args", Json::object());
  span.batch = member(args, "batch", kNoTraceArg);
  span.rows = member(args, "rows", kNoTraceArg);
  span.tokens = member(args, "tokens", kNoTraceArg);
  if (span.end < span.begin) throw std::runtime_error("its dur is negative");
  return span;
}

// Throws what nlohmann throws, and std::runtime_error, for an event that lacks something.
void take_event(const Json& event, std::map<int64_t, FileThread>& threads) {
  const std::string phase = event.at("ph").get<std::string>();
  if (phase == "X") {
    threads[event.at("tid").get<int64_t>()].spans.push_back(span_of(event));
  } else if (phase == "M" && event.at("name") == "thread_name") {
    FileThread& thread = threads[event.at("tid").get<int64_t>()];
    thread.name = event.at("args").at("name").get<std::string>();
    thread.overwritten = member<int64_t>(event.at("args"), "overwritten", 0);
  }
}

// nlohmann's messages begin with "[json.exception.out_of_range.403] ".
std::string without_tag(const char* what) {
  const char* end = what[0] == '[' ? std::strstr(what, "] ") : nullptr;
  return end ? end + 2 : what;
}

constexpr size_t kShownBytes = 24;

// JSON that has no list of events.
std::string what_it_is(const Json& json) {
  if (!json.is_object()) return fmt::format("it is a JSON {}", json.type_name());
  const auto error = json.find("error");
  if (error != json.end() && error->is_object() && error->contains("message") &&
      (*error)["message"].is_string())
    return fmt::format("it is a server's error, '{}'", printable((*error)["message"].get<std::string>()));
  std::string keys;
  for (const auto& [key, value] : json.items()) {
    keys += (keys.empty() ? "" : ", ") + key;
    if (keys.size() > 2 * kShownBytes) break;
  }
  return fmt::format("it is a JSON object with {} and no list of traceEvents (Chrome's trace format)",
                     keys.empty() ? "nothing" : printable(keys));
}

}  // namespace

const FileThread* TraceFile::find(const std::string& name) const {
  const auto it =
      std::find_if(threads.begin(), threads.end(), [&](const FileThread& t) { return t.name == name; });
  return it == threads.end() ? nullptr : &*it;
}

Result<TraceFile> parse_trace(const std::string& text, const std::string& path) {
  if (text.find_first_not_of(" \t\r\n") == std::string::npos)
    return Status::invalid("{} is empty: was the server reachable when the trace was fetched?", path);
  Json json;
  try {
    json = Json::parse(text);
  } catch (const Json::parse_error& error) {
    return Status::invalid("{} is not a trace: it begins with '{}' and is not JSON: {}", path,
                           printable(text, kShownBytes), without_tag(error.what()));
  }
  const Json* events = &json;
  if (json.is_object() && json.contains("traceEvents")) events = &json["traceEvents"];
  if (!events->is_array()) return Status::invalid("{} is not a trace: {}", path, what_it_is(json));
  std::map<int64_t, FileThread> threads;
  for (size_t i = 0; i < events->size(); i++) {
    try {
      take_event((*events)[i], threads);
    } catch (const std::exception& error) {
      return Status::invalid("{}: traceEvents[{}] cannot be read: {}", path, i, without_tag(error.what()));
    }
  }
  TraceFile trace;
  for (auto& [tid, thread] : threads) {
    if (thread.name.empty()) thread.name = fmt::format("thread {}", tid);
    std::sort(thread.spans.begin(), thread.spans.end(), [](const FileSpan& a, const FileSpan& b) {
      return a.begin != b.begin ? a.begin < b.begin : a.end > b.end;
    });
    trace.threads.push_back(std::move(thread));
  }
  return trace;
}

Result<TraceFile> read_trace(const std::string& path) {
  if (path == "-") {
    const std::string text(std::istreambuf_iterator<char>(std::cin), {});
    return parse_trace(text, "what came from stdin");
  }
  // A directory opens, and fails when it is read.
  errno = 0;
  std::ifstream file(path);
  std::ostringstream text;
  if (file) text << file.rdbuf();
  if (errno != 0) return Status::invalid("{}: {}", path, std::strerror(errno));
  return parse_trace(text.str(), path);
}

Status check_trace_output(const std::string& path) {
  if (path.empty() || std::ofstream(path, std::ios::app)) return {};
  return Status::invalid("--trace {}: {}", path, std::strerror(errno));
}

Status write_trace(const Tracer& tracer, const std::string& path) {
  std::ofstream file(path);
  file << tracer.chrome_json();
  file.close();
  if (!file) return Status::invalid("--trace {}: {}", path, std::strerror(errno));
  return {};
}

}  // namespace gapless
