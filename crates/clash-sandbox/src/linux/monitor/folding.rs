//! Remembers which directories ignore the case of names. Each directory is asked once.

use std::cell::RefCell;
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{fstat, stat};

use super::act::identity;
use crate::caseless::folds_names;

/// When the map is full, the monitor clears it and asks again.
const MAX_KNOWN_DIRECTORIES: usize = 50_000;

#[derive(Debug, Default)]
pub(super) struct CaseFolding {
    known: RefCell<HashMap<(u64, u64), bool>>,
    /// The directory of the present call, which the monitor holds open.
    present: RefCell<Option<(PathBuf, (u64, u64))>>,
}

impl CaseFolding {
    /// Remembers the directory of a call until the next call.
    pub(super) fn hold(&self, dir: &OwnedFd, path: &Path) {
        let inode = fstat(dir).ok().as_ref().map(identity);
        self.present.replace(inode.map(|inode| (path.to_path_buf(), inode)));
    }

    /// Forgets the directory of the last call.
    pub(super) fn release(&self) {
        self.present.take();
    }

    /// True if names in the directory of a path ignore case. The answer for a directory
    /// does not change: the flag can be set only on an empty directory, and a command
    /// cannot set it.
    pub(super) fn holds_for(&self, path: &Path) -> bool {
        let Some(dir) = path.parent() else { return false };
        let present = self.present.borrow();
        let inode = match present.as_ref().filter(|(held, _)| held == dir) {
            Some((_, inode)) => *inode,
            None => match stat(dir) {
                Ok(meta) => identity(&meta),
                Err(_) => return false,
            },
        };
        let mut known = self.known.borrow_mut();
        if known.len() >= MAX_KNOWN_DIRECTORIES {
            known.clear();
        }
        *known.entry(inode).or_insert_with(|| folds_names(dir))
    }
}
