//! The command line that agents are told to run for their hooks.
//!
//! Most clients run the tool when a hook is missing, crashes, hangs or prints
//! junk. The line around clash turns each of these into exit status 2 with a
//! text on standard error, which blocks: a failure by its status, a hang by
//! `timeout`, junk by looking at how the answer begins. Everything is called by
//! its full path, because a project can set `PATH` for hooks.
//!
//! The text stays the same across versions of clash: a client may have been told
//! to trust exactly this line.

use std::path::Path;

use crate::Abilities;
use crate::context::UserContext;
use crate::shell_quoted::shell_quoted;

/// Seconds; every client is told a longer one.
const LIMIT: u32 = 20;

pub(crate) fn line(user: &UserContext, agent: &str, abilities: &Abilities) -> String {
    let timeout = ["/usr/bin/timeout", "/bin/timeout"];
    let timeout = timeout.into_iter().find(|path| Path::new(path).exists());
    let limit = timeout.map(|path| format!("{path} -k 1 {LIMIT} ")).unwrap_or_default();
    let own = shell_quoted(&user.installed("clash").to_string_lossy());
    let openings = abilities.openings.iter().map(|opening| format!("|'{opening}'*'}}'"));
    format!(
        "o=$({limit}{own} hook {agent}) || {{ [ $? = 2 ] || echo 'clash: the hook failed' >&2; \
         echo 'clash: this is blocked' >&2; exit 2; }}; \
         case $o in ''{}) printf %s \"$o\" || exit 2;; \
         *) echo 'clash: the hook answered nonsense, so this is blocked' >&2; exit 2;; esac",
        openings.collect::<String>()
    )
}
