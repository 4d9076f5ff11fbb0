//! The command line of clash's hooks in the settings of agents.
//!
//! Most clients run the tool if a hook is missing, crashes, hangs or prints junk. This line
//! turns each of these into exit status 2 with a text on standard error, which blocks the
//! call. It sees a failure by the status, ends a hang with `timeout`, and knows junk by the
//! beginning of the answer. It calls every program by its full path, because a project can
//! set `PATH` for hooks.
//!
//! The line must stay the same in every version of clash: a user may have told the client
//! to trust exactly this line.

use std::path::Path;

use clash_shell::shell_quoted;

use crate::AgentAbilities;
use crate::context::UserContext;

/// Every client gets a longer limit in its settings.
const HOOK_LIMIT_SECONDS: u32 = 20;

/// The shell line that runs `clash hook AGENT` and blocks if it fails. Looks on this
/// machine for `timeout`; without it, a hang has only the client's limit.
pub(crate) fn hook_line(user: &UserContext, agent: &str, abilities: &AgentAbilities) -> String {
    let timeout = ["/usr/bin/timeout", "/bin/timeout"];
    let timeout = timeout.into_iter().find(|path| Path::new(path).exists());
    let limit =
        timeout.map(|path| format!("{path} -k 1 {HOOK_LIMIT_SECONDS} ")).unwrap_or_default();
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
