//! The documentation tells the truth: every policy in it compiles, every
//! command in it prints what it shows.
//!
//! Blocks marked `star` must compile, `star policy` ones also become the user's
//! policy for the blocks that follow, and `star wrong` ones are the policy that
//! must not. A `console` block holds one command after `$ ` and all it prints.

use std::path::{Path, PathBuf};

use crate::support::{Machine, Ran, Who, clash};

fn pages() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut pages =
        vec![root.join("README.md"), root.join("SECURITY.md"), root.join("CONTRIBUTING.md")];
    pages.extend(std::fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path()));
    pages
}

/// What stands behind the fence, and the lines inside it.
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
            let target = page.parent().unwrap().join(link);
            assert!(!local || target.exists(), "{}: {link}", page.display());
        }
    }
}
