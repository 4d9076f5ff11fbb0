//! Looks through a project for files that show a toolchain. It goes breadth first, so that
//! it finds files near the root in any tree. It does not enter directories that tools build
//! or fetch, directories in ignore files, or links. The number of entries is bounded.

use std::collections::VecDeque;
use std::fs;
use std::path::{Path, PathBuf};

use super::ignore::IgnoreFiles;
use super::{ECOSYSTEMS, Ecosystem, ci};

/// The toolchains that a project shows.
#[derive(Debug, Default)]
pub(crate) struct DetectedProject {
    /// In the order of the table.
    pub(crate) ecosystems: Vec<DetectedToolchain>,
    /// The number of names that were read.
    pub(crate) entries: usize,
    /// True if these were all names of the project.
    pub(crate) complete: bool,
}

/// A toolchain and the files that show it.
#[derive(Clone, Debug)]
pub(crate) struct DetectedToolchain {
    pub(crate) ecosystem: &'static Ecosystem,
    /// Paths from the project's root, the nearest first.
    pub(crate) files: Vec<PathBuf>,
    /// The CI script that runs it, and the program.
    pub(crate) in_ci: Option<(PathBuf, &'static str)>,
}

/// The limit of names below the root; of the root itself all names are read.
const MAX_ENTRIES: usize = 50_000;
/// Directories deeper than this are not entered.
const MAX_DIRECTORY_DEPTH: usize = 8;

/// Directories that tools build or fetch.
const NOT_ENTERED: &[&str] = &[
    "Pods",
    "__pycache__",
    "_build",
    "bazel-bin",
    "bazel-out",
    "bower_components",
    "build",
    "deps",
    "dist",
    "elm-stuff",
    "env",
    "node_modules",
    "obj",
    "out",
    "site-packages",
    "target",
    "third_party",
    "vendor",
    "venv",
];

/// Hidden directories that are entered.
const HIDDEN: &[&str] = &[".config"];

/// Looks through a project for toolchains. Reads names, ignore files and CI scripts; changes
/// nothing.
pub(crate) fn detect(root: &Path) -> DetectedProject {
    walk(root, MAX_ENTRIES)
}

/// As [`detect`], with another limit of names. Also looks at the programs of CI files.
/// Toolchains come in the order of [`ECOSYSTEMS`]; `complete` is false if the walk stopped at
/// the limit.
fn walk(root: &Path, most: usize) -> DetectedProject {
    let mut found = DetectedProject { complete: true, ..DetectedProject::default() };
    let mut marked: Vec<(&'static Ecosystem, PathBuf)> = Vec::new();
    let ignored = IgnoreFiles::default().and("", &root.join(".git/info/exclude"));
    let mut queue = VecDeque::from([(PathBuf::new(), 0_usize, ignored)]);
    while let Some((dir, depth, ignored)) = queue.pop_front() {
        if depth > 0 && found.entries >= most {
            found.complete = false;
            break;
        }
        let listing = DirectoryListing::read(
            &root.join(&dir),
            depth == 0,
            most.saturating_sub(found.entries),
        );
        found.entries += listing.entries;
        found.complete &= listing.complete;
        let text = dir.to_string_lossy().into_owned();
        let ignored = match listing.has_ignore_file {
            true => ignored.and(&text, &root.join(&dir).join(".gitignore")),
            false => ignored,
        };
        let inside =
            |name: &str| if text.is_empty() { name.to_owned() } else { format!("{text}/{name}") };
        for (name, ecosystem) in listing.markers {
            let path = inside(&name);
            if !ignored.covers(&path, false) {
                marked.push((ecosystem, PathBuf::from(path)));
            }
        }
        for name in listing.directories {
            let path = inside(&name);
            if depth < MAX_DIRECTORY_DEPTH && is_entered(&name) && !ignored.covers(&path, true) {
                queue.push_back((PathBuf::from(path), depth + 1, ignored.clone()));
            }
        }
    }
    let in_ci = ci::find_ci_programs(root);
    for ecosystem in ECOSYSTEMS {
        let files: Vec<PathBuf> = marked
            .iter()
            .filter(|(marked, _)| *marked == ecosystem)
            .map(|(_, path)| path.clone())
            .collect();
        let by_ci = in_ci.iter().find(|(known, _, _)| *known == ecosystem);
        let in_ci = by_ci.map(|(_, file, program)| (file.clone(), *program));
        if !files.is_empty() || in_ci.is_some() {
            found.ecosystems.push(DetectedToolchain { ecosystem, files, in_ci });
        }
    }
    found
}

fn is_entered(name: &str) -> bool {
    !NOT_ENTERED.contains(&name) && (!name.starts_with('.') || HIDDEN.contains(&name))
}

/// The names of one directory that matter for detection.
#[derive(Default)]
struct DirectoryListing {
    /// Sorted: the result must not depend on the order in which a disk lists names.
    markers: Vec<(String, &'static Ecosystem)>,
    directories: Vec<String>,
    has_ignore_file: bool,
    entries: usize,
    complete: bool,
}

impl DirectoryListing {
    /// The names of one directory. `whole` reads all of them, otherwise at most `most`. A
    /// directory that cannot be read is empty.
    fn read(dir: &Path, whole: bool, most: usize) -> Self {
        let mut listing = Self { complete: true, ..Self::default() };
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            if !whole && listing.entries >= most {
                listing.complete = false;
                break;
            }
            listing.entries += 1;
            let Ok(name) = entry.file_name().into_string() else { continue };
            let Ok(kind) = entry.file_type() else { continue };
            for ecosystem in ECOSYSTEMS.iter().filter(|known| known.is_marked_by(&name)) {
                listing.markers.push((name.clone(), ecosystem));
            }
            listing.has_ignore_file |= name == ".gitignore";
            if kind.is_dir() {
                listing.directories.push(name);
            }
        }
        listing.markers.sort_by(|a, b| a.0.cmp(&b.0));
        listing.directories.sort();
        listing
    }
}

impl DetectedToolchain {
    /// A toolchain that the user asked for by name.
    pub(crate) fn asked_for(ecosystem: &'static Ecosystem) -> Self {
        Self { ecosystem, files: Vec::new(), in_ci: None }
    }

    /// The files that show it, in words: `Cargo.toml`, `web/package.json and 3 more`. Without
    /// any, the program in a CI file, or `asked for`.
    pub(crate) fn why(&self) -> String {
        let ci = |(file, program): &(PathBuf, &str)| format!("{program} in {}", file.display());
        match (self.files.as_slice(), &self.in_ci) {
            ([], Some(in_ci)) => ci(in_ci),
            ([], None) => "asked for".to_owned(),
            ([one], _) => one.display().to_string(),
            ([one, two], _) => format!("{}, {}", one.display(), two.display()),
            ([one, more @ ..], _) => format!("{} and {} more", one.display(), more.len()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct ProjectTree(tempfile::TempDir);

    impl ProjectTree {
        fn with_files(files: &[&str]) -> Self {
            let dir = tempfile::tempdir().unwrap();
            for file in files {
                let path = dir.path().join(file);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, "").unwrap();
            }
            Self(dir)
        }

        fn with(self, file: &str, text: &str) -> Self {
            fs::write(self.0.path().join(file), text).unwrap();
            self
        }

        fn shows(&self) -> Vec<String> {
            let found = detect(self.0.path());
            let each = |it: &DetectedToolchain| format!("{} ({})", it.ecosystem.name, it.why());
            found.ecosystems.iter().map(each).collect()
        }
    }

    #[test]
    fn files_near_the_root_show_their_toolchains() {
        let tree = ProjectTree::with_files(&[
            "Cargo.toml",
            "src/main.rs",
            ".git/HEAD",
            "web/package.json",
        ]);
        assert_eq!(tree.shows(), ["rust (Cargo.toml)", "node (web/package.json)", "git (.git)"]);
    }

    #[test]
    fn a_workspace_is_found_by_its_members_the_nearest_first() {
        let tree = ProjectTree::with_files(&[
            "z/Cargo.toml",
            "a/b/Cargo.toml",
            "a/b/c/Cargo.toml",
            "go.work",
        ]);
        assert_eq!(tree.shows(), ["rust (z/Cargo.toml and 2 more)", "go (go.work)"]);
    }

    #[test]
    fn a_linked_worktree_is_git_too_and_no_link_is_followed() {
        let elsewhere = ProjectTree::with_files(&["package.json"]);
        let tree =
            ProjectTree::with_files(&[]).with(".git", "gitdir: /somewhere/.git/worktrees/x\n");
        std::os::unix::fs::symlink(elsewhere.0.path(), tree.0.path().join("linked")).unwrap();
        assert_eq!(tree.shows(), ["git (.git)"]);
    }

    #[test]
    fn built_fetched_and_ignored_files_show_nothing() {
        let tree = ProjectTree::with_files(&[
            "go.mod",
            "node_modules/x/package.json",
            "web/node_modules/y/package.json",
            "target/package/Cargo.toml",
            "gen/pom.xml",
            "keep/gen/Gemfile",
            ".hidden/setup.py",
            "local.csproj",
        ])
        .with(".gitignore", "/gen\nlocal.*\n");
        assert_eq!(tree.shows(), ["go (go.mod)", "ruby (keep/gen/Gemfile)"]);
    }

    #[test]
    fn ci_scripts_show_toolchains_without_files() {
        let tree = ProjectTree::with_files(&[".github/workflows/ci.yml"])
            .with(".github/workflows/ci.yml", "jobs:\n  a:\n    - run: mix test\n");
        assert_eq!(tree.shows(), ["elixir (mix in .github/workflows/ci.yml)", "github (.github)"]);
    }

    #[test]
    fn every_toolchain_is_found_by_each_of_its_markers() {
        for ecosystem in ECOSYSTEMS {
            for marker in ecosystem.markers {
                let tree = ProjectTree::with_files(&[&marker.replace('*', "x")]);
                let found = detect(tree.0.path());
                let names: Vec<&str> = found.ecosystems.iter().map(|f| f.ecosystem.name).collect();
                assert!(names.contains(&ecosystem.name), "{marker}: {names:?}");
            }
        }
    }

    #[test]
    fn a_huge_tree_is_read_in_part_and_its_root_whole() {
        let tree = ProjectTree::with_files(&["a/pom.xml"]);
        for at in 0..300 {
            fs::write(tree.0.path().join(format!("f{at}")), "").unwrap();
            let deep = tree.0.path().join(format!("b/d{at}"));
            fs::create_dir_all(&deep).unwrap();
            for each in 0..10 {
                fs::write(deep.join(format!("g{each}")), "").unwrap();
            }
        }
        let whole = walk(tree.0.path(), 100_000);
        assert!(whole.complete);
        assert_eq!(whole.entries, 302 + 1 + 300 + 3_000);
        let bounded = walk(tree.0.path(), 400);
        assert!(!bounded.complete && bounded.entries <= 400, "{}", bounded.entries);
        assert_eq!(bounded.ecosystems[0].ecosystem.name, "java");
        assert!(walk(tree.0.path(), 1).entries >= 302, "the root is read whole");
    }
}
