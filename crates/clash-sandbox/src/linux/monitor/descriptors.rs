//! Changes of a file through a descriptor that is open for writing.
//!
//! Changes of mode, owner and times need the right to write the content. The monitor judged
//! that right when the command opened the file, so it asks nothing again. `tar`, for
//! example, makes three such calls for each file.

use rustix::fs::{
    FileType, Gid, Mode, OFlags, Timespec, Timestamps, Uid, fchmod, fchown, fcntl_getfl, fstat,
    futimens,
};
use rustix::io::Errno;

use super::act::SET_ID;
use super::call::{CallPath, DecodedCall};
use super::caller::CallingProcess;

/// Carries out a call. `None` if the call is not about a regular file that the caller has
/// open for writing.
pub(super) fn change_open_file(
    caller: &CallingProcess<'_>,
    call: &DecodedCall,
) -> Option<Result<(), Errno>> {
    let (DecodedCall::Chmod { at, .. }
    | DecodedCall::Chown { at, .. }
    | DecodedCall::Times { at, .. }) = call
    else {
        return None;
    };
    let CallPath { dir: 0.., path: None } = at else { return None };
    let file = caller.same_descriptor(at.dir)?;
    let flags = fcntl_getfl(&file).ok()?;
    let writes = [OFlags::WRONLY, OFlags::RDWR].contains(&(flags & OFlags::RWMODE));
    let regular = || {
        let meta = fstat(&file).ok()?;
        Some(FileType::from_raw_mode(meta.st_mode) == FileType::RegularFile)
    };
    if !writes || flags.contains(OFlags::PATH) || !regular()? {
        return None;
    }
    Some(match *call {
        DecodedCall::Chmod { mode, .. } if mode & (SET_ID | libc::S_ISVTX) != 0 => Err(Errno::PERM),
        DecodedCall::Chmod { mode, .. } => fchmod(&file, Mode::from_raw_mode(mode)),
        DecodedCall::Chown { owner, group, .. } => {
            let owner = (owner != u32::MAX).then(|| Uid::from_raw(owner));
            let group = (group != u32::MAX).then(|| Gid::from_raw(group));
            fchown(&file, owner, group)
        }
        DecodedCall::Times { times, .. } => {
            let [last_access, last_modification] =
                times.map(|(tv_sec, tv_nsec)| Timespec { tv_sec, tv_nsec });
            futimens(&file, &Timestamps { last_access, last_modification })
        }
        _ => return None,
    })
}
