//! Which bytes of a rendered chat came from the user? Control tokens are recognised outside them only, so that no message, name, tool
//! result or argument can forge a turn, alone or together with what stands beside it.
//!
//! The chat is rendered twice: as it is, and marked: with every printable ASCII character of every user string replaced by a stand-in
//! from a private-use block that occurs nowhere in the input. Templates move, trim, split and quote strings mostly without looking at
//! their letters, so putting the characters back gives the first text again, and where the stand-ins were is what the user wrote.
//!
//! Some templates do look (`'</think>' in content`), or sort, or change case, and the texts differ. The plain text is still right if the
//! control tokens in it are those of the marked text, one for one: then no user text spells any. Else the marking is repeated with the
//! template's own words left as they are. If the texts differ even so, a user's control token meets a template that rewrites
//! user text: then the marked text is used, in which the user's part is surely known.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use serde_json::{Map, Value as Json};

use crate::error::{Invalid, Result};
use crate::special::SpecialTokens;
use crate::template::Template;

pub type Variables = Map<String, Json>;

/// A rendered chat; `user` are the byte ranges, ascending and disjoint, that hold the user's own characters.
pub struct Chat {
    pub text: String,
    pub user: Vec<Range<usize>>,
}

/// A template and the control tokens that a user must not be able to spell through it.
pub struct ChatTemplate {
    template: Template,
    special: Arc<SpecialTokens>,
    names: HashSet<String>,       // every word of the source
    words: OnceLock<Vec<String>>, // see template_words: some 30 ms for a vocabulary of 6,000 control tokens, seldom needed
}

impl ChatTemplate {
    pub fn new(template: Template, special: Arc<SpecialTokens>) -> ChatTemplate {
        let names = template.source().split(|character| !is_name(character)).map(str::to_string).collect();
        ChatTemplate { template, special, names, words: OnceLock::new() }
    }

    /// Renders over the variables of both maps. Strings of `user`, however deep, are the user's, except for words under the keys
    /// "role" and "type" and for keys that the template's source names: templates compare those, and the caller has checked the roles.
    pub fn render(&self, trusted: &Variables, user: &Variables) -> Result<Chat> {
        let text = self.template.render(&merged(trusted, user))?;
        let marked = match self.render_marked(trusted, user, &[]) {
            Ok(marked) if marked.text == text => return Ok(marked),
            other => other,
        };
        // If the template refuses the stand-ins, the plain text is known to be right only if it has no control tokens at all.
        let expected =
            marked.as_ref().map_or(Vec::new(), |chat| self.special.control_ids(&chat.text, &chat.user));
        if self.special.control_ids(&text, &[]) == expected {
            return Ok(Chat { text, user: Vec::new() });
        }
        match self.render_marked(trusted, user, self.words()) {
            Ok(again) if again.text == text && self.special.control_ids(&text, &again.user) == expected => {
                Ok(again)
            }
            _ => marked.map_err(|_| {
                Invalid("the chat template cannot tell a message's text from its own control tokens".into())
            }),
        }
    }

    fn render_marked(&self, trusted: &Variables, user: &Variables, kept: &[String]) -> Result<Chat> {
        let stand_ins = StandIns::choose(&self.template, trusted, user)?;
        let replacer = Replacer { stand_ins, names: &self.names, kept };
        let marked = self.template.render(&merged(trusted, &replacer.map(user)))?;
        Ok(stand_ins.restore(&marked))
    }

    fn words(&self) -> &[String] {
        self.words.get_or_init(|| template_words(self.template.source(), self.special.controls()))
    }
}

/// The planes that hold private-use characters only; every stand-in is from here.
const PRIVATE: Range<u32> = 0xF0000..0x110000;
const BLOCK: u32 = 0x80;

pub fn is_stand_in(character: char) -> bool {
    PRIVATE.contains(&(character as u32))
}

/// Quotes and backslashes stay as they are, because templates escape them; a control token always has another character too.
fn is_replaced(character: char) -> bool {
    character.is_ascii_graphic() && !matches!(character, '"' | '\'' | '\\')
}

#[derive(Clone, Copy)]
struct StandIns {
    base: u32,
}

impl StandIns {
    fn choose(template: &Template, trusted: &Variables, user: &Variables) -> Result<StandIns> {
        let mut used = [false; ((PRIVATE.end - PRIVATE.start) / BLOCK) as usize];
        let mut look = |text: &str| {
            for character in text.chars().filter(|&character| is_stand_in(character)) {
                used[((character as u32 - PRIVATE.start) / BLOCK) as usize] = true;
            }
        };
        look(template.source());
        trusted.iter().chain(user).for_each(|(key, value)| {
            look(key);
            for_each_string(value, &mut look);
        });
        let free = used.iter().position(|used| !used);
        let block =
            free.ok_or_else(|| Invalid("the messages hold characters of every private-use block".into()))?;
        Ok(StandIns { base: PRIVATE.start + block as u32 * BLOCK })
    }

    /// Puts the characters back and says where they were.
    fn restore(&self, marked: &str) -> Chat {
        let mut chat = Chat { text: String::with_capacity(marked.len()), user: Vec::new() };
        for character in marked.chars() {
            let original = (character as u32)
                .checked_sub(self.base)
                .filter(|offset| *offset < BLOCK)
                .and_then(char::from_u32);
            let Some(original) = original else {
                chat.text.push(character);
                continue;
            };
            let start = chat.text.len();
            chat.text.push(original);
            match chat.user.last_mut() {
                Some(range) if range.end == start => range.end = chat.text.len(),
                _ => chat.user.push(start..chat.text.len()),
            }
        }
        chat
    }
}

/// Replaces user text by stand-ins.
struct Replacer<'a> {
    stand_ins: StandIns,
    names: &'a HashSet<String>, // keys that the template may ask for
    kept: &'a [String], // words that stay as they are; if there are any, so do values that are one of `names`
}

impl Replacer<'_> {
    fn map(&self, map: &Variables) -> Variables {
        map.iter()
            .map(|(key, value)| {
                let name = if self.names.contains(key) { key.clone() } else { self.text(key) };
                (name, self.value(value, key))
            })
            .collect()
    }

    fn value(&self, value: &Json, key: &str) -> Json {
        match value {
            Json::String(text) if matches!(key, "role" | "type") && text.chars().all(is_name) => {
                value.clone()
            }
            Json::String(text) if !self.kept.is_empty() && self.names.contains(text) => value.clone(),
            Json::String(text) => Json::String(self.text(text)),
            Json::Array(items) => items.iter().map(|item| self.value(item, key)).collect(),
            Json::Object(map) => Json::Object(self.map(map)),
            other => other.clone(),
        }
    }

    fn text(&self, text: &str) -> String {
        let mut keep: Vec<Range<usize>> = self.kept.iter().flat_map(|word| occurrences(text, word)).collect();
        keep.sort_by_key(|range| range.start);
        let (mut next, mut kept_until) = (keep.iter().peekable(), 0);
        let mut out = String::with_capacity(text.len() * 4);
        for (at, character) in text.char_indices() {
            while let Some(range) = next.next_if(|range| range.start <= at) {
                kept_until = kept_until.max(range.end);
            }
            let replaced = is_replaced(character) && at >= kept_until;
            let stand_in = char::from_u32(self.stand_ins.base + character as u32).filter(|_| replaced);
            out.push(stand_in.unwrap_or(character));
        }
        out
    }
}

fn is_name(character: char) -> bool {
    character.is_ascii_alphanumeric() || matches!(character, '_' | '$')
}

fn merged(trusted: &Variables, user: &Variables) -> Variables {
    let mut all = user.clone();
    all.extend(trusted.iter().map(|(key, value)| (key.clone(), value.clone())));
    all
}

fn occurrences<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = Range<usize>> + 'a {
    text.match_indices(word).map(|(start, found)| start..start + found.len())
}

fn for_each_string(value: &Json, visit: &mut impl FnMut(&str)) {
    match value {
        Json::String(text) => visit(text),
        Json::Array(items) => items.iter().for_each(|item| for_each_string(item, visit)),
        Json::Object(map) => map.iter().for_each(|(key, value)| {
            visit(key);
            for_each_string(value, visit);
        }),
        _ => {}
    }
}

/// The string constants of the template that a template may look for in user text, without those that could be part of a control
/// token's spelling: what is kept from the user's text must not help to spell one.
fn template_words(source: &str, controls: &[String]) -> Vec<String> {
    let mut words: Vec<String> = string_constants(source);
    words.sort();
    words.dedup();
    words.retain(|word| {
        word.contains(is_replaced) && !controls.iter().any(|control| share_text(word, control))
    });
    words
}

/// Does one of the two hold the other, or one begin with what the other ends in? Only then can text that holds `word` have an
/// occurrence of `control` that touches `word`.
fn share_text(word: &str, control: &str) -> bool {
    word.contains(control) || control.contains(word) || overlap(word, control) || overlap(control, word)
}

fn overlap(left: &str, right: &str) -> bool {
    left.char_indices().skip(1).any(|(at, _)| right.starts_with(&left[at..]))
}

/// The quoted strings inside `{{ }}` and `{% %}`, with Jinja's escapes undone.
fn string_constants(source: &str) -> Vec<String> {
    let mut constants = Vec::new();
    let mut rest = source;
    while let Some(start) = rest.find(['{']) {
        rest = &rest[start + 1..];
        let close = match rest.chars().next() {
            Some('{') => "}}",
            Some('%') => "%}",
            Some('#') => {
                rest = rest.find("#}").map_or("", |end| &rest[end + 2..]);
                continue;
            }
            _ => continue,
        };
        rest = &rest[1..];
        while !rest.is_empty() && !rest.starts_with(close) {
            let first = rest.chars().next().unwrap_or('}');
            rest = &rest[first.len_utf8()..];
            if matches!(first, '"' | '\'') {
                rest = read_constant(rest, first, &mut constants);
            }
        }
    }
    constants
}

/// Reads up to the closing `quote`; returns what follows it.
fn read_constant<'a>(text: &'a str, quote: char, constants: &mut Vec<String>) -> &'a str {
    let mut constant = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '\\' => match characters.next() {
                Some((_, 'n')) => constant.push('\n'),
                Some((_, 't')) => constant.push('\t'),
                Some((_, 'r')) => constant.push('\r'),
                Some((_, other)) => constant.push(other),
                None => break,
            },
            _ if character == quote => {
                constants.push(constant);
                return &text[at + quote.len_utf8()..];
            }
            _ => constant.push(character),
        }
    }
    ""
}
