//! The documentation tells the truth: every policy in it compiles, every command in it
//! prints the output shown, and every path in it exists.
//!
//! A block marked `star` must compile. A `star policy` block is also the user's policy for
//! the blocks after it, and so is a `star wrong` block, which must not compile. A `console`
//! block holds one command after `$ ` and its whole output.

use std::path::{Path, PathBuf};

use crate::support::{Machine, Ran, Who, clash};

fn repository_root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The README, the other pages of the root, and all pages of `docs`.
fn pages() -> Vec<PathBuf> {
    let root = repository_root();
    let mut pages =
        vec![root.join("README.md"), root.join("SECURITY.md"), root.join("CONTRIBUTING.md")];
    let docs = std::fs::read_dir(root.join("docs")).unwrap();
    let docs = docs.map(|entry| entry.unwrap().path());
    pages.extend(docs.filter(|path| path.extension().is_some_and(|end| end == "md")));
    pages
}

/// The blocks of a page: the words behind the fence, and the lines inside it.
fn blocks(text: &str) -> Vec<(String, String)> {
    let mut blocks = Vec::new();
    let mut open: Option<(String, String)> = None;
    for line in text.lines() {
        match (&mut open, line.strip_prefix("```")) {
            (None, Some(info)) => open = Some((info.to_owned(), String::new())),
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (Some((_, body)), None) => *body += &format!("{line}\n"),
            (None, None) => {}
        }
    }
    blocks
}

#[test]
fn every_example_runs_as_shown() {
    let (mut compiled, mut ran) = (0, 0);
    for page in pages() {
        let mut m = Machine::new(Who::Me);
        for (info, body) in blocks(&std::fs::read_to_string(&page).unwrap()) {
            let place = format!("{}:\n{body}", page.display());
            match info.as_str() {
                "star" | "star policy" => {
                    m = m.policy(&body);
                    let explained = m.clash(["explain", "bash", "true"]);
                    assert_eq!(explained.code, Some(0), "{place}{explained:?}");
                    compiled += 1;
                }
                "star wrong" => m = m.policy(&body),
                "console" => {
                    console(&m, &body, &place);
                    ran += 1;
                }
                _ => {}
            }
        }
    }
    assert!(compiled >= 2 && ran >= 4, "{compiled} policies and {ran} commands");
}

/// Runs the command of a block and compares its output.
fn console(m: &Machine, body: &str, place: &str) {
    let (command, expected) = body.split_once('\n').unwrap();
    let command = command.strip_prefix("$ ").unwrap_or_else(|| panic!("{place}"));
    let path = format!("{}:/usr/local/bin:/usr/bin:/bin", clash().parent().unwrap().display());
    let script = format!("{{ {command}\n}} 2>&1");
    let ran = Ran::of(m.command("sh").env("PATH", path).args(["-c", &script]));
    let shown = ran.stdout.replace(&m.home().display().to_string(), "~");
    assert_eq!(shown.trim_end(), expected.trim_end(), "{place}");
}

#[test]
fn links_between_pages_lead_somewhere() {
    for page in pages() {
        let text = std::fs::read_to_string(&page).unwrap();
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let local = !link.starts_with("http") && !link.starts_with('#');
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = page.parent().unwrap().join(file);
            assert!(!local || target.exists(), "{}: {link}", page.display());
            if local && !heading.is_empty() {
                let text = std::fs::read_to_string(&target).unwrap().to_lowercase();
                let title = format!("# {}", heading.replace('-', " "));
                let has_heading = text.lines().any(|line| line.ends_with(&title));
                assert!(has_heading, "{}: {link}", page.display());
            }
        }
    }
}

/// The alternatives of a path such as `src/{plan,host}.rs`.
fn expanded(path: &str) -> Vec<String> {
    let Some((before, rest)) = path.split_once('{') else { return vec![path.to_owned()] };
    let (names, after) = rest.split_once('}').unwrap_or((rest, ""));
    let each = |name| expanded(&format!("{before}{name}{after}"));
    names.split(',').flat_map(each).collect()
}

/// Paths of the repository are those that start with one of its directories.
fn named_paths(text: &str) -> Vec<String> {
    const ROOTS: [&str; 5] = ["crates/", "docs/", "fuzz/", "tests/", ".ci/"];
    let quoted = text.split('`').skip(1).step_by(2);
    let inside = quoted.filter(|path| ROOTS.iter().any(|root| path.starts_with(root)));
    inside
        .filter(|path| !path.contains(['<', '*', ' ', '…']))
        .flat_map(|path| expanded(path.split(':').next().unwrap_or(path)))
        .collect()
}

#[test]
fn every_path_named_in_the_docs_exists() {
    let mut found = 0;
    for page in pages() {
        let text = std::fs::read_to_string(&page).unwrap();
        let prose: Vec<&str> = text.split("```").step_by(2).collect();
        for path in prose.iter().flat_map(|prose| named_paths(prose)) {
            assert!(repository_root().join(&path).exists(), "{}: {path}", page.display());
            found += 1;
        }
    }
    assert!(found >= 20, "only {found} paths: the pattern is wrong");
}

#[test]
fn readme_has_at_most_120_lines() {
    let readme = std::fs::read_to_string(repository_root().join("README.md")).unwrap();
    assert!(readme.lines().count() <= 120);
}
