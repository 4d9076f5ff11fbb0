//! Turns the grants of a plan into a Landlock domain.
//!
//! The ruleset handles every right that the host's ABI knows, so everything without a grant
//! is denied. The exception is `TRUNCATE`, where something else prevents the truncation of
//! read-only files: handling it costs a walk up to the root at every open in a read-only
//! tree. The kernel refuses a right that it does not know, so a call that succeeds has
//! taken full effect. Each grant costs two system calls, one to open the path and one to
//! add the rule, and a launch has about fifty grants.
//!
//! | caps | rights |
//! |---|---|
//! | `r` | READ_FILE, READ_DIR |
//! | `w` | WRITE_FILE, TRUNCATE, and IOCTL_DEV below /dev |
//! | `c` | MAKE_REG, MAKE_DIR, MAKE_SYM, MAKE_SOCK, REFER |
//! | `d` | REMOVE_FILE, REMOVE_DIR, REFER |
//! | `x` | EXECUTE |
//!
//! MAKE_CHAR and MAKE_BLOCK are never granted. No project needs a device node, and a
//! character device 0:0 deletes files in a later overlay. MAKE_SYM and REFER are granted
//! only where the monitor judges links: without REFER no file gets another parent, and
//! without MAKE_SYM no link gets another name. MAKE_FIFO is granted only in temporary
//! directories, the room's own or those with the sticky bit; elsewhere a fifo could block
//! every process that reads the tree. IOCTL_DEV is granted only below /dev: terminals need
//! it, and a device node elsewhere would be planted. REFER goes with `c` and with `d`,
//! because a rename between directories needs it on both ends. The kernel never lets a
//! rename gain rights.

use std::ffi::{CStr, CString, OsStr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use clash_policy::FileCaps;
use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, fstat, openat, openat2};
use rustix::io::Errno;

use super::mounts::MountTree;
use super::stdio::{StandardStreams, StreamFacts};
use super::sys::{self, HandledRights};
use crate::baseline::BaselineEntry;
use crate::launch::error::LaunchError;
use crate::plan::room::{MountStep, RoomInterior, RoomPlan};
use crate::plan::{NetworkMode, PathGrant, SandboxPlan};

/// Access rights as a bit mask of the kernel.
type AccessRights = u64;

const EXECUTE: AccessRights = 1;
const WRITE_FILE: AccessRights = 1 << 1;
const READ_FILE: AccessRights = 1 << 2;
const READ_DIR: AccessRights = 1 << 3;
const REMOVE_DIR: AccessRights = 1 << 4;
const REMOVE_FILE: AccessRights = 1 << 5;
const MAKE_DIR: AccessRights = 1 << 7;
const MAKE_REG: AccessRights = 1 << 8;
const MAKE_SOCK: AccessRights = 1 << 9;
const MAKE_FIFO: AccessRights = 1 << 10;
const MAKE_SYM: AccessRights = 1 << 12;
const REFER: AccessRights = 1 << 13;
const TRUNCATE: AccessRights = 1 << 14;
const IOCTL_DEV: AccessRights = 1 << 15;
const RESOLVE_UNIX: AccessRights = 1 << 16;

/// Rights that a rule on a file may name; the others apply to directories.
const OF_FILES: AccessRights =
    EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV | RESOLVE_UNIX;

const BIND_AND_CONNECT_TCP: u64 = 3;
const ABSTRACT_SOCKETS_AND_SIGNALS: u64 = 3;

/// Every file right of an ABI. Newer rights are blocked by seccomp (UDP), or programs built
/// for this ABI do not use them.
fn all_rights(abi: u32) -> AccessRights {
    match abi {
        0 => 0,
        1 => REFER - 1,
        2 => TRUNCATE - 1,
        3 | 4 => IOCTL_DEV - 1,
        5..=8 => RESOLVE_UNIX - 1,
        _ => (RESOLVE_UNIX << 1) - 1,
    }
}

/// The scopes that an ABI knows: before ABI 6 none.
fn scopes(abi: u32) -> u64 {
    if abi < 6 { 0 } else { ABSTRACT_SOCKETS_AND_SIGNALS }
}

/// A ruleset under construction. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct LandlockRuleset {
    fd: Arc<OwnedFd>,
    handled: AccessRights,
}

impl LandlockRuleset {
    /// A ruleset that handles these file rights, TCP if `no_tcp`, and every scope of the ABI.
    fn new(files: AccessRights, abi: u32, no_tcp: bool) -> Result<Self, LaunchError> {
        let network = if no_tcp { BIND_AND_CONNECT_TCP } else { 0 };
        Self::handling(HandledRights { files, network, scopes: scopes(abi) })
    }

    /// A ruleset without file rules, which leaves files to the mounts. Signals and abstract
    /// sockets still end at the room.
    fn of_scopes(abi: u32) -> Result<Self, LaunchError> {
        Self::handling(HandledRights { files: 0, network: 0, scopes: scopes(abi) })
    }

    fn handling(handled: HandledRights) -> Result<Self, LaunchError> {
        let fd = sys::landlock_ruleset(&handled).map_err(LaunchError::Ruleset)?;
        Ok(Self { fd: Arc::new(fd), handled: handled.files })
    }

    /// Adds a rule. The kernel refuses rights that the ruleset does not handle, so they are
    /// masked out.
    fn grant(&self, place: impl AsFd, rights: AccessRights) -> Result<(), Errno> {
        grant(self.fd.as_fd(), place, rights & self.handled)
    }
}

impl AsFd for LandlockRuleset {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Grants rights on a place and everything below it.
fn grant(ruleset: BorrowedFd<'_>, place: impl AsFd, rights: AccessRights) -> Result<(), Errno> {
    if rights == 0 { Ok(()) } else { sys::landlock_rule(ruleset, place.as_fd(), rights) }
}

/// The kernel's rights for these capabilities, by the table above. A file gets only
/// [`OF_FILES`]; a `device` that may be written can also be controlled.
fn rights_of_caps(caps: FileCaps, directory: bool, device: bool) -> AccessRights {
    let mut rights = 0;
    if caps.contains(FileCaps::READ) {
        rights |= READ_FILE | READ_DIR;
    }
    if caps.contains(FileCaps::WRITE) {
        rights |= WRITE_FILE | TRUNCATE;
        if device {
            rights |= IOCTL_DEV;
        }
    }
    if caps.contains(FileCaps::CREATE) {
        rights |= MAKE_REG | MAKE_DIR | MAKE_SYM | MAKE_SOCK | REFER;
    }
    if caps.contains(FileCaps::DELETE) {
        rights |= REMOVE_FILE | REMOVE_DIR | REFER;
    }
    if caps.contains(FileCaps::EXECUTE) {
        rights |= EXECUTE;
    }
    if directory { rights } else { rights & OF_FILES }
}

/// Makes the ruleset of a plan. It grants only the files that the command already has as
/// stdio; [`PendingGrants`] adds the others. For a room with rooms inside it has no file
/// rules.
pub(crate) fn make_ruleset(
    plan: &SandboxPlan,
    streams: &StandardStreams,
) -> Result<LandlockRuleset, LaunchError> {
    if plan.room.as_ref().is_some_and(|room| room.inside == RoomInterior::Rooms) {
        return LandlockRuleset::of_scopes(plan.landlock_abi);
    }
    // A network of the room's own leads nowhere, so TCP needs no rule.
    let closed =
        plan.net == NetworkMode::Deny && !plan.room.as_ref().is_some_and(|r| r.own_network);
    let left = if others_hold_truncation(plan) { TRUNCATE } else { 0 };
    let ruleset =
        LandlockRuleset::new(all_rights(plan.landlock_abi) & !left, plan.landlock_abi, closed)?;
    grant_stdio(&ruleset, streams);
    Ok(ruleset)
}

/// True if something other than Landlock prevents the truncation of read-only files: the
/// seccomp filter, the monitor, which makes all such calls itself, or read-only mounts.
/// Mounts are enough only if every writable grant includes the right to write.
fn others_hold_truncation(plan: &SandboxPlan) -> bool {
    let mounts = || {
        let changed = plan.grants.iter().filter(|grant| grant.caps.intersects(FileCaps::CHANGE));
        { changed }.all(|grant| grant.caps.contains(FileCaps::WRITE))
    };
    super::seccomp::FilterSurface::from_plan(plan).holds_truncation()
        || plan.room.is_some() && (plan.watch.is_some() || mounts())
}

/// The grants of a plan. Several processes add them to the ruleset, each grant once,
/// without allocating memory.
#[derive(Debug)]
pub(crate) struct PendingGrants {
    grants: Vec<(CString, FileCaps)>,
    baseline: Vec<(&'static BaselineEntry, FileCaps)>,
    /// The rights that any grant may have.
    most: AccessRights,
    next: AtomicUsize,
}

/// A grant that could not be added.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MissedGrant {
    at: usize,
    error: Errno,
}

impl PendingGrants {
    /// Collects the grants. Leaves out caches, whose mount does not exist yet, and in a room
    /// the entries of /proc and /sys. None for a room with rooms inside.
    pub(crate) fn from_plan(
        plan: &SandboxPlan,
        ruleset: &LandlockRuleset,
    ) -> Result<Self, LaunchError> {
        let (mut grants, mut baseline) = (Vec::new(), Vec::new());
        if plan.room.as_ref().is_none_or(|room| room.inside != RoomInterior::Rooms) {
            let own = ["/proc", "/sys"];
            let shared = |entry: &BaselineEntry| {
                plan.room.is_none() || !own.iter().any(|o| entry.path.starts_with(o))
            };
            baseline = plan.baseline.iter().filter(|(entry, _)| shared(entry)).copied().collect();
            grants.reserve(plan.grants.len());
            for PathGrant { path, caps, .. } in &plan.grants {
                if plan.room.as_ref().is_some_and(|room| room.has_cache_at(path)) {
                    continue;
                }
                let name = CString::new(path.as_os_str().as_bytes())
                    .map_err(|_| LaunchError::NulByte(path.into()))?;
                grants.push((name, *caps));
            }
        }
        let most = ruleset.handled & !unwatched_links(plan);
        Ok(Self { grants, baseline, most, next: AtomicUsize::new(0) })
    }

    /// Adds the grants that no other process has taken. Returns true if these were all grants
    /// of the plan, so no other process has taken any. Stops at the first grant that fails.
    pub(crate) fn add_to_ruleset(&self, ruleset: impl AsFd) -> Result<bool, MissedGrant> {
        let mut taken = 0;
        // Most baseline entries are in /etc. A lookup that starts there is faster.
        let etc = openat(CWD, "/etc", HOLD | OFlags::DIRECTORY, Mode::empty()).ok();
        loop {
            let at = self.next.fetch_add(1, Ordering::Relaxed);
            let rule = if let Some((path, caps)) = self.grants.get(at) {
                open_grant(path, *caps).map(Some)
            } else if let Some((entry, caps)) = self.baseline.get(at - self.grants.len()) {
                open_baseline(entry, *caps, etc.as_ref())
            } else {
                return Ok(taken == self.grants.len() + self.baseline.len());
            };
            taken += 1;
            let put = rule.and_then(|rule| match rule {
                None => Ok(()),
                Some((place, rights)) => grant(ruleset.as_fd(), place, rights & self.most),
            });
            put.map_err(|error| MissedGrant { at, error })?;
        }
    }

    /// The error with the path of the grant.
    pub(crate) fn error_with_path(&self, MissedGrant { at, error }: MissedGrant) -> LaunchError {
        let grant = self.grants.get(at).map(|(path, _)| OsStr::from_bytes(path.as_bytes()));
        let entry = || self.baseline.get(at.checked_sub(self.grants.len())?);
        let path = grant.or_else(|| entry().map(|(entry, _)| OsStr::new(entry.path)));
        grant_error(Path::new(path.unwrap_or_default()), error)
    }
}

/// Rights to make, rename or move links. A plan without a monitor that may create files
/// grants none of them, because no process judges the links.
fn unwatched_links(plan: &SandboxPlan) -> AccessRights {
    let makes = plan.grants.iter().any(|grant| grant.caps.contains(FileCaps::CREATE));
    if makes && plan.watch.is_none() { MAKE_SYM | REFER } else { 0 }
}

/// Opens the path of a grant and finds its rights. A sticky directory also gets MAKE_FIFO.
fn open_grant(path: &CStr, caps: FileCaps) -> Result<(OwnedFd, AccessRights), Errno> {
    let fd = open_without_links(path)?;
    let mode = fstat(&fd)?.st_mode;
    let directory = FileType::from_raw_mode(mode) == FileType::Directory;
    let mut rights = rights_of_caps(caps, directory, is_device(path.to_bytes()));
    if directory && mode & 0o1000 != 0 && caps.contains(FileCaps::CREATE) {
        rights |= MAKE_FIFO;
    }
    Ok((fd, rights))
}

/// Opens a baseline entry. `None` if this system does not have it, or the user may not reach
/// it: entries may be links, and no system has all of them.
fn open_baseline(
    entry: &BaselineEntry,
    caps: FileCaps,
    etc: Option<&OwnedFd>,
) -> Result<Option<(OwnedFd, AccessRights)>, Errno> {
    let flags = if entry.directory { HOLD | OFlags::DIRECTORY } else { HOLD };
    let opened = match (etc, entry.path.strip_prefix("/etc/")) {
        (Some(etc), Some(name)) => openat(etc, name, flags, Mode::empty()),
        _ => openat(CWD, entry.path, flags, Mode::empty()),
    };
    match opened {
        Ok(fd) => {
            let device = is_device(entry.path.as_bytes());
            Ok(Some((fd, rights_of_caps(caps, entry.directory, device))))
        }
        Err(Errno::NOENT | Errno::ACCESS | Errno::NOTDIR) => Ok(None),
        Err(error) => Err(error),
    }
}

fn is_device(path: &[u8]) -> bool {
    matches!(path.strip_prefix(b"/dev"), Some([] | [b'/', ..]))
}

const HOLD: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);

/// Opens the path of a grant. The planner has resolved all links. A symlink on the way
/// means that a process has exchanged a directory since, which is an error.
fn open_without_links(path: &CStr) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    match openat2(CWD, path, HOLD, Mode::empty(), resolve) {
        // `ENOSYS`: this launcher runs inside another clash sandbox, which refuses
        // `openat2`.
        Err(Errno::NOSYS) => open_name_by_name(Path::new(OsStr::from_bytes(path.to_bytes()))),
        opened => opened,
    }
}

/// As [`open_without_links`], where `openat2` does not exist.
fn open_name_by_name(path: &Path) -> Result<OwnedFd, Errno> {
    let mut here = openat(CWD, "/", HOLD, Mode::empty())?;
    for name in path.iter().skip(1) {
        here = openat(&here, name, HOLD | OFlags::NOFOLLOW, Mode::empty())?;
        if file_type(&here)? == FileType::Symlink {
            return Err(Errno::LOOP);
        }
    }
    Ok(here)
}

fn grant_error(path: &Path, source: Errno) -> LaunchError {
    LaunchError::Grant { path: path.to_path_buf(), source: source.into() }
}

fn file_type(fd: impl AsFd) -> Result<FileType, Errno> {
    Ok(FileType::from_raw_mode(fstat(fd)?.st_mode))
}

/// Lets the command open its stdin, stdout and stderr again with the same access, so that
/// `> /dev/stderr` works for a file or a terminal. Pipes and sockets need no rule. A file
/// that no rule can name, for example a memfd, gets none; this only denies more.
fn grant_stdio(ruleset: &LandlockRuleset, streams: &StandardStreams) {
    for stream in streams.facts().into_iter().flatten() {
        let StreamFacts { fd, kind, flags, .. } = stream;
        if !matches!(kind, FileType::RegularFile | FileType::CharacterDevice)
            || flags.contains(OFlags::PATH)
        {
            continue;
        }
        let mut rights = 0;
        let mode = stream.mode();
        if mode != OFlags::WRONLY {
            rights |= READ_FILE;
        }
        // A regular file for output is behind a pipe (`outputs.rs`), so only devices are
        // written directly.
        if kind == FileType::CharacterDevice {
            if mode != OFlags::RDONLY {
                rights |= WRITE_FILE | TRUNCATE;
            }
            rights |= IOCTL_DEV;
        }
        let _ = ruleset.grant(fd, rights);
    }
}

/// Replaces a directory on stdio by /dev/null: through its descriptor the command could
/// list and walk it without any rule. Also replaces a file on stdin that is open only for
/// writing. Returns true if a stream was replaced.
pub(crate) fn replace_directories_on_stdio(streams: &StandardStreams) -> Result<bool, Errno> {
    let replace = [
        rustix::stdio::dup2_stdin::<OwnedFd>,
        rustix::stdio::dup2_stdout::<OwnedFd>,
        rustix::stdio::dup2_stderr::<OwnedFd>,
    ];
    let mut replaced = false;
    for (stream, replace) in streams.facts().into_iter().zip(replace) {
        let Some(stream) = stream else { continue };
        let only_written = stream.fd.as_raw_fd() == 0
            && stream.kind == FileType::RegularFile
            && stream.mode() == OFlags::WRONLY;
        if stream.kind == FileType::Directory || only_written {
            replace(openat(CWD, "/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?)?;
            replaced = true;
        }
    }
    Ok(replaced)
}

/// Adds the rules for places that exist only now, in the room's tree: scratch directories,
/// caches, doors, /dev/shm, /dev/pts and /proc. None for a room with rooms inside.
pub(crate) fn grant_own_places(
    plan: &SandboxPlan,
    room: &RoomPlan,
    view: &MountTree,
    ruleset: &LandlockRuleset,
) -> Result<(), LaunchError> {
    if room.inside == RoomInterior::Rooms {
        return Ok(());
    }
    let grant = |path: &Path, rights: AccessRights| {
        let fd = view.open(path).map_err(|source| grant_error(path, source))?;
        ruleset.grant(fd, rights).map_err(|error| LaunchError::Ruleset(error.into()))
    };
    let scratch = (rights_of_caps(FileCaps::ALL, true, false) | MAKE_FIFO) & !unwatched_links(plan);
    for step in &room.steps {
        match step {
            MountStep::Scratch { at } | MountStep::ScratchMount { at } => grant(at, scratch)?,
            MountStep::Cache { path, caps, .. } => grant(path, rights_of_caps(*caps, true, false))?,
            MountStep::Doors { at, .. } => {
                grant(at, rights_of_caps(FileCaps::READ.union(FileCaps::EXECUTE), true, false))?;
            }
            MountStep::Resolver { at } | MountStep::Masked { at, .. } => {
                grant(at, rights_of_caps(FileCaps::READ, false, false))?
            }
            MountStep::Devices => {
                grant(Path::new("/dev/shm"), scratch & !EXECUTE)?;
                grant(
                    Path::new("/dev/pts"),
                    rights_of_caps(FileCaps::READ.union(FileCaps::WRITE), true, true),
                )?;
            }
            MountStep::Processes { .. } => {
                grant(Path::new("/proc"), rights_of_caps(FileCaps::READ, true, false))?
            }
            _ => {}
        }
    }
    Ok(())
}

/// Puts the calling thread and its later children into the domain, for good. no_new_privs
/// must be set.
pub(crate) fn enter(ruleset: &LandlockRuleset) -> Result<(), LaunchError> {
    sys::landlock_enter(ruleset.fd.as_fd()).map_err(LaunchError::Landlock)
}

/// Enters a domain of the needed ABI that grants nothing, as a test.
pub(crate) fn enter_empty() -> Result<(), LaunchError> {
    let abi = crate::plan::LANDLOCK_ABI_NEEDED;
    enter(&LandlockRuleset::new(all_rights(abi), abi, true)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_capability_makes_device_nodes() {
        const MAKE_CHAR: AccessRights = 1 << 6;
        const MAKE_BLOCK: AccessRights = 1 << 11;
        let most = rights_of_caps(FileCaps::ALL, true, true) | MAKE_FIFO;
        assert_eq!(most, all_rights(9) & !(MAKE_CHAR | MAKE_BLOCK | RESOLVE_UNIX));
    }

    #[test]
    fn a_file_gets_no_directory_rights() {
        let file = rights_of_caps(FileCaps::ALL, false, false);
        assert_eq!(file, READ_FILE | WRITE_FILE | TRUNCATE | EXECUTE);
    }

    #[test]
    fn device_control_only_for_writable_devices() {
        assert_ne!(rights_of_caps(FileCaps::WRITE, false, true) & IOCTL_DEV, 0);
        assert_eq!(rights_of_caps(FileCaps::WRITE, true, false) & IOCTL_DEV, 0);
        assert_eq!(rights_of_caps(FileCaps::READ, false, true) & IOCTL_DEV, 0);
    }

    #[test]
    fn an_abi_handles_what_it_knows_and_no_more() {
        assert_eq!(
            [1, 2, 3, 4, 5, 8, 9].map(all_rights).map(AccessRights::count_ones),
            [13, 14, 15, 15, 16, 16, 17]
        );
        assert_eq!(all_rights(0), 0);
        let real = sys::landlock_abi();
        assert!(LandlockRuleset::new(all_rights(real), real, real >= 4).is_ok());
    }
}
