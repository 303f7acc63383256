/* The C ABI of the Rust text library: tokenizers from GGUF metadata and chat templates. (llguidance's own C ABI, llg_*, is in the same
 * library.)
 *
 * Rules for all of it:
 * - Texts are pointer + size, UTF-8, not NUL-terminated, and are not kept after a call returns.
 * - A result is handed to a sink, whose `write` is called at most once, on the calling thread, before the function returns; the
 *   data is the callee's and is valid only during `write`, which must not throw.
 * - Functions return a gapless_text_code. On any code but OK the `error` sink, and no other, receives one line of text for people.
 * - A panic in Rust is caught at this border and is GAPLESS_TEXT_PANIC.
 * - Objects are immutable: any number of threads may use one at a time. `free` takes NULL. */
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

#ifdef __cplusplus
}
#endif
