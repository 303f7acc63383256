// How /v1/responses answers: OpenAI's response object, and its typed events.
#pragma once

#include <utility>

#include "server/block_format.h"
#include "server/json_writer.h"

namespace gapless {

class ResponsesFormat final : public BlockFormat {
 public:
  // Members of the response that repeat the request, with their JSON.
  using Echo = std::vector<std::pair<const char*, std::string>>;
  ResponsesFormat(AnswerSyntax syntax, Echo echo) : BlockFormat(std::move(syntax)), echo_(std::move(echo)) {}

  void end_stream(const AnswerHeader& header, std::vector<Choice>& choices, const ChunkUsage& usage,
                  std::string& out) const override;
  void stream_error(const AnswerHeader& header, std::vector<Choice>& choices, const Status& status,
                    std::string& out) const override;

 private:
  struct State;
  void open_answer(BlockStream stream) const override;
  void open_block(BlockStream stream) const override;
  void extend_block(BlockStream stream, std::string_view piece) const override;
  void close_block(BlockStream stream) const override;
  std::string write_whole(const AnswerHeader& header, const Choice& choice,
                          const Usage& usage) const override;
  void write_response(JsonWriter& w, const AnswerHeader& header, const Choice& choice,
                      const State& state) const;
  void append_response_event(const AnswerHeader& header, Choice& choice, const char* type, const State& state,
                             std::string& out) const;

  const Echo echo_;
};

}  // namespace gapless
