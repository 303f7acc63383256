//! Which bytes of a rendered chat came from the user? Control tokens are recognised outside them only, so that no message, name, tool
//! result or argument can forge a turn, alone or together with what stands beside it.
//!
//! The chat is rendered twice: as it is, and with every printable ASCII character of every user string replaced by a stand-in from a
//! private-use block that occurs nowhere in the input. Templates move, trim, split and quote strings without looking at their letters, so
//! putting the characters back gives the first text again, and where the stand-ins were is what the user wrote. Where a template does
//! look (`'</think>' in content`), the second rendering is repeated with those words of the template left as they are. If the texts
//! still differ, the template decides by, or rewrites, text that could spell a control token: then the second rendering is used.

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
    words: OnceLock<Vec<String>>, // see template_words: some 30 ms for a vocabulary of 6,000 control tokens, seldom needed
}

impl ChatTemplate {
    pub fn new(template: Template, special: Arc<SpecialTokens>) -> ChatTemplate {
        ChatTemplate { template, special, words: OnceLock::new() }
    }

    /// Renders over the variables of both maps. Strings of `user`, however deep, are the user's, except for words under the keys
    /// "role" and "type" and keys that are words: templates compare those, and the caller has checked the roles.
    pub fn render(&self, trusted: &Variables, user: &Variables) -> Result<Chat> {
        let text = self.template.render(&merged(trusted, user))?;
        let stand_ins = StandIns::choose(&self.template, trusted, user)?;
        let mut other = None;
        for keep_words in [false, true] {
            let kept = if keep_words { self.words() } else { &[] };
            let variables = merged(trusted, &stand_ins.replace_in_map(user, kept));
            let Ok(marked) = self.template.render(&variables) else { continue };
            let restored = stand_ins.restore(&marked);
            if restored.text == text {
                return Ok(restored);
            }
            other = Some(restored);
        }
        let controls = self.special.controls();
        match other {
            Some(chat) if cannot_spell(user, controls) && !follows_a_beginning(&chat, controls) => {
                Ok(Chat { text, user: Vec::new() })
            }
            Some(chat) => Ok(chat),
            None => Err(Invalid(
                "the chat template cannot tell this message's text from its own control tokens".into(),
            )),
        }
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

    fn replace_in_map(&self, map: &Variables, kept: &[String]) -> Variables {
        map.iter().map(|(key, value)| (key.clone(), self.replace(value, key, kept))).collect()
    }

    fn replace(&self, value: &Json, key: &str, kept: &[String]) -> Json {
        match value {
            Json::String(text) if matches!(key, "role" | "type") && is_word(text) => {
                Json::String(text.clone())
            }
            Json::String(text) => Json::String(self.replace_text(text, kept)),
            Json::Array(items) => items.iter().map(|item| self.replace(item, "", kept)).collect(),
            Json::Object(map) => Json::Object(
                map.iter()
                    .map(|(key, value)| {
                        let name = if is_word(key) { key.clone() } else { self.replace_text(key, &[]) };
                        (name, self.replace(value, key, kept))
                    })
                    .collect(),
            ),
            other => other.clone(),
        }
    }

    fn replace_text(&self, text: &str, kept: &[String]) -> String {
        let mut keep: Vec<Range<usize>> = kept.iter().flat_map(|word| occurrences(text, word)).collect();
        keep.sort_by_key(|range| range.start);
        let (mut next, mut kept_until) = (keep.iter().peekable(), 0);
        let mut out = String::with_capacity(text.len() * 4);
        for (at, character) in text.char_indices() {
            while let Some(range) = next.next_if(|range| range.start <= at) {
                kept_until = kept_until.max(range.end);
            }
            let stand_in = char::from_u32(self.base + character as u32)
                .filter(|_| is_replaced(character) && at >= kept_until);
            out.push(stand_in.unwrap_or(character));
        }
        out
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

fn merged(trusted: &Variables, user: &Variables) -> Variables {
    let mut all = user.clone();
    all.extend(trusted.iter().map(|(key, value)| (key.clone(), value.clone())));
    all
}

fn is_word(text: &str) -> bool {
    !text.is_empty()
        && text.chars().all(|character| character.is_ascii_alphanumeric() || "_-.$".contains(character))
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

/// No user string has a character that any control token begins or ends with.
fn cannot_spell(user: &Variables, controls: &[String]) -> bool {
    let edges: Vec<char> = controls
        .iter()
        .flat_map(|control| control.chars().next().into_iter().chain(control.chars().last()))
        .collect();
    let mut clean = true;
    user.values().for_each(|value| for_each_string(value, &mut |text| clean &= !text.contains(&edges[..])));
    clean
}

/// Is user text anywhere right behind template text that begins a control token ('<|' + name + '|>')?
fn follows_a_beginning(chat: &Chat, controls: &[String]) -> bool {
    let firsts: Vec<char> = controls.iter().filter_map(|control| control.chars().next()).collect();
    let longest = controls.iter().map(|control| control.len()).max().unwrap_or(0);
    chat.user.iter().any(|range| {
        let before = &chat.text[..range.start];
        let mut from = before.len().saturating_sub(longest);
        while !before.is_char_boundary(from) {
            from -= 1;
        }
        let tail = &before[from..];
        let begins =
            |control: &String| control.char_indices().skip(1).any(|(at, _)| tail.ends_with(&control[..at]));
        tail.contains(&firsts[..]) && controls.iter().any(begins)
    })
}
