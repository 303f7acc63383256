//! Finds the spellings of control and user-defined tokens in a text before the model's own tokenisation sees it.

use std::ops::Range;

/// Why a token is in the set: a control token is matched in trusted text only, a literal one (GGUF's USER_DEFINED) everywhere.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Control,
    Literal,
}

#[derive(Default)]
struct Node {
    children: Vec<(u8, u32)>, // sorted by byte
    token: Option<(u32, Kind)>,
}

/// A byte trie of token spellings. Matching is leftmost, then longest, as Hugging Face's added vocabulary does it.
pub struct SpecialTokens {
    nodes: Vec<Node>,
    starts: [bool; 256], // bytes that begin a spelling: most positions of a text are dismissed by this alone
    controls: Vec<String>,
}

/// A match: `range` of the text is the token `id`.
pub struct Match {
    pub range: Range<usize>,
    pub id: u32,
    pub kind: Kind,
}

impl Default for SpecialTokens {
    fn default() -> Self {
        SpecialTokens { nodes: vec![Node::default()], starts: [false; 256], controls: Vec::new() }
    }
}

impl SpecialTokens {
    /// Empty spellings are ignored; of two equal ones the first stays.
    pub fn add(&mut self, spelling: &str, id: u32, kind: Kind) {
        let Some(&first) = spelling.as_bytes().first() else { return };
        self.starts[first as usize] = true;
        let mut node = 0;
        for &byte in spelling.as_bytes() {
            node = self.child_or_new(node, byte);
        }
        if self.nodes[node].token.is_none() {
            self.nodes[node].token = Some((id, kind));
            if kind == Kind::Control {
                self.controls.push(spelling.to_string());
            }
        }
    }

    /// The spellings of all control tokens.
    pub fn controls(&self) -> &[String] {
        &self.controls
    }

    /// The first match at or behind `from`. Control tokens that touch a range of `user` (ascending, disjoint) are not matched.
    pub fn find(&self, text: &[u8], from: usize, user: &[Range<usize>]) -> Option<Match> {
        (from..text.len())
            .filter(|&at| self.starts[text[at] as usize])
            .find_map(|at| self.longest_at(text, at, user))
    }

    /// The control tokens of `text`, in order.
    pub fn control_ids(&self, text: &str, user: &[Range<usize>]) -> Vec<u32> {
        let mut ids = Vec::new();
        let mut at = 0;
        while let Some(found) = self.find(text.as_bytes(), at, user) {
            if found.kind == Kind::Control {
                ids.push(found.id);
            }
            at = found.range.end;
        }
        ids
    }

    fn longest_at(&self, text: &[u8], start: usize, user: &[Range<usize>]) -> Option<Match> {
        // The first user range that ends behind `start`; only it can be the first one that a match touches.
        let next_user = user.get(user.partition_point(|range| range.end <= start));
        let mut node = 0;
        let mut best = None;
        for (at, &byte) in text.iter().enumerate().skip(start) {
            let Some(child) = self.child(node, byte) else { break };
            node = child;
            let Some((id, kind)) = self.nodes[node].token else { continue };
            let touches_user = next_user.is_some_and(|range| range.start <= at);
            if kind == Kind::Literal || !touches_user {
                best = Some(Match { range: start..at + 1, id, kind });
            }
        }
        best
    }

    fn child(&self, node: usize, byte: u8) -> Option<usize> {
        let children = &self.nodes[node].children;
        let at = children.binary_search_by_key(&byte, |child| child.0).ok()?;
        Some(children[at].1 as usize)
    }

    fn child_or_new(&mut self, node: usize, byte: u8) -> usize {
        match self.nodes[node].children.binary_search_by_key(&byte, |child| child.0) {
            Ok(at) => self.nodes[node].children[at].1 as usize,
            Err(at) => {
                let new = self.nodes.len();
                self.nodes.push(Node::default());
                self.nodes[node].children.insert(at, (byte, new as u32));
                new
            }
        }
    }
}
