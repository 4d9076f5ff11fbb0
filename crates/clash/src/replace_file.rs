//! Replaces a settings or policy file in one step.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, fchown};
use std::path::{Path, PathBuf};

/// Replaces the file at `path` in one step: after a crash it has the old text or the new one.
/// Fails if its text is not `expected` any more; a missing file counts as empty.
///
/// A symbolic link stays, and its target is replaced. Mode and owner stay; a new file is for
/// its owner alone. A file that has the new text already is not written.
pub(crate) fn replace(path: &Path, expected: &str, new: &str) -> io::Result<()> {
    let target = follow(path)?;
    let meta = match fs::read(&target) {
        Ok(old) if old == new.as_bytes() => return Ok(()),
        Ok(_) => Some(fs::metadata(&target)?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    let temp = ReplacementFile::write(&target, new.as_bytes(), meta.as_ref())?;
    // This check comes last: an editor may have saved the file meanwhile.
    if fs::read(&target).unwrap_or_default() != expected.as_bytes() {
        return Err(io::Error::other("another program changed it just now; try again"));
    }
    fs::rename(&temp.0, &target)?;
    File::open(directory(&target))?.sync_all()
}

/// A new file beside the old one. Dropping it removes it.
struct ReplacementFile(PathBuf);

impl ReplacementFile {
    /// Writes the file under a new name beside the old one, with the mode and owner of
    /// `like`, and syncs it.
    fn write(beside: &Path, text: &[u8], like: Option<&fs::Metadata>) -> io::Result<Self> {
        let mut tries = 0;
        let (temp, mut file) = loop {
            let path = with_suffix(beside, &format!(".clash-{}-{tries}", std::process::id()));
            match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path) {
                Ok(file) => break (Self(path), file),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && tries < 100 => {
                    tries += 1
                }
                Err(error) => return Err(error),
            }
        };
        if let Some(like) = like {
            let own = file.metadata()?;
            if (own.uid(), own.gid()) != (like.uid(), like.gid()) {
                fchown(&file, Some(like.uid()), Some(like.gid()))?;
            }
            file.set_permissions(like.permissions())?;
        }
        file.write_all(text)?;
        file.sync_all()?;
        Ok(temp)
    }
}

impl Drop for ReplacementFile {
    fn drop(&mut self) {
        // After the rename there is no file of this name.
        let _ = fs::remove_file(&self.0);
    }
}

/// The target of a chain of symbolic links. It need not exist. Fails after 40 links.
fn follow(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_path_buf();
    for _ in 0..40 {
        match fs::symlink_metadata(&path) {
            Ok(meta) if meta.is_symlink() => path = directory(&path).join(fs::read_link(&path)?),
            _ => return Ok(path),
        }
    }
    Err(io::Error::other("too many levels of symbolic links"))
}

/// The directory of a path; `.` for a bare name.
fn directory(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn files_are_replaced_whole_with_their_mode() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("settings.json");
        replace(&path, "", "new").expect("a new file");
        assert_eq!(fs::metadata(&path).expect("mode").permissions().mode() & 0o777, 0o600);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).expect("chmod");
        replace(&path, "new", "second").expect("a change");
        replace(&path, "new", "lost").expect_err("another program has written");
        assert_eq!(fs::read_to_string(&path).expect("read"), "second");
        assert_eq!(fs::metadata(&path).expect("mode").permissions().mode() & 0o777, 0o640);
        assert_eq!(fs::read_dir(dir.path()).expect("list").count(), 1);
    }

    #[test]
    fn a_link_stays_a_link() {
        let dir = tempfile::tempdir().expect("a directory");
        let dotfiles = dir.path().join("dotfiles");
        fs::create_dir(&dotfiles).expect("mkdir");
        fs::write(dotfiles.join("claude.json"), "old").expect("write");
        let path = dir.path().join("settings.json");
        symlink("dotfiles/claude.json", &path).expect("link");
        replace(&path, "old", "new").expect("a change");
        assert!(fs::symlink_metadata(&path).expect("stat").is_symlink());
        assert_eq!(fs::read_to_string(dotfiles.join("claude.json")).expect("read"), "new");
        assert_eq!(fs::read_dir(&dotfiles).expect("list").count(), 1);

        let dangling = dir.path().join("local.json");
        symlink("dotfiles/none.json", &dangling).expect("link");
        replace(&dangling, "", "made").expect("through a dangling link");
        assert_eq!(fs::read_to_string(dotfiles.join("none.json")).expect("read"), "made");
        symlink("loop.json", dir.path().join("loop.json")).expect("link");
        assert!(replace(&dir.path().join("loop.json"), "", "x").is_err());
    }

    #[test]
    fn a_failed_write_leaves_the_old_file_and_no_litter() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("settings.json");
        fs::create_dir(&path).expect("mkdir");
        assert!(replace(&path, "", "x").is_err());
        assert!(replace(&dir.path().join("none/settings.json"), "", "x").is_err());
        assert_eq!(fs::read_dir(dir.path()).expect("list").count(), 1);
    }
}
