//! The calls that every client must pass, each with its check.

use std::fs;

use serde_json::Value;

use super::broken_hook::FAILURES;
use super::model::{AS_TOLD, ToolResult};
use super::{Client, SUBTASK, Shows, WHERE_AM_I, look, saw_nothing, wait};
use crate::support::Machine;

/// One call of the session, the abilities that it shows, and the check of its result.
pub(crate) struct ClientStep {
    pub(crate) shows: &'static [Shows],
    pub(crate) call: Value,
    pub(crate) check: ResultCheck,
}

type ResultCheck = fn(&Machine, &ToolResult);

/// The calls that every client must pass.
pub(crate) fn steps(client: &Client, m: &Machine) -> Vec<ClientStep> {
    let mut steps = file_steps(client, m);
    if client.has_servers() {
        steps.extend(server_steps(client));
    }
    steps.extend(command_steps(client));
    steps.extend(other_tool_steps(client));
    steps.extend(broken_hook_steps(client));
    steps
}

/// A denied removal, and writes outside, to steering files and in the project.
fn file_steps(client: &Client, m: &Machine) -> Vec<ClientStep> {
    vec![
        ClientStep {
            shows: &[Shows::Deny],
            call: (client.shell)("rm keep.txt"),
            check: |m, result| {
                result.refused("nothing is deleted here").refused("policy.star:7");
                assert!(m.project().join("keep.txt").exists());
            },
        },
        ClientStep {
            shows: &[Shows::Edit],
            call: (client.write)(&m.outside().join("x"), "x"),
            check: |m, result| {
                result.refused("does not grant");
                assert!(!m.outside().join("x").exists());
            },
        },
        ClientStep {
            shows: &[Shows::Edit],
            call: (client.write)(&m.project().join(".claude/settings.json"), "{}"),
            check: |m, result| {
                result.refused("steers the agent or clash itself");
                assert!(!m.project().join(".claude").exists());
            },
        },
        ClientStep {
            shows: &[Shows::Edit],
            call: (client.write)(&m.project().join("written.txt"), "written"),
            check: |m, result| {
                let text = fs::read_to_string(m.project().join("written.txt"));
                assert_eq!(text.unwrap_or_default().trim_end(), "written", "{result:?}");
            },
        },
    ]
}

/// An allowed and a denied call of a server's tool.
fn server_steps(client: &Client) -> Vec<ClientStep> {
    vec![
        ClientStep {
            shows: &[Shows::Mcp],
            call: (client.shout)("abc"),
            check: |_, result| {
                result.says("ABC");
            },
        },
        ClientStep {
            shows: &[Shows::Mcp],
            call: (client.shout)("xyz"),
            check: |m, result| {
                result.refused("not that word");
                assert_eq!(fs::read_to_string(m.project().join("shouted")).unwrap(), "abc\n");
            },
        },
    ]
}

/// A confined command, one with output and status, and one that asks.
fn command_steps(client: &Client) -> Vec<ClientStep> {
    let mut steps = Vec::new();
    let commands: [(&'static [Shows], &str, ResultCheck); 3] = [
        (&[Shows::Allow, Shows::Rewrite], WHERE_AM_I, |m, result| {
            result.was_sandboxed();
            assert_eq!(fs::read_to_string(m.project().join("made.txt")).unwrap(), "made\n");
        }),
        (
            &[Shows::Rewrite],
            "printf 'a  \"b\"\\n  $c\\n'; exit 7",
            if client.tells_status() { output_and_status } else { output },
        ),
        (&[Shows::Ask], "touch asked.txt", |m, result| {
            result.refused("needs your approval");
            assert!(!m.project().join("asked.txt").exists());
        }),
    ];
    for (shows, script, check) in commands {
        let call = (client.shell)(script);
        if client.instructed {
            // The bare command never runs.
            let told: ResultCheck = |m, result| {
                result.refused("with exactly this command: ");
                assert!(!m.project().join("asked.txt").exists());
            };
            steps.push(ClientStep { shows: &[], call, check: told });
            steps.push(ClientStep { shows, call: (client.shell)(AS_TOLD), check });
        } else {
            steps.push(ClientStep { shows, call, check });
        }
    }
    steps
}

/// Web tools, subagents and commands in the background.
fn other_tool_steps(client: &Client) -> Vec<ClientStep> {
    let mut steps = Vec::new();
    if let Some(fetch) = client.fetch {
        steps.push(ClientStep {
            shows: &[Shows::Web],
            call: fetch("http://evil.test/x"),
            check: |_, result| {
                result.refused("not that host");
            },
        });
    }
    if let Some(delegate) = client.delegate {
        steps.push(ClientStep {
            shows: &[Shows::Subagent],
            call: delegate(SUBTASK),
            check: |m, _| saw_nothing(m, "sub"),
        });
    }
    if let Some(background) = client.background {
        let mut call = background(&look("behind"));
        let saw: ResultCheck = |m, _| saw_nothing(m, "behind");
        if client.instructed {
            steps.push(ClientStep { shows: &[], call, check: |_, _| () });
            call = background(AS_TOLD);
        }
        steps.push(ClientStep { shows: &[], call, check: |_, _| () });
        let waits = client.scripted(&wait("behind"));
        steps.extend(waits.into_iter().map(|call| ClientStep {
            shows: &[Shows::Background],
            call,
            check: saw,
        }));
    }
    steps
}

/// Each way in which the hook fails: the command must not run.
fn broken_hook_steps(client: &Client) -> Vec<ClientStep> {
    let step = |how: &str| ClientStep {
        shows: &[Shows::FailClosed],
        call: (client.shell)(&format!("echo mode-{how} > broken")),
        check: |m, result| {
            // Copilot says `Denied`.
            let refused = ["blocked", "Denied"].iter().any(|said| result.text.contains(said));
            assert!(refused && !m.project().join("broken").exists(), "{result:?}");
        },
    };
    FAILURES.map(step).into()
}

fn output(_: &Machine, result: &ToolResult) {
    result.says("a  \"b\"\n  $c");
}

fn output_and_status(_: &Machine, result: &ToolResult) {
    result.says("a  \"b\"\n  $c").says("7");
}
