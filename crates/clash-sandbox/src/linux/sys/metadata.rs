//! Metadata of a held file as the bytes that the same call would write to its caller's
//! memory, and the write to that memory.

use std::ffi::{CStr, CString};
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;

use libc::{c_int, c_long, c_void};
use rustix::io::Errno;

use super::check;

type MetadataResult<T> = Result<T, Errno>;

/// As `check`, with the error as an `Errno`.
fn raw(answer: c_long) -> MetadataResult<c_long> {
    check(answer).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
}

/// Structures of integers that the kernel fills in.
trait PlainStruct: Sized {
    /// All fields zero.
    fn empty() -> Self {
        // SAFETY: implemented for structures of integers alone.
        unsafe { std::mem::zeroed() }
    }

    /// A copy of the structure's memory, padding included.
    fn bytes(&self) -> Vec<u8> {
        // SAFETY: all bytes were zeroed or written by the kernel, padding too.
        unsafe { std::slice::from_raw_parts(ptr::from_ref(self).cast::<u8>(), size_of::<Self>()) }
            .to_vec()
    }
}

impl PlainStruct for libc::stat {}
impl PlainStruct for libc::statx {}
impl PlainStruct for libc::statfs {}

/// `struct stat` of an open object. For a blank object, only its type and identity.
pub(crate) fn stat(object: &OwnedFd, blank: bool) -> MetadataResult<Vec<u8>> {
    let mut meta = libc::stat::empty();
    let flags = libc::AT_EMPTY_PATH;
    // SAFETY: the path is empty and ends in NUL; the kernel fills in one `stat`,
    // which has the kernel's own layout on the supported architectures.
    raw(unsafe {
        let (fd, to) = (object.as_raw_fd(), ptr::from_mut(&mut meta));
        libc::syscall(libc::SYS_newfstatat, fd, c"".as_ptr(), to, flags)
    })?;
    if blank {
        let mut empty = libc::stat::empty();
        empty.st_dev = meta.st_dev;
        empty.st_ino = meta.st_ino;
        empty.st_nlink = 1;
        empty.st_mode = meta.st_mode & libc::S_IFMT;
        meta = empty;
    }
    Ok(meta.bytes())
}

/// `struct statx` of an open object. For a blank object, only its type and identity.
pub(crate) fn statx(
    object: &OwnedFd,
    flags: c_int,
    mask: u32,
    blank: bool,
) -> MetadataResult<Vec<u8>> {
    let mut meta = libc::statx::empty();
    let flags = flags | libc::AT_EMPTY_PATH;
    // SAFETY: the path is empty and ends in NUL; the kernel fills in one `statx`.
    raw(unsafe {
        let (fd, to) = (object.as_raw_fd(), ptr::from_mut(&mut meta));
        libc::syscall(libc::SYS_statx, fd, c"".as_ptr(), flags, mask, to)
    })?;
    if blank {
        let mut empty = libc::statx::empty();
        empty.stx_mask = libc::STATX_BASIC_STATS;
        empty.stx_dev_major = meta.stx_dev_major;
        empty.stx_dev_minor = meta.stx_dev_minor;
        empty.stx_ino = meta.stx_ino;
        empty.stx_nlink = 1;
        empty.stx_mode = meta.stx_mode & libc::S_IFMT as u16;
        meta = empty;
    }
    Ok(meta.bytes())
}

/// `struct statfs` of the file system of an open object.
pub(crate) fn statfs(object: &OwnedFd) -> MetadataResult<Vec<u8>> {
    let mut meta = libc::statfs::empty();
    // SAFETY: the kernel fills in one `statfs`, which has its own layout on the
    // supported architectures.
    raw(unsafe { libc::syscall(libc::SYS_fstatfs, object.as_raw_fd(), ptr::from_mut(&mut meta)) })?;
    Ok(meta.bytes())
}

/// `faccessat2` on an open object, Linux 5.8.
pub(crate) fn access(object: &OwnedFd, mode: c_int, flags: c_int) -> MetadataResult<()> {
    let flags = flags | libc::AT_EMPTY_PATH;
    // SAFETY: the path is empty and ends in NUL.
    raw(unsafe {
        libc::syscall(libc::SYS_faccessat2, object.as_raw_fd(), c"".as_ptr(), mode, flags)
    })
    .map(drop)
}

/// The value of an extended attribute, or without a name the list of all names. The buffer
/// has this size; with size 0 only the length is returned.
pub(crate) fn attribute(
    object: &OwnedFd,
    name: Option<&CStr>,
    size: usize,
) -> MetadataResult<(usize, Vec<u8>)> {
    let mut value = vec![0_u8; size];
    let path = CString::new(format!("/proc/self/fd/{}", object.as_raw_fd()));
    let path = path.map_err(|_| Errno::INVAL)?;
    let to = if size == 0 { ptr::null_mut() } else { value.as_mut_ptr() };
    // SAFETY: both strings end in NUL; the kernel writes at most `size` bytes.
    let length = raw(unsafe {
        match name {
            Some(name) => {
                libc::getxattr(path.as_ptr(), name.as_ptr(), to.cast::<c_void>(), size) as c_long
            }
            None => libc::listxattr(path.as_ptr(), to.cast(), size) as c_long,
        }
    })? as usize;
    value.truncate(length);
    Ok((length, value))
}

/// Writes to another process's memory. A partial write is an error.
pub(crate) fn write_memory(pid: libc::pid_t, at: u64, from: &[u8]) -> MetadataResult<()> {
    let local = libc::iovec { iov_base: from.as_ptr().cast_mut().cast(), iov_len: from.len() };
    let remote = libc::iovec { iov_base: at as *mut c_void, iov_len: from.len() };
    // SAFETY: the kernel reads `from` and writes nothing of ours; the other address
    // is the other process's and never used here.
    let written =
        unsafe { libc::process_vm_writev(pid, &raw const local, 1, &raw const remote, 1, 0) };
    match raw(written as c_long)? {
        written if written as usize == from.len() => Ok(()),
        _ => Err(Errno::FAULT),
    }
}

/// Checks that this process may read and write the memory of others, by its own memory.
pub(crate) fn memory_can_be_reached() -> MetadataResult<()> {
    let mut byte = 1_u8;
    let at = (&raw mut byte).addr() as u64;
    let own = super::own_pid();
    super::read_memory(own, at, &mut [0])?;
    write_memory(own, at, &[0])
}
