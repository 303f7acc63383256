// Formats that show one answer as a list of blocks, one after another: each is opened, grows and is closed
// before the next. They say how that is written; what belongs to which block is decided here.
#pragma once

#include <utility>

#include "server/answer.h"

namespace gapless {

// Where a stream stands.
struct BlockStream {
  const AnswerHeader& header;
  Choice& choice;    // blocks.back() is the block in question
  std::string& out;  // SSE events are appended

  int64_t index() const { return static_cast<int64_t>(choice.blocks.size()) - 1; }
  const AnswerBlock& block() const { return choice.blocks.back(); }
};

class BlockFormat : public AnswerFormat {
 public:
  explicit BlockFormat(AnswerSyntax syntax) : syntax_(std::move(syntax)) {}

  void stream_delta(const AnswerHeader& header, Choice& choice, const ChoiceDelta& delta,
                    const ChunkUsage& usage, std::string& out) const final;
  std::string whole(const AnswerHeader& header, std::vector<Choice>& choices, const Usage& usage) const final;
  bool wants_tokens() const final { return false; }

 protected:
  // What a stream begins with.
  virtual void open_answer(BlockStream stream) const = 0;
  virtual void open_block(BlockStream stream) const = 0;
  // `piece` has been appended to the block's text.
  virtual void extend_block(BlockStream stream, std::string_view piece) const = 0;
  virtual void close_block(BlockStream stream) const = 0;
  // The whole body; the choice has all its blocks and its finish.
  virtual std::string write_whole(const AnswerHeader& header, const Choice& choice,
                                  const Usage& usage) const = 0;

 private:
  const AnswerSyntax syntax_;
};

}  // namespace gapless
