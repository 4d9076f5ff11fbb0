//! The commands of `tests/commands/everyday.tsv` under the policy of `clash init --quick`.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::Value;

use crate::support::{Machine, Ran, Who, clash, test_file};

/// The number of harmless commands that run without a question. It may only grow.
const MIN_HARMLESS_ALLOWED: usize = 172;

struct EverydayCommand {
    kind: String,
    script: String,
}

fn commands() -> Vec<EverydayCommand> {
    let text = fs::read_to_string(test_file("commands/everyday.tsv")).unwrap();
    let command = |line: &str| {
        let fields: Vec<&str> = line.split('\t').collect();
        EverydayCommand { kind: fields[0].to_owned(), script: fields[2].replace("\\n", "\n") }
    };
    text.lines().skip(1).map(command).collect()
}

fn effect(m: &Machine, script: &str) -> String {
    let explained = m.clash(["explain", "--json", "bash", script]).stdout;
    let decision: Value = serde_json::from_str(&explained).unwrap();
    decision["effect"].as_str().unwrap().to_owned()
}

/// Package managers that the machine of the tests may lack. `clash init` writes rules for
/// those that it finds on the search path.
const PACKAGE_MANAGERS: &[&str] = &["pnpm", "yarn", "bun", "uv", "poetry"];

/// A project of many toolchains, with the policy of `clash init --quick`.
fn polyglot() -> Machine {
    let m = Machine::new(Who::Me);
    m.write(
        "app/Cargo.toml",
        "[package]\nname = \"core\"\nversion = \"0.1.0\"\nedition = \"2024\"\n",
    );
    m.write("app/src/main.rs", "fn main() {}\n");
    m.write("app/package.json", "{\"name\": \"web\", \"scripts\": {\"test\": \"node test.js\"}}\n");
    m.write("app/package-lock.json", "{\"lockfileVersion\": 3}\n");
    m.write("app/pyproject.toml", "[project]\nname = \"api\"\nversion = \"0.1\"\n");
    m.write("app/go.mod", "module example.com/app\n");
    m.write("app/Makefile", "all:\n");
    m.write("app/.github/workflows/ci.yml", "on: push\n");
    m.write("app/.git/HEAD", "ref: refs/heads/main\n");
    for name in PACKAGE_MANAGERS {
        let program = m.write(format!("programs/{name}"), "#!/bin/sh\n");
        fs::set_permissions(program, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let path = std::env::var("PATH").unwrap();
    let path = format!("{}:{path}", m.home().join("programs").display());
    Ran::of(m.command(clash()).env("PATH", path).args(["init", "--quick"])).succeeds();
    m
}

#[test]
fn a_doubt_that_a_door_settles_is_not_asked_about() {
    let m = polyglot();
    assert_eq!(effect(&m, "source .venv/bin/activate && pytest -q && cargo build"), "allow");
    assert_eq!(effect(&m, "cd $(git rev-parse --show-toplevel) && git fetch && make"), "allow");
    // A door would leave the variable out, which is not what the script says.
    assert_eq!(effect(&m, "export RUSTC=./x; cargo build && make"), "ask");
    assert_eq!(effect(&m, "source .venv/bin/activate && git push"), "ask");
}

#[test]
fn everyday_commands_run_and_outward_ones_are_asked_about() {
    let m = polyglot();
    let (mut harmless_allowed, mut harmless_denied) = (0, Vec::new());
    let mut outward_allowed = Vec::new();
    for EverydayCommand { kind, script } in commands() {
        match (kind.as_str(), effect(&m, &script).as_str()) {
            ("harmless", "allow") => harmless_allowed += 1,
            ("harmless", "deny") => harmless_denied.push(script),
            ("outward", "allow") => outward_allowed.push(script),
            _ => {}
        }
    }
    assert_eq!(outward_allowed, [] as [String; 0]);
    assert_eq!(harmless_denied, [] as [String; 0]);
    assert!(harmless_allowed >= MIN_HARMLESS_ALLOWED, "only {harmless_allowed}");
}
