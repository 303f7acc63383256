//! The C ABI of include/gapless_text.h: converts, catches panics, and nothing else.

use std::ffi::c_void;
use std::ops::Range;
use std::panic::{catch_unwind, AssertUnwindSafe};

use crate::error::{Invalid, Result};
use crate::template::Template;
use crate::tokenizer::{Role, Tokenizer, Vocab};
use crate::user_text::{ChatTemplate, Variables};

const OK: i32 = 0;
const INVALID: i32 = 1;
const PANIC: i32 = 2;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Str {
    data: *const u8,
    size: usize,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct TextRange {
    begin: usize,
    end: usize,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Sink {
    context: *mut c_void,
    write: extern "C" fn(*mut c_void, *const c_void, usize),
}

#[repr(C)]
pub struct VocabDesc {
    model: Str,
    pre: Str,
    n_tokens: usize,
    tokens: *const Str,
    roles: *const u8,
    scores: *const f32,
    n_scores: usize,
    merges: *const Str,
    n_merges: usize,
    unk_id: i32,
    add_space_prefix: u8,
}

impl Str {
    /// SAFETY: as `slice`.
    pub unsafe fn bytes<'a>(&self) -> &'a [u8] {
        slice(self.data, self.size)
    }

    /// SAFETY: as `slice`.
    pub unsafe fn text<'a>(&self, what: impl Fn() -> String) -> Result<&'a str> {
        let bytes = self.bytes();
        std::str::from_utf8(bytes).map_err(|error| {
            Invalid(format!(
                "{} is not valid UTF-8 (byte {} of {})",
                what(),
                error.valid_up_to(),
                bytes.len()
            ))
        })
    }
}

impl Sink {
    fn write<T>(&self, items: &[T]) {
        (self.write)(self.context, items.as_ptr().cast(), items.len());
    }
}

/// SAFETY: `data` points to `size` readable elements that live through the call, or `size` is 0.
pub unsafe fn slice<'a, T>(data: *const T, size: usize) -> &'a [T] {
    if size == 0 {
        &[]
    } else {
        std::slice::from_raw_parts(data, size)
    }
}

/// Runs an ABI entry: its error, or that it panicked, goes to `error`. What unwinds holds no state that is used again.
pub fn guarded(error: Sink, entry: impl FnOnce() -> Result<()>) -> i32 {
    match catch_unwind(AssertUnwindSafe(entry)) {
        Ok(Ok(())) => OK,
        Ok(Err(Invalid(text))) => {
            error.write(text.as_bytes());
            INVALID
        }
        Err(panic) => {
            let text =
                panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
            error.write(format!("panic in the text library: {}", text.unwrap_or("no message")).as_bytes());
            PANIC
        }
    }
}

/// SAFETY: the arrays of `desc` are as gapless_text.h says.
unsafe fn vocab(desc: &VocabDesc) -> Result<Vocab<'_>> {
    let texts = |data, size, name: &str| -> Result<Vec<&str>> {
        slice::<Str>(data, size)
            .iter()
            .enumerate()
            .map(|(at, text)| text.text(|| format!("{name}[{at}]")))
            .collect()
    };
    let tokens = texts(desc.tokens, desc.n_tokens, "tokenizer.ggml.tokens")?;
    let roles = slice(desc.roles, desc.n_tokens)
        .iter()
        .zip(&tokens)
        .map(|(role, token)| role_of(*role, token))
        .collect::<Result<_>>()?;
    Ok(Vocab {
        model: desc.model.text(|| "tokenizer.ggml.model".into())?,
        pre: desc.pre.text(|| "tokenizer.ggml.pre".into())?,
        tokens,
        roles,
        scores: slice(desc.scores, desc.n_scores),
        merges: texts(desc.merges, desc.n_merges, "tokenizer.ggml.merges")?,
        unk_id: u32::try_from(desc.unk_id).ok(),
        add_space_prefix: desc.add_space_prefix != 0,
    })
}

fn role_of(role: u8, token: &str) -> Result<Role> {
    Ok(match role {
        0 => Role::Piece,
        1 => Role::Byte(
            byte_value(token)
                .ok_or_else(|| Invalid(format!("the byte token '{token}' is not spelled <0xHH>")))?,
        ),
        2 => Role::Control,
        3 => Role::Literal,
        4 => Role::Unused,
        other => return Err(Invalid(format!("token role {other} is not known"))),
    })
}

fn byte_value(token: &str) -> Option<u8> {
    u8::from_str_radix(token.strip_prefix("<0x")?.strip_suffix('>')?, 16).ok()
}

#[no_mangle]
pub unsafe extern "C" fn gapless_text_tokenizer_new(
    desc: *const VocabDesc,
    tokenizer: *mut *mut Tokenizer,
    error: Sink,
) -> i32 {
    guarded(error, || {
        *tokenizer = Box::into_raw(Box::new(Tokenizer::new(&vocab(&*desc)?)?));
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn gapless_text_tokenizer_free(tokenizer: *mut Tokenizer) {
    if !tokenizer.is_null() {
        drop(Box::from_raw(tokenizer));
    }
}

#[no_mangle]
pub unsafe extern "C" fn gapless_text_tokenizer_default_add_bos(tokenizer: *const Tokenizer) -> u8 {
    (*tokenizer).default_add_bos() as u8
}

#[no_mangle]
pub unsafe extern "C" fn gapless_text_tokenizer_encode(
    tokenizer: *const Tokenizer,
    text: Str,
    user: *const TextRange,
    n_user: usize,
    ids: Sink,
    error: Sink,
) -> i32 {
    guarded(error, || {
        let user: Vec<Range<usize>> =
            slice(user, n_user).iter().map(|range| range.begin..range.end).collect();
        ids.write(&(*tokenizer).encode(text.text(|| "the text".into())?, &user)?);
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn gapless_text_template_new(
    source: Str,
    tokenizer: *const Tokenizer,
    chat_template: *mut *mut ChatTemplate,
    error: Sink,
) -> i32 {
    guarded(error, || {
        let template = Template::new(source.text(|| "the chat template".into())?)?;
        *chat_template = Box::into_raw(Box::new(ChatTemplate::new(template, (*tokenizer).special())));
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn gapless_text_template_free(chat_template: *mut ChatTemplate) {
    if !chat_template.is_null() {
        drop(Box::from_raw(chat_template));
    }
}

#[no_mangle]
pub unsafe extern "C" fn gapless_text_template_render(
    chat_template: *const ChatTemplate,
    trusted: Str,
    user: Str,
    extra: Str,
    text: Sink,
    ranges: Sink,
    error: Sink,
) -> i32 {
    guarded(error, || {
        let variables =
            |json: Str| -> Result<Variables> { Ok(serde_json::from_str(json.text(|| "the chat".into())?)?) };
        let mut all_user = variables(extra)?;
        all_user.extend(variables(user)?);
        let chat = (*chat_template).render(&variables(trusted)?, &all_user)?;
        text.write(chat.text.as_bytes());
        let user: Vec<TextRange> =
            chat.user.iter().map(|range| TextRange { begin: range.start, end: range.end }).collect();
        ranges.write(&user);
        Ok(())
    })
}
