//! The grammar part of include/gapless_text.h: converts and nothing else.

use crate::error::Invalid;
use crate::ffi::{guarded, slice, Sink, Str};
use crate::grammar::{Grammar, Kind, State, Vocabulary};

/// One is used by many threads at once.
const _: fn() = || {
    fn shared<T: Send + Sync>() {}
    shared::<Vocabulary>();
    shared::<Grammar>();
};

#[no_mangle]
pub unsafe extern "C" fn gapless_text_vocabulary_new(
    tokens: *const Str,
    is_text: *const u8,
    n_tokens: usize,
    eos: *const u32,
    n_eos: usize,
    vocabulary: *mut *mut Vocabulary,
    error: Sink,
) -> i32 {
    guarded(error, || {
        let tokens = slice(tokens, n_tokens).iter().zip(slice(is_text, n_tokens));
        let tokens = tokens.map(|(token, is_text)| (token.bytes(), *is_text != 0));
        *vocabulary = Box::into_raw(Box::new(Vocabulary::new(tokens, slice(eos, n_eos))?));
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn gapless_text_vocabulary_free(vocabulary: *mut Vocabulary) {
    if !vocabulary.is_null() {
        drop(Box::from_raw(vocabulary));
    }
}

#[no_mangle]
pub unsafe extern "C" fn gapless_text_grammar_new(
    vocabulary: *const Vocabulary,
    kind: i32,
    text: Str,
    grammar: *mut *mut Grammar,
    error: Sink,
) -> i32 {
    guarded(error, || {
        let kind = match kind {
            0 => Kind::JsonSchema,
            1 => Kind::Regex,
            2 => Kind::Lark,
            other => return Err(Invalid(format!("grammar kind {other} is not known"))),
        };
        let compiled = (*vocabulary).compile(kind, text.text(|| "the grammar".into())?)?;
        *grammar = Box::into_raw(Box::new(compiled));
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn gapless_text_grammar_free(grammar: *mut Grammar) {
    if !grammar.is_null() {
        drop(Box::from_raw(grammar));
    }
}

#[no_mangle]
pub unsafe extern "C" fn gapless_text_matcher_new(
    grammar: *const Grammar,
    matcher: *mut *mut State,
    error: Sink,
) -> i32 {
    guarded(error, || {
        *matcher = Box::into_raw(Box::new((*grammar).state()));
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn gapless_text_matcher_free(matcher: *mut State) {
    if !matcher.is_null() {
        drop(Box::from_raw(matcher));
    }
}

#[no_mangle]
pub unsafe extern "C" fn gapless_text_matcher_mask(
    matcher: *mut State,
    words: *mut u32,
    n_words: usize,
    error: Sink,
) -> i32 {
    guarded(error, || (*matcher).mask(std::slice::from_raw_parts_mut(words, n_words)))
}

#[no_mangle]
pub unsafe extern "C" fn gapless_text_matcher_accept(matcher: *mut State, token: u32, error: Sink) -> i32 {
    guarded(error, || (*matcher).accept(token))
}

#[no_mangle]
pub unsafe extern "C" fn gapless_text_matcher_is_complete(matcher: *const State) -> u8 {
    (*matcher).is_complete() as u8
}
