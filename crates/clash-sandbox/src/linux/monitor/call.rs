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

/// Seconds and nanoseconds of the last access and the last change.
pub(super) type FileTimes = [(i64, i64); 2];

const NOW: FileTimes = [(0, libc::UTIME_NOW), (0, libc::UTIME_NOW)];
const WORKING_DIRECTORY: i32 = libc::AT_FDCWD;

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

pub(super) fn read(
    caller: &CallingProcess<'_>,
    notice: &SeccompNotice,
) -> Result<DecodedCall, Errno> {
    let [a, b, c, d, e, _] = notice.args;
    // For an `int` argument the kernel reads only the lower 32 bits.
    let int = |arg: u64| arg as u32 as i32;
    let bits = |arg: u64| arg as u32;
    let path = |dir: i32, at: u64| -> Result<CallPath, Errno> {
        Ok(CallPath { dir, path: Some(caller.text(at)?) })
    };
    // With `AT_EMPTY_PATH`, an empty or missing path means the descriptor itself.
    let maybe_empty = |dir: i32, at: u64, flags: i32| -> Result<CallPath, Errno> {
        let empty = flags & libc::AT_EMPTY_PATH != 0;
        if empty && at == 0 {
            return Ok(CallPath { dir, path: None });
        }
        let spot = path(dir, at)?;
        let itself = empty && spot.path.as_ref().is_some_and(Vec::is_empty);
        Ok(if itself { CallPath { dir, path: None } } else { spot })
    };
    let follows = |flags: i32| flags & libc::AT_SYMLINK_NOFOLLOW == 0;
    let itself = |arg: u64| CallPath { dir: int(arg), path: None };
    Ok(match notice.number {
        old::SYS_open => {
            DecodedCall::Open { at: path(WORKING_DIRECTORY, a)?, flags: int(b), mode: bits(c) }
        }
        libc::SYS_openat => {
            DecodedCall::Open { at: path(int(a), b)?, flags: int(c), mode: bits(d) }
        }
        old::SYS_creat => {
            let flags = libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC;
            DecodedCall::Open { at: path(WORKING_DIRECTORY, a)?, flags, mode: bits(b) }
        }
        old::SYS_mkdir => DecodedCall::Mkdir { at: path(WORKING_DIRECTORY, a)?, mode: bits(b) },
        libc::SYS_mkdirat => DecodedCall::Mkdir { at: path(int(a), b)?, mode: bits(c) },
        old::SYS_mknod => {
            DecodedCall::Mknod { at: path(WORKING_DIRECTORY, a)?, mode: bits(b), device: c }
        }
        libc::SYS_mknodat => DecodedCall::Mknod { at: path(int(a), b)?, mode: bits(c), device: d },
        old::SYS_unlink => {
            DecodedCall::Unlink { at: path(WORKING_DIRECTORY, a)?, directory: false }
        }
        old::SYS_rmdir => DecodedCall::Unlink { at: path(WORKING_DIRECTORY, a)?, directory: true },
        libc::SYS_unlinkat => DecodedCall::Unlink {
            at: path(int(a), b)?,
            directory: int(c) & libc::AT_REMOVEDIR != 0,
        },
        old::SYS_rename => DecodedCall::Rename {
            from: path(WORKING_DIRECTORY, a)?,
            to: path(WORKING_DIRECTORY, b)?,
            flags: 0,
        },
        libc::SYS_renameat => {
            DecodedCall::Rename { from: path(int(a), b)?, to: path(int(c), d)?, flags: 0 }
        }
        libc::SYS_renameat2 => {
            DecodedCall::Rename { from: path(int(a), b)?, to: path(int(c), d)?, flags: bits(e) }
        }
        old::SYS_link => DecodedCall::Link {
            from: path(WORKING_DIRECTORY, a)?,
            to: path(WORKING_DIRECTORY, b)?,
            follow: false,
        },
        libc::SYS_linkat => {
            let from = maybe_empty(int(a), b, int(e))?;
            let follow = int(e) & libc::AT_SYMLINK_FOLLOW != 0;
            DecodedCall::Link { from, to: path(int(c), d)?, follow }
        }
        old::SYS_symlink => {
            DecodedCall::Symlink { target: caller.text(a)?, at: path(WORKING_DIRECTORY, b)? }
        }
        libc::SYS_symlinkat => {
            DecodedCall::Symlink { target: caller.text(a)?, at: path(int(b), c)? }
        }
        libc::SYS_truncate => DecodedCall::Truncate { at: path(WORKING_DIRECTORY, a)?, length: b },
        old::SYS_chmod => {
            DecodedCall::Chmod { at: path(WORKING_DIRECTORY, a)?, mode: bits(b), follow: true }
        }
        libc::SYS_fchmod => DecodedCall::Chmod { at: itself(a), mode: bits(b), follow: true },
        libc::SYS_fchmodat => {
            DecodedCall::Chmod { at: path(int(a), b)?, mode: bits(c), follow: true }
        }
        SYS_FCHMODAT2 => DecodedCall::Chmod {
            at: maybe_empty(int(a), b, int(d))?,
            mode: bits(c),
            follow: follows(int(d)),
        },
        old::SYS_chown => DecodedCall::Chown {
            at: path(WORKING_DIRECTORY, a)?,
            owner: bits(b),
            group: bits(c),
            follow: true,
        },
        old::SYS_lchown => DecodedCall::Chown {
            at: path(WORKING_DIRECTORY, a)?,
            owner: bits(b),
            group: bits(c),
            follow: false,
        },
        libc::SYS_fchown => {
            DecodedCall::Chown { at: itself(a), owner: bits(b), group: bits(c), follow: true }
        }
        libc::SYS_fchownat => DecodedCall::Chown {
            at: maybe_empty(int(a), b, int(e))?,
            owner: bits(c),
            group: bits(d),
            follow: follows(int(e)),
        },
        old::SYS_utime => {
            let times = match b {
                0 => NOW,
                at => caller.words::<2>(at)?.map(|seconds| (seconds, 0)),
            };
            DecodedCall::Times { at: path(WORKING_DIRECTORY, a)?, times, follow: true }
        }
        old::SYS_utimes => DecodedCall::Times {
            at: path(WORKING_DIRECTORY, a)?,
            times: micros(caller, b)?,
            follow: true,
        },
        old::SYS_futimesat => {
            let at = if b == 0 { itself(a) } else { path(int(a), b)? };
            DecodedCall::Times { at, times: micros(caller, c)?, follow: true }
        }
        libc::SYS_utimensat => {
            let at = if b == 0 { itself(a) } else { maybe_empty(int(a), b, int(d))? };
            let times = match c {
                0 => NOW,
                c => pairs(caller, c)?,
            };
            DecodedCall::Times { at, times, follow: follows(int(d)) }
        }
        libc::SYS_inotify_add_watch => {
            DecodedCall::Notify { at: path(WORKING_DIRECTORY, b)?, through: int(a), mask: bits(c) }
        }
        _ => return Err(Errno::NOSYS),
    })
}

fn pairs(caller: &CallingProcess<'_>, at: u64) -> Result<FileTimes, Errno> {
    let [a, b, c, d] = caller.words::<4>(at)?;
    Ok([(a, b), (c, d)])
}

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
