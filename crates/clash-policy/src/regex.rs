//! Regular expressions. The policy compiler turns them into automata, so that a hook
//! call only walks a table.

use std::fmt;

use regex_automata::dfa::Automaton;
use regex_automata::dfa::sparse::DFA;
use regex_automata::{Anchored, Input};

/// A regular expression that has to match a whole text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyRegex {
    /// As written in the policy.
    pub pattern: String,
    /// A sparse automaton for `\A(?:pattern)\z` in the byte order of this machine.
    pub automaton: Vec<u8>,
}

impl PolicyRegex {
    /// True if the expression matches the whole text; `None` if the automaton is damaged.
    pub fn matches(&self, text: &str) -> Option<bool> {
        matches(&self.automaton, text)
    }
}

/// True if an automaton matches the whole text; `None` if the bytes are no automaton.
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
