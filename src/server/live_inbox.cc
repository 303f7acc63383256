#include "server/live_inbox.h"

#include <algorithm>
#include <utility>

namespace gapless {

namespace {

// How many events of each kind may wait.
constexpr ptrdiff_t kMostWaiting[] = {1, 3, 1};
constexpr const char* kEventNames[] = {"hello", "frame", "state"};

}  // namespace

void LiveInbox::put(std::shared_ptr<const LiveEvent> event) {
  bool was_empty = false;
  {
    std::lock_guard lock(mutex_);
    if (ended_) return;
    was_empty = waiting_.empty();
    const auto alike = [&](const auto& other) { return other->kind == event->kind; };
    if (std::ranges::count_if(waiting_, alike) == kMostWaiting[size_t(event->kind)])
      waiting_.erase(std::ranges::find_if(waiting_, alike));
    waiting_.push_back(std::move(event));
  }
  if (was_empty) wake_();
}

void LiveInbox::end() {
  {
    std::lock_guard lock(mutex_);
    ended_ = true;
  }
  wake_();
}

LiveInbox::Taken LiveInbox::take() {
  Taken taken;
  std::deque<std::shared_ptr<const LiveEvent>> events;
  {
    std::lock_guard lock(mutex_);
    events.swap(waiting_);
    taken.ended = ended_;
  }
  for (const auto& event : events) write(*event, taken.text);
  return taken;
}

void LiveInbox::write(const LiveEvent& event, std::string& out) {
  out += "event: ";
  out += kEventNames[size_t(event.kind)];
  out += "\ndata: {";
  if (event.names && (event.names->size() > names_sent_ || event.kind == LiveEvent::Kind::kHello)) {
    out += "\"names\":[";
    for (size_t i = names_sent_; i < event.names->size(); i++) {
      if (i > names_sent_) out += ',';
      out += (*event.names)[i];
    }
    out += "],";
    names_sent_ = event.names->size();
  }
  out += event.fields;
  out += "}\n\n";
}

}  // namespace gapless
