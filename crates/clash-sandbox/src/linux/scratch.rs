//! A temporary directory for a command without a room. The launcher makes it before the
//! command starts, `TMPDIR` names it, and it is removed after the command.
//!
//! A separate process removes it. That process waits for the end of the launcher, however
//! it ends. It has its own session, so signals to the launcher's session do not reach it.
//! It first adds the permissions that removal needs.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, Permissions};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use clash_policy::FileCaps;
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::process::{Pid, WaitOptions, waitpid};

use super::sys::{self, ForkSide};
use crate::launch::command::LaunchCommand;
use crate::plan::sight::TreeVisibility;
use crate::plan::{GrantReason, PathGrant, SandboxPlan};

/// Variables in which programs look for a temporary directory.
const TMP_VARIABLES: [&str; 4] = ["TMPDIR", "TMP", "TEMP", "TEMPDIR"];

/// A path in `parent` that is very unlikely to exist. If it exists, making the directory
/// fails.
pub(crate) fn choose_path(parent: &Path) -> PathBuf {
    let random = RandomState::new().build_hasher().finish();
    parent.join(format!("clash-{random:016x}"))
}

/// The plan with all rights to the directory, and the command with it in `TMPDIR`. Makes
/// nothing.
pub(crate) fn add_scratch(
    path: &Path,
    plan: &SandboxPlan,
    command: &LaunchCommand,
) -> (SandboxPlan, LaunchCommand) {
    let mut plan = plan.clone();
    plan.grants.push(PathGrant {
        path: path.into(),
        caps: FileCaps::ALL,
        why: GrantReason::Launcher,
    });
    if let Some(watch) = &mut plan.watch {
        watch.rights.own.push(path.into());
        if let Some(sight) = &mut watch.sight {
            sight.set_tree(path, TreeVisibility::Writable);
        }
    }
    let command = set_tmp_variables(path, command);
    (plan, command)
}

/// The command with the directory in `TMPDIR`, and in `TMP` and similar variables if the
/// command has them.
pub(crate) fn set_tmp_variables(path: &Path, command: &LaunchCommand) -> LaunchCommand {
    let mut command = command.clone();
    for (name, value) in &mut command.env {
        if TMP_VARIABLES.iter().any(|known| name == known) {
            *value = path.into();
        }
    }
    let [tmpdir, ..] = TMP_VARIABLES;
    if !command.env.iter().any(|(name, _)| name == tmpdir) {
        command.env.push((OsString::from(tmpdir), path.into()));
    }
    command
}

/// The directory. Dropping it waits until it is removed.
#[derive(Debug)]
pub(crate) struct ScratchDirectory {
    pub(crate) remover: Option<Pid>,
    alive: Option<OwnedFd>,
}

impl ScratchDirectory {
    /// Makes the directory, and first the process that removes it. Fails if the path exists.
    /// Call this while the launcher has no other thread.
    pub(crate) fn make(path: &Path) -> io::Result<Self> {
        let (wait, alive) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        // The removing process starts before the directory exists. Signals to the
        // launcher's group must not reach it.
        let mask = sys::hold_signals()?;
        match sys::fork() {
            Ok(ForkSide::Parent(pid)) => {
                let made = DirBuilder::new().mode(0o700).create(path);
                if made.is_err() {
                    sys::kill(pid, libc::SIGKILL);
                }
                let scratch = Self { remover: Pid::from_raw(pid), alive: Some(alive) };
                sys::set_mask(&mask).and(made).map(|()| scratch)
            }
            Ok(ForkSide::Child) => {
                drop(alive);
                remove_later(wait, path);
                sys::exit_now(0)
            }
            Err(error) => sys::set_mask(&mask).and(Err(error)),
        }
    }
}

impl Drop for ScratchDirectory {
    /// Tells the remover that the launcher is done, and waits until it has removed the directory.
    fn drop(&mut self) {
        self.alive = None;
        while matches!(waitpid(self.remover, WaitOptions::empty()), Err(Errno::INTR)) {}
    }
}

/// The removing process: waits for the end of the launcher, then removes the directory.
fn remove_later(wait: OwnedFd, path: &Path) {
    let _ = rustix::process::setsid();
    let _ = rustix::process::chdir(c"/");
    // The caller of the launcher may wait for the end of its output, so this process must
    // not hold it.
    sys::close_all_but(wait.as_raw_fd());
    let mut byte = [0_u8];
    while let Err(Errno::INTR) = rustix::io::read(&wait, &mut byte) {}
    let _ = remove_tree(path);
}

/// Removes a directory that commands have written, whatever modes it has. Follows no link.
/// Fails if it is missing.
pub(crate) fn remove_tree(path: &Path) -> io::Result<()> {
    if fs::remove_dir_all(path).is_ok() {
        return Ok(());
    }
    if let Ok(dir) = open_directory(CWD, path) {
        make_removable(&dir);
    }
    fs::remove_dir_all(path)
}

/// Opens a directory, whatever its mode. Follows no link: a process of the command may
/// still be running and put one there.
fn open_directory(dir: impl AsFd, path: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::DIRECTORY | OFlags::CLOEXEC;
    openat(dir, path, flags, Mode::empty())
}

/// Gives the owner all permissions on a directory and every directory below it. Errors are
/// ignored.
fn make_removable(dir: &OwnedFd) {
    let itself = format!("/proc/self/fd/{}", dir.as_raw_fd());
    let _ = fs::set_permissions(&itself, Permissions::from_mode(0o700));
    let Ok(entries) = fs::read_dir(&itself) else { return };
    for entry in entries.flatten() {
        if let Ok(inner) = open_directory(dir, Path::new(&entry.file_name())) {
            make_removable(&inner);
        }
    }
}
