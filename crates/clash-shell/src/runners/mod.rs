//! Programs that run other commands: `env`, `sudo`, `sh -c`, `xargs`, `ssh`, `git`.
//!
//! [`look_through`] finds the commands that a command runs. Most programs are rows of a
//! table; a few have a syntax of their own. An unknown option hides the words behind
//! it: the result is opaque.

mod each;
mod elsewhere;
mod git;
mod options;
mod packages;
mod shells;
mod wrappers;

use super::ShellWord;
use super::walk::{NameLookup, StandardInput};

pub(super) use elsewhere::runs_project_code;
pub(super) use git::is_plain as is_plain_git_setting;
pub(super) use options::without_dashes;

/// The commands that a command runs.
#[derive(Debug)]
pub(super) struct RunnerCommands {
    pub(super) by: &'static str,
    pub(super) inner: Vec<InnerCommand>,
    /// It does nothing but run them.
    pub(super) transparent: bool,
    /// They run on another machine or in a container.
    pub(super) elsewhere: bool,
    /// They come from packages: only stricter rules about them count.
    pub(super) package: bool,
    /// It reads its standard input itself, so the inner commands do not.
    pub(super) feeds: bool,
    /// Variables it sets for the inner commands.
    pub(super) variables: Vec<(String, ShellWord)>,
    /// The directory it runs them in, if it changes the directory.
    pub(super) directory: Option<ShellWord>,
}

/// A command that another command runs.
#[derive(Debug)]
pub(super) enum InnerCommand {
    /// Words of a command.
    Command { words: Vec<ShellWord>, lookup: NameLookup },
    /// A script for another shell. `plain`: the shell may know nothing beyond POSIX. `args` are
    /// its positional parameters, if they are known.
    Text { text: String, args: Option<Vec<ShellWord>>, plain: bool },
    /// A script for this shell.
    Eval(String),
    /// A script that this shell runs at a signal.
    Trap(String),
    /// A command that the analysis cannot see, and why.
    Hidden(&'static str),
}

pub(super) const UNKNOWN_PROGRAM: &str = "it runs a program that is not known";

pub(super) const UNKNOWN_OPTION: &str = "an option of a wrapper is not known";
const UNKNOWN_TEXT: &str = "it runs a text that is not known";
const STARTS_SHELL: &str = "it starts a shell";

impl RunnerCommands {
    pub(super) fn new(by: &'static str) -> Self {
        Self {
            by,
            inner: Vec::new(),
            transparent: false,
            elsewhere: false,
            package: false,
            feeds: false,
            variables: Vec::new(),
            directory: None,
        }
    }

    pub(super) fn transparent(by: &'static str) -> Self {
        Self { transparent: true, ..Self::new(by) }
    }

    /// Adds an inner command.
    pub(super) fn running(mut self, inner: InnerCommand) -> Self {
        self.inner.push(inner);
        self
    }

    /// Adds an inner command that the analysis cannot see.
    pub(super) fn hidden(self, why: &'static str) -> Self {
        self.running(InnerCommand::Hidden(why))
    }

    /// Adds a command by its words; nothing without words.
    fn program(self, words: &[ShellWord]) -> Self {
        if words.is_empty() { self } else { self.running(InnerCommand::program(words)) }
    }
}

impl InnerCommand {
    /// A command that is looked up among programs only, not among functions and builtins.
    fn program(words: &[ShellWord]) -> Self {
        Self::Command { words: words.to_vec(), lookup: NameLookup::Programs }
    }

    /// A text for `sh -c`; hidden if it is unknown or missing.
    fn text(word: Option<&ShellWord>) -> Self {
        match word {
            Some(ShellWord::Known(text)) => {
                Self::Text { text: text.clone(), args: None, plain: true }
            }
            _ => Self::Hidden(UNKNOWN_TEXT),
        }
    }
}

fn base_name(program: &str) -> &str {
    program.rsplit('/').next().unwrap_or(program)
}

/// The commands that a command runs; `None` if its program is unknown or runs no other
/// command. The program counts by its file name, in any directory.
pub(super) fn look_through(words: &[ShellWord], stdin: &StandardInput) -> Option<RunnerCommands> {
    let (program, args) = words.split_first()?;
    let name = base_name(program.known()?);
    if let Some(through) = wrappers::look_through_wrapper(name, args) {
        return Some(through);
    }
    match name {
        "env" => Some(wrappers::env(args)),
        "git" => git::look_through_git(args),
        "find" | "gfind" => Some(each::find(args)),
        "xargs" => Some(each::xargs(args)),
        "parallel" => Some(each::parallel(args)),
        "flock" => Some(shells::flock(args)),
        "watch" => Some(shells::watch(args)),
        "script" => Some(shells::script(args)),
        "su" | "runuser" => Some(shells::su(args)),
        "sh" | "bash" | "dash" | "ash" | "ksh" | "mksh" | "zsh" | "fish" | "rbash" => {
            Some(shells::shell(name, args, stdin))
        }
        "ssh" => elsewhere::ssh(args),
        "docker" | "podman" | "nerdctl" => elsewhere::container(args),
        "kubectl" | "oc" => elsewhere::kubectl(args),
        _ => packages::look_through_package(name, args),
    }
}
