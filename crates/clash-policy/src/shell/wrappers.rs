//! Programs that run the program they are given.
//!
//! [`look_through`] finds what a command runs besides itself. It is data plus a
//! few programs with a syntax of their own; an option it does not know makes
//! what is behind it hidden, never skipped.

use super::walk::{Lookup, Stdin};
use super::{Word, elsewhere, git, runners};

/// What a command runs.
#[derive(Debug)]
pub(super) struct Through {
    pub(super) by: &'static str,
    pub(super) inner: Vec<Inner>,
    /// It does nothing else.
    pub(super) transparent: bool,
    pub(super) elsewhere: bool,
    /// It reads its standard input itself.
    pub(super) feeds: bool,
    /// Variables it sets for what it runs.
    pub(super) variables: Vec<(String, Word)>,
    /// The directory it runs that in, if it is another.
    pub(super) directory: Option<Word>,
}

#[derive(Debug)]
pub(super) enum Inner {
    Command {
        words: Vec<Word>,
        lookup: Lookup,
    },
    /// A script for another shell, which may know nothing beyond POSIX.
    Text {
        text: String,
        args: Option<Vec<Word>>,
        plain: bool,
    },
    /// A script for this shell.
    Eval(String),
    Trap(String),
    Hidden(&'static str),
}

pub(super) const UNKNOWN_PROGRAM: &str = "it runs a program that is not known";
pub(super) const UNKNOWN_OPTION: &str = "an option of a wrapper is not known";

impl Through {
    pub(super) fn new(by: &'static str) -> Self {
        Self {
            by,
            inner: Vec::new(),
            transparent: false,
            elsewhere: false,
            feeds: false,
            variables: Vec::new(),
            directory: None,
        }
    }

    pub(super) fn hidden(mut self, why: &'static str) -> Self {
        self.inner.push(Inner::Hidden(why));
        self
    }

    pub(super) fn program(mut self, words: &[Word]) -> Self {
        if !words.is_empty() {
            let words = words.to_vec();
            self.inner.push(Inner::Command { words, lookup: Lookup::Programs });
        }
        self
    }
}

/// The options of a program that runs another, up to that program.
struct Wrapper {
    name: &'static str,
    /// It does nothing but run what it is given.
    transparent: bool,
    /// Short options without a value, and with one.
    flags: &'static str,
    valued: &'static str,
    /// Long options without a value, and with one (or an optional `=value`).
    long: &'static [&'static str],
    long_valued: &'static [&'static str],
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
) -> Wrapper {
    Wrapper { name, transparent, flags, valued, long, long_valued, skips }
}

#[rustfmt::skip]
const WRAPPERS: &[Wrapper] = &[
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

pub(super) fn base_name(program: &str) -> &str {
    program.rsplit('/').next().unwrap_or(program)
}

/// What the command runs besides itself; `None` if it is no runner.
pub(super) fn look_through(words: &[Word], stdin: &Stdin) -> Option<Through> {
    let (program, args) = words.split_first()?;
    let name = base_name(program.known()?);
    if let Some(wrapper) = WRAPPERS.iter().find(|wrapper| wrapper.name == name) {
        return Some(wrapper.through(args));
    }
    match name {
        "env" => Some(env(args)),
        "git" => git::through(args),
        "find" | "gfind" => Some(runners::find(args)),
        "xargs" => Some(runners::xargs(args)),
        "parallel" => Some(runners::parallel(args)),
        "flock" => Some(runners::flock(args)),
        "watch" => Some(runners::watch(args)),
        "script" => Some(runners::script(args)),
        "su" | "runuser" => Some(runners::su(args)),
        "sh" | "bash" | "dash" | "ash" | "ksh" | "mksh" | "zsh" | "fish" | "rbash" => {
            Some(runners::shell(name, args, stdin))
        }
        "ssh" => elsewhere::ssh(args),
        "docker" | "podman" | "nerdctl" => elsewhere::container(args),
        "kubectl" | "oc" => elsewhere::kubectl(args),
        _ => None,
    }
}

/// One option as GNU programs read it.
pub(super) enum Taken {
    /// No option: the operands begin here.
    Operand,
    /// This many words, and the value of a short or long option by its name.
    Option(usize, Vec<(String, Option<Word>)>),
    Unknown,
}

/// Reads the option at the start of `args`. `+` in front of `valued` means the
/// value must be attached.
pub(super) fn option(
    args: &[Word],
    flags: &str,
    valued: &str,
    long: &[&str],
    long_valued: &[&str],
) -> Taken {
    let Some(first) = args.first() else { return Taken::Operand };
    let Some(text) = first.known() else { return Taken::Unknown };
    if let Some(name) = text.strip_prefix("--") {
        if name.is_empty() {
            return Taken::Operand;
        }
        let (name, value) = match name.split_once('=') {
            Some((name, value)) => (name, Some(Word::Known(value.to_owned()))),
            None => (name, None),
        };
        if long.contains(&name) {
            return Taken::Option(1, vec![(name.to_owned(), value)]);
        }
        if !long_valued.contains(&name) {
            return Taken::Unknown;
        }
        return match (value, args.get(1)) {
            (Some(value), _) => Taken::Option(1, vec![(name.to_owned(), Some(value))]),
            (None, Some(value)) if value.is_one() => {
                Taken::Option(2, vec![(name.to_owned(), Some(value.clone()))])
            }
            _ => Taken::Unknown,
        };
    }
    let Some(letters) = text.strip_prefix('-').filter(|letters| !letters.is_empty()) else {
        return Taken::Operand;
    };
    let mut found = Vec::new();
    for (at, letter) in letters.char_indices() {
        if flags.contains(letter) {
            found.push((letter.to_string(), None));
        } else if valued.contains(letter) {
            let attached = letters.get(at + letter.len_utf8()..).unwrap_or_default();
            if !attached.is_empty() {
                found.push((letter.to_string(), Some(Word::Known(attached.to_owned()))));
                return Taken::Option(1, found);
            }
            return match args.get(1) {
                Some(value) if value.is_one() => {
                    found.push((letter.to_string(), Some(value.clone())));
                    Taken::Option(2, found)
                }
                _ => Taken::Unknown,
            };
        } else {
            return Taken::Unknown;
        }
    }
    Taken::Option(1, found)
}

impl Wrapper {
    fn through(&self, args: &[Word]) -> Through {
        let mut through = Through { transparent: self.transparent, ..Through::new(self.name) };
        let mut args = args;
        loop {
            let legacy = |w: &str| {
                w.strip_prefix('-').is_some_and(|n| {
                    n.trim_start_matches(['-', '+']).bytes().all(|b| b.is_ascii_digit())
                        && n.len() > 1
                }) || w.len() == 2
                    && w.starts_with('-')
                    && w.ends_with(|c: char| c.is_ascii_digit())
            };
            if self.name == "nice" && args.first().and_then(Word::known).is_some_and(legacy) {
                args = args.get(1..).unwrap_or_default();
                continue;
            }
            match option(args, self.flags, self.valued, self.long, self.long_valued) {
                Taken::Operand => break,
                Taken::Option(count, found) => {
                    for (name, value) in found {
                        match name.as_str() {
                            "D" | "chdir" | "wd" if self.name != "chrt" => {
                                through.directory = value
                            }
                            // These start a shell of the user's.
                            "s" | "i" | "shell" | "login"
                                if matches!(self.name, "sudo" | "doas") =>
                            {
                                through = through.hidden("it starts a shell");
                            }
                            "p" | "pid" if self.name == "ionice" => return through,
                            _ => {}
                        }
                    }
                    args = args.get(count..).unwrap_or_default();
                }
                // `timeout "$LIMIT" cmd`: a word that may be an option or the first
                // operand hides where the program is.
                Taken::Unknown => {
                    return match args.first() {
                        Some(word) if word.is_one() && self.skips > 0 && word.known().is_none() => {
                            let rest = args.get(self.skips..).unwrap_or_default();
                            through.program(rest).hidden(UNKNOWN_OPTION)
                        }
                        Some(word) if word.known().is_none() => through.hidden(UNKNOWN_PROGRAM),
                        _ => through.hidden(UNKNOWN_OPTION),
                    };
                }
            }
        }
        if args.first().and_then(Word::known) == Some("--") {
            args = args.get(1..).unwrap_or_default();
        }
        if self.name == "sudo" || self.name == "doas" {
            args = variables(args, &mut through);
        }
        let skipped = args.get(..self.skips.min(args.len())).unwrap_or_default();
        if skipped.iter().any(|word| !word.is_one()) {
            return through.hidden(UNKNOWN_PROGRAM);
        }
        through.program(args.get(self.skips..).unwrap_or_default())
    }
}

/// `NAME=value` words in front of a program.
fn variables<'w>(args: &'w [Word], through: &mut Through) -> &'w [Word] {
    let mut args = args;
    while let Some((word, rest)) = args.split_first() {
        let Some((name, value)) = word.prefix().split_once('=') else { break };
        let value = match word {
            Word::Known(_) => Word::Known(value.to_owned()),
            _ => Word::Unknown,
        };
        through.variables.push((name.to_owned(), value));
        args = rest;
    }
    args
}

fn env(args: &[Word]) -> Through {
    let mut through = Through { transparent: true, ..Through::new("env") };
    let mut args = args.to_vec();
    let mut splits = 0;
    loop {
        let long = ["ignore-environment", "null", "debug", "list-signal-handling"];
        let optional = ["block-signal", "default-signal", "ignore-signal"];
        let first = args.first().and_then(Word::known).map(str::to_owned).unwrap_or_default();
        if first == "-"
            || optional
                .iter()
                .any(|o| first.strip_prefix("--").is_some_and(|f| f.split('=').next() == Some(o)))
        {
            args.remove(0);
            continue;
        }
        let taken = option(&args, "i0v", "uCS", &long, &["unset", "chdir", "split-string"]);
        match taken {
            Taken::Operand => break,
            Taken::Option(count, found) => {
                args.drain(..count.min(args.len()));
                for (name, value) in found {
                    match (name.as_str(), value) {
                        ("C" | "chdir", value) => through.directory = value,
                        ("S" | "split-string", Some(Word::Known(text))) if splits < 8 => {
                            splits += 1;
                            // Only what splits the same way everywhere.
                            if text.contains(['\\', '"', '\'', '$', '#']) {
                                return through.hidden("it splits a text that is not plain");
                            }
                            let words = text.split_ascii_whitespace();
                            args.splice(0..0, words.map(|w| Word::Known(w.to_owned())));
                        }
                        ("S" | "split-string", _) => return through.hidden(UNKNOWN_PROGRAM),
                        _ => {}
                    }
                }
            }
            Taken::Unknown => {
                return match args.first() {
                    // `env X="$y" cmd`
                    Some(word) if word.known().is_none() && word.prefix().contains('=') => {
                        let rest = variables(&args, &mut through).to_vec();
                        finish_env(through, &rest)
                    }
                    Some(word) if word.known().is_none() => through.hidden(UNKNOWN_PROGRAM),
                    _ => through.hidden(UNKNOWN_OPTION),
                };
            }
        }
    }
    if args.first().and_then(Word::known) == Some("--") {
        args.remove(0);
    }
    let rest = variables(&args, &mut through).to_vec();
    finish_env(through, &rest)
}

fn finish_env(through: Through, rest: &[Word]) -> Through {
    match rest.first() {
        Some(word) if word.known().is_none() => through.program(rest).hidden(UNKNOWN_PROGRAM),
        _ => through.program(rest),
    }
}
