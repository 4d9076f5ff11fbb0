//! Simple commands: from the tree to words, and from words to the commands they run.

use super::super::ast::{AssignNode, AssignedValue, RawWord, SimpleCommand};
use super::super::read::{MAX_NESTED_CONSTRUCTS, NESTED};
use super::super::runners::{self, InnerCommand, RunnerCommands};
use super::super::{
    CommandPosition, Redirection, ShellCommand, ShellWord, VariableAssignment, shown,
};
use super::expand::expands;
use super::state::{VariableValue, note_variable};
use super::{NameLookup, ScriptWalker, SourceText, StandardInput, builtins};

/// A command that is about to run.
#[derive(Clone)]
pub(super) struct PreparedCall {
    pub(super) words: Vec<ShellWord>,
    pub(super) assignments: Vec<VariableAssignment>,
    pub(super) redirections: Vec<Redirection>,
    pub(super) stdin: StandardInput,
    pub(super) lookup: NameLookup,
    pub(super) text: String,
}

impl ScriptWalker {
    /// Adds the commands of a simple command: those in its substitutions, those of an alias
    /// with its name, then the command itself. If there is no program, its assignments last.
    pub(super) fn simple(
        &mut self,
        source: &SourceText,
        simple: &SimpleCommand,
        stdin: &StandardInput,
    ) {
        self.here = Self::span(source, simple.start, simple.end);
        let here = self.here.clone();
        let text = shown(source.text.get(simple.start..simple.end).unwrap_or_default());
        let mut words = Vec::with_capacity(simple.words.len());
        for raw in &simple.words {
            match raw.bare().filter(|text| !expands(text)) {
                Some(text) => words.push(ShellWord::Known(text.to_owned())),
                None => words.append(&mut self.words(source, raw)),
            }
        }
        let persists = words.is_empty();
        let mut assignments = Vec::with_capacity(simple.assigns.len());
        for assign in &simple.assigns {
            let (assignment, value) = self.assigned(source, assign);
            if persists {
                self.steering(source, &assignment.name, &assignment.value);
                self.state.set(&assignment.name, value);
            }
            assignments.push(assignment);
        }
        let (redirections, given) = self.redirections(source, &simple.redirs);
        self.here = here;
        if words.is_empty() {
            return self.push(ShellCommand {
                assignments,
                redirections,
                text,
                ..ShellCommand::default()
            });
        }
        if let Some(name) = simple.words.first().and_then(RawWord::bare) {
            let rest = simple.words.first().map_or(simple.end, |word| word.end);
            let rest = source.text.get(rest..simple.end).unwrap_or_default();
            self.walk_alias(source, name, rest, simple.redirs.is_empty());
        }
        let stdin = given.unwrap_or_else(|| stdin.clone());
        let lookup = NameLookup::Shell;
        self.run(source, PreparedCall { words, assignments, redirections, stdin, lookup, text });
    }

    /// Expands an assignment: the word for the list of commands, and the value for the
    /// state. An array and `+=` with an unknown value are unknown.
    fn assigned(
        &mut self,
        source: &SourceText,
        assign: &AssignNode,
    ) -> (VariableAssignment, VariableValue) {
        if let Some(subscript) = &assign.subscript {
            self.arithmetic(source, subscript);
        }
        let name = assign.name.clone();
        let (word, numeric) = match &assign.value {
            AssignedValue::Word(raw) => {
                let numeric = self.is_numeric(&raw.parts);
                (self.value(source, &raw.parts), numeric)
            }
            AssignedValue::Array(words) => {
                for raw in words {
                    self.words(source, raw);
                }
                (ShellWord::Unknown, false)
            }
        };
        let old = self.state.get(&name).cloned();
        let value = match (&word, assign.append, old) {
            _ if assign.subscript.is_some() => VariableValue::Unknown,
            (ShellWord::Known(text), false, _) => VariableValue::Known(text.clone()),
            (ShellWord::Known(text), true, Some(VariableValue::Known(old))) if old.len() < 4096 => {
                VariableValue::Known(old + text)
            }
            _ if numeric && !assign.append => VariableValue::Number,
            _ => VariableValue::Unknown,
        };
        let word =
            if assign.append || assign.subscript.is_some() { ShellWord::Unknown } else { word };
        (VariableAssignment { name, value: word }, value)
    }

    /// Walks a command with its assignments. Adds an opaque command at too deep a level,
    /// and nothing when the fuel is used up.
    pub(super) fn run(&mut self, source: &SourceText, call: PreparedCall) {
        if !self.spend(1 + call.words.len()) {
            return;
        }
        self.depth += 1;
        if self.depth > MAX_NESTED_CONSTRUCTS {
            self.cannot_see(source, NESTED);
        } else {
            let (outer, set) = (self.steered_here, self.set_here.len());
            for assignment in &call.assignments {
                self.give(&assignment.name, &assignment.value);
                let why = self.steers(source, &assignment.name, &assignment.value);
                self.steered_here = self.steered_here.or(why);
            }
            self.run_one(source, call);
            self.steered_here = outer;
            self.set_here.truncate(set);
        }
        self.depth -= 1;
    }

    /// Sets a variable for the current command only.
    fn give(&mut self, name: &str, value: &ShellWord) {
        note_variable(&mut self.set_here, name, value.known(), true);
    }

    /// Walks a command: a function of its name, a builtin, or a program with the commands it
    /// runs. An unknown first word may be any of them, so the shell's variables are unknown
    /// afterwards. A function that may not exist counts together with the program of its
    /// name.
    fn run_one(&mut self, source: &SourceText, call: PreparedCall) {
        let shell = call.lookup != NameLookup::Programs;
        let Some(program) = call.words.first().and_then(ShellWord::known).map(str::to_owned) else {
            if shell {
                // The unknown word may be a builtin, a function, or empty.
                self.state.steered = self.state.steered.or(self.steered_here);
                self.anything_may_be_set();
            }
            return self.emit(call, None);
        };
        if call.lookup == NameLookup::Shell && self.functions.contains(&program) {
            self.state.steered = self.state.steered.or(self.steered_here);
            let certain = self.call_functions(source, &program, &call);
            if certain && !builtins::is_special(&program) {
                let around = PreparedCall { words: Vec::new(), ..call };
                if !around.redirections.is_empty() || !around.assignments.is_empty() {
                    self.emit(around, None);
                }
                return;
            }
        }
        let mut through = None;
        if shell && builtins::is_builtin(&program) {
            self.state.steered = self.state.steered.or(self.steered_here);
            for assignment in &call.assignments {
                self.state.set(&assignment.name, VariableValue::Unknown);
            }
            through = self.builtin(source, &program, &call);
        }
        match through.or_else(|| runners::look_through(&call.words, &call.stdin)) {
            Some(through) => self.run_through(source, call, through),
            None => self.emit(call, None),
        }
    }

    /// Adds a command and the commands it runs.
    fn run_through(&mut self, source: &SourceText, call: PreparedCall, through: RunnerCommands) {
        let (text, stdin) = (call.text.clone(), call.stdin.clone());
        self.emit(call, Some(&through));
        for (name, value) in &through.variables {
            self.give(name, value);
            let why = self.steers(source, name, value);
            self.steered_here = self.steered_here.or(why);
        }
        let stdin = if through.feeds { StandardInput::Unknown } else { stdin };
        let position = match through.by {
            by if through.elsewhere => CommandPosition::Elsewhere(by),
            _ if through.package => CommandPosition::Package,
            "eval" => CommandPosition::Eval,
            "trap" => CommandPosition::Trap,
            by => CommandPosition::Wrapper(by),
        };
        let cwd = self.state.cwd.clone();
        if let Some(directory) = &through.directory {
            self.state.cwd = cwd.join(directory);
        }
        for inner in through.inner {
            let here = self.here.clone();
            self.inside(position, |walker| match inner {
                InnerCommand::Command { words, lookup } => {
                    let (text, stdin) = (text.clone(), stdin.clone());
                    let (assignments, redirections) = (Vec::new(), Vec::new());
                    let inner =
                        PreparedCall { words, assignments, redirections, stdin, lookup, text };
                    if through.elsewhere {
                        walker.emit(inner, None);
                    } else {
                        walker.run(source, inner);
                    }
                }
                InnerCommand::Text { text, args, plain } => {
                    walker.apart(|walker| walker.walk_in_other_shell(source, &text, args, plain));
                }
                InnerCommand::Eval(text) => walker.walk_text(source, &text),
                InnerCommand::Trap(text) => walker.apart(|walker| {
                    walker.state.untrack();
                    walker.walk_text(source, &text);
                }),
                InnerCommand::Hidden(why) => walker.cannot_see(source, why),
            });
            self.here = here;
        }
        if through.directory.is_some() {
            self.state.cwd = cwd;
        }
    }

    /// Adds one command to the list. An external program is opaque if a variable steers it.
    fn emit(&mut self, call: PreparedCall, through: Option<&RunnerCommands>) {
        let program = call.words.first().and_then(ShellWord::known).unwrap_or_default();
        let external = !call.words.is_empty()
            && (call.lookup == NameLookup::Programs || !builtins::is_builtin(program));
        let steered = self.state.steered.or(self.steered_here).filter(|_| external);
        let elsewhere = matches!(self.position.last(), Some(CommandPosition::Elsewhere(_)));
        let runs_project_code = !elsewhere && runners::runs_project_code(&call.words);
        self.push(ShellCommand {
            transparent: through.is_some_and(|through| through.transparent),
            opaque: steered,
            environment: self.state.set.iter().chain(&self.set_here).cloned().collect(),
            runs_project_code,
            words: call.words,
            assignments: call.assignments,
            redirections: call.redirections,
            text: call.text,
            ..ShellCommand::default()
        });
    }
}
