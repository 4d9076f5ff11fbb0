//! The user's trust in policies that came with a repository. One small file for each
//! trusted project records the digest of the policy that the user looked at.
//!
//! The digest covers the names and bytes of the policy and of every file of the project
//! that it loads. A change of any of them ends the trust. The compiler compares the
//! digest. The record is an input of the compiled image, so a warm start of `clash` only
//! compares the record's stamp.

use std::fs;
use std::path::{Path, PathBuf};

use clash_policy::fnv::fnv_hash;
use serde::{Deserialize, Serialize};

/// Raise this number with every change of the data that a digest covers.
pub const TRUST_RECORD_VERSION: u32 = 1;

/// The trust in one project's policy.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct TrustRecord {
    pub v: u32,
    pub project: String,
    pub digest: String,
    /// Milliseconds since 1970.
    pub time: u64,
    /// The texts that the user looked at, to show later changes.
    pub sources: Vec<PolicySource>,
}

/// A file of a project's policy.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct PolicySource {
    /// Relative to the project, for example `.clash/policy.star`.
    pub path: String,
    pub text: String,
}

/// The file of a project's record in the directory `records`, named by a hash of the
/// project's path. [`read_record`] checks that the record is about this project.
#[must_use]
pub fn record_path(records: &Path, project: &Path) -> PathBuf {
    records.join(format!("{:016x}.json", fnv_hash(project.as_os_str().as_encoded_bytes())))
}

/// The record about a project; `None` if the file is absent, unreadable, of another
/// version or about another project. Then the user does not trust the project.
#[must_use]
pub fn read_record(file: &Path, project: &Path) -> Option<TrustRecord> {
    let record: TrustRecord = serde_json::from_slice(&fs::read(file).ok()?).ok()?;
    let is_about_project = record.project == project.to_string_lossy();
    (record.v == TRUST_RECORD_VERSION && is_about_project).then_some(record)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_readable_record_about_the_project_counts() {
        let dir = tempfile::tempdir().unwrap();
        let project = Path::new("/home/u/app");
        let file = record_path(dir.path(), project);
        assert_eq!(read_record(&file, project), None);
        let record = TrustRecord {
            v: TRUST_RECORD_VERSION,
            project: "/home/u/app".to_owned(),
            digest: "d".to_owned(),
            time: 1,
            sources: Vec::new(),
        };
        let put = |text: &[u8]| fs::write(&file, text).unwrap();
        put(&serde_json::to_vec(&record).unwrap());
        assert_eq!(read_record(&file, project).as_ref(), Some(&record));
        assert_eq!(read_record(&file, Path::new("/home/u/other")), None);
        let newer = TrustRecord { v: TRUST_RECORD_VERSION + 1, ..record };
        put(&serde_json::to_vec(&newer).unwrap());
        assert_eq!(read_record(&file, project), None);
        put(b"{");
        assert_eq!(read_record(&file, project), None);
    }
}
