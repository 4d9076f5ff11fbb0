//! Checks clash's own directories: the user owns them and can write them, no other user
//! can, and no record has a time in the future. To try writing, it writes a probe file in
//! each and removes it.
//!
//! Also checks that the compiler is there, and that the record about this machine was true.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::{Duration, SystemTime};

use super::{DoctorContext, DoctorFinding};
use crate::compiler::{REINSTALL_HINT, compiler_path};
use crate::dirs::write_private;

/// A finding for the state and the cache directory each, for a missing compiler, an outdated
/// record and records from the future.
pub(super) fn look(scene: &DoctorContext) -> Vec<DoctorFinding> {
    let DoctorContext { dirs, host, recorded, .. } = scene;
    let mut findings =
        vec![check_directory("state", &dirs.state), check_directory("cache", &dirs.cache)];
    if !compiler_path().is_file() {
        let what =
            format!("{} is missing, so no policy can be compiled", compiler_path().display());
        findings.push(DoctorFinding::bad(what).fix(REINSTALL_HINT.to_owned()));
    }
    findings.extend(recorded.as_ref().filter(|known| !is_same(known, host)).map(|_| {
        DoctorFinding::note(
            "the record about this machine was no longer true; clash has renewed it",
        )
    }));
    for file in [dirs.host_record(), dirs.trust()] {
        findings.extend(from_the_future(&file));
    }
    findings
}

/// True if rooms, listener, overlays and surroundings are still as recorded. The other
/// recorded facts are not compared: the cgroup, for example, differs between terminals.
fn is_same(
    recorded: &clash_sandbox::facts::HostFacts,
    now: &clash_sandbox::facts::HostFacts,
) -> bool {
    recorded.rooms == now.rooms
        && recorded.notify == now.notify
        && recorded.overlay == now.overlay
        && recorded.around == now.around
}

/// Checks that this user owns and can write the directory, and that no other user can write
/// it. Creates the directory if it is missing.
fn check_directory(name: &str, path: &Path) -> DoctorFinding {
    let at = format!("{name} directory {}", path.display());
    let probe = path.join(format!("probe-{}", std::process::id()));
    if let Err(error) = write_private(&probe, b"") {
        let fix = "make it writable for this user; inside a sandbox it never is".to_owned();
        return DoctorFinding::bad(format!("{at} cannot be written: {error}")).fix(fix);
    }
    let _ = fs::remove_file(&probe);
    let Ok(meta) = fs::metadata(path) else { return DoctorFinding::bad(format!("{at} is gone")) };
    if meta.uid() != rustix::process::geteuid().as_raw() {
        let what = format!("{at} belongs to user {}, who could change clash's records", meta.uid());
        return DoctorFinding::bad(what).fix(format!("chown it, or remove it: {}", path.display()));
    }
    if meta.permissions().mode() & 0o022 != 0 {
        let what = format!("{at} can be written by others, who could change clash's records");
        return DoctorFinding::bad(what).fix(format!("chmod go-w {}", path.display()));
    }
    DoctorFinding::good(at)
}

/// Clocks of machines that share a home directory may differ by this time.
const SKEW: Duration = Duration::from_secs(120);

/// A note if a file's time is more than [`SKEW`] ahead of the clock.
fn from_the_future(file: &Path) -> Option<DoctorFinding> {
    let changed = fs::metadata(file).ok()?.modified().ok()?;
    let ahead = changed.duration_since(SystemTime::now()).ok().filter(|ahead| *ahead > SKEW)?;
    let what = format!("{} is {} s from the future", file.display(), ahead.as_secs());
    let fix = "set the clock; until then clash may probe the machine again";
    Some(DoctorFinding::note(what).fix(fix.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::super::FindingGrade;
    use super::*;

    #[test]
    fn a_directory_that_others_can_write_is_wrong() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(check_directory("state", dir.path()).grade, FindingGrade::Good);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
        assert_eq!(check_directory("state", dir.path()).grade, FindingGrade::Bad);
        let nowhere = check_directory("state", Path::new("/proc/clash"));
        assert_eq!(nowhere.grade, FindingGrade::Bad);
        assert!(nowhere.fix.is_some());
    }

    #[test]
    fn files_from_the_future_are_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        assert_eq!(from_the_future(&file), None);
        let later = SystemTime::now() + Duration::from_secs(1000);
        fs::File::options().write(true).open(&file).unwrap().set_modified(later).unwrap();
        assert_eq!(from_the_future(&file).unwrap().grade, FindingGrade::Note);
    }
}
