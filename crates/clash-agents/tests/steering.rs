//! The files that steer agents, against the one list of persistence paths.

use std::path::{Path, PathBuf};

use clash_agents::{UserContext, steering_paths};
use clash_policy::FileCaps;
use clash_policy::protect::kept;
use clash_policy::sandbox::ProtectSettings;

/// A file of the project that steers an agent but is not on the list could be written by
/// a command in every sandbox.
#[test]
fn every_steering_file_of_a_project_is_a_persistence_path() {
    let user = UserContext {
        home: PathBuf::from("/home/u"),
        tmp: PathBuf::from("/tmp"),
        state: PathBuf::from("/home/u/.local/state/clash"),
        machine_state: PathBuf::from("/var/lib/clash"),
        user_id: 1000,
        variable: |_| None,
    };
    let project = Path::new("/srv/project");
    let protect = ProtectSettings::default();
    let mut count = 0;
    for path in steering_paths(&user, project) {
        let Ok(below) = path.strip_prefix(project) else { continue };
        count += 1;
        let entry = kept(&protect, below, 0, FileCaps::CREATE);
        assert!(entry.is_some(), "{}", below.display());
    }
    assert!(count > 10, "only {count} files");
}
