//! Grants → a Landlock domain.
//!
//! Everything the host's ABI can restrict is handled, so what no rule grants is
//! denied; the `landlock` crate runs at its hard-requirement level throughout
//! and a domain that is less than fully enforced is an error.
//!
//! | caps | rights |
//! |---|---|
//! | `r` | READ_FILE, READ_DIR |
//! | `w` | WRITE_FILE, TRUNCATE, and IOCTL_DEV below /dev |
//! | `c` | MAKE_REG, MAKE_DIR, MAKE_SYM, MAKE_SOCK, REFER |
//! | `d` | REMOVE_FILE, REMOVE_DIR, REFER |
//! | `x` | EXECUTE |
//!
//! MAKE_CHAR and MAKE_BLOCK are never granted: a device node in a project is
//! never wanted and a character device 0:0 deletes files in a later overlay.
//! MAKE_FIFO only in temporary directories, a room's own or one with the sticky
//! bit: elsewhere a fifo is there to hang whoever reads the tree.
//! IOCTL_DEV only below /dev: terminals need it, and a device node elsewhere
//! would be someone's plant. REFER goes with both `c` and `d`, since a rename
//! across directories asks for it on both ends; the kernel lets a rename never
//! gain rights.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use clash_policy::Caps;
use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, PathBeneath, Ruleset,
    RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};
use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, fcntl_getfl, fstat, openat, openat2};
use rustix::io::Errno;

use super::mounts::View;
use crate::baseline::Entry;
use crate::launch::LaunchError;
use crate::plan::{Grant, Network, Plan};
use crate::room::{Inside, Room, Step};

/// The newest ABI both sides know. Rights of a later kernel are closed by
/// seccomp (UDP) or do not exist for programs built against this one.
fn known(abi: u32) -> ABI {
    match abi {
        0 => ABI::Unsupported,
        1 => ABI::V1,
        2 => ABI::V2,
        3 => ABI::V3,
        4 => ABI::V4,
        5 => ABI::V5,
        6 => ABI::V6,
        7 => ABI::V7,
        8 => ABI::V8,
        _ => ABI::V9,
    }
}

fn rights(caps: Caps, directory: bool, device: bool) -> BitFlags<AccessFs> {
    let mut rights = BitFlags::EMPTY;
    if caps.contains(Caps::READ) {
        rights |= AccessFs::ReadFile | AccessFs::ReadDir;
    }
    if caps.contains(Caps::WRITE) {
        rights |= AccessFs::WriteFile | AccessFs::Truncate;
        if device {
            rights |= AccessFs::IoctlDev;
        }
    }
    if caps.contains(Caps::CREATE) {
        rights |= AccessFs::MakeReg
            | AccessFs::MakeDir
            | AccessFs::MakeSym
            | AccessFs::MakeSock
            | AccessFs::Refer;
    }
    if caps.contains(Caps::DELETE) {
        rights |= AccessFs::RemoveFile | AccessFs::RemoveDir | AccessFs::Refer;
    }
    if caps.contains(Caps::EXECUTE) {
        rights |= AccessFs::Execute;
    }
    if directory { rights } else { rights & AccessFs::from_file(ABI::V9) }
}

/// Builds the ruleset: everything that can fail for a path fails here, before
/// anything about the process has changed.
pub(crate) fn ruleset(plan: &Plan) -> Result<RulesetCreated, LaunchError> {
    let abi = known(plan.landlock_abi);
    if plan.room.as_ref().is_some_and(|room| room.inside == Inside::Rooms) {
        return only_scopes(abi).map_err(LaunchError::Ruleset);
    }
    // A network of the room's own has nothing in it to keep anybody from.
    let closed = plan.net == Network::Deny && !plan.room.as_ref().is_some_and(|r| r.own_network);
    let mut ruleset = handled(abi, closed).map_err(LaunchError::Ruleset)?;
    let mut grant = |fd: OwnedFd, rights: BitFlags<AccessFs>| -> Result<(), LaunchError> {
        if !rights.is_empty() {
            (&mut ruleset).add_rule(PathBeneath::new(fd, rights)).map_err(LaunchError::Ruleset)?;
        }
        Ok(())
    };
    let is_device = |path: &Path| path.starts_with("/dev");
    for Grant { path, caps, .. } in &plan.grants {
        let fd = open(path)?;
        let mode = fstat(&fd).map_err(|source| failed(path, source))?.st_mode;
        let directory = FileType::from_raw_mode(mode) == FileType::Directory;
        let mut rights = rights(*caps, directory, is_device(path));
        if directory && mode & 0o1000 != 0 && caps.contains(Caps::CREATE) {
            rights |= AccessFs::MakeFifo;
        }
        grant(fd, rights)?;
    }
    let own = ["/proc", "/sys"];
    let shared =
        |entry: &Entry| plan.room.is_none() || !own.iter().any(|o| entry.path.starts_with(o));
    for (entry, caps) in plan.baseline.iter().filter(|(entry, _)| shared(entry)) {
        if let Some(fd) = open_if_there(entry)? {
            grant(fd, rights(*caps, entry.directory, is_device(Path::new(entry.path))))?;
        }
    }
    own_stdio(&mut ruleset);
    Ok(ruleset)
}

fn handled(abi: ABI, no_tcp: bool) -> Result<RulesetCreated, RulesetError> {
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(abi))?
        .scope(Scope::from_all(abi))?;
    if no_tcp {
        ruleset = ruleset.handle_access(AccessNet::BindTcp | AccessNet::ConnectTcp)?;
    }
    // The launcher sets no_new_privs itself, one step earlier.
    Ok(ruleset.create()?.no_new_privs(false))
}

/// Signals and abstract sockets end at the room; files are left to its mounts.
fn only_scopes(abi: ABI) -> Result<RulesetCreated, RulesetError> {
    let ruleset = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    Ok(ruleset.scope(Scope::from_all(abi))?.create()?.no_new_privs(false))
}

const HOLD: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);

/// Opens what a grant names. The plan's paths are already resolved, so a symlink
/// on the way means somebody swapped a directory since then and is an error.
fn open(path: &Path) -> Result<OwnedFd, LaunchError> {
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let opened = match openat2(CWD, path, HOLD, Mode::empty(), resolve) {
        // Inside a sandbox of ours.
        Err(Errno::NOSYS) => name_by_name(path),
        opened => opened,
    };
    opened.map_err(|source| failed(path, source))
}

/// The same where there is no `openat2`.
fn name_by_name(path: &Path) -> Result<OwnedFd, Errno> {
    let mut here = openat(CWD, "/", HOLD, Mode::empty())?;
    for name in path.iter().skip(1) {
        here = openat(&here, name, HOLD | OFlags::NOFOLLOW, Mode::empty())?;
        if kind(&here)? == FileType::Symlink {
            return Err(Errno::LOOP);
        }
    }
    Ok(here)
}

/// The baseline belongs to the system: it may have links in it, and no system
/// has all of it.
fn open_if_there(entry: &Entry) -> Result<Option<OwnedFd>, LaunchError> {
    let flags = if entry.directory { HOLD | OFlags::DIRECTORY } else { HOLD };
    match openat(CWD, entry.path, flags, Mode::empty()) {
        Ok(fd) => Ok(Some(fd)),
        Err(Errno::NOENT | Errno::ACCESS | Errno::NOTDIR) => Ok(None),
        Err(source) => Err(failed(Path::new(entry.path), source)),
    }
}

fn failed(path: &Path, source: Errno) -> LaunchError {
    LaunchError::Grant { path: path.to_path_buf(), source: source.into() }
}

fn kind(fd: impl AsFd) -> Result<FileType, Errno> {
    Ok(FileType::from_raw_mode(fstat(fd)?.st_mode))
}

/// Lets the command reopen what it already holds as stdin, stdout and stderr,
/// so that `> /dev/stderr` works when that is a file or a terminal, with just
/// the access the descriptor has. Pipes and sockets need no rule, and what no
/// rule can name (a memfd) gets none: the failure only denies more.
fn own_stdio(ruleset: &mut RulesetCreated) {
    for fd in stdio() {
        let Ok(kind @ (FileType::RegularFile | FileType::CharacterDevice)) = kind(fd) else {
            continue;
        };
        let Ok(flags) = fcntl_getfl(fd) else { continue };
        if flags.contains(OFlags::PATH) {
            continue;
        }
        let mut rights = BitFlags::<AccessFs>::EMPTY;
        let mode = flags & OFlags::RWMODE;
        if mode != OFlags::WRONLY {
            rights |= AccessFs::ReadFile;
        }
        if mode != OFlags::RDONLY {
            rights |= AccessFs::WriteFile | AccessFs::Truncate;
        }
        if kind == FileType::CharacterDevice {
            rights |= AccessFs::IoctlDev;
        }
        let _ = ruleset.add_rule(PathBeneath::new(fd, rights));
    }
}

fn stdio() -> [BorrowedFd<'static>; 3] {
    [rustix::stdio::stdin(), rustix::stdio::stdout(), rustix::stdio::stderr()]
}

/// A directory as stdin, stdout or stderr can be listed and walked from without
/// any rule; nobody means to hand one over, so it becomes /dev/null.
pub(crate) fn no_directory_as_stdio() -> Result<(), Errno> {
    let replace = [
        rustix::stdio::dup2_stdin::<OwnedFd>,
        rustix::stdio::dup2_stdout::<OwnedFd>,
        rustix::stdio::dup2_stderr::<OwnedFd>,
    ];
    for (fd, replace) in stdio().into_iter().zip(replace) {
        if kind(fd) == Ok(FileType::Directory) {
            replace(openat(CWD, "/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?)?;
        }
    }
    Ok(())
}

/// Rules for what a room has of its own and the plan cannot open beforehand.
pub(crate) fn own_places(
    room: &Room,
    view: &View,
    ruleset: &mut RulesetCreated,
) -> Result<(), LaunchError> {
    if room.inside == Inside::Rooms {
        return Ok(());
    }
    let mut grant = |path: &Path, rights: BitFlags<AccessFs>| {
        let fd = view.open(path).map_err(|source| failed(path, source))?;
        ruleset.add_rule(PathBeneath::new(fd, rights)).map(drop).map_err(LaunchError::Ruleset)
    };
    let scratch = rights(Caps::ALL, true, false) | AccessFs::MakeFifo;
    for step in &room.steps {
        match step {
            Step::Scratch { at } | Step::ScratchMount { at } => grant(at, scratch)?,
            Step::Devices => {
                grant(Path::new("/dev/shm"), scratch & !AccessFs::Execute)?;
                grant(Path::new("/dev/pts"), rights(Caps::READ.union(Caps::WRITE), true, true))?;
            }
            Step::Processes { .. } => grant(Path::new("/proc"), rights(Caps::READ, true, false))?,
            _ => {}
        }
    }
    Ok(())
}

/// Enters the domain.
pub(crate) fn enter(ruleset: RulesetCreated) -> Result<(), LaunchError> {
    let status = ruleset.restrict_self().map_err(LaunchError::Landlock)?;
    match status.ruleset {
        RulesetStatus::FullyEnforced => Ok(()),
        RulesetStatus::PartiallyEnforced | RulesetStatus::NotEnforced => {
            Err(LaunchError::NotFullyEnforced)
        }
    }
}

/// Enters a domain at the needed ABI that grants nothing, to see it work.
pub(crate) fn enter_empty() -> Result<(), LaunchError> {
    let abi = known(crate::plan::LANDLOCK_ABI_NEEDED);
    enter(handled(abi, true).map_err(LaunchError::Ruleset)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_capability_makes_device_nodes() {
        let all = rights(Caps::ALL, true, true);
        assert!(!all.intersects(AccessFs::MakeChar | AccessFs::MakeBlock));
        assert!(!all.contains(AccessFs::ResolveUnix));
    }

    #[test]
    fn a_file_gets_no_directory_rights() {
        let file = rights(Caps::ALL, false, false);
        assert_eq!(
            file,
            AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::Truncate | AccessFs::Execute
        );
    }

    #[test]
    fn device_control_only_for_writable_devices() {
        assert!(rights(Caps::WRITE, false, true).contains(AccessFs::IoctlDev));
        assert!(!rights(Caps::WRITE, true, false).contains(AccessFs::IoctlDev));
        assert!(!rights(Caps::READ, false, true).contains(AccessFs::IoctlDev));
    }
}
