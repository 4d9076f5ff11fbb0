//! `clash install` and `clash uninstall`: the entries in an agent's settings.
//!
//! Clash reads a settings file, edits it as text ([`clash_agents::wiring`]) and replaces it
//! in one step. Before that, it keeps a copy in its state directory
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
use crate::remedy::Remedy;
use crate::replace_file::replace;
use crate::settings_backup;
use crate::ui::{CommandOutput, Failure};
use clash_agents::wiring::{InstallScope, SettingsError, WiredFile};
use clash_agents::{self as agents, AGENTS, Agent};

pub(super) use programs::is_current;
pub(crate) use uninstall::UninstallArgs;

/// Put clash between an agent and its actions
///
/// Puts clash between agents and their actions. Clash changes only its own entries in the
/// settings of an agent, and keeps a copy of each file.
///
/// No command of clash can start in the own sandbox of some agents, for example Codex. Clash
/// then asks, and switches that sandbox off with one more setting; `clash uninstall` restores
/// the old value. Exit status: 1 if clash could not wire every agent.
#[derive(Debug, clap::Args)]
pub(crate) struct InstallArgs {
    #[command(flatten)]
    which: AgentSelection,
    /// Show the change without making it
    #[arg(long)]
    dry_run: bool,
    /// Switch off an agent's own sandbox without asking
    #[arg(long, short)]
    yes: bool,
    /// Leave an agent's own sandbox as it is, without asking
    #[arg(long, conflicts_with = "yes")]
    keep_sandbox: bool,
    /// False if the caller must not ask, even at a terminal.
    #[arg(skip = true)]
    may_ask: bool,
}

#[derive(Debug, clap::Args)]
struct AgentSelection {
    /// The agent; every agent found on this machine if not given
    #[arg(long, value_name = "AGENT", value_parser = parse_agent)]
    agent: Option<&'static Agent>,
    /// Use the settings of this project, not your own
    #[arg(long)]
    project: bool,
    /// Use the settings of the whole machine, which no project can switch off
    #[arg(long, conflicts_with = "project")]
    managed: bool,
}

/// The known agent of this name; otherwise the list of known names.
fn parse_agent(name: &str) -> Result<&'static Agent, String> {
    agents::find_agent(name).ok_or_else(|| {
        let known: Vec<&str> = AGENTS.iter().map(|agent| agent.name).collect();
        format!("known are {}", known.join(", "))
    })
}

impl AgentSelection {
    /// The scope of the settings: the whole machine, the project of the working directory, or
    /// the user.
    fn scope(&self, dirs: &Dirs) -> Result<InstallScope, Failure> {
        Ok(if self.managed {
            InstallScope::Managed
        } else if self.project {
            InstallScope::Project(project_of(&std::env::current_dir()?, &dirs.home))
        } else {
            InstallScope::User
        })
    }

    /// The selected agents, and the scope of their settings. Without a name, every agent on
    /// this machine; fails if there is none.
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

/// True if the agent's program is on the search path.
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
    /// Installs clash for each selected agent. Goes on after a failure, if there are several,
    /// and fails at the end.
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
        .hint("follow the hint of each, then install again"))
    }
}

/// One run of `clash install`.
struct InstallJob<'a> {
    /// The user's directories.
    dirs: &'a Dirs,
    /// The directories of programs and settings: the user's, or the machine's.
    target: &'a Dirs,
    scope: &'a InstallScope,
    args: &'a InstallArgs,
}

impl InstallJob<'_> {
    /// Installs clash for one agent: refuses an old client, edits its settings files, places
    /// the programs and tries the result. Returns true if a settings file changed. With
    /// `--dry-run`, prints the new settings and changes nothing.
    fn install(&self, agent: &Agent, out: &mut CommandOutput) -> Result<bool, Failure> {
        if !self.args.dry_run {
            refuse_old(agent)?;
        }
        // Every file is planned before the first one is changed.
        let mut planned = Vec::new();
        let mut sandbox_off = None;
        for wired in settings_files(self.target, agent, self.scope)? {
            let before = read(&wired.file)?;
            let after = wired.edit.install(&before);
            let after = after.map_err(|error| unusable(&wired.file, &error))?;
            let (after, off) = consent::switch_off_own_sandbox(self.args, agent, &wired, after)?;
            sandbox_off = sandbox_off.or(off);
            planned.push((wired.file, before, after));
        }
        if self.args.dry_run {
            for (_, _, after) in planned {
                out.line(after.trim_end())?;
            }
            return Ok(false);
        }
        programs::place_programs(self.target)?;
        let mut changed = Vec::new();
        for (file, before, after) in planned {
            if before == after {
                out.line(format!("clash is in {} already", file.display()))?;
                continue;
            }
            replace_settings(self.target, &file, &before, &after)?;
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
        self.try_and_report(agent, !changed.is_empty(), out)?;
        Ok(!changed.is_empty())
    }

    /// Tries the new settings with a harmless command, and prints the result. Fails if the
    /// trial fails; the settings then stay. Tries nothing in a project that works against
    /// clash.
    fn try_and_report(
        &self,
        agent: &Agent,
        changed: bool,
        out: &mut CommandOutput,
    ) -> Result<(), Failure> {
        let wiring = AgentWiring::read(self.target, agent, self.scope);
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
                return Err(Failure::new(failure).hint(format!("`{}` says more", Remedy::Doctor)));
            }
        }
        if let Some(problem) = wiring.own_sandbox {
            out.line(problem.what)?;
        }
        Ok(())
    }
}

/// Replaces a settings file, and keeps a copy of the old one.
fn replace_settings(dirs: &Dirs, file: &Path, before: &str, after: &str) -> Result<(), Failure> {
    if let Some(dir) = file.parent() {
        fs::create_dir_all(dir).map_err(|error| cannot_write(dir, &error))?;
    }
    if file.exists() {
        settings_backup::keep(dirs, file, before)
            .map_err(|error| cannot_write(&settings_backup::backups(dirs), &error))?;
    }
    replace(file, before, after).map_err(|error| cannot_write(file, &error))
}

/// The settings files of an agent. Fails if the agent has none of this scope.
fn settings_files(
    dirs: &Dirs,
    agent: &Agent,
    scope: &InstallScope,
) -> Result<Vec<WiredFile>, Failure> {
    let files = (agent.files)(&dirs.for_agents(), scope);
    if files.is_empty() {
        return Err(Failure::new(format!("{} has no settings of that kind", agent.title)));
    }
    Ok(files)
}

/// Refuses a client older than the oldest tested version. A client that does not tell its
/// version is accepted: the user may install it later.
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

/// The first version number that `PROGRAM --version` prints. Runs the program. `None` if it
/// cannot be run or prints none.
pub(super) fn version_of(program: &str) -> Option<[u32; 3]> {
    let output = Command::new(program).arg("--version").stdin(Stdio::null()).output().ok()?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    said.split(|c: char| !c.is_ascii_digit() && c != '.').find_map(parse_version)
}

/// Reads `1.2` or `1.2.3`; more parts are ignored.
fn parse_version(word: &str) -> Option<[u32; 3]> {
    let mut parts = word.split('.').map(|part| part.parse().ok());
    let version = [parts.next()??, parts.next()??, parts.next().flatten().unwrap_or(0)];
    Some(version)
}

/// The text of a file; empty if the file does not exist.
pub(super) fn read(file: &Path) -> Result<String, Failure> {
    match fs::read_to_string(file) {
        Ok(text) => Ok(text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        Err(error) => Err(Failure::new(format!("cannot read {}: {error}", file.display()))),
    }
}

/// Removes a file. A missing one is fine.
fn remove_if_there(path: &Path) -> Result<(), Failure> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}

/// The failure about a settings file that clash cannot edit.
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
