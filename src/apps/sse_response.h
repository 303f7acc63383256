// Reads one HTTP response with server-sent events as its bytes arrive: status line, headers, chunked or plain
// body, `data:` lines.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace gapless {

class SseResponse {
 public:
  // on_data gets the text after "data: " of every whole line, in order.
  void feed(std::string_view bytes, const std::function<void(std::string_view)>& on_data);

  int status() const { return status_; }   // 0 until the status line is here
  bool done() const { return done_; }      // "data: [DONE]", the last chunk or all of Content-Length has come
  bool broken() const { return broken_; }  // not HTTP
  // The first bytes of the body when the status is not 200.
  const std::string& error_text() const { return error_text_; }

 private:
  enum class State { kHead, kChunkSize, kChunk, kChunkEnd, kPlain };
  bool take_line(std::string_view& bytes, std::string& line);
  void head_line(const std::string& line);
  void body(std::string_view bytes, const std::function<void(std::string_view)>& on_data);

  State state_ = State::kHead;
  std::string head_line_, body_line_, error_text_;
  size_t left_ = 0;  // of the chunk or of Content-Length
  bool chunked_ = false, has_length_ = false, done_ = false, broken_ = false;
  int status_ = 0;
};

}  // namespace gapless
