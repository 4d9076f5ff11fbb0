//! `clash install` and `clash uninstall`: the entries in an agent's settings.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clap::ValueEnum;

use super::unless_closed;
use crate::agents::claude::settings::{self, SettingsError, Wiring};
use crate::dirs::{Dirs, create_private};
use crate::hook::shell_quoted;
use crate::replace_file::{BACKUP_SUFFIX, write_atomically};
use crate::ui::{Failure, Out};

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Agent {
    /// Claude Code
    Claude,
}

#[derive(Debug, clap::Args)]
pub(crate) struct InstallArgs {
    /// The agent to put clash in front of
    #[arg(long, value_enum)]
    agent: Agent,
    /// Show the settings file as it would become and change nothing
    #[arg(long)]
    dry_run: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct UninstallArgs {
    /// The agent to take clash away from
    #[arg(long, value_enum)]
    agent: Agent,
    /// Show the settings file as it would become and change nothing
    #[arg(long)]
    dry_run: bool,
}

impl InstallArgs {
    pub(crate) fn run(self, out: &mut Out) -> Result<u8, Failure> {
        let Agent::Claude = self.agent;
        let dirs = Dirs::from_env()?;
        let file = settings_file(&dirs);
        let wiring = wiring(&dirs);
        let before = read(&file)?;
        let after = settings::install(&before, &wiring).map_err(|error| unusable(&file, &error))?;
        if self.dry_run {
            return unless_closed(out.line(after.trim_end()));
        }
        place_programs(&dirs)?;
        if before == after {
            return unless_closed(
                out.line(format!("clash is installed in {} already", file.display())),
            );
        }
        if let Some(dir) = file.parent() {
            fs::create_dir_all(dir)?;
        }
        write_atomically(&file, &before, &after).map_err(|error| cannot_write(&file, &error))?;
        unless_closed(out.line(format!(
            "clash now decides what Claude Code does ({}).\nRunning sessions keep their old settings; start a new one. `clash doctor` checks the rest.",
            file.display()
        )))
    }
}

impl UninstallArgs {
    pub(crate) fn run(self, out: &mut Out) -> Result<u8, Failure> {
        let Agent::Claude = self.agent;
        let dirs = Dirs::from_env()?;
        let file = settings_file(&dirs);
        let before = read(&file)?;
        let after = settings::uninstall(&before).map_err(|error| unusable(&file, &error))?;
        if self.dry_run {
            return unless_closed(out.line(after.trim_end()));
        }
        if before == after {
            return unless_closed(
                out.line(format!("clash is not installed in {}", file.display())),
            );
        }
        let plain = fs::symlink_metadata(&file).is_ok_and(|meta| meta.is_file());
        if after.trim() == "{}" && plain && !backup(&file).exists() && read(&file)? == before {
            // Without a backup there was no file before clash came.
            remove_if_there(&file)?;
        } else {
            write_atomically(&file, &before, &after)
                .map_err(|error| cannot_write(&file, &error))?;
            remove_backup(&file, &after)?;
        }
        // Sessions that still run with the old settings fail closed without them.
        for name in PROGRAMS.into_iter().chain(["clash-shell"]) {
            remove_if_there(&dirs.installed(name))?;
        }
        unless_closed(out.line(format!("clash is out of {}", file.display())))
    }
}

pub(super) fn settings_file(dirs: &Dirs) -> PathBuf {
    dirs.claude.join("settings.json")
}

/// A file that does not exist is empty.
pub(super) fn read(file: &Path) -> Result<String, Failure> {
    match fs::read_to_string(file) {
        Ok(text) => Ok(text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        Err(error) => Err(Failure::new(format!("cannot read {}: {error}", file.display()))),
    }
}

/// What the settings of this installation have to say.
///
/// The guard turns a missing binary, a crash and a signal into a block,
/// `timeout` a hang, and the `case` an answer that is none of ours (the client
/// runs the tool when a hook prints junk). Everything is called by its full
/// path, because a project can set `PATH` for hooks.
pub(super) fn wiring(dirs: &Dirs) -> Wiring {
    let timeout = ["/usr/bin/timeout", "/bin/timeout"];
    let timeout = timeout.into_iter().find(|path| Path::new(path).exists());
    let limit = timeout.map(|path| format!("{path} -k 1 20 ")).unwrap_or_default();
    let own = shell_quoted(&dirs.installed("clash").to_string_lossy());
    let hook_command = format!(
        "o=$({limit}{own} hook claude) || {{ echo 'clash: the hook failed, so this is blocked' >&2; exit 2; }}; \
         case $o in ''|'{{\"hookSpecificOutput\":'*'}}'|'{{\"decision\":'*'}}'|'{{\"systemMessage\":'*'}}') printf %s \"$o\" || exit 2;; \
         *) echo 'clash: the hook answered nonsense, so this is blocked' >&2; exit 2;; esac"
    );
    Wiring { hook_command, prefix: dirs.shell_launcher() }
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
    if !fs::read_link(&link).is_ok_and(|target| target == Path::new("clash")) {
        let temp = link.with_extension(std::process::id().to_string());
        std::os::unix::fs::symlink("clash", &temp)?;
        fs::rename(&temp, &link)?;
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
