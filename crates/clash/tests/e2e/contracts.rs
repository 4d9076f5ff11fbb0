//! Amazon Q, Kiro and Cursor by their documentation, because the test machine cannot
//! install them. The tests send documented messages through the command line that clash
//! installs, and expect the answers that these clients are documented to obey.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::client::{POLICY, SECRET, WHERE_AM_I, out_of_reach};
use crate::support::{Machine, Ran, Who, feed, program};

struct Contract {
    agent: &'static str,
    /// The file of the installation, and the JSON pointer to the command line in it.
    file: &'static str,
    line: &'static str,
    shell: fn(&Machine, &str) -> Value,
    write: fn(&Machine, &Path) -> Value,
    shout: fn(&Machine, &str) -> Value,
}

/// A message of Amazon Q or Kiro.
fn q(m: &Machine, tool: &str, input: Value) -> Value {
    json!({"hook_event_name": "preToolUse", "cwd": m.project(), "tool_name": tool, "tool_input": input})
}

/// A message of Cursor.
fn cursor(m: &Machine, event: &str, more: Value) -> Value {
    let mut message = json!({
        "hook_event_name": event, "conversation_id": "conv-1", "generation_id": "gen-1",
        "workspace_roots": [m.project()],
    });
    for (key, value) in more.as_object().unwrap() {
        message[key] = value.clone();
    }
    message
}

const CONTRACTS: [Contract; 3] = [
    Contract {
        agent: "q",
        file: ".aws/amazonq/cli-agents/clash.json",
        line: "/hooks/preToolUse/0/command",
        shell: |m, script| q(m, "execute_bash", json!({"command": script})),
        write: |m, path| {
            q(m, "fs_write", json!({"command": "create", "path": path, "file_text": ""}))
        },
        shout: |m, text| q(m, "@lab/shout", json!({"text": text})),
    },
    Contract {
        agent: "kiro",
        file: ".kiro/agents/clash.json",
        line: "/hooks/preToolUse/0/command",
        shell: |m, script| q(m, "shell", json!({"command": script})),
        write: |m, path| q(m, "write", json!({"command": "create", "path": path, "file_text": ""})),
        shout: |m, text| q(m, "@lab/shout", json!({"text": text})),
    },
    Contract {
        agent: "cursor",
        file: ".cursor/hooks.json",
        line: "/hooks/beforeShellExecution/0/command",
        shell: |m, script| {
            cursor(m, "beforeShellExecution", json!({"command": script, "cwd": m.project()}))
        },
        write: |m, path| {
            let input = json!({"file_path": path, "content": ""});
            cursor(m, "preToolUse", json!({"tool_name": "Write", "tool_input": input}))
        },
        shout: |m, text| {
            let input = json!({"text": text}).to_string();
            cursor(m, "beforeMCPExecution", json!({"tool_name": "shout", "tool_input": input}))
        },
    },
];

impl Contract {
    /// A machine with a key and clash installed for the agent.
    fn installed(&self) -> Machine {
        let m =
            Machine::new(Who::Me).policy(&POLICY.replace(
                "\"mcp__lab__shout\": {",
                "(\"mcp__lab__shout\", \"mcp__cursor__shout\"): {",
            ));
        m.write(".ssh/id_ed25519", SECRET);
        m.clash(["install", "--agent", self.agent, "--yes"]).succeeds();
        m
    }

    /// The refusal that the client reads; `None` if the tool may run.
    fn refusal(&self, m: &Machine, message: &Value) -> Option<String> {
        let text = fs::read_to_string(m.home().join(self.file)).unwrap();
        let settings: Value = serde_json::from_str(&text).unwrap();
        let line = settings.pointer(self.line).unwrap().as_str().unwrap();
        let mut command = m.command("/bin/sh");
        command.args(["-c", line]);
        let child = feed(command, message.to_string().as_bytes());
        let ran = Ran::from(child.wait_with_output().unwrap());
        if ran.code == Some(2) {
            assert!(ran.stdout.is_empty() && !ran.stderr.is_empty(), "{ran:?}");
            return Some(ran.stderr);
        }
        assert_eq!(ran.code, Some(0), "{ran:?}");
        if self.agent != "cursor" {
            assert_eq!(ran.stdout, "", "{ran:?}");
            return None;
        }
        let answer: Value = serde_json::from_str(&ran.stdout).unwrap();
        match answer["permission"].as_str().unwrap() {
            "allow" => None,
            "deny" => Some(answer["agent_message"].as_str().unwrap().to_owned()),
            other => panic!("{other}"),
        }
    }

    /// Checks that the client refuses, and returns the text that the model reads.
    #[track_caller]
    fn refuses(&self, m: &Machine, message: &Value, reason: &str) -> String {
        let said = self.refusal(m, message);
        let said = said.unwrap_or_else(|| panic!("{} lets it run", self.agent));
        assert!(said.contains(reason), "{}: {said}", self.agent);
        said
    }
}

#[test]
fn a_bare_command_is_refused_with_the_line_to_run() {
    for contract in &CONTRACTS {
        let m = contract.installed();
        let told =
            contract.refuses(&m, &(contract.shell)(&m, WHERE_AM_I), "exactly this command: ");
        let (_, line) = told.split_once("exactly this command: ").unwrap();
        let line = line.lines().next().unwrap();
        assert_eq!(contract.refusal(&m, &(contract.shell)(&m, line)), None);
        let ran = Ran::of(m.command("bash").args(["-c", line])).succeeds();
        assert!(out_of_reach(&format!("{}{}", ran.stdout, ran.stderr)), "{ran:?}");
        assert!(ran.stdout.contains("NoNewPrivs:\t1") && m.project().join("made.txt").exists());
        // The approval is valid once.
        Ran::of(m.command("bash").args(["-c", line])).exits(126);
        let forged = line.replace("echo made", "echo forged");
        contract.refuses(&m, &(contract.shell)(&m, &forged), "calls clash itself");
    }
}

#[test]
fn refused_actions_come_with_the_reason() {
    for contract in &CONTRACTS {
        let m = contract.installed();
        let (shell, write, shout) = (contract.shell, contract.write, contract.shout);
        contract.refuses(&m, &shell(&m, "rm x"), "nothing is deleted here");
        contract.refuses(&m, &shell(&m, "touch x"), "cannot ask here");
        contract.refuses(&m, &write(&m, &m.outside().join("x")), "does not grant");
        contract.refuses(&m, &write(&m, &m.home().join(contract.file)), "steers the agent");
        contract.refuses(&m, &shout(&m, "xyz"), "not that word");
        assert_eq!(contract.refusal(&m, &write(&m, &m.project().join("x"))), None);
        assert_eq!(contract.refusal(&m, &shout(&m, "abc")), None);
        contract.refuses(&m, &json!({"hook_event_name": "brandNew"}), "blocked");
    }
}

#[test]
fn a_broken_hook_blocks_by_its_exit_status() {
    for contract in &CONTRACTS {
        let m = contract.installed();
        let own = m.state().join("bin/clash");
        for broken in ["exit 1", "kill -SEGV $$", "echo junk", "echo '{}'"] {
            program(&own, &format!("#!/bin/sh\n{broken}\n"));
            contract.refuses(&m, &(contract.shell)(&m, "true"), "blocked");
        }
        fs::remove_file(&own).unwrap();
        contract.refuses(&m, &(contract.shell)(&m, "true"), "blocked");
    }
}

/// A second installation changes nothing, and `uninstall` removes everything.
#[test]
fn an_installation_can_be_repeated_and_taken_back() {
    let own = "{\n  // mine\n  \"theme\": \"dark\"\n}\n";
    for agent in ["opencode", "kilo", "copilot", "cline", "pi", "q", "kiro", "cursor"] {
        let m = Machine::new(Who::Me).policy(POLICY);
        let settings = match agent {
            "opencode" | "kilo" => Some(m.write(format!(".config/{agent}/{agent}.jsonc"), own)),
            "kiro" => Some(m.write(".kiro/settings/cli.json", "{\"a\": 1}")),
            _ => None,
        };
        let before = settings.as_ref().map(|file| fs::read_to_string(file).unwrap());
        m.clash(["install", "--agent", agent, "--yes"]).succeeds().says("clash now decides");
        m.clash(["install", "--agent", agent, "--yes"]).succeeds().says("already");
        let doctor = m.clash(["doctor"]);
        assert!(doctor.stdout.contains("the installed hook answers"), "{agent}: {doctor:?}");
        m.clash(["uninstall", "--agent", agent]).succeeds().says("clash is out of");
        let after = settings.as_ref().map(|file| fs::read_to_string(file).unwrap());
        assert_eq!(before, after, "{agent}");
        let left =
            Ran::of(m.command("find").arg(m.home()).args(["-name", "*clash*", "-type", "f"]));
        assert!(
            !left.stdout.lines().any(|path| !path.contains("/state/clash")),
            "{agent}: {left:?}"
        );
    }
}

/// The user's hooks stay beside clash's. The user's shell comes back with `uninstall`.
#[test]
fn the_users_own_settings_stay_or_come_back() {
    let hooks = "{\n  \"version\": 1,\n  \"hooks\": {\n    \"stop\": [{\"command\": \"./own.sh\"}]\n  }\n}\n";
    for (agent, file, text) in [
        ("cursor", ".cursor/hooks.json", hooks),
        ("opencode", ".config/opencode/opencode.json", "{\"shell\": \"/bin/zsh\", \"a\": 1}"),
    ] {
        let m = Machine::new(Who::Me).policy(POLICY);
        let file = m.write(file, text);
        m.clash(["install", "--agent", agent, "--yes"]).succeeds();
        let installed = fs::read_to_string(&file).unwrap();
        assert!(installed.contains("own.sh") || installed.contains("/bin/zsh"), "{installed}");
        assert!(installed.contains("/clash"), "{installed}");
        m.clash(["install", "--agent", agent, "--yes"]).succeeds().says("already");
        m.clash(["uninstall", "--agent", agent]).succeeds();
        assert_eq!(fs::read_to_string(&file).unwrap(), text);
    }
}

/// Clash refuses to replace a setting that it could not restore.
#[test]
fn settings_of_other_programs_are_left_alone() {
    let m = Machine::new(Who::Me).policy(POLICY);
    let own = "{\"chat.defaultAgent\": \"mine\"}";
    let settings = m.write(".kiro/settings/cli.json", own);
    m.clash(["install", "--agent", "kiro"]).exits(1).says("is already there");
    assert_eq!(fs::read_to_string(settings).unwrap(), own);
    assert!(!m.home().join(".kiro/agents/clash.json").exists());
}

/// The real client obeys these files in a trusted folder.
#[test]
fn copilot_does_nothing_where_a_project_disables_hooks() {
    for file in ["app/.github/copilot/settings.json", "app/.claude/settings.json"] {
        let m = Machine::new(Who::Me).policy(POLICY);
        let message = json!({
            "sessionId": "s1", "timestamp": 1, "cwd": m.project(), "toolName": "bash",
            "toolArgs": {"command": "true"},
        });
        let hook = || {
            let mut command = m.command(crate::support::clash());
            command.args(["hook", "copilot"]);
            Ran::from(feed(command, message.to_string().as_bytes()).wait_with_output().unwrap())
        };
        assert!(hook().succeeds().stdout.contains(r#""permissionDecision":"allow""#));
        for text in [r#"{"disableAllHooks": true}"#, r#"{"disable\u0041llHooks": true}"#] {
            m.write(file, text);
            let said = hook().succeeds().says("may switch every hook off");
            assert!(said.stdout.contains(r#""permissionDecision":"deny""#));
        }
    }
}
