//! The real Factory Droid, offline: see [`crate::client`].

use serde_json::json;

use crate::client::{Client, server};

pub(crate) const DROID: Client = Client {
    name: "droid",
    configure: |m| {
        let model = json!({
            "displayName": "Mock", "model": "mock-model", "baseUrl": "http://127.0.0.1:PORT/v1",
            "apiKey": "dummy", "provider": "generic-chat-completion-api", "maxOutputTokens": 4000,
        });
        m.write(".factory/settings.json", &json!({"customModels": [model]}).to_string());
        let mut lab = server(m);
        lab["type"] = "stdio".into();
        m.write(".factory/mcp.json", &json!({"mcpServers": {"lab": lab}}).to_string());
    },
    with_port: &[".factory/settings.json"],
    start: |_, command, _| {
        command
            .args(["exec", "--auto", "high", "-m", "custom:mock-model", "do it"])
            .env("FACTORY_API_KEY", "dummy")
            .env("DROID_DISABLE_AUTO_UPDATE", "1");
    },
    shell: |script| {
        let input = json!({"command": script, "riskLevelReason": "t", "riskLevel": "low"});
        json!({"tool": "Execute", "input": input})
    },
    write: |path, text| json!({"tool": "Create", "input": {"file_path": path, "content": text}}),
    shout: |text| json!({"tool": "lab___shout", "input": {"text": text}}),
    fetch: Some(|url| json!({"tool": "FetchUrl", "input": {"url": url}})),
    // It would start a daemon first, which it does not get offline.
    delegate: None,
    background: Some(|script| {
        let mut call = (DROID.shell)(script);
        call["input"]["fireAndForget"] = true.into();
        call
    }),
    instructed: false,
};

#[test]
fn the_real_droid_keeps_the_promises() {
    let Some(droid) = DROID.here() else { return };
    droid.keeps_its_promises();
}
