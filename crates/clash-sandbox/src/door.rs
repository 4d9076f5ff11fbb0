//! Doors: commands that a room asks the launcher to run in sandboxes of their own.
//!
//! In a room, a program of the policy can be a *door*: a small program in the place of the
//! real one (`clash-door`). It opens [`DOOR_PATH`](clash_door::DOOR_PATH). The monitor of
//! the room answers with a socket and hands the other end to the *broker*, a process that
//! the launcher started before it entered the room. For each visit the broker starts a
//! process that asks the [`DoorService`], which decides and launches.
//!
//! The number of the visiting process comes from the kernel. The visitor's arguments,
//! environment, working directory and descriptors are its own claims. They are input for
//! the policy and give no rights by themselves.

use std::ffi::OsString;
use std::os::fd::{OwnedFd, RawFd};
use std::path::PathBuf;

/// A command for a kept room. It gets the rest from its visitor.
#[derive(Debug)]
pub struct KeptCommand {
    pub program: OsString,
    /// The name under which the visitor was started.
    pub name: OsString,
    pub args: Vec<OsString>,
    /// Complete and already scrubbed.
    pub env: Vec<(OsString, OsString)>,
    /// The working directory in the room.
    pub cwd: PathBuf,
    /// The file of the program, if the room has a door in its place.
    pub file: Option<OwnedFd>,
    /// The text of the record, if processes of the command outlive it.
    pub shown: String,
}

/// Facts about a visitor.
#[derive(Debug)]
pub struct DoorVisitor {
    /// The path of the door in the room, for example `/usr/bin/git`.
    pub door: PathBuf,
    /// With the name under which the program was started.
    pub arguments: Vec<OsString>,
    pub environment: Vec<(OsString, OsString)>,
    /// The path of the working directory in the room.
    pub working_directory: PathBuf,
    /// The working directory itself.
    pub held_directory: OwnedFd,
    pub process: VisitorProcess,
    /// The numbers that the visitor's descriptors have, and the descriptors.
    pub descriptors: Vec<(RawFd, OwnedFd)>,
    /// The path of the program, if the visitor wanted to start one of the project.
    pub started: Option<OsString>,
    /// The programs that led to this one, the first one first, for example `make`, `sh`.
    pub callers: Vec<String>,
}

/// Properties of the visitor's process that the command gets too.
#[derive(Clone, Copy, Debug)]
pub struct VisitorProcess {
    pub(crate) group: i32,
    pub(crate) umask: u32,
    /// One bit for each signal.
    pub(crate) ignored_signals: u64,
    pub(crate) blocked_signals: u64,
    /// The soft and the hard limit of each resource.
    pub(crate) limits: [(u64, u64); RESOURCE_COUNT],
}

/// The kernel counts resources from 0 on (`RLIMIT_CPU` … `RLIMIT_RTTIME`).
pub(crate) const RESOURCE_COUNT: usize = 16;

/// A directory of programs with doors in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DoorDirectory {
    /// The directory in the room, for example `/usr/bin`.
    pub at: PathBuf,
    /// The host's directory with the doors, one file for each.
    pub doors: PathBuf,
    /// The directory with the doors for the search path of a command without a room. It can
    /// also have links to other programs.
    pub on_path: PathBuf,
    pub names: Vec<String>,
    /// Paths in the project, and patterns of paths, whose programs are behind the door of
    /// this directory ([`PROJECT_DOOR`]). Empty for other directories.
    pub paths: Vec<String>,
}

/// The directory of a room with the door of the project's programs, for example `./gradlew`.
/// Commands can write the project, so nothing is mounted over its files. Instead the monitor
/// writes the path of this door over the path in the caller's memory. So the path is short.
pub const PROJECT_DOORS: &str = "/_";

/// The name of that door.
pub const PROJECT_DOOR: &str = "d";
