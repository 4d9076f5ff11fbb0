//! The changes that a loop may make before its body runs a second time.

use super::super::CommandDirectory;
use super::super::ast::{
    AssignedValue, CommandList, CompoundCommand, ExpansionOperation, RawWord, ScriptNode,
    SimpleCommand, WordPart,
};
use super::super::read::is_name;
use super::ScriptWalker;
use super::state::{VariableValue, is_number};

/// The changes that the body of a loop may make.
#[derive(Default)]
struct LoopChanges {
    /// Names of variables, and true if every value is a number.
    names: Vec<(String, bool)>,
    anything: bool,
    defines: bool,
    moves: bool,
    shifts: bool,
    work: usize,
}

impl ScriptWalker {
    /// Forgets the variables that the lists set, before they are walked as a loop. Also
    /// forgets the directory, the arguments and all variables if the lists may change them.
    pub(super) fn before_loop(&mut self, lists: &[&CommandList]) {
        let mut found = LoopChanges::default();
        for list in lists {
            self.scan_list(list, &mut found);
        }
        if found.defines {
            self.functions.ahead = true;
            self.state.untrack();
        }
        if found.anything {
            found.work += self.state.forget_all();
        }
        for (name, numeric) in found.names {
            let numeric = numeric && self.state.class(&name).is_none_or(VariableValue::is_numeric);
            self.state
                .set(&name, if numeric { VariableValue::Number } else { VariableValue::Unknown });
        }
        if found.shifts || found.anything {
            self.state.positional = None;
        }
        if found.moves || found.anything {
            self.state.cwd = CommandDirectory::Unknown;
        }
        self.spend(found.work);
    }

    /// Adds the changes of all commands of a list.
    fn scan_list(&self, list: &CommandList, found: &mut LoopChanges) {
        for (_, pipeline) in list.chains.iter().flat_map(|chain| &chain.links) {
            for node in &pipeline.nodes {
                found.work += 1;
                self.scan_node(node, found);
            }
        }
    }

    /// Adds the changes of a command. A subshell makes none.
    fn scan_node(&self, node: &ScriptNode, found: &mut LoopChanges) {
        match node {
            ScriptNode::Simple(simple) => self.scan_simple(simple, found),
            ScriptNode::Function { .. } => found.defines = true,
            ScriptNode::Coproc { name, .. } => found.names.push((name.clone(), false)),
            ScriptNode::Compound { kind, redirs, .. } => {
                for redir in redirs {
                    scan_parts(&redir.target.parts, found);
                }
                match kind {
                    // A subshell keeps its changes to itself.
                    CompoundCommand::Subshell(_) => {}
                    CompoundCommand::Group(list) => self.scan_list(list, found),
                    CompoundCommand::If { arms, otherwise } => {
                        for (condition, body) in arms {
                            self.scan_list(condition, found);
                            self.scan_list(body, found);
                        }
                        if let Some(body) = otherwise {
                            self.scan_list(body, found);
                        }
                    }
                    CompoundCommand::Loop { condition, body } => {
                        self.scan_list(condition, found);
                        self.scan_list(body, found);
                    }
                    CompoundCommand::For { name, words, body } => {
                        let sequence =
                            |words: &Vec<RawWord>| words.iter().all(|w| self.is_sequence(w));
                        let numeric = words.as_ref().is_some_and(sequence);
                        found.names.push((name.clone(), numeric));
                        words.iter().flatten().for_each(|word| scan_parts(&word.parts, found));
                        self.scan_list(body, found);
                    }
                    CompoundCommand::ArithFor { head, body } => {
                        scan_arithmetic(head, found);
                        self.scan_list(body, found);
                    }
                    CompoundCommand::Case { word, arms } => {
                        scan_parts(&word.parts, found);
                        for (patterns, body) in arms {
                            patterns.iter().for_each(|word| scan_parts(&word.parts, found));
                            self.scan_list(body, found);
                        }
                    }
                    CompoundCommand::Test(words) => {
                        words.iter().for_each(|word| scan_parts(&word.parts, found));
                    }
                    CompoundCommand::Arith(parts) => scan_arithmetic(parts, found),
                }
            }
        }
    }

    /// Adds the changes of a simple command. A program that may be a function, an alias or
    /// unknown may change anything.
    fn scan_simple(&self, simple: &SimpleCommand, found: &mut LoopChanges) {
        found.work += simple.words.len();
        for assign in &simple.assigns {
            let numeric = match &assign.value {
                AssignedValue::Word(raw) => {
                    scan_parts(&raw.parts, found);
                    !assign.append && assign.subscript.is_none() && counts(raw)
                }
                AssignedValue::Array(_) => false,
            };
            found.names.push((assign.name.clone(), numeric));
        }
        for word in &simple.words {
            scan_parts(&word.parts, found);
        }
        for redir in &simple.redirs {
            scan_parts(&redir.target.parts, found);
        }
        let Some((program, args)) = simple.words.split_first() else { return };
        match program.bare() {
            Some("cd" | "pushd" | "popd") => found.moves = true,
            Some("shift" | "set") => found.shifts = true,
            Some(
                "read" | "mapfile" | "readarray" | "export" | "local" | "declare" | "typeset"
                | "readonly" | "getopts" | "unset" | "let",
            ) => {
                for arg in args {
                    match arg.parts.as_slice() {
                        [WordPart::Text(name)] | [WordPart::Quoted(name), ..] => {
                            let name = name.split(['=', '+', '[']).next().unwrap_or_default();
                            if is_name(name) {
                                found.names.push((name.to_owned(), false));
                            }
                        }
                        [] => {}
                        _ => found.anything = true,
                    }
                }
            }
            Some("printf") => {
                let sets = |arg: &RawWord| arg.bare().is_none_or(|text| text.starts_with("-v"));
                let plain =
                    |arg: &RawWord| matches!(arg.parts.as_slice(), [WordPart::Quoted(_), ..]);
                if args.first().is_some_and(|arg| sets(arg) && !plain(arg)) {
                    found.anything = true;
                }
            }
            Some("eval" | "." | "source" | "trap" | "alias" | "builtin" | "command" | "wait") => {
                found.anything = true;
            }
            Some(name) => {
                found.anything |= self.functions.contains(name) || self.aliases.contains_key(name)
            }
            None => found.anything = true,
        }
    }
}

/// True if a word certainly is a number, whatever the state.
fn counts(raw: &RawWord) -> bool {
    match raw.parts.as_slice() {
        [WordPart::Arith { .. }] => true,
        [WordPart::Text(text) | WordPart::Quoted(text)] => is_number(text),
        [WordPart::Expansion(it)] => matches!(it.operation, ExpansionOperation::Length),
        _ => false,
    }
}

/// Assignments inside expansions.
fn scan_parts(parts: &[WordPart], found: &mut LoopChanges) {
    for part in parts {
        match part {
            WordPart::Expansion(it) => {
                if let Some(subscript) = &it.subscript {
                    scan_arithmetic(subscript, found);
                }
                match &it.operation {
                    ExpansionOperation::Assign { word } => {
                        found.names.push((it.name.clone(), false));
                        scan_parts(word, found);
                    }
                    ExpansionOperation::Default { word, .. } | ExpansionOperation::Edit(word) => {
                        scan_parts(word, found);
                    }
                    ExpansionOperation::Slice(word) => scan_arithmetic(word, found),
                    _ => {}
                }
            }
            WordPart::Arith { parts } => scan_arithmetic(parts, found),
            WordPart::Pattern(parts) => scan_parts(parts, found),
            _ => {}
        }
    }
}

/// Adds assignments inside arithmetic: all names of a text that has `=`, `++` or `--`.
fn scan_arithmetic(parts: &[WordPart], found: &mut LoopChanges) {
    scan_parts(parts, found);
    for part in parts {
        if let WordPart::Text(text) | WordPart::Quoted(text) = part
            && (text.contains('=') || text.contains("++") || text.contains("--"))
        {
            let names = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
            found.names.extend(names.filter(|n| is_name(n)).map(|n| (n.to_owned(), true)));
        }
    }
}
