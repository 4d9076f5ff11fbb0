//! `clash learn`: observes a command and proposes a sandbox for it.

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use clash_history::day;
use clash_history::touched::{SandboxProposal, TouchedResources, propose};
use clash_sandbox::baseline::BASELINE_ENTRIES;
use clash_sandbox::disk::Disk;
use clash_sandbox::host;
use clash_sandbox::launch::LaunchCommand;
use clash_sandbox::observe::{self, ObserveError, Observed, ObservedEnd};
use clash_sandbox::plan::{PlanRequest, TemporaryPaths, plan};
use serde_json::{Value, json};

use super::dirs_and_project;
use crate::dirs::Dirs;
use crate::in_force::PolicySandboxes;
use crate::policy::LoadedPolicy;
use crate::ui::{CommandOutput, Failure};
use crate::{env, exit, launcher};

/// Watch a command while it runs, and propose a sandbox for it
///
/// Clash records the files that the command and its children open, change and execute, the
/// host names they look up and the addresses they connect to. Observing is not enforcing:
/// without --sandbox the command runs with all your rights. The proposal names a directory in
/// place of many files in it, but never the home directory. It lists credentials and the
/// settings of other programs without granting them. Clash prints the proposal to standard
/// error, or writes it to a file. Exit status: the command's own.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Run the command in this sandbox; it is not confined if not given
    #[arg(long, value_name = "NAME")]
    sandbox: Option<String>,
    /// The name of the proposed sandbox; the program's name if not given
    #[arg(long, value_name = "NAME", value_parser = parse_sandbox_name)]
    name: Option<String>,
    /// Write the proposal to this file, not to standard error
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Print everything observed as JSON
    #[arg(long)]
    json: bool,
    /// The project; found from the working directory if not given
    #[arg(long, value_name = "DIR")]
    project: Option<PathBuf>,
    #[arg(trailing_var_arg = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Accepts lower case letters, digits and `_`, with a letter first.
fn parse_sandbox_name(text: &str) -> Result<String, String> {
    let plain = text.starts_with(|c: char| c.is_ascii_lowercase())
        && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    if plain { Ok(text.to_owned()) } else { Err("lower case letters, digits and `_`".to_owned()) }
}

impl Args {
    /// Runs the command under observation, and prints or writes the proposal. Returns the
    /// command's exit status.
    pub(crate) fn run(self, _: &mut CommandOutput) -> Result<u8, Failure> {
        let (dirs, here) = dirs_and_project(self.project.clone())?;
        let [program, arguments @ ..] = self.command.as_slice() else {
            return Err(Failure::new("there is no command"));
        };
        let mut touched = TouchedResources::default();
        let end = self.observe(&dirs, &here, program, arguments, &mut |observed| {
            note(&mut touched, observed);
        })?;
        let places = dirs.places(&here, &Disk::default());
        let baseline: Vec<_> =
            BASELINE_ENTRIES.iter().map(|entry| (entry.path, entry.caps)).collect();
        let proposal = propose(&touched, &places, &baseline);
        let name = self.name.clone().unwrap_or_else(|| name_of(program));
        let text = if self.json {
            format!("{:#}\n", as_json(&touched, &proposal, end))
        } else {
            proposal.source(&name, &today())?
        };
        match &self.output {
            Some(file) => std::fs::write(file, text).map_err(|error| {
                Failure::new(format!("cannot write {}: {error}", file.display()))
            })?,
            None => {
                let _ = std::io::stderr()
                    .write_all(clash_policy::text::escape_hidden(&text).as_bytes());
            }
        }
        Ok(exit_status(end))
    }

    /// Runs the command to its end and reports its use of the system. Without `--sandbox` it
    /// runs with all rights of the user, after a warning. Fails for a sandbox that needs the
    /// monitor: a process can have only one listener.
    fn observe(
        &self,
        dirs: &Dirs,
        here: &Path,
        program: &OsString,
        arguments: &[OsString],
        each: &mut dyn FnMut(Observed),
    ) -> Result<ObservedEnd, Failure> {
        let mut command = LaunchCommand {
            program: program.clone(),
            args: arguments.to_vec(),
            env: env::all().collect(),
            cwd: None,
            ..LaunchCommand::default()
        };
        let Some(name) = &self.sandbox else {
            let warning = "clash: observed, not confined: the command runs with all your rights";
            let _ = writeln!(std::io::stderr(), "{warning}");
            return observe::run(None, &command, each).map_err(failure);
        };
        let sandbox = launcher::sandbox_named(&LoadedPolicy::load(dirs, here, None)?, name)
            .map_err(Failure::from)?;
        if sandbox.unrestricted {
            return Err(Failure::new(format!("sandbox {name} confines nothing"))
                .hint("without --sandbox the command is observed as it is"));
        }
        let disk = Disk::default();
        let places = dirs.places_unseen(here, &disk);
        let cage = dirs.cage_paths(dirs.cage(here, &disk));
        let temporary = TemporaryPaths { session: None, host: &dirs.tmp };
        let in_force = PolicySandboxes { dirs, project: here, session: None };
        let own = dirs.caches_of(here, &disk);
        let request = PlanRequest {
            sandbox: &sandbox,
            places: &places,
            cage: &cage,
            disk: &disk,
            extra: &[],
            in_force: &in_force,
            temporary,
            caches: Some(&own),
            doors: &[],
        };
        let host = host::with_limit_facts(dirs.host(), &sandbox.limits);
        let plan = plan(&request, &host).map_err(|refusal| {
            let hint = refusal.hint();
            Failure { hint, ..Failure::from(refusal) }
        })?;
        if plan.watch.is_some() {
            return Err(Failure::new(format!(
                "a command in sandbox {name} cannot be observed: clash already watches its calls \
                 there, and the kernel lets one process be watched once"
            ))
            .hint("`--sandbox readonly` works; without --sandbox the command is not confined"));
        }
        (command.env, _) = clash_sandbox::environment::scrub(env::all(), &sandbox.env);
        observe::run(Some(&plan), &command, each).map_err(failure)
    }
}

/// The failure with the exit status of the process that could not start, else 125.
fn failure(error: ObserveError) -> Failure {
    let status = match &error {
        ObserveError::NotStarted { status, .. } => u8::try_from(*status).ok(),
        _ => None,
    };
    Failure { status: status.unwrap_or(exit::NO_SANDBOX), ..Failure::from(error) }
}

/// The exit status of the command, or 128 plus its signal.
fn exit_status(end: ObservedEnd) -> u8 {
    let code = match end {
        ObservedEnd::Exit(code) => code,
        ObservedEnd::Signal(signal) => 128 + signal,
    };
    u8::try_from(code).unwrap_or(exit::FAILED)
}

/// Adds one observation. A directory that was only read counts as listed. The rights of
/// several accesses to a file are joined.
fn note(touched: &mut TouchedResources, observed: Observed) {
    match observed {
        Observed::File { path, caps } if path.is_dir() && caps == clash_policy::FileCaps::READ => {
            touched.listed.insert(path);
        }
        Observed::File { path, caps } => {
            let known = touched.files.entry(path).or_default();
            *known = known.union(caps);
        }
        Observed::Address(address) => {
            touched.addresses.insert(address);
        }
        Observed::UnixSocket(path) => {
            touched.sockets.insert(path);
        }
        Observed::Name(name) => {
            touched.names.insert(name);
        }
        Observed::Port(port) => {
            touched.ports.insert(port);
        }
    }
}

/// A name for the sandbox of a program, for example `learned_npm`: other characters than
/// letters and digits become `_`, and a long name is cut.
fn name_of(program: &OsString) -> String {
    let name = Path::new(program).file_name().map(|name| name.to_string_lossy().to_lowercase());
    let name = name.unwrap_or_default();
    let kept = |c: char| if c.is_ascii_lowercase() || c.is_ascii_digit() { c } else { '_' };
    let name: String = name.chars().take(30).map(kept).collect();
    format!("learned_{}", name.trim_matches('_'))
}

fn today() -> String {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    day(u64::try_from(now.as_millis()).unwrap_or(0))
}

/// Everything observed, and the proposal.
fn as_json(touched: &TouchedResources, proposal: &SandboxProposal, end: ObservedEnd) -> Value {
    let files: Vec<Value> = touched
        .files
        .iter()
        .map(|(path, caps)| json!({"path": path.to_string_lossy(), "caps": caps.to_string()}))
        .collect();
    let grants: Vec<Value> = proposal
        .grants
        .iter()
        .map(|it| {
            json!({"place": it.place, "alone": it.alone, "caps": it.caps.to_string(), "files": it.files})
        })
        .collect();
    let withheld: Vec<Value> =
        proposal.withheld.iter().map(|it| json!({"what": it.what, "why": it.why})).collect();
    let shown = |paths: &std::collections::BTreeSet<PathBuf>| -> Vec<String> {
        paths.iter().map(|path| path.to_string_lossy().into_owned()).collect()
    };
    let addresses: Vec<String> = touched.addresses.iter().map(ToString::to_string).collect();
    json!({
        "status": exit_status(end), "files": files, "listed": shown(&touched.listed),
        "names": touched.names, "addresses": addresses, "sockets": shown(&touched.sockets),
        "ports": touched.ports, "proposal": {"fs": grants, "withheld": withheld, "net": proposal.net.source(), "hosts": proposal.hosts},
    })
}
