//! The real Gemini CLI, offline: see [`crate::client`].

use serde_json::json;

use crate::client::{Client, server};

pub(crate) const GEMINI: Client = Client {
    name: "gemini",
    configure: |m| {
        let settings = json!({
            "security": {"auth": {"selectedType": "gemini-api-key"}, "folderTrust": {"enabled": false}},
            "telemetry": {"enabled": false},
            "general": {"enableAutoUpdate": false, "disableAutoUpdate": true},
            "privacy": {"usageStatisticsEnabled": false},
            "mcpServers": {"lab": server(m)},
        });
        // The client takes comments.
        m.write(".gemini/settings.json", &format!("// mine\n{settings:#}\n"));
    },
    with_port: &[],
    start: |m, command, url| {
        if m.outside().exists() {
            // What the client itself would refuse says nothing about clash.
            command.args(["--include-directories", "../other"]);
        }
        command
            .args(["-p", "do it", "-m", "gemini-2.5-pro", "--approval-mode", "yolo"])
            .args(["--output-format", "stream-json"])
            .env("GEMINI_API_KEY", "dummy")
            .env("GOOGLE_GEMINI_BASE_URL", url);
    },
    shell: |script| json!({"tool": "run_shell_command", "input": {"command": script, "description": "d"}}),
    write: |path, text| json!({"tool": "write_file", "input": {"file_path": path, "content": text}}),
    shout: |text| json!({"tool": "mcp_lab_shout", "input": {"text": text}}),
    fetch: Some(
        |url| json!({"tool": "web_fetch", "input": {"prompt": format!("read {url} please")}}),
    ),
    delegate: Some(
        |task| json!({"tool": "invoke_agent", "input": {"agent_name": "generalist", "prompt": task}}),
    ),
    background: Some(
        |script| json!({"tool": "run_shell_command", "input": {"command": script, "is_background": true}}),
    ),
    instructed: false,
};

#[test]
fn the_real_gemini_keeps_the_promises() {
    let Some(gemini) = GEMINI.here() else { return };
    gemini.keeps_its_promises();
}
