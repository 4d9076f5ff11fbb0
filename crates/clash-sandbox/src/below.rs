//! Paths, each with a value. A directory can drop everything below it at once: package
//! managers rename thousands of directories.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Real paths in byte order. The paths below `/a` lie between `/a/` and `/a0`, because `0`
/// follows the slash.
#[derive(Debug)]
pub(crate) struct PathMap<T = ()>(BTreeMap<Box<[u8]>, T>);

impl<T> Default for PathMap<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T> PathMap<T> {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    pub(crate) fn insert(&mut self, path: &Path, value: T) {
        self.0.insert(path.as_os_str().as_bytes().into(), value);
    }

    pub(crate) fn get(&self, path: &Path) -> Option<&T> {
        self.0.get(path.as_os_str().as_bytes())
    }

    pub(crate) fn contains(&self, path: &Path) -> bool {
        self.get(path).is_some()
    }

    pub(crate) fn remove(&mut self, path: &Path) {
        self.0.remove(path.as_os_str().as_bytes());
    }

    /// Drops a directory and everything below it. `/a/b` does not drop `/a/b.c`.
    pub(crate) fn forget(&mut self, dir: &Path) {
        self.remove(dir);
        let dir = dir.as_os_str().as_bytes();
        let [first, behind] = [b'/', b'/' + 1].map(|end| [dir, &[end]].concat());
        let range = (Bound::Included(&first[..]), Bound::Excluded(&behind[..]));
        let inside = self.0.range::<[u8], _>(range).map(|(path, _)| path.clone());
        let inside: Vec<Box<[u8]>> = inside.collect();
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
        let mut set = PathMap::default();
        all.iter().for_each(|path| set.insert(Path::new(path), ()));
        set.forget(Path::new("/a/b"));
        let left: Vec<&str> =
            all.into_iter().filter(|path| set.contains(Path::new(path))).collect();
        assert_eq!(left, ["/a", "/a/b-c", "/a/b.c", "/a/b0", "/ab"]);
    }
}
