//! The record of the host's facts on disk.
//!
//! One small file has a few records, newest first, because several programs use it in turn,
//! for example an installed copy of clash and the one that the user types. A record is
//! valid only if its first line equals the present [`key`] and every line is understood.
//! Otherwise it is ignored. The file is replaced as a whole, never changed.

use std::ffi::CStr;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, StatxFlags, fstat, openat, stat, statx};

use crate::baseline;
use crate::facts::{BaselinePlaces, CgroupFacts, Facility, HostFacts, RoomSupport, Surroundings};
use crate::linux::sys;
use clash_policy::fnv::{FNV_BASIS, fnv_extend};

/// Raised with every change of the probes or of the format.
const RECORD_FORMAT: &str = "clash host 7";

/// A record names entries of the baseline by their index in the table, so the key contains
/// a sum of the table.
const BASELINE_SUM: u64 = {
    let mut sum = FNV_BASIS;
    let mut entries = baseline::BASELINE_ENTRIES;
    while let [entry, rest @ ..] = entries {
        sum = fnv_extend(fnv_extend(sum, entry.path.as_bytes()), b"\n");
        entries = rest;
    }
    sum
};

/// The number of records in the file. Several programs, user namespaces and outer sandboxes
/// may use it in turn.
const MAX_RECORDS: usize = 4;

const UNKNOWN: &str = "unknown";

/// clash never writes a larger file, so a larger one is not its own.
const MAX_RECORD_BYTES: usize = 16 * 1024;

/// One line with everything on which the facts depend: the boot, the kernel, the user, the
/// namespaces, the restrictions of outer sandboxes and security modules, and the table of the
/// baseline. `None` if a part cannot be read; the facts are then not recorded.
pub(super) fn key() -> Option<String> {
    // The mount time of /proc, which differs for each boot. On a machine without a clock,
    // the kernel version still counts. Reading `boot_id` takes seven times as long.
    let boot = stat("/proc").ok()?;
    let kernel = rustix::system::uname();
    let [release, version] = [kernel.release(), kernel.version()].map(CStr::to_string_lossy);
    let (seconds, part) = (boot.st_ctime, boot.st_ctime_nsec);
    let (user, mount) = (stat("/proc/self/ns/user").ok()?.st_ino, root_mount_id()?);
    let filtered = rustix::thread::secure_computing_mode().ok()?;
    let no_new_privs = rustix::thread::no_new_privs().ok()?;
    let uid = rustix::process::geteuid().as_raw();
    let (mut label, mut buffer) = ([0; 512], [0; 512]);
    let confined = match sys::confined_by(&mut label) {
        Some(length) => label.get(..length)?,
        // Before Linux 6.8. Without a security module the file cannot be read.
        None => line_of(c"/proc/self/attr/current", &mut buffer).unwrap_or_default().as_bytes(),
    };
    let confined = confined.escape_ascii();
    Some(format!(
        "{seconds}.{part} of {release} {version} user {uid} in {user}/{mount} {filtered:?} {no_new_privs} by {confined} of {BASELINE_SUM:x}"
    ))
}

/// The unique id of the root mount, which no other mount namespace has. Before Linux 6.8, the
/// inode of the mount namespace.
fn root_mount_id() -> Option<u64> {
    const UNIQUE: StatxFlags = StatxFlags::from_bits_retain(0x4000);
    let root = statx(CWD, c"/", AtFlags::empty(), UNIQUE).ok();
    let unique = root.filter(|root| StatxFlags::from_bits_retain(root.stx_mask).contains(UNIQUE));
    let of_namespace = || stat("/proc/self/ns/mnt").ok().map(|namespace| namespace.st_ino);
    unique.map(|root| root.stx_mnt_id).or_else(of_namespace)
}

/// The first line of a kernel file, in one read. `None` if it is not UTF-8.
fn line_of<'a>(file: &CStr, buffer: &'a mut [u8]) -> Option<&'a str> {
    let fd = openat(CWD, file, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let length = rustix::io::read(&fd, &mut *buffer).ok()?;
    let text = std::str::from_utf8(buffer.get(..length)?).ok()?;
    Some(text.trim_end_matches(['\0', '\n']))
}

/// The facts of the first record with this key. A damaged record counts as missing.
pub(super) fn find_record(text: &str, key: &str) -> Option<HostFacts> {
    text.split("\n\n").find_map(|record| parse_record(record, key))
}

/// True if the newest record says that rooms can be made, whatever its key.
pub(super) fn has_rooms(text: &str) -> bool {
    text.lines().nth(2) == Some("rooms unprivileged")
}

/// Replaces the record with this key, or adds it as the newest; older ones beyond
/// [`MAX_RECORDS`] go. A failure only costs time: the next launch probes again.
pub(super) fn write(file: &Path, key: &str, host: &HostFacts) {
    let before = read_text(file).unwrap_or_default();
    let others = before.split("\n\n").filter(|record| {
        record.starts_with(RECORD_FORMAT) && record.lines().nth(1).is_some_and(|known| known != key)
    });
    let mut all = record_text(key, host);
    for record in others.take(MAX_RECORDS - 1) {
        all.push('\n');
        all.push_str(record.trim_end());
        all.push('\n');
    }
    let fresh = file.with_extension(format!("{}.new", std::process::id()));
    let written = fs::write(&fresh, all).and_then(|()| fs::rename(&fresh, file));
    if written.is_err() {
        let _ = fs::remove_file(&fresh);
    }
}

/// The text of the file. `None` if it is not a regular file of this user, is larger than
/// [`MAX_RECORD_BYTES`], or is not UTF-8.
pub(super) fn read_text(file: &Path) -> Option<String> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let fd = openat(CWD, file, flags, Mode::empty()).ok()?;
    let meta = fstat(&fd).ok()?;
    let own = meta.st_uid == rustix::process::geteuid().as_raw();
    let plain = FileType::from_raw_mode(meta.st_mode) == FileType::RegularFile;
    let length = usize::try_from(meta.st_size).ok().filter(|length| *length <= MAX_RECORD_BYTES)?;
    if !own || !plain {
        return None;
    }
    let mut bytes = vec![0; length];
    // The file is only replaced and never changed, so one read returns all of it.
    let read = rustix::io::read(&fd, &mut bytes).ok()?;
    bytes.truncate(read);
    String::from_utf8(bytes).ok()
}

/// The text of one record. Leaves out the facts that every launch asks the kernel for.
fn record_text(key: &str, host: &HostFacts) -> String {
    let HostFacts {
        landlock_errata,
        notify,
        rooms,
        overlay,
        gate,
        cgroup,
        reflink,
        around,
        present,
        ..
    } = host;
    let rooms = match rooms {
        RoomSupport::Unprivileged => "unprivileged".to_owned(),
        RoomSupport::Root => "root".to_owned(),
        RoomSupport::Impossible { why } => format!("impossible {}", on_one_line(why)),
    };
    let facility = |facility: &Facility| match facility {
        Facility::Works => "works".to_owned(),
        Facility::Missing { why } => format!("missing {}", on_one_line(why)),
    };
    let landlock = match around.landlock {
        Some(true) => "inside",
        Some(false) => "outside",
        None => UNKNOWN,
    };
    let present = present.as_ref().and_then(BaselinePlaces::to_line);
    let mut text = format!("{RECORD_FORMAT}\n{key}\n");
    for (name, value) in [
        ("rooms", rooms),
        ("notify", facility(notify)),
        ("overlay", facility(overlay)),
        ("gate", facility(gate)),
        ("cgroup", on_one_line(&cgroup.within)),
        ("delegated", facility(&cgroup.delegated)),
        ("reflink", facility(reflink)),
        ("errata", landlock_errata.to_string()),
        ("container", around.container.to_string()),
        ("landlock", landlock.to_owned()),
        ("listener", around.listener.to_string()),
        ("present", present.unwrap_or_else(|| UNKNOWN.to_owned())),
    ] {
        let _ = writeln!(text, "{name} {value}");
    }
    text.push_str("end\n");
    text
}

/// Replaces line ends by spaces, so that a text stays on one line.
fn on_one_line(text: &str) -> String {
    text.replace(['\n', '\r'], " ")
}

/// Reads one record. `None` if the key differs, or a line is missing, unknown or left over.
fn parse_record(record: &str, key: &str) -> Option<HostFacts> {
    let mut lines = record.lines();
    if lines.next()? != RECORD_FORMAT || lines.next()? != key {
        return None;
    }
    let mut value = |name: &str| lines.next()?.strip_prefix(name)?.strip_prefix(' ');
    let host = HostFacts {
        rooms: match value("rooms")? {
            "unprivileged" => RoomSupport::Unprivileged,
            "root" => RoomSupport::Root,
            other => RoomSupport::Impossible { why: other.strip_prefix("impossible ")?.to_owned() },
        },
        notify: parse_facility(value("notify")?)?,
        overlay: parse_facility(value("overlay")?)?,
        gate: parse_facility(value("gate")?)?,
        cgroup: CgroupFacts {
            within: value("cgroup")?.to_owned(),
            delegated: parse_facility(value("delegated")?)?,
        },
        reflink: parse_facility(value("reflink")?)?,
        landlock_errata: value("errata")?.parse().ok()?,
        around: Surroundings {
            container: value("container")?.parse().ok()?,
            landlock: match value("landlock")? {
                "inside" => Some(true),
                "outside" => Some(false),
                UNKNOWN => None,
                _ => return None,
            },
            listener: value("listener")?.parse().ok()?,
        },
        present: match value("present")? {
            UNKNOWN => None,
            known => Some(BaselinePlaces::from_line(known)?),
        },
        ..HostFacts::bare()
    };
    (lines.next() == Some("end") && lines.next().is_none()).then_some(host)
}

/// Reads `works` or `missing REASON`.
fn parse_facility(text: &str) -> Option<Facility> {
    match text {
        "works" => Some(Facility::Works),
        other => other.strip_prefix("missing ").map(Facility::missing),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::{HostRecord, load_facts, probe_facts};
    use proptest::prelude::*;
    use std::os::unix::fs::MetadataExt;

    fn temporary_file() -> (tempfile::TempDir, std::path::PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("host");
        (dir, file)
    }

    fn read(file: &Path, key: &str) -> Option<HostFacts> {
        find_record(&read_text(file)?, key)
    }

    fn other() -> HostFacts {
        HostFacts {
            rooms: RoomSupport::Impossible { why: "so it says".into() },
            ..HostFacts::bare()
        }
    }

    #[test]
    fn what_was_found_is_remembered_until_something_changes() {
        let (dir, file) = temporary_file();
        let host = load_facts(&file);
        assert_eq!(host.rooms, probe_facts().rooms);
        let kept = fs::read_to_string(&file).unwrap();
        assert_eq!(load_facts(&file), host);
        // A false record with the right key is believed, so nothing was probed. One of
        // another boot is not believed.
        fs::write(&file, record_text(&key().unwrap(), &other())).unwrap();
        assert_eq!(load_facts(&file).rooms, other().rooms);
        fs::write(&file, record_text("another boot", &other())).unwrap();
        assert!(!HostRecord::read(&file).promises_rooms());
        assert_eq!(load_facts(&file), host);
        assert_eq!(
            HostRecord::read(&file).promises_rooms(),
            host.rooms == RoomSupport::Unprivileged
        );
        assert!(fs::read_to_string(&file).unwrap().starts_with(kept.trim_end()));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_record_that_is_damaged_anywhere_is_not_there() {
        let (_dir, file) = temporary_file();
        let key = key().unwrap();
        let whole = record_text(&key, &probe_facts());
        for at in 0..whole.trim_end().len() {
            fs::write(&file, whole.get(..at).unwrap_or_default()).unwrap();
            assert_eq!(read(&file, &key), None, "cut at {at}");
        }
        for (from, to) in [
            ("clash host 7", "clash host 2"),
            ("\nnotify ", "\nnotification "),
            ("\nend\n", "\nend\nmore\n"),
            ("\ncontainer ", "\ncontainer maybe"),
        ] {
            fs::write(&file, whole.replace(from, to)).unwrap();
            assert_eq!(read(&file, &key), None, "{to}");
        }
        fs::write(&file, [0xff, 0xfe]).unwrap();
        assert_eq!(read(&file, &key), None);
        fs::write(&file, "x".repeat(20_000)).unwrap();
        assert_eq!(read(&file, &key), None);
    }

    #[test]
    fn several_programs_keep_their_records_and_old_ones_go() {
        let (_dir, file) = temporary_file();
        for number in 0..6 {
            write(&file, &format!("key {number}"), &other());
            write(&file, &format!("key {number}"), &other());
        }
        let there = |number: &i32| read(&file, &format!("key {number}")).is_some();
        assert_eq!((0..6).filter(there).collect::<Vec<_>>(), [2, 3, 4, 5]);
    }

    #[test]
    fn a_record_of_another_user_is_not_believed() {
        let (_dir, file) = temporary_file();
        write(&file, "key", &other());
        if std::os::unix::fs::chown(&file, Some(65_534), None).is_ok() {
            assert_eq!(read(&file, "key"), None);
        }
    }

    #[test]
    fn the_key_is_one_line_and_knows_who_asks_and_where() {
        let key = key().unwrap();
        assert_eq!(key.lines().count(), 1);
        let own = fs::metadata("/proc/self/ns/user").unwrap().ino();
        assert!(key.contains(&format!(" in {own}/")), "{key}");
        let uid = rustix::process::geteuid().as_raw();
        assert!(key.contains(&format!(" user {uid} ")), "{key}");
        let kernel = fs::read_to_string("/proc/sys/kernel/version").unwrap();
        assert!(key.contains(kernel.trim_end()), "{key}");
    }

    proptest! {
        #[test]
        fn every_host_comes_back_as_it_was(
            why in ".{0,40}", within in "[^\n\r]{0,30}", errata: u32, container: bool,
            landlock: Option<bool>, listener: bool, kind in 0..3,
        ) {
            let rooms = match kind {
                0 => RoomSupport::Unprivileged,
                1 => RoomSupport::Root,
                _ => RoomSupport::Impossible { why: on_one_line(&why) },
            };
            let host = HostFacts {
                rooms,
                notify: Facility::missing(on_one_line(&why)),
                overlay: Facility::Works,
                gate: Facility::missing(on_one_line(&why)),
                cgroup: CgroupFacts { within, delegated: Facility::Works },
                landlock_errata: errata,
                around: Surroundings { container, landlock, listener },
                ..HostFacts::bare()
            };
            prop_assert_eq!(parse_record(record_text("k", &host).trim_end(), "k"), Some(host));
        }

        #[test]
        fn junk_is_never_a_record(text in "\\PC{0,200}") {
            prop_assert_eq!(parse_record(&format!("{RECORD_FORMAT}\nk\n{text}"), "k"), None);
        }
    }
}
