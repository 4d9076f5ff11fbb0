//! The command line: one file per verb. The doc comment of a verb's arguments is its help.

mod allow;
mod asks;
mod cache;
mod doctor;
mod explain;
mod init;
mod install;
mod learn;
pub(crate) mod log;
mod net;
mod policy;
mod ps;
mod run;
mod sandbox;
mod session;
mod show_json;
mod status;
mod statusline;
mod stop;
mod trust;
mod watch;
mod wiring;

pub(crate) use sandbox::hint_for_name;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Parser, Subcommand};

use crate::dirs::{Dirs, project_of};
use crate::exit;
use crate::remedy::Remedy;
use crate::ui::{CommandOutput, Failure};

/// Every action a coding agent takes runs in its own sandbox, chosen by a short
/// readable policy and enforced by the operating system.
#[derive(Debug, Parser)]
#[command(
    name = "clash",
    version,
    max_term_width = 100,
    subcommand_required = true,
    arg_required_else_help = true
)]
struct CommandLine {
    #[command(subcommand)]
    verb: ClashVerb,
}

#[derive(Debug, Subcommand)]
enum ClashVerb {
    Init(init::Args),
    Install(install::InstallArgs),
    Uninstall(install::UninstallArgs),
    Status(status::Args),
    Statusline(statusline::Args),
    Doctor(doctor::Args),
    #[command(about = "Show how the policy would decide an action, and why")]
    Explain(explain::Args),
    Policy(policy::Args),
    #[command(about = "Format policies; the same as `clash policy fmt`")]
    Fmt(policy::fmt::Args),
    Trust(trust::Args),
    Learn(learn::Args),
    Allow(allow::Args),
    Log(log::Args),
    Session(session::Args),
    Net(net::Args),
    Sandbox(sandbox::Args),
    Cache(cache::Args),
    Watch(watch::Args),
    Asks(asks::AsksArgs),
    Answer(asks::AnswerArgs),
    Ps(ps::Args),
    Stop(stop::Args),
    Run(run::Args),
    /// Run a command in the sandbox the policy gives it
    ///
    /// The policy decides the command like one of an agent, but refuses it instead of
    /// asking. Exit status: the command's own; 125 if clash cannot set up the sandbox,
    /// 126 if the policy refuses the command or the program cannot be executed, 127 if
    /// it is not found.
    #[command(disable_help_flag = false)]
    Exec {
        /// The approval that a hook left; only in commands that a hook has written
        #[arg(long, value_name = "ID")]
        approval: Option<String>,
        #[arg(trailing_var_arg = true, required = true, value_name = "COMMAND")]
        command: Vec<OsString>,
    },
    /// Ask for one more right for one command; only in commands of an agent
    ///
    /// The agent's hook answers it before it runs, with a question to the user. A yes holds
    /// for this one command.
    Request {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS")]
        arguments: Vec<OsString>,
    },
    /// Answer one hook call of an agent; the agent calls it
    Hook {
        /// The agent, as in `clash install --agent`
        agent: String,
        /// The event; not needed, the message on standard input names it
        event: Option<String>,
    },
}

/// Parses the arguments and runs the verb. Returns the exit status; a failure is printed to
/// standard error.
pub(crate) fn main(args: &[OsString]) -> u8 {
    let cli = match CommandLine::try_parse_from(args) {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            return if error.use_stderr() { exit::USAGE } else { exit::OK };
        }
    };
    let mut out = CommandOutput::new();
    match cli.verb.run(&mut out) {
        Ok(status) => status,
        Err(failure) => failure.report(),
    }
}

impl ClashVerb {
    /// Runs the verb, and returns the exit status.
    fn run(self, out: &mut CommandOutput) -> Result<u8, Failure> {
        match self {
            Self::Init(args) => args.run(out),
            Self::Install(args) => args.run(out),
            Self::Uninstall(args) => args.run(out),
            Self::Status(args) => args.run(out),
            Self::Statusline(args) => args.run(out),
            Self::Doctor(args) => args.run(out),
            Self::Explain(args) => args.run(out),
            Self::Policy(args) => args.run(out),
            Self::Fmt(args) => args.run(out),
            Self::Trust(args) => args.run(out),
            Self::Learn(args) => args.run(out),
            Self::Allow(args) => args.run(out),
            Self::Log(args) => args.run(out),
            Self::Request { .. } => Err(request_failure()),
            Self::Session(args) => args.run(out),
            Self::Net(args) => args.run(out),
            Self::Cache(args) => args.run(out),
            Self::Watch(args) => args.run(),
            Self::Asks(args) => args.run(out),
            Self::Answer(args) => args.run(out),
            Self::Ps(args) => args.run(out),
            Self::Stop(args) => args.run(out),
            Self::Run(args) => args.run(),
            Self::Sandbox(args) => args.run(out),
            // `run` of the library answers both before the parser. Only arguments that it
            // does not understand get here.
            Self::Exec { .. } | Self::Hook { .. } => Err(Failure {
                status: exit::USAGE,
                ..Failure::new("this cannot be combined with other options")
            }),
        }
    }
}

fn request_failure() -> Failure {
    Failure::new("no hook of an agent has answered this request, so it gives no right").hint(
        format!(
            "only an agent asks so, through its hook; `{}` allows what was refused last",
            Remedy::AllowLast
        ),
    )
}

/// The directories, and the project: the real path of `given`, or the one found from the
/// working directory. Fails if `given` does not exist.
fn dirs_and_project(given: Option<PathBuf>) -> Result<(Dirs, PathBuf), Failure> {
    let dirs = Dirs::from_env()?;
    let project = match given {
        Some(path) => std::fs::canonicalize(&path).map_err(|error| {
            Failure::new(format!("cannot use the project {}: {error}", path.display()))
        })?,
        None => project_of(&std::env::current_dir()?, &dirs.home),
    };
    Ok((dirs, project))
}

/// Success, also if the reader of the output has closed it.
fn unless_closed(result: std::io::Result<()>) -> Result<u8, Failure> {
    match result {
        Ok(()) => Ok(exit::OK),
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(exit::OK),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::CommandLine;

    /// The help of a command and of all commands below it.
    fn help_of(command: &mut clap::Command, all: &mut String) {
        all.push_str(&command.render_long_help().to_string());
        command.get_subcommands_mut().for_each(|below| help_of(below, all));
    }

    /// A renamed function once took the place of the word `alone` in two texts.
    #[test]
    fn help_has_no_identifiers_outside_backticks() {
        let mut all = String::new();
        help_of(&mut CommandLine::command(), &mut all);
        assert!(all.contains("Compares the decisions of two policies"));
        let plain = all.split('`').step_by(2);
        let found: Vec<&str> = plain
            .flat_map(str::split_whitespace)
            .filter(|word| word.contains('_') && word.contains(|c: char| c.is_ascii_lowercase()))
            .collect();
        assert_eq!(found, Vec::<&str>::new());
    }
}
