// A value handed from one thread to another exactly once (`sampling_info_done`). Destroying the sender unset
// closes the pair: the receiver then gets nullopt instead of waiting for ever.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "base/check.h"

namespace gapless {

template <class T>
class OneShot {
  struct State {
    std::mutex mutex;
    std::condition_variable ready;
    std::optional<T> value;
    bool closed = false;
  };

 public:
  class Sender {
   public:
    Sender(Sender&&) noexcept = default;
    Sender& operator=(Sender&& other) noexcept {
      close();
      state_ = std::move(other.state_);
      return *this;
    }
    ~Sender() { close(); }
    void set(T value) {
      CHECK(state_ != nullptr, "a OneShot is set once");
      {
        std::lock_guard lock(state_->mutex);
        state_->value = std::move(value);
        state_->closed = true;
      }
      state_->ready.notify_all();
      state_.reset();
    }
    void close() {
      if (!state_) return;
      {
        std::lock_guard lock(state_->mutex);
        state_->closed = true;
      }
      state_->ready.notify_all();
      state_.reset();
    }

   private:
    friend class OneShot;
    explicit Sender(std::shared_ptr<State> state) : state_(std::move(state)) {}
    std::shared_ptr<State> state_;
  };

  class Receiver {
   public:
    // Blocks. nullopt: the sender is gone and nothing will come.
    std::optional<T> take() {
      std::unique_lock lock(state_->mutex);
      state_->ready.wait(lock, [&] { return state_->closed; });
      return std::exchange(state_->value, std::nullopt);
    }

   private:
    friend class OneShot;
    explicit Receiver(std::shared_ptr<State> state) : state_(std::move(state)) {}
    std::shared_ptr<State> state_;
  };

  static std::pair<Sender, Receiver> make() {
    auto state = std::make_shared<State>();
    return {Sender(state), Receiver(state)};
  }
};

}  // namespace gapless
