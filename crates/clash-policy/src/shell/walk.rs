//! From the tree of a script to its commands, in the order the shell takes.

use std::cell::Cell;
use std::collections::HashMap;
use std::ops::Range;
use std::rc::Rc;

use super::ast::{
    Assign, AssignValue, Chain, Compound, Join, List, Node, Pipeline, Raw, Redir, RedirKind,
    Script, Simple,
};
use super::builtins;
use super::elsewhere;
use super::lex::{self, MAX_DEPTH};
use super::state::{State, Value};
use super::wrappers::{self, Inner, Through};
use super::{Assignment, Command, Cwd, Direction, Position, Redirection, Word, shown};

/// A text that commands are found in.
#[derive(Clone)]
pub(super) struct Source {
    text: Rc<str>,
    /// Where the script has this text, if it is not the script.
    origin: Option<Range<usize>>,
}

struct Function {
    body: Rc<Node>,
    source: Source,
    /// Certainly defined from here on.
    certain: bool,
    walked: Cell<bool>,
}

/// What a command can read from its standard input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Stdin {
    Inherited,
    Text(String),
    Unknown,
}

/// Which names a program is looked for among.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lookup {
    Shell,
    /// `command x`: no functions, no aliases.
    NoFunctions,
    /// Run by another program.
    Programs,
}

/// A command that is about to run.
#[derive(Clone)]
pub(super) struct Call {
    pub(super) words: Vec<Word>,
    pub(super) assignments: Vec<Assignment>,
    pub(super) redirections: Vec<Redirection>,
    pub(super) stdin: Stdin,
    pub(super) lookup: Lookup,
    pub(super) text: String,
}

pub(super) struct Walker {
    pub(super) state: State,
    out: Vec<Command>,
    position: Vec<Position>,
    functions: HashMap<String, Vec<Function>>,
    pub(super) aliases: HashMap<String, Option<String>>,
    /// Names of the functions being called.
    calls: Vec<String>,
    depth: usize,
    /// How many constructs around here may not happen in this shell.
    unsure: usize,
    /// Work left: expanding functions and texts must stay linear.
    fuel: usize,
    here: Range<usize>,
    /// As [`State::steered`], for the command that is being looked at.
    steered_here: Option<&'static str>,
}

const TOO_MUCH: &str = "it takes too long to follow";

pub(super) fn walk(script: &Script) -> Vec<Command> {
    let source = Source { text: Rc::clone(&script.text), origin: None };
    let mut walker = Walker {
        state: State::default(),
        out: Vec::new(),
        position: Vec::new(),
        functions: HashMap::new(),
        aliases: HashMap::new(),
        calls: Vec::new(),
        depth: 0,
        unsure: 0,
        fuel: 50_000 + script.text.len() * 4,
        here: 0..script.text.len(),
        steered_here: None,
    };
    walker.list(&source, &script.list);
    walker.functions_never_called();
    let mut out = walker.out;
    if walker.fuel == 0 {
        out.push(Command {
            opaque: Some(TOO_MUCH),
            span: 0..script.text.len(),
            text: shown(&script.text),
            ..Command::default()
        });
    }
    if out.is_empty() {
        out.push(Command { span: 0..script.text.len(), ..Command::default() });
    }
    out
}

impl Walker {
    /// Takes from the work that is left; false if there is none.
    pub(super) fn spend(&mut self, work: usize) -> bool {
        self.fuel = self.fuel.saturating_sub(work);
        self.fuel > 0
    }

    pub(super) fn is_function(&self, name: &str) -> bool {
        self.functions.contains_key(name)
    }

    pub(super) fn in_function(&self) -> bool {
        !self.calls.is_empty()
    }

    pub(super) fn inner_source(&self, script: &Script) -> Source {
        Source { text: Rc::clone(&script.text), origin: Some(self.here.clone()) }
    }

    fn span(source: &Source, start: usize, end: usize) -> Range<usize> {
        source.origin.clone().unwrap_or(start..end)
    }

    /// With one more step in the way commands are reached.
    pub(super) fn inside(&mut self, position: Position, walk: impl FnOnce(&mut Self)) {
        self.position.push(position);
        walk(self);
        self.position.pop();
    }

    /// In another process: nothing it sets stays.
    pub(super) fn apart(&mut self, walk: impl FnOnce(&mut Self)) {
        let mark = self.state.mark();
        self.unsure += 1;
        walk(self);
        self.unsure -= 1;
        self.state.back_to(mark);
    }

    /// On one of several ways.
    fn perhaps(&mut self, walk: impl FnOnce(&mut Self)) {
        let mark = self.state.mark();
        self.unsure += 1;
        walk(self);
        self.unsure -= 1;
        self.state.perhaps_since(&mark);
    }

    /// Something here runs what cannot be seen.
    pub(super) fn cannot_see(&mut self, source: &Source, why: &'static str) {
        let text = match &source.origin {
            None => source.text.get(self.here.clone()).unwrap_or_default(),
            Some(_) => &source.text,
        };
        let text = shown(text);
        self.push(Command { opaque: Some(why), text, ..Command::default() });
    }

    fn push(&mut self, mut command: Command) {
        if !self.spend(1) {
            return;
        }
        command.span = self.here.clone();
        command.cwd.clone_from(&self.state.cwd);
        command.position.clone_from(&self.position);
        self.out.push(command);
    }

    pub(super) fn list(&mut self, source: &Source, list: &List) {
        for chain in &list.chains {
            if self.fuel == 0 {
                return;
            }
            if chain.background {
                self.inside(Position::Background, |walker| {
                    walker.apart(|walker| walker.chain(source, chain));
                });
            } else {
                self.chain(source, chain);
            }
        }
    }

    /// Behind `&&` everything before has happened; behind `||`, and after the
    /// whole chain, only its first pipeline certainly has.
    fn chain(&mut self, source: &Source, chain: &Chain) {
        let before = self.state.cwd.clone();
        let Some(((_, first), rest)) = chain.links.split_first() else { return };
        self.pipeline(source, first);
        if !rest.is_empty() {
            let mark = self.state.mark();
            self.unsure += 1;
            for (index, (join, pipeline)) in rest.iter().enumerate() {
                let position = if *join == Join::And { Position::And } else { Position::Or };
                if *join == Join::Or {
                    self.state.perhaps_since(&mark);
                    if self.state.cwd != before {
                        self.state.cwd = if index == 0 { before.clone() } else { Cwd::Unknown };
                    }
                }
                self.inside(position, |walker| walker.pipeline(source, pipeline));
            }
            self.unsure -= 1;
            let exits = matches!(rest, [(Join::Or, or_else)] if exits(or_else));
            if exits {
                self.state.back_to_cwd(&mark);
            } else {
                self.state.perhaps_since(&mark);
            }
            if self.state.cwd != before && !exits {
                self.state.cwd = Cwd::Unknown;
            }
        } else if self.state.cwd != before && !self.state.errexit {
            // `cd x` may have failed.
            self.state.cwd = Cwd::Unknown;
        }
    }

    fn pipeline(&mut self, source: &Source, pipeline: &Pipeline) {
        if let [node] = pipeline.nodes.as_slice() {
            return self.node(source, node, &Stdin::Inherited);
        }
        let mut stdin = Stdin::Inherited;
        let last = pipeline.nodes.len().saturating_sub(1);
        for (index, node) in pipeline.nodes.iter().enumerate() {
            let found = self.out.len();
            self.inside(Position::Pipeline, |walker| {
                // The last one may run in the shell itself (`lastpipe`, zsh).
                if index == last {
                    walker.perhaps(|walker| walker.node(source, node, &stdin));
                } else {
                    walker.apart(|walker| walker.node(source, node, &stdin));
                }
            });
            stdin = match (node, self.out.get(found..)) {
                (Node::Simple(_), Some([only])) => builtins::printed(only),
                _ => Stdin::Unknown,
            };
        }
    }

    fn node(&mut self, source: &Source, node: &Node, stdin: &Stdin) {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            self.cannot_see(source, "it is nested too deeply");
        } else if self.spend(1) {
            match node {
                Node::Simple(simple) => self.simple(source, simple, stdin),
                Node::Compound { kind, redirs, start, end } => {
                    self.here = Self::span(source, *start, *end);
                    self.compound(source, kind, redirs);
                }
                Node::Function { name, body } => self.define(source, name, body),
                Node::Coproc { name, body } => {
                    self.inside(Position::Coproc, |walker| {
                        walker.apart(|walker| walker.node(source, body, &Stdin::Unknown));
                    });
                    self.state.set(name, Value::Unknown);
                }
            }
        }
        self.depth -= 1;
    }

    fn define(&mut self, source: &Source, name: &str, body: &Rc<Node>) {
        let certain = self.unsure == 0 && self.calls.is_empty();
        let function = Function {
            body: Rc::clone(body),
            source: source.clone(),
            certain,
            walked: Cell::new(false),
        };
        self.functions.entry(name.to_owned()).or_default().push(function);
    }

    /// Bodies no call was seen of: something that is not understood may call.
    fn functions_never_called(&mut self) {
        loop {
            let next = self.functions.values().flatten().find(|function| !function.walked.get());
            let Some(function) = next else { return };
            function.walked.set(true);
            let (body, source) = (Rc::clone(&function.body), function.source.clone());
            self.state.untrack();
            self.calls.push(String::new());
            self.inside(Position::FunctionBody, |walker| {
                walker.node(&source, &body, &Stdin::Unknown);
            });
            self.calls.pop();
        }
    }

    fn compound(&mut self, source: &Source, kind: &Compound, redirs: &[Redir]) {
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
                for (index, (condition, body)) in arms.iter().enumerate() {
                    let test = |walker: &mut Self| {
                        walker.inside(Position::Condition, |w| w.list(source, condition));
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

    fn loop_values(&mut self, source: &Source, words: &[Raw]) -> Value {
        let counts = |raw: &Raw| {
            let text = raw.bare().unwrap_or_default();
            let range = text.strip_prefix('{').and_then(|t| t.strip_suffix('}'));
            range.is_some_and(|range| range.split("..").all(super::state::is_number))
        };
        let mut values = Vec::new();
        let mut numeric = true;
        for raw in words {
            let seq = self.is_sequence(raw);
            let expanded = self.words(source, raw);
            let number = |w: &Word| w.known().is_some_and(super::state::is_number);
            numeric &= seq || counts(raw) || expanded.iter().all(number);
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

    pub(super) fn redirections(
        &mut self,
        source: &Source,
        redirs: &[Redir],
    ) -> (Vec<Redirection>, Option<Stdin>) {
        let mut all = Vec::with_capacity(redirs.len());
        let mut stdin = None;
        for redir in redirs {
            let to_stdin = redir.fd == Some(0);
            let direction = match redir.kind {
                RedirKind::HereDocument => {
                    let empty = Vec::new();
                    let body = redir.body.as_ref().and_then(|body| body.get()).unwrap_or(&empty);
                    let mut target = Word::Unknown;
                    self.inside(Position::HereDocument, |walker| {
                        target = walker.value(source, body);
                    });
                    if to_stdin {
                        stdin = Some(given(&target, ""));
                    }
                    let direction = Direction::HereDocument;
                    all.push(Redirection { fd: redir.fd, direction, target });
                    continue;
                }
                RedirKind::HereString => Direction::HereString,
                RedirKind::Read | RedirKind::DupIn => Direction::Read,
                RedirKind::Write | RedirKind::DupOut => Direction::Write,
                RedirKind::Append => Direction::Append,
                RedirKind::Clobber => Direction::Clobber,
                RedirKind::ReadWrite => Direction::ReadWrite,
            };
            let target = if redir.kind == RedirKind::HereString {
                self.value(source, &redir.target.parts)
            } else {
                let words = self.words(source, &redir.target);
                match <[Word; 1]>::try_from(words) {
                    Ok([word]) => word,
                    Err(_) => Word::Unknown,
                }
            };
            if to_stdin {
                let text = redir.kind == RedirKind::HereString;
                stdin = Some(if text { given(&target, "\n") } else { Stdin::Unknown });
            }
            let descriptor = |text: &str| {
                let digits = text.strip_suffix('-').unwrap_or(text);
                digits.bytes().all(|b| b.is_ascii_digit())
            };
            let duplicates = matches!(redir.kind, RedirKind::DupOut | RedirKind::DupIn);
            let counted = |raw: &Raw| self.is_numeric(&raw.parts);
            if duplicates && (target.known().is_some_and(descriptor) || counted(&redir.target)) {
                continue;
            }
            // `>&file` is both outputs.
            let fd = if redir.kind == RedirKind::DupOut { None } else { redir.fd };
            all.push(Redirection { fd, direction, target });
        }
        (all, stdin)
    }

    fn simple(&mut self, source: &Source, simple: &Simple, stdin: &Stdin) {
        self.here = Self::span(source, simple.start, simple.end);
        let here = self.here.clone();
        let text = shown(source.text.get(simple.start..simple.end).unwrap_or_default());
        let mut words = Vec::with_capacity(simple.words.len());
        for raw in &simple.words {
            match raw.bare().filter(|text| !super::expand::expands(text)) {
                Some(text) => words.push(Word::Known(text.to_owned())),
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
            return self.push(Command { assignments, redirections, text, ..Command::default() });
        }
        if let Some(name) = simple.words.first().and_then(Raw::bare) {
            let rest = simple.words.first().map_or(simple.end, |word| word.end);
            let rest = source.text.get(rest..simple.end).unwrap_or_default();
            self.alias(source, name, rest, simple.redirs.is_empty());
        }
        let stdin = given.unwrap_or_else(|| stdin.clone());
        let lookup = Lookup::Shell;
        self.run(source, Call { words, assignments, redirections, stdin, lookup, text });
    }

    fn assigned(&mut self, source: &Source, assign: &Assign) -> (Assignment, Value) {
        if let Some(subscript) = &assign.subscript {
            self.arithmetic(source, subscript);
        }
        let name = assign.name.clone();
        let (word, numeric) = match &assign.value {
            AssignValue::Word(raw) => {
                let numeric = self.is_numeric(&raw.parts);
                (self.value(source, &raw.parts), numeric)
            }
            AssignValue::Array(words) => {
                for raw in words {
                    self.words(source, raw);
                }
                (Word::Unknown, false)
            }
        };
        let old = self.state.get(&name).cloned();
        let value = match (&word, assign.append, old) {
            _ if assign.subscript.is_some() => Value::Unknown,
            (Word::Known(text), false, _) => Value::Known(text.clone()),
            (Word::Known(text), true, Some(Value::Known(old))) if old.len() < 4096 => {
                Value::Known(old + text)
            }
            _ if numeric && !assign.append => Value::Number,
            _ => Value::Unknown,
        };
        let word = if assign.append || assign.subscript.is_some() { Word::Unknown } else { word };
        (Assignment { name, value: word }, value)
    }

    /// An alias and the rest of its command, read as the shell would. It may
    /// also not be in force, so the command itself is looked at as well.
    fn alias(&mut self, source: &Source, name: &str, rest: &str, plain: bool) {
        let Some(value) = self.aliases.get(name).cloned() else { return };
        let usable = value.filter(|value| {
            plain && !value.ends_with([' ', '\t']) && !value.contains("<<") && self.calls.len() < 8
        });
        let Some(value) = usable else {
            return self.cannot_see(source, "it uses an alias that is not understood");
        };
        // The alias itself is not expanded again.
        let hidden = self.aliases.remove_entry(name);
        self.calls.push(name.to_owned());
        self.inside(Position::Alias, |walker| walker.text(source, &format!("{value} {rest}")));
        self.calls.pop();
        self.aliases.extend(hidden);
    }

    /// A text read as a script by this shell.
    pub(super) fn text(&mut self, source: &Source, text: &str) {
        if !self.spend(text.len() + 1) {
            return;
        }
        if text.contains('\0') {
            return self.cannot_see(source, "it holds a NUL byte");
        }
        let here = self.here.clone();
        match lex::parse_nested(text, self.depth) {
            Ok(script) => {
                let inner = self.inner_source(&script);
                self.depth += 1;
                self.list(&inner, &script.list);
                self.depth -= 1;
            }
            Err(why) => self.cannot_see(source, why),
        }
        self.here = here;
    }

    /// A text read by a shell of its own, which knows nothing of this one's
    /// variables and functions.
    pub(super) fn other_shell(
        &mut self,
        source: &Source,
        text: &str,
        args: Option<Vec<Word>>,
        plain: bool,
    ) {
        let mut state = State::default();
        state.untrack();
        state.positional = args.map(Rc::from);
        state.steered = self.state.steered;
        state.cwd.clone_from(&self.state.cwd);
        let state = std::mem::replace(&mut self.state, state);
        let functions = std::mem::take(&mut self.functions);
        let aliases = std::mem::take(&mut self.aliases);
        let calls = std::mem::take(&mut self.calls);
        if plain && lex::parse_nested(text, self.depth).is_ok_and(|script| script.bash_only) {
            self.cannot_see(source, "a plain shell reads it differently than bash");
        }
        self.text(source, text);
        self.functions_never_called();
        self.calls = calls;
        self.aliases = aliases;
        self.functions = functions;
        self.state = state;
    }

    /// Whether the program was certainly a function.
    fn call_functions(&mut self, source: &Source, program: &str, call: &Call) -> bool {
        let Some(definitions) = self.functions.get(program) else { return false };
        let certain = matches!(definitions.as_slice(), [only] if only.certain);
        let bodies: Vec<_> = definitions
            .iter()
            .map(|function| {
                function.walked.set(true);
                (Rc::clone(&function.body), function.source.clone())
            })
            .collect();
        let repeated = self.calls.iter().filter(|name| *name == program).count();
        if repeated > 2 {
            self.cannot_see(source, "a function calls itself");
            return certain;
        }
        let mark = self.state.mark();
        let args = call.words.get(1..).unwrap_or_default();
        let positional = self.state.positional.replace(Rc::from(args));
        let given = self.state.arguments_given;
        for assignment in &call.assignments {
            let value = match &assignment.value {
                Word::Known(text) => Value::Known(text.clone()),
                _ => Value::Unknown,
            };
            self.state.set(&assignment.name, value);
        }
        self.calls.push(program.to_owned());
        for (body, source) in bodies {
            let here = self.here.clone();
            self.inside(Position::FunctionBody, |walker| {
                walker.node(&source, &body, &call.stdin);
            });
            self.here = here;
        }
        self.calls.pop();
        // It may return early, and its locals end here.
        self.state.perhaps_since(&mark);
        self.state.positional = positional;
        self.state.arguments_given = given;
        certain
    }

    pub(super) fn unset_functions(&mut self) {
        for function in self.functions.values_mut().flatten() {
            function.certain = false;
        }
    }

    pub(super) fn run(&mut self, source: &Source, call: Call) {
        if !self.spend(1 + call.words.len()) {
            return;
        }
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            self.cannot_see(source, "it is nested too deeply");
        } else {
            let outer = self.steered_here;
            for assignment in &call.assignments {
                let why = self.steers(source, &assignment.name, &assignment.value);
                self.steered_here = self.steered_here.or(why);
            }
            self.run_one(source, call);
            self.steered_here = outer;
        }
        self.depth -= 1;
    }

    fn run_one(&mut self, source: &Source, call: Call) {
        let shell = call.lookup != Lookup::Programs;
        let Some(program) = call.words.first().and_then(Word::known).map(str::to_owned) else {
            if shell {
                // It may be a builtin or a function, or vanish.
                self.state.steered = self.state.steered.or(self.steered_here);
                self.state.untrack();
                self.unset_functions();
            }
            return self.emit(call, None);
        };
        if call.lookup == Lookup::Shell && self.functions.contains_key(&program) {
            self.state.steered = self.state.steered.or(self.steered_here);
            let certain = self.call_functions(source, &program, &call);
            if certain && !builtins::is_special(&program) {
                let around = Call { words: Vec::new(), ..call };
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
                self.state.set(&assignment.name, Value::Unknown);
            }
            through = self.builtin(source, &program, &call);
        }
        if through.is_none() {
            through = wrappers::look_through(&call.words, &call.stdin);
        }
        let Some(through) = through else { return self.emit(call, None) };
        let (text, stdin) = (call.text.clone(), call.stdin.clone());
        self.emit(call, Some(&through));
        for (name, value) in &through.variables {
            let why = self.steers(source, name, value);
            self.steered_here = self.steered_here.or(why);
        }
        let position = if through.elsewhere {
            Position::Elsewhere(through.by)
        } else if through.by == "eval" {
            Position::Eval
        } else if through.by == "trap" {
            Position::Trap
        } else {
            Position::Wrapper(through.by)
        };
        let cwd = self.state.cwd.clone();
        if let Some(directory) = &through.directory {
            self.state.cwd = builtins::joined(&cwd, directory);
        }
        for inner in through.inner {
            let here = self.here.clone();
            self.inside(position, |walker| match inner {
                Inner::Command { words, lookup } => {
                    let text = text.clone();
                    let (assignments, redirections) = (Vec::new(), Vec::new());
                    let stdin = if through.feeds { Stdin::Unknown } else { stdin.clone() };
                    let inner = Call { words, assignments, redirections, stdin, lookup, text };
                    if through.elsewhere {
                        walker.emit(inner, None);
                    } else {
                        walker.run(source, inner);
                    }
                }
                Inner::Text { text, args, plain } => {
                    walker.apart(|walker| walker.other_shell(source, &text, args, plain));
                }
                Inner::Eval(text) => walker.text(source, &text),
                Inner::Trap(text) => walker.apart(|walker| {
                    walker.state.untrack();
                    walker.text(source, &text);
                }),
                Inner::Hidden(why) => walker.cannot_see(source, why),
            });
            self.here = here;
        }
        if through.directory.is_some() {
            self.state.cwd = cwd;
        }
    }

    fn emit(&mut self, call: Call, through: Option<&Through>) {
        let program = call.words.first().and_then(Word::known).unwrap_or_default();
        let external = !call.words.is_empty()
            && (call.lookup == Lookup::Programs || !builtins::is_builtin(program));
        let steered = self.state.steered.or(self.steered_here).filter(|_| external);
        let elsewhere = matches!(self.position.last(), Some(Position::Elsewhere(_)));
        let runs_project_code = !elsewhere && elsewhere::runs_project_code(&call.words);
        self.push(Command {
            transparent: through.is_some_and(|through| through.transparent),
            opaque: steered,
            runs_project_code,
            words: call.words,
            assignments: call.assignments,
            redirections: call.redirections,
            text: call.text,
            ..Command::default()
        });
    }

    /// Applies an assignment that stays, as far as it decides what programs run.
    pub(super) fn steering(&mut self, source: &Source, name: &str, value: &Word) {
        let why = self.steers(source, name, value);
        self.state.steered = self.state.steered.or(why);
    }
}

fn given(word: &Word, end: &str) -> Stdin {
    match word {
        Word::Known(text) => Stdin::Text(format!("{text}{end}")),
        _ => Stdin::Unknown,
    }
}

/// Whether the pipeline certainly leaves the shell.
fn exits(pipeline: &Pipeline) -> bool {
    match pipeline.nodes.as_slice() {
        [Node::Simple(simple)] => {
            matches!(simple.words.first().and_then(Raw::bare), Some("exit" | "return"))
        }
        [Node::Compound { kind: Compound::Group(list), .. }] => {
            list.chains.last().is_some_and(|chain| {
                !chain.background
                    && matches!(chain.links.as_slice(), [(Join::First, last)] if exits(last))
            })
        }
        _ => false,
    }
}
