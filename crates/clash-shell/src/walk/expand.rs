//! From words as written to words as the program gets them.

use super::super::ast::{
    ExpansionOperation, ParameterExpansion, RawWord, SubstitutionBody, WordPart,
};
use super::super::read::is_name;
use super::super::{CommandPosition, ShellWord};
use super::braces::braces;
use super::state::VariableValue;
use super::{ScriptWalker, SourceText};

pub(super) const EVALUATES: &str = "it evaluates a value that is not known";

/// A word under construction.
#[derive(Default)]
struct WordBuilder {
    done: Vec<ShellWord>,
    text: String,
    home: bool,
    /// More characters follow `text`, and they are unknown.
    open: bool,
    /// It becomes any number of words.
    many: bool,
    /// The word exists even if it is empty.
    present: bool,
}

impl WordBuilder {
    /// Adds known text; it is dropped if unknown text stands before it.
    fn push(&mut self, text: &str) {
        if !self.open {
            self.text.push_str(text);
        }
        self.present = true;
    }

    /// Adds text that is not known.
    fn unknown(&mut self) {
        self.open = true;
        self.present = true;
    }

    /// Ends the current word, if there is one.
    fn cut(&mut self) {
        if self.present {
            let text = std::mem::take(&mut self.text);
            self.done.push(match (self.home, self.open) {
                (true, false) => ShellWord::Home(text),
                (false, false) => ShellWord::Known(text),
                (true, true) => ShellWord::Partial(String::new()),
                (false, true) => ShellWord::Partial(text),
            });
        }
        (self.home, self.open, self.present) = (false, false, false);
    }

    /// The words. One unknown word if the number of words is unknown.
    fn finish(mut self) -> Vec<ShellWord> {
        if self.many {
            return vec![ShellWord::Unknown];
        }
        self.cut();
        self.done
    }
}

/// How a word is used.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WordUse {
    /// Split into words and matched against files.
    Words,
    /// One text: the value of a variable, a pattern, a here-document.
    Text,
}

/// True if the shell may expand unquoted text.
pub(super) fn expands(text: &str) -> bool {
    text.bytes().any(|b| matches!(b, b'{' | b'*' | b'?' | b'[' | b'~' | b'\\'))
}

impl ScriptWalker {
    /// Expands a word as an argument: into several words, or none. Walks the substitutions
    /// in it.
    pub(super) fn words(&mut self, source: &SourceText, raw: &RawWord) -> Vec<ShellWord> {
        if let [WordPart::Text(text)] = raw.parts.as_slice() {
            if !expands(text) {
                return vec![ShellWord::Known(text.clone())];
            }
            if let Some(words) = braces(text) {
                return words;
            }
        }
        let mut builder = WordBuilder::default();
        self.build(source, &raw.parts, WordUse::Words, &mut builder);
        builder.finish()
    }

    /// Expands the parts to one text, as in a value or a here-string.
    pub(super) fn value(&mut self, source: &SourceText, parts: &[WordPart]) -> ShellWord {
        let mut builder = WordBuilder { present: true, ..WordBuilder::default() };
        self.build(source, parts, WordUse::Text, &mut builder);
        let words = builder.finish();
        match <[ShellWord; 1]>::try_from(words) {
            Ok([word]) => word,
            Err(_) => ShellWord::Unknown,
        }
    }

    /// Adds the expansion of the parts, and walks their substitutions.
    fn build(
        &mut self,
        source: &SourceText,
        parts: &[WordPart],
        used: WordUse,
        to: &mut WordBuilder,
    ) {
        let split = used == WordUse::Words;
        let bracket = parts.iter().any(|part| matches!(part, WordPart::Text(t) if t.contains(']')));
        for (index, part) in parts.iter().enumerate() {
            match part {
                WordPart::Text(text) => {
                    let mut text = text.as_str();
                    if split {
                        to.many |= text.contains(['*', '?', '\\'])
                            || (text.contains('[') && bracket && parts.len() + text.len() > 2)
                            || text.contains('{');
                    }
                    if index == 0 && text.starts_with('~') {
                        let rest = text.get(1..).unwrap_or_default();
                        let ends = rest.is_empty() && parts.len() == 1;
                        if (ends || rest.starts_with('/')) && self.state.inherited("HOME") {
                            to.home = true;
                            text = rest;
                        } else {
                            to.unknown();
                        }
                    } else if let Some(at) = text.find("=~").or_else(|| text.find(":~")) {
                        to.push(text.get(..=at).unwrap_or_default());
                        to.unknown();
                        continue;
                    }
                    to.push(text);
                }
                WordPart::Quoted(text) => to.push(text),
                WordPart::Param { name, quoted } => self.parameter(name, *quoted || !split, to),
                WordPart::Expansion(expansion) => self.expansion(source, expansion, split, to),
                WordPart::Command { body, quoted } => {
                    self.substitution(source, body);
                    to.unknown();
                    to.many |= !quoted && split;
                }
                WordPart::Process(list) => {
                    self.inside(CommandPosition::ProcessSubstitution, |walker| {
                        walker.apart(|walker| walker.list(source, list));
                    });
                    to.unknown();
                }
                WordPart::Arith { parts } => {
                    self.arithmetic(source, parts);
                    to.unknown();
                }
                WordPart::Array(words) => {
                    for raw in words {
                        self.words(source, raw);
                    }
                    to.unknown();
                }
                WordPart::Pattern(parts) => {
                    self.effects(source, parts);
                    to.unknown();
                    to.many |= split;
                }
            }
        }
    }

    /// Walks the commands of a substitution, whose changes this shell does not keep.
    pub(super) fn substitution(&mut self, source: &SourceText, body: &SubstitutionBody) {
        self.inside(CommandPosition::Substitution, |walker| {
            walker.apart(|walker| match body {
                SubstitutionBody::Here(list) => walker.list(source, list),
                SubstitutionBody::Unescaped(script) => {
                    let inner = walker.inner_source(script);
                    walker.list(&inner, &script.list);
                }
            });
        });
    }

    /// Adds the value of `$name`. `quoted`: it is not split.
    fn parameter(&mut self, name: &str, quoted: bool, to: &mut WordBuilder) {
        let numeric = matches!(name, "?" | "#" | "$" | "!");
        let words = match name {
            "@" | "*" => match self.state.positional.clone() {
                Some(words) if !words.is_empty() && (name == "@" || !quoted) => {
                    Some(words.to_vec())
                }
                _ => {
                    to.many |= !(quoted && name == "*");
                    to.unknown();
                    return;
                }
            },
            _ if name.bytes().all(|b| b.is_ascii_digit()) => {
                let index = name.parse::<usize>().ok().and_then(|n| n.checked_sub(1));
                match (index, self.state.positional.clone()) {
                    (Some(index), Some(words)) => {
                        let sure = words.iter().take(index + 1).all(ShellWord::is_one);
                        let word = words.get(index).cloned();
                        Some(if sure {
                            word.into_iter().collect()
                        } else {
                            vec![ShellWord::Unknown]
                        })
                    }
                    _ => None,
                }
            }
            _ => match self.state.get(name) {
                Some(VariableValue::Known(text)) => Some(vec![ShellWord::Known(text.clone())]),
                Some(VariableValue::Number) => {
                    to.unknown();
                    to.many |= !quoted && self.state.split_changed;
                    return;
                }
                None if name == "HOME"
                    && self.state.inherited("HOME")
                    && to.text.is_empty()
                    && !to.open
                    && !to.home =>
                {
                    to.home = true;
                    to.present = true;
                    return;
                }
                _ => None,
            },
        };
        let Some(words) = words else {
            to.unknown();
            to.many |= !quoted && (!numeric || self.state.split_changed);
            return;
        };
        self.spread(&words, quoted, to);
    }

    /// Adds the words of a parameter. Quotes keep each word whole.
    fn spread(&self, words: &[ShellWord], quoted: bool, to: &mut WordBuilder) {
        for (index, word) in words.iter().enumerate() {
            if index > 0 {
                to.cut();
            }
            match word {
                ShellWord::Known(text) if quoted => to.push(text),
                ShellWord::Known(text) => {
                    if self.state.split_changed || text.contains(['*', '?', '[', '\\']) {
                        to.many = true;
                    }
                    split(text, to);
                }
                ShellWord::Unknown => to.many = true,
                ShellWord::Home(_) | ShellWord::Partial(_) => {
                    to.push(word.prefix());
                    to.unknown();
                    to.many |= !quoted;
                }
            }
        }
    }

    /// Adds the value of `${…}`, and applies its assignment. Known text comes only from
    /// `${!x}`, `${x-…}` and `${x+…}` of a variable whose value is known.
    fn expansion(
        &mut self,
        source: &SourceText,
        it: &ParameterExpansion,
        split: bool,
        to: &mut WordBuilder,
    ) {
        let quoted = it.quoted || !split;
        if let Some(subscript) = &it.subscript {
            self.arithmetic(source, subscript);
        }
        let mut many = !quoted || matches!(it.name.as_str(), "@" | "*");
        if let Some([WordPart::Text(all)]) = it.subscript.as_deref() {
            many |= matches!(all.as_str(), "@" | "*");
        }
        match &it.operation {
            ExpansionOperation::Length => many = false,
            ExpansionOperation::None | ExpansionOperation::Names => {}
            ExpansionOperation::Transform(b'P') => self.cannot_see(source, EVALUATES),
            ExpansionOperation::Transform(_) => {}
            ExpansionOperation::Indirect => match self.state.get(&it.name).cloned() {
                Some(VariableValue::Known(name)) if is_name(&name) => {
                    return self.parameter(&name, quoted, to);
                }
                _ => self.cannot_see(source, EVALUATES),
            },
            ExpansionOperation::Default { test, empty_too, word } => {
                let known = match self.state.get(&it.name) {
                    Some(VariableValue::Known(text)) if it.subscript.is_none() => {
                        Some(text.clone())
                    }
                    _ => None,
                };
                let set = known.as_ref().map(|text| !(*empty_too && text.is_empty()));
                match (test, set) {
                    (b'-', Some(true)) => return self.parameter(&it.name, quoted, to),
                    (b'-', Some(false)) | (b'+', Some(true)) => {
                        let used = if split { WordUse::Words } else { WordUse::Text };
                        return self.build(source, word, used, to);
                    }
                    (b'+', Some(false)) => return,
                    _ => self.effects(source, word),
                }
            }
            ExpansionOperation::Assign { word } => {
                self.effects(source, word);
                self.steering(source, &it.name, &ShellWord::Unknown);
                self.state.set(&it.name, VariableValue::Unknown);
            }
            ExpansionOperation::Edit(word) => self.effects(source, word),
            ExpansionOperation::Slice(word) => self.arithmetic(source, word),
        }
        to.unknown();
        to.many |= many;
    }

    /// Walks the substitutions in the parts and drops the text.
    pub(super) fn effects(&mut self, source: &SourceText, parts: &[WordPart]) {
        self.value(source, parts);
    }
}

/// Splits a value at blanks, tabs and newlines, the default `IFS`.
fn split(text: &str, to: &mut WordBuilder) {
    let blank = |c: char| matches!(c, ' ' | '\t' | '\n');
    for (index, piece) in text.split(blank).enumerate() {
        if index > 0 {
            to.cut();
        }
        if !piece.is_empty() {
            to.push(piece);
        }
    }
}
