//! Regular expressions that were turned into automata when the policy was
//! compiled: matching walks a table, and no hook call compiles anything.

use std::fmt;

use regex_automata::dfa::Automaton;
use regex_automata::dfa::sparse::DFA;
use regex_automata::{Anchored, Input};

/// An expression that has to match a whole text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyRegex {
    /// As written in the policy.
    pub pattern: String,
    /// A sparse automaton for `\A(?:pattern)\z` in the byte order of this machine.
    pub automaton: Vec<u8>,
}

impl PolicyRegex {
    pub fn matches(&self, text: &str) -> Option<bool> {
        matches(&self.automaton, text)
    }
}

/// Whether an automaton matches the whole text; `None` if it is not one.
pub fn matches(automaton: &[u8], text: &str) -> Option<bool> {
    let (automaton, _) = DFA::from_bytes(automaton).ok()?;
    let input = Input::new(text).anchored(Anchored::Yes);
    automaton.try_search_fwd(&input).ok().map(|found| found.is_some())
}

impl fmt::Display for PolicyRegex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "regex({})", self.pattern)
    }
}
