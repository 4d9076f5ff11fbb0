//! `clash sandbox`: run a command in a named sandbox, and look at sandboxes.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Subcommand;
use clash_policy::Sandbox;
use clash_sandbox::disk::Disk;
use clash_sandbox::host::Host;
use clash_sandbox::plan::{Cage, Plan, Request, plan_with_report};
use clash_sandbox::report::{Line, Report};
use serde_json::{Value, json};

use super::explain::grants;
use super::show_json::sandbox_json;
use super::{project, unless_closed};
use crate::dirs::Dirs;
use crate::exec;
use crate::policy::Policy;
use crate::ui::{Failure, Out, Tone};

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
        /// Plan for another host: no-userns, container, root, abi=N
        #[arg(long, value_name = "HOST")]
        simulate: Vec<String>,
    },
}

impl Args {
    pub(crate) fn run(self, out: &mut Out) -> Result<u8, Failure> {
        let (dirs, project) = project(self.project)?;
        let known = || sandboxes(&Policy::load(&dirs, &project, None)?);
        match self.what {
            What::Exec { name, command } => Ok(exec::in_named(dirs, &project, &name, &command)),
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
                let mut host = dirs.host();
                for what in simulate {
                    host.simulate(&what).map_err(|error| {
                        Failure::from(error).hint("known are no-userns, container, root and abi=N")
                    })?;
                }
                let (plan, report) = make_plan(&dirs, &project, find(&known()?, &name)?, &host)?;
                unless_closed(if json {
                    out.json(&plan_json(&plan, &report))
                } else {
                    show_plan(out, &plan, &report)
                })
            }
        }
    }
}

fn sandboxes(policy: &Policy) -> Result<Vec<Sandbox>, Failure> {
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
        Failure::new(format!("there is no sandbox `{name}`"))
            .hint(format!("known are {}", names.join(", ")))
    })
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

fn make_plan(
    dirs: &Dirs,
    project: &std::path::Path,
    sandbox: &Sandbox,
    host: &Host,
) -> Result<(Plan, Report), Failure> {
    let disk = Disk::default();
    let places = dirs.places(project, &disk);
    let cage = Cage { paths: dirs.cage(project, &disk) };
    let request = Request { sandbox, places: &places, cage: &cage, disk: &disk, extra: &[] };
    plan_with_report(&request, host).map_err(|refusal| {
        let hint = refusal.hint();
        let failure = Failure { hint, status: crate::exit::NO_SANDBOX, ..Failure::from(refusal) };
        Failure {
            message: format!("sandbox {} cannot be set up: {}", sandbox.name, failure.message),
            ..failure
        }
    })
}

fn show_plan(out: &mut Out, plan: &Plan, report: &Report) -> std::io::Result<()> {
    let tier = match &plan.room {
        None => "direct tier",
        Some(room) if room.user_namespace => "in a room of its own",
        Some(_) => "in a room of its own, made by root",
    };
    let abi = plan.landlock_abi;
    out.line(format!("sandbox {}, {tier}: Landlock ABI {abi} and seccomp", plan.sandbox))?;
    out.line("")?;
    for line in &report.lines {
        let tone = if line.mechanism == Line::NOTHING { Tone::Care } else { Tone::Good };
        let mechanism = out.tone(tone, line.mechanism);
        out.line(format!("{}\n    {mechanism}: {}", line.rule, line.why))?;
    }
    Ok(())
}

fn plan_json(plan: &Plan, report: &Report) -> Value {
    let lines: Vec<Value> = report
        .lines
        .iter()
        .map(|line| json!({"rule": line.rule, "mechanism": line.mechanism, "why": line.why}))
        .collect();
    let grants: Vec<Value> = plan
        .grants
        .iter()
        .map(|grant| json!({"path": grant.path, "caps": grant.caps.to_string(), "why": grant.why.to_string()}))
        .collect();
    let baseline: Vec<Value> = plan
        .baseline
        .iter()
        .map(
            |(entry, caps)| json!({"path": entry.path, "caps": caps.to_string(), "why": entry.why}),
        )
        .collect();
    let room = plan.room.as_ref().map(|room| {
        let steps: Vec<String> = room.steps.iter().map(ToString::to_string).collect();
        json!({
            "user_namespace": room.user_namespace, "own_network": room.own_network,
            "unix_sockets": room.unix_sockets, "steps": steps,
        })
    });
    json!({"sandbox": plan.sandbox, "room": room, "baseline": baseline, "landlock_abi": plan.landlock_abi, "grants": grants, "report": lines})
}
