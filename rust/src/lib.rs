//! The text side of Gapless behind a C ABI: tokenizers built from GGUF metadata, chat templates, and grammars
//! (llguidance). All Rust dependencies live in this one static library: two of them in one program would clash on std's symbols.
//!
//! The ABI is described in `include/gapless_text.h`; pointers from C are touched in `ffi` and `ffi_grammar` only.

mod bpe;
mod deadline;
mod error;
mod ffi;
mod ffi_grammar;
mod grammar;
mod pre_tokenizer;
mod pyjson;
mod schema_check;
mod special;
mod spm;
mod template;
mod tokenizer;
mod user_text;
