//! Named code and code as text: functions, aliases, `eval` and `sh -c`.

use std::cell::Cell;
use std::collections::HashMap;
use std::rc::Rc;

use super::super::ast::ScriptNode;
use super::super::{CommandPosition, ShellWord, read};
use super::calls::PreparedCall;
use super::state::{ScriptState, VariableValue};
use super::{ScriptWalker, SourceText, StandardInput};

/// One definition of a function, with the text it stands in.
struct FunctionDefinition {
    body: Rc<ScriptNode>,
    source: SourceText,
    /// Every path through the script defines it.
    certain: bool,
    /// The number of functions defined before it.
    index: usize,
    /// Its body is in the list of commands.
    walked: Cell<bool>,
}

/// The functions a shell knows.
#[derive(Default)]
pub(super) struct KnownFunctions {
    named: HashMap<String, Vec<Rc<FunctionDefinition>>>,
    /// In the order of the script.
    defined: Vec<Rc<FunctionDefinition>>,
    /// The first functions, up to this number, may have been replaced or removed.
    doubtful: usize,
    /// A loop defines a function that its body may call before the definition.
    pub(super) ahead: bool,
}

impl KnownFunctions {
    pub(super) fn contains(&self, name: &str) -> bool {
        self.named.contains_key(name)
    }

    /// From here on, any function may have been replaced or removed.
    pub(super) fn doubt(&mut self) {
        self.doubtful = self.defined.len();
    }
}

impl ScriptWalker {
    /// True if the name of a program may be a function or an alias here.
    pub(super) fn shadows(&self, program: &str) -> bool {
        self.functions.ahead
            || self.functions.contains(program)
            || self.aliases.contains_key(program)
    }

    /// Adds a definition. It is certain only outside branches and functions.
    pub(super) fn define(&mut self, source: &SourceText, name: &str, body: &Rc<ScriptNode>) {
        let function = Rc::new(FunctionDefinition {
            body: Rc::clone(body),
            source: source.clone(),
            certain: self.unsure == 0 && self.calls.is_empty(),
            index: self.functions.defined.len(),
            walked: Cell::new(false),
        });
        self.functions.defined.push(Rc::clone(&function));
        self.functions.named.entry(name.to_owned()).or_default().push(function);
    }

    /// Walks the bodies of functions without a known call: unknown code may call them.
    pub(super) fn walk_uncalled_functions(&mut self) {
        let mut index = 0;
        // A body may define further functions.
        while let Some(function) = self.functions.defined.get(index).map(Rc::clone) {
            index += 1;
            if function.walked.replace(true) {
                continue;
            }
            self.state.untrack();
            self.calls.push(String::new());
            self.inside(CommandPosition::FunctionBody, |walker| {
                walker.node(&function.source, &function.body, &StandardInput::Unknown);
            });
            self.calls.pop();
        }
    }

    /// Walks all definitions of this name. True if the program certainly was one. The
    /// fourth call inside itself adds an opaque command instead.
    pub(super) fn call_functions(
        &mut self,
        source: &SourceText,
        program: &str,
        call: &PreparedCall,
    ) -> bool {
        let Some(definitions) = self.functions.named.get(program).cloned() else { return false };
        let doubtful = self.functions.doubtful;
        let certain =
            matches!(definitions.as_slice(), [only] if only.certain && only.index >= doubtful);
        for function in &definitions {
            function.walked.set(true);
        }
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
                ShellWord::Known(text) => VariableValue::Known(text.clone()),
                _ => VariableValue::Unknown,
            };
            self.state.set(&assignment.name, value);
        }
        self.calls.push(program.to_owned());
        for function in definitions {
            let here = self.here.clone();
            self.inside(CommandPosition::FunctionBody, |walker| {
                walker.node(&function.source, &function.body, &call.stdin);
            });
            self.here = here;
        }
        self.calls.pop();
        // The function may return early, and its local variables end here.
        self.state.perhaps_since(&mark);
        self.state.positional = positional;
        self.state.arguments_given = given;
        certain
    }

    pub(super) fn in_function(&self) -> bool {
        !self.calls.is_empty()
    }

    /// Walks an alias with the rest of its command. The alias may not be active, so the
    /// caller also walks the command itself. An alias that is unknown, ends in a blank or
    /// has a here-document adds an opaque command.
    pub(super) fn walk_alias(&mut self, source: &SourceText, name: &str, rest: &str, plain: bool) {
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
        self.inside(CommandPosition::Alias, |walker| {
            walker.walk_text(source, &format!("{value} {rest}"))
        });
        self.calls.pop();
        self.aliases.extend(hidden);
    }

    /// Walks a text that this shell runs as a script. A text that cannot be read is an
    /// opaque command.
    pub(super) fn walk_text(&mut self, source: &SourceText, text: &str) {
        if !self.spend(text.len() + 1) {
            return;
        }
        let here = self.here.clone();
        match read::parse(text, self.depth + 1) {
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

    /// Walks a text that another shell runs. It has the environment and the directory of
    /// this one, but no variables and functions. `plain`: it may know nothing beyond POSIX,
    /// so a text that only bash reads adds an opaque command.
    pub(super) fn walk_in_other_shell(
        &mut self,
        source: &SourceText,
        text: &str,
        args: Option<Vec<ShellWord>>,
        plain: bool,
    ) {
        let mut state = ScriptState::default();
        state.untrack();
        // It inherits the environment only.
        state.set.clone_from(&self.state.set);
        state.positional = args.map(Rc::from);
        state.steered = self.state.steered;
        state.cwd.clone_from(&self.state.cwd);
        let state = std::mem::replace(&mut self.state, state);
        let functions = std::mem::take(&mut self.functions);
        let aliases = std::mem::take(&mut self.aliases);
        let calls = std::mem::take(&mut self.calls);
        if plain && read::parse(text, self.depth + 1).is_ok_and(|script| script.bash_only) {
            self.cannot_see(source, "a plain shell reads it differently than bash");
        }
        self.walk_text(source, text);
        self.walk_uncalled_functions();
        self.calls = calls;
        self.aliases = aliases;
        self.functions = functions;
        self.state = state;
    }
}
