//! What is certainly a number, and what arithmetic runs.
//!
//! Bash evaluates the value of a variable in arithmetic as an expression again,
//! subscripts and the substitutions in them included, so any value but a number
//! may run something.

use super::super::Word;
use super::super::ast::{Body, Node, Operation, Part, Raw};
use super::super::read::is_name;
use super::expand::{EVALUATES, expands};
use super::state::{Value, is_number};
use super::{Source, Walker};

impl Walker {
    /// Whether the parts give a number and nothing else.
    pub(super) fn is_numeric(&self, parts: &[Part]) -> bool {
        match parts {
            [Part::Arith { .. }] => true,
            [Part::Text(text) | Part::Quoted(text)] => is_number(text),
            [Part::Param { name, .. }] => match name.as_str() {
                "?" | "#" | "$" | "!" => true,
                "LINENO" | "SECONDS" | "RANDOM" => true,
                name => self.state.class(name).is_some_and(Value::is_numeric),
            },
            [Part::Expansion(expansion)] => matches!(expansion.operation, Operation::Length),
            [Part::Command { body: Body::Here(list), .. }] => {
                let last = list.only_pipeline().and_then(|pipeline| pipeline.nodes.last());
                let Some(Node::Simple(simple)) = last else { return false };
                let words: Option<Vec<String>> = simple.words.iter().map(literal).collect();
                words.is_some_and(|words| {
                    prints_number(&words) && !words.first().is_some_and(|name| self.shadows(name))
                })
            }
            _ => false,
        }
    }

    /// An arithmetic expression: what its substitutions run, and whether a value
    /// in it could be evaluated further (`x='a[$(cmd)]'; $((x))` runs cmd).
    pub(super) fn arithmetic(&mut self, source: &Source, parts: &[Part]) {
        let mut safe = true;
        let mut names: Vec<String> = Vec::new();
        let mut assigns = false;
        for part in parts {
            match part {
                Part::Text(text) | Part::Quoted(text) => {
                    assigns |= text.contains('=') || text.contains("++") || text.contains("--");
                    let pieces = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
                    names.extend(pieces.filter(|n| is_name(n)).map(str::to_owned));
                    safe &= !text.contains(['$', '`', '\\', '\'']);
                }
                Part::Param { name, .. } => safe &= self.safe_number(name),
                Part::Arith { parts } => self.arithmetic(source, parts),
                Part::Command { .. } => {
                    let one = std::slice::from_ref(part);
                    safe &= self.is_numeric(one);
                    self.effects(source, one);
                }
                Part::Expansion(it) => {
                    safe &= matches!(it.operation, Operation::Length) || self.safe_number(&it.name);
                    if let Operation::Default { word, .. } = &it.operation {
                        safe &= self.is_numeric(word) || word.is_empty();
                    }
                    self.effects(source, std::slice::from_ref(part));
                }
                Part::Process(_) | Part::Pattern(_) | Part::Array(_) => {
                    safe = false;
                    self.effects(source, std::slice::from_ref(part));
                }
            }
        }
        safe &= names.iter().all(|name| self.safe_number(name));
        if !safe {
            self.cannot_see(source, EVALUATES);
        }
        if assigns {
            for name in names {
                self.state.set(&name, Value::Number);
            }
        }
    }

    fn safe_number(&self, name: &str) -> bool {
        if name.bytes().all(|b| b.is_ascii_digit()) {
            let index = name.parse::<usize>().ok().and_then(|n| n.checked_sub(1));
            return match (index, &self.state.positional) {
                (Some(_), Some(words)) if !words.iter().all(Word::is_one) => false,
                (Some(index), Some(words)) => match words.get(index) {
                    Some(Word::Known(text)) => is_number(text),
                    Some(_) => false,
                    None => true,
                },
                (None, _) => true,
                (Some(_), None) => !self.in_function() && !self.state.arguments_given,
            };
        }
        match name {
            "@" | "*" => false,
            _ => self.state.class(name).is_none_or(Value::is_numeric),
        }
    }

    /// `{1..9}` or `$(seq 1 9)`.
    pub(super) fn is_sequence(&self, raw: &Raw) -> bool {
        let list = match raw.parts.as_slice() {
            [Part::Text(text)] => {
                let range = text.strip_prefix('{').and_then(|t| t.strip_suffix('}'));
                return range.unwrap_or(text).split("..").all(is_number);
            }
            [Part::Command { body: Body::Here(list), .. }] => list,
            _ => return false,
        };
        let nodes = list.only_pipeline().map(|pipeline| pipeline.nodes.as_slice());
        let Some([Node::Simple(simple)]) = nodes else { return false };
        let words = simple.words.iter().enumerate();
        words.into_iter().all(|(index, word)| match word.bare() {
            Some("seq") if index == 0 => !self.shadows("seq"),
            Some(text) => is_number(text),
            None => index > 0 && self.is_numeric(&word.parts),
        })
    }
}

/// The word if it is the same whatever the shell knows.
fn literal(raw: &Raw) -> Option<String> {
    let text = |part: &Part| match part {
        Part::Text(text) if !expands(text) => Some(text.clone()),
        Part::Quoted(text) => Some(text.clone()),
        _ => None,
    };
    raw.parts.iter().map(text).collect()
}

/// Whether a program certainly prints one number and nothing else. With several
/// files, or a directory to search, `grep` prints their names as well.
fn prints_number(words: &[String]) -> bool {
    const COUNTS: &str = "cEFGPivwxsq";
    let Some((program, args)) = words.split_first() else { return false };
    let (options, operands): (Vec<&str>, Vec<&str>) =
        args.iter().map(String::as_str).partition(|word| word.starts_with('-'));
    match program.as_str() {
        "wc" => operands.is_empty() && !options.iter().any(|option| option.contains('=')),
        "nproc" => true,
        "date" => options.is_empty() && matches!(*operands, [one] if one.starts_with("+%s")),
        "grep" => {
            let plain = |option: &&str| option.chars().skip(1).all(|c| COUNTS.contains(c));
            options.iter().all(plain)
                && options.iter().any(|option| option.contains('c'))
                && operands.len() <= 2
        }
        _ => false,
    }
}
