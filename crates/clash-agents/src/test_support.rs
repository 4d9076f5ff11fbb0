//! Helpers for the tests of the adapters.

use std::path::PathBuf;

use clash_policy::ToolInput;

use crate::{Agent, CallContext, ToolError, UserContext};

/// A user with this home and without environment variables.
pub(crate) fn imagined_user(home: impl Into<PathBuf>) -> UserContext {
    let home = home.into();
    UserContext {
        tmp: "/tmp".into(),
        state: home.join(".local/state/clash"),
        machine_state: "/nowhere".into(),
        user_id: 1,
        variable: |_| None,
        home,
    }
}

/// The tool use of a message in one line, in the directory `/work/app`.
pub(crate) fn tool_use(agent: &Agent, message: &str) -> Result<String, ToolError> {
    let (_, message) = (agent.parse)(message.as_bytes()).unwrap();
    (agent.call)(&message, &CallContext::imagined("/work/app")).map(shown)
}

/// The tool uses of messages, a line each.
pub(crate) fn tool_uses(agent: &Agent, messages: &str) -> Vec<String> {
    messages.lines().map(|line| tool_use(agent, line).unwrap()).collect()
}

/// Checks that the start of a message is never a message.
pub(crate) fn no_part_is_a_message(agent: &Agent, message: &str) {
    for end in 0..message.len() {
        let start = message.as_bytes().get(..end).unwrap_or_default();
        assert!((agent.parse)(start).is_err(), "the first {end} bytes of {message}");
    }
}

/// A tool use in one line.
pub(crate) fn shown(tool_use: Option<(String, ToolInput)>) -> String {
    match tool_use {
        Some((name, ToolInput::Script(script))) => format!("{name} {script}"),
        Some((name, ToolInput::Files(files))) => {
            let seen = files.iter().map(|f| format!(" {} {}", f.path.display(), f.needs));
            format!("{name}{}", seen.collect::<String>())
        }
        Some((name, ToolInput::Hosts(hosts))) => format!("{name} {}", hosts[0].host),
        Some((name, ToolInput::Fields(_))) => name,
        None => "nothing".to_owned(),
    }
}
