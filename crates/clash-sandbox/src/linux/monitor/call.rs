//! Decodes a system call and reads its arguments from the caller's memory.

use rustix::io::Errno;

use super::super::sys::Notice;
use super::caller::Caller;

/// A path argument as the caller gave it.
#[derive(Debug)]
pub(super) struct Spot {
    /// A descriptor or `AT_FDCWD`.
    pub(super) dir: i32,
    /// `None`: the call is about the descriptor itself.
    pub(super) path: Option<Vec<u8>>,
}

#[derive(Debug)]
pub(super) enum Call {
    Open { at: Spot, flags: i32, mode: u32 },
    Mkdir { at: Spot, mode: u32 },
    Mknod { at: Spot, mode: u32, device: u64 },
    Unlink { at: Spot, directory: bool },
    Rename { from: Spot, to: Spot, flags: u32 },
    Link { from: Spot, to: Spot, follow: bool },
    Symlink { target: Vec<u8>, at: Spot },
    Truncate { at: Spot, length: u64 },
    Chmod { at: Spot, mode: u32, follow: bool },
    Chown { at: Spot, owner: u32, group: u32, follow: bool },
    Times { at: Spot, times: Times, follow: bool },
    Notify { at: Spot, through: i32, mask: u32 },
}

/// Seconds and nanoseconds of the last access and the last change.
pub(super) type Times = [(i64, i64); 2];

const NOW: Times = [(0, libc::UTIME_NOW), (0, libc::UTIME_NOW)];
const HERE: i32 = libc::AT_FDCWD;

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

pub(super) fn read(caller: &Caller<'_>, notice: &Notice) -> Result<Call, Errno> {
    let [a, b, c, d, e, _] = notice.args;
    // For an `int` argument the kernel reads only the lower 32 bits.
    let int = |arg: u64| arg as u32 as i32;
    let bits = |arg: u64| arg as u32;
    let path = |dir: i32, at: u64| -> Result<Spot, Errno> {
        Ok(Spot { dir, path: Some(caller.text(at)?) })
    };
    // With `AT_EMPTY_PATH`, an empty or missing path means the descriptor itself.
    let maybe_empty = |dir: i32, at: u64, flags: i32| -> Result<Spot, Errno> {
        let empty = flags & libc::AT_EMPTY_PATH != 0;
        if empty && at == 0 {
            return Ok(Spot { dir, path: None });
        }
        let spot = path(dir, at)?;
        let itself = empty && spot.path.as_ref().is_some_and(Vec::is_empty);
        Ok(if itself { Spot { dir, path: None } } else { spot })
    };
    let follows = |flags: i32| flags & libc::AT_SYMLINK_NOFOLLOW == 0;
    let itself = |arg: u64| Spot { dir: int(arg), path: None };
    Ok(match notice.number {
        old::SYS_open => Call::Open { at: path(HERE, a)?, flags: int(b), mode: bits(c) },
        libc::SYS_openat => Call::Open { at: path(int(a), b)?, flags: int(c), mode: bits(d) },
        old::SYS_creat => {
            let flags = libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC;
            Call::Open { at: path(HERE, a)?, flags, mode: bits(b) }
        }
        old::SYS_mkdir => Call::Mkdir { at: path(HERE, a)?, mode: bits(b) },
        libc::SYS_mkdirat => Call::Mkdir { at: path(int(a), b)?, mode: bits(c) },
        old::SYS_mknod => Call::Mknod { at: path(HERE, a)?, mode: bits(b), device: c },
        libc::SYS_mknodat => Call::Mknod { at: path(int(a), b)?, mode: bits(c), device: d },
        old::SYS_unlink => Call::Unlink { at: path(HERE, a)?, directory: false },
        old::SYS_rmdir => Call::Unlink { at: path(HERE, a)?, directory: true },
        libc::SYS_unlinkat => {
            Call::Unlink { at: path(int(a), b)?, directory: int(c) & libc::AT_REMOVEDIR != 0 }
        }
        old::SYS_rename => Call::Rename { from: path(HERE, a)?, to: path(HERE, b)?, flags: 0 },
        libc::SYS_renameat => {
            Call::Rename { from: path(int(a), b)?, to: path(int(c), d)?, flags: 0 }
        }
        libc::SYS_renameat2 => {
            Call::Rename { from: path(int(a), b)?, to: path(int(c), d)?, flags: bits(e) }
        }
        old::SYS_link => Call::Link { from: path(HERE, a)?, to: path(HERE, b)?, follow: false },
        libc::SYS_linkat => {
            let from = maybe_empty(int(a), b, int(e))?;
            let follow = int(e) & libc::AT_SYMLINK_FOLLOW != 0;
            Call::Link { from, to: path(int(c), d)?, follow }
        }
        old::SYS_symlink => Call::Symlink { target: caller.text(a)?, at: path(HERE, b)? },
        libc::SYS_symlinkat => Call::Symlink { target: caller.text(a)?, at: path(int(b), c)? },
        libc::SYS_truncate => Call::Truncate { at: path(HERE, a)?, length: b },
        old::SYS_chmod => Call::Chmod { at: path(HERE, a)?, mode: bits(b), follow: true },
        libc::SYS_fchmod => Call::Chmod { at: itself(a), mode: bits(b), follow: true },
        libc::SYS_fchmodat => Call::Chmod { at: path(int(a), b)?, mode: bits(c), follow: true },
        SYS_FCHMODAT2 => Call::Chmod {
            at: maybe_empty(int(a), b, int(d))?,
            mode: bits(c),
            follow: follows(int(d)),
        },
        old::SYS_chown => {
            Call::Chown { at: path(HERE, a)?, owner: bits(b), group: bits(c), follow: true }
        }
        old::SYS_lchown => {
            Call::Chown { at: path(HERE, a)?, owner: bits(b), group: bits(c), follow: false }
        }
        libc::SYS_fchown => {
            Call::Chown { at: itself(a), owner: bits(b), group: bits(c), follow: true }
        }
        libc::SYS_fchownat => Call::Chown {
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
            Call::Times { at: path(HERE, a)?, times, follow: true }
        }
        old::SYS_utimes => {
            Call::Times { at: path(HERE, a)?, times: micros(caller, b)?, follow: true }
        }
        old::SYS_futimesat => {
            let at = if b == 0 { itself(a) } else { path(int(a), b)? };
            Call::Times { at, times: micros(caller, c)?, follow: true }
        }
        libc::SYS_utimensat => {
            let at = if b == 0 { itself(a) } else { maybe_empty(int(a), b, int(d))? };
            let times = match c {
                0 => NOW,
                c => pairs(caller, c)?,
            };
            Call::Times { at, times, follow: follows(int(d)) }
        }
        libc::SYS_inotify_add_watch => {
            Call::Notify { at: path(HERE, b)?, through: int(a), mask: bits(c) }
        }
        _ => return Err(Errno::NOSYS),
    })
}

fn pairs(caller: &Caller<'_>, at: u64) -> Result<Times, Errno> {
    let [a, b, c, d] = caller.words::<4>(at)?;
    Ok([(a, b), (c, d)])
}

fn micros(caller: &Caller<'_>, at: u64) -> Result<Times, Errno> {
    if at == 0 {
        return Ok(NOW);
    }
    let times = pairs(caller, at)?;
    if times.iter().any(|(_, micros)| !(0..1_000_000).contains(micros)) {
        return Err(Errno::INVAL);
    }
    Ok(times.map(|(seconds, micros)| (seconds, micros * 1000)))
}
