// The live view: what the server does, as it happens, to everyone who watches. One thread, which exists only
// while somebody does, makes each event once for all of them.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

#include "base/status.h"
#include "base/thread.h"
#include "engine/engine_api.h"
#include "server/live_inbox.h"

namespace gapless {

class LiveFeed {
 public:
  explicit LiveFeed(EngineApi& engine) : engine_(engine) {}
  ~LiveFeed() { stop(); }

  // http thread. An error: too many watch, or the server is shutting down.
  Status watch(std::shared_ptr<LiveInbox> viewer);
  void leave(const std::shared_ptr<LiveInbox>& viewer);
  // Any thread. Every stream ends, and no other begins. Does not wait for the thread.
  void close();
  // The same, and waits for the thread: before the engine goes. Once nobody calls watch() any more.
  void stop();

 private:
  using Viewers = std::vector<std::shared_ptr<LiveInbox>>;
  class Snapshots;

  void run();
  // Those that watch, and which of them are new, once it is time for the next frame. False: nobody watches,
  // and the thread ends.
  bool next_frame(Viewers& all, Viewers& fresh);

  EngineApi& engine_;
  std::mutex mutex_;
  std::condition_variable changed_;
  Viewers viewers_, fresh_;  // fresh_: of these, those that have had no event
  bool closed_ = false, running_ = false;
  NamedThread thread_;
};

}  // namespace gapless
