//! Grammars: llguidance behind three types. What a client writes is checked for what the library would do wrong or for too long with
//! before the library sees it.

use std::sync::Arc;
use std::time::Duration;

use llguidance::api::{ParserLimits, TopLevelGrammar};
use llguidance::earley::SlicedBiasComputer;
use llguidance::toktrie::{ApproximateTokEnv, InferenceCapabilities, TokEnv, TokRxInfo, TokTrie};
use llguidance::{Matcher, ParserFactory};
use serde_json::{json, Value};

use crate::deadline;
use crate::error::{Invalid, Result};
use crate::schema_check;

/// The first byte of a token that is no text: no byte of UTF-8.
const SPECIAL: u8 = 0xFF;

/// Beyond this a grammar is refused. Measured: a schema of 64 KB with 3000 values takes 30 ms.
const MAX_COMPILE_TIME: Duration = Duration::from_secs(2);

/// A mask costs at most some 10 ms, a matcher some 50 MB.
fn limits() -> ParserLimits {
    ParserLimits {
        initial_lexer_fuel: 1_000_000,
        max_grammar_size: 200_000,
        step_lexer_fuel: 100_000,
        step_max_items: 50_000,
        max_lexer_states: 25_000,
        verbose_errors: false,
        ..ParserLimits::default()
    }
}

/// Between two parts of a JSON text may be one space, or a line break and what indents the next line. A model that is unsure writes
/// blanks for ever if it may.
const WHITESPACE: &str = r"\x20|\x0A[\x20\x09]{0,20}";
/// Without \u, which would let a key be spelled in two ways, of which one is not checked.
const ESCAPES: &str = "nrbtf\\\"";

#[derive(Clone, Copy, PartialEq)]
pub enum Kind {
    JsonSchema,
    Regex,
    Lark,
}

pub struct Vocabulary {
    factory: Arc<ParserFactory>,
}

/// Compiled, with the first mask computed. Never advanced, only copied.
pub struct Grammar {
    start: Matcher,
}

pub struct State {
    matcher: Matcher,
}

impl Vocabulary {
    /// `tokens`: the bytes of each token, and whether it is text. `eos`: not empty.
    pub fn new<'a>(tokens: impl Iterator<Item = (&'a [u8], bool)>, eos: &[u32]) -> Result<Self> {
        let words: Vec<Vec<u8>> = tokens
            .map(|(bytes, is_text)| if is_text { bytes.to_vec() } else { [&[SPECIAL], bytes].concat() })
            .collect();
        let size = u32::try_from(words.len())?;
        if eos.is_empty() || eos.iter().any(|id| *id >= size) {
            return Err(Invalid("a grammar needs a token that ends an answer".into()));
        }
        let trie = TokTrie::from(&TokRxInfo::new(size, eos[0]), &words).with_eos_tokens(eos);
        let env: TokEnv = Arc::new(ApproximateTokEnv::new(trie));
        let mut factory = ParserFactory::new(
            &env,
            InferenceCapabilities::default(),
            &SlicedBiasComputer::general_slices(),
        )?;
        factory.quiet();
        *factory.limits_mut() = limits();
        Ok(Vocabulary { factory: Arc::new(factory) })
    }

    pub fn compile(&self, kind: Kind, text: &str) -> Result<Grammar> {
        let factory = self.factory.clone();
        let text = text.to_string();
        deadline::run(MAX_COMPILE_TIME, move || compile(&factory, kind, &text))?
    }
}

fn compile(factory: &ParserFactory, kind: Kind, text: &str) -> Result<Grammar> {
    let grammar = match kind {
        Kind::JsonSchema => TopLevelGrammar::from_json_schema(schema(serde_json::from_str(text)?)?),
        Kind::Regex => {
            schema_check::check_regex(text, "regex")?;
            TopLevelGrammar::from_regex(text)
        }
        Kind::Lark => TopLevelGrammar::from_lark(lark(text)?),
    };
    let parser = factory.create_parser(grammar).map_err(|error| summary(&format!("{error:#}")))?;
    let mut start = Matcher::new(Ok(parser));
    // An empty language and one whose first step is too costly are told now.
    start.compute_mask().map_err(|error| summary(&error.to_string()))?;
    Ok(Grammar { start })
}

/// The schemas in a grammar are checked, and their texts spaced, as those that stand alone. What is no JSON is for the library to tell.
fn lark(text: &str) -> Result<String> {
    const MARK: &str = "%json";
    let mut result = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(MARK) {
        let (before, after) = rest.split_at(at + MARK.len());
        result.push_str(before);
        let mut values = serde_json::Deserializer::from_str(after).into_iter::<Value>();
        rest = after;
        if let Some(Ok(value @ (Value::Object(_) | Value::Bool(_)))) = values.next() {
            rest = &after[values.byte_offset()..];
            result.push_str(&format!(" {}", schema(value)?));
        }
    }
    result.push_str(rest);
    Ok(result)
}

fn schema(mut schema: Value) -> Result<Value> {
    schema_check::check(&mut schema)?;
    if schema == Value::Bool(true) {
        schema = json!({});
    }
    let options = json!({
        "whitespace_pattern": WHITESPACE,
        "json_allowed_escapes": ESCAPES,
    });
    match schema.as_object_mut() {
        Some(members) => members.insert("x-guidance".into(), options),
        None => return Err(Invalid("the schema false allows nothing".into())),
    };
    Ok(schema)
}

const MAX_ERROR_CHARS: usize = 200;

/// One line of the library's error, which goes on with its own state, a backtrace or the whole text. Of a regular expression's the cause
/// comes last.
fn summary(error: &str) -> Invalid {
    let short = |text: &str| text.trim().chars().take(MAX_ERROR_CHARS).collect::<String>();
    let first = error.lines().next().unwrap_or_default();
    Invalid(match error.lines().find_map(|line| line.trim().strip_prefix("error: ")) {
        _ if first.starts_with("NoExtensionBias") => "no answer can match it".into(),
        _ if first.starts_with("panic: ") => "the grammar library cannot take it".into(),
        Some(cause) => format!("{}: {}", short(first).trim_end_matches(':'), short(cause)),
        None => short(first),
    })
}

impl Grammar {
    pub fn state(&self) -> State {
        State { matcher: self.start.deep_clone() }
    }
}

impl State {
    /// Bit id % 32 of word id / 32 of `words`, which has a bit for every token.
    pub fn mask(&mut self, words: &mut [u32]) -> Result<()> {
        let mask = self.matcher.compute_mask_or_eos().map_err(|error| summary(&error.to_string()))?;
        words.copy_from_slice(&mask.as_slice()[..words.len()]);
        Ok(())
    }

    pub fn accept(&mut self, token: u32) -> Result<()> {
        self.matcher.consume_token(token).map_err(|error| summary(&error.to_string()))
    }

    pub fn is_complete(&self) -> bool {
        self.matcher.is_stopped() && !self.matcher.is_error()
    }
}
