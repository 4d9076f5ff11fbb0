//! The policy compiler fails, and `clash` says how.

use std::path::PathBuf;

use crate::support::{Machine, Ran, Who, clash, copy_program, program};

const STARTED: &str = r#"{"event":"started","protocol":2,"version":"0.1.0"}"#;
const EVALUATING: &str = r#"{"event":"evaluating","place":"/p/policy.star:2:1"}"#;

/// A copy of `clash` beside a shell script in place of `clash-compile`.
fn clash_with(m: &Machine, script: &str) -> PathBuf {
    let dir = m.tmp().join("bin");
    m.make_dir(&dir);
    copy_program(clash(), dir.join("clash"));
    program(dir.join("clash-compile"), &format!("#!/bin/sh\n{script}\n"));
    dir.join("clash")
}

/// The message of `clash policy check` with this script as its compiler.
fn check(script: &str) -> String {
    let m = Machine::new(Who::Me);
    let clash = clash_with(&m, script);
    Ran::of(m.command(clash).args(["policy", "check"])).exits(1).stderr
}

/// A script that writes these lines as a compiler's events.
fn says(lines: &[&str]) -> String {
    let lines: Vec<String> = lines.iter().map(|line| format!("echo '{line}' >&2")).collect();
    format!("cat > /dev/null\n{}", lines.join("\n"))
}

#[test]
fn a_panic_of_the_compiler_is_told_as_a_panic() {
    let panicked = r#"{"event":"panicked","place":"/p/policy.star:3:1","message":"index 3"}"#;
    let said = check(&format!("{}\nkill -ABRT $$", says(&[STARTED, EVALUATING, panicked])));
    assert!(said.contains("the policy compiler failed: /p/policy.star:3:1: index 3"), "{said}");
    assert!(!said.contains("memory") && !said.contains("too long"), "{said}");
}

#[test]
fn a_compiler_killed_by_a_signal_is_told_with_it() {
    let said = check(&format!("{}\nkill -KILL $$", says(&[STARTED, EVALUATING])));
    assert!(said.contains("signal 9 ended the policy compiler"), "{said}");
    assert!(said.contains("/p/policy.star:2:1 or just after"), "{said}");
}

#[test]
fn a_compiler_of_another_version_is_recognised() {
    let other = r#"{"event":"started","protocol":9,"version":"7.7.7"}"#;
    let said = check(&format!("{}\nexit 2", says(&[other])));
    assert!(said.contains("is of clash 7.7.7 (protocol 9)"), "{said}");
}

#[test]
fn an_answer_that_clash_cannot_read_is_told_so() {
    for lines in [&["no protocol at all"][..], &[STARTED], &[STARTED, "{}"], &[]] {
        let said = check(&says(lines));
        assert!(said.contains("an answer that clash cannot read"), "{lines:?}: {said}");
    }
    // An image that is none.
    let compiled =
        r#"{"event":"compiled","mistakes":[],"warnings":[],"project":null,"expectations":0}"#;
    let said = check(&format!("{}\necho image", says(&[STARTED, compiled])));
    assert!(said.contains("the compiled policy cannot be used"), "{said}");
}

#[test]
fn a_missing_compiler_is_told_with_its_path() {
    let m = Machine::new(Who::Me);
    let clash = clash_with(&m, "");
    std::fs::remove_file(clash.with_file_name("clash-compile")).unwrap();
    let said = Ran::of(m.command(clash).args(["policy", "check"])).exits(1).stderr;
    assert!(said.contains("bin/clash-compile is missing"), "{said}");
}

#[test]
fn a_compiler_that_cannot_run_is_told_with_the_reason() {
    let m = Machine::new(Who::Me);
    let clash = clash_with(&m, "");
    std::fs::write(clash.with_file_name("clash-compile"), "\u{7f}ELF").unwrap();
    let said = Ran::of(m.command(clash).args(["policy", "check"])).exits(1).stderr;
    assert!(said.contains("cannot run the policy compiler"), "{said}");
}

#[test]
fn the_compiler_sees_nothing_of_the_environment() {
    let m = Machine::new(Who::Me).policy("when({\"Bash\": {\"x\": allow()}})");
    let file = m.tmp().join("env");
    let clash = clash_with(&m, &format!("export -p > {}", file.display()));
    Ran::of(m.command(clash).env("SECRET_TOKEN", "x").args(["policy", "check"])).fails();
    let seen = std::fs::read_to_string(file).unwrap();
    assert!(!seen.contains("SECRET_TOKEN") && !seen.contains("HOME"), "{seen}");
}
