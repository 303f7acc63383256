//! The text side of Gapless behind a C ABI: tokenizers built from GGUF metadata, chat templates, and (re-exported with its own C ABI)
//! llguidance. All Rust dependencies live in this one static library: two of them in one program would clash on std's symbols.
//!
//! The ABI is described in `include/gapless_text.h`; pointers from C are touched in `ffi` only.

mod bpe;
mod error;
mod ffi;
mod pre_tokenizer;
mod pyjson;
mod special;
mod spm;
mod template;
mod tokenizer;
mod user_text;

pub use llguidance::ffi as llguidance_ffi;
