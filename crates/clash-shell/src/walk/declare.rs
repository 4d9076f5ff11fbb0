//! Builtins that set variables by name: `export`, `declare`, `read`, `unset`.

use super::super::ShellWord;
use super::super::inert::{prints_only, reads_only};
use super::super::read::is_name;
use super::state::VariableValue;
use super::{ScriptWalker, SourceText};

impl ScriptWalker {
    /// Applies `export`, `declare`, `typeset`, `local` and `readonly`. An unknown name, and
    /// flags such as `-i` that evaluate the value, add an opaque command.
    pub(super) fn declare(&mut self, source: &SourceText, program: &str, args: &[ShellWord]) {
        let mut odd = false;
        let mut frozen = program == "readonly";
        let mut functions = false;
        let mut exports = program == "export";
        for word in args {
            let prefix = word.prefix();
            if let Some(flags) = word.known().and_then(|w| w.strip_prefix(['-', '+'])) {
                // Integer variables evaluate their value, references name another
                // variable, and case flags change the value.
                odd |= flags.contains(['i', 'n', 'l', 'u', 'c']);
                frozen |= flags.contains('r');
                exports |= flags.contains('x');
                functions |= flags.contains(['f', 'F']);
                continue;
            }
            let (name, value) = match prefix.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (prefix, None),
            };
            let append = name.ends_with('+');
            let name = name.trim_end_matches('+').to_owned();
            if functions && value.is_none() {
                continue;
            }
            if !is_name(&name) || (value.is_none() && word.known().is_none()) {
                self.state.untrack();
                self.cannot_see(source, "it sets a variable that is not known");
                continue;
            }
            let given = match (value, word) {
                (Some(value), ShellWord::Known(_)) if !append => ShellWord::Known(value.to_owned()),
                _ => ShellWord::Unknown,
            };
            if exports {
                self.state.export(&name, given.known());
            }
            if value.is_some() || program != "export" {
                self.steering(source, &name, &given);
                let value = match given {
                    // Outside a function `local` fails.
                    _ if program == "local" && !self.in_function() => VariableValue::Unknown,
                    ShellWord::Known(text) if value.is_some() => VariableValue::Known(text),
                    _ => VariableValue::Unknown,
                };
                self.state.set(&name, value);
            } else {
                // Its present value now reaches programs.
                self.steering(source, &name, &ShellWord::Unknown);
            }
            if frozen {
                self.state.freeze(&name);
            }
        }
        if odd {
            self.state.untrack();
            self.cannot_see(source, "it declares a variable that evaluates its value");
        }
    }

    /// Applies a builtin that sets variables by name: they are unknown afterwards. A name
    /// that may have a subscript adds an opaque command.
    pub(super) fn set_by(&mut self, source: &SourceText, program: &str, args: &[ShellWord]) {
        let names: Vec<&str> = match program {
            "printf" => match args {
                [ShellWord::Known(v), name, ..] if v == "-v" => vec![name.known().unwrap_or("[")],
                [ShellWord::Known(v), ..] if v.starts_with("-v") => vec!["["],
                [first, ..] if !prints_only(std::slice::from_ref(first)) => vec!["["],
                _ => return,
            },
            "wait" if !args.iter().any(|w| w.known().is_none_or(|w| w.starts_with("-p"))) => return,
            "read" | "mapfile" | "readarray" if !reads_only(args) => vec!["["],
            "mapfile" | "readarray" if args.iter().any(|w| w.prefix().starts_with("-C")) => {
                vec!["["]
            }
            "read" | "mapfile" | "readarray" => args.iter().filter_map(ShellWord::known).collect(),
            _ => args.iter().map(|word| word.known().unwrap_or("[")).collect(),
        };
        if names.iter().any(|name| name.contains('[')) {
            self.state.untrack();
            return self.cannot_see(source, "it evaluates a subscript");
        }
        if program == "unset" {
            // Without a flag, `unset` may remove a function.
            self.functions.doubt();
        }
        for name in names.into_iter().filter(|name| is_name(name)) {
            self.steering(source, name, &ShellWord::Unknown);
            self.state.set(name, VariableValue::Unknown);
        }
        if matches!(program, "mapfile" | "readarray") {
            self.state.set("MAPFILE", VariableValue::Unknown);
        }
    }
}
