// Finds stop strings in the raw bytes of an answer, token by token, and says how much of it may be shown
// meanwhile.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gapless {

// One per choice of a request; one thread. No allocation after construction; work per byte is the number of
// stop strings.
//
// The occurrence that counts is the one that is complete first, byte by byte, so it does not depend on how
// the text falls into tokens; of several that end at the same byte it is the longest.
class StopMatcher {
 public:
  StopMatcher() = default;                               // no stop strings: everything may be shown
  explicit StopMatcher(std::vector<std::string> stops);  // none empty

  // The next bytes of the text. The index of the stop string that is now complete, or nullopt. After a match
  // nothing more may be fed; bytes behind it were not looked at.
  std::optional<size_t> feed(std::string_view bytes);

  // Bytes of the text that no stop string can take back: all but the longest suffix that is a proper prefix
  // of one; after a match all before it. Never decreases.
  int64_t visible_bytes() const { return text_bytes_ - held_; }
  // Bytes of the text so far, up to the end of the match if there is one. An answer that ends otherwise shows
  // all of them.
  int64_t text_bytes() const { return text_bytes_; }
  const std::string& stop(size_t index) const { return stops_[index].text; }

 private:
  struct Stop {
    std::string text;
    std::vector<int32_t> fallback;  // [n]: length of the longest proper suffix of text[0, n) that is a prefix
                                    // of text (Knuth, Morris, Pratt)
    int32_t matched = 0;            // longest suffix of the answer that is a prefix of text

    explicit Stop(std::string text);
    void feed(char byte);
    bool complete() const { return matched == int32_t(text.size()); }
  };

  std::vector<Stop> stops_;
  int64_t text_bytes_ = 0;
  int64_t held_ = 0;
  bool matched_ = false;
};

}  // namespace gapless
