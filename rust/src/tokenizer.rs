//! A tokenizer built from GGUF metadata: cut the text at special tokens, then let the model's own rule encode what lies between.

use std::ops::Range;
use std::sync::Arc;

use tokenizers::tokenizer::Tokenizer as HfTokenizer;

use crate::bpe;
use crate::error::{Invalid, Result};
use crate::pre_tokenizer::PreTokenizer;
use crate::special::{Kind, SpecialTokens};
use crate::spm::Spm;

/// What a token may be made from; see gapless_text.h.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Piece,
    Byte(u8),
    Control,
    Literal,
    Unused,
}

pub struct Vocab<'a> {
    pub model: &'a str,
    pub pre: &'a str,
    pub tokens: Vec<&'a str>,
    pub roles: Vec<Role>,
    pub scores: &'a [f32], // model "llama": one per token
    pub merges: Vec<&'a str>,
    pub unk_id: Option<u32>,
    pub add_space_prefix: bool,
}

/// The rules that cut words look ahead behind white space. The regular expressions' library gives up on runs of a million characters and
/// leaves the rest of the text uncut, without an error; far below that, we say so.
const MAX_SPACE: usize = 200_000;

enum Model {
    ByteLevelBpe(Box<HfTokenizer>),
    Spm { spm: Box<Spm>, add_space_prefix: bool },
}

pub struct Tokenizer {
    special: Arc<SpecialTokens>,
    model: Model,
    default_add_bos: bool,
}

impl Tokenizer {
    pub fn new(vocab: &Vocab) -> Result<Tokenizer> {
        let (model, default_add_bos) = match vocab.model {
            "gpt2" => {
                let pre = PreTokenizer::by_name(vocab.pre)?;
                let model = bpe::build(&pieces(vocab), &vocab.merges, pre)?;
                (Model::ByteLevelBpe(Box::new(model)), pre.add_bos)
            }
            "llama" => (spm_model(vocab)?, true),
            other => {
                return Err(Invalid(format!(
                    "tokenizer.ggml.model is '{other}', which is not known; known are: gpt2, llama"
                )))
            }
        };
        Ok(Tokenizer { special: Arc::new(special_tokens(vocab)), model, default_add_bos })
    }

    /// What a file without `add_bos_token` means.
    pub fn default_add_bos(&self) -> bool {
        self.default_add_bos
    }

    pub fn special(&self) -> Arc<SpecialTokens> {
        self.special.clone()
    }

    /// `user`: byte ranges of `text`, ascending and disjoint, in which no control token may be recognised, not even in part.
    pub fn encode(&self, text: &str, user: &[Range<usize>]) -> Result<Vec<u32>> {
        let mut ids = Vec::with_capacity(text.len() / 3 + 8);
        let mut at = 0;
        while let Some(found) = self.special.find(text.as_bytes(), at, user) {
            self.encode_plain(&text[at..found.range.start], &mut ids)?;
            ids.push(found.id);
            at = found.range.end;
        }
        self.encode_plain(&text[at..], &mut ids)?;
        Ok(ids)
    }

    fn encode_plain(&self, text: &str, ids: &mut Vec<u32>) -> Result<()> {
        if text.is_empty() {
            return Ok(());
        }
        match &self.model {
            Model::ByteLevelBpe(_) if longest_space(text) > MAX_SPACE => {
                return Err(Invalid(format!(
                    "the text has more than {MAX_SPACE} white-space characters in a row"
                )));
            }
            Model::ByteLevelBpe(tokenizer) => {
                ids.extend_from_slice(tokenizer.encode_fast(text, false)?.get_ids())
            }
            Model::Spm { spm, add_space_prefix } => {
                // Each plain stretch begins the text or follows a special token, and that is where the prefix belongs.
                let prefix = if *add_space_prefix { "▁" } else { "" };
                spm.encode(&format!("{prefix}{}", text.replace(' ', "▁")), ids);
            }
        }
        Ok(())
    }
}

fn longest_space(text: &str) -> usize {
    if text.len() <= MAX_SPACE {
        return 0;
    }
    text.split(|character: char| !character.is_whitespace())
        .map(|space| space.chars().count())
        .max()
        .unwrap_or(0)
}

fn pieces<'a>(vocab: &Vocab<'a>) -> Vec<&'a str> {
    vocab
        .tokens
        .iter()
        .zip(&vocab.roles)
        .map(|(token, role)| if *role == Role::Piece { *token } else { "" })
        .collect()
}

fn spm_model(vocab: &Vocab) -> Result<Model> {
    if vocab.scores.len() != vocab.tokens.len() {
        let (scores, tokens) = (vocab.scores.len(), vocab.tokens.len());
        return Err(Invalid(format!("tokenizer.ggml.scores has {scores} entries for {tokens} tokens")));
    }
    let mut byte_ids = [None; 256];
    for (id, role) in vocab.roles.iter().enumerate() {
        if let Role::Byte(byte) = role {
            byte_ids[*byte as usize].get_or_insert(id as u32);
        }
    }
    let spm = Box::new(Spm::new(&pieces(vocab), vocab.scores, byte_ids, vocab.unk_id));
    Ok(Model::Spm { spm, add_space_prefix: vocab.add_space_prefix })
}

fn special_tokens(vocab: &Vocab) -> SpecialTokens {
    let mut special = SpecialTokens::default();
    for (id, (token, role)) in vocab.tokens.iter().zip(&vocab.roles).enumerate() {
        match role {
            Role::Control => special.add(token, id as u32, Kind::Control),
            Role::Literal => special.add(token, id as u32, Kind::Literal),
            Role::Piece | Role::Byte(_) | Role::Unused => {}
        }
    }
    special
}
