//! The way to the door of the project's programs, for example `./gradlew`.
//!
//! Commands can write these files, so no door is mounted over them: `cat gradlew` and `git
//! status` must see the file itself. Instead the monitor sees each `execve`. If the path is
//! one of the plan's, the monitor writes the path of the door over it in the caller's memory,
//! and lets the call go on. A new program replaces this memory.
//!
//! A new program has memory of its own. After `vfork` the caller shares its memory with its
//! parent, which waits until the new program runs. The monitor then writes the path back.
//!
//! This gives no right: the caller could start the door itself, with any arguments, and the
//! broker judges the path as a claim. If the path cannot be replaced, the program runs in the
//! room of its caller.

use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use clash_policy::doors::is_door_path;
use rustix::fs::{FileType, Mode, OFlags, openat};

use super::super::sys::{self, SeccompNotice};
use super::caller::CallingProcess;
use super::{MonitorState, place};
use crate::door::{PROJECT_DOOR, PROJECT_DOORS};

/// The processes on their way to a door, at most. Others keep the path.
const MAX_LED: usize = 1000;

/// The time for the kernel to start the door. Usually it needs a tenth of a millisecond.
const MAX_START_TIME: Duration = Duration::from_millis(50);

/// The pause between two looks at a process that starts the door.
const LOOK_PAUSE: Duration = Duration::from_micros(20);

/// The paths that processes on their way to the door had given.
#[derive(Debug, Default)]
pub(super) struct LedProcesses(Mutex<BTreeMap<i32, Vec<u8>>>);

impl LedProcesses {
    /// False if there are too many.
    fn remember(&self, pid: i32, path: Vec<u8>) -> bool {
        let Ok(mut led) = self.0.lock() else { return false };
        if led.len() >= MAX_LED && !led.contains_key(&pid) {
            led.clear();
        }
        led.insert(pid, path);
        true
    }

    /// The path that a process had given when it started the door.
    pub(super) fn take(&self, pid: i32) -> Option<Vec<u8>> {
        self.0.lock().ok()?.remove(&pid)
    }
}

/// Lets an `execve` go on, to the door of the project if the program has one.
pub(super) fn lead_to_door(shared: &MonitorState, notice: &SeccompNotice) {
    let is_elsewhere = starts_elsewhere(shared, notice);
    let led = shared.doors.as_ref().filter(|_| !is_elsewhere);
    let led = led.and_then(|_| replaced_path(shared, notice));
    let _ = sys::let_go_on(shared.listener.as_raw_fd(), notice.id);
    if let Some(PathOfParent { parent, memory, path }) = led.flatten() {
        let end = Instant::now() + MAX_START_TIME;
        while sys::share_memory(notice.pid, parent) == Some(true) && Instant::now() < end {
            std::thread::sleep(LOOK_PAUSE);
        }
        let [at, ..] = notice.args;
        let _ = rustix::io::pwrite(memory, &path, at);
    }
}

/// True if the first bytes of the path show that the program is not in the project, as for most
/// programs. Needs a single look at the caller's memory.
fn starts_elsewhere(shared: &MonitorState, notice: &SeccompNotice) -> bool {
    let project = shared.project.as_os_str().as_bytes();
    let [at, ..] = notice.args;
    let mut start = [0_u8; 16];
    let read = sys::read_memory(notice.pid, at, &mut start).unwrap_or(0);
    let start = start.get(..read).unwrap_or_default();
    let is_same = start.iter().zip(project).take_while(|(a, b)| a == b).count();
    start.first() == Some(&b'/') && is_same < start.len().min(project.len())
}

/// A replaced path in memory that the parent of the caller shares.
struct PathOfParent {
    parent: i32,
    /// The memory itself. The number of a process that has ended can belong to another one.
    memory: OwnedFd,
    /// The bytes of the path, with a NUL byte.
    path: Vec<u8>,
}

/// Writes the path of the door over the path of the call, if the call is about a program with
/// a door. `None` if nothing was changed.
fn replaced_path(shared: &MonitorState, notice: &SeccompNotice) -> Option<Option<PathOfParent>> {
    let [at, ..] = notice.args;
    let caller = CallingProcess::of_notice(shared, notice);
    let given = caller.text(at).ok()?;
    let door = format!("{PROJECT_DOORS}/{PROJECT_DOOR}\0").into_bytes();
    if given.len() + 1 < door.len()
        || given.len() > clash_door::MAX_PATH_BYTES
        || !has_door(shared, &caller, &given)?
    {
        return None;
    }
    let process = caller.status("Tgid:").ok()?.parse().ok()?;
    let parent = caller.parent()?;
    let memory = openat(
        &shared.processes,
        format!("{parent}/mem"),
        OFlags::WRONLY | OFlags::CLOEXEC,
        Mode::empty(),
    );
    let memory = memory.ok()?;
    let is_shared = sys::share_memory(notice.pid, parent)?;
    // This check comes last. It proves that the monitor has read and now writes the memory
    // of the caller.
    let is_valid = sys::is_valid(&shared.listener, notice.id);
    if !is_valid || !shared.led.remember(process, given.clone()) {
        return None;
    }
    sys::write_memory(notice.pid, at, &door).ok()?;
    let path = given.into_iter().chain([0]).take(door.len()).collect();
    Some(is_shared.then_some(PathOfParent { parent, memory, path }))
}

/// True if the plan has a door for the program at a path that the caller gave.
fn has_door(shared: &MonitorState, caller: &CallingProcess<'_>, given: &[u8]) -> Option<bool> {
    let path = Path::new(std::ffi::OsStr::from_bytes(given));
    // Most programs are not in the project.
    if !given.contains(&b'/') || path.is_absolute() && !path.starts_with(&shared.project) {
        return None;
    }
    let directory = caller.directory(libc::AT_FDCWD).ok()?;
    let from = place::real(&shared.held, &directory).ok()??;
    let full = clean(&from.join(path));
    let below = full.strip_prefix(&shared.project).unwrap_or(path).to_str()?;
    let is_known = is_door_path(below.trim_start_matches("./"), &shared.door_paths);
    Some(is_known && is_program_of_project(shared, &directory, path))
}

/// True for an executable file of the project. A link to another program is that program,
/// which may have a door of its own.
fn is_program_of_project(shared: &MonitorState, directory: &OwnedFd, path: &Path) -> bool {
    let Ok(file) = openat(directory, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) else {
        return false;
    };
    let is_executable = rustix::fs::fstat(&file).is_ok_and(|stat| {
        FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile && stat.st_mode & 0o111 != 0
    });
    let real = place::real(&shared.held, &file).ok().flatten();
    is_executable && real.is_some_and(|real| real.starts_with(&shared.project))
}

/// The path without `.` and `..`.
fn clean(path: &Path) -> PathBuf {
    let mut clean = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => drop(clean.pop()),
            part => clean.push(part),
        }
    }
    clean
}
