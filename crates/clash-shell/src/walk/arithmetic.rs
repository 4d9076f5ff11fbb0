//! Numbers, and the commands that arithmetic runs.
//!
//! Bash evaluates the value of a variable in arithmetic as an expression again,
//! subscripts and the substitutions in them included, so any value but a number
//! may run something.

use super::super::ShellWord;
use super::super::ast::{ExpansionOperation, RawWord, ScriptNode, SubstitutionBody, WordPart};
use super::super::read::is_name;
use super::expand::{EVALUATES, expands};
use super::state::{VariableValue, is_number};
use super::{ScriptWalker, SourceText};

impl ScriptWalker {
    /// True if the parts give a number and nothing else.
    pub(super) fn is_numeric(&self, parts: &[WordPart]) -> bool {
        match parts {
            [WordPart::Arith { .. }] => true,
            [WordPart::Text(text) | WordPart::Quoted(text)] => is_number(text),
            [WordPart::Param { name, .. }] => match name.as_str() {
                "?" | "#" | "$" | "!" => true,
                "LINENO" | "SECONDS" | "RANDOM" => true,
                name => self.state.class(name).is_some_and(VariableValue::is_numeric),
            },
            [WordPart::Expansion(expansion)] => {
                matches!(expansion.operation, ExpansionOperation::Length)
            }
            [WordPart::Command { body: SubstitutionBody::Here(list), .. }] => {
                let last = list.only_pipeline().and_then(|pipeline| pipeline.nodes.last());
                let Some(ScriptNode::Simple(simple)) = last else { return false };
                let words: Option<Vec<String>> = simple.words.iter().map(literal).collect();
                words.is_some_and(|words| {
                    prints_number(&words) && !words.first().is_some_and(|name| self.shadows(name))
                })
            }
            _ => false,
        }
    }

    /// Walks an arithmetic expression: its substitutions, and values that bash would
    /// evaluate again (`x='a[$(cmd)]'; $((x))` runs cmd).
    pub(super) fn arithmetic(&mut self, source: &SourceText, parts: &[WordPart]) {
        let mut safe = true;
        let mut names: Vec<String> = Vec::new();
        let mut assigns = false;
        for part in parts {
            match part {
                WordPart::Text(text) | WordPart::Quoted(text) => {
                    assigns |= text.contains('=') || text.contains("++") || text.contains("--");
                    let pieces = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
                    names.extend(pieces.filter(|n| is_name(n)).map(str::to_owned));
                    safe &= !text.contains(['$', '`', '\\', '\'']);
                }
                WordPart::Param { name, .. } => safe &= self.safe_number(name),
                WordPart::Arith { parts } => self.arithmetic(source, parts),
                WordPart::Command { .. } => {
                    let one = std::slice::from_ref(part);
                    safe &= self.is_numeric(one);
                    self.effects(source, one);
                }
                WordPart::Expansion(it) => {
                    safe &= matches!(it.operation, ExpansionOperation::Length)
                        || self.safe_number(&it.name);
                    if let ExpansionOperation::Default { word, .. } = &it.operation {
                        safe &= self.is_numeric(word) || word.is_empty();
                    }
                    self.effects(source, std::slice::from_ref(part));
                }
                WordPart::Process(_) | WordPart::Pattern(_) | WordPart::Array(_) => {
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
                self.state.set(&name, VariableValue::Number);
            }
        }
    }

    /// True if the value of a variable is a number, or if the script never set it. A value
    /// from outside the script counts as harmless: the script did not choose it.
    fn safe_number(&self, name: &str) -> bool {
        if name.bytes().all(|b| b.is_ascii_digit()) {
            let index = name.parse::<usize>().ok().and_then(|n| n.checked_sub(1));
            return match (index, &self.state.positional) {
                (Some(_), Some(words)) if !words.iter().all(ShellWord::is_one) => false,
                (Some(index), Some(words)) => match words.get(index) {
                    Some(ShellWord::Known(text)) => is_number(text),
                    Some(_) => false,
                    None => true,
                },
                (None, _) => true,
                (Some(_), None) => !self.in_function() && !self.state.arguments_given,
            };
        }
        match name {
            "@" | "*" => false,
            _ => self.state.class(name).is_none_or(VariableValue::is_numeric),
        }
    }

    /// True for `{1..9}`, a number, or `$(seq 1 9)`.
    pub(super) fn is_sequence(&self, raw: &RawWord) -> bool {
        let list = match raw.parts.as_slice() {
            [WordPart::Text(text)] => {
                let range = text.strip_prefix('{').and_then(|t| t.strip_suffix('}'));
                return range.unwrap_or(text).split("..").all(is_number);
            }
            [WordPart::Command { body: SubstitutionBody::Here(list), .. }] => list,
            _ => return false,
        };
        let nodes = list.only_pipeline().map(|pipeline| pipeline.nodes.as_slice());
        let Some([ScriptNode::Simple(simple)]) = nodes else { return false };
        let words = simple.words.iter().enumerate();
        words.into_iter().all(|(index, word)| match word.bare() {
            Some("seq") if index == 0 => !self.shadows("seq"),
            Some(text) => is_number(text),
            None => index > 0 && self.is_numeric(&word.parts),
        })
    }
}

/// The word, if it has no expansion.
fn literal(raw: &RawWord) -> Option<String> {
    let text = |part: &WordPart| match part {
        WordPart::Text(text) if !expands(text) => Some(text.clone()),
        WordPart::Quoted(text) => Some(text.clone()),
        _ => None,
    };
    raw.parts.iter().map(text).collect()
}

/// True if a program certainly prints one number and nothing else. With several files,
/// or a directory to search, `grep` prints their names as well.
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
