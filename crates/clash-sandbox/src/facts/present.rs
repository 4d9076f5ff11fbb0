//! The entries of the baseline that this machine has, and their real paths.
//!
//! Finding them takes more than a hundred system calls. So the record of the host has them,
//! together with the directories that were read. A name cannot appear, disappear or lead
//! elsewhere without a new change time of its directory, and no process can set this time
//! back. So the answer is valid while all change times stay the same. The directories
//! belong to the system; no command of a sandbox can write them.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::baseline::BASELINE_ENTRIES;
use crate::disk::Disk;

/// The place of each baseline entry, and the directories that were read to find them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaselinePlaces {
    /// The place of each entry, in the order of the table.
    places: Vec<Option<Cow<'static, Path>>>,
    looked_into: Vec<DirectoryStamp>,
}

/// The identity and change time of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
struct DirectoryStamp {
    dir: PathBuf,
    device: u64,
    inode: u64,
    changed: (i64, i64),
}

/// File systems update their clock every few milliseconds, and some keep whole or even
/// seconds only. So a directory that changed just now may change again without a new time.
const MIN_DIRECTORY_AGE: Duration = Duration::from_secs(3);

impl BaselinePlaces {
    /// Looks for every entry on the disk. `None` if a directory cannot be read or has changed
    /// in the last three seconds: a further change might not be noticed.
    pub(crate) fn look() -> Option<Self> {
        let disk = Disk::default();
        let places = disk.baseline_places();
        let mut dirs = disk.looked_into();
        dirs.sort();
        dirs.dedup();
        let looked_into =
            dirs.iter().map(|dir| DirectoryStamp::read(dir)).collect::<Option<Vec<_>>>()?;
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).ok()?;
        let settled =
            |stamp: &DirectoryStamp| stamp.age(now).is_some_and(|age| age > MIN_DIRECTORY_AGE);
        looked_into.iter().all(settled).then_some(Self { places, looked_into })
    }

    /// True if every directory that was read still has the same identity and change time.
    pub(crate) fn is_unchanged(&self) -> bool {
        self.looked_into.iter().all(|was| DirectoryStamp::read(&was.dir).as_ref() == Some(was))
    }

    pub(crate) fn places(&self) -> &[Option<Cow<'static, Path>>] {
        &self.places
    }

    /// The places as one line of text. `None` if a path contains a line end or a tab, or is
    /// not UTF-8.
    pub(crate) fn to_line(&self) -> Option<String> {
        let mut line: String = self
            .places
            .iter()
            .zip(BASELINE_ENTRIES)
            .map(|(place, entry)| mark(place, entry.path))
            .collect();
        let moved = self.places.iter().zip(BASELINE_ENTRIES).filter_map(|(place, entry)| {
            place.as_deref().filter(|place| *place != Path::new(entry.path))
        });
        for path in moved {
            line.push('\t');
            line.push_str(path.to_str().filter(|path| !path.contains(['\t', '\n']))?);
        }
        for DirectoryStamp { dir, device, inode, changed: (seconds, part) } in &self.looked_into {
            let dir = dir.to_str().filter(|path| !path.contains(['\t', '\n']))?;
            line.push_str(&format!("\t{device} {inode} {seconds} {part} {dir}"));
        }
        Some(line)
    }

    /// Reads the line of [`Self::to_line`]. `None` if any part is not understood.
    pub(crate) fn from_line(line: &str) -> Option<Self> {
        let mut parts = line.split('\t');
        let marks = parts.next().filter(|marks| marks.len() == BASELINE_ENTRIES.len())?;
        let mut place = |(mark, path): (char, &'static str)| {
            Some(match mark {
                '-' => None,
                '=' => Some(Cow::Borrowed(Path::new(path))),
                '>' => Some(Cow::Owned(PathBuf::from(parts.next()?))),
                _ => return None,
            })
        };
        let named = marks.chars().zip(BASELINE_ENTRIES.iter().map(|entry| entry.path));
        let places = named.map(&mut place).collect::<Option<Vec<_>>>()?;
        let stamp = |text: &str| {
            let mut words = text.splitn(5, ' ');
            let mut number = || words.next()?.parse::<i64>().ok();
            let (device, inode) = (number()?.cast_unsigned(), number()?.cast_unsigned());
            let changed = (number()?, number()?);
            let dir = words.next().filter(|dir| dir.starts_with('/'))?.into();
            Some(DirectoryStamp { dir, device, inode, changed })
        };
        let looked_into = parts.map(stamp).collect::<Option<Vec<_>>>()?;
        (!looked_into.is_empty()).then_some(Self { places, looked_into })
    }
}

/// One character for an entry: missing, at its own path, or elsewhere.
fn mark(place: &Option<Cow<'static, Path>>, named: &str) -> char {
    match place {
        None => '-',
        Some(place) if *place == Path::new(named) => '=',
        Some(_) => '>',
    }
}

impl DirectoryStamp {
    /// `None` if the directory cannot be looked at.
    fn read(dir: &Path) -> Option<Self> {
        let meta = rustix::fs::stat(dir).ok()?;
        #[expect(clippy::useless_conversion, reason = "their sizes differ between systems")]
        Some(Self {
            dir: dir.to_path_buf(),
            device: meta.st_dev as u64,
            inode: meta.st_ino.into(),
            changed: (meta.st_ctime as i64, meta.st_ctime_nsec as i64),
        })
    }

    /// The time since the last change; `None` if the change lies in the future.
    fn age(&self, now: Duration) -> Option<Duration> {
        let (seconds, part) = self.changed;
        let changed = Duration::new(seconds.try_into().ok()?, part.try_into().ok()?);
        now.checked_sub(changed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::KERNEL_DIRECTORIES;
    use clash_policy::path::LinkResolver;

    #[test]
    fn what_is_there_is_found_and_survives_being_written_down() {
        let disk = Disk::default();
        let places = disk.baseline_places();
        for (place, entry) in places.iter().zip(BASELINE_ENTRIES) {
            let kernels =
                KERNEL_DIRECTORIES.iter().any(|dir| Path::new(entry.path).starts_with(dir));
            assert_eq!(
                place.is_some(),
                kernels || Path::new(entry.path).exists(),
                "{}",
                entry.path
            );
            let real = place.clone().filter(|_| !kernels);
            assert!(real.is_none_or(|place| place == disk.real(Path::new(entry.path))));
        }
        let looked_into = disk.looked_into();
        assert!(looked_into.contains(&PathBuf::from("/")), "{looked_into:?}");
        assert!(looked_into.contains(&PathBuf::from("/etc")), "{looked_into:?}");
        let looked_into: Vec<DirectoryStamp> =
            looked_into.iter().flat_map(|dir| DirectoryStamp::read(dir)).collect();
        let present = BaselinePlaces { places, looked_into };
        assert!(present.is_unchanged());
        let line = present.to_line().unwrap();
        assert_eq!(line.lines().count(), 1);
        assert_eq!(BaselinePlaces::from_line(&line), Some(present));
    }

    #[test]
    fn changed_and_young_directories_are_not_remembered() {
        let dir = tempfile::tempdir().unwrap();
        let stamp = DirectoryStamp::read(dir.path()).unwrap();
        let present = BaselinePlaces { places: Vec::new(), looked_into: vec![stamp.clone()] };
        assert!(present.is_unchanged());
        let now = Duration::new(stamp.changed.0.try_into().unwrap(), 0) + Duration::from_secs(5);
        assert!(stamp.age(now).unwrap() > MIN_DIRECTORY_AGE);
        assert!(stamp.age(Duration::from_secs(1)).is_none());
        // The file system's clock may be slow, but the times differ in the end.
        while present.is_unchanged() {
            std::fs::write(dir.path().join("new"), "").unwrap();
            std::fs::remove_file(dir.path().join("new")).unwrap();
        }
        std::fs::remove_dir(dir.path()).unwrap();
        assert!(!present.is_unchanged());
    }

    #[test]
    fn damaged_lines_are_not_understood() {
        let marks = "=".repeat(BASELINE_ENTRIES.len());
        assert!(BaselinePlaces::from_line(&format!("{marks}\t1 2 3 4 /etc")).is_some());
        for junk in [
            String::new(),
            marks.clone(),
            format!("{marks}=\t1 2 3 4 /etc"),
            format!("{}\t1 2 3 4 /etc", marks.replacen('=', "?", 1)),
            format!("{marks}\t1 2 3 4 etc"),
            format!("{marks}\t1 2 3 /etc"),
            format!("{marks}\t1 2 3 4 /etc\t"),
        ] {
            assert_eq!(BaselinePlaces::from_line(&junk), None, "{junk}");
        }
    }
}
