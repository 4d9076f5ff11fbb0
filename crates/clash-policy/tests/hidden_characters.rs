//! The sets of hidden characters exist once in the workspace.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};

/// Collects all Rust files below a directory.
fn rust_files(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// A second set would miss characters that the first one has. For example the set that
/// `clash trust` once had lacked the tag characters.
#[test]
fn only_one_module_lists_hidden_characters() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut files = Vec::new();
    for entry in fs::read_dir(crates).unwrap() {
        let src = entry.unwrap().path().join("src");
        if src.is_dir() {
            rust_files(&src, &mut files);
        }
    }
    assert!(files.len() > 100, "only {} files", files.len());
    let ranges = ["202a}'..=", "2066}'..=", "200b}'..=", "2060}'..=", "e0000}'..="];
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        let lists = ranges.iter().any(|range| text.to_lowercase().contains(range));
        assert!(!lists || file.ends_with("clash-policy/src/text.rs"), "{}", file.display());
    }
}
