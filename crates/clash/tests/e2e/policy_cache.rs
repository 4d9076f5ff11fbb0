//! The cache of compiled policies. Clash notices every changed input and ignores a damaged
//! cache. Many hooks at once get either the old or the new policy.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::{Machine, Ran, Who, clash, copy_program, eventually};

/// The files of the policy cache. Empty without a cache directory.
fn cached(m: &Machine) -> Vec<PathBuf> {
    let dir = m.home().join(".cache/clash/policy");
    fs::read_dir(dir).into_iter().flatten().map(|entry| entry.unwrap().path()).collect()
}

/// Waits until the files are old enough for the cache and clash has cached the policy.
fn warm(m: &Machine, script: &str) {
    eventually("the policy is cached", || {
        cached(m).iter().for_each(|file| fs::remove_file(file).unwrap());
        m.clash(["explain", "bash", script]).succeeds();
        !cached(m).is_empty()
    });
}

/// The effect that `clash explain` gives for a script: `allow`, `ask` or `deny`.
fn effect(m: &Machine, script: &str) -> String {
    let ran = m.clash(["explain", "bash", script]);
    ran.stdout.split(':').next().unwrap_or_default().to_owned()
}

#[test]
fn a_changed_loaded_file_counts_at_once() {
    let m = Machine::new(Who::Me)
        .policy("load(\"more.star\", \"what\")\nwhen({\"Bash\": {\"x\": what}})");
    m.write(".clash/more.star", "what = allow()");
    warm(&m, "x");
    assert_eq!(effect(&m, "x"), "allow");
    m.write(".clash/more.star", "what = deny()");
    assert_eq!(effect(&m, "x"), "deny");
}

#[test]
fn a_policy_that_appears_or_vanishes_counts_at_once() {
    let m = Machine::new(Who::Me);
    warm(&m, "x");
    m.write("app/.clash/policy.star", "when({\"Bash\": {\"x\": deny()}})");
    assert_eq!(effect(&m, "x"), "deny");
    warm(&m, "x");
    fs::remove_file(m.project().join(".clash/policy.star")).unwrap();
    assert_eq!(effect(&m, "x"), "ask");
    // The user's policy has two places. A new file in the first place counts at once.
    let m = m.policy("when({\"Bash\": {\"x\": allow()}})");
    warm(&m, "x");
    m.write(".config/clash/policy.star", "when({\"Bash\": {\"x\": deny()}})");
    assert_eq!(effect(&m, "x"), "deny");
}

/// A session's policy may be stricter than all others, so clash must not go on without it.
#[test]
fn a_session_policy_that_cannot_be_read_denies() {
    let m = Machine::new(Who::Me).policy("when({\"Bash\": {\"true\": allow()}})");
    m.bash("true").is("allow", "");
    let file = m.state().join("sessions/test-session/policy.star");
    std::os::unix::fs::symlink("policy.star", &file).unwrap();
    m.bash("true").is("deny", "policy.star");
    fs::remove_file(file).unwrap();
    m.bash("true").is("allow", "");
}

#[test]
fn trust_given_and_taken_counts_at_once() {
    let m = Machine::new(Who::Me);
    m.write("app/.clash/policy.star", "when({\"Bash\": {\"x\": allow()}})");
    warm(&m, "x");
    assert_eq!(effect(&m, "x"), "ask");
    m.clash(["trust", "--yes"]).succeeds();
    assert_eq!(effect(&m, "x"), "allow");
    warm(&m, "x");
    m.clash(["trust", "--revoke"]).succeeds();
    assert_eq!(effect(&m, "x"), "ask");
}

#[test]
fn a_cached_policy_does_not_count_without_its_compiler() {
    let m = Machine::new(Who::Me).policy("when({\"Bash\": {\"x\": allow()}})");
    let dir = m.tmp().join("bin");
    m.make_dir(&dir);
    for name in ["clash", "clash-compile", "clash-door"] {
        copy_program(clash().with_file_name(name), dir.join(name));
    }
    let explain = || Ran::of(m.command(dir.join("clash")).args(["explain", "bash", "x"]));
    eventually("the policy is cached", || {
        explain().succeeds();
        !cached(&m).is_empty()
    });
    // Without the compiler, the cache does not count.
    fs::remove_file(dir.join("clash-compile")).unwrap();
    explain().fails().says("policy compiler");
}

#[test]
fn a_damaged_cache_gives_the_policy_of_the_sources() {
    let m = Machine::new(Who::Me).policy("when({\"Bash\": {\"x\": deny()}})");
    warm(&m, "x");
    let file = cached(&m).remove(0);
    let good = fs::read(&file).unwrap();
    let mut damaged: Vec<Vec<u8>> = (0..good.len())
        .step_by(good.len() / 12)
        .map(|at| {
            let mut image = good.clone();
            image[at] ^= 0x40;
            image
        })
        .collect();
    damaged.push(Vec::new());
    damaged.push(good[..good.len() / 2].to_vec());
    damaged.push([good.as_slice(), b"more"].concat());
    for image in damaged {
        fs::write(&file, image).unwrap();
        assert_eq!(effect(&m, "x"), "deny");
    }
    // Clash cannot read a directory as a cache file.
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    assert_eq!(effect(&m, "x"), "deny");
}

#[test]
fn hooks_during_a_policy_change_see_the_old_or_the_new_one() {
    let m = Machine::new(Who::Me).policy("when({\"Bash\": {\"x\": allow()}})");
    let policy = m.home().join(".clash/policy.star");
    let put = |text: &str| {
        let new = Path::new(&policy).with_extension("new");
        fs::write(&new, text).unwrap();
        fs::rename(&new, &policy).unwrap();
    };
    for round in 0..4 {
        let word = if round % 2 == 0 { "deny" } else { "allow" };
        let started: Vec<_> = (0..6)
            .map(|_| {
                let mut command = m.command(clash());
                command.args(["explain", "bash", "x"]).stdout(std::process::Stdio::piped());
                command.spawn().unwrap()
            })
            .collect();
        put(&format!("when({{\"Bash\": {{\"x\": {word}()}}}})"));
        for child in started {
            let ran = Ran::from(child.wait_with_output().unwrap()).succeeds();
            assert!(ran.stdout.starts_with("allow:") || ran.stdout.starts_with("deny:"), "{ran:?}");
        }
        assert_eq!(effect(&m, "x"), word);
    }
}
