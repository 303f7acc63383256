// Glue between the C ABI of the Rust text library and C++ values. Private to the engine's text files.
#pragma once

#include <gapless_text.h>

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace gapless {

inline gapless_text_str ffi_text(std::string_view text) {
  return {text.data(), text.size()};
}

// A sink that replaces `out` by what is written; T is the element type that the function's documentation
// names.
template <class T, class Container>
gapless_text_sink ffi_sink(Container& out) {
  return {&out, [](void* context, const void* data, size_t count) {
            const T* first = static_cast<const T*>(data);
            static_cast<Container*>(context)->assign(first, first + count);
          }};
}
inline gapless_text_sink ffi_sink(std::string& out) {
  return ffi_sink<char>(out);
}

inline Status ffi_status(gapless_text_code code, const std::string& error) {
  switch (code) {
    case GAPLESS_TEXT_OK:
      return Status::ok();
    case GAPLESS_TEXT_INVALID:
      return Status::invalid("{}", error);
    case GAPLESS_TEXT_PANIC:
      break;
  }
  return Status::internal("{}", error);
}

}  // namespace gapless
