// Small real tokenizers for the tiny models: 512 tokens unless said otherwise, merges learnt from a paragraph
// of English.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/testing/gguf_writer.h"

namespace gapless::testing {

inline constexpr int32_t kTinyVocab = 512;

// Byte-level BPE as SmolLM2's: 0 <|endoftext|>, 1 <|im_start|>, 2 <|im_end|>, then 256 byte tokens, then
// merges; ends a turn with 2.
void add_tiny_bpe_vocab(GgufWriter& writer, int32_t size = kTinyVocab);
// SentencePiece-style as Gemma's: 0 <pad>, 1 <eos>, 2 <bos>, 3 <unk>, 4 <start_of_turn>, 5 <end_of_turn>, 256
// byte tokens <0xXX>, characters, then merged pieces, scores falling; a prompt begins with 2.
void add_tiny_spm_vocab(GgufWriter& writer, int32_t size = kTinyVocab);

}  // namespace gapless::testing
