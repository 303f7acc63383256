/* The C ABI of the Rust text library: tokenizers from GGUF metadata, chat templates and grammars.
 *
 * Rules for all of it:
 * - Texts are pointer + size, UTF-8, not NUL-terminated, and are not kept after a call returns.
 * - A result is handed to a sink, whose `write` is called at most once, on the calling thread, before the function returns; the
 *   data is the callee's and is valid only during `write`, which must not throw.
 * - Functions return a gapless_text_code. On any code but OK the `error` sink, and no other, receives one line of text for people.
 * - A panic in Rust is caught at this border and is GAPLESS_TEXT_PANIC.
 * - Objects are immutable, but for matchers: any number of threads may use one at a time. `free` takes NULL. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum gapless_text_code {
  GAPLESS_TEXT_OK = 0,
  GAPLESS_TEXT_INVALID = 1, /* the input: a bad vocabulary, template or text */
  GAPLESS_TEXT_PANIC = 2,   /* a defect of the library */
} gapless_text_code;

typedef struct gapless_text_str {
  const char* data; /* may be NULL if size is 0 */
  size_t size;
} gapless_text_str;

/* Bytes [begin, end) of a text. */
typedef struct gapless_text_range {
  size_t begin, end;
} gapless_text_range;

typedef struct gapless_text_sink {
  void* context;
  void (*write)(void* context, const void* data, size_t count); /* count: of elements, whose type the function names */
} gapless_text_sink;

/* What a token may be made from. */
typedef enum gapless_text_role {
  GAPLESS_TEXT_PIECE = 0,   /* from text, by the model's own rule */
  GAPLESS_TEXT_BYTE = 1,    /* spelled <0xHH>: from a byte of a character that is no piece (model "llama") */
  GAPLESS_TEXT_CONTROL = 2, /* from its spelling in trusted text only, before the model's own rule */
  GAPLESS_TEXT_LITERAL = 3, /* from its spelling in any text, before the model's own rule */
  GAPLESS_TEXT_UNUSED = 4,  /* never from text */
} gapless_text_role;

typedef struct gapless_text_vocab {
  gapless_text_str model; /* tokenizer.ggml.model: "gpt2" or "llama" */
  gapless_text_str pre;   /* tokenizer.ggml.pre; empty is "default"; read for "gpt2" only */
  size_t n_tokens;
  const gapless_text_str* tokens;
  const uint8_t* roles; /* n_tokens of gapless_text_role */
  const float* scores;  /* n_scores, which must be n_tokens for "llama" */
  size_t n_scores;
  const gapless_text_str* merges; /* "left right", best first; "gpt2" */
  size_t n_merges;
  int32_t unk_id;           /* "llama": the token for what has no other; -1: none, such text is dropped */
  uint8_t add_space_prefix; /* "llama": a space before each text that begins the prompt or follows a special token */
} gapless_text_vocab;

typedef struct gapless_text_tokenizer gapless_text_tokenizer;
typedef struct gapless_text_template gapless_text_template;
typedef struct gapless_text_vocabulary gapless_text_vocabulary;
typedef struct gapless_text_grammar gapless_text_grammar;
typedef struct gapless_text_matcher gapless_text_matcher;

typedef enum gapless_text_grammar_kind {
  GAPLESS_TEXT_JSON_SCHEMA = 0,
  GAPLESS_TEXT_REGEX = 1, /* Rust's syntax, of the whole answer */
  GAPLESS_TEXT_LARK = 2,  /* llguidance's dialect */
} gapless_text_grammar_kind;

gapless_text_code gapless_text_tokenizer_new(const gapless_text_vocab* vocab, gapless_text_tokenizer** tokenizer,
                                             gapless_text_sink error);
void gapless_text_tokenizer_free(gapless_text_tokenizer* tokenizer);

/* 1 if a file without tokenizer.ggml.add_bos_token wants a BOS. */
uint8_t gapless_text_tokenizer_default_add_bos(const gapless_text_tokenizer* tokenizer);

/* Writes the uint32_t ids of `text`; no BOS or EOS is added. `user`: ascending, disjoint ranges; a control token's spelling that touches
 * one is ordinary text. */
gapless_text_code gapless_text_tokenizer_encode(const gapless_text_tokenizer* tokenizer, gapless_text_str text,
                                                const gapless_text_range* user, size_t n_user, gapless_text_sink ids,
                                                gapless_text_sink error);

/* A Jinja chat template, rendered for the control tokens of `tokenizer`, which need not outlive it. */
gapless_text_code gapless_text_template_new(gapless_text_str source, const gapless_text_tokenizer* tokenizer,
                                            gapless_text_template** chat_template, gapless_text_sink error);
void gapless_text_template_free(gapless_text_template* chat_template);

/* Renders over the variables of three JSON objects: `trusted` (bos_token, ...), `user` (messages, tools) and `extra` (the request's
 * chat_template_kwargs), of which the earlier win. Writes the text (char) and the ranges of it that are from `user` or `extra` (gapless_text_range), to be given to encode. An error raised by the
 * template itself (raise_exception) is INVALID with exactly the template's text. */
gapless_text_code gapless_text_template_render(const gapless_text_template* chat_template, gapless_text_str trusted,
                                               gapless_text_str user, gapless_text_str extra, gapless_text_sink text,
                                               gapless_text_sink ranges, gapless_text_sink error);

/* What llguidance needs of a vocabulary: the bytes of each token, whether they are text (0: a control token, which no text matches), and
 * the tokens that end an answer (at least one). */
gapless_text_code gapless_text_vocabulary_new(const gapless_text_str* tokens, const uint8_t* is_text, size_t n_tokens, const uint32_t* eos,
                                              size_t n_eos, gapless_text_vocabulary** vocabulary, gapless_text_sink error);
void gapless_text_vocabulary_free(gapless_text_vocabulary* vocabulary);

/* Compiles. The vocabulary need not outlive the grammar. INVALID says what of it cannot be used, or which limit it
 * reaches. */
gapless_text_code gapless_text_grammar_new(const gapless_text_vocabulary* vocabulary, gapless_text_grammar_kind kind, gapless_text_str text,
                                           gapless_text_grammar** grammar, gapless_text_sink error);
void gapless_text_grammar_free(gapless_text_grammar* grammar);

/* The state of one answer, which does not need the grammar any more. One thread at a time. Its results are a function of the grammar and the
 * accepted tokens. */
gapless_text_code gapless_text_matcher_new(const gapless_text_grammar* grammar, gapless_text_matcher** matcher, gapless_text_sink error);
void gapless_text_matcher_free(gapless_text_matcher* matcher);

/* The tokens that may come next: bit id % 32 of word id / 32, n_words = ceil(n_tokens / 32). After an error the matcher is of no use. */
gapless_text_code gapless_text_matcher_mask(gapless_text_matcher* matcher, uint32_t* words, size_t n_words, gapless_text_sink error);
gapless_text_code gapless_text_matcher_accept(gapless_text_matcher* matcher, uint32_t token, gapless_text_sink error);
/* 1: nothing but the end may follow. */
uint8_t gapless_text_matcher_is_complete(const gapless_text_matcher* matcher);

#ifdef __cplusplus
}
#endif
