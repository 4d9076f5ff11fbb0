//! `clash install` and `clash uninstall`: the entries in an agent's settings.
//!
//! A settings file is read, edited as text ([`clash_agents::wiring`]) and replaced in
//! one step. Right before, a copy goes to clash's state directory
//! ([`crate::settings_backup`]).

mod consent;
mod leftovers;
mod programs;
mod uninstall;

use std::fs;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

use super::unless_closed;
use super::wiring::AgentWiring;
use super::wiring::trial::TrialOutcome;
use crate::dirs::{Dirs, project_of};
use crate::replace_file::replace;
use crate::settings_backup;
use crate::ui::{CommandOutput, Failure};
use clash_agents::wiring::{InstallScope, SettingsError, WiredFile};
use clash_agents::{self as agents, AGENTS, Agent};

pub(super) use programs::is_current;
pub(crate) use uninstall::UninstallArgs;

/// Puts clash between agents and what they do. The settings of an agent are changed
/// in clash's own entries only, and a copy of each file is kept before.
///
/// An agent with a sandbox of its own that no command of clash can start in (Codex)
/// gets one setting more, after a question; `clash uninstall` puts the old value back.
/// Exit status 1 if any agent could not be wired.
#[derive(Debug, clap::Args)]
pub(crate) struct InstallArgs {
    #[command(flatten)]
    which: AgentSelection,
    /// Show the settings as they would become and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Switch off an agent's own sandbox without asking
    #[arg(long, short)]
    yes: bool,
    /// Leave an agent's own sandbox as it is, without asking
    #[arg(long, conflicts_with = "yes")]
    keep_sandbox: bool,
    /// False where the caller must not ask, even at a terminal.
    #[arg(skip = true)]
    may_ask: bool,
}

#[derive(Debug, clap::Args)]
struct AgentSelection {
    /// The agent; without it, every one that is found on this machine
    #[arg(long, value_name = "AGENT", value_parser = agent)]
    agent: Option<&'static Agent>,
    /// In the settings of this project instead of your own
    #[arg(long)]
    project: bool,
    /// In the settings of the whole machine, which no project can switch off
    #[arg(long, conflicts_with = "project")]
    managed: bool,
}

fn agent(name: &str) -> Result<&'static Agent, String> {
    agents::find_agent(name).ok_or_else(|| {
        let known: Vec<&str> = AGENTS.iter().map(|agent| agent.name).collect();
        format!("known are {}", known.join(", "))
    })
}

impl AgentSelection {
    fn scope(&self, dirs: &Dirs) -> Result<InstallScope, Failure> {
        Ok(if self.managed {
            InstallScope::Managed
        } else if self.project {
            InstallScope::Project(project_of(&std::env::current_dir()?, &dirs.home))
        } else {
            InstallScope::User
        })
    }

    /// The agents meant, and where.
    fn resolve(&self, dirs: &Dirs) -> Result<(Vec<&'static Agent>, InstallScope), Failure> {
        let scope = self.scope(dirs)?;
        let found = match self.agent {
            Some(agent) => vec![agent],
            None => AGENTS.iter().copied().filter(|agent| is_here(agent)).collect(),
        };
        if found.is_empty() {
            let known: Vec<&str> = AGENTS.iter().map(|agent| agent.name).collect();
            return Err(Failure::new("no agent is found on this machine")
                .hint(format!("name one with --agent: {}", known.join(", "))));
        }
        Ok((found, scope))
    }
}

/// Whether the agent's program is on the search path.
pub(super) fn is_here(agent: &Agent) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(agent.abilities.program).is_file())
}

/// Wires one agent in the user's settings, as `clash install --agent NAME` does.
pub(super) fn install_agent(
    agent: &'static Agent,
    yes: bool,
    may_ask: bool,
    out: &mut CommandOutput,
) -> Result<(), Failure> {
    let which = AgentSelection { agent: Some(agent), project: false, managed: false };
    let args = InstallArgs { which, dry_run: false, yes, keep_sandbox: false, may_ask };
    args.run(out).map(|_| ())
}

impl InstallArgs {
    pub(crate) fn run(self, out: &mut CommandOutput) -> Result<u8, Failure> {
        let dirs = Dirs::from_env()?;
        let (agents, scope) = self.which.resolve(&dirs)?;
        let target =
            if scope == InstallScope::Managed { dirs.clone().of_machine() } else { dirs.clone() };
        let work = InstallJob { dirs: &dirs, target: &target, scope: &scope, args: &self };
        let mut failed = Vec::new();
        let mut changed = false;
        for agent in &agents {
            match work.install(agent, out) {
                Ok(change) => changed |= change,
                Err(failure) if agents.len() == 1 => return Err(failure),
                Err(failure) => {
                    out.line(format!("{}: not installed", agent.title))?;
                    out.line(format!("  {}", failure.message))?;
                    if let Some(hint) = failure.hint {
                        out.line(format!("  hint: {hint}"))?;
                    }
                    failed.push(agent.title);
                }
            }
        }
        if changed {
            out.line("Running sessions keep their old settings: start a new one.")?;
        }
        if failed.is_empty() {
            return unless_closed(Ok(()));
        }
        let (some, all) = (failed.len(), agents.len());
        Err(Failure::new(format!(
            "{some} of {all} agents are not installed: {}",
            failed.join(", ")
        ))
        .hint("follow the hint of each, then run `clash install` again"))
    }
}

/// One installation.
struct InstallJob<'a> {
    /// The user's.
    dirs: &'a Dirs,
    /// Where programs and settings go: the user's, or the machine's.
    target: &'a Dirs,
    scope: &'a InstallScope,
    args: &'a InstallArgs,
}

impl InstallJob<'_> {
    /// True if a settings file changed.
    fn install(&self, agent: &Agent, out: &mut CommandOutput) -> Result<bool, Failure> {
        if !self.args.dry_run {
            refuse_old(agent)?;
        }
        // All of it must be possible before any of it is done.
        let mut planned = Vec::new();
        let mut sandbox_off = None;
        for wired in files(self.target, agent, self.scope)? {
            let before = read(&wired.file)?;
            let after = wired.edit.install(&before);
            let after = after.map_err(|error| unusable(&wired.file, &error))?;
            let (after, off) = consent::own_sandbox(self.args, agent, &wired, after)?;
            sandbox_off = sandbox_off.or(off);
            planned.push((wired.file, before, after));
        }
        if self.args.dry_run {
            for (_, _, after) in planned {
                out.line(after.trim_end())?;
            }
            return Ok(false);
        }
        programs::place(self.target)?;
        let mut changed = Vec::new();
        for (file, before, after) in planned {
            if before == after {
                out.line(format!("clash is in {} already", file.display()))?;
                continue;
            }
            write(self.target, &file, &before, &after)?;
            if after.starts_with("#!") {
                let program = std::os::unix::fs::PermissionsExt::from_mode(0o755);
                fs::set_permissions(&file, program).map_err(|error| cannot_write(&file, &error))?;
            }
            changed.push(file.display().to_string());
        }
        for file in &changed {
            out.line(format!("changed {file}"))?;
        }
        if let Some(change) = sandbox_off {
            out.line(format!("{}: its own sandbox is off now: {change}", agent.title))?;
        }
        self.report(agent, !changed.is_empty(), out)?;
        Ok(!changed.is_empty())
    }

    /// Says what a trial with the new settings shows.
    fn report(&self, agent: &Agent, changed: bool, out: &mut CommandOutput) -> Result<(), Failure> {
        let wiring = AgentWiring::look(self.target, agent, self.scope);
        let project = project_of(&std::env::current_dir()?, &self.dirs.home);
        let title = agent.title;
        if let Some(against) = agent.against(&self.dirs.for_agents(), &project, &project) {
            let what = format!("{title}: this project works against clash ({against})");
            return Ok(out.line(what)?);
        }
        let decides = if changed { "clash now decides" } else { "clash decides" };
        match wiring.try_out(self.dirs, agent, &project) {
            TrialOutcome::Ran { sandbox } => {
                out.line(format!("{title}: {decides}; a trial command ran in sandbox {sandbox}"))?
            }
            TrialOutcome::Refused { .. } => {
                out.line(format!("{title}: {decides}; the policy refused a trial command"))?
            }
            TrialOutcome::Failed(why) => {
                let failure = format!("{title} is wired, but the trial failed: {why}");
                return Err(Failure::new(failure).hint("`clash doctor` says more"));
            }
        }
        if let Some(problem) = wiring.own_sandbox {
            out.line(problem.what)?;
        }
        Ok(())
    }
}

/// Replaces a settings file, with a copy of the old one kept.
fn write(dirs: &Dirs, file: &Path, before: &str, after: &str) -> Result<(), Failure> {
    if let Some(dir) = file.parent() {
        fs::create_dir_all(dir).map_err(|error| cannot_write(dir, &error))?;
    }
    if file.exists() {
        settings_backup::keep(dirs, file, before)
            .map_err(|error| cannot_write(&settings_backup::backups(dirs), &error))?;
    }
    replace(file, before, after).map_err(|error| cannot_write(file, &error))
}

/// An agent that has no place for this scope says so.
fn files(dirs: &Dirs, agent: &Agent, scope: &InstallScope) -> Result<Vec<WiredFile>, Failure> {
    let files = (agent.files)(&dirs.for_agents(), scope);
    if files.is_empty() {
        return Err(Failure::new(format!("{} has no settings of that kind", agent.title)));
    }
    Ok(files)
}

/// A client that is older than what was seen to hold is left alone. One that
/// cannot be asked may be installed later.
fn refuse_old(agent: &Agent) -> Result<(), Failure> {
    let Some(version) = version_of(agent.abilities.program) else { return Ok(()) };
    let oldest = agent.abilities.oldest;
    if version >= oldest {
        return Ok(());
    }
    let words = |v: [u32; 3]| v.map(|part| part.to_string()).join(".");
    Err(Failure::new(format!(
        "{} {} is too old: its hooks are known from {} on",
        agent.title,
        words(version),
        words(oldest)
    ))
    .hint(format!("update {} and try again", agent.abilities.program)))
}

/// What `PROGRAM --version` says.
pub(super) fn version_of(program: &str) -> Option<[u32; 3]> {
    let output = Command::new(program).arg("--version").stdin(Stdio::null()).output().ok()?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    said.split(|c: char| !c.is_ascii_digit() && c != '.').find_map(version)
}

fn version(word: &str) -> Option<[u32; 3]> {
    let mut parts = word.split('.').map(|part| part.parse().ok());
    let version = [parts.next()??, parts.next()??, parts.next().flatten().unwrap_or(0)];
    Some(version)
}

/// A file that does not exist is empty.
pub(super) fn read(file: &Path) -> Result<String, Failure> {
    match fs::read_to_string(file) {
        Ok(text) => Ok(text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        Err(error) => Err(Failure::new(format!("cannot read {}: {error}", file.display()))),
    }
}

fn remove_if_there(path: &Path) -> Result<(), Failure> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}

fn unusable(file: &Path, error: &SettingsError) -> Failure {
    let failure = Failure::new(format!("{}: {error}", file.display()));
    match error.hint() {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}

fn cannot_write(path: &Path, error: &io::Error) -> Failure {
    Failure::new(format!("cannot write {}: {error}", path.display()))
}
