//! Answers calls about metadata in the watched tier, where no room hides files: size and
//! times, permissions, links, extended attributes.
//!
//! The command sees as much as a room would show ([`crate::plan::sight`]). The outer thread
//! does all of it. Landlock does not restrict metadata, and only a thread outside the
//! command's Landlock domain can write to the caller's memory. The answer is about a held
//! object, so the caller cannot exchange it meanwhile.
//!
//! Limits: the monitor cannot carry out `chdir` and `execve` for another process. Their
//! errors still tell whether a directory or file exists. Calls on a descriptor are not
//! judged: the monitor judged the open that made the descriptor.

use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{FileType, fstat, readlinkat_raw};
use rustix::io::Errno;

use super::super::sys::{self, SeccompNotice};
use super::MonitorState;
use super::call::{CallPath, old};
use super::caller::{CallingProcess, shows_processes};
use super::place::{CallPlace, PathFinder, hold, real};
use crate::plan::sight::PathVisibility;

/// The kind of metadata, and the address for the answer.
#[derive(Debug)]
enum MetadataQuery {
    Stat { to: u64 },
    Statx { to: u64, flags: i32, mask: u32 },
    Statfs { to: u64 },
    Access { mode: i32, flags: i32 },
    Link { to: u64, size: u64 },
    Attribute { name: CString, to: u64, size: u64 },
    Attributes { to: u64, size: u64 },
}

/// The return value of the call, and bytes for an address.
struct MetadataAnswer {
    value: i64,
    to: u64,
    bytes: Vec<u8>,
}

impl MetadataAnswer {
    fn plain(to: u64, bytes: Vec<u8>) -> Self {
        Self { value: 0, to, bytes }
    }
}

/// `XATTR_SIZE_MAX` and `XATTR_LIST_MAX` of the kernel.
const MAX_ATTRIBUTE_BYTES: u64 = 65536;

/// Answers a call about metadata (`stat`, `access`, `readlink`, extended attributes …):
/// carries it out, and writes the result into the caller's memory. Returns `false` for every
/// other call.
pub(super) fn answer(shared: &MonitorState, notice: &SeccompNotice) -> bool {
    let caller = CallingProcess::new(shared, notice.pid);
    let asked = match read(&caller, notice) {
        Ok(Some(asked)) => Ok(asked),
        Ok(None) => return false,
        Err(error) => Err(error),
    };
    let found = asked.and_then(|(at, follow, question)| {
        let named = at.path.is_some();
        let place = PathFinder::looking(&caller, shared.sight.as_ref()).find(at, follow)?;
        let place = place.shown(Errno::NOENT)?;
        let blank = matches!(place, CallPlace::Name { look: PathVisibility::Blank, .. });
        let object = hold(place)?;
        question.answer(shared, &caller, &object, blank, named)
    });
    let written = found.and_then(|answer| {
        // The caller still waits, so its process number has not passed to another process.
        // The kernel reuses numbers too slowly to do so in the moment until the write.
        if !sys::is_valid(&shared.listener, notice.id) {
            return Err(Errno::SRCH);
        }
        if !answer.bytes.is_empty() {
            sys::write_memory(notice.pid, answer.to, &answer.bytes)?;
        }
        Ok(answer.value)
    });
    match written {
        Ok(value) => sys::answer(&shared.listener, notice.id, value),
        Err(error) => shared.refuse(notice.id, error),
    }
    true
}

/// Decodes a system call and reads its arguments from the caller's memory. `None` for a call
/// that is not about metadata, `EINVAL` for unknown flags.
fn read(
    caller: &CallingProcess<'_>,
    notice: &SeccompNotice,
) -> Result<Option<(CallPath, bool, MetadataQuery)>, Errno> {
    let [a, b, c, d, e, _] = notice.args;
    // For an `int` argument the kernel reads only the lower 32 bits.
    let int = |arg: u64| arg as u32 as i32;
    let path = |dir: i32, at: u64| -> Result<CallPath, Errno> {
        Ok(CallPath { dir, path: Some(caller.text(at)?) })
    };
    let here = |at: u64| path(libc::AT_FDCWD, at);
    // With `AT_EMPTY_PATH`, an empty path means the descriptor itself.
    let maybe_empty = |dir: i32, at: u64, flags: i32| -> Result<CallPath, Errno> {
        let spot = path(dir, at)?;
        let empty = spot.path.as_ref().is_some_and(Vec::is_empty);
        let itself = empty && flags & libc::AT_EMPTY_PATH != 0;
        Ok(if itself { CallPath { dir, path: None } } else { spot })
    };
    let follows = |flags: i32| flags & libc::AT_SYMLINK_NOFOLLOW == 0;
    let known = |flags: i32, known: i32| match flags & !known {
        0 => Ok(flags),
        _ => Err(Errno::INVAL),
    };
    let attribute = |name: u64, to: u64, size: u64| -> Result<MetadataQuery, Errno> {
        let name = CString::new(caller.text(name)?).map_err(|_| Errno::INVAL)?;
        Ok(MetadataQuery::Attribute { name, to, size })
    };
    let at_flags = libc::AT_SYMLINK_NOFOLLOW | libc::AT_EMPTY_PATH;
    Ok(Some(match notice.number {
        old::SYS_stat => (here(a)?, true, MetadataQuery::Stat { to: b }),
        old::SYS_lstat => (here(a)?, false, MetadataQuery::Stat { to: b }),
        libc::SYS_newfstatat => {
            let flags = known(int(d), at_flags | libc::AT_NO_AUTOMOUNT)?;
            (maybe_empty(int(a), b, flags)?, follows(flags), MetadataQuery::Stat { to: c })
        }
        libc::SYS_statx => {
            let sync = libc::AT_STATX_FORCE_SYNC | libc::AT_STATX_DONT_SYNC;
            let flags = known(int(c), at_flags | libc::AT_NO_AUTOMOUNT | sync)?;
            let question = MetadataQuery::Statx { to: e, flags: flags & sync, mask: d as u32 };
            (maybe_empty(int(a), b, flags)?, follows(flags), question)
        }
        libc::SYS_statfs => (here(a)?, true, MetadataQuery::Statfs { to: b }),
        old::SYS_access => (here(a)?, true, MetadataQuery::Access { mode: int(b), flags: 0 }),
        libc::SYS_faccessat => {
            (path(int(a), b)?, true, MetadataQuery::Access { mode: int(c), flags: 0 })
        }
        libc::SYS_faccessat2 => {
            let flags = known(int(d), at_flags | libc::AT_EACCESS)?;
            let question = MetadataQuery::Access { mode: int(c), flags: flags & libc::AT_EACCESS };
            (maybe_empty(int(a), b, flags)?, follows(flags), question)
        }
        old::SYS_readlink => (here(a)?, false, MetadataQuery::Link { to: b, size: c }),
        libc::SYS_readlinkat => {
            let spot = maybe_empty(int(a), b, libc::AT_EMPTY_PATH)?;
            (spot, false, MetadataQuery::Link { to: c, size: d })
        }
        libc::SYS_getxattr => (here(a)?, true, attribute(b, c, d)?),
        libc::SYS_lgetxattr => (here(a)?, false, attribute(b, c, d)?),
        libc::SYS_listxattr => (here(a)?, true, MetadataQuery::Attributes { to: b, size: c }),
        libc::SYS_llistxattr => (here(a)?, false, MetadataQuery::Attributes { to: b, size: c }),
        _ => return Ok(None),
    }))
}

impl MetadataQuery {
    /// The answer about an object. A blank one shows only that it exists, its type and its
    /// identity.
    fn answer(
        self,
        shared: &MonitorState,
        caller: &CallingProcess<'_>,
        object: &OwnedFd,
        blank: bool,
        named: bool,
    ) -> Result<MetadataAnswer, Errno> {
        Ok(match self {
            Self::Stat { to } => MetadataAnswer::plain(to, sys::stat(object, blank)?),
            Self::Statx { to, flags, mask } => {
                MetadataAnswer::plain(to, sys::statx(object, flags, mask, blank)?)
            }
            Self::Statfs { to } => MetadataAnswer::plain(to, sys::statfs(object)?),
            Self::Access { mode, .. } if blank && mode != libc::F_OK => return Err(Errno::ACCESS),
            Self::Access { mode, flags } => {
                sys::access(object, mode, flags)?;
                if mode & libc::W_OK != 0 && is_read_only(shared, object)? {
                    return Err(Errno::ROFS);
                }
                MetadataAnswer::plain(0, Vec::new())
            }
            Self::Link { to, size } => {
                let size = usize::try_from(size as u32 as i32).map_err(|_| Errno::INVAL)?;
                let mut bytes = leads_to(caller, object, named)?;
                if blank {
                    return Err(Errno::ACCESS);
                }
                bytes.truncate(size);
                MetadataAnswer { value: bytes.len().try_into().map_err(|_| Errno::IO)?, to, bytes }
            }
            Self::Attribute { .. } if blank => return Err(Errno::NODATA),
            Self::Attribute { name, to, size } => attribute(object, Some(name), to, size)?,
            Self::Attributes { to, .. } if blank => MetadataAnswer::plain(to, Vec::new()),
            Self::Attributes { to, size } => attribute(object, None, to, size)?,
        })
    }
}

/// A file that the command may not change looks as if it were on a read-only mount. Devices
/// and pipes on such a mount can still be written.
fn is_read_only(shared: &MonitorState, object: &OwnedFd) -> Result<bool, Errno> {
    let kind = FileType::from_raw_mode(fstat(object)?.st_mode);
    if !matches!(kind, FileType::RegularFile | FileType::Directory) {
        return Ok(false);
    }
    let path = real(&shared.held, object)?;
    let sight = shared.sight.as_ref();
    Ok(sight.zip(path).is_some_and(|(sight, path)| sight.is_read_only(&path)))
}

/// The value of an extended attribute, or the list of their names without a `name`.
fn attribute(
    object: &OwnedFd,
    name: Option<CString>,
    to: u64,
    size: u64,
) -> Result<MetadataAnswer, Errno> {
    let size = usize::try_from(size.min(MAX_ATTRIBUTE_BYTES)).map_err(|_| Errno::INVAL)?;
    let (length, bytes) = sys::attribute(object, name.as_deref(), size)?;
    Ok(MetadataAnswer { value: length.try_into().map_err(|_| Errno::IO)?, to, bytes })
}

/// The text of a link. For `/proc/self` this is the caller's process number, not the
/// monitor's.
fn leads_to(caller: &CallingProcess<'_>, object: &OwnedFd, named: bool) -> Result<Vec<u8>, Errno> {
    if FileType::from_raw_mode(fstat(object)?.st_mode) != FileType::Symlink {
        return Err(if named { Errno::INVAL } else { Errno::NOENT });
    }
    if shows_processes(object) {
        let path = real(caller.held(), object)?;
        if path.as_deref() == Some(Path::new("/proc/self")) {
            return Ok(caller.status("Tgid:")?.into_bytes());
        }
        if path.as_deref() == Some(Path::new("/proc/thread-self")) {
            return Ok(format!("{}/task/{}", caller.status("Tgid:")?, caller.number()).into_bytes());
        }
    }
    let mut buffer = [0_u8; libc::PATH_MAX as usize];
    let length = readlinkat_raw(object, c"", &mut buffer)?;
    Ok(buffer.get(..length).unwrap_or_default().to_vec())
}
