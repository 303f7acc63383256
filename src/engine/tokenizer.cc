#include "engine/tokenizer.h"

#include <utility>

#include "engine/incremental_text.h"
#include "engine/text_ffi.h"
#include "engine/token_roles.h"

namespace gapless {
namespace {

Status check(const TokenizerData& data) {
  const size_t n = data.tokens.size();
  if (n == 0) return Status::invalid("the file has no vocabulary (tokenizer.ggml.tokens)");
  if (!data.types.empty() && data.types.size() != n) {
    return Status::invalid("tokenizer.ggml.token_type has {} entries for {} tokens", data.types.size(), n);
  }
  if (data.model == "gpt2" && data.merges.empty()) {
    return Status::invalid("the file has no tokenizer.ggml.merges, which tokenizer.ggml.model = gpt2 needs");
  }
  const std::pair<const char*, std::optional<int32_t>> ids[] = {{"bos", data.bos_id},
                                                                {"eos", data.eos_id},
                                                                {"eot", data.eot_id},
                                                                {"eom", data.eom_id},
                                                                {"unknown", data.unk_id}};
  for (const auto& [name, id] : ids) {
    if (id && (*id < 0 || size_t(*id) >= n)) {
      return Status::invalid("tokenizer.ggml.{}_token_id is {}, outside the vocabulary of {}", name, *id, n);
    }
  }
  return Status::ok();
}

// SentencePiece's own numbering, for files that leave the keys out.
TokenizerData with_defaults(TokenizerData data) {
  if (data.model == "llama" && data.tokens.size() > 2) {
    if (!data.unk_id) data.unk_id = 0;
    if (!data.bos_id) data.bos_id = 1;
    if (!data.eos_id) data.eos_id = 2;
  }
  return data;
}

std::vector<gapless_text_str> ffi_texts(const std::vector<std::string_view>& texts) {
  std::vector<gapless_text_str> result;
  result.reserve(texts.size());
  for (std::string_view text : texts) result.push_back(ffi_text(text));
  return result;
}

Result<gapless_text_tokenizer*> create_handle(const TokenizerData& data, const std::vector<uint8_t>& roles,
                                              bool add_space_prefix) {
  const auto tokens = ffi_texts(data.tokens), merges = ffi_texts(data.merges);
  const gapless_text_vocab vocab{
      .model = ffi_text(data.model),
      .pre = ffi_text(data.pre),
      .n_tokens = tokens.size(),
      .tokens = tokens.data(),
      .roles = roles.data(),
      .scores = data.scores.data(),
      .n_scores = data.scores.size(),
      .merges = merges.data(),
      .n_merges = merges.size(),
      .unk_id = data.unk_id.value_or(-1),
      .add_space_prefix = add_space_prefix,
  };
  gapless_text_tokenizer* handle = nullptr;
  std::string error;
  RETURN_IF_ERROR(ffi_status(gapless_text_tokenizer_new(&vocab, &handle, ffi_sink(error)), error));
  return handle;
}

}  // namespace

void Tokenizer::Free::operator()(gapless_text_tokenizer* handle) const {
  gapless_text_tokenizer_free(handle);
}

Result<Tokenizer> Tokenizer::create(const TokenizerData& file_data) {
  const TokenizerData data = with_defaults(file_data);
  RETURN_IF_ERROR(check(data));
  TokenRoles roles = token_roles(data);
  Tokenizer result;
  result.add_space_prefix_ = data.model == "llama" && data.add_space_prefix.value_or(true);
  ASSIGN_OR_RETURN(auto* handle, create_handle(data, roles.roles, result.add_space_prefix_));
  result.handle_.reset(handle);
  result.token_bytes_ = gapless::token_bytes(data, std::move(roles.control));
  result.eos_ids_ = std::move(roles.eos_ids);
  result.bos_id_ = data.bos_id.value_or(-1);
  result.eos_id_ = data.eos_id.value_or(-1);
  const bool default_add_bos = gapless_text_tokenizer_default_add_bos(handle) != 0;
  result.add_bos_ = data.add_bos.value_or(default_add_bos) && result.bos_id_ >= 0;
  result.add_eos_ = data.add_eos.value_or(false) && result.eos_id_ >= 0;
  return result;
}

Result<std::vector<int32_t>> Tokenizer::encode(std::string_view text, EncodeOptions options) const {
  const TextRange whole{0, text.size()};
  const std::span<const TextRange> user(&whole, options.parse_special ? 0 : 1);
  ASSIGN_OR_RETURN(std::vector<int32_t> ids, encode_marked(text, user));
  if (options.add_special) {
    prepend_bos(ids);
    if (add_eos_) ids.push_back(eos_id_);
  }
  return ids;
}

Result<std::vector<int32_t>> Tokenizer::encode_chat(const MarkedText& chat) const {
  ASSIGN_OR_RETURN(std::vector<int32_t> ids, encode_marked(chat.text, chat.user));
  prepend_bos(ids);
  return ids;
}

Result<std::vector<int32_t>> Tokenizer::encode_marked(std::string_view text,
                                                      std::span<const TextRange> user) const {
  std::vector<gapless_text_range> ranges;
  ranges.reserve(user.size());
  for (const TextRange& range : user) ranges.push_back({range.begin, range.end});
  std::vector<int32_t> ids;
  std::string error;
  RETURN_IF_ERROR(
      ffi_status(gapless_text_tokenizer_encode(handle_.get(), ffi_text(text), ranges.data(), ranges.size(),
                                               ffi_sink<uint32_t>(ids), ffi_sink(error)),
                 error));
  return ids;
}

void Tokenizer::prepend_bos(std::vector<int32_t>& ids) const {
  if (add_bos_ && (ids.empty() || ids.front() != bos_id_)) ids.insert(ids.begin(), bos_id_);
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_special) const {
  std::string text;
  IncrementalText decoder(token_bytes_,
                          {.skip_special = skip_special, .strip_leading_space = add_space_prefix_});
  for (int32_t id : ids) decoder.feed(id, text);
  decoder.finish(text);
  return text;
}

}  // namespace gapless
