// Sockets that listen, made before the model loads: a port that is taken is known at once.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "server/server_config.h"

namespace gapless {

// A descriptor that is closed with its owner.
class OwnedFd {
 public:
  explicit OwnedFd(int fd = -1) : fd_(fd) {}
  OwnedFd(OwnedFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  OwnedFd& operator=(OwnedFd&& other) noexcept;
  ~OwnedFd();
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

struct ListenSocket {
  OwnedFd fd;
  int family = 0;         // AF_INET, AF_INET6, AF_UNIX
  uint16_t port = 0;      // 0 for a unix socket
  std::string url;        // http://127.0.0.1:8080, unix:/path
  std::string unix_path;  // to remove at the end
};

// All addresses of config.host, or an error with the address and the system's reason. Non-blocking sockets.
Result<std::vector<ListenSocket>> open_listen_sockets(const ServerConfig& config);

// Whether an address is this machine itself: loopback, also as IPv4 within IPv6, or a unix socket.
bool is_this_machine(const sockaddr_storage& address);
// The same of the other end of a connection; false if it has gone.
bool peer_is_this_machine(int fd);

// Raises the soft limit of open descriptors to the hard one, logs it, and returns it.
int64_t raise_descriptor_limit();

}  // namespace gapless
