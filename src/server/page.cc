#include "server/page.h"

#include <algorithm>

#include "base/check.h"
#include "server/api_error.h"
#include "server/json_writer.h"

namespace gapless {

namespace {

constexpr std::string_view kIndex = "index.html";
constexpr std::string_view kFolder = "/ui/";

// The page's own files and this server are all it may use, whatever text it shows.
constexpr const char* kPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data: "
    "blob:; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'";

constexpr std::pair<std::string_view, const char*> kTypes[] = {
    {".html", "text/html; charset=utf-8"},
    {".css", "text/css; charset=utf-8"},
    {".js", "text/javascript; charset=utf-8"},
    {".svg", "image/svg+xml"},
};

const char* type_of(std::string_view name) {
  const auto* const it = std::find_if(std::begin(kTypes), std::end(kTypes),
                                      [&](const auto& type) { return name.ends_with(type.first); });
  CHECK(it != std::end(kTypes), "no type is known of the page's file {}", name);
  return it->second;
}

const PageFile* find_file(std::string_view name) {
  const auto files = page_files();
  const auto it = std::find_if(files.begin(), files.end(), [&](const PageFile& f) { return f.name == name; });
  return it == files.end() ? nullptr : &*it;
}

// A browser asks each time (no-cache), and is told in a few bytes that what it has is still right: after an
// update of the server no page is put together of old and new files.
HttpResponse file_response(const PageFile& file, const HttpRequest& request) {
  HttpResponse response;
  response.headers = {{"Content-Security-Policy", kPolicy},
                      {"X-Content-Type-Options", "nosniff"},
                      {"Referrer-Policy", "no-referrer"},
                      {"Cache-Control", "no-cache"},
                      {"ETag", std::string(file.etag)}};
  if (request.if_none_match.find(file.etag) != std::string::npos) {
    response.status = 304;
    response.content_type.clear();
  } else {
    response.content_type = type_of(file.name);
    response.body = file.text;
  }
  return response;
}

}  // namespace

bool wants_page(const HttpRequest& request) {
  return request.accept.find("text/html") != std::string::npos;
}

HttpResponse page_response(const HttpRequest& request) {
  const PageFile* const index = find_file(kIndex);
  CHECK(index, "the page has no {}", kIndex);
  HttpResponse response = file_response(*index, request);
  response.headers.emplace_back("Vary", "Accept");
  return response;
}

Reply show_page_file(Call call) {
  const std::string_view name = std::string_view(call.request.path).substr(kFolder.size());
  const PageFile* const file = find_file(name);
  if (file && name != kIndex) return file_response(*file, call.request);
  return error_response(
      Status(StatusCode::kNotFound, fmt::format("the page has no file '{}'", printable(name))),
      call.request.id);
}

}  // namespace gapless
