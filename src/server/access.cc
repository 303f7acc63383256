#include "server/access.h"

#include <algorithm>
#include <boost/asio/ip/address.hpp>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <string_view>

#include "server/json_writer.h"

namespace gapless {

namespace {

// Takes as long for a wrong key as for a right one of the same length.
bool equal_constant_time(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned char difference = 0;
  for (size_t i = 0; i < a.size(); i++) difference |= static_cast<unsigned char>(a[i] ^ b[i]);
  return difference == 0;
}

std::string_view bearer_token(std::string_view authorization) {
  constexpr std::string_view kScheme = "bearer ";
  if (authorization.size() < kScheme.size()) return {};
  for (size_t i = 0; i < kScheme.size(); i++) {
    if (std::tolower(static_cast<unsigned char>(authorization[i])) != kScheme[i]) return {};
  }
  authorization.remove_prefix(kScheme.size());
  while (!authorization.empty() && authorization.front() == ' ') authorization.remove_prefix(1);
  return authorization;
}

bool is_header_text(const std::string& text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= 0x20 && c < 0x7F; });
}

// A Host header that no other site can have: an address, or localhost; with a port or without.
bool is_local_host(std::string_view host) {
  const bool bracketed = host.starts_with('[');
  std::string_view name = bracketed ? host.substr(1, host.find(']') - 1) : host.substr(0, host.find(':'));
  if (name.empty() || name == "localhost") return true;
  boost::system::error_code error;
  boost::asio::ip::make_address(name, error);
  return !error;
}

// Or from no page at all. An image or a link sends no Origin; browsers then tell how far away its page is.
bool comes_from_own_page(const HttpRequest& request) {
  if (request.origin.empty()) return request.fetch_site != "cross-site" && request.fetch_site != "same-site";
  return request.origin == "http://" + request.host || request.origin == "https://" + request.host;
}

}  // namespace

Result<std::vector<std::string>> read_api_key_file(const std::string& path) {
  std::ifstream file(path);
  if (!file) return Status::invalid("--api-key-file {}: {}", path, std::strerror(errno));
  std::vector<std::string> keys;
  for (std::string line; std::getline(file, line);) {
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
    if (!line.empty() && line[0] != '#') keys.push_back(line);
  }
  if (keys.empty()) return Status::invalid("--api-key-file {} holds no key", path);
  return keys;
}

Status AccessRules::authorize(const HttpRequest& request) const {
  if (api_keys_.empty() || request.method == "OPTIONS") return {};
  const std::string_view bearer = bearer_token(request.authorization);
  const std::string_view token = bearer.empty() ? std::string_view(request.api_key) : bearer;
  bool known = false;
  for (const std::string& key : api_keys_) known |= equal_constant_time(key, token);
  if (known) return {};
  return {StatusCode::kUnauthenticated,
          token.empty() ? "an API key is needed: send it as 'Authorization: Bearer KEY' or 'X-Api-Key: KEY'"
                        : "this API key is not known here"};
}

Status AccessRules::authorize_operator(const HttpRequest& request) const {
  // A page that somebody happens to have open can make his browser call us, from inside his network and with
  // what the browser knows. The browser says where the page comes from.
  if (!comes_from_own_page(request) && !origin_named(request.origin)) {
    const std::string& seen = request.origin.empty() ? request.fetch_site : request.origin;
    return Status::invalid(
        "a page of another origin may not call this path ('{}'), unless --cors-origin names it",
        printable(seen));
  }
  if (!api_keys_.empty()) return {};
  if (!request.from_this_machine)
    return Status::invalid(
        "this path is for callers on the same machine, or with an API key: the server has none (--api-key)");
  // For a page whose name was pointed at this machine meanwhile the browser says which name.
  if (is_local_host(request.host)) return {};
  return Status::invalid("a page of the name '{}' may not call this path: the server has no key (--api-key)",
                         printable(request.host));
}

bool AccessRules::origin_named(const std::string& origin) const {
  return origin != "*" && std::ranges::find(cors_origins_, origin) != cors_origins_.end();
}

bool AccessRules::origin_allowed(const std::string& origin) const {
  if (origin.empty() || !is_header_text(origin)) return false;
  return std::any_of(cors_origins_.begin(), cors_origins_.end(),
                     [&](const std::string& allowed) { return allowed == "*" || allowed == origin; });
}

HttpResponse AccessRules::preflight(const HttpRequest& request) const {
  HttpResponse response;
  response.status = 204;
  response.content_type.clear();
  if (!origin_allowed(request.origin)) return response;
  const bool named = !request.preflight_headers.empty() && is_header_text(request.preflight_headers);
  response.headers.emplace_back("Access-Control-Allow-Methods", "GET, POST, HEAD, OPTIONS");
  response.headers.emplace_back(
      "Access-Control-Allow-Headers",
      named ? request.preflight_headers
            : "Authorization, Content-Type, X-Request-Id, X-Api-Key, Anthropic-Version");
  response.headers.emplace_back("Access-Control-Max-Age", "86400");
  return response;
}

void AccessRules::add_cors_headers(const HttpRequest& request, HttpResponse& response) const {
  if (cors_origins_.empty()) return;
  response.headers.emplace_back("Vary", "Origin");
  if (!origin_allowed(request.origin)) return;
  response.headers.emplace_back("Access-Control-Allow-Origin", request.origin);
  response.headers.emplace_back("Access-Control-Allow-Credentials", "true");
  response.headers.emplace_back("Access-Control-Expose-Headers", "X-Request-Id, Retry-After");
}

}  // namespace gapless
