//! A set of paths that can drop everything below a directory at once. Package managers
//! rename thousands of directories.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Real paths in byte order. The paths below `/a` lie between `/a/` and `/a0`, because `0`
/// follows the slash.
#[derive(Debug, Default)]
pub(crate) struct PathSet(BTreeSet<Box<[u8]>>);

impl PathSet {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    pub(crate) fn insert(&mut self, path: &Path) {
        self.0.insert(path.as_os_str().as_bytes().into());
    }

    pub(crate) fn contains(&self, path: &Path) -> bool {
        self.0.contains(path.as_os_str().as_bytes())
    }

    pub(crate) fn remove(&mut self, path: &Path) {
        self.0.remove(path.as_os_str().as_bytes());
    }

    /// Drops a directory and everything below it.
    pub(crate) fn forget(&mut self, dir: &Path) {
        self.remove(dir);
        let dir = dir.as_os_str().as_bytes();
        let [first, behind] = [b'/', b'/' + 1].map(|end| [dir, &[end]].concat());
        let range = (Bound::Included(&first[..]), Bound::Excluded(&behind[..]));
        let inside: Vec<Box<[u8]>> = self.0.range::<[u8], _>(range).cloned().collect();
        for path in inside {
            self.0.remove(&path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropping_a_directory_drops_only_paths_below_it() {
        let all = ["/a", "/a/b", "/a/b/c", "/a/b-c", "/a/b.c", "/a/b0", "/a/b/", "/ab"];
        let mut set = PathSet::default();
        all.iter().for_each(|path| set.insert(Path::new(path)));
        set.forget(Path::new("/a/b"));
        let left: Vec<&str> =
            all.into_iter().filter(|path| set.contains(Path::new(path))).collect();
        assert_eq!(left, ["/a", "/a/b-c", "/a/b.c", "/a/b0", "/ab"]);
    }
}
