// One request that generates from its body to its last byte: parse, submit, collect or stream, abort.
// Lives on the http thread; only parsing a large body and writing a large answer happen elsewhere (on the
// text pool).
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "server/answer.h"
#include "server/event_inbox.h"
#include "server/http_message.h"
#include "server/serving.h"

namespace gapless {

class GenerationResponse final : public PendingResponse,
                                 public std::enable_shared_from_this<GenerationResponse> {
 public:
  GenerationResponse(std::shared_ptr<Serving> serving, PlanParser parser, HttpRequest request);

  void start(std::function<void()> wake) override;
  Part take() override;
  Part keepalive() override;
  void cancel(const Status& why) override;
  bool backlog_exceeded() const override;
  std::string log_fields() const override;

 private:
  // kWaiting: submitted, and nothing sent yet. A stream begins with its first token (or the first
  // keep-alive), so that whatever goes wrong before is a plain HTTP error.
  enum class Stage { kParsing, kWaiting, kStreaming, kFormatting, kEnded };

  void parse();
  void submit();
  void receive();
  void receive_prompt(size_t index, EventInbox::PromptEvents events);
  void receive_delta(Choice& choice, ChoiceDelta delta);
  void stream_delta(Choice& choice, const ChoiceDelta& delta);
  Status in_field(const Status& status) const;
  void fail_open_choices(size_t prompt, const Status& status);
  void fail_choice(Choice& choice, const Status& status);
  void abort_running();
  void end_prompt(PromptState& prompt);
  void end();

  Part refuse(const Status& status);
  Part stream_part();
  Part whole_part();
  bool is_large() const;
  void format_on_pool();
  Part begin_stream();
  bool all_accepted() const;
  bool all_failed() const;
  bool all_ended() const;
  Usage seen_usage(size_t prompt) const;
  Usage total_usage() const;
  ChunkUsage chunk_usage() const;

  const std::shared_ptr<Serving> serving_;
  const PlanParser parser_;
  HttpRequest request_;
  std::function<void()> wake_;

  std::mutex pool_mutex_;  // the text pool may write plan_ and body_
  std::optional<Result<GenerationPlan>> plan_;
  std::optional<std::string> body_;

  Stage stage_ = Stage::kParsing;
  AnswerHeader header_;
  std::shared_ptr<EventInbox> inbox_;
  std::vector<PromptState> prompts_;
  std::vector<Choice> choices_;
  bool refused_ = false;  // the answer was a plain error
  Status broken_;         // the whole response must end with this error
  std::string pending_;   // SSE text that has not been taken
};

}  // namespace gapless
