//! Every adapter by its contract: messages as the real clients sent them, and the
//! answers these were seen to honour.

use serde_json::{Value, json};

use crate::client::{POLICY, SECRET};
use crate::support::{Machine, Ran, Who, clash, feed};

/// How the messages of an agent look.
struct Contract {
    agent: &'static str,
    before: &'static str,
    after: &'static str,
    shell: &'static str,
    /// A file that comes with a project and switches hooks off.
    off: (&'static str, &'static str),
}

const CODEX: Contract = Contract {
    agent: "codex",
    before: "PreToolUse",
    after: "PostToolUse",
    shell: "Bash",
    off: (".codex/config.toml", "[features]\nhooks = false\n"),
};

const CONTRACTS: [Contract; 4] = [
    CODEX,
    Contract {
        agent: "gemini",
        before: "BeforeTool",
        after: "AfterTool",
        shell: "run_shell_command",
        off: (".gemini/settings.json", "{\"hooksConfig\": {\"disabled\": [\"clash\"]} /* x */}"),
    },
    Contract {
        agent: "qwen",
        before: "PreToolUse",
        after: "PostToolUse",
        shell: "run_shell_command",
        off: (".qwen/settings.json", "{\"disableAllHooks\": true}"),
    },
    Contract {
        agent: "droid",
        before: "PreToolUse",
        after: "PostToolUse",
        shell: "Execute",
        off: (".factory/settings.json", "{\"hooksDisabled\": true}"),
    },
];

/// Runs the hook of an agent with this message.
fn hook(m: &Machine, agent: &str, message: &Value) -> Ran {
    let mut command = m.command(clash());
    command.args(["hook", agent]);
    Ran::from(feed(command, message.to_string().as_bytes()).wait_with_output().unwrap())
}

/// A message that all these agents send.
fn message(m: &Machine, event: &str, tool: &str, input: Value) -> Value {
    json!({
        "session_id": "test-session", "transcript_path": "/dev/null", "cwd": m.project(),
        "hook_event_name": event, "tool_name": tool, "tool_input": input,
    })
}

impl Contract {
    fn before(&self, m: &Machine, tool: &str, input: Value) -> Ran {
        hook(m, self.agent, &message(m, self.before, tool, input))
    }

    fn bash(&self, m: &Machine, script: &str) -> Ran {
        self.before(m, self.shell, json!({"command": script}))
    }

    /// The command the client is told to run instead, or the model.
    fn wrapped(&self, m: &Machine, script: &str) -> String {
        let ran = self.bash(m, script);
        if self.agent == "qwen" {
            let ran = ran.exits(2);
            let (_, line) = ran.stderr.split_once("with exactly this command: ").unwrap();
            return line.trim_end().to_owned();
        }
        let value: Value = serde_json::from_str(&ran.succeeds().stdout).unwrap();
        let output = &value["hookSpecificOutput"];
        let input = output.get("updatedInput").or(output.get("tool_input")).unwrap();
        input["command"].as_str().unwrap().to_owned()
    }

    /// The hook's answer after a call with this output.
    fn after(&self, m: &Machine, command: &str, output: &str) -> String {
        let mut message = message(m, self.after, self.shell, json!({"command": command}));
        message["tool_response"] = output.into();
        hook(m, self.agent, &message).succeeds().stdout
    }
}

/// A machine with the policy and a key.
fn machine() -> Machine {
    let m = Machine::new(Who::Me).policy(POLICY);
    m.write(".ssh/id_ed25519", SECRET);
    m
}

#[test]
fn a_refusal_is_exit_status_two_with_a_reason_and_nothing_else() {
    for contract in CONTRACTS {
        let ran = contract.bash(&machine(), "rm x").exits(2).says("nothing is deleted here");
        assert_eq!(ran.stdout, "", "{}", contract.agent);
        let junk = contract.before(&machine(), contract.shell, json!({"command": 7})).exits(2);
        assert!(junk.stdout.is_empty() && !junk.stderr.is_empty(), "{junk:?}");
    }
}

#[test]
fn an_agent_that_cannot_ask_gets_a_refusal_and_a_next_step() {
    for contract in CONTRACTS.iter().filter(|contract| contract.agent != "qwen") {
        contract
            .bash(&machine(), "touch x")
            .exits(2)
            .says("needs your approval")
            .says("cannot ask here")
            .says("the user allows it with: clash policy allow");
    }
}

#[test]
fn a_wrapped_command_runs_once_and_is_recognised() {
    for contract in CONTRACTS {
        let m = machine();
        let line = contract.wrapped(&m, "echo it\\'s > made.txt; cat ~/.ssh/id_ed25519; exit 7");
        let ran = Ran::of(m.command("bash").args(["-c", &line])).exits(7);
        assert!(!ran.stdout.contains(SECRET));
        let made = std::fs::read_to_string(m.project().join("made.txt")).unwrap();
        assert_eq!(made, "it's\n");
        Ran::of(m.command("bash").args(["-c", &line]))
            .exits(126)
            .says("has no decision with the id");
        assert_eq!(contract.after(&m, &line, ""), "", "{}", contract.agent);
    }
}

#[test]
fn a_command_replaced_by_another_hook_raises_an_alarm() {
    for contract in CONTRACTS {
        let m = machine();
        let line = contract.wrapped(&m, "echo x");
        let alarm = "did not run in its sandbox";
        assert!(contract.after(&m, "echo HIJACK", "").contains(alarm), "{}", contract.agent);
        assert!(contract.after(&m, &line, "").contains(alarm), "it never started");
        assert_eq!(m.trace().iter().filter(|record| record["event"] == "alarm").count(), 2);
    }
}

#[test]
fn a_model_that_calls_the_launcher_itself_is_refused() {
    for contract in CONTRACTS {
        let m = machine();
        let line = contract.wrapped(&m, "echo x");
        let other = line.replace("echo x", "echo y");
        contract.bash(&m, &other).exits(2).says("calls clash itself");
        contract.bash(&m, &format!("true; {line}")).exits(2).says("calls clash itself");
        if contract.agent != "qwen" {
            contract.bash(&m, &line).exits(2).says("calls clash itself");
        }
    }
}

#[test]
fn a_project_against_hooks_stops_everything() {
    for contract in CONTRACTS {
        let m = machine();
        let (file, text) = contract.off;
        m.write(format!("app/{file}"), text);
        contract.bash(&m, "echo x").exits(2).says("switches every hook off");
        m.clash(["install", "--agent", contract.agent, "--yes"]).succeeds();
        m.clash(["doctor"]).exits(1).says("switches every hook off").says(file);
    }
}

#[test]
fn a_command_that_does_not_fit_a_word_is_refused_with_a_way_on() {
    let long = format!("echo {}", "x".repeat(110 << 10));
    for contract in CONTRACTS {
        contract.bash(&machine(), &long).exits(2).says("write it into a file and run that");
    }
}

#[test]
fn every_file_of_a_patch_is_judged() {
    let m = machine();
    let patch = |lines: &str| format!("*** Begin Patch\n{lines}\n*** End Patch");
    let inside = patch("*** Add File: a.txt\n+x\n*** Update File: b.txt\n-x\n+y");
    let tool = |text: &str| CODEX.before(&m, "apply_patch", json!({"command": text}));
    let shell = |text: &str| CODEX.bash(&m, &format!("apply_patch <<'EOF'\n{text}\nEOF"));
    let allowed = "\"permissionDecision\":\"allow\"";
    tool(&inside).succeeds().says(allowed);
    // The client does it in its own process: nothing may stand in front of it.
    let ran = shell(&inside).succeeds().says(allowed);
    assert!(!ran.stdout.contains("updatedInput"), "{ran:?}");
    for outside in [
        "*** Add File: a.txt\n+x\n*** Delete File: ../other/x",
        "*** Update File: a.txt\n*** Move to: ../other/x\n-x\n+y",
        "*** Update File: .codex/config.toml\n-x\n+y",
    ] {
        tool(&patch(outside)).exits(2);
        shell(&patch(outside)).exits(2);
    }
    tool("").exits(2);
}

#[test]
fn a_session_begins_with_its_rights() {
    let m = machine();
    let start = |agent: &str| {
        let message = message(&m, "SessionStart", "", json!({}));
        let ran = hook(&m, agent, &message).succeeds();
        let value: Value = serde_json::from_str(&ran.stdout).unwrap();
        value["hookSpecificOutput"]["additionalContext"]
            .as_str()
            .unwrap()
            .replace(m.home().to_str().unwrap(), "~")
    };
    insta::assert_snapshot!(start("codex"), @"clash confines this session: every command runs in a sandbox that the user's policy chooses and the operating system enforces; file and web tools are judged by the same policy. An action that no rule mentions is refused, because this agent cannot ask the user. Commands normally run in sandbox project: it may change only $PWD/**, $TMPDIR/**; it has no network. /tmp is a directory of this session; to edit a file in it with a file tool, use its path in ~/.local/state/clash/sessions/test-session/tmp. A refusal names its rule and the way on: another form that works, an alternative inside the rights, a request to the user, or to stop. Do not look for a way around it.");
    assert!(start("claude").contains("An action that no rule mentions needs the user's approval."));
}

#[test]
fn a_model_learns_which_path_the_sandbox_blocked() {
    for contract in CONTRACTS {
        let m = machine();
        let key = m.home().join(".ssh/id_ed25519");
        let run = |script: &str| {
            let line = contract.wrapped(&m, script);
            let ran = Ran::of(m.command("bash").args(["-c", &format!("{{ {line}; }} 2>&1")]));
            contract.after(&m, &line, &ran.stdout)
        };
        let told = run(&format!("cat {}", key.display()));
        assert!(
            told.contains("clash blocked this: sandbox project does not"),
            "{}: {told}",
            contract.agent
        );
        assert!(told.contains("does not read"), "{told}");
        assert!(told.contains("Do not try to get around it"), "{told}");
        assert_eq!(run("cat missing.txt"), "");
        assert_eq!(run("echo fine"), "");
        let strict = POLICY.replace(
            "default_sandbox = project",
            "default_sandbox = project, on_sandbox_violation = \"stop\"",
        );
        let m = m.policy(&strict);
        let line = contract.wrapped(&m, "cat x");
        Ran::of(m.command("bash").args(["-c", &line]));
        let told = contract.after(&m, &line, &format!("cat: {}: Permission denied", key.display()));
        assert!(told.contains("Stop here"), "{told}");
    }
}

/// Rules of the client's own, which would no longer see a wrapped command.
#[test]
fn rules_of_the_client_stay_in_force() {
    let rules = [
        (
            "codex",
            ".codex/rules/mine.rules",
            "prefix_rule(pattern = [\"echo\", [\"a\", \"b\"]], decision = \"forbidden\")\nprefix_rule(pattern = [\"cat\"], decision = \"prompt\")\n",
        ),
        (
            "gemini",
            ".gemini/settings.json",
            "{\"tools\": {\"exclude\": [\"run_shell_command(echo b)\", \"run_shell_command(cat)\"]} /* mine */}",
        ),
        (
            "gemini",
            ".gemini/policies/mine.toml",
            "[[rule]]\ntoolName = \"run_shell_command\"\ncommandPrefix = [\"echo b\"]\ndecision = \"deny\"\n[[rule]]\ncommandPrefix = \"cat\"\ndecision = \"ask_user\"\n",
        ),
        (
            "droid",
            ".factory/settings.json",
            "{\"commandBlocklist\": [\"echo b\"], \"commandDenylist\": [\"cat\"]}",
        ),
    ];
    for (agent, file, text) in rules {
        let contract = CONTRACTS.iter().find(|contract| contract.agent == agent).unwrap();
        let m = machine();
        contract.wrapped(&m, "echo b");
        let file = m.write(file, text);
        for refused in ["echo b c", "true; echo b", "cat x"] {
            let ran = contract.bash(&m, refused).exits(2).says("has a rule of its own");
            assert!(ran.stderr.contains(file.to_str().unwrap()), "{ran:?}");
        }
        contract.wrapped(&m, "echo c");
    }
}
