//! Builtins that change the directory, evaluate text, or change how the shell reads
//! later lines. Builtins that set variables are in [`super::declare`].

use super::super::ast::WordPart;
use super::super::read::RESERVED;
use super::super::runners::{
    InnerCommand, RunnerCommands, UNKNOWN_OPTION, UNKNOWN_PROGRAM, without_dashes,
};
use super::super::{CommandDirectory, ShellWord, all_known};
use super::calls::PreparedCall;
use super::{NameLookup, ScriptWalker, SourceText};

const READS: &str = "it changes how the shell reads";
const MEANS: &str = "it changes what later words mean";
const UNKNOWN_TEXT: &str = "it evaluates a text that is not known";

#[rustfmt::skip]
const BUILTINS: &[&str] = &[
    ".", ":", "[", "alias", "bg", "bind", "break", "builtin", "caller", "cd", "command", "compgen",
    "complete", "compopt", "continue", "declare", "dirs", "disown", "echo", "enable", "eval",
    "exec", "exit", "export", "false", "fc", "fg", "getopts", "hash", "help", "history", "jobs",
    "kill", "let", "local", "logout", "mapfile", "popd", "printf", "pushd", "pwd", "read",
    "readarray", "readonly", "return", "set", "shift", "shopt", "source", "suspend", "test",
    "times", "trap", "true", "type", "typeset", "ulimit", "umask", "unalias", "unset", "wait",
];

pub(super) fn is_builtin(name: &str) -> bool {
    BUILTINS.binary_search(&name).is_ok()
}

/// True for builtins that a POSIX shell finds before a function of the same name.
pub(super) fn is_special(name: &str) -> bool {
    const SPECIAL: &[&str] = &[
        ".", ":", "break", "continue", "eval", "exec", "exit", "export", "readonly", "return",
        "set", "shift", "source", "times", "trap", "unset",
    ];
    SPECIAL.contains(&name)
}

impl ScriptWalker {
    /// Applies the changes of a builtin to the state, and returns the commands it runs;
    /// `None` if it runs none. Effects that the analysis does not follow add an opaque
    /// command.
    pub(super) fn builtin(
        &mut self,
        source: &SourceText,
        program: &str,
        call: &PreparedCall,
    ) -> Option<RunnerCommands> {
        let args = call.words.get(1..).unwrap_or_default();
        match program {
            "cd" => self.move_to(args),
            "pushd" | "popd" => match args {
                [to] if program == "pushd" && !to.prefix().starts_with(['+', '-']) => {
                    self.move_to(args);
                }
                _ => self.state.cwd = CommandDirectory::Unknown,
            },
            "export" | "declare" | "typeset" | "local" | "readonly" => {
                self.declare(source, program, args);
            }
            "read" | "mapfile" | "readarray" | "getopts" | "unset" | "wait" | "printf" => {
                self.set_by(source, program, args);
            }
            "[" | "test" => self.test_builtin(source, args),
            "let" => {
                for word in args {
                    self.evaluate_number(source, word);
                }
            }
            "set" => self.set_options(source, args),
            "shift" => self.state.positional = None,
            "shopt" => self.shell_options(source, args),
            "enable" | "bind" | "complete" | "fc" | "history" | "compgen" => {
                self.cannot_see(source, MEANS);
            }
            "hash" if args.iter().any(|w| w.known() != Some("-r")) => {
                self.cannot_see(source, MEANS);
            }
            "alias" => self.define_aliases(source, args),
            "trap" => return self.trap(args),
            "." | "source" => {
                self.anything_may_be_set();
                return Some(RunnerCommands::transparent("source").hidden("it runs a script file"));
            }
            "eval" => return Some(self.eval(args)),
            "command" | "builtin" | "exec" => return Some(prefix(program, args)),
            _ => {}
        }
        None
    }

    /// Unknown code runs in this shell: it may set any variable, function or alias.
    pub(super) fn anything_may_be_set(&mut self) {
        self.state.untrack();
        self.functions.doubt();
    }

    /// The text of `eval`, if it is known. Otherwise any variable may be set.
    fn eval(&mut self, args: &[ShellWord]) -> RunnerCommands {
        let through = RunnerCommands::transparent("eval");
        match all_known(without_dashes(args)) {
            Some(words) => through.running(InnerCommand::Eval(words.join(" "))),
            None => {
                self.anything_may_be_set();
                through.hidden(UNKNOWN_TEXT)
            }
        }
    }

    /// Adds an opaque command if `-v` or `-R` may evaluate a subscript.
    fn test_builtin(&mut self, source: &SourceText, args: &[ShellWord]) {
        let evaluates = args.windows(2).any(|pair| {
            let [operator, operand] = pair else { return false };
            matches!(operator.known(), Some("-v" | "-R"))
                && operand.known().is_none_or(|name| name.contains('['))
        });
        if evaluates {
            self.cannot_see(source, "it evaluates a subscript");
        }
    }

    /// `shopt`: adds an opaque command for options that change how the shell reads.
    fn shell_options(&mut self, source: &SourceText, args: &[ShellWord]) {
        #[rustfmt::skip]
        const PLAIN: &[&str] = &[
            "-s", "-u", "-q", "-p", "-o", "nullglob", "globstar", "extglob", "dotglob",
            "expand_aliases", "nocaseglob", "failglob", "inherit_errexit", "lastpipe",
            "nocasematch", "globasciiranges", "checkwinsize", "pipefail", "errexit", "nounset",
            "histappend", "cmdhist",
        ];
        let plain = |word: &ShellWord| word.known().is_some_and(|word| PLAIN.contains(&word));
        if !args.iter().all(plain) {
            self.cannot_see(source, READS);
        }
    }

    /// `cd`: the new directory, or an unknown one for `cd -` and if the script sets `HOME`
    /// or `CDPATH`.
    fn move_to(&mut self, args: &[ShellWord]) {
        let mut args = args;
        while let [ShellWord::Known(option), rest @ ..] = args
            && matches!(option.as_str(), "-L" | "-P" | "-e" | "-@" | "--")
        {
            args = rest;
        }
        self.state.cwd = match args {
            [] if self.state.inherited("HOME") => CommandDirectory::Home(String::new()),
            [to] if to.known() != Some("-") && self.state.inherited("CDPATH") => {
                self.state.cwd.join(to)
            }
            _ => CommandDirectory::Unknown,
        };
    }

    /// One word of `let`: arithmetic. An unknown word adds an opaque command, and any
    /// variable may be set.
    fn evaluate_number(&mut self, source: &SourceText, word: &ShellWord) {
        let Some(text) = word.known() else {
            self.state.untrack();
            return self.cannot_see(source, "it evaluates a value that is not known");
        };
        let part = WordPart::Text(text.to_owned());
        self.arithmetic(source, std::slice::from_ref(&part));
    }

    /// `set`: options of the shell, and the positional parameters behind them. Options that
    /// change how the shell reads add an opaque command.
    fn set_options(&mut self, source: &SourceText, args: &[ShellWord]) {
        #[rustfmt::skip]
        const PLAIN: &[&str] = &[
            "allexport", "braceexpand", "errexit", "errtrace", "functrace", "hashall", "monitor",
            "noclobber", "noglob", "nolog", "notify", "nounset", "physical", "pipefail", "verbose",
            "xtrace",
        ];
        let mut rest = args;
        while let Some((word, after)) = rest.split_first() {
            let option = word.known().and_then(|word| word.strip_prefix(['-', '+']));
            let Some(flags) = option.filter(|flags| !flags.is_empty() && *flags != "-") else {
                let unclear = word.known().is_none() && word.prefix().is_empty();
                if unclear {
                    self.cannot_see(source, READS);
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
            // `-p` is the privileged mode, `-H` gives `!` a meaning, `-t` ends after
            // one command.
            if !fine || flags.contains(['p', 'H', 't']) {
                self.cannot_see(source, READS);
            }
            if flags.contains('a') || named == Some("allexport") {
                self.state.exports_all |= word.prefix().starts_with('-');
            }
            if flags.contains('e') || named == Some("errexit") {
                self.state.errexit = word.prefix().starts_with('-') && !self.in_function();
            }
        }
    }

    /// `alias`: an alias with an unknown value is stored without one.
    fn define_aliases(&mut self, source: &SourceText, args: &[ShellWord]) {
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
            if RESERVED.contains(&name) || name == "]]" {
                self.cannot_see(source, "it changes what a reserved word means");
            }
            self.aliases.insert(name.to_owned(), Some(value.to_owned()));
        }
    }

    /// The command of `trap`; `None` if it resets or prints. A signal may come at any time,
    /// so any variable may be set from here on.
    fn trap(&mut self, args: &[ShellWord]) -> Option<RunnerCommands> {
        let (action, signals) = without_dashes(args).split_first()?;
        let inner = match action.known() {
            Some("-" | "" | "-l" | "-p") => return None,
            // `trap INT` resets.
            Some(_) if signals.is_empty() => return None,
            Some(text) => InnerCommand::Trap(text.to_owned()),
            None => InnerCommand::Hidden(UNKNOWN_TEXT),
        };
        // A trap on exit runs last, so no later command sees its changes.
        if !signals.iter().all(|signal| matches!(signal.known(), Some("EXIT" | "0"))) {
            self.anything_may_be_set();
        }
        Some(RunnerCommands::transparent("trap").running(inner))
    }
}

/// `command`, `builtin` and `exec` with the command they run.
fn prefix(program: &str, args: &[ShellWord]) -> RunnerCommands {
    let (by, lookup) = match program {
        "command" => ("command", NameLookup::NoFunctions),
        "builtin" => ("builtin", NameLookup::NoFunctions),
        _ => ("exec", NameLookup::Programs),
    };
    let through = RunnerCommands::transparent(by);
    let mut args = args;
    while let [word, rest @ ..] = args {
        let Some(option) = word.known() else {
            return through.hidden(UNKNOWN_PROGRAM);
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
                return through.hidden(UNKNOWN_OPTION);
            }
            _ => break,
        }
    }
    if args.is_empty() {
        return through;
    }
    through.running(InnerCommand::Command { words: args.to_vec(), lookup })
}
