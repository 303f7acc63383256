#include "server/block_format.h"

#include "server/answer_json.h"

namespace gapless {

namespace {

AnswerBlock::Kind kind_of(const AnswerPart& part) {
  switch (part.kind) {
    case AnswerPart::Kind::kContent:
      return AnswerBlock::Kind::kText;
    case AnswerPart::Kind::kReasoning:
      return AnswerBlock::Kind::kReasoning;
    case AnswerPart::Kind::kCallBegin:
    case AnswerPart::Kind::kCallArguments:
      break;
  }
  return AnswerBlock::Kind::kCall;
}

bool begins_block(const Choice& choice, const AnswerPart& part) {
  return part.kind == AnswerPart::Kind::kCallBegin || choice.blocks.empty() ||
         choice.blocks.back().kind != kind_of(part);
}

void begin_block(const AnswerHeader& header, Choice& choice, const AnswerPart& part) {
  AnswerBlock& block = choice.blocks.emplace_back();
  block.kind = kind_of(part);
  if (block.kind != AnswerBlock::Kind::kCall) return;
  block.id = call_id(header, choice, part.call);
  block.name = part.text;
}

// What the part adds to its block.
std::string_view text_of(const AnswerPart& part) {
  return part.kind == AnswerPart::Kind::kCallBegin ? std::string_view() : part.text;
}

void mark_cut(Choice& choice) {
  if (!choice.blocks.empty()) choice.blocks.back().cut = choice.finish->reason == FinishReason::kLength;
}

}  // namespace

void BlockFormat::stream_delta(const AnswerHeader& header, Choice& choice, const ChoiceDelta& delta,
                               const ChunkUsage&, std::string& out) const {
  const BlockStream stream{header, choice, out};
  if (!std::exchange(choice.opened, true)) open_answer(stream);
  for (const AnswerPart& part : answer_parts(syntax_, choice, delta)) {
    if (begins_block(choice, part)) {
      if (!choice.blocks.empty()) close_block(stream);
      begin_block(header, choice, part);
      open_block(stream);
    }
    const std::string_view text = text_of(part);
    if (text.empty()) continue;
    choice.blocks.back().text += text;
    extend_block(stream, text);
  }
  if (!delta.finish || choice.blocks.empty()) return;
  mark_cut(choice);
  close_block(stream);
}

std::string BlockFormat::whole(const AnswerHeader& header, std::vector<Choice>& choices,
                               const Usage& usage) const {
  Choice& choice = choices.front();
  const ChoiceDelta all{.index = 0, .text = std::move(choice.text), .tokens = {}, .finish = choice.finish};
  for (const AnswerPart& part : answer_parts(syntax_, choice, all)) {
    if (begins_block(choice, part)) begin_block(header, choice, part);
    choice.blocks.back().text += text_of(part);
  }
  mark_cut(choice);
  return write_whole(header, choice, usage);
}

}  // namespace gapless
