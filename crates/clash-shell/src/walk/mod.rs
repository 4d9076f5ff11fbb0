//! From the tree of a script to its commands, in the order the shell takes.
//!
//! The walk runs nothing and reads no file. After a branch, only facts that hold on
//! every path are known: after `a && x=1` the value of `x` is unknown. The work is
//! bounded by the length of the script; commands beyond that bound are opaque.

mod arithmetic;
mod braces;
mod builtins;
mod calls;
mod compound;
mod declare;
mod expand;
mod functions;
mod loops;
mod state;
mod steer;
mod streams;

use std::collections::HashMap;
use std::ops::Range;
use std::rc::Rc;

use super::ast::{
    AndOrList, CommandList, CompoundCommand, ListOperator, PipelineNode, RawWord, ScriptNode,
    ScriptTree,
};
use super::read::{MAX_NESTED_CONSTRUCTS, NESTED};
use super::{CommandDirectory, CommandPosition, SetVariable, ShellCommand, shown};
use functions::KnownFunctions;
use state::{ScriptState, VariableValue};

/// A text with commands.
#[derive(Clone)]
struct SourceText {
    text: Rc<str>,
    /// The span of this text in the script, if it is only a part of it.
    origin: Option<Range<usize>>,
}

/// The standard input of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum StandardInput {
    Inherited,
    Text(String),
    Unknown,
}

/// The kinds of names among which the shell looks for a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NameLookup {
    Shell,
    /// `command x`: no functions, no aliases.
    NoFunctions,
    /// Run by another program.
    Programs,
}

/// The walk through a script: its state and the commands found so far.
struct ScriptWalker {
    state: ScriptState,
    out: Vec<ShellCommand>,
    position: Vec<CommandPosition>,
    functions: KnownFunctions,
    aliases: HashMap<String, Option<String>>,
    /// Names of the functions being called.
    calls: Vec<String>,
    depth: usize,
    /// The number of constructs around the current command that may not run in this
    /// shell.
    unsure: usize,
    /// The remaining work: the walk of functions and texts must stay linear.
    fuel: usize,
    here: Range<usize>,
    /// As [`ScriptState::steered`], for the current command.
    steered_here: Option<&'static str>,
    /// As [`ScriptState::set`], for the current command.
    set_here: Vec<SetVariable>,
}

const TOO_MUCH: &str = "it takes too long to follow";

/// The commands of a script, never empty. If the work exceeds its bound, an opaque command
/// for the whole script is the last one.
pub(super) fn walk(script: &ScriptTree) -> Vec<ShellCommand> {
    let source = SourceText { text: Rc::clone(&script.text), origin: None };
    let mut walker = ScriptWalker {
        state: ScriptState::default(),
        out: Vec::new(),
        position: Vec::new(),
        functions: KnownFunctions::default(),
        aliases: HashMap::new(),
        calls: Vec::new(),
        depth: 0,
        unsure: 0,
        fuel: 50_000 + script.text.len() * 4,
        here: 0..script.text.len(),
        steered_here: None,
        set_here: Vec::new(),
    };
    walker.list(&source, &script.list);
    walker.walk_uncalled_functions();
    let mut out = walker.out;
    if walker.fuel == 0 {
        out.push(ShellCommand {
            opaque: Some(TOO_MUCH),
            span: 0..script.text.len(),
            text: shown(&script.text),
            ..ShellCommand::default()
        });
    }
    if out.is_empty() {
        out.push(ShellCommand { span: 0..script.text.len(), ..ShellCommand::default() });
    }
    out
}

impl ScriptWalker {
    /// Takes from the remaining work; false if none is left.
    fn spend(&mut self, work: usize) -> bool {
        self.fuel = self.fuel.saturating_sub(work);
        self.fuel > 0
    }

    /// The source of a text inside the current command: its commands have the span of that
    /// command.
    fn inner_source(&self, script: &ScriptTree) -> SourceText {
        SourceText { text: Rc::clone(&script.text), origin: Some(self.here.clone()) }
    }

    /// The place of a part of a source in the script.
    fn span(source: &SourceText, start: usize, end: usize) -> Range<usize> {
        source.origin.clone().unwrap_or(start..end)
    }

    /// Walks inside one more construct.
    fn inside(&mut self, position: CommandPosition, walk: impl FnOnce(&mut Self)) {
        self.position.push(position);
        walk(self);
        self.position.pop();
    }

    /// Walks commands of another process: this shell keeps none of their changes.
    fn apart(&mut self, walk: impl FnOnce(&mut Self)) {
        let mark = self.state.mark();
        self.unsure += 1;
        walk(self);
        self.unsure -= 1;
        self.state.back_to(mark);
    }

    /// Walks commands that may not run.
    fn perhaps(&mut self, walk: impl FnOnce(&mut Self)) {
        let mark = self.state.mark();
        self.unsure += 1;
        walk(self);
        self.unsure -= 1;
        self.state.perhaps_since(&mark);
    }

    /// Adds an opaque command.
    fn cannot_see(&mut self, source: &SourceText, why: &'static str) {
        let text = match &source.origin {
            None => source.text.get(self.here.clone()).unwrap_or_default(),
            Some(_) => &source.text,
        };
        let text = shown(text);
        self.push(ShellCommand { opaque: Some(why), text, ..ShellCommand::default() });
    }

    /// Adds a command with the current place, directory and position; nothing when the fuel
    /// is used up.
    fn push(&mut self, mut command: ShellCommand) {
        if !self.spend(1) {
            return;
        }
        command.span = self.here.clone();
        command.cwd.clone_from(&self.state.cwd);
        command.position.clone_from(&self.position);
        self.out.push(command);
    }

    /// Walks the chains of a list. A chain in the background changes nothing here.
    fn list(&mut self, source: &SourceText, list: &CommandList) {
        for chain in &list.chains {
            if self.fuel == 0 {
                return;
            }
            if chain.background {
                self.inside(CommandPosition::Background, |walker| {
                    walker.apart(|walker| walker.chain(source, chain));
                });
            } else {
                self.chain(source, chain);
            }
        }
    }

    /// Walks a chain. Behind `&&` all earlier pipelines have run. Behind `||`, and after
    /// the whole chain, only the first pipeline certainly has. A `cd` that may have failed
    /// leaves the directory unknown.
    fn chain(&mut self, source: &SourceText, chain: &AndOrList) {
        let before = self.state.cwd.clone();
        let Some(((_, first), rest)) = chain.links.split_first() else { return };
        self.pipeline(source, first);
        if !rest.is_empty() {
            let mark = self.state.mark();
            self.unsure += 1;
            for (index, (join, pipeline)) in rest.iter().enumerate() {
                let position = if *join == ListOperator::And {
                    CommandPosition::And
                } else {
                    CommandPosition::Or
                };
                if *join == ListOperator::Or {
                    self.state.perhaps_since(&mark);
                    if self.state.cwd != before {
                        self.state.cwd =
                            if index == 0 { before.clone() } else { CommandDirectory::Unknown };
                    }
                }
                self.inside(position, |walker| walker.pipeline(source, pipeline));
            }
            self.unsure -= 1;
            let exits = matches!(rest, [(ListOperator::Or, or_else)] if exits(or_else));
            if exits {
                self.state.back_to_cwd(&mark);
            } else {
                self.state.perhaps_since(&mark);
            }
            if self.state.cwd != before && !exits {
                self.state.cwd = CommandDirectory::Unknown;
            }
        } else if self.state.cwd != before && !self.state.errexit {
            // `cd x` may have failed.
            self.state.cwd = CommandDirectory::Unknown;
        }
    }

    /// Walks the commands of a pipeline, each with the output of the one before as its
    /// input. Only the last one may change this shell.
    fn pipeline(&mut self, source: &SourceText, pipeline: &PipelineNode) {
        if let [node] = pipeline.nodes.as_slice() {
            return self.node(source, node, &StandardInput::Inherited);
        }
        let mut stdin = StandardInput::Inherited;
        let last = pipeline.nodes.len().saturating_sub(1);
        for (index, node) in pipeline.nodes.iter().enumerate() {
            let found = self.out.len();
            self.inside(CommandPosition::Pipeline, |walker| {
                // The last one may run in the shell itself (`lastpipe`, zsh).
                if index == last {
                    walker.perhaps(|walker| walker.node(source, node, &stdin));
                } else {
                    walker.apart(|walker| walker.node(source, node, &stdin));
                }
            });
            stdin = match (node, self.out.get(found..)) {
                (ScriptNode::Simple(_), Some([only])) => streams::printed(only),
                _ => StandardInput::Unknown,
            };
        }
    }

    /// Walks one command. The definition of a function is stored, not walked.
    fn node(&mut self, source: &SourceText, node: &ScriptNode, stdin: &StandardInput) {
        self.depth += 1;
        if self.depth > MAX_NESTED_CONSTRUCTS {
            self.cannot_see(source, NESTED);
        } else if self.spend(1) {
            match node {
                ScriptNode::Simple(simple) => self.simple(source, simple, stdin),
                ScriptNode::Compound { kind, redirs, start, end } => {
                    self.here = Self::span(source, *start, *end);
                    self.compound(source, kind, redirs);
                }
                ScriptNode::Function { name, body } => self.define(source, name, body),
                ScriptNode::Coproc { name, body } => {
                    self.inside(CommandPosition::Coproc, |walker| {
                        walker.apart(|walker| walker.node(source, body, &StandardInput::Unknown));
                    });
                    self.state.set(name, VariableValue::Unknown);
                }
            }
        }
        self.depth -= 1;
    }
}

/// True if the pipeline certainly ends the shell or the function: `exit`, `return`, or a
/// group that ends with one.
fn exits(pipeline: &PipelineNode) -> bool {
    match pipeline.nodes.as_slice() {
        [ScriptNode::Simple(simple)] => {
            matches!(simple.words.first().and_then(RawWord::bare), Some("exit" | "return"))
        }
        [ScriptNode::Compound { kind: CompoundCommand::Group(list), .. }] => {
            list.chains.last().is_some_and(|chain| {
                !chain.background
                    && matches!(chain.links.as_slice(), [(ListOperator::First, last)] if exits(last))
            })
        }
        _ => false,
    }
}
