#include "server/listen_socket.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "base/log.h"

namespace gapless {

namespace {

constexpr int kBacklog = 4096;  // the system caps it (net.core.somaxconn)

Status listen_error(const std::string& address, const char* step, int error) {
  const char* hint = error == EADDRINUSE ? " (is another server running?)" : "";
  return {StatusCode::kUnavailable,
          fmt::format("cannot listen on {}: {}: {}{}", address, step, std::strerror(error), hint)};
}

std::string address_text(const sockaddr* address, socklen_t length) {
  char host[NI_MAXHOST], port[NI_MAXSERV];
  if (getnameinfo(address, length, host, sizeof host, port, sizeof port, NI_NUMERICHOST | NI_NUMERICSERV) !=
      0)
    return "?";
  return address->sa_family == AF_INET6 ? fmt::format("[{}]:{}", host, port)
                                        : fmt::format("{}:{}", host, port);
}

uint16_t bound_port(int fd) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0) return 0;
  if (address.ss_family == AF_INET6) return ntohs(reinterpret_cast<sockaddr_in6*>(&address)->sin6_port);
  return ntohs(reinterpret_cast<sockaddr_in*>(&address)->sin_port);
}

void set_port(sockaddr* address, uint16_t port) {
  if (address->sa_family == AF_INET6) reinterpret_cast<sockaddr_in6*>(address)->sin6_port = htons(port);
  if (address->sa_family == AF_INET) reinterpret_cast<sockaddr_in*>(address)->sin_port = htons(port);
}

Result<ListenSocket> listen_on(sockaddr* address, socklen_t length, uint16_t port) {
  set_port(address, port);
  ListenSocket out;
  out.family = address->sa_family;
  const std::string text = address_text(address, length);
  out.fd = OwnedFd(::socket(address->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (out.fd.get() < 0) return listen_error(text, "socket", errno);
  const int on = 1, off = 0;
  setsockopt(out.fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  // "::" listens on IPv4 too, whatever the system's default.
  if (out.family == AF_INET6) setsockopt(out.fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  if (::bind(out.fd.get(), address, length) != 0) return listen_error(text, "bind", errno);
  if (::listen(out.fd.get(), kBacklog) != 0) return listen_error(text, "listen", errno);
  out.port = bound_port(out.fd.get());
  set_port(address, out.port);
  out.url = "http://" + address_text(address, length);
  return out;
}

// A socket file that nobody answers on is what a killed server left behind.
bool is_stale_socket(const sockaddr_un& address) {
  struct stat info {};
  if (::lstat(address.sun_path, &info) != 0 || !S_ISSOCK(info.st_mode)) return false;
  const OwnedFd probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  return ::connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 &&
         errno == ECONNREFUSED;
}

Result<ListenSocket> listen_on_unix(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof address.sun_path) {
    return Status::invalid("--host unix:{}: the path must have between 1 and {} bytes", path,
                           sizeof address.sun_path - 1);
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  if (is_stale_socket(address)) ::unlink(path.c_str());
  ListenSocket out;
  out.family = AF_UNIX;
  out.url = "unix:" + path;
  out.fd = OwnedFd(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (out.fd.get() < 0) return listen_error(out.url, "socket", errno);
  if (::bind(out.fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0)
    return listen_error(out.url, "bind", errno);
  out.unix_path = path;
  if (::listen(out.fd.get(), kBacklog) != 0) return listen_error(out.url, "listen", errno);
  return out;
}

}  // namespace

OwnedFd& OwnedFd::operator=(OwnedFd&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

OwnedFd::~OwnedFd() {
  if (fd_ >= 0) ::close(fd_);
}

Result<std::vector<ListenSocket>> open_listen_sockets(const ServerConfig& config) {
  std::vector<ListenSocket> sockets;
  if (config.host.starts_with("unix:")) {
    ASSIGN_OR_RETURN(ListenSocket socket, listen_on_unix(config.host.substr(5)));
    sockets.push_back(std::move(socket));
    return sockets;
  }
  std::string host = config.host;
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(host.c_str(), nullptr, &hints, &found); error != 0) {
    return Status::invalid("--host {}: {}", config.host, gai_strerror(error));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, freeaddrinfo);
  uint16_t port = config.port;  // where the system picks it, the addresses after the first take the same
  for (addrinfo* a = found; a; a = a->ai_next) {
    Result<ListenSocket> socket = listen_on(a->ai_addr, a->ai_addrlen, port);
    // A machine without IPv6 still resolves "localhost" to ::1.
    const bool absent = errno == EADDRNOTAVAIL || errno == EAFNOSUPPORT;
    if (!socket.is_ok() && found->ai_next && absent) continue;
    if (!socket.is_ok()) return socket.status();
    port = socket->port;
    sockets.push_back(std::move(socket).value());
  }
  if (sockets.empty()) return listen_error(config.host, "bind", EADDRNOTAVAIL);
  return sockets;
}

bool is_this_machine(const sockaddr_storage& address) {
  const auto is_loopback = [](uint32_t ip) { return ip >> 24 == 127; };
  if (address.ss_family == AF_UNIX) return true;
  if (address.ss_family == AF_INET)
    return is_loopback(ntohl(reinterpret_cast<const sockaddr_in&>(address).sin_addr.s_addr));
  if (address.ss_family != AF_INET6) return false;
  const in6_addr& ip = reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
  if (!IN6_IS_ADDR_V4MAPPED(&ip)) return IN6_IS_ADDR_LOOPBACK(&ip);
  uint32_t within = 0;
  std::memcpy(&within, ip.s6_addr + 12, sizeof within);
  return is_loopback(ntohl(within));
}

bool peer_is_this_machine(int fd) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  return getpeername(fd, reinterpret_cast<sockaddr*>(&address), &length) == 0 && is_this_machine(address);
}

int64_t raise_descriptor_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 1024;
  const rlim_t before = limit.rlim_cur;
  limit.rlim_cur = limit.rlim_max;
  if (before < limit.rlim_max && setrlimit(RLIMIT_NOFILE, &limit) == 0) {
    spdlog::info("open descriptors: limit raised from {} to {}", before, limit.rlim_cur);
    return static_cast<int64_t>(limit.rlim_cur);
  }
  spdlog::debug("open descriptors: limit {}", before);
  return static_cast<int64_t>(before);
}

}  // namespace gapless
