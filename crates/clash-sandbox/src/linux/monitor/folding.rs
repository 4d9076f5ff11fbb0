//! Remembers which directories ignore the case of names. Each directory is asked once.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::Path;

use rustix::fs::stat;

use crate::caseless::folds_names;

/// When the map is full, the monitor clears it and asks again.
const MAX_KNOWN_DIRECTORIES: usize = 50_000;

#[derive(Debug, Default)]
pub(super) struct CaseFolding(RefCell<HashMap<(u64, u64), bool>>);

impl CaseFolding {
    /// True if names in the directory of a path ignore case. The answer for a directory
    /// does not change: the flag can be set only on an empty directory, and a command
    /// cannot set it.
    pub(super) fn holds_for(&self, path: &Path) -> bool {
        let Some(dir) = path.parent() else { return false };
        let Ok(meta) = stat(dir) else { return false };
        let mut known = self.0.borrow_mut();
        if known.len() >= MAX_KNOWN_DIRECTORIES {
            known.clear();
        }
        *known.entry((meta.st_dev, meta.st_ino)).or_insert_with(|| folds_names(dir))
    }
}
