//! What the user said about policies that came with a repository: one small
//! file for each trusted project, with the digest of what was looked at.
//!
//! A digest covers the names and bytes of the policy and of every file of the
//! project it loads, so whatever changes is nobody's word again. It is compared
//! when a policy is compiled; the file is one of the inputs of what was
//! compiled, so a warm start only looks whether it is the same file.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::stamp;

/// Raised with every change of what a digest covers.
pub(crate) const VERSION: u32 = 1;

#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Record {
    pub(crate) v: u32,
    pub(crate) project: String,
    pub(crate) digest: String,
    /// Milliseconds since 1970.
    pub(crate) time: u64,
    /// What was looked at, to show what has changed since.
    pub(crate) sources: Vec<Source>,
}

/// A file of a project's policy; the path is relative to the project.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) struct Source {
    pub(crate) path: String,
    pub(crate) text: String,
}

/// Where the record about a project is kept in the directory of all of them.
pub(crate) fn file_of(dir: &Path, project: &Path) -> PathBuf {
    dir.join(format!("{:016x}.json", stamp::sum(project.as_os_str().as_encoded_bytes())))
}

/// The record about a project. One that cannot be read is no trust.
pub(crate) fn read(file: &Path, project: &Path) -> Option<Record> {
    let record: Record = serde_json::from_slice(&fs::read(file).ok()?).ok()?;
    (record.v == VERSION && record.project == project.to_string_lossy()).then_some(record)
}
