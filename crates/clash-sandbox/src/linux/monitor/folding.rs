//! Which directories are on volumes that do not tell cases apart, each looked at once.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::Path;

use rustix::fs::stat;

use crate::caseless::folds_names;

/// Directories that are remembered; then all are looked at again.
const MOST_KNOWN: usize = 50_000;

#[derive(Debug, Default)]
pub(super) struct Folding(RefCell<HashMap<(u64, u64), bool>>);

impl Folding {
    /// Whether names in the directory of a path are folded. A directory keeps its
    /// kind: the flag can be set only while it is empty, and not by a command.
    pub(super) fn holds_for(&self, path: &Path) -> bool {
        let Some(dir) = path.parent() else { return false };
        let Ok(meta) = stat(dir) else { return false };
        let mut known = self.0.borrow_mut();
        if known.len() >= MOST_KNOWN {
            known.clear();
        }
        *known.entry((meta.st_dev, meta.st_ino)).or_insert_with(|| folds_names(dir))
    }
}
