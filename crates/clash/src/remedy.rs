//! The commands that messages of clash print: what the user, or the agent, can do next.
//!
//! Each is a command line that works as it is printed. A test provokes a message with each
//! kind, runs the printed command and looks at its effect. Other files of this crate name no
//! command of clash in a text, so that no message escapes the test.

use std::fmt;

/// A command that a message prints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Remedy {
    /// Allows what was refused last, after a question.
    AllowLast,
    /// Answers a waiting question: `once`, `session` or `deny`.
    Answer {
        id: String,
        answer: &'static str,
    },
    Asks,
    /// Shows each question of a running command, and takes the answer.
    Watch,
    Doctor,
    DoctorFix,
    /// Shows the decision about an example.
    Explain,
    Init,
    InitReplace {
        posture: String,
    },
    Install {
        agent: String,
    },
    Log,
    LogFollow,
    /// A rule about the words of a command.
    PolicyAllow {
        words: String,
        sandbox: Option<String>,
        scope: PolicyScope,
    },
    /// A rule about another tool, and what it is used on.
    PolicyAllowTool {
        tool: String,
        what: Option<String>,
        scope: PolicyScope,
    },
    PolicyDocs {
        name: Option<String>,
    },
    PolicyShow,
    PolicyUndo,
    Ps,
    /// For the agent: asks for one more right for a command, which follows it.
    Request {
        option: &'static str,
        what: String,
    },
    /// One more right for a sandbox: `r`, `rw`, `rx` or `host`.
    SandboxAllow {
        sandbox: String,
        right: &'static str,
        what: String,
    },
    SandboxList,
    SandboxShow {
        sandbox: String,
    },
    SessionList,
    Stop {
        room: String,
    },
    Trust,
    Uninstall,
    UninstallPurge,
}

/// The policy that has to change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PolicyScope {
    User,
    Project,
}

impl PolicyScope {
    fn option(self) -> &'static str {
        match self {
            Self::User => "",
            Self::Project => "--scope project ",
        }
    }
}

impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AllowLast => f.write_str("clash allow --last"),
            Self::Answer { id, answer } => write!(f, "clash answer {id} {answer}"),
            Self::Asks => f.write_str("clash asks"),
            Self::Watch => f.write_str("clash watch"),
            Self::Doctor => f.write_str("clash doctor"),
            Self::DoctorFix => f.write_str("clash doctor --fix"),
            Self::Explain => f.write_str("clash explain bash \"git push\""),
            Self::Init => f.write_str("clash init"),
            Self::InitReplace { posture } => write!(f, "clash init --posture {posture} --replace"),
            Self::Install { agent } => write!(f, "clash install --agent {agent}"),
            Self::Log => f.write_str("clash log"),
            Self::LogFollow => f.write_str("clash log --follow"),
            Self::PolicyAllow { words, sandbox, scope } => {
                write!(f, "clash policy allow {}", scope.option())?;
                if let Some(sandbox) = sandbox {
                    write!(f, "--sandbox {sandbox} ")?;
                }
                write!(f, "-- {words}")
            }
            Self::PolicyAllowTool { tool, what, scope } => {
                write!(f, "clash policy allow {}--tool {}", scope.option(), argument(tool))?;
                what.iter().try_for_each(|what| write!(f, " -- {}", argument(what)))
            }
            Self::PolicyDocs { name } => {
                f.write_str("clash policy docs")?;
                name.iter().try_for_each(|name| write!(f, " {name}"))
            }
            Self::PolicyShow => f.write_str("clash policy show"),
            Self::PolicyUndo => f.write_str("clash policy undo"),
            Self::Ps => f.write_str("clash ps"),
            Self::Request { option, what } => write!(f, "clash request {option} {}", path(what)),
            Self::SandboxAllow { sandbox, right, what } => {
                write!(f, "clash sandbox allow {sandbox} {right} {}", path(what))
            }
            Self::SandboxList => f.write_str("clash sandbox list"),
            Self::SandboxShow { sandbox } => write!(f, "clash sandbox show {sandbox}"),
            Self::SessionList => f.write_str("clash session list"),
            Self::Stop { room } => write!(f, "clash stop {room}"),
            Self::Trust => f.write_str("clash trust"),
            Self::Uninstall => f.write_str("clash uninstall"),
            Self::UninstallPurge => f.write_str("clash uninstall --purge"),
        }
    }
}

/// One word of a shell.
fn argument(text: &str) -> String {
    clash_shell::quoted_argument(text)
}

/// A path or host as one word of a shell, which expands a leading `~`.
fn path(text: &str) -> String {
    match text.strip_prefix("~/") {
        Some(below) => format!("~/{}", argument(below)),
        None => argument(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_stays_one_word_and_below_the_home() {
        let right = |what: &str| {
            let (sandbox, what) = ("project".to_owned(), what.to_owned());
            Remedy::SandboxAllow { sandbox, right: "r", what }.to_string()
        };
        assert_eq!(right("~/a b"), "clash sandbox allow project r ~/'a b'");
        assert_eq!(right("$(x)"), "clash sandbox allow project r '$(x)'");
    }
}
