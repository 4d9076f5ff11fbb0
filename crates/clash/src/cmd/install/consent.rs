//! The question before clash switches off an agent's own sandbox.

use std::io::IsTerminal;

use super::{InstallArgs, unusable};
use crate::remedy::Remedy;
use crate::ui::{Failure, confirm};
use clash_agents::Agent;
use clash_agents::wiring::{OwnSandbox, WiredFile};

/// Returns the settings with the agent's own sandbox switched off, and the change in words;
/// the settings as they are if it is off already or the user keeps it. Asks at a terminal,
/// unless an option answers. Fails if it cannot ask.
pub(super) fn switch_off_own_sandbox(
    args: &InstallArgs,
    agent: &Agent,
    wired: &WiredFile,
    text: String,
) -> Result<(String, Option<&'static str>), Failure> {
    let failed = |error| unusable(&wired.file, &error);
    let OwnSandbox::On { now, change } = wired.edit.own_sandbox(&text).map_err(failed)? else {
        return Ok((text, None));
    };
    let key = change.split(' ').next().unwrap_or_default();
    let now = now.unwrap_or_else(|| format!("{key} is not set"));
    let title = agent.title;
    let explained = format!(
        "{title} has a sandbox of its own ({now}). No command of clash can start in it.\n\
         The change in {}:\n  {change}\n\
         Clash then confines every command, and `{}` puts the old value back.",
        wired.file.display(),
        Remedy::Uninstall
    );
    let agreed = if args.keep_sandbox {
        false
    } else if args.yes || args.dry_run {
        true
    } else if args.may_ask && std::io::stdin().is_terminal() {
        confirm(&format!("{explained}\nMake this change?"))?
    } else {
        return Err(Failure::new(explained)
            .hint("`--yes` makes the change; `--keep-sandbox` installs without it"));
    };
    if !agreed {
        return Ok((text, None));
    }
    let without = wired.edit.without_own_sandbox(&text).map_err(failed)?;
    Ok((without, Some(change)))
}
