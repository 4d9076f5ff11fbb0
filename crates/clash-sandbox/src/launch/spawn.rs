//! Phase `spawn`: starts process 1 or the guard, and the command's process.

use std::ffi::{CString, OsStr, c_long};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use rustix::io::Errno;

use super::phases::{LaunchResult, ParentContext};
use super::{LaunchError, mount, restrict};
use crate::linux::cgroup::RoomCgroup;
use crate::linux::mounts::MountTree;
use crate::linux::ports::PortCrossing;
use crate::linux::scratch::ScratchDirectory;
use crate::linux::supervise::RoomKeeper;
use crate::linux::{landlock, limits, namespaces, sys};

/// Starts process 1 of the room. Without a room, prepares the guard.
pub(super) fn start_keeper(
    parent: &ParentContext<'_>,
    ports: Option<PortCrossing>,
    cgroup: Option<RoomCgroup>,
    scratch: Option<ScratchDirectory>,
) -> LaunchResult<RoomKeeper> {
    // Before any process of the sandbox could read this one's memory.
    sys::undumpable().map_err(LaunchError::MemoryHiding)?;
    if parent.room.is_none() {
        return RoomKeeper::of_children(cgroup, scratch);
    }
    namespaces::make_process_namespace()?;
    RoomKeeper::start(ports, cgroup)
}

/// Settings of the command's process in the room.
#[derive(Clone, Copy)]
pub(super) struct CommandSettings<'a> {
    pub(super) cwd: &'a CString,
    /// The host's settings of process numbers, and the limit.
    pub(super) numbers: Option<&'a (OwnedFd, u64)>,
    /// Runs when the room is complete, just before the command's process restricts itself.
    pub(super) when_settled: &'a dyn Fn(),
}

/// Starts the command's process, which shares this process's memory and descriptors until
/// `execve`. Its error and its seccomp listener are therefore visible here.
pub(super) fn spawn(
    parent: &ParentContext<'_>,
    keeper: &RoomKeeper,
    settings: CommandSettings<'_>,
    mut tree: Option<&mut MountTree>,
    mask: &sys::SignalMask,
    listener: &mut c_long,
) -> LaunchResult<libc::pid_t> {
    // Signals that arrived during the launch take effect now. The command does not exist
    // yet, so they were meant for the launcher.
    sys::let_through(mask).map_err(LaunchError::SignalDelivery)?;
    let (mut failure, mut stop) = (None, None);
    let started = keeper.run_until_exec(|| {
        // A stop before `execve` would make the launcher wait, so the stop is sent later.
        let release_signals = || {
            stop = sys::held_stop();
            sys::set_mask(mask)
        };
        let cgroup = keeper.group.as_ref();
        failure = Some(match settle(parent, settings, tree.as_deref_mut(), cgroup) {
            Ok(()) => {
                (settings.when_settled)();
                restrict::become_command(parent.launch, listener, release_signals)
            }
            Err(error) => error,
        });
    });
    let child = match (started, failure) {
        (Ok(child), None) => child,
        (Ok(_), Some(error)) => return Err(error),
        (Err(error), _) => return Err(LaunchError::Process(error)),
    };
    if let Some(signal) = stop {
        sys::kill(child, signal);
    }
    Ok(child)
}

/// Work of the command's own process before it restricts itself: joins the cgroup, mounts
/// /proc and what follows it, adds the grants of the room's own places, and changes the
/// directory. Without a room it only arranges to die with its parent.
fn settle(
    parent: &ParentContext<'_>,
    settings: CommandSettings<'_>,
    tree: Option<&mut MountTree>,
    cgroup: Option<&RoomCgroup>,
) -> LaunchResult<()> {
    match (cgroup, settings.numbers) {
        (Some(cgroup), _) => cgroup.join(),
        (None, Some((numbers, most))) => limits::limit_process_numbers(numbers, *most),
        (None, None) => Ok(()),
    }
    .map_err(|e| LaunchError::ProcessLimit(e.into()))?;
    let (Some(room), Some(tree)) = (parent.room, tree) else {
        return sys::die_with_parent().map_err(LaunchError::ParentDeath);
    };
    parent.steps_from_proc.iter().try_for_each(|step| tree.do_step(step))?;
    landlock::grant_own_places(parent.launch.plan, room, tree, parent.launch.ruleset)?;
    if parent.enters_last {
        mount::enter(parent, tree)?;
    }
    let cwd = settings.cwd;
    let hidden = |source: Errno| LaunchError::HiddenWorkingDirectory {
        path: PathBuf::from(OsStr::from_bytes(cwd.as_bytes())),
        source: source.into(),
    };
    rustix::process::chdir(cwd).map_err(hidden)?;
    // The caller of a door may have put a link in the place of a directory.
    let is_elsewhere = parent.launch.command.door.is_some()
        && rustix::process::getcwd(Vec::new()).map_err(hidden)? != *cwd;
    if is_elsewhere { Err(hidden(Errno::NOENT)) } else { Ok(()) }
}
