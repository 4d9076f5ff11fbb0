//! Compiles regular expressions to automata. The hook only runs the automata.

use clash_policy::PolicyRegex;
use regex_automata::dfa::{StartKind, dense};
use regex_automata::nfa::thompson;
use regex_automata::util::syntax;

use crate::language_error::{LanguageError, LanguageResult};

/// An expression that needs a larger automaton is refused.
const MAX_AUTOMATON_BYTES: usize = 1 << 20;

/// Compiles an expression that has to match the whole of a text. Fails for a wrong
/// expression, and for one whose automaton would be larger than 1 MiB.
pub(crate) fn compile(pattern: &str) -> LanguageResult<PolicyRegex> {
    let config = dense::Config::new()
        .start_kind(StartKind::Anchored)
        .dfa_size_limit(Some(MAX_AUTOMATON_BYTES))
        .determinize_size_limit(Some(MAX_AUTOMATON_BYTES));
    let wrong = |error: &dyn std::fmt::Display| {
        let text = error.to_string();
        let line = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
        let why = line.trim().trim_start_matches("error: ").to_owned();
        LanguageError::new(format!("`{pattern}` is no regular expression that can be used: {why}"))
            .near(pattern)
    };
    // First on its own: the parentheses added below must not hide an open group.
    syntax::parse(pattern).map_err(|error| wrong(&error))?;
    let automaton = dense::Builder::new()
        .configure(config)
        .thompson(thompson::Config::new().nfa_size_limit(Some(MAX_AUTOMATON_BYTES)))
        .syntax(syntax::Config::new().unicode(true).utf8(true))
        .build(&format!(r"\A(?:{pattern})\z"))
        .map_err(|error| match std::error::Error::source(&error) {
            Some(source) => wrong(&source),
            None => wrong(&error),
        })?;
    let sparse = automaton.to_sparse().map_err(|error| wrong(&error))?;
    Ok(PolicyRegex { pattern: pattern.to_owned(), automaton: sparse.to_bytes_native_endian() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expression_must_match_the_whole_text() {
        let release = compile(r"v\d+(\.\d+)*").unwrap();
        assert_eq!(release.matches("v1.2"), Some(true));
        assert_eq!(release.matches("xv1.2"), Some(false));
        assert_eq!(release.matches("v1.2-rc"), Some(false));
        let either = compile("a|b").unwrap();
        assert_eq!((either.matches("a"), either.matches("ab")), (Some(true), Some(false)));
        assert_eq!(compile("(?i)PROD.*").unwrap().matches("production"), Some(true));
        assert_eq!(compile("").unwrap().matches(""), Some(true));
    }

    #[test]
    fn a_broken_or_huge_expression_is_an_error() {
        assert!(compile("a(").unwrap_err().message.contains("unclosed group"));
        assert!(compile(r"(\w{200}){200}").is_err());
    }
}
