//! Codex's own sandbox, in which no command of clash can start.

use std::fs;

use serde_json::json;

use crate::codex_client::CODEX;
use crate::support::{Machine, Who, as_each_user};

const ALLOW: &str = r#"
load("@clash//sandboxes.star", "project")
settings(default = allow(), default_sandbox = project)
"#;

#[test]
fn nothing_changes_without_an_answer() {
    as_each_user(|m| {
        let text = "model = \"x\"\n";
        let file = m.write(".codex/config.toml", text);
        let ran = m.clash(["install", "--agent", "codex"]).exits(1);
        ran.says("sandbox_mode is not set")
            .says("sandbox_mode = \"danger-full-access\"")
            .says("--yes")
            .says("--keep-sandbox");
        assert_eq!(fs::read_to_string(file).unwrap(), text);
    });
}

#[test]
fn the_old_value_comes_back() {
    as_each_user(|m| {
        for text in ["", "a = 1\n", "sandbox_mode = 'read-only' # why\nb = 1\n[c]\n"] {
            let file = m.write(".codex/config.toml", text);
            m.clash(["install", "--agent", "codex", "--yes"])
                .succeeds()
                .says("its own sandbox is off now");
            let installed = fs::read_to_string(&file).unwrap();
            assert!(installed.contains("sandbox_mode = \"danger-full-access\""), "{installed}");
            let again = m.clash(["install", "--agent", "codex"]).succeeds();
            assert!(!again.stdout.contains("sandbox is o"), "{again:?}");
            m.clash(["uninstall", "--agent", "codex"]).succeeds();
            assert_eq!(fs::read_to_string(&file).unwrap_or_default(), text);
        }
    });
}

#[test]
fn a_sandbox_left_on_is_said_everywhere() {
    let m = Machine::new(Who::Me).policy(ALLOW);
    m.write(".codex/config.toml", "sandbox_mode = \"workspace-write\"\n");
    let on = "Codex CLI's own sandbox is on (it is `sandbox_mode = \"workspace-write\"`)";
    m.clash(["install", "--agent", "codex", "--keep-sandbox"]).succeeds().says(on);
    m.clash(["status"]).succeeds().says("Codex CLI: wired; no command can start").says(on);
    m.clash(["doctor"]).exits(1).says(on).says("fix: clash install --agent codex");
    let start = json!({
        "session_id": "s", "cwd": m.project(), "hook_event_name": "SessionStart", "source": "startup",
    });
    let mut command = m.command(crate::support::clash());
    command.args(["hook", "codex"]);
    let child = crate::support::feed(command, start.to_string().as_bytes());
    let said = String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap();
    assert!(said.contains("own sandbox is on"), "{said}");
    m.clash(["install", "--agent", "codex", "--yes"]).succeeds();
    m.clash(["status"]).succeeds().says("Codex CLI: wired; commands are confined");
    m.clash(["doctor"]).exits(0);
}

/// `codex exec` without any flag about sandboxes.
#[test]
fn the_real_codex_runs_commands_without_flags() {
    let plain = crate::client::Client {
        start: |m, command, url| {
            (CODEX.start)(m, command, url);
            let flag = "--dangerously-bypass-approvals-and-sandbox";
            let words: Vec<_> = command.get_args().map(ToOwned::to_owned).collect();
            let mut plain = m.command(command.get_program());
            plain.args(words.iter().filter(|word| *word != flag)).env("OPENAI_API_KEY", "dummy");
            if let Some(path) = command.get_envs().find(|(name, _)| *name == "PATH") {
                plain.env("PATH", path.1.unwrap());
            }
            *command = plain;
        },
        ..CODEX
    };
    let Some(codex) = plain.here() else { return };
    let m = plain.installed(Who::Me);
    let talk = codex.run(&m, &[(plain.shell)("echo made > made.txt; cat made.txt")]);
    talk.results[0].says("made");
    assert!(m.project().join("made.txt").exists());
    let status = m.clash(["status"]).succeeds().says("nothing so far");
    assert!(!status.stdout.contains("did not run in its sandbox"), "{status:?}");

    // Left on, every command fails, and the reason is told without a false alarm.
    m.clash(["uninstall", "--agent", "codex"]).succeeds();
    m.clash(["install", "--agent", "codex", "--keep-sandbox"]).succeeds();
    let talk = codex.run(&m, &[(plain.shell)("echo made > other.txt")]);
    talk.results[0].says("own sandbox");
    assert!(!m.project().join("other.txt").exists());
    let status = m.clash(["status"]).succeeds();
    assert!(!status.stdout.contains("did not run in its sandbox"), "{status:?}");
}
