//! Phase `restrict`: the command's process restricts itself and calls `execve`.

use std::ffi::c_long;
use std::io;

use super::LaunchError;
use super::phases::{CommandContext, LaunchResult};
use crate::linux::{caps, landlock, limits, sys};

/// Becomes the command. Returns only on failure. With a watched plan, `listener` gets the
/// number of the seccomp listener.
pub(super) fn become_command(
    launch: CommandContext<'_>,
    listener: &mut c_long,
    release_signals: impl FnOnce() -> io::Result<()>,
) -> LaunchError {
    let released = || release_signals().map_err(LaunchError::SignalReset);
    match restrict(launch, listener).and_then(|()| released()) {
        Ok(()) => launch.target.execute(),
        Err(error) => error,
    }
}

/// Restricts this process, in this order: resource limits, no_new_privs, Landlock,
/// capabilities, seccomp filter; then puts SIGCHLD and SIGPIPE right for the command.
/// Landlock and the filter need no_new_privs. The filter comes last, so that it need not
/// allow the other calls. Stores the number of the filter's listener in `listener`, if the
/// plan is watched. An error leaves the process partly restricted.
fn restrict(launch: CommandContext<'_>, listener: &mut c_long) -> LaunchResult<()> {
    let plan = launch.plan;
    limits::set_limits(&plan.limits, plan.group.is_some())
        .map_err(|e| LaunchError::ResourceLimits(e.into()))?;
    rustix::thread::set_no_new_privs(true).map_err(|e| LaunchError::NoNewPrivs(e.into()))?;
    landlock::enter(launch.ruleset)?;
    caps::drop_capabilities(plan.root).map_err(|e| LaunchError::Capabilities(e.into()))?;
    let flags = if plan.watch.is_some() { sys::WITH_LISTENER } else { 0 };
    *listener =
        sys::install_filter(launch.filter, flags).map_err(|error| match error.raw_os_error() {
            Some(libc::EBUSY) => LaunchError::AlreadyWatched,
            _ => LaunchError::Seccomp(error),
        })?;
    if launch.ignores_sigchld {
        sys::forget_children();
    }
    sys::default_sigpipe().map_err(LaunchError::SignalReset)
}
