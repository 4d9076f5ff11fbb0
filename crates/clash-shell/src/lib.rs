//! The commands of a shell script, found without running it.
//!
//! [`find_commands`] reads a script as bash does and gives every program in it as a
//! [`ShellCommand`]: in lists, pipelines, compound commands, functions, substitutions
//! and here-documents, behind wrappers (`env`, `timeout`, `xargs`, `sh -c`, …) and
//! through variables, functions and aliases the script itself sets. A word is given as
//! far as it is known. The part that the shell decides later is marked: in `cp a "$x"`
//! the last word is `Unknown`.
//!
//! It never guesses. A text that it does not certainly understand is one *opaque*
//! command. Where a part of a script could run a hidden program, an opaque command
//! stands for that part: `eval "$x"` is one. No rule about a particular program matches
//! an opaque command.
//!
//! A script that deceives this analysis gains no right: the kernel enforces the sandbox
//! in any case.
//!
//! Limits: bash and POSIX `sh`. A text that zsh or fish read differently is opaque. A
//! script of more than 1 MiB, or one that nests more than 200 constructs, is opaque.
#![forbid(unsafe_code)]

mod ast;
mod filters;
mod inert;
mod programs;
mod quote;
mod read;
mod runners;
mod variables;
mod walk;

use std::ops::Range;

pub use filters::is_filter;
pub use inert::{activates_environment, is_inert};
pub use programs::{NextWord, is_shell, next_significant, program_name};
pub use quote::{command_line, quoted_argument, shell_quoted};
pub use variables::{is_harmless_variable, is_steering_variable, names_program_of_git};

/// True if a setting of git certainly names no program; false for settings that clash does
/// not know. The name is in lower case, for example `color.ui`.
pub fn is_plain_git_setting(name: &str) -> bool {
    runners::is_plain_git_setting(name)
}

/// One program run inside a script.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct ShellCommand {
    /// The program and its arguments after expansion, as far as they are known.
    pub words: Vec<ShellWord>,
    /// Variables given a value for this command, or by it if it has no words.
    pub assignments: Vec<VariableAssignment>,
    /// Variables the script gave a value before this command or for it, except
    /// harmless ones such as `LANG`.
    pub environment: Vec<SetVariable>,
    /// Files it opens before it runs.
    pub redirections: Vec<Redirection>,
    /// The directory it runs in, as far as the script says.
    pub cwd: CommandDirectory,
    /// The constructs around it, from the outside in.
    pub position: Vec<CommandPosition>,
    /// Its bytes in the script. A command inside a text that the script gives to a
    /// shell (`sh -c '…'`) has the span of that text.
    pub span: Range<usize>,
    /// Why the analysis cannot tell which program this runs; `None` if it can.
    pub opaque: Option<&'static str>,
    /// It only runs other commands, and all of them are in the list, for example
    /// `timeout 5 ls`.
    pub transparent: bool,
    /// It runs code of the project (`make`, `npm run`, `cargo test`, …).
    pub runs_project_code: bool,
    /// The command as it stands in the script; very long ones are cut.
    pub text: String,
}

/// A word as far as it is known before the shell expands it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShellWord {
    Known(String),
    /// One word: the home of the user and this text behind it (`~/x`, `"$HOME/x"`).
    Home(String),
    /// One word that begins with this text.
    Partial(String),
    /// Any number of words, none of them known.
    Unknown,
}

impl ShellWord {
    /// The text of a word that is known completely.
    pub fn known(&self) -> Option<&str> {
        match self {
            Self::Known(text) => Some(text),
            Self::Home(_) | Self::Partial(_) | Self::Unknown => None,
        }
    }

    /// Text the word certainly begins with.
    pub fn prefix(&self) -> &str {
        match self {
            Self::Known(text) | Self::Partial(text) => text,
            Self::Home(_) | Self::Unknown => "",
        }
    }

    /// True if it is certainly one word.
    pub fn is_one(&self) -> bool {
        !matches!(self, Self::Unknown)
    }
}

/// The words as text, if all of them are known.
fn all_known(words: &[ShellWord]) -> Option<Vec<&str>> {
    words.iter().map(ShellWord::known).collect()
}

/// `NAME=value` in front of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VariableAssignment {
    pub name: String,
    /// `Unknown` for arrays and for values that the shell decides.
    pub value: ShellWord,
}

/// A variable that a script sets and that may change the behaviour of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetVariable {
    pub name: String,
    /// The script exports it. Without this it reaches programs only if the
    /// environment of the script already has the name, as with `HOME`.
    pub exported: bool,
}

/// A file that the shell opens for a command, or a text that it gives to the command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redirection {
    /// The descriptor, unless it is both outputs (`&>`) or chosen by the shell.
    pub fd: Option<u32>,
    pub direction: RedirectionKind,
    /// The file, or the text of a here-document or here-string.
    pub target: ShellWord,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RedirectionKind {
    Read,
    Write,
    Append,
    /// `>|`
    Clobber,
    ReadWrite,
    /// No file: the text stands in the script.
    HereDocument,
    HereString,
}

impl Redirection {
    /// The file it opens; a here-document is none.
    pub fn file(&self) -> Option<&ShellWord> {
        match self.direction {
            RedirectionKind::HereDocument | RedirectionKind::HereString => None,
            _ => Some(&self.target),
        }
    }

    /// True if it may change the file, also for `<>`.
    pub fn writes(&self) -> bool {
        use RedirectionKind::{Append, Clobber, ReadWrite, Write};
        matches!(self.direction, Write | Append | Clobber | ReadWrite)
    }

    /// True if it reads the file, also for `<>`; false for a here-document.
    pub fn reads(&self) -> bool {
        matches!(self.direction, RedirectionKind::Read | RedirectionKind::ReadWrite)
    }
}

/// The directory a command runs in.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum CommandDirectory {
    /// The directory the script was started in.
    #[default]
    Start,
    /// A path relative to the directory the script was started in.
    Relative(String),
    Absolute(String),
    /// The home of the user and this text behind it.
    Home(String),
    Unknown,
}

impl CommandDirectory {
    /// The directory after `cd to` from here. Nothing is normalised: `a` and `..` give `a/..`.
    fn join(&self, to: &ShellWord) -> Self {
        let path = match to {
            ShellWord::Known(path) => path,
            ShellWord::Home(rest) => return Self::Home(rest.clone()),
            ShellWord::Partial(_) | ShellWord::Unknown => return Self::Unknown,
        };
        match self {
            _ if path.starts_with('/') => Self::Absolute(path.clone()),
            _ if path == "." => self.clone(),
            Self::Start => Self::Relative(path.clone()),
            Self::Relative(base) => Self::Relative(format!("{base}/{path}")),
            Self::Absolute(base) => Self::Absolute(format!("{base}/{path}")),
            Self::Home(base) => Self::Home(format!("{base}/{path}")),
            Self::Unknown => Self::Unknown,
        }
    }
}

/// A construct around a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandPosition {
    Pipeline,
    /// Behind `&&`.
    And,
    /// Behind `||`.
    Or,
    /// Of `if`, `while` or `until`.
    Condition,
    /// A branch of `if`.
    Branch,
    Loop,
    Case,
    FunctionBody,
    Subshell,
    Group,
    Substitution,
    ProcessSubstitution,
    HereDocument,
    Trap,
    Background,
    Coproc,
    Alias,
    /// A program of a package, behind `npx`, `uvx` and the like.
    Package,
    Eval,
    /// Run by the program named.
    Wrapper(&'static str),
    /// On another machine or in a container, by the program named.
    Elsewhere(&'static str),
}

/// A longer script is one opaque command.
pub const MAX_SCRIPT_BYTES: usize = 1024 * 1024;

/// The commands of a script, in the order in which they are read. Never empty: an empty
/// script is one command without words. A script that cannot be read, or is longer than
/// [`MAX_SCRIPT_BYTES`], is one opaque command.
pub fn find_commands(script: &str) -> Vec<ShellCommand> {
    let why = if script.len() > MAX_SCRIPT_BYTES {
        "the script is too long to analyse"
    } else {
        match read::parse(script, 0) {
            Ok(parsed) => return walk::walk(&parsed),
            Err(why) => why,
        }
    };
    vec![ShellCommand {
        opaque: Some(why),
        span: 0..script.len(),
        text: shown(script),
        ..ShellCommand::default()
    }]
}

/// The text of a command for people: trimmed, and cut after 2000 bytes.
fn shown(text: &str) -> String {
    const MAX_SHOWN_BYTES: usize = 2000;
    let text = text.trim();
    if text.len() <= MAX_SHOWN_BYTES {
        return text.to_owned();
    }
    let end = (0..=MAX_SHOWN_BYTES).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    format!("{}…", text.get(..end).unwrap_or_default())
}
