//! Volumes that ignore the case of names. On such a volume a rule about `.env` has to hold
//! for `.ENV` as well, and for every other name that the volume takes for `.env`.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use clash_policy::text::is_default_ignorable;

/// True if names in an existing directory ignore case: by the type of the file system, by the
/// directory's flag, or because the directory answers to its own name in the other case. False
/// if the directory cannot be looked at.
#[cfg(target_os = "linux")]
pub fn folds_names(dir: &Path) -> bool {
    use rustix::fs::{Mode, OFlags, ioctl_getflags, open, statfs};
    // File systems that always ignore case: vfat, exfat, ntfs (both drivers), cifs and smb,
    // hfs and hfs+.
    const FOLDING: &[u64] =
        &[0x4d44, 0x2011_bab0, 0x5346_544e, 0x7366_746e, 0xff53_4d42, 0xfe53_4d42, 0x4244, 0x482b];
    // FS_CASEFOLD_FL: set per directory on ext4 (Linux 5.2), f2fs (5.4), tmpfs (6.13).
    const CASEFOLD: u32 = 0x4000_0000;
    // File systems for which the flag decides; also btrfs and overlayfs, which never ignore
    // case. On any other, a lookup in the other case decides.
    const BY_FLAG: &[u64] = &[0xef53, 0xf2f5_2010, 0x0102_1994, 0x9123_683e, 0x794c_7630];
    let Ok(volume) = statfs(dir) else { return false };
    let kind = volume.f_type as u64 & 0xffff_ffff;
    if FOLDING.contains(&kind) {
        return true;
    }
    let opened = open(dir, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
    let flags = opened.ok().and_then(|dir| ioctl_getflags(&dir).ok());
    flags.is_some_and(|flags| flags.bits() & CASEFOLD != 0)
        || !BY_FLAG.contains(&kind) && answers_to_other_case(dir)
}

/// Volumes of this system ignore case by default.
#[cfg(not(target_os = "linux"))]
pub fn folds_names(_: &Path) -> bool {
    true
}

/// True if a directory is also found under its name in the other case. False for a name
/// without letters.
#[cfg(target_os = "linux")]
fn answers_to_other_case(dir: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let Some((name, parent)) = dir.file_name().zip(dir.parent()) else { return false };
    let flip = |byte: &u8| match byte {
        byte if byte.is_ascii_uppercase() => byte.to_ascii_lowercase(),
        byte => byte.to_ascii_uppercase(),
    };
    let other = OsString::from_vec(name.as_bytes().iter().map(flip).collect());
    let identity = |path: &Path| path.symlink_metadata().ok().map(|m| (m.dev(), m.ino()));
    other != name && identity(dir).is_some() && identity(dir) == identity(&parent.join(other))
}

/// A path in the form in which such volumes compare names: in lower case, without invisible
/// characters, and without dots and spaces at the end of names. `None` if a name is not UTF-8
/// or may stand for several others: `GIT~1` may be `.git`.
pub(crate) fn folded(path: &Path) -> Option<PathBuf> {
    let mut folded = PathBuf::new();
    for part in path {
        let name = part.to_str()?;
        if is_short(name) {
            return None;
        }
        let seen = name.chars().filter(|c| !is_default_ignorable(*c));
        let mut name: String = seen.flat_map(char::to_lowercase).map(folded_letter).collect();
        // Some volumes ignore dots and spaces at the end.
        let end = name.trim_end_matches(['.', ' ']).len();
        if end > 0 {
            name.truncate(end);
        }
        folded.push(name);
    }
    Some(folded)
}

/// True for the short form of a long name, as on FAT volumes: at most 12 bytes, with a digit
/// after `~`.
fn is_short(name: &str) -> bool {
    let digit = |rest: &str| rest.starts_with(|c: char| c.is_ascii_digit());
    name.len() <= 12 && name.split('~').skip(1).any(digit)
}

/// The letters that full case folding puts in place of a ligature, `ß` or `ſ`. Any other
/// letter is left as it is.
fn folded_letter(c: char) -> String {
    match c {
        'ſ' => "s".into(),
        'ß' => "ss".into(),
        'ﬀ' => "ff".into(),
        'ﬁ' => "fi".into(),
        'ﬂ' => "fl".into(),
        'ﬃ' => "ffi".into(),
        'ﬄ' => "ffl".into(),
        'ﬅ' | 'ﬆ' => "st".into(),
        c => c.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_folded_as_such_volumes_do() {
        let fold = |name: &str| folded(Path::new(name)).map(|path| path.display().to_string());
        for (name, same) in [
            ("/P/.GIT/Config", "/p/.git/config"),
            (".git/con\u{fb01}g", ".git/config"),
            (".v\u{17f}code", ".vscode"),
            (".hus\u{212a}y", ".husky"),
            (".g\u{200c}it", ".git"),
            (".envrc.", ".envrc"),
            (".git . ", ".git"),
            ("a~b", "a~b"),
            ("a/./b", "a/b"),
        ] {
            assert_eq!(fold(name).as_deref(), Some(same), "{name:?}");
        }
        for unknown in ["GIT~1", "a/VSCODE~2/x", "GIT~1.X"] {
            assert_eq!(fold(unknown), None, "{unknown}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_volume_that_tells_cases_apart_is_known_as_one() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("Name")).unwrap();
        assert!(!folds_names(&dir.path().join("Name")));
        assert!(!answers_to_other_case(&dir.path().join("Name")));
    }
}
