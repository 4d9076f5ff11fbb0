//! Programs that run the program behind their options: a table, and `env`.

use super::super::ShellWord;
use super::options::{OptionTable, TakenOptions, without_dashes};
use super::{RunnerCommands, STARTS_SHELL, UNKNOWN_OPTION, UNKNOWN_PROGRAM};

/// One row: a program that runs another one.
struct WrapperProgram {
    name: &'static str,
    /// It does nothing but run the program behind its options.
    transparent: bool,
    options: OptionTable,
    /// Words between the options and the program.
    skips: usize,
}

const fn row(
    name: &'static str,
    transparent: bool,
    flags: &'static str,
    valued: &'static str,
    long: &'static [&'static str],
    long_valued: &'static [&'static str],
    skips: usize,
) -> WrapperProgram {
    let options = OptionTable { flags, valued, long, long_valued };
    WrapperProgram { name, transparent, options, skips }
}

#[rustfmt::skip]
const WRAPPERS: &[WrapperProgram] = &[
    row("nice", true, "", "n", &[], &["adjustment"], 0),
    row("ionice", true, "t", "cn", &["ignore"], &["class", "classdata"], 0),
    row("nohup", true, "", "", &[], &[], 0),
    row("time", true, "apqv", "fo", &["append", "portability", "verbose", "quiet"], &["format", "output"], 0),
    row("timeout", true, "fpv", "ks", &["foreground", "preserve-status", "verbose"], &["kill-after", "signal"], 1),
    row("stdbuf", true, "", "ioe", &[], &["input", "output", "error"], 0),
    row("setsid", true, "cfw", "", &["ctty", "fork", "wait"], &[], 0),
    row("chrt", true, "abdfioRrv", "DPT", &["all-tasks", "batch", "deadline", "fifo", "idle", "other", "rr", "reset-on-fork", "verbose"], &["sched-deadline", "sched-period", "sched-runtime"], 1),
    row("taskset", true, "ac", "", &["all-tasks", "cpu-list"], &[], 1),
    row("busybox", false, "", "", &[], &[], 0),
    row("toybox", false, "", "", &[], &[], 0),
    row("sudo", false, "ABEHKPSVbiklnsv", "CDRTUghprtu", &["askpass", "background", "preserve-env", "set-home", "login", "non-interactive", "preserve-groups", "stdin", "shell", "reset-timestamp", "bell"], &["chdir", "chroot", "group", "host", "prompt", "role", "type", "user", "command-timeout", "close-from", "other-user"], 0),
    row("doas", false, "Lns", "Cu", &[], &[], 0),
    row("unshare", false, "CTUfimnpru", "GRSw", &["fork", "map-root-user", "map-current-user", "keep-caps", "mount", "uts", "ipc", "net", "pid", "user", "cgroup", "time", "mount-proc", "kill-child", "map-auto"], &["wd", "root", "setuid", "setgid", "propagation", "setgroups"], 0),
    row("nsenter", false, "CTUaFimnpru", "GSt", &["all", "mount", "uts", "ipc", "net", "pid", "user", "cgroup"], &["target", "setuid", "setgid"], 0),
    row("setpriv", false, "", "", &["no-new-privs", "clear-groups", "keep-groups", "init-groups"], &["reuid", "regid", "groups", "bounding-set", "inh-caps"], 0),
    row("strace", false, "CcdDfFhiknqrtTvVwxyYzZ", "abeEIoOpPsSuUX", &["follow-forks"], &["trace", "output"], 0),
    row("ltrace", false, "bcCfhiLrStttV", "aAeFlnopsux", &[], &[], 0),
    row("fakeroot", false, "", "", &[], &[], 0),
    row("unbuffer", false, "p", "", &[], &[], 0),
    row("catchsegv", false, "", "", &[], &[], 0),
    row("valgrind", false, "qv", "", &[], &["tool", "leak-check", "error-exitcode", "log-file", "suppressions"], 0),
    row("chroot", false, "", "", &["skip-chdir"], &["userspec", "groups"], 1),
    row("setarch", false, "BFILRSTXZv", "", &[], &[], 1),
    row("linux32", false, "R", "", &[], &[], 0),
    row("linux64", false, "R", "", &[], &[], 0),
    row("numactl", false, "", "CNmi", &[], &["cpunodebind", "membind", "interleave", "physcpubind"], 0),
    row("eatmydata", false, "", "", &[], &[], 0),
    row("faketime", false, "f", "", &[], &[], 1),
    row("xvfb-run", false, "a", "ensf", &["auto-servernum"], &["server-args", "server-num"], 0),
    row("dbus-run-session", false, "", "", &[], &[], 0),
    row("rlwrap", false, "", "", &[], &[], 0),
    row("caffeinate", false, "dimsu", "tw", &[], &[], 0),
    row("systemd-run", false, "dGPqrSt", "EHMpu", &["user", "scope", "pty", "pipe", "wait", "collect", "quiet", "same-dir"], &["unit", "property", "setenv", "slice", "uid", "gid"], 0),
    row("systemd-inhibit", false, "", "", &[], &["what", "who", "why", "mode"], 0),
];

/// The command that a program of the table runs; `None` for other programs.
pub(super) fn look_through_wrapper(name: &str, args: &[ShellWord]) -> Option<RunnerCommands> {
    WRAPPERS.iter().find(|wrapper| wrapper.name == name).map(|wrapper| wrapper.through(args))
}

impl WrapperProgram {
    /// The command behind the options. `sudo` and `doas` may also start a shell and set
    /// variables.
    fn through(&self, args: &[ShellWord]) -> RunnerCommands {
        let mut through =
            RunnerCommands { transparent: self.transparent, ..RunnerCommands::new(self.name) };
        let becomes_user = matches!(self.name, "sudo" | "doas");
        let mut args = args;
        loop {
            if let [ShellWord::Known(first), rest @ ..] = args
                && self.name == "nice"
                && is_niceness(first)
            {
                args = rest;
                continue;
            }
            let (found, rest) = match self.options.take(args) {
                TakenOptions::Operand => break,
                TakenOptions::Options(found, rest) => (found, rest),
                TakenOptions::Unknown => return self.hide_program(args, through),
            };
            for (name, value) in found {
                match name.as_str() {
                    "D" | "chdir" | "wd" if self.name != "chrt" => through.directory = value,
                    "s" | "i" | "shell" | "login" if becomes_user => {
                        through = through.hidden(STARTS_SHELL);
                    }
                    "p" | "pid" if self.name == "ionice" => return through,
                    _ => {}
                }
            }
            args = rest;
        }
        args = without_dashes(args);
        if becomes_user {
            args = take_variables(args, &mut through);
        }
        let (skipped, program) = args.split_at(self.skips.min(args.len()));
        if !skipped.iter().all(ShellWord::is_one) {
            return through.hidden(UNKNOWN_PROGRAM);
        }
        through.program(program)
    }

    /// `timeout "$LIMIT" cmd`: a word that may be an option or the first operand
    /// hides where the program is.
    fn hide_program(&self, args: &[ShellWord], through: RunnerCommands) -> RunnerCommands {
        match args.first() {
            Some(ShellWord::Known(_)) | None => through.hidden(UNKNOWN_OPTION),
            Some(word) if word.is_one() && self.skips > 0 => {
                through.program(args.get(self.skips..).unwrap_or_default()).hidden(UNKNOWN_OPTION)
            }
            Some(_) => through.hidden(UNKNOWN_PROGRAM),
        }
    }
}

/// True for a niceness as an option: `-10`, and `--10` for minus ten.
fn is_niceness(word: &str) -> bool {
    let number = word.strip_prefix('-').map(|number| number.trim_start_matches(['-', '+']));
    number.is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
}

/// Takes `NAME=value` words in front of a program, and gives the words behind them.
fn take_variables<'w>(args: &'w [ShellWord], through: &mut RunnerCommands) -> &'w [ShellWord] {
    let mut args = args;
    while let Some((word, rest)) = args.split_first() {
        let Some((name, value)) = word.prefix().split_once('=') else { break };
        let value = match word {
            ShellWord::Known(_) => ShellWord::Known(value.to_owned()),
            _ => ShellWord::Unknown,
        };
        through.variables.push((name.to_owned(), value));
        args = rest;
    }
    args
}

/// The command of `env`, with its variables and directory. Without a command it only
/// prints.
pub(super) fn env(args: &[ShellWord]) -> RunnerCommands {
    const OPTIONS: OptionTable = OptionTable {
        flags: "i0v",
        valued: "uCS",
        long: &["ignore-environment", "null", "debug", "list-signal-handling"],
        long_valued: &["unset", "chdir", "split-string"],
    };
    const SIGNALS: &[&str] = &["--block-signal", "--default-signal", "--ignore-signal"];
    let mut through = RunnerCommands::transparent("env");
    let mut args = args.to_vec();
    let mut splits = 0;
    loop {
        let first = args.first().and_then(ShellWord::known).unwrap_or_default();
        if first == "-" || first.split('=').next().is_some_and(|name| SIGNALS.contains(&name)) {
            args.remove(0);
            continue;
        }
        let (found, rest) = match OPTIONS.take(&args) {
            TakenOptions::Operand => break,
            TakenOptions::Options(found, rest) => (found, rest.to_vec()),
            TakenOptions::Unknown => match args.first() {
                // `env X="$y" cmd`
                Some(word) if word.known().is_none() && word.prefix().contains('=') => break,
                Some(word) if word.known().is_none() => return through.hidden(UNKNOWN_PROGRAM),
                _ => return through.hidden(UNKNOWN_OPTION),
            },
        };
        args = rest;
        for (name, value) in found {
            match (name.as_str(), value) {
                ("C" | "chdir", value) => through.directory = value,
                ("S" | "split-string", Some(ShellWord::Known(text))) if splits < 8 => {
                    splits += 1;
                    // Only a text that splits at blanks: quotes, escapes and variables
                    // have rules of their own.
                    if text.contains(['\\', '"', '\'', '$', '#']) {
                        return through.hidden("it splits a text that is not plain");
                    }
                    let words = text.split_ascii_whitespace();
                    args.splice(0..0, words.map(|w| ShellWord::Known(w.to_owned())));
                }
                ("S" | "split-string", _) => return through.hidden(UNKNOWN_PROGRAM),
                _ => {}
            }
        }
    }
    let rest = take_variables(without_dashes(&args), &mut through);
    match rest.first() {
        Some(word) if word.known().is_none() => through.program(rest).hidden(UNKNOWN_PROGRAM),
        _ => through.program(rest),
    }
}
