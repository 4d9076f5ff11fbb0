//! Compound commands: what runs on which of several ways.

use super::super::ast::{Compound, List, Raw, Redir};
use super::super::{Command, Position, Word, shown};
use super::state::{Value, is_number};
use super::{Source, Walker};

impl Walker {
    pub(super) fn compound(&mut self, source: &Source, kind: &Compound, redirs: &[Redir]) {
        let here = self.here.clone();
        if !redirs.is_empty() {
            let (redirections, _) = self.redirections(source, redirs);
            if !redirections.is_empty() {
                let text = source.text.get(here.clone()).filter(|_| source.origin.is_none());
                let text = shown(text.unwrap_or_default());
                self.push(Command { redirections, text, ..Command::default() });
            }
        }
        match kind {
            Compound::Subshell(list) => self.inside(Position::Subshell, |walker| {
                walker.apart(|walker| walker.list(source, list));
            }),
            Compound::Group(list) => {
                self.inside(Position::Group, |walker| walker.list(source, list));
            }
            Compound::If { arms, otherwise } => {
                self.branches(source, arms, otherwise.as_ref());
            }
            Compound::Loop { condition, body } => {
                self.before_loop(&[condition, body]);
                self.perhaps(|walker| {
                    walker.inside(Position::Condition, |walker| walker.list(source, condition));
                    walker.inside(Position::Loop, |walker| walker.list(source, body));
                });
            }
            Compound::For { name, words, body } => {
                let value = match words {
                    Some(words) => self.loop_values(source, words),
                    None => Value::Unknown,
                };
                self.before_loop(&[body]);
                self.steering(source, name, &Word::Unknown);
                self.perhaps(|walker| {
                    walker.state.set(name, value);
                    walker.inside(Position::Loop, |walker| walker.list(source, body));
                });
            }
            Compound::ArithFor { head, body } => {
                self.before_loop(&[body]);
                self.arithmetic(source, head);
                self.perhaps(|walker| {
                    walker.inside(Position::Loop, |walker| walker.list(source, body));
                });
            }
            Compound::Case { word, arms } => {
                self.effects(source, &word.parts);
                for (patterns, body) in arms {
                    self.perhaps(|walker| {
                        walker.inside(Position::Case, |walker| {
                            for pattern in patterns {
                                walker.effects(source, &pattern.parts);
                            }
                            walker.list(source, body);
                        });
                    });
                }
            }
            Compound::Test(words) => self.test(source, words),
            Compound::Arith(parts) => self.arithmetic(source, parts),
        }
        self.here = here;
    }

    /// Only the first condition is certainly tested.
    fn branches(&mut self, source: &Source, arms: &[(List, List)], otherwise: Option<&List>) {
        for (index, (condition, body)) in arms.iter().enumerate() {
            let test = |walker: &mut Self| {
                walker.inside(Position::Condition, |walker| walker.list(source, condition));
            };
            if index == 0 {
                test(self);
            } else {
                self.perhaps(test);
            }
            self.perhaps(|walker| {
                walker.inside(Position::Branch, |walker| walker.list(source, body));
            });
        }
        if let Some(body) = otherwise {
            self.perhaps(|walker| {
                walker.inside(Position::Branch, |walker| walker.list(source, body));
            });
        }
    }

    /// What the variable of a `for` may be in its body.
    fn loop_values(&mut self, source: &Source, words: &[Raw]) -> Value {
        let mut values = Vec::new();
        let mut numeric = true;
        for raw in words {
            let seq = self.is_sequence(raw);
            let expanded = self.words(source, raw);
            let number = |w: &Word| w.known().is_some_and(is_number);
            numeric &= seq || expanded.iter().all(number);
            values.extend(expanded);
        }
        match values.as_slice() {
            [Word::Known(only)] => Value::Known(only.clone()),
            _ if numeric => Value::Number,
            _ => Value::Unknown,
        }
    }

    /// `[[ … ]]` evaluates what it compares as numbers, and subscripts.
    fn test(&mut self, source: &Source, words: &[Raw]) {
        const NUMBERS: &[&str] = &["-eq", "-ne", "-lt", "-le", "-gt", "-ge"];
        let at = |index: Option<usize>| index.and_then(|i| words.get(i)).and_then(Raw::bare);
        for (index, word) in words.iter().enumerate() {
            let before = at(index.checked_sub(1));
            let compared = [before, at(index.checked_add(1))];
            if compared.iter().flatten().any(|word| NUMBERS.contains(word)) {
                self.arithmetic(source, &word.parts);
            } else if matches!(before, Some("-v" | "-R")) {
                let name = self.value(source, &word.parts);
                if name.known().is_none_or(|name| name.contains('[')) {
                    self.cannot_see(source, "it evaluates a subscript");
                }
            } else {
                self.effects(source, &word.parts);
            }
        }
    }
}
