// Follows JSON text byte by byte: where in it values begin and end, and whether what has come can still
// become JSON. Of numbers and literals only the characters are looked at. One thread at a time.
#pragma once

#include <cstdint>
#include <string>

namespace gapless {

class JsonScanner {
 public:
  // What a byte did. A number or literal has no kValueEnd: it ends where something else begins.
  enum class Event : uint8_t {
    kNone,
    kKeyBegin,  // the opening quote of a member's name
    kKeyEnd,
    kValueBegin,  // the first byte of a value
    kValueEnd,    // the last byte of a string, object or array
    kBroken,      // this can no longer become JSON; whatever follows is broken too
  };
  Event next(char c);
  // Open objects and arrays, behind the byte.
  int depth() const { return int(open_.size()); }
  // Whether the innermost of them is an object.
  bool in_object() const { return !open_.empty() && open_.back() == '{'; }

 private:
  enum class Expect : uint8_t { kValue, kFirstElement, kFirstKey, kKey, kColon, kNext, kNothing, kBroken };
  Event structural(char c);
  Event value(char c);
  Event open(char c);
  Event close(char c);
  Event in_string(char c);
  Event broken();
  void value_ended() { expect_ = open_.empty() ? Expect::kNothing : Expect::kNext; }

  std::string open_;  // the opening brackets
  Expect expect_ = Expect::kValue;
  bool in_string_ = false, is_key_ = false, escaped_ = false, in_scalar_ = false;
};

}  // namespace gapless
