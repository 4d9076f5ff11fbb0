//! Decodes a system call and reads its arguments from the caller's memory.

use rustix::io::Errno;

use super::super::sys::SeccompNotice;
use super::caller::CallingProcess;

/// A path argument as the caller gave it.
#[derive(Debug)]
pub(super) struct CallPath {
    /// A descriptor or `AT_FDCWD`.
    pub(super) dir: i32,
    /// `None`: the call is about the descriptor itself.
    pub(super) path: Option<Vec<u8>>,
}

#[derive(Debug)]
pub(super) enum DecodedCall {
    Open { at: CallPath, flags: i32, mode: u32 },
    Mkdir { at: CallPath, mode: u32 },
    Mknod { at: CallPath, mode: u32, device: u64 },
    Unlink { at: CallPath, directory: bool },
    Rename { from: CallPath, to: CallPath, flags: u32 },
    Link { from: CallPath, to: CallPath, follow: bool },
    Symlink { target: Vec<u8>, at: CallPath },
    Truncate { at: CallPath, length: u64 },
    Chmod { at: CallPath, mode: u32, follow: bool },
    Chown { at: CallPath, owner: u32, group: u32, follow: bool },
    Times { at: CallPath, times: FileTimes, follow: bool },
    Notify { at: CallPath, through: i32, mask: u32 },
}

impl DecodedCall {
    /// True for the call by which a door reaches the launcher. The path is only a name: no
    /// file is at this place.
    pub(super) fn opens_door(&self) -> bool {
        let path = match self {
            Self::Open { at, .. } => at.path.as_deref(),
            _ => None,
        };
        path == Some(clash_door::DOOR_PATH.as_bytes())
    }
}

/// Seconds and nanoseconds of the last access and the last change.
pub(super) type FileTimes = [(i64, i64); 2];

const NOW: FileTimes = [(0, libc::UTIME_NOW), (0, libc::UTIME_NOW)];

#[cfg(target_arch = "x86_64")]
pub(super) mod old {
    pub(in super::super) use libc::{
        SYS_access, SYS_chmod, SYS_chown, SYS_creat, SYS_futimesat, SYS_lchown, SYS_link,
        SYS_lstat, SYS_mkdir, SYS_mknod, SYS_open, SYS_readlink, SYS_rename, SYS_rmdir, SYS_stat,
        SYS_symlink, SYS_unlink, SYS_utime, SYS_utimes,
    };
}

/// Numbers that no call has, for architectures without these older calls.
#[cfg(not(target_arch = "x86_64"))]
#[expect(non_upper_case_globals, reason = "named like the calls")]
pub(super) mod old {
    pub(in super::super) const SYS_access: i64 = -1;
    pub(in super::super) const SYS_chmod: i64 = -2;
    pub(in super::super) const SYS_chown: i64 = -3;
    pub(in super::super) const SYS_creat: i64 = -4;
    pub(in super::super) const SYS_futimesat: i64 = -5;
    pub(in super::super) const SYS_lchown: i64 = -6;
    pub(in super::super) const SYS_link: i64 = -7;
    pub(in super::super) const SYS_lstat: i64 = -8;
    pub(in super::super) const SYS_mkdir: i64 = -9;
    pub(in super::super) const SYS_mknod: i64 = -10;
    pub(in super::super) const SYS_open: i64 = -11;
    pub(in super::super) const SYS_readlink: i64 = -12;
    pub(in super::super) const SYS_rename: i64 = -13;
    pub(in super::super) const SYS_rmdir: i64 = -14;
    pub(in super::super) const SYS_stat: i64 = -15;
    pub(in super::super) const SYS_symlink: i64 = -16;
    pub(in super::super) const SYS_unlink: i64 = -17;
    pub(in super::super) const SYS_utime: i64 = -18;
    pub(in super::super) const SYS_utimes: i64 = -19;
}

const SYS_FCHMODAT2: i64 = 452;

/// Decodes a call, or fails with `ENOSYS` for a call that the monitor does not know.
pub(super) fn read(
    caller: &CallingProcess<'_>,
    notice: &SeccompNotice,
) -> Result<DecodedCall, Errno> {
    let args = CallArguments { caller };
    let call = match read_name_call(&args, notice)? {
        Some(call) => Some(call),
        None => read_attribute_call(&args, notice)?,
    };
    call.ok_or(Errno::NOSYS)
}

/// Reads path arguments from the caller's memory.
struct CallArguments<'a> {
    caller: &'a CallingProcess<'a>,
}

impl CallArguments<'_> {
    fn path(&self, dir: i32, at: u64) -> Result<CallPath, Errno> {
        Ok(CallPath { dir, path: Some(self.caller.text(at)?) })
    }

    /// A path relative to the working directory.
    fn here(&self, at: u64) -> Result<CallPath, Errno> {
        self.path(libc::AT_FDCWD, at)
    }

    /// With `AT_EMPTY_PATH`, an empty or missing path means the descriptor itself.
    fn maybe_empty(&self, dir: i32, at: u64, flags: i32) -> Result<CallPath, Errno> {
        let empty = flags & libc::AT_EMPTY_PATH != 0;
        if empty && at == 0 {
            return Ok(CallPath { dir, path: None });
        }
        let path = self.path(dir, at)?;
        let itself = empty && path.path.as_ref().is_some_and(Vec::is_empty);
        Ok(if itself { CallPath { dir, path: None } } else { path })
    }
}

/// For an `int` argument the kernel reads only the lower 32 bits.
fn int(arg: u64) -> i32 {
    arg as u32 as i32
}

fn bits(arg: u64) -> u32 {
    arg as u32
}

fn itself(arg: u64) -> CallPath {
    CallPath { dir: int(arg), path: None }
}

fn follows(flags: i32) -> bool {
    flags & libc::AT_SYMLINK_NOFOLLOW == 0
}

/// Decodes calls that open and truncate files by path, and make, link, rename and remove
/// names. Copies their paths from the caller's memory (`EFAULT`, `ENAMETOOLONG`), and passes
/// flags and modes on unchecked. `None` for another call. `openat2` never arrives: the filter
/// answers it with `ENOSYS`.
fn read_name_call(
    args: &CallArguments<'_>,
    notice: &SeccompNotice,
) -> Result<Option<DecodedCall>, Errno> {
    let [a, b, c, d, e, _] = notice.args;
    Ok(Some(match notice.number {
        old::SYS_open => DecodedCall::Open { at: args.here(a)?, flags: int(b), mode: bits(c) },
        libc::SYS_openat => {
            DecodedCall::Open { at: args.path(int(a), b)?, flags: int(c), mode: bits(d) }
        }
        old::SYS_creat => {
            let flags = libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC;
            DecodedCall::Open { at: args.here(a)?, flags, mode: bits(b) }
        }
        old::SYS_mkdir => DecodedCall::Mkdir { at: args.here(a)?, mode: bits(b) },
        libc::SYS_mkdirat => DecodedCall::Mkdir { at: args.path(int(a), b)?, mode: bits(c) },
        old::SYS_mknod => DecodedCall::Mknod { at: args.here(a)?, mode: bits(b), device: c },
        libc::SYS_mknodat => {
            DecodedCall::Mknod { at: args.path(int(a), b)?, mode: bits(c), device: d }
        }
        old::SYS_unlink => DecodedCall::Unlink { at: args.here(a)?, directory: false },
        old::SYS_rmdir => DecodedCall::Unlink { at: args.here(a)?, directory: true },
        libc::SYS_unlinkat => DecodedCall::Unlink {
            at: args.path(int(a), b)?,
            directory: int(c) & libc::AT_REMOVEDIR != 0,
        },
        old::SYS_rename => DecodedCall::Rename { from: args.here(a)?, to: args.here(b)?, flags: 0 },
        libc::SYS_renameat => {
            DecodedCall::Rename { from: args.path(int(a), b)?, to: args.path(int(c), d)?, flags: 0 }
        }
        libc::SYS_renameat2 => DecodedCall::Rename {
            from: args.path(int(a), b)?,
            to: args.path(int(c), d)?,
            flags: bits(e),
        },
        old::SYS_link => {
            DecodedCall::Link { from: args.here(a)?, to: args.here(b)?, follow: false }
        }
        libc::SYS_linkat => {
            let from = args.maybe_empty(int(a), b, int(e))?;
            let follow = int(e) & libc::AT_SYMLINK_FOLLOW != 0;
            DecodedCall::Link { from, to: args.path(int(c), d)?, follow }
        }
        old::SYS_symlink => {
            DecodedCall::Symlink { target: args.caller.text(a)?, at: args.here(b)? }
        }
        libc::SYS_symlinkat => {
            DecodedCall::Symlink { target: args.caller.text(a)?, at: args.path(int(b), c)? }
        }
        libc::SYS_truncate => DecodedCall::Truncate { at: args.here(a)?, length: b },
        _ => return Ok(None),
    }))
}

/// Decodes calls that change modes, owners and times, and inotify. `None` for another call.
fn read_attribute_call(
    args: &CallArguments<'_>,
    notice: &SeccompNotice,
) -> Result<Option<DecodedCall>, Errno> {
    let [a, b, c, d, e, _] = notice.args;
    Ok(Some(match notice.number {
        old::SYS_chmod => DecodedCall::Chmod { at: args.here(a)?, mode: bits(b), follow: true },
        libc::SYS_fchmod => DecodedCall::Chmod { at: itself(a), mode: bits(b), follow: true },
        libc::SYS_fchmodat => {
            DecodedCall::Chmod { at: args.path(int(a), b)?, mode: bits(c), follow: true }
        }
        SYS_FCHMODAT2 => DecodedCall::Chmod {
            at: args.maybe_empty(int(a), b, int(d))?,
            mode: bits(c),
            follow: follows(int(d)),
        },
        old::SYS_chown => {
            DecodedCall::Chown { at: args.here(a)?, owner: bits(b), group: bits(c), follow: true }
        }
        old::SYS_lchown => {
            DecodedCall::Chown { at: args.here(a)?, owner: bits(b), group: bits(c), follow: false }
        }
        libc::SYS_fchown => {
            DecodedCall::Chown { at: itself(a), owner: bits(b), group: bits(c), follow: true }
        }
        libc::SYS_fchownat => DecodedCall::Chown {
            at: args.maybe_empty(int(a), b, int(e))?,
            owner: bits(c),
            group: bits(d),
            follow: follows(int(e)),
        },
        old::SYS_utime => {
            let times = match b {
                0 => NOW,
                at => args.caller.words::<2>(at)?.map(|seconds| (seconds, 0)),
            };
            DecodedCall::Times { at: args.here(a)?, times, follow: true }
        }
        old::SYS_utimes => {
            DecodedCall::Times { at: args.here(a)?, times: micros(args.caller, b)?, follow: true }
        }
        old::SYS_futimesat => {
            let at = if b == 0 { itself(a) } else { args.path(int(a), b)? };
            DecodedCall::Times { at, times: micros(args.caller, c)?, follow: true }
        }
        libc::SYS_utimensat => {
            let at = if b == 0 { itself(a) } else { args.maybe_empty(int(a), b, int(d))? };
            let times = match c {
                0 => NOW,
                c => pairs(args.caller, c)?,
            };
            DecodedCall::Times { at, times, follow: follows(int(d)) }
        }
        libc::SYS_inotify_add_watch => {
            DecodedCall::Notify { at: args.here(b)?, through: int(a), mask: bits(c) }
        }
        _ => return Ok(None),
    }))
}

/// Two times from the caller's memory, as seconds and nanoseconds.
fn pairs(caller: &CallingProcess<'_>, at: u64) -> Result<FileTimes, Errno> {
    let [a, b, c, d] = caller.words::<4>(at)?;
    Ok([(a, b), (c, d)])
}

/// Two times from the caller's memory, with microseconds. The present time for address 0.
/// `EINVAL` for microseconds out of range.
fn micros(caller: &CallingProcess<'_>, at: u64) -> Result<FileTimes, Errno> {
    if at == 0 {
        return Ok(NOW);
    }
    let times = pairs(caller, at)?;
    if times.iter().any(|(_, micros)| !(0..1_000_000).contains(micros)) {
        return Err(Errno::INVAL);
    }
    Ok(times.map(|(seconds, micros)| (seconds, micros * 1000)))
}
