//! `clash uninstall` says which files are left, and `--purge` removes them.

use crate::support::{Machine, Who, as_each_user};

/// The text with `SIZE` for sizes and `~` for the home.
fn shown(m: &Machine, text: &str) -> String {
    let text = text.replace(&m.home().display().to_string(), "~");
    let lines = text.lines().map(|line| {
        let words = line.trim_start().split(' ').take(2).collect::<Vec<_>>();
        let [number, unit] = words.as_slice() else { return line.to_owned() };
        let is_size = number.parse::<f64>().is_ok() && unit.ends_with('B');
        if is_size {
            line.replacen(&format!("{number} {unit}"), "SIZE", 1)
        } else {
            line.to_owned()
        }
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn files_that_are_left_are_listed() {
    insta::allow_duplicates!(as_each_user(|m| {
        let m = m.policy("settings(default = deny())\n").settled();
        m.write(".claude/settings.json", "{}\n");
        m.clash(["install", "--agent", "claude"]).succeeds();
        m.clash(["status"]).succeeds();
        let ran = m.clash(["uninstall", "--agent", "claude"]).succeeds();
        let text = shown(&m, &ran.stdout).replace("    SIZE", "SIZE").replace("  SIZE", "SIZE");
        let text: Vec<&str> = text.lines().map(str::trim).collect();
        insta::assert_snapshot!(text.join("\n"), @r"
        clash is out of ~/.claude/settings.json

        left on this machine:
        SIZE  ~/.clash (your policy)
        SIZE  ~/.local/state/clash (sessions, trust, copies of settings)
        SIZE  ~/.cache/clash (compiled policies)
        `clash uninstall --purge` removes it, and asks about your policy.
        ");
    }));
}

#[test]
fn purge_removes_everything_but_a_policy_without_a_yes() {
    as_each_user(|m| {
        let m = m.policy("settings(default = deny())\n");
        m.write(".claude/settings.json", "{\"model\": \"x\"}\n");
        m.write(".codex/config.toml", "model = \"x\"\n");
        m.clash(["install", "--agent", "claude"]).succeeds();
        m.clash(["install", "--agent", "codex", "--yes"]).succeeds();
        m.clash(["status"]).succeeds();
        assert!(m.state().exists() && m.home().join(".cache/clash").exists());
        m.clash(["uninstall", "--purge"]).succeeds().says("kept ").says("your policy");
        assert!(!m.state().exists() && !m.home().join(".cache/clash").exists());
        assert!(m.home().join(".clash/policy.star").exists());
        let read = |file: &str| std::fs::read_to_string(m.home().join(file)).unwrap();
        assert_eq!(read(".claude/settings.json"), "{\"model\": \"x\"}\n");
        assert_eq!(read(".codex/config.toml"), "model = \"x\"\n");
        m.clash(["uninstall", "--purge", "--yes"]).succeeds().says("removed ");
        assert!(!m.home().join(".clash").exists());
    });
}

/// Without its programs an agent that still calls them would be blocked, and with
/// them gone nothing could take the entries out of a file that is broken now.
#[test]
fn purge_stops_at_settings_it_cannot_read() {
    let m = Machine::new(Who::Me);
    let file = m.write(".claude/settings.json", "{}\n");
    m.clash(["install", "--agent", "claude"]).succeeds();
    let broken = std::fs::read_to_string(&file).unwrap() + "x";
    std::fs::write(&file, &broken).unwrap();
    m.clash(["uninstall", "--purge", "--yes"]).exits(1).says("settings.json");
    assert!(m.state().join("bin/clash").exists());
    assert_eq!(std::fs::read_to_string(&file).unwrap(), broken);
}
