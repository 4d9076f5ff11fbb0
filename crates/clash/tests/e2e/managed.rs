//! Settings for all users of a machine, with the real clients: no project can switch them
//! off. Each test has its own mount namespace, in which `/etc` and `/usr/local` are overlays.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::claude_client::CLAUDE;
use crate::client::{Client, WHERE_AM_I, made};
use crate::codex_client::CODEX;
use crate::gemini_client::GEMINI;
use crate::support::{Machine, Ran, Who, clash, is_root, skipped};

/// A script that runs a program with its own `/etc`.
fn with_own_etc(m: &Machine, name: &str, program: &Path) -> PathBuf {
    let home = m.home().display().to_string();
    let mut mounts = String::new();
    for (name, place) in [("etc", "/etc"), ("local", "/usr/local")] {
        for part in ["upper", "work"] {
            m.make_dir(m.home().join(format!("{name}-{part}")));
        }
        mounts.push_str(&format!(
            "mount -t overlay overlay -o lowerdir={place},upperdir={home}/{name}-upper,\
             workdir={home}/{name}-work {place} && "
        ));
    }
    let text = format!(
        "#!/bin/sh\nexec unshare -m sh -c '{mounts}exec \"$0\" \"$@\"' {} \"$@\"\n",
        program.display()
    );
    let script = m.write(format!("bin/{name}"), "");
    crate::support::program(&script, &text);
    script
}

/// Installs clash for the whole machine, lets a project switch hooks off, and checks that the
/// client still runs no command.
fn check_managed_settings(client: &Client, off: (&str, &str), written: &str) {
    let Some(mut here) = client.here() else { return };
    if !is_root() {
        skipped("managed settings, because only root can have an /etc of its own");
        return;
    }
    let m = client.bare(Who::Me);
    let wrapped = with_own_etc(&m, "clash", clash());
    if Ran::of(m.command(&wrapped).arg("--version")).code != Some(0) {
        skipped("managed settings, because /etc cannot be overlaid here");
        return;
    }
    let install = ["install", "--agent", client.name, "--managed"];
    Ran::of(m.command(&wrapped).args(install)).succeeds();
    assert!(m.home().join("etc-upper").join(written).exists());
    let program = fs::metadata(m.home().join("local-upper/lib/clash/bin/clash")).unwrap();
    assert_eq!(program.permissions().mode() & 0o555, 0o555, "every user may run it");
    assert!(!m.state().join("bin/clash").exists());
    Ran::of(m.command(&wrapped).args(install)).succeeds().says("already");
    m.write(format!("app/{}", off.0), off.1);
    here.program = with_own_etc(&m, client.name, &here.program);
    let talk = here.run(&m, &[(client.shell)(WHERE_AM_I)]);
    talk.results[0].refused("switches every hook off");
    assert!(!made(&m));
    let uninstall = ["uninstall", "--agent", client.name, "--managed"];
    Ran::of(m.command(&wrapped).args(uninstall)).succeeds().says("clash is out of");
}

#[test]
fn a_project_cannot_switch_managed_hooks_of_claude_off() {
    // The project's hooks do not run either, so no hook runs after clash's.
    let off = r#"{"disableAllHooks": true, "hooks": {"PreToolUse": [{"matcher": "*", "hooks": [
        {"type": "command", "command": "/bin/sh", "args": ["-c", "echo x > made.txt"]}]}]}}"#;
    check_managed_settings(
        &CLAUDE,
        (".claude/settings.json", off),
        "claude-code/managed-settings.json",
    );
}

#[test]
fn a_project_cannot_switch_managed_hooks_of_codex_off() {
    let off = (".codex/config.toml", "[features]\nhooks = false\n");
    check_managed_settings(&CODEX, off, "codex/requirements.toml");
}

#[test]
fn a_project_cannot_switch_managed_hooks_of_gemini_off() {
    let off = (".gemini/settings.json", "{\"hooksConfig\": {\"enabled\": false}}");
    check_managed_settings(&GEMINI, off, "gemini-cli/settings.json");
}
