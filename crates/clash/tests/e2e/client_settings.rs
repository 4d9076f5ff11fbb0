//! Real clients that change their own settings while clash is installed: those
//! changes and the user's stay, byte for byte.
//!
//! Each client runs twice, with clash and without. In the end its files must be the
//! same.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::support::{Machine, Ran, Who, backups, skipped};

/// How a client changes its settings.
struct Changes {
    agent: &'static str,
    /// The file clash edits, and the user's text in it before.
    file: &'static str,
    text: &'static str,
    /// Two command lines of the client; `@MARKET@` is a directory of plugins.
    commands: [&'static [&'static str]; 2],
    /// One of the client's files, and a text that it contains afterwards.
    shows: (&'static str, &'static str),
}

/// Commands that add two servers.
const ADD_SERVERS: [&[&str]; 2] =
    [&["mcp", "add", "foo", "--", "echo", "hi"], &["mcp", "add", "bar", "--", "echo", "ho"]];
const ADD_SERVERS_FOR_USER: [&[&str]; 2] = [
    &["mcp", "add", "foo", "echo", "hi", "-s", "user"],
    &["mcp", "add", "bar", "echo", "ho", "-s", "user"],
];

const CODEX: Changes = Changes {
    agent: "codex",
    file: ".codex/config.toml",
    text: "# mine\nmodel = \"x\" # too\nsandbox_mode = 'read-only' # why\n\n# about hooks\n[[hooks.PreToolUse]]\n[[hooks.PreToolUse.hooks]]\ntype = \"command\"\ncommand = \"lint\"\n\n[projects.\"/p\"]\ntrust_level = \"trusted\"\n",
    commands: [
        &["mcp", "add", "foo", "--", "echo", "hi"],
        &["mcp", "add", "bar", "--env", "A=1", "--", "echo", "ho"],
    ],
    shows: (".codex/config.toml", "[mcp_servers.foo]"),
};

const ALL: [Changes; 12] = [
    CODEX,
    Changes { text: "model = \"x\"", ..CODEX },
    Changes {
        commands: [CODEX.commands[0], &["mcp", "remove", "foo"]],
        shows: (".codex/config.toml", "# mine"),
        ..CODEX
    },
    Changes {
        agent: "claude",
        file: ".claude/settings.json",
        text: "{\n\t\"model\": \"opus\",   \"unknown\": [1,\n2]\n}",
        commands: [
            &["plugin", "marketplace", "add", "@MARKET@"],
            &["mcp", "add", "foo", "-s", "user", "--", "echo", "hi"],
        ],
        shows: (".claude/settings.json", "extraKnownMarketplaces"),
    },
    Changes {
        agent: "gemini",
        file: ".gemini/settings.json",
        text: "// mine\n{\n  \"ui\": {\"theme\": \"x\"} // last\n}\n",
        commands: ADD_SERVERS_FOR_USER,
        shows: (".gemini/settings.json", "\"bar\""),
    },
    Changes {
        agent: "qwen",
        file: ".qwen/settings.json",
        text: "{\n  \"model\": {\n    \"name\": \"x\"\n  }\n}\n",
        commands: ADD_SERVERS_FOR_USER,
        shows: (".qwen/settings.json", "\"bar\""),
    },
    Changes {
        agent: "opencode",
        file: ".config/opencode/opencode.json",
        text: "{\n  // mine\n  \"model\": \"a/b\", // and a comma\n}\n",
        commands: ADD_SERVERS,
        shows: (".config/opencode/opencode.json", "\"bar\""),
    },
    Changes {
        agent: "droid",
        file: ".factory/settings.json",
        text: "{\"customModels\":[{\"model\":\"x\"}]}",
        commands: [&["mcp", "add", "foo", "echo"], &["mcp", "add", "bar", "echo"]],
        shows: (".factory/mcp.json", "\"bar\""),
    },
    Changes {
        agent: "copilot",
        file: ".copilot/settings.json",
        text: "{\n  // mine\n  \"theme\": \"x\"\n}\n",
        commands: ADD_SERVERS,
        shows: (".copilot/mcp-config.json", "\"bar\""),
    },
    Changes {
        agent: "kilo",
        file: ".config/kilo/kilo.json",
        text: "{\n  // mine\n  \"model\": \"a/b\", // and a comma\n}\n",
        commands: ADD_SERVERS,
        shows: (".config/kilo/kilo.json", "\"bar\""),
    },
    Changes {
        agent: "cline",
        file: ".cline/data/settings/cline_mcp_settings.json",
        text: "{\"mcpServers\": {}}",
        commands: [
            &["mcp", "add", "--yes", "foo", "--", "echo", "hi"],
            &["mcp", "add", "--yes", "bar", "--", "echo", "ho"],
        ],
        shows: (".cline/data/settings/cline_mcp_settings.json", "\"bar\""),
    },
    Changes {
        agent: "pi",
        file: ".pi/agent/settings.json",
        text: "{\n  \"theme\": \"x\"\n}\n",
        commands: [&["install", "@MARKET@/p"], &["install", "@MARKET@/q"]],
        shows: (".pi/agent/settings.json", "/q\""),
    },
];

/// Runs a command line of the client, offline, which has to succeed. `@MARKET@` stands for
/// the market.
fn client(m: &Machine, program: &Path, market: &str, words: &[&str]) {
    let mut command = m.command(program);
    if let Some(node) = std::env::var_os("CLASH_TEST_NODE").map(PathBuf::from) {
        let dir = node.parent().unwrap().display();
        command.env("PATH", format!("{dir}:/usr/local/bin:/usr/bin:/bin"));
    }
    command.env("COPILOT_OFFLINE", "true").env("DISABLE_AUTOUPDATER", "1");
    command.args(words.iter().map(|word| word.replace("@MARKET@", market)));
    Ran::of(&mut command).succeeds();
}

/// A directory of plugins, for Claude Code.
fn market() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let write = |file: &str, text: &str| {
        let file = dir.path().join(file);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    };
    write(
        ".claude-plugin/marketplace.json",
        r#"{"name":"m","owner":{"name":"u"},"plugins":[{"name":"p","source":"./p"}]}"#,
    );
    write("p/.claude-plugin/plugin.json", r#"{"name":"p","version":"1.0.0"}"#);
    for name in ["p", "q"] {
        write(&format!("{name}/package.json"), r#"{"name":"x","version":"1.0.0"}"#);
    }
    dir
}

/// The text of a file, with `~` for the home of the machine.
fn read(m: &Machine, file: &str) -> String {
    let text = fs::read_to_string(m.home().join(file)).unwrap();
    text.replace(&m.home().display().to_string(), "~")
}

/// Two machines on which the file gets the same two changes. Only the first has clash: it
/// installs clash before each change.
fn with_and_without(
    agent: &str,
    (file, text): (&str, &str),
    changes: [&dyn Fn(&Machine); 2],
) -> (Machine, Machine) {
    let (with, without) = (Machine::new(Who::Me), Machine::new(Who::Me));
    for m in [&with, &without] {
        m.write(file, text);
    }
    for change in changes {
        with.clash(["install", "--agent", agent, "--yes"]).succeeds();
        change(&with);
        change(&without);
    }
    (with, without)
}

#[test]
fn changes_of_the_client_and_the_user_survive_clash() {
    let market = market();
    let market = market.path().display().to_string();
    for changes in ALL {
        let variable = format!("CLASH_TEST_{}", changes.agent.to_uppercase());
        let Some(program) = std::env::var_os(&variable).map(PathBuf::from) else {
            skipped(&format!("settings of the real {}: {variable} is not set", changes.agent));
            continue;
        };
        let run = |m: &Machine, at: usize| client(m, &program, &market, changes.commands[at]);
        let (with, without) = with_and_without(
            changes.agent,
            (changes.file, changes.text),
            [&|m| run(m, 0), &|m| run(m, 1)],
        );
        let before = fs::read_to_string(with.home().join(changes.file)).unwrap();
        with.clash(["uninstall", "--agent", changes.agent]).succeeds();
        for file in [changes.file, changes.shows.0] {
            assert_eq!(read(&with, file), read(&without, file), "{}: {file}", changes.agent);
        }
        assert!(read(&with, changes.shows.0).contains(changes.shows.1), "{}", changes.agent);
        // If uninstalling changed the file, clash has kept the text before that change.
        if before != fs::read_to_string(with.home().join(changes.file)).unwrap() {
            assert!(backups(&with).contains(&before), "{}", changes.agent);
            assert!(backups(&with).contains(&changes.text.to_owned()), "{}", changes.agent);
        }
    }
}

/// Clients that this machine does not have. The test edits their files as they would: it
/// writes the whole file with one member more.
const EDITED: [(&str, &str, &str); 4] = [
    (
        "cursor",
        ".cursor/hooks.json",
        "{\n  \"version\": 1,\n  \"hooks\": {\n    \"stop\": [{\"command\": \"mine\"}]\n  }\n}",
    ),
    ("kiro", ".kiro/settings/cli.json", "{\n  \"chat.defaultModel\": \"x\"\n}\n"),
    ("q", ".aws/amazonq/mcp.json", "{\"mcpServers\": {}}"),
    ("kiro", ".kiro/settings/mcp.json", "{\"mcpServers\": {}}"),
];

/// Writes the whole JSON file anew, with one member more.
fn add_member(m: &Machine, file: &str, name: &str) {
    let path = m.home().join(file);
    let mut value: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    value[name] = json!({"command": "echo", "args": ["hi"]});
    fs::write(path, format!("{value:#}\n")).unwrap();
}

#[test]
fn edits_like_those_of_absent_clients_survive_clash() {
    for (agent, file, text) in EDITED {
        let (with, without) = with_and_without(
            agent,
            (file, text),
            [&|m| add_member(m, file, "first"), &|m| add_member(m, file, "second")],
        );
        with.clash(["uninstall", "--agent", agent]).succeeds();
        assert_eq!(read(&with, file), read(&without, file), "{agent}: {file}");
    }
}

#[test]
fn a_server_added_to_the_agent_of_clash_survives() {
    for (agent, file) in
        [("q", ".aws/amazonq/cli-agents/clash.json"), ("kiro", ".kiro/agents/clash.json")]
    {
        let m = Machine::new(Who::Me);
        m.clash(["install", "--agent", agent, "--yes"]).succeeds();
        add_member(&m, file, "mcpServers");
        let before = read(&m, file);
        m.clash(["install", "--agent", agent, "--yes"]).succeeds();
        assert_eq!(read(&m, file), before, "{agent}");
        m.clash(["uninstall", "--agent", agent]).succeeds();
        let left: Value = serde_json::from_str(&read(&m, file)).unwrap();
        assert!(left["mcpServers"].is_object() && left["hooks"].is_null(), "{agent}: {left}");
        assert!(backups(&m).iter().any(|text| text.contains("mcpServers")), "{agent}");
    }
}
