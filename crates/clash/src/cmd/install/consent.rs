//! The question before clash switches off an agent's own sandbox.

use std::io::IsTerminal;

use super::{InstallArgs, unusable};
use crate::agents::Agent;
use crate::agents::wired::{OwnSandbox, Wired};
use crate::ui::{Failure, Out, confirm};

/// The text with the agent's own sandbox off, if the user agrees.
pub(super) fn own_sandbox(
    args: &InstallArgs,
    agent: &Agent,
    wired: &Wired,
    text: String,
    out: &mut Out,
) -> Result<String, Failure> {
    let failed = |error| unusable(&wired.file, &error);
    let OwnSandbox::On { now, change } = wired.edit.own_sandbox(&text).map_err(failed)? else {
        return Ok(text);
    };
    let key = change.split(' ').next().unwrap_or_default();
    let now = now.unwrap_or_else(|| format!("{key} is not set"));
    let title = agent.title;
    let explained = format!(
        "{title} has a sandbox of its own ({now}). No command of clash can start in it.\n\
         The change in {}:\n  {change}\n\
         Clash then confines every command, and `clash uninstall` puts the old value back.",
        wired.file.display()
    );
    let agreed = if args.keep_sandbox {
        false
    } else if args.yes || args.dry_run {
        true
    } else if std::io::stdin().is_terminal() {
        confirm(&format!("{explained}\nMake this change?"))?
    } else {
        return Err(Failure::new(explained)
            .hint("`--yes` makes the change; `--keep-sandbox` installs without it"));
    };
    if !agreed {
        return Ok(text);
    }
    if !args.dry_run {
        out.line(format!("{title}: its own sandbox is off from now on: {change}"))?;
    }
    wired.edit.without_own_sandbox(&text).map_err(failed)
}
