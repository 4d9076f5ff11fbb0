//! `clash sandbox`: run a command in a named sandbox, show sandboxes, and check that this
//! machine enforces them.

mod act;
pub(super) mod allow;
mod check;
mod parts;
mod plan;
mod test;
mod trials;

pub(super) use check::{PlannedSandbox, plan_all};

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Subcommand;
use clash_policy::decide::default_sandbox;
use clash_policy::doors::{needs_door, opens, ruled_programs};
use clash_policy::nearest::nearest;
use clash_policy::{Effect, Sandbox};
use clash_sandbox::facts::HostFacts;
use clash_sandbox::host::{self, UnknownHostError};
use serde_json::Value;

use super::explain::print_sandbox;
use super::policy::change::ChangeOptions;
use super::show_json::sandbox_json;
use super::{dirs_and_project, unless_closed};
use crate::dirs::Dirs;
use crate::launcher;
use crate::policy::LoadedPolicy;
use crate::remedy::Remedy;
use crate::rights::ExtraRight;
use crate::ui::{CommandOutput, Failure, ProgressLine, TextTone};

/// Run a command in a named sandbox, or look at sandboxes
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: SandboxVerb,
    /// The project (`$PWD` of policies); found from the working directory if not given
    #[arg(long, value_name = "DIR", global = true)]
    project: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum SandboxVerb {
    /// Run a command in the sandbox NAME
    ///
    /// Exit status: the command's own; 125 if clash cannot set up the sandbox, 126 if
    /// settings of the project work against clash or the program cannot be executed, 127
    /// if it is not found.
    Exec {
        name: String,
        #[command(flatten)]
        simulate: SimulatedHost,
        #[arg(
            trailing_var_arg = true,
            required = true,
            allow_hyphen_values = true,
            value_name = "COMMAND"
        )]
        command: Vec<OsString>,
    },
    /// List the sandboxes of the policy
    List {
        #[arg(long)]
        json: bool,
    },
    /// Show the rights that a sandbox grants
    Show {
        name: String,
        #[arg(long)]
        json: bool,
    },
    /// Show how this machine would enforce a sandbox: rule, mechanism, reason
    Plan {
        name: String,
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        simulate: SimulatedHost,
    },
    /// Check that this machine can enforce every sandbox
    ///
    /// Exit status: 0 if it can enforce all of them, 1 if not.
    Check {
        /// Check only this sandbox
        name: Option<String>,
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        simulate: SimulatedHost,
    },
    /// Add one right to a sandbox, in the text of a policy
    ///
    /// Clash shows the change first, and refuses it if the sandbox would still lack the
    /// right or this machine could not enforce the sandbox. `clash policy undo` takes it
    /// back.
    Allow {
        name: String,
        /// The right: r (read), rw (read and change), rx (read and execute), or host
        #[arg(value_parser = ["r", "rw", "rx", "host"])]
        right: String,
        /// The path, or the host with an optional port
        what: String,
        /// The policy to change: user, project or session
        #[arg(long, value_name = "SCOPE", default_value = "user", value_parser = ["user", "project", "session"])]
        scope: String,
        /// The session of `--scope session`
        #[arg(long, value_name = "ID")]
        session: Option<String>,
        #[command(flatten)]
        how: ChangeOptions,
    },
    /// Try the rules of a sandbox inside it, and compare the results with the rules
    ///
    /// The test creates its own directories for files and removes them again. Exit
    /// status: 0 if every result is as the policy says, 1 if not, 125 if clash cannot set
    /// up the sandbox.
    Test {
        name: String,
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        simulate: SimulatedHost,
    },
    /// A process of `clash sandbox test`
    #[command(hide = true)]
    Part {
        #[command(subcommand)]
        part: parts::TestProcess,
    },
}

#[derive(Debug, Default, clap::Args)]
struct SimulatedHost {
    /// Plan as on another host: no-userns, no-overlay, container, root, abi=0 to abi=9; may be repeated
    #[arg(long, value_name = "HOST")]
    simulate: Vec<String>,
}

impl SimulatedHost {
    /// This machine, with the simulated properties.
    fn host(&self, dirs: &Dirs) -> Result<HostFacts, Failure> {
        let mut host = dirs.host();
        for what in &self.simulate {
            host::simulate(&mut host, what).map_err(|error| {
                Failure::from(error).hint(format!("known are {}", UnknownHostError::KNOWN))
            })?;
        }
        Ok(host)
    }
}

impl Args {
    /// Runs the verb. `exec` becomes the command and returns only on failure.
    pub(crate) fn run(self, out: &mut CommandOutput) -> Result<u8, Failure> {
        let (dirs, project) = dirs_and_project(self.project)?;
        let known = || {
            let _progress = ProgressLine::start("compiling the policy");
            sandboxes(&LoadedPolicy::load(&dirs, &project, None)?)
        };
        match self.what {
            SandboxVerb::Exec { name, simulate, command } => {
                let host = simulate.host(&dirs)?;
                Ok(launcher::launch_in_named(dirs, Some(host), &project, &name, &command))
            }
            SandboxVerb::Allow { name, right, what, scope, session, how } => {
                let scope = allow::scope_named(&scope, session.as_deref(), &dirs)?;
                let cwd = std::env::current_dir()?;
                let right = ExtraRight::parse(&right, &what, &cwd, &dirs.home);
                let right = right.ok_or_else(|| Failure::new("the right is r, rw, rx or host"))?;
                allow::allow(out, &dirs, &project, &name, &right, &scope, how)
            }
            SandboxVerb::List { json } => unless_closed(print_list(out, &known()?, json)),
            SandboxVerb::Show { name, json } => {
                let policy = LoadedPolicy::load(&dirs, &project, None)?;
                let known = sandboxes(&policy)?;
                let sandbox = find(&known, &name)?;
                let doors = doors_of(&policy, sandbox)?;
                unless_closed(if json {
                    out.json(&sandbox_json(sandbox))
                } else {
                    print_sandbox(out, sandbox).and_then(|()| print_doors(out, &doors))
                })
            }
            SandboxVerb::Plan { name, json, simulate } => {
                let (host, known) = (simulate.host(&dirs)?, known()?);
                plan::run(out, &dirs, &project, find(&known, &name)?, &host, json)
            }
            SandboxVerb::Check { name, json, simulate } => {
                let (host, known) = (simulate.host(&dirs)?, known()?);
                let wanted = match &name {
                    Some(name) => std::slice::from_ref(find(&known, name)?),
                    None => known.as_slice(),
                };
                check::run(out, &dirs, &project, wanted, &host, json)
            }
            SandboxVerb::Test { name, json, simulate } => {
                let known = known()?;
                test::run(out, &dirs, &project, find(&known, &name)?, &simulate, json)
            }
            SandboxVerb::Part { part } => part.run(&dirs, &project),
        }
    }
}

/// The programs with doors in the rooms of a sandbox, each with the sandboxes behind it and,
/// if a rule asks or denies, that effect.
fn doors_of(policy: &LoadedPolicy, room: &Sandbox) -> Result<Vec<(String, String)>, Failure> {
    let is_default = default_sandbox(policy.ir())?.name == room.name;
    let mut doors = Vec::new();
    for (name, rules) in ruled_programs(policy.ir())?.shown() {
        if !needs_door(room, is_default, &name, &rules) {
            continue;
        }
        let mut behind: Vec<&str> = Vec::new();
        if opens(room, is_default, &name) {
            let others = rules.sandboxes.iter().filter(|other| **other != room.name);
            behind.extend(others.map(String::as_str));
        }
        if rules.strictest > Effect::Allow {
            behind.push(rules.strictest.word());
        }
        doors.push((name, behind.join(", ")));
    }
    Ok(doors)
}

/// Prints the doors as a table. Nothing if there are none.
fn print_doors(out: &mut CommandOutput, doors: &[(String, String)]) -> std::io::Result<()> {
    if doors.is_empty() {
        return Ok(());
    }
    out.line("doors")?;
    let width = doors.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    doors.iter().try_for_each(|(name, behind)| out.line(format!("  {name:<width$}  {behind}")))
}

/// All sandboxes of the policy, sorted by name.
pub(super) fn sandboxes(policy: &LoadedPolicy) -> Result<Vec<Sandbox>, Failure> {
    let mut known = policy.owned_sandboxes()?;
    known.sort_by(|a: &Sandbox, b| a.name.cmp(&b.name));
    Ok(known)
}

/// The sandbox of this name. Fails with a hint to the nearest name.
fn find<'a>(known: &'a [Sandbox], name: &str) -> Result<&'a Sandbox, Failure> {
    known.iter().find(|sandbox| sandbox.name == name).ok_or_else(|| {
        let names: Vec<&str> = known.iter().map(|sandbox| sandbox.name.as_str()).collect();
        Failure::new(format!("there is no sandbox `{name}`")).hint(hint_for_name(name, &names))
    })
}

/// The hint for a name that no sandbox has.
pub(crate) fn hint_for_name(name: &str, known: &[&str]) -> String {
    match nearest(name, known.iter().copied()) {
        Some(near) => format!("did you mean `{near}`? `{}` shows all", Remedy::SandboxList),
        None => format!("known are {}", known.join(", ")),
    }
}

/// Prints the name, the text and the line of each sandbox.
fn print_list(out: &mut CommandOutput, known: &[Sandbox], json: bool) -> std::io::Result<()> {
    if json {
        return out.json(&Value::Array(known.iter().map(sandbox_json).collect()));
    }
    let width = known.iter().map(|sandbox| sandbox.name.len()).max().unwrap_or(0);
    known.iter().try_for_each(|sandbox| {
        let place = out.tone(TextTone::Faint, &format!("({})", sandbox.span));
        out.line(format!("{:<width$}  {} {place}", sandbox.name, sandbox.doc))
    })
}
