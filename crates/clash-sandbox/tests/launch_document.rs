//! `docs/launch.md` and the code have the same phases and errors, in the same order.
#![expect(clippy::unwrap_used, reason = "a failing test may panic")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use clash_sandbox::launch::LaunchPhase;

fn read(below: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(below)).unwrap()
}

/// The rows of the table of phases: name and error variants.
fn documented() -> Vec<(String, BTreeSet<String>)> {
    let page = read("../../docs/launch.md");
    let table = page.lines().skip_while(|line| *line != "| phase | actions, in order | errors |");
    let rows = table.skip(2).take_while(|line| line.starts_with('|'));
    rows.map(|row| {
        let mut cells = row.trim_matches('|').split(" | ").map(str::trim);
        let name = cells.next().unwrap().to_owned();
        let errors = cells.last().unwrap().split(", ");
        (name, errors.map(|error| error.trim_matches('`').to_owned()).collect())
    })
    .collect()
}

/// The variants of `LaunchError` with their messages.
fn variants() -> Vec<(String, String)> {
    let source = read("src/launch/error.rs");
    let body = source.split("pub enum LaunchError {").nth(1).unwrap();
    let body = body.split("\n}\n").next().unwrap();
    let mut message = String::new();
    let mut found = Vec::new();
    for line in body.lines().map(str::trim) {
        if let Some(text) = line.strip_prefix("#[error(\"") {
            message = text.to_owned();
        } else if line.starts_with(char::is_uppercase) {
            let end = line.find(|c: char| !c.is_alphanumeric()).unwrap_or(line.len());
            found.push((line.get(..end).unwrap().to_owned(), message.clone()));
        }
    }
    found
}

/// The phase of each variant, read from `LaunchError::phase`; `prepare` if it does not name
/// the variant.
fn phase_of(variant: &str) -> String {
    let source = read("src/launch/error.rs");
    let body = source.split("pub fn phase(&self)").nth(1).unwrap();
    let body = body.split("match self {").nth(1).unwrap().replace("=> {", "=>");
    let arms = body.split("LaunchPhase::");
    let mut arms = arms.collect::<Vec<_>>().into_iter().peekable();
    while let Some(arm) = arms.next() {
        let named = arm.split(|c: char| !c.is_alphanumeric()).any(|word| word == variant);
        if let Some(next) = arms.peek().filter(|_| named) {
            let end = next.find(|c: char| !c.is_alphanumeric()).unwrap_or(next.len());
            return next.get(..end).unwrap().to_lowercase();
        }
    }
    LaunchPhase::Prepare.name().to_owned()
}

#[test]
fn the_table_has_the_phases_in_order() {
    let names: Vec<String> = documented().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, LaunchPhase::ALL.map(LaunchPhase::name));
}

#[test]
fn each_phase_has_a_file_of_its_name() {
    for phase in LaunchPhase::ALL {
        let file = read(&format!("src/launch/{phase}.rs"));
        assert!(file.starts_with(&format!("//! Phase `{phase}`:")), "{phase}");
    }
}

#[test]
fn the_table_has_every_error_in_its_phase() {
    let documented = documented();
    let mut all = 0;
    for (variant, message) in variants() {
        let phase = phase_of(&variant);
        let (_, errors) = documented.iter().find(|(name, _)| *name == phase).unwrap();
        assert!(errors.contains(&variant), "`{variant}` is missing in phase {phase}");
        if let Some((prefix, _)) = message.split_once(": ")
            && LaunchPhase::ALL.iter().any(|known| known.name() == prefix)
        {
            assert_eq!(prefix, phase, "{variant}");
        }
        all += 1;
    }
    let written: usize = documented.iter().map(|(_, errors)| errors.len()).sum();
    assert_eq!(written, all, "the table names errors that do not exist");
}

#[test]
fn the_phases_run_in_order() {
    let source = read("src/launch/phases.rs");
    let run = source.split("pub(super) fn run(").nth(1).unwrap();
    let run = run.split("let parent = ParentContext::new").nth(1).unwrap();
    let order = ["prepare::", "isolate::", "mount::", "connect::", "spawn::", "attend::"];
    let places: Vec<usize> = order.iter().map(|call| run.find(call).unwrap()).collect();
    assert!(places.is_sorted(), "{places:?}");
}
