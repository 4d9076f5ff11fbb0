//! The real Qwen Code, offline: see [`crate::client`]. It cannot be made to run
//! another command than the model gave, so the model is told which one to give.

use serde_json::{Value, json};

use crate::client::{AS_TOLD, Client, look, records, saw_nothing, server, wait};
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
    delegate: Some(|task| {
        let input = json!({
            "description": "a task", "prompt": task, "subagent_type": "general-purpose",
            "run_in_background": false,
        });
        json!({"tool": "agent", "input": input})
    }),
    background: Some(
        |script| json!({"tool": "run_shell_command", "input": {"command": script, "is_background": true}}),
    ),
    instructed: true,
};

#[test]
fn the_real_qwen_keeps_the_promises() {
    let Some(qwen) = QWEN.here() else { return };
    qwen.keeps_its_promises();
}

/// A tool the client keeps back, called through the one that calls such tools.
#[test]
fn a_monitor_is_judged_and_confined_too() {
    let Some(qwen) = QWEN.here() else { return };
    let m = QWEN.installed(Who::Me);
    m.write("app/keep.txt", "keep");
    let input = |script: &str| json!({"command": script, "description": "d"});
    let through = |script: &str| json!({"tool": "tool_call", "input": {"name": "monitor", "arguments": input(script)}});
    let wait = wait("monitor");
    let talk = qwen.run(
        &m,
        &[
            through("rm keep.txt"),
            through(&look("monitor")),
            json!({"tool": "monitor", "input": input(AS_TOLD)}),
            (QWEN.shell)(&wait),
            (QWEN.shell)(AS_TOLD),
        ],
    );
    talk.results[0].refused("nothing is deleted here");
    assert!(m.project().join("keep.txt").exists());
    saw_nothing(&m, "monitor");
    assert_eq!(records(&m, "alarm"), [] as [Value; 0]);
}
