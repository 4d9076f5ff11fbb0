//! Modules of this crate, and crates of the workspace, depend on each other in one direction.
//!
//! The tests read the sources as text. Test code may use every module.
#![expect(clippy::unwrap_used, clippy::string_slice, reason = "a failing test may panic")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The modules from the bottom to the top: each may use those before it, and none after it.
/// A submodule that has a line of its own does not count as part of its parent.
const MODULES: [&str; 27] = [
    "fnv",
    "below",
    "caseless",
    "environment",
    "baseline",
    "worktree",
    "linux::bpf",
    "launch::phase",
    "launch::error",
    "launch::command",
    "repository",
    "aliases",
    "disk",
    "door",
    "gate",
    "witness",
    "room_ledger",
    "facts",
    "planted",
    "plan",
    "linux::sys",
    "linux",
    "visit",
    "mapped",
    "host",
    "launch",
    "observe",
];

/// Words that have no place in the planner: it gets facts and reads the disk, and does
/// nothing else.
const NOT_IN_PLAN: [&str; 6] =
    ["std::env", "std::process", "std::thread", "rustix::process", "rustix::thread", "libc::"];

/// The crates from the bottom to the top. A crate that does not exist is skipped.
const CRATES: [&str; 14] = [
    "clash-door",
    "clash-shell",
    "clash-policy",
    "clash-oracle",
    "clash-protocol",
    "clash-syntax",
    "clash-net",
    "clash-sandbox",
    "clash-lang",
    "clash-import",
    "clash-history",
    "clash-agents",
    "clash-compile",
    "clash",
];

/// Crates that only these others may use.
const RESERVED: [(&str, &[&str]); 1] = [("clash-lang", &["clash-compile"])];

/// The source files of this crate with their module paths, except `lib.rs` and files of
/// tests.
fn sources() -> Vec<(PathBuf, Vec<String>)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut dirs = vec![root.clone()];
    let mut files = Vec::new();
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let test = path.file_stem().unwrap().to_string_lossy().ends_with("tests");
            if path.is_dir() {
                dirs.push(path);
            } else if !test && !path.ends_with("lib.rs") {
                let below = path.strip_prefix(&root).unwrap().with_extension("");
                let mut module: Vec<String> =
                    below.iter().map(|name| name.to_string_lossy().into_owned()).collect();
                module.retain(|name| name != "mod");
                files.push((path, module));
            }
        }
    }
    files
}

/// The code of a file without comments and its test module.
fn code(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap();
    let text = text.split("mod tests {").next().unwrap();
    let lines = text.lines().map(|line| line.split("//").next().unwrap());
    lines.collect::<Vec<_>>().join(" ")
}

/// The paths that begin with `crate::` or `super::`, from the root of the crate.
fn used(module: &[String], code: &str) -> Vec<String> {
    let mut found = Vec::new();
    for start in ["crate::", "super::"] {
        for (at, _) in code.match_indices(start) {
            let before = code[..at].chars().next_back().unwrap_or(' ');
            if before.is_alphanumeric() || before == '_' || before == ':' {
                continue;
            }
            let mut path: Vec<String> = Vec::new();
            let mut rest = &code[at..];
            if start == "super::" {
                path = module.to_vec();
                while let Some(further) = rest.strip_prefix("super::") {
                    path.pop();
                    rest = further;
                }
            } else {
                rest = rest.strip_prefix("crate::").unwrap_or(rest);
            }
            extend(path, rest, &mut found);
        }
    }
    found
}

/// Adds every path of a use tree such as `a::{b, c::d}`.
fn extend(mut path: Vec<String>, rest: &str, found: &mut Vec<String>) {
    let mut rest = rest.trim_start();
    loop {
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        if end > 0 {
            path.push(rest[..end].to_owned());
        }
        match rest[end..].trim_start().strip_prefix("::") {
            Some(further) if end > 0 => rest = further.trim_start(),
            _ => break,
        }
    }
    if !rest.starts_with('{') {
        found.push(path.join("::"));
        return;
    }
    let mut depth = 0;
    let mut item = String::new();
    for c in rest.chars() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 || c == ',' && depth == 1 {
            extend(path.clone(), item.trim_start_matches(['{', ',']), found);
            item.clear();
        }
        if depth == 0 {
            return;
        }
        item.push(c);
    }
}

/// The line of [`MODULES`] to which a path belongs.
fn level(path: &str) -> Option<usize> {
    let is_in = |module: &&&str| {
        path.strip_prefix(**module).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
    };
    let module = MODULES.iter().filter(is_in).max_by_key(|module| module.len())?;
    MODULES.iter().position(|known| known == module)
}

#[test]
fn modules_use_only_modules_below_them() {
    let mut wrong = Vec::new();
    for (file, module) in sources() {
        let own = module.join("::");
        let Some(own_level) = level(&own) else { panic!("{own} is missing in MODULES") };
        for path in used(&module, &code(&file)) {
            if level(&path).is_some_and(|used| used > own_level) {
                wrong.push(format!("{own} uses {path}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn the_planner_neither_probes_nor_starts_processes() {
    let mut wrong = Vec::new();
    for (file, module) in sources() {
        let plans = module.first().is_some_and(|name| name == "plan" || name == "facts");
        let code = code(&file);
        let words = NOT_IN_PLAN.iter().filter(|word| plans && code.contains(**word));
        wrong.extend(words.map(|word| format!("{} has {word}", file.display())));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn use_trees_are_read_with_all_their_branches() {
    let module = ["plan".to_owned(), "view".to_owned()];
    let code = "use crate::{disk::Disk, linux::{sys, bpf::X}}; use super::rules; ";
    let mut paths = used(&module, code);
    paths.sort();
    assert_eq!(paths, ["disk::Disk", "linux::bpf::X", "linux::sys", "plan::rules"]);
    assert!(level("linux::bpf") < level("plan") && level("plan") < level("linux::mounts"));
}

/// The crates of the workspace that each crate depends on, dev-dependencies left out.
fn dependencies() -> BTreeMap<String, Vec<String>> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(crates).unwrap() {
        let path = entry.unwrap().path();
        let Ok(manifest) = fs::read_to_string(path.join("Cargo.toml")) else { continue };
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let mut section = "";
        let mut used = Vec::new();
        for line in manifest.lines() {
            if line.starts_with('[') {
                section = line;
            }
            let end = line.find(|c: char| !c.is_alphanumeric() && c != '-').unwrap_or(0);
            let linked = section.contains("dependencies") && !section.contains("dev-");
            if linked && (line.starts_with("clash-") || &line[..end] == "clash") {
                used.push(line[..end].to_owned());
            }
        }
        all.insert(name, used);
    }
    all
}

#[test]
fn crates_use_only_crates_below_them() {
    let all = dependencies();
    let rank = |name: &str| {
        let known = CRATES.iter().position(|known| *known == name);
        known.unwrap_or_else(|| panic!("{name} is missing in CRATES"))
    };
    for (name, used) in &all {
        for other in used {
            assert!(rank(other) < rank(name), "{name} depends on {other}");
        }
    }
}

#[test]
fn the_language_is_linked_by_the_compiler_alone() {
    let all = dependencies();
    for (reserved, users) in RESERVED {
        // Before the compiler is a crate, its binary belongs to `clash`.
        let exist = users.iter().all(|user| all.contains_key(*user));
        let may = |name: &str| users.contains(&name) || !exist && name == "clash";
        for (name, used) in &all {
            let uses = used.iter().any(|other| other == reserved);
            assert!(!uses || may(name), "{name} depends on {reserved}");
        }
    }
}
