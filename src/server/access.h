// Who may call: API keys and cross-origin rules.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "server/http_message.h"

namespace gapless {

// One key per line; blank lines and lines that start with '#' are skipped.
Result<std::vector<std::string>> read_api_key_file(const std::string& path);

class AccessRules {
 public:
  AccessRules(std::vector<std::string> api_keys, std::vector<std::string> cors_origins)
      : api_keys_(std::move(api_keys)), cors_origins_(std::move(cors_origins)) {}

  // kUnauthenticated when keys are set and the request carries none of them. Preflights need no key.
  Status authorize(const HttpRequest& request) const;
  // Endpoints that show or change how the server works, besides authorize(). Of the pages in people's
  // browsers only our own may, and those of an origin that was named: "*" names none. Where no key is set,
  // only callers on this machine may. The error is a 403.
  Status authorize_operator(const HttpRequest& request) const;
  // The answer to a CORS preflight.
  HttpResponse preflight(const HttpRequest& request) const;
  // The headers that let a page of the request's origin read the response. The origin is named, never "*":
  // browsers refuse "*" for requests with credentials.
  void add_cors_headers(const HttpRequest& request, HttpResponse& response) const;

 private:
  bool origin_allowed(const std::string& origin) const;
  bool origin_named(const std::string& origin) const;

  const std::vector<std::string> api_keys_, cors_origins_;
};

}  // namespace gapless
