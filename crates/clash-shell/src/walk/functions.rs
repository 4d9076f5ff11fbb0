//! Code the script gives a name to, or hands over as a text: functions, aliases,
//! `eval` and `sh -c`.

use std::cell::Cell;
use std::collections::HashMap;
use std::rc::Rc;

use super::super::ast::ScriptNode;
use super::super::{CommandPosition, ShellWord, read};
use super::calls::PreparedCall;
use super::state::{ScriptState, VariableValue};
use super::{ScriptWalker, SourceText, StandardInput};

struct FunctionDefinition {
    body: Rc<ScriptNode>,
    source: SourceText,
    /// Defined on every way to what follows it.
    certain: bool,
    /// How many were defined before it.
    index: usize,
    walked: Cell<bool>,
}

/// The functions a shell knows.
#[derive(Default)]
pub(super) struct KnownFunctions {
    named: HashMap<String, Vec<Rc<FunctionDefinition>>>,
    /// In the order of the script.
    defined: Vec<Rc<FunctionDefinition>>,
    /// Any of this many first may no longer be what its name means.
    doubtful: usize,
    /// A loop defines one that its body may meet before it is read.
    pub(super) ahead: bool,
}

impl KnownFunctions {
    pub(super) fn contains(&self, name: &str) -> bool {
        self.named.contains_key(name)
    }

    /// From here on no function certainly is what its name means.
    pub(super) fn doubt(&mut self) {
        self.doubtful = self.defined.len();
    }
}

impl ScriptWalker {
    /// Whether the name of a program may mean something else here.
    pub(super) fn shadows(&self, program: &str) -> bool {
        self.functions.ahead
            || self.functions.contains(program)
            || self.aliases.contains_key(program)
    }

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

    /// Bodies no call was seen of: something that is not understood may call.
    pub(super) fn functions_never_called(&mut self) {
        let mut index = 0;
        // A body may define further ones.
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

    /// Whether the program was certainly a function.
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
        // It may return early, and its locals end here.
        self.state.perhaps_since(&mark);
        self.state.positional = positional;
        self.state.arguments_given = given;
        certain
    }

    pub(super) fn in_function(&self) -> bool {
        !self.calls.is_empty()
    }

    /// An alias and the rest of its command, read as the shell would. It may
    /// also not be in force, so the command itself is looked at as well.
    pub(super) fn alias(&mut self, source: &SourceText, name: &str, rest: &str, plain: bool) {
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
            walker.text(source, &format!("{value} {rest}"))
        });
        self.calls.pop();
        self.aliases.extend(hidden);
    }

    /// A text read as a script by this shell.
    pub(super) fn text(&mut self, source: &SourceText, text: &str) {
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

    /// A text read by a shell of its own, which knows nothing of this one's
    /// variables and functions.
    pub(super) fn other_shell(
        &mut self,
        source: &SourceText,
        text: &str,
        args: Option<Vec<ShellWord>>,
        plain: bool,
    ) {
        let mut state = ScriptState::default();
        state.untrack();
        // It has the environment that this shell hands down, and no more.
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
        self.text(source, text);
        self.functions_never_called();
        self.calls = calls;
        self.aliases = aliases;
        self.functions = functions;
        self.state = state;
    }
}
