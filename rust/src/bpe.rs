//! Byte-level BPE with merge rules (`tokenizer.ggml.model = "gpt2"`) on Hugging Face's implementation.

use ahash::AHashMap;
use tokenizers::models::bpe::BPE;
use tokenizers::tokenizer::Tokenizer;

use crate::error::{Invalid, Result};
use crate::pre_tokenizer::PreTokenizer;

/// `pieces[id]`: the pieces that text may become, empty for all other tokens (so no merge rule can form a control token).
/// `merges`: "left right" in rank order. The result knows no special tokens: the caller cuts the text at those first.
pub fn build(pieces: &[&str], merges: &[&str], pre: &PreTokenizer) -> Result<Tokenizer> {
    let mut vocab: AHashMap<String, u32> = AHashMap::with_capacity(pieces.len());
    for (id, piece) in pieces.iter().enumerate().filter(|(_, piece)| !piece.is_empty()) {
        vocab.entry(piece.to_string()).or_insert(id as u32);
    }
    let mut rules = Vec::with_capacity(merges.len());
    for (rank, merge) in merges.iter().enumerate() {
        let (left, right) = split_rule(merge).ok_or_else(|| {
            Invalid(format!(
                "tokenizer.ggml.merges[{rank}] is '{merge}', not two pieces with a space between"
            ))
        })?;
        // A rule that names or makes something that is no piece could never yield a token.
        if vocab.contains_key(left)
            && vocab.contains_key(right)
            && vocab.contains_key(&format!("{left}{right}"))
        {
            rules.push((left.to_string(), right.to_string()));
        }
    }
    let bpe = BPE::builder().vocab_and_merges(vocab, rules).ignore_merges(pre.ignore_merges).build()?;
    let mut tokenizer = Tokenizer::new(bpe);
    tokenizer.with_pre_tokenizer(Some(pre.build()?));
    Ok(tokenizer)
}

/// Splits at the first space behind the first character (a piece may itself begin with one).
fn split_rule(merge: &str) -> Option<(&str, &str)> {
    let first = merge.chars().next()?.len_utf8();
    let space = first + merge[first..].find(' ')?;
    Some((&merge[..space], &merge[space + 1..]))
}
