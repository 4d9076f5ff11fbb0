//! Whether a volume takes `A` and `a` for the same name. Asked for the paths of
//! file tools: there a rule about `.env` has to hold for `.ENV` as well.

use std::path::Path;

/// Looks at the nearest directory that exists.
pub(crate) fn is_caseless(path: &Path) -> bool {
    path.ancestors().skip(1).find(|dir| dir.is_dir()).is_some_and(directory)
}

#[cfg(target_os = "linux")]
fn directory(dir: &Path) -> bool {
    use rustix::fs::{Mode, OFlags, ioctl_getflags, open, statfs};
    // Filesystems that fold names as a whole: vfat, exfat, ntfs (both drivers),
    // cifs and smb, hfs and hfs+, 9p from a Windows host cannot be told.
    const FOLDING: &[u64] =
        &[0x4d44, 0x2011_bab0, 0x5346_544e, 0x7366_746e, 0xff53_4d42, 0xfe53_4d42, 0x4244, 0x482b];
    // FS_CASEFOLD_FL: set per directory on ext4 (Linux 5.2), f2fs (5.4), tmpfs (6.13).
    const CASEFOLD: u32 = 0x4000_0000;
    let folds = statfs(dir).is_ok_and(|fs| {
        let kind = fs.f_type as u64 & 0xffff_ffff;
        FOLDING.contains(&kind)
    });
    let flag = || {
        let opened = open(dir, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
        let flags = opened.ok().and_then(|dir| ioctl_getflags(&dir).ok());
        flags.is_some_and(|flags| flags.bits() & CASEFOLD != 0)
    };
    folds || flag()
}

/// A volume of this system folds names unless it was made otherwise.
#[cfg(not(target_os = "linux"))]
fn directory(_: &Path) -> bool {
    true
}
