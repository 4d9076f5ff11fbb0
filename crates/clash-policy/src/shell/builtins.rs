//! What the shell does itself: which builtins set variables, move, or evaluate.

use super::lex::is_name;
use super::programs::program_name;
use super::state::Value;
use super::walk::{Call, Lookup, Source, Stdin, Walker};
use super::wrappers::{Inner, Through};
use super::{Command, Cwd, Direction, Word};

const BUILTINS: &[&str] = &[
    ".",
    ":",
    "[",
    "alias",
    "bg",
    "bind",
    "break",
    "builtin",
    "caller",
    "cd",
    "command",
    "compgen",
    "complete",
    "compopt",
    "continue",
    "declare",
    "dirs",
    "disown",
    "echo",
    "enable",
    "eval",
    "exec",
    "exit",
    "export",
    "false",
    "fc",
    "fg",
    "getopts",
    "hash",
    "help",
    "history",
    "jobs",
    "kill",
    "let",
    "local",
    "logout",
    "mapfile",
    "popd",
    "printf",
    "pushd",
    "pwd",
    "read",
    "readarray",
    "readonly",
    "return",
    "set",
    "shift",
    "shopt",
    "source",
    "suspend",
    "test",
    "times",
    "trap",
    "true",
    "type",
    "typeset",
    "ulimit",
    "umask",
    "unalias",
    "unset",
    "wait",
];

pub(super) fn is_builtin(name: &str) -> bool {
    BUILTINS.binary_search(&name).is_ok()
}

/// Builtins a POSIX shell finds before a function of the same name.
pub(super) fn is_special(name: &str) -> bool {
    const SPECIAL: &[&str] = &[
        ".", ":", "break", "continue", "eval", "exec", "exit", "export", "readonly", "return",
        "set", "shift", "source", "times", "trap", "unset",
    ];
    SPECIAL.contains(&name)
}

/// Whether a command starts no program of its own: a builtin that cannot
/// evaluate what it is given, or a wrapper whose commands are all in the list.
/// Without a rule of its own it needs no decision of its own either: what it
/// touches, the room's shell touches.
pub fn is_inert(command: &Command) -> bool {
    // Take whatever the shell makes of their words as text.
    const ANY_WORDS: &[&str] = &[
        ":", "bg", "break", "cd", "continue", "dirs", "disown", "echo", "exit", "false", "fg",
        "jobs", "kill", "popd", "pushd", "pwd", "return", "set", "shift", "times", "true", "type",
        "ulimit", "umask",
    ];
    // Evaluate a subscript in a name, so only words that are known to have none.
    const KNOWN_WORDS: &[&str] = &[
        "alias", "declare", "export", "getopts", "hash", "local", "readonly", "shopt", "trap",
        "typeset", "unalias", "unset", "wait",
    ];
    if command.opaque.is_some() {
        return false;
    }
    let Some((first, rest)) = command.words.split_first() else { return true };
    if command.transparent {
        return first.known().and_then(program_name).is_some();
    }
    let Some(program) = first.known() else { return false };
    match program {
        "[" | "test" => compares_only(rest),
        "printf" => prints_only(rest),
        "read" | "mapfile" | "readarray" => reads_only(rest),
        _ if ANY_WORDS.contains(&program) => true,
        _ if KNOWN_WORDS.contains(&program) => rest.iter().all(|word| {
            // A value behind a plain name is only a value.
            let prefix = word.prefix();
            let name = prefix.split_once('=').map_or(prefix, |(name, _)| name);
            let assigns = prefix.contains('=') && is_name(name.trim_end_matches('+'));
            (word.known().is_some() && !name.contains('[')) || (assigns && word.is_one())
        }),
        _ => false,
    }
}

/// Only `-v` and `-R` evaluate. With a fixed number of words the operator is in
/// a known place.
fn compares_only(words: &[Word]) -> bool {
    const BINARY: &[&str] =
        &["=", "==", "!=", "<", ">", "-eq", "-ne", "-lt", "-le", "-gt", "-ge", "-nt", "-ot", "-ef"];
    let words = match words {
        [rest @ .., Word::Known(end)] if end == "]" => rest,
        words => words,
    };
    if words.iter().all(|word| word.known().is_some()) {
        return !words.iter().any(|word| matches!(word.known(), Some("-v" | "-R")));
    }
    if !words.iter().all(Word::is_one) {
        return false;
    }
    let words = match words {
        [Word::Known(not), rest @ ..] if not == "!" => rest,
        words => words,
    };
    words.split(|word| matches!(word.known(), Some("-a" | "-o"))).all(|test| match test {
        [_] => true,
        [Word::Known(operator), _] => !matches!(operator.as_str(), "-v" | "-R"),
        [_, Word::Known(operator), _] => BINARY.contains(&operator.as_str()),
        _ => false,
    })
}

fn prints_only(words: &[Word]) -> bool {
    words.first().is_none_or(|format| {
        let prefix = format.prefix();
        let dashes = format.known() == Some("--");
        dashes || format.known() == Some("-") || (!prefix.is_empty() && !prefix.starts_with('-'))
    })
}

fn reads_only(words: &[Word]) -> bool {
    let mut value = false;
    words.iter().all(|word| {
        let was_value = std::mem::take(&mut value);
        match word {
            Word::Known(text) => {
                let option = text.starts_with('-') && text.len() > 1;
                value = option && text.ends_with(['p', 'd', 't', 'n', 'N', 'u', 'i']);
                was_value || !text.contains('[')
            }
            Word::Home(_) | Word::Partial(_) => was_value,
            Word::Unknown => false,
        }
    })
}

/// What a command writes for the next one in a pipeline, if it is known.
pub(super) fn printed(command: &Command) -> Stdin {
    let plain = command.opaque.is_none()
        && command
            .redirections
            .iter()
            .all(|r| r.direction == Direction::HereDocument || !r.writes());
    if !plain {
        return Stdin::Unknown;
    }
    let known: Option<Vec<&str>> = command.words.iter().map(Word::known).collect();
    match known.as_deref() {
        Some(["echo", words @ ..])
            if words.iter().all(|w| !w.contains('\\') && !w.starts_with('-')) =>
        {
            Stdin::Text(format!("{}\n", words.join(" ")))
        }
        Some(["printf", text]) if !text.contains(['%', '\\']) => Stdin::Text((*text).to_owned()),
        Some(["printf", "%s" | "%s\\n", text]) => Stdin::Text((*text).to_owned()),
        Some(["cat"] | ["cat", "-"]) => match command.redirections.as_slice() {
            [one] if one.fd == Some(0) && one.file().is_none() => match &one.target {
                Word::Known(text) => Stdin::Text(text.clone()),
                _ => Stdin::Unknown,
            },
            _ => Stdin::Unknown,
        },
        _ => Stdin::Unknown,
    }
}

/// A directory reached from another.
pub(super) fn joined(from: &Cwd, to: &Word) -> Cwd {
    let path = match to {
        Word::Known(path) => path,
        Word::Home(rest) => return Cwd::Home(rest.clone()),
        _ => return Cwd::Unknown,
    };
    match from {
        _ if path.starts_with('/') => Cwd::Absolute(path.clone()),
        _ if path == "." => from.clone(),
        Cwd::Start => Cwd::Relative(path.clone()),
        Cwd::Relative(base) => Cwd::Relative(format!("{base}/{path}")),
        Cwd::Absolute(base) => Cwd::Absolute(format!("{base}/{path}")),
        Cwd::Home(base) => Cwd::Home(format!("{base}/{path}")),
        Cwd::Unknown => Cwd::Unknown,
    }
}

impl Walker {
    /// What a builtin changes, and what it runs.
    pub(super) fn builtin(
        &mut self,
        source: &Source,
        program: &str,
        call: &Call,
    ) -> Option<Through> {
        let args = call.words.get(1..).unwrap_or_default();
        let known: Option<Vec<&str>> = args.iter().map(Word::known).collect();
        match program {
            "cd" => self.move_to(args),
            "pushd" | "popd" => match args {
                [to] if program == "pushd" && !to.prefix().starts_with(['+', '-']) => {
                    self.move_to(args);
                }
                _ => self.state.cwd = Cwd::Unknown,
            },
            "export" | "declare" | "typeset" | "local" | "readonly" => {
                self.declare(source, program, args);
            }
            "read" | "mapfile" | "readarray" | "getopts" | "unset" | "wait" | "printf" => {
                self.set_by(source, program, args);
            }
            "[" | "test" => {
                let evaluates = args.windows(2).any(|pair| {
                    let [operator, operand] = pair else { return false };
                    matches!(operator.known(), Some("-v" | "-R"))
                        && operand.known().is_none_or(|name| name.contains('['))
                });
                if evaluates {
                    self.cannot_see(source, "it evaluates a subscript");
                }
            }
            "let" => {
                for word in args {
                    self.evaluate_number(source, word);
                }
            }
            "set" => self.set_options(source, args),
            "shift" => self.state.positional = None,
            "shopt" => {
                const PLAIN: &[&str] = &[
                    "-s",
                    "-u",
                    "-q",
                    "-p",
                    "-o",
                    "nullglob",
                    "globstar",
                    "extglob",
                    "dotglob",
                    "expand_aliases",
                    "nocaseglob",
                    "failglob",
                    "inherit_errexit",
                    "lastpipe",
                    "nocasematch",
                    "globasciiranges",
                    "checkwinsize",
                    "pipefail",
                    "errexit",
                    "nounset",
                    "histappend",
                    "cmdhist",
                ];
                let plain = known.is_some_and(|known| known.iter().all(|w| PLAIN.contains(w)));
                if !plain {
                    self.cannot_see(source, "it changes how the shell reads");
                }
            }
            "enable" | "bind" | "complete" | "fc" | "history" | "compgen" => {
                self.cannot_see(source, "it changes what later words mean");
            }
            "hash" if args.iter().any(|w| w.known() != Some("-r")) => {
                self.cannot_see(source, "it changes what later words mean");
            }
            "alias" => self.define_aliases(source, args),
            "trap" => return self.trap(source, args),
            "." | "source" => {
                self.state.untrack();
                self.unset_functions();
                let inner = vec![Inner::Hidden("it runs a script file")];
                return Some(Through { inner, transparent: true, ..Through::new("source") });
            }
            "eval" => {
                let args = match args {
                    [Word::Known(dashes), rest @ ..] if dashes == "--" => rest,
                    args => args,
                };
                let known: Option<Vec<&str>> = args.iter().map(Word::known).collect();
                let inner = match known {
                    Some(words) => Inner::Eval(words.join(" ")),
                    None => {
                        self.state.untrack();
                        self.unset_functions();
                        Inner::Hidden("it evaluates a text that is not known")
                    }
                };
                return Some(Through {
                    inner: vec![inner],
                    transparent: true,
                    ..Through::new("eval")
                });
            }
            "command" | "builtin" | "exec" => return Some(prefix(program, args)),
            _ => {}
        }
        None
    }

    fn move_to(&mut self, args: &[Word]) {
        let mut args = args;
        while let [Word::Known(option), rest @ ..] = args
            && matches!(option.as_str(), "-L" | "-P" | "-e" | "-@" | "--")
        {
            args = rest;
        }
        self.state.cwd = match args {
            [] if self.state.inherited("HOME") => Cwd::Home(String::new()),
            [to] if to.known() != Some("-") && self.state.inherited("CDPATH") => {
                joined(&self.state.cwd, to)
            }
            _ => Cwd::Unknown,
        };
    }

    fn declare(&mut self, source: &Source, program: &str, args: &[Word]) {
        let mut odd = false;
        let mut frozen = program == "readonly";
        let mut functions = false;
        for word in args {
            let prefix = word.prefix();
            if let Some(flags) = word.known().and_then(|w| w.strip_prefix(['-', '+'])) {
                // Integers evaluate, references name others, case changes values.
                odd |= flags.contains(['i', 'n', 'l', 'u', 'c']);
                frozen |= flags.contains('r');
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
                (Some(value), Word::Known(_)) if !append => Word::Known(value.to_owned()),
                _ => Word::Unknown,
            };
            if value.is_some() || program != "export" {
                self.steering(source, &name, &given);
                let value = match given {
                    // Outside a function `local` fails.
                    _ if program == "local" && !self.in_function() => Value::Unknown,
                    Word::Known(text) if value.is_some() => Value::Known(text),
                    _ => Value::Unknown,
                };
                self.state.set(&name, value);
            } else {
                // A value it already has now reaches programs.
                self.steering(source, &name, &Word::Unknown);
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

    /// Builtins that set the variables they are given the names of.
    fn set_by(&mut self, source: &Source, program: &str, args: &[Word]) {
        let names: Vec<&str> = match program {
            "printf" => match args {
                [Word::Known(v), name, ..] if v == "-v" => vec![name.known().unwrap_or("[")],
                [Word::Known(v), ..] if v.starts_with("-v") => vec!["["],
                [first, ..] if !prints_only(std::slice::from_ref(first)) => vec!["["],
                _ => return,
            },
            "wait" if !args.iter().any(|w| w.known().is_none_or(|w| w.starts_with("-p"))) => return,
            "read" | "mapfile" | "readarray" if !reads_only(args) => vec!["["],
            "mapfile" | "readarray" if args.iter().any(|w| w.prefix().starts_with("-C")) => {
                vec!["["]
            }
            "read" | "mapfile" | "readarray" => args.iter().filter_map(Word::known).collect(),
            _ => args.iter().map(|word| word.known().unwrap_or("[")).collect(),
        };
        if names.iter().any(|name| name.contains('[')) {
            self.state.untrack();
            return self.cannot_see(source, "it evaluates a subscript");
        }
        if program == "unset" && names.iter().any(|n| n.starts_with('-') && n.contains('f')) {
            self.unset_functions();
        }
        if program == "unset" {
            // Without a flag the name may be a function's.
            self.unset_functions();
        }
        for name in names.into_iter().filter(|name| is_name(name)) {
            // Reading into the separators splits nothing by itself.
            self.steering(source, name, &Word::Unknown);
            self.state.set(name, Value::Unknown);
        }
        if matches!(program, "mapfile" | "readarray") {
            self.state.set("MAPFILE", Value::Unknown);
        }
    }

    fn evaluate_number(&mut self, source: &Source, word: &Word) {
        let Some(text) = word.known() else {
            self.state.untrack();
            return self.cannot_see(source, "it evaluates a value that is not known");
        };
        let part = super::ast::Part::Text(text.to_owned());
        self.arithmetic(source, std::slice::from_ref(&part));
    }

    fn set_options(&mut self, source: &Source, args: &[Word]) {
        const PLAIN: &[&str] = &[
            "allexport",
            "braceexpand",
            "errexit",
            "errtrace",
            "functrace",
            "hashall",
            "monitor",
            "noclobber",
            "noglob",
            "nolog",
            "notify",
            "nounset",
            "physical",
            "pipefail",
            "verbose",
            "xtrace",
        ];
        let mut rest = args;
        while let Some((word, after)) = rest.split_first() {
            let option = word.known().and_then(|word| word.strip_prefix(['-', '+']));
            let Some(flags) = option.filter(|flags| !flags.is_empty() && *flags != "-") else {
                let unclear = word.known().is_none() && word.prefix().is_empty();
                if unclear {
                    self.cannot_see(source, "it changes how the shell reads");
                }
                let words = if option.is_some() { after } else { rest };
                return self.state.give_arguments(words);
            };
            rest = after;
            let mut named = None;
            if flags.contains('o')
                && let Some((name, after)) = rest.split_first()
            {
                named = Some(name.known().unwrap_or_default());
                rest = after;
            }
            let fine = flags.chars().all(|c| "abefhmoptuvxBCEHPT".contains(c))
                && named.is_none_or(|name| PLAIN.contains(&name));
            // `-p` changes whose rights it has, `-H` the meaning of `!`.
            if !fine || flags.contains(['p', 'H', 't']) {
                self.cannot_see(source, "it changes how the shell reads");
            }
            if flags.contains('e') || named == Some("errexit") {
                self.state.errexit = word.prefix().starts_with('-') && !self.in_function();
            }
        }
    }

    fn define_aliases(&mut self, source: &Source, args: &[Word]) {
        for word in args {
            let Some(text) = word.known() else {
                let name = word.prefix().split_once('=').map(|(name, _)| name.to_owned());
                match name {
                    Some(name) => {
                        self.aliases.insert(name, None);
                    }
                    None => self.cannot_see(source, "it defines an alias that is not known"),
                }
                continue;
            };
            if text.starts_with('-') {
                if text != "-p" && text != "--" {
                    self.cannot_see(source, "it defines an alias of a kind that is not known");
                }
                continue;
            }
            let Some((name, value)) = text.split_once('=') else { continue };
            const RESERVED: &[&str] = &[
                "!", "{", "}", "[[", "]]", "case", "coproc", "do", "done", "elif", "else", "esac",
                "fi", "for", "function", "if", "in", "select", "then", "time", "until", "while",
            ];
            if RESERVED.contains(&name) {
                self.cannot_see(source, "it changes what a reserved word means");
            }
            self.aliases.insert(name.to_owned(), Some(value.to_owned()));
        }
    }

    fn trap(&mut self, _source: &Source, args: &[Word]) -> Option<Through> {
        let args = match args {
            [Word::Known(dashes), rest @ ..] if dashes == "--" => rest,
            args => args,
        };
        let (action, signals) = args.split_first()?;
        let inner = match action.known() {
            Some("-" | "" | "-l" | "-p") => return None,
            // `trap INT` resets.
            Some(_) if signals.is_empty() => return None,
            Some(text) => Inner::Trap(text.to_owned()),
            None => Inner::Hidden("it evaluates a text that is not known"),
        };
        // At the end nothing follows that could see what it sets.
        if !signals.iter().all(|signal| matches!(signal.known(), Some("EXIT" | "0"))) {
            self.state.untrack();
            self.unset_functions();
        }
        Some(Through { inner: vec![inner], transparent: true, ..Through::new("trap") })
    }

    /// Whether giving a variable this value decides what programs run.
    pub(super) fn steers(
        &mut self,
        source: &Source,
        name: &str,
        value: &Word,
    ) -> Option<&'static str> {
        const STEERS: &str = "a variable is set that decides what programs run";
        const NAMES: &[&str] = &[
            "CDPATH",
            "ENV",
            "EXECIGNORE",
            "GCONV_PATH",
            "GLOBIGNORE",
            "HOSTALIASES",
            "IFS",
            "PATH",
            "PERL5DB",
            "PERL5LIB",
            "PERL5OPT",
            "PROMPT_COMMAND",
            "PS0",
            "PS1",
            "PS2",
            "PS4",
            "PYTHONHOME",
            "PYTHONSTARTUP",
            "RUBYLIB",
            "RUBYOPT",
            "SHELLOPTS",
            "TEXTDOMAIN",
            "TEXTDOMAINDIR",
            "ZDOTDIR",
            "JAVA_TOOL_OPTIONS",
            "NODE_PATH",
            "GIT_EXEC_PATH",
            "GIT_TEMPLATE_DIR",
            "RUSTC_WRAPPER",
            "RUSTC_WORKSPACE_WRAPPER",
        ];
        const STARTS: &[&str] = &["BASH", "DYLD_", "LD_", "GIT_CONFIG"];
        // Their value is a command for some program.
        const COMMANDS: &[&str] = &[
            "BROWSER",
            "EDITOR",
            "GIT_ASKPASS",
            "GIT_EDITOR",
            "GIT_EXTERNAL_DIFF",
            "GIT_PAGER",
            "GIT_PROXY_COMMAND",
            "GIT_SEQUENCE_EDITOR",
            "GIT_SSH",
            "GIT_SSH_COMMAND",
            "LESSCLOSE",
            "LESSOPEN",
            "MANPAGER",
            "PAGER",
            "SSH_ASKPASS",
            "SYSTEMD_PAGER",
            "VISUAL",
        ];
        if name == "PS4" {
            self.cannot_see(source, "it sets a text that the shell evaluates");
        }
        if name == "IFS" {
            // It only changes how expansions are split, which nothing is known of then.
            return None;
        }
        if name == "NODE_OPTIONS" {
            let loads = |text: &str| {
                ["-r", "require", "import", "loader", "inspect"].iter().any(|o| text.contains(o))
            };
            return value.known().is_none_or(loads).then_some(STEERS);
        }
        if NAMES.contains(&name) || STARTS.iter().any(|start| name.starts_with(start)) {
            return Some(STEERS);
        }
        if !COMMANDS.contains(&name) {
            return None;
        }
        match value {
            Word::Known(text) if text.is_empty() => None,
            Word::Known(text) => {
                let text = text.clone();
                let position = super::Position::Wrapper("environment");
                self.inside(position, |walker| {
                    walker.apart(|walker| walker.other_shell(source, &text, None, true));
                });
                None
            }
            _ => Some(STEERS),
        }
    }
}

/// `command`, `builtin` and `exec` with what they run.
fn prefix(program: &str, args: &[Word]) -> Through {
    let (by, lookup) = match program {
        "command" => ("command", Lookup::NoFunctions),
        "builtin" => ("builtin", Lookup::NoFunctions),
        _ => ("exec", Lookup::Programs),
    };
    let mut through = Through { transparent: true, ..Through::new(by) };
    let mut args = args;
    while let [word, rest @ ..] = args {
        let Some(option) = word.known() else {
            through.inner.push(Inner::Hidden("it runs a program that is not known"));
            return through;
        };
        match (by, option) {
            (_, "--") => {
                args = rest;
                break;
            }
            ("command", "-v" | "-V" | "-pv" | "-pV") => return through,
            ("command", "-p") | ("exec", "-c" | "-l" | "-cl" | "-lc") => args = rest,
            ("exec", "-a" | "-ca" | "-la") => args = rest.get(1..).unwrap_or_default(),
            _ if option.starts_with('-') && option.len() > 1 => {
                through.inner.push(Inner::Hidden("an option of a wrapper is not known"));
                return through;
            }
            _ => break,
        }
    }
    if !args.is_empty() {
        through.inner.push(Inner::Command { words: args.to_vec(), lookup });
    }
    through
}
