//! Copies of settings files, made before clash changes them.
//!
//! The copies are in `backups` below clash's state directory, where no sandbox can change
//! them. Each file has a directory with numbered copies. The first copy is the file before
//! clash changed it, and stays for ever. Of the others the newest stay.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::dirs::{Dirs, create_private, write_private};
use clash_policy::fnv::fnv_hash;

/// The number of copies of one file, with the first.
const MAX_COPIES: usize = 10;

/// The directory of all copies.
pub(crate) fn backups(dirs: &Dirs) -> PathBuf {
    dirs.state.join("backups")
}

/// Keeps a copy and returns its path. A text that equals the newest copy is not kept twice.
/// Of more than [`MAX_COPIES`] the first and the newest stay.
pub(crate) fn keep(dirs: &Dirs, file: &Path, text: &str) -> io::Result<PathBuf> {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let sum = fnv_hash(file.as_os_str().as_bytes());
    let dir = backups(dirs).join(format!("{name}-{sum:016x}"));
    create_private(&dir)?;
    let mut numbers = copies(&dir)?;
    let newest = numbers.last().copied();
    if let Some(at) = newest.map(|number| copy_path(&dir, number))
        && fs::read(&at).is_ok_and(|kept| kept == text.as_bytes())
    {
        return Ok(at);
    }
    let number = newest.unwrap_or_default() + 1;
    let at = copy_path(&dir, number);
    write_private(&at, text.as_bytes())?;
    numbers.push(number);
    let surplus = numbers.len().saturating_sub(MAX_COPIES);
    for old in numbers.iter().skip(1).take(surplus) {
        fs::remove_file(copy_path(&dir, *old))?;
    }
    Ok(at)
}

fn copy_path(dir: &Path, number: u32) -> PathBuf {
    dir.join(format!("{number:04}"))
}

/// The numbers of the copies, in order.
fn copies(dir: &Path) -> io::Result<Vec<u32>> {
    let mut numbers = Vec::new();
    for entry in fs::read_dir(dir)? {
        numbers.extend(entry?.file_name().to_str().and_then(|name| name.parse::<u32>().ok()));
    }
    numbers.sort_unstable();
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_copy_and_the_newest_stay() {
        let dir = tempfile::tempdir().unwrap();
        let mut dirs = Dirs::from_env().unwrap();
        dirs.state = dir.path().join("state");
        let file = Path::new("/home/u/.codex/config.toml");
        let at = keep(&dirs, file, "0").unwrap();
        assert_eq!(keep(&dirs, file, "0").unwrap(), at);
        for number in 1..30 {
            keep(&dirs, file, &number.to_string()).unwrap();
        }
        let kept: Vec<String> = copies(at.parent().unwrap())
            .unwrap()
            .into_iter()
            .map(|number| fs::read_to_string(copy_path(at.parent().unwrap(), number)).unwrap())
            .collect();
        assert_eq!(kept, ["0", "21", "22", "23", "24", "25", "26", "27", "28", "29"]);
        let other = keep(&dirs, Path::new("/home/v/.codex/config.toml"), "x").unwrap();
        assert_ne!(other.parent(), at.parent());
    }
}
