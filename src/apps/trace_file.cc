#include "apps/trace_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

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

}  // namespace

const FileThread* TraceFile::find(const std::string& name) const {
  const auto it =
      std::find_if(threads.begin(), threads.end(), [&](const FileThread& t) { return t.name == name; });
  return it == threads.end() ? nullptr : &*it;
}

Result<TraceFile> parse_trace(const std::string& text, const std::string& path) {
  Json json;
  try {
    json = Json::parse(text);
  } catch (const Json::parse_error& error) {
    return Status::invalid("{} is not JSON: {}", path, without_tag(error.what()));
  }
  const Json* events = &json;
  if (json.is_object() && json.contains("traceEvents")) events = &json["traceEvents"];
  if (!events->is_array())
    return Status::invalid("{} is no trace: it has no list of traceEvents (Chrome's trace format)", path);
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
  std::ifstream file(path);
  std::ostringstream text;
  if (!file || !(text << file.rdbuf())) return Status::invalid("{}: {}", path, std::strerror(errno));
  return parse_trace(text.str(), path);
}

Status write_trace(const Tracer& tracer, const std::string& path) {
  std::ofstream file(path);
  file << tracer.chrome_json();
  file.close();
  if (!file) return Status::invalid("--trace {}: {}", path, std::strerror(errno));
  return {};
}

}  // namespace gapless
