#include "apps/sse_response.h"

#include <algorithm>
#include <cctype>
#include <charconv>

namespace gapless {

namespace {

constexpr size_t kMaxLine = 1 << 20;
constexpr size_t kErrorBytes = 500;

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return char(std::tolower(c)); });
  return text;
}

}  // namespace

// Moves bytes up to the next newline into `line`; true when the line is whole (without CR LF).
bool SseResponse::take_line(std::string_view& bytes, std::string& line) {
  const size_t end = bytes.find('\n');
  line.append(bytes.substr(0, end));
  bytes.remove_prefix(end == std::string_view::npos ? bytes.size() : end + 1);
  if (line.size() > kMaxLine) broken_ = true;
  if (end == std::string_view::npos) return false;
  if (!line.empty() && line.back() == '\r') line.pop_back();
  return true;
}

void SseResponse::head_line(const std::string& line) {
  if (status_ == 0) {
    const size_t space = line.find(' ');
    if (!line.starts_with("HTTP/1.") || space == std::string::npos ||
        std::from_chars(line.data() + space + 1, line.data() + line.size(), status_).ec != std::errc()) {
      broken_ = true;
    }
  } else if (line.empty()) {
    state_ = chunked_ ? State::kChunkSize : State::kPlain;
    if (has_length_ && left_ == 0) done_ = true;
  } else {
    const std::string header = lower(line);
    if (header.starts_with("transfer-encoding:")) chunked_ = header.find("chunked") != std::string::npos;
    if (header.starts_with("content-length:")) {
      const size_t digits = header.find_first_of("0123456789");
      has_length_ = digits != std::string::npos;
      if (has_length_) std::from_chars(header.data() + digits, header.data() + header.size(), left_);
    }
  }
}

void SseResponse::body(std::string_view bytes, const std::function<void(std::string_view)>& on_data) {
  if (status_ != 200) {
    error_text_.append(bytes.substr(0, kErrorBytes - std::min(kErrorBytes, error_text_.size())));
    return;
  }
  while (take_line(bytes, body_line_)) {
    if (body_line_ == "data: [DONE]") {
      done_ = true;
    } else if (body_line_.starts_with("data: ")) {
      on_data(std::string_view(body_line_).substr(6));
    }
    body_line_.clear();
  }
}

void SseResponse::feed(std::string_view bytes, const std::function<void(std::string_view)>& on_data) {
  while (!bytes.empty() && !done_ && !broken_) {
    switch (state_) {
      case State::kHead:
        if (!take_line(bytes, head_line_)) return;
        head_line(head_line_);
        head_line_.clear();
        break;
      case State::kChunkSize: {
        if (!take_line(bytes, head_line_)) return;
        const auto [end, error] =
            std::from_chars(head_line_.data(), head_line_.data() + head_line_.size(), left_, 16);
        if (error != std::errc()) broken_ = true;
        head_line_.clear();
        if (left_ == 0) done_ = true;
        state_ = State::kChunk;
        break;
      }
      case State::kChunk:
      case State::kPlain: {
        const size_t n =
            state_ == State::kChunk || has_length_ ? std::min(left_, bytes.size()) : bytes.size();
        body(bytes.substr(0, n), on_data);
        bytes.remove_prefix(n);
        left_ -= std::min(left_, n);
        if (left_ == 0 && state_ == State::kChunk) state_ = State::kChunkEnd;
        if (left_ == 0 && has_length_) done_ = true;
        break;
      }
      case State::kChunkEnd:
        if (!take_line(bytes, head_line_)) return;
        head_line_.clear();
        state_ = State::kChunkSize;
        break;
    }
  }
}

}  // namespace gapless
