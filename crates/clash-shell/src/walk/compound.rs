//! Compound commands: branches, loops, `case` and subshells.

use super::super::ast::{CommandList, CompoundCommand, RawWord, RedirNode};
use super::super::{CommandPosition, ShellCommand, ShellWord, shown};
use super::state::{VariableValue, is_number};
use super::{ScriptWalker, SourceText};

impl ScriptWalker {
    /// Walks a compound command. Its redirections become a command without words. Each branch
    /// and body is walked once, as commands that may not run: afterwards only facts that hold
    /// on every path are known. Before a loop, variables that it sets are forgotten, so the
    /// one walk stands for every round. A subshell leaves the state as it was.
    pub(super) fn compound(
        &mut self,
        source: &SourceText,
        kind: &CompoundCommand,
        redirs: &[RedirNode],
    ) {
        let here = self.here.clone();
        if !redirs.is_empty() {
            let (redirections, _) = self.redirections(source, redirs);
            if !redirections.is_empty() {
                let text = source.text.get(here.clone()).filter(|_| source.origin.is_none());
                let text = shown(text.unwrap_or_default());
                self.push(ShellCommand { redirections, text, ..ShellCommand::default() });
            }
        }
        match kind {
            CompoundCommand::Subshell(list) => self.inside(CommandPosition::Subshell, |walker| {
                walker.apart(|walker| walker.list(source, list));
            }),
            CompoundCommand::Group(list) => {
                self.inside(CommandPosition::Group, |walker| walker.list(source, list));
            }
            CompoundCommand::If { arms, otherwise } => {
                self.branches(source, arms, otherwise.as_ref());
            }
            CompoundCommand::Loop { condition, body } => {
                self.before_loop(&[condition, body]);
                self.perhaps(|walker| {
                    walker.inside(CommandPosition::Condition, |walker| {
                        walker.list(source, condition)
                    });
                    walker.inside(CommandPosition::Loop, |walker| walker.list(source, body));
                });
            }
            CompoundCommand::For { name, words, body } => {
                let value = match words {
                    Some(words) => self.loop_values(source, words),
                    None => VariableValue::Unknown,
                };
                self.before_loop(&[body]);
                self.steering(source, name, &ShellWord::Unknown);
                self.perhaps(|walker| {
                    walker.state.set(name, value);
                    walker.inside(CommandPosition::Loop, |walker| walker.list(source, body));
                });
            }
            CompoundCommand::ArithFor { head, body } => {
                self.before_loop(&[body]);
                self.arithmetic(source, head);
                self.perhaps(|walker| {
                    walker.inside(CommandPosition::Loop, |walker| walker.list(source, body));
                });
            }
            CompoundCommand::Case { word, arms } => {
                self.effects(source, &word.parts);
                for (patterns, body) in arms {
                    self.perhaps(|walker| {
                        walker.inside(CommandPosition::Case, |walker| {
                            for pattern in patterns {
                                walker.effects(source, &pattern.parts);
                            }
                            walker.list(source, body);
                        });
                    });
                }
            }
            CompoundCommand::Test(words) => self.test(source, words),
            CompoundCommand::Arith(parts) => self.arithmetic(source, parts),
        }
        self.here = here;
    }

    /// Walks the branches of an `if`. Only the first condition certainly runs.
    fn branches(
        &mut self,
        source: &SourceText,
        arms: &[(CommandList, CommandList)],
        otherwise: Option<&CommandList>,
    ) {
        for (index, (condition, body)) in arms.iter().enumerate() {
            let test = |walker: &mut Self| {
                walker.inside(CommandPosition::Condition, |walker| walker.list(source, condition));
            };
            if index == 0 {
                test(self);
            } else {
                self.perhaps(test);
            }
            self.perhaps(|walker| {
                walker.inside(CommandPosition::Branch, |walker| walker.list(source, body));
            });
        }
        if let Some(body) = otherwise {
            self.perhaps(|walker| {
                walker.inside(CommandPosition::Branch, |walker| walker.list(source, body));
            });
        }
    }

    /// The value of the variable of a `for` in its body.
    fn loop_values(&mut self, source: &SourceText, words: &[RawWord]) -> VariableValue {
        let mut values = Vec::new();
        let mut numeric = true;
        for raw in words {
            let seq = self.is_sequence(raw);
            let expanded = self.words(source, raw);
            let number = |w: &ShellWord| w.known().is_some_and(is_number);
            numeric &= seq || expanded.iter().all(number);
            values.extend(expanded);
        }
        match values.as_slice() {
            [ShellWord::Known(only)] => VariableValue::Known(only.clone()),
            _ if numeric => VariableValue::Number,
            _ => VariableValue::Unknown,
        }
    }

    /// `[[ … ]]` evaluates the operands of numeric comparisons, and subscripts.
    fn test(&mut self, source: &SourceText, words: &[RawWord]) {
        const NUMBERS: &[&str] = &["-eq", "-ne", "-lt", "-le", "-gt", "-ge"];
        let at = |index: Option<usize>| index.and_then(|i| words.get(i)).and_then(RawWord::bare);
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
