//! The real Qwen Code, offline: see [`crate::client`]. It cannot be made to run
//! another command than the model gave, so the model is told which one to give.

use serde_json::json;

use crate::client::{Client, WHERE_AM_I, made, server};
use crate::support::Who;

pub(crate) const QWEN: Client = Client {
    name: "qwen",
    configure: |m| {
        let settings = json!({
            "security": {"auth": {"selectedType": "openai"}, "folderTrust": {"enabled": false}},
            "telemetry": {"enabled": false},
            "general": {"enableAutoUpdate": false, "disableAutoUpdate": true},
            "privacy": {"usageStatisticsEnabled": false},
            "mcpServers": {"lab": server(m)},
        });
        m.write(".qwen/settings.json", &format!("// mine\n{settings:#}\n"));
    },
    with_port: &[],
    start: |_, command, url| {
        command
            .args(["do it", "--auth-type", "openai", "--approval-mode", "yolo"])
            .args(["--output-format", "stream-json"])
            .env("OPENAI_API_KEY", "dummy")
            .env("OPENAI_BASE_URL", format!("{url}/v1"))
            .env("OPENAI_MODEL", "mock-model");
    },
    shell: |script| {
        let input = json!({"command": script, "description": "d", "is_background": false});
        json!({"tool": "run_shell_command", "input": input})
    },
    write: |path, text| json!({"tool": "write_file", "input": {"file_path": path, "content": text}}),
    shout: |text| json!({"tool": "mcp__lab__shout", "input": {"text": text}}),
    fetch: Some(|url| json!({"tool": "web_fetch", "input": {"url": url, "prompt": "x"}})),
    instructed: true,
};

#[test]
fn the_real_qwen_keeps_the_promises() {
    let Some(qwen) = QWEN.here() else { return };
    qwen.keeps_its_promises();
}

#[test]
fn nothing_runs_when_the_hook_is_broken() {
    let Some(qwen) = QWEN.here() else { return };
    qwen.blocks_when_the_hook_is_broken();
}

/// The scripted model cannot read the line it is told, so a second session gets
/// it from the first: an approval is good for its session only, and so the line
/// of another is refused too.
#[test]
fn a_bare_command_never_runs_and_the_model_is_told_the_line_that_does() {
    let Some(qwen) = QWEN.here() else { return };
    let m = QWEN.installed(Who::Me);
    let talk = qwen.run(&m, &[(QWEN.shell)(WHERE_AM_I), (QWEN.shell)("touch asked.txt")]);
    let told = talk.results[0].refused("with exactly this command: ").text.clone();
    talk.results[1].refused("with exactly this command: ");
    assert!(!made(&m));
    let (_, line) = told.split_once("with exactly this command: ").unwrap();
    let line = line.lines().next().unwrap();
    let talk = qwen.run(&m, &[(QWEN.shell)(line)]);
    talk.results[0].refused("calls clash itself");
    assert!(!made(&m));
}
