//! The processes of a room, in the room's own /proc.

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

use rustix::fs::{CWD, Mode, OFlags, RawDir, openat};

/// The numbers that the processes of the room have in the room, from `first` + 1 on.
/// Process 1 and those that the launcher started after it have lower numbers. If /proc
/// cannot be read, there are none.
pub(super) fn left_processes(first: i32) -> Vec<i32> {
    let mut found = Vec::new();
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(processes) = openat(CWD, c"/proc", flags, Mode::empty()) else { return found };
    let mut space = [const { MaybeUninit::uninit() }; 4096];
    let mut listed = RawDir::new(&processes, &mut space);
    while let Some(Ok(entry)) = listed.next() {
        found.extend(number(entry.file_name()).filter(|number| *number > first));
    }
    found
}

/// A process of the room as a descriptor, to which signals can be sent.
pub(super) fn open_process(inside: i32) -> Option<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    openat(CWD, format!("/proc/{inside}"), flags, Mode::empty()).ok()
}

fn number(name: &CStr) -> Option<i32> {
    name.to_str().ok()?.parse().ok()
}
