//! `clash sandbox`: run a command in a named sandbox, look at sandboxes, and see
//! whether this machine holds them.

mod act;
mod check;
mod parts;
mod plan;
mod test;
mod trials;

pub(super) use check::{Planned, plan_all};

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Subcommand;
use clash_policy::Sandbox;
use clash_policy::nearest::nearest;
use clash_sandbox::facts::HostFacts;
use clash_sandbox::host::{self, UnknownHostError};
use serde_json::Value;

use super::explain::grants;
use super::show_json::sandbox_json;
use super::{project, unless_closed};
use crate::dirs::Dirs;
use crate::exec;
use crate::policy::LoadedPolicy;
use crate::ui::{Failure, Out, Progress, Tone};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
    /// The project (`$PWD` of policies); found from the working directory if not given
    #[arg(long, value_name = "DIR", global = true)]
    project: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Run a command in the sandbox NAME
    ///
    /// Exit status: the command's own; 125 if the sandbox cannot be set up, 126
    /// if the program cannot be executed, 127 if it is not found.
    Exec {
        name: String,
        #[command(flatten)]
        simulate: Simulate,
        #[arg(
            trailing_var_arg = true,
            required = true,
            allow_hyphen_values = true,
            value_name = "COMMAND"
        )]
        command: Vec<OsString>,
    },
    /// The sandboxes that can be named
    List {
        #[arg(long)]
        json: bool,
    },
    /// What a sandbox grants
    Show {
        name: String,
        #[arg(long)]
        json: bool,
    },
    /// How this machine would enforce a sandbox: rule, mechanism, why it suffices
    Plan {
        name: String,
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        simulate: Simulate,
    },
    /// Whether this machine can enforce every sandbox, and what is missing if not
    ///
    /// Exit status: 0 if all can be enforced, 1 if one cannot.
    Check {
        /// Only this one
        name: Option<String>,
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        simulate: Simulate,
    },
    /// Enter a sandbox, try what its rules are about, and compare with what they say
    ///
    /// Files are tried in directories made for it and removed again. Exit status: 0
    /// if everything was allowed or blocked as the policy says, 1 if not, 125 if the
    /// sandbox cannot be set up.
    Test {
        name: String,
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        simulate: Simulate,
    },
    /// A process of `clash sandbox test`
    #[command(hide = true)]
    Part {
        #[command(subcommand)]
        part: parts::Part,
    },
}

#[derive(Debug, Default, clap::Args)]
struct Simulate {
    /// As on another host: no-userns, no-overlay, container, root, abi=0 to abi=9; may be repeated
    #[arg(long, value_name = "HOST")]
    simulate: Vec<String>,
}

impl Simulate {
    /// This machine, as far as nothing else is wished for.
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
    pub(crate) fn run(self, out: &mut Out) -> Result<u8, Failure> {
        let (dirs, project) = project(self.project)?;
        let known = || {
            let _progress = Progress::of("compiling the policy");
            sandboxes(&LoadedPolicy::load(&dirs, &project, None)?)
        };
        match self.what {
            What::Exec { name, simulate, command } => {
                let host = simulate.host(&dirs)?;
                Ok(exec::in_named(dirs, Some(host), &project, &name, &command))
            }
            What::List { json } => unless_closed(list(out, &known()?, json)),
            What::Show { name, json } => {
                let known = known()?;
                let sandbox = find(&known, &name)?;
                unless_closed(if json {
                    out.json(&sandbox_json(sandbox))
                } else {
                    grants(out, sandbox)
                })
            }
            What::Plan { name, json, simulate } => {
                let (host, known) = (simulate.host(&dirs)?, known()?);
                plan::run(out, &dirs, &project, find(&known, &name)?, &host, json)
            }
            What::Check { name, json, simulate } => {
                let (host, known) = (simulate.host(&dirs)?, known()?);
                let wanted = match &name {
                    Some(name) => std::slice::from_ref(find(&known, name)?),
                    None => known.as_slice(),
                };
                check::run(out, &dirs, &project, wanted, &host, json)
            }
            What::Test { name, json, simulate } => {
                let known = known()?;
                test::run(out, &dirs, &project, find(&known, &name)?, &simulate, json)
            }
            What::Part { part } => part.run(&dirs, &project),
        }
    }
}

pub(super) fn sandboxes(policy: &LoadedPolicy) -> Result<Vec<Sandbox>, Failure> {
    let mut known = Vec::new();
    for sandbox in policy.sandboxes()? {
        known.push(sandbox.to_sandbox()?);
    }
    known.sort_by(|a: &Sandbox, b| a.name.cmp(&b.name));
    Ok(known)
}

fn find<'a>(known: &'a [Sandbox], name: &str) -> Result<&'a Sandbox, Failure> {
    known.iter().find(|sandbox| sandbox.name == name).ok_or_else(|| {
        let names: Vec<&str> = known.iter().map(|sandbox| sandbox.name.as_str()).collect();
        Failure::new(format!("there is no sandbox `{name}`")).hint(no_such(name, &names))
    })
}

/// What to say to somebody who named a sandbox that does not exist.
pub(crate) fn no_such(name: &str, known: &[&str]) -> String {
    match nearest(name, known.iter().copied()) {
        Some(near) => format!("did you mean `{near}`? `clash sandbox list` shows all"),
        None => format!("known are {}", known.join(", ")),
    }
}

fn list(out: &mut Out, known: &[Sandbox], json: bool) -> std::io::Result<()> {
    if json {
        return out.json(&Value::Array(known.iter().map(sandbox_json).collect()));
    }
    let width = known.iter().map(|sandbox| sandbox.name.len()).max().unwrap_or(0);
    known.iter().try_for_each(|sandbox| {
        let place = out.tone(Tone::Faint, &format!("({})", sandbox.span));
        out.line(format!("{:<width$}  {} {place}", sandbox.name, sandbox.doc))
    })
}
