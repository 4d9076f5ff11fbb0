//! The real OpenCode, Kilo, Copilot CLI, Cline and pi, offline: see
//! [`crate::client`].

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::client::{Client, server};
use crate::support::Machine;

/// Settings of OpenCode and what is made from it.
fn opencode_settings(m: &Machine, name: &str) {
    let lab = server(m);
    let mut line = vec![lab["command"].clone()];
    line.extend(lab["args"].as_array().unwrap().iter().cloned());
    let model =
        json!({"name": "Mock", "tool_call": true, "limit": {"context": 200_000, "output": 8000}});
    let settings = json!({
        "autoupdate": false, "share": "disabled",
        "model": "mock/mock-model", "small_model": "mock/mock-model",
        "provider": {"mock": {
            "npm": "@ai-sdk/openai-compatible", "name": "Mock",
            "options": {"baseURL": "http://127.0.0.1:PORT/v1", "apiKey": "dummy"},
            "models": {"mock-model": model},
        }},
        // Or it would stop at the first path outside the project.
        "permission": {"external_directory": "allow"},
        "mcp": {"lab": {"type": "local", "enabled": true, "command": line}},
    });
    m.write(format!(".config/{name}/{name}.json"), &settings.to_string());
    // What the client would otherwise fetch for its plugins, at its leisure.
    let variable = format!("CLASH_TEST_{}_MODULES", name.to_uppercase());
    if let Some(modules) = std::env::var_os(variable).map(PathBuf::from) {
        let config = m.home().join(".config").join(name);
        symlink(modules.join("node_modules"), config.join("node_modules")).unwrap();
        fs::copy(modules.join("package.json"), config.join("package.json")).unwrap();
        fs::copy(modules.join("package-lock.json"), config.join("package-lock.json")).unwrap();
    }
}

fn opencode_bash(script: &str) -> Value {
    json!({"tool": "bash", "input": {"command": script, "description": "a step"}})
}

pub(crate) const OPENCODE: Client = Client {
    name: "opencode",
    configure: |m| opencode_settings(m, "opencode"),
    with_port: &[".config/opencode/opencode.json"],
    start: |_, command, _| {
        command
            .args(["run", "--format", "json", "do it"])
            .env("OPENCODE_DISABLE_AUTOUPDATE", "1")
            .env("OPENCODE_DISABLE_MODELS_FETCH", "1")
            .env("OPENCODE_DISABLE_LSP_DOWNLOAD", "1");
    },
    shell: opencode_bash,
    write: |path, text| json!({"tool": "write", "input": {"filePath": path, "content": text}}),
    shout: |text| json!({"tool": "lab_shout", "input": {"text": text}}),
    fetch: Some(|url| json!({"tool": "webfetch", "input": {"url": url, "format": "text"}})),
    instructed: false,
};

pub(crate) const COPILOT: Client = Client {
    name: "copilot",
    configure: |m| {
        let mut lab = server(m);
        lab["type"] = "local".into();
        lab["tools"] = json!(["*"]);
        let servers = json!({"mcpServers": {"lab": lab}});
        m.write(".copilot/mcp-config.json", &servers.to_string());
    },
    with_port: &[],
    start: |_, command, url| {
        command
            .args(["-p", "do it", "--output-format", "json", "--allow-all"])
            .env("COPILOT_PROVIDER_BASE_URL", format!("{url}/v1"))
            .env("COPILOT_PROVIDER_API_KEY", "dummy")
            .env("COPILOT_MODEL", "gpt-5.5")
            .env("COPILOT_PROVIDER_WIRE_API", "completions")
            .env("COPILOT_OFFLINE", "true")
            .env("COPILOT_AUTO_UPDATE", "false");
    },
    shell: |script| json!({"tool": "bash", "input": {"command": script, "description": "a step"}}),
    write: |path, text| {
        let path = path.display();
        let patch = format!("*** Begin Patch\n*** Add File: {path}\n+{text}\n*** End Patch\n");
        json!({"tool": "apply_patch", "raw": patch})
    },
    shout: |text| json!({"tool": "lab-shout", "input": {"text": text}}),
    fetch: None,
    instructed: false,
};

pub(crate) const CLINE: Client = Client {
    name: "cline",
    configure: |m| {
        let servers = json!({"mcpServers": {"lab": server(m)}});
        m.write(".cline/data/settings/cline_mcp_settings.json", &servers.to_string());
    },
    with_port: &[],
    start: |_, _, _| {},
    shell: |script| json!({"tool": "run_commands", "input": {"commands": [script]}}),
    write: |path, text| json!({"tool": "editor", "input": {"path": path, "new_text": text}}),
    shout: |text| json!({"tool": "lab__shout", "input": {"text": text}}),
    fetch: None,
    instructed: false,
};

pub(crate) const PI: Client = Client {
    name: "pi",
    configure: |m| {
        let model = json!({
            "id": "mock-model", "contextWindow": 128_000, "maxTokens": 8000,
            "compat": {"supportsDeveloperRole": false},
        });
        let models = json!({"providers": {"mock": {
            "baseUrl": "http://127.0.0.1:PORT/v1", "api": "openai-completions", "apiKey": "dummy",
            "models": [model],
        }}});
        m.write(".pi/agent/models.json", &models.to_string());
    },
    with_port: &[".pi/agent/models.json"],
    start: |_, command, _| {
        command
            .args(["-p", "--mode", "json", "--provider", "mock", "--model", "mock-model", "do it"])
            .env("PI_OFFLINE", "1");
    },
    shell: |script| json!({"tool": "bash", "input": {"command": script}}),
    write: |path, text| json!({"tool": "write", "input": {"path": path, "content": text}}),
    shout: |text| json!({"tool": "lab_shout", "input": {"text": text}}),
    fetch: None,
    instructed: false,
};

#[test]
fn the_real_opencode_keeps_the_promises() {
    let Some(client) = OPENCODE.here() else { return };
    client.keeps_its_promises();
}

#[test]
fn nothing_runs_in_opencode_when_the_hook_is_broken() {
    let Some(client) = OPENCODE.here() else { return };
    client.blocks_when_the_hook_is_broken();
}

#[test]
fn the_real_copilot_keeps_the_promises() {
    let Some(client) = COPILOT.here() else { return };
    client.keeps_its_promises();
}

#[test]
fn nothing_runs_in_copilot_when_the_hook_is_broken() {
    let Some(client) = COPILOT.here() else { return };
    client.blocks_when_the_hook_is_broken();
}

#[test]
fn the_real_pi_keeps_the_promises() {
    let Some(client) = PI.here() else { return };
    client.keeps_its_promises();
}

#[test]
fn nothing_runs_in_pi_when_the_hook_is_broken() {
    let Some(client) = PI.here() else { return };
    client.blocks_when_the_hook_is_broken();
}
