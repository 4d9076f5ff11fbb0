//! `clash install` and `clash uninstall`: the entries in an agent's settings.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::unless_closed;
use crate::agents::wired::{Scope, SettingsError, Wired};
use crate::agents::{self, AGENTS, Agent};
use crate::dirs::{Dirs, create_private, project_of};
use crate::replace_file::{BACKUP_SUFFIX, write_atomically};
use crate::ui::{Failure, Out};

#[derive(Debug, clap::Args)]
pub(crate) struct InstallArgs {
    #[command(flatten)]
    which: Which,
    /// Show the settings as they would become and change nothing
    #[arg(long)]
    dry_run: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct UninstallArgs {
    #[command(flatten)]
    which: Which,
    /// Show the settings as they would become and change nothing
    #[arg(long)]
    dry_run: bool,
}

#[derive(Debug, clap::Args)]
struct Which {
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
    agents::named(name).ok_or_else(|| {
        let known: Vec<&str> = AGENTS.iter().map(|agent| agent.name).collect();
        format!("known are {}", known.join(", "))
    })
}

impl Which {
    /// The agents meant, and where.
    fn resolve(&self, dirs: &Dirs) -> Result<(Vec<&'static Agent>, Scope), Failure> {
        let scope = if self.managed {
            Scope::Managed
        } else if self.project {
            Scope::Project(project_of(&std::env::current_dir()?, &dirs.home))
        } else {
            Scope::User
        };
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

impl InstallArgs {
    pub(crate) fn run(self, out: &mut Out) -> Result<u8, Failure> {
        let dirs = Dirs::from_env()?;
        let (agents, scope) = self.which.resolve(&dirs)?;
        for agent in agents {
            if !self.dry_run {
                refuse_old(agent)?;
                place_programs(&dirs)?;
            }
            install(&dirs, agent, &scope, self.dry_run, out)?;
        }
        unless_closed(Ok(()))
    }
}

fn install(
    dirs: &Dirs,
    agent: &Agent,
    scope: &Scope,
    dry_run: bool,
    out: &mut Out,
) -> Result<(), Failure> {
    let mut changed = Vec::new();
    // All of it must be possible before any of it is done.
    let mut planned = Vec::new();
    for wired in files(dirs, agent, scope)? {
        let before = read(&wired.file)?;
        let after = wired.edit.install(&before).map_err(|error| unusable(&wired.file, &error))?;
        planned.push((wired.file, before, after));
    }
    for (file, before, after) in planned {
        if dry_run {
            out.line(after.trim_end())?;
        } else if before == after {
            out.line(format!("clash is installed in {} already", file.display()))?;
        } else {
            if let Some(dir) = file.parent() {
                fs::create_dir_all(dir).map_err(|error| cannot_write(dir, &error))?;
            }
            write_atomically(&file, &before, &after)
                .map_err(|error| cannot_write(&file, &error))?;
            if after.starts_with("#!") {
                let program = std::os::unix::fs::PermissionsExt::from_mode(0o755);
                fs::set_permissions(&file, program).map_err(|error| cannot_write(&file, &error))?;
            }
            changed.push(file.display().to_string());
        }
    }
    if !changed.is_empty() {
        out.line(format!(
            "clash now decides what {} does ({}).\nRunning sessions keep their old settings; start a new one. `clash doctor` checks the rest.",
            agent.title,
            changed.join(", ")
        ))?;
    }
    Ok(())
}

/// An agent that has no place for this scope says so.
fn files(dirs: &Dirs, agent: &Agent, scope: &Scope) -> Result<Vec<Wired>, Failure> {
    let files = (agent.files)(dirs, scope);
    if files.is_empty() {
        return Err(Failure::new(format!("{} has no settings of that kind", agent.title)));
    }
    Ok(files)
}

impl UninstallArgs {
    pub(crate) fn run(self, out: &mut Out) -> Result<u8, Failure> {
        let dirs = Dirs::from_env()?;
        let (agents, scope) = self.which.resolve(&dirs)?;
        for agent in agents {
            for wired in files(&dirs, agent, &scope)? {
                uninstall(&wired, self.dry_run, out)?;
            }
        }
        if !self.dry_run && !anything_left(&dirs) {
            // Sessions that still run with the old settings fail closed without them.
            for name in PROGRAMS.into_iter().chain(["clash-sh", "clash-shell"]) {
                remove_if_there(&dirs.installed(name))?;
            }
        }
        unless_closed(Ok(()))
    }
}

fn uninstall(wired: &Wired, dry_run: bool, out: &mut Out) -> Result<(), Failure> {
    let file = &wired.file;
    let before = read(file)?;
    let after = wired.edit.uninstall(&before).map_err(|error| unusable(file, &error))?;
    if dry_run {
        out.line(after.trim_end())?;
        return Ok(());
    }
    if before == after {
        out.line(format!("clash is not installed in {}", file.display()))?;
        return Ok(());
    }
    let plain = fs::symlink_metadata(file).is_ok_and(|meta| meta.is_file());
    let nothing = after.trim().is_empty() || after.trim() == "{}";
    if nothing && plain && !backup(file).exists() && read(file)? == before {
        // Without a backup there was no file before clash came.
        remove_if_there(file)?;
    } else {
        write_atomically(file, &before, &after).map_err(|error| cannot_write(file, &error))?;
        remove_backup(file, &after)?;
    }
    Ok(out.line(format!("clash is out of {}", file.display()))?)
}

/// Whether another agent of the user still calls the installed programs.
fn anything_left(dirs: &Dirs) -> bool {
    use crate::agents::wired::State;
    let wired = [Scope::User, Scope::Managed]
        .into_iter()
        .flat_map(|scope| AGENTS.iter().flat_map(move |agent| (agent.files)(dirs, &scope)));
    wired.into_iter().any(|wired| {
        let text = read(&wired.file).unwrap_or_default();
        !matches!(wired.edit.state(&text), Ok(State::Absent))
    })
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

/// The programs agents call, beside the one that is running.
const PROGRAMS: [&str; 2] = ["clash", "clash-compile"];

/// Puts copies of clash where no sandbox can change them: a build that may write
/// cargo's bin directory must not be able to replace what confines it. The shell
/// prefix has to be one path without arguments, so it is clash under another name.
fn place_programs(dirs: &Dirs) -> Result<(), Failure> {
    let own = std::env::current_exe()?;
    let link = dirs.shell_launcher();
    let dir = link.parent().unwrap_or(&dirs.state);
    create_private(dir).map_err(|error| cannot_write(dir, &error))?;
    for name in PROGRAMS {
        let (from, to) = (own.with_file_name(name), dirs.installed(name));
        if (from == to && to.exists()) || same_content(&from, &to) {
            continue;
        }
        let temp = to.with_extension(std::process::id().to_string());
        fs::copy(&from, &temp).map_err(|error| {
            Failure::new(format!("cannot copy {} to {}: {error}", from.display(), temp.display()))
                .hint("clash and clash-compile belong in one directory; install clash again")
        })?;
        fs::rename(&temp, &to)?;
    }
    for link in [link, dirs.agents_shell()] {
        if !fs::read_link(&link).is_ok_and(|target| target == Path::new("clash")) {
            let temp = link.with_extension(std::process::id().to_string());
            std::os::unix::fs::symlink("clash", &temp)?;
            fs::rename(&temp, &link)?;
        }
    }
    Ok(())
}

/// Whether the installed copy is the program that is running.
pub(super) fn is_current(dirs: &Dirs) -> bool {
    let own = std::env::current_exe().unwrap_or_default();
    PROGRAMS.iter().all(|name| {
        let (from, to) = (own.with_file_name(name), dirs.installed(name));
        from == to || same_content(&from, &to)
    })
}

fn same_content(a: &Path, b: &Path) -> bool {
    let length = |path| fs::metadata(path).map(|meta| meta.len()).ok();
    length(a).is_some() && length(a) == length(b) && fs::read(a).ok() == fs::read(b).ok()
}

/// Once the file is as it was before clash came, the backup has done its work.
fn remove_backup(file: &Path, after: &str) -> Result<(), Failure> {
    let backup = backup(file);
    if fs::read_to_string(&backup).is_ok_and(|saved| saved == after) {
        remove_if_there(&backup)?;
    }
    Ok(())
}

fn backup(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(BACKUP_SUFFIX);
    PathBuf::from(name)
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
