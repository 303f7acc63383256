#include "server/live_feed.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "server/live_composer.h"

namespace gapless {

namespace {

constexpr std::chrono::milliseconds kFrame{1000 / kLiveFramesPerSecond};
constexpr int kFramesPerState = kLiveFramesPerSecond / kLiveStatesPerSecond;
constexpr size_t kMostViewers = 16;

}  // namespace

// Asks the scheduler what runs, one question at a time. Its answer outlives the feed if it comes late.
class LiveFeed::Snapshots {
 public:
  void ask(EngineApi& engine) {
    {
      std::lock_guard lock(answer_->mutex);
      if (std::exchange(answer_->asked, true)) return;
    }
    engine.take_snapshot([answer = answer_](SchedulerSnapshot&& taken) {
      std::lock_guard lock(answer->mutex);
      answer->taken = std::move(taken);
      answer->asked = false;
    });
  }
  std::optional<SchedulerSnapshot> take() {
    std::lock_guard lock(answer_->mutex);
    return std::exchange(answer_->taken, std::nullopt);
  }

 private:
  struct Answer {
    std::mutex mutex;
    std::optional<SchedulerSnapshot> taken;
    bool asked = false;
  };
  const std::shared_ptr<Answer> answer_ = std::make_shared<Answer>();
};

Status LiveFeed::watch(std::shared_ptr<LiveInbox> viewer) {
  std::lock_guard lock(mutex_);
  if (closed_) return {StatusCode::kUnavailable, "the server is shutting down"};
  if (viewers_.size() == kMostViewers)
    return {StatusCode::kUnavailable, fmt::format("{} watch already, which is the limit", kMostViewers)};
  fresh_.push_back(viewer);
  viewers_.push_back(std::move(viewer));
  // A thread that ends has let go of the lock for the last time, so this does not wait for more than its
  // return.
  if (!std::exchange(running_, true)) thread_ = NamedThread("live", [this] { run(); });
  return {};
}

void LiveFeed::leave(const std::shared_ptr<LiveInbox>& viewer) {
  std::lock_guard lock(mutex_);
  std::erase(viewers_, viewer);
  std::erase(fresh_, viewer);
  changed_.notify_one();
}

void LiveFeed::close() {
  Viewers viewers;
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
    viewers.swap(viewers_);
    fresh_.clear();
    changed_.notify_one();
  }
  for (const auto& viewer : viewers) viewer->end();
}

void LiveFeed::stop() {
  close();
  thread_.join();
}

void LiveFeed::run() {
  LiveComposer composer(engine_);
  Snapshots snapshots;
  Viewers all, fresh;
  for (int frame = 0; next_frame(all, fresh); frame++) {
    if (frame % kFramesPerState == 0) snapshots.ask(engine_);
    if (!fresh.empty()) {
      const auto hello = composer.hello();
      for (const auto& viewer : fresh) viewer->put(hello);
    }
    const auto event = composer.frame();
    for (const auto& viewer : all) viewer->put(event);
    if (const auto snapshot = snapshots.take()) {
      const auto state = composer.state(*snapshot);
      for (const auto& viewer : all) viewer->put(state);
    }
  }
}

bool LiveFeed::next_frame(Viewers& all, Viewers& fresh) {
  std::unique_lock lock(mutex_);
  const auto nobody = [this] { return viewers_.empty(); };
  if (!all.empty()) changed_.wait_for(lock, kFrame, nobody);
  if (nobody()) {
    running_ = false;
    return false;
  }
  all = viewers_;
  fresh = std::exchange(fresh_, {});
  return true;
}

}  // namespace gapless
