//! `clash uninstall`: removes clash's entries from settings and lists the remaining files
//! of clash. With `--purge` it removes those too.

use std::fs;

use super::super::unless_closed;
use super::super::wiring::AgentWiring;
use super::{
    AgentSelection, cannot_write, leftovers, programs, read, remove_if_there, replace_settings,
    unusable,
};
use crate::dirs::Dirs;
use crate::settings_backup;
use crate::ui::{CommandOutput, Failure};
use clash_agents::wiring::{InstallScope, WiredFile};
use clash_agents::{AGENTS, Agent};

/// Take clash out of an agent's settings again
///
/// Removes clash's entries from the settings of agents, and keeps everything else in them
/// byte for byte. Lists the files that clash keeps elsewhere.
#[derive(Debug, clap::Args)]
pub(crate) struct UninstallArgs {
    #[command(flatten)]
    which: AgentSelection,
    /// Show the change without making it
    #[arg(long)]
    dry_run: bool,
    /// Remove clash's own files too: programs, sessions, backups, caches
    ///
    /// Clash asks before it removes your policy, unless you give --yes. Without a terminal
    /// and without --yes, the policy stays.
    #[arg(long, conflicts_with_all = ["agent", "project", "managed", "dry_run"])]
    purge: bool,
    /// Remove the policy without asking
    #[arg(long, short, requires = "purge")]
    yes: bool,
}

impl UninstallArgs {
    /// Removes clash's entries from the settings of the selected agents. Removes the programs
    /// when no agent is left. Lists or, with `--purge`, removes the other files of clash.
    pub(crate) fn run(self, out: &mut CommandOutput) -> Result<u8, Failure> {
        let dirs = Dirs::from_env()?;
        let scope = self.which.scope(&dirs)?;
        let dirs = if scope == InstallScope::Managed { dirs.of_machine() } else { dirs };
        let mut failed = Vec::new();
        for agent in self.selected_agents(&dirs, &scope) {
            for wired in super::settings_files(&dirs, agent, &scope)? {
                if let Err(failure) = uninstall_from(&dirs, &wired, self.dry_run, out) {
                    failed.push(failure);
                }
            }
        }
        if self.dry_run {
            return unless_closed(Ok(()));
        }
        let messages: Vec<&str> = failed.iter().map(|failure| failure.message.as_str()).collect();
        if !messages.is_empty() {
            let failure = Failure::new(format!("clash may still be in {}", messages.join("\n")));
            let hint = failed.into_iter().find_map(|failure| failure.hint);
            return Err(Failure { hint, ..failure });
        }
        let left = still_wired(&dirs, &scope);
        if left.is_empty() {
            programs::remove_programs(&dirs)?;
        }
        if self.purge {
            if !left.is_empty() {
                let names: Vec<&str> = left.iter().map(|agent| agent.title).collect();
                return Err(Failure::new(format!("still in the settings of {}", names.join(", "))));
            }
            leftovers::purge(&dirs, self.yes, out)?;
        } else if scope == InstallScope::User {
            leftovers::print_leftovers(&dirs, out)?;
        }
        unless_closed(Ok(()))
    }

    /// The named agent, or every agent of [`still_wired`].
    fn selected_agents(&self, dirs: &Dirs, scope: &InstallScope) -> Vec<&'static Agent> {
        match self.which.agent {
            Some(agent) => vec![agent],
            None => still_wired(dirs, scope),
        }
    }
}

/// The agents with clash in the user's or, for that scope, the machine's settings. A file
/// that clash cannot read counts, because it may have entries of clash.
fn still_wired(dirs: &Dirs, scope: &InstallScope) -> Vec<&'static Agent> {
    let scope =
        if *scope == InstallScope::Managed { &InstallScope::Managed } else { &InstallScope::User };
    let is_wired = |agent: &&Agent| {
        let wiring = AgentWiring::read(dirs, agent, scope);
        wiring.is_wired() || wiring.is_broken()
    };
    AGENTS.iter().copied().filter(is_wired).collect()
}

/// Removes clash's entries from one settings file, and the file itself if it had nothing
/// else. Keeps a copy of the old file. With `dry_run`, prints the new settings only.
fn uninstall_from(
    dirs: &Dirs,
    wired: &WiredFile,
    dry_run: bool,
    out: &mut CommandOutput,
) -> Result<(), Failure> {
    let file = &wired.file;
    let before = read(file)?;
    let after = wired.edit.uninstall(&before).map_err(|error| unusable(file, &error))?;
    if dry_run {
        return Ok(out.line(after.trim_end())?);
    }
    if before == after {
        return Ok(out.line(format!("clash is not installed in {}", file.display()))?);
    }
    let plain = fs::symlink_metadata(file).is_ok_and(|meta| meta.is_file());
    if after.trim().is_empty() && plain && read(file)? == before {
        settings_backup::keep(dirs, file, &before).map_err(|error| cannot_write(file, &error))?;
        remove_if_there(file)?;
    } else {
        replace_settings(dirs, file, &before, &after)?;
    }
    leftovers::remove_old_backup(file, &after)?;
    Ok(out.line(format!("clash is out of {}", file.display()))?)
}
