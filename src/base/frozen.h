// What crosses a thread is frozen or moved. Frozen<T> is a value that nobody can change any more: move-only,
// const access.
#pragma once

#include <memory>
#include <utility>

namespace gapless {

template <class T>
class Frozen {
 public:
  explicit Frozen(T&& value) : value_(std::make_unique<const T>(std::move(value))) {}
  const T& operator*() const { return *value_; }
  const T* operator->() const { return value_.get(); }

 private:
  std::unique_ptr<const T> value_;
};

}  // namespace gapless
