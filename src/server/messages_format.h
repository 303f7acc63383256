// How /v1/messages answers: Anthropic's message, and its typed events.
#pragma once

#include "server/block_format.h"

namespace gapless {

class MessagesFormat final : public BlockFormat {
 public:
  using BlockFormat::BlockFormat;

  void end_stream(const AnswerHeader& header, std::vector<Choice>& choices, const ChunkUsage& usage,
                  std::string& out) const override;
  void stream_error(const AnswerHeader& header, std::vector<Choice>& choices, const Status& status,
                    std::string& out) const override;
  std::string_view keepalive() const override;

 private:
  void open_answer(BlockStream stream) const override;
  void open_block(BlockStream stream) const override;
  void extend_block(BlockStream stream, std::string_view piece) const override;
  void close_block(BlockStream stream) const override;
  std::string write_whole(const AnswerHeader& header, const Choice& choice,
                          const Usage& usage) const override;
};

}  // namespace gapless
