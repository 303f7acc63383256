// The web page: the files of src/server/web, which the build puts into the program (cmake/embed_page.cmake),
// and the rows that serve them. Nothing is read from disk. All of it is constant: any thread.
#pragma once

#include <span>
#include <string_view>

#include "server/route.h"

namespace gapless {

struct PageFile {
  std::string_view name;  // "app.js"
  std::string_view etag;  // of its bytes, with the quotes
  std::string_view text;
};

// Defined in the file that the build writes.
std::span<const PageFile> page_files();

// Whether it comes from somebody who looks: a browser asks for text/html by name, programs do not.
bool wants_page(const HttpRequest& request);
// index.html. It names all else by relative paths, so that it works behind a proxy's prefix.
HttpResponse page_response(const HttpRequest& request);
// `GET /ui/{file}`: every file but index.html, which is at `/` alone.
Reply show_page_file(Call call);

}  // namespace gapless
