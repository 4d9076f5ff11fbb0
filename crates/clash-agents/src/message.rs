//! Messages between a client and clash's hook, in words that fit every client.

use serde_json::{Map, Value};

/// The reason for which a client calls its hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HookEvent {
    BeforeTool,
    /// The client is about to ask the user itself.
    Question,
    AfterTool,
    AfterFailure,
    SessionStart,
    SessionEnd,
    /// A settings file changed while the session runs.
    SettingsChange,
}

/// A client that tells the exit status does so in the last lines of the output.
const MAX_STATUS_LINES: usize = 8;

/// One message of a client. A field that the event does not have is empty.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HookMessage {
    pub session: String,
    pub cwd: String,
    /// The permission mode, as the client calls it.
    pub mode: String,
    /// The tool, as the client calls it.
    pub tool: String,
    pub input: Map<String, Value>,
    /// The client's id of the tool call. Empty if the client gives none.
    pub call: String,
    /// The text that an ended tool call returned.
    pub output: String,
    /// The text of the file that a tool call has read, if the client sends it.
    pub content: Option<String>,
    pub error: Option<String>,
    pub duration_ms: Option<u64>,
    /// The kind of settings that changed.
    pub source: String,
    /// True if the client may send the end of the call before its command has started.
    pub runs_in_background: bool,
}

impl HookMessage {
    /// The command the tool runs, under the field name that most clients use.
    pub fn command(&self) -> Option<&str> {
        ["command", "cmd"].iter().find_map(|key| self.input.get(*key)?.as_str())
    }

    /// The exit status of an ended command, if the client puts it into words, for example
    /// `Exit code 1` at the beginning of an error or `Exit Code: 1` on a line of the output.
    pub fn exit_status(&self) -> Option<i32> {
        let status = |line: &str| {
            let lower = line.trim_start().to_ascii_lowercase();
            let rest = lower.strip_prefix("exit code")?;
            let digits = rest.trim_start_matches([':', ' ']);
            let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
            digits.get(..end)?.parse().ok()
        };
        let of_error = self.error.as_deref().and_then(|error| error.lines().find_map(status));
        of_error.or_else(|| self.output.lines().rev().take(MAX_STATUS_LINES).find_map(status))
    }

    /// True if the tool, or a field of its input, starts a command in the background.
    pub(crate) fn starts_background_command(&self) -> bool {
        self.tool == "Monitor" || self.input.get("run_in_background") == Some(&Value::Bool(true))
    }
}

/// Why bytes are not a message of the client.
#[derive(Debug, thiserror::Error)]
pub enum MessageError {
    #[error("the message is not valid JSON of a hook: {0}")]
    Json(#[from] serde_json::Error),
    #[error("`{0}` is not an event clash knows")]
    UnknownEvent(String),
    #[error("the message has no `{0}`")]
    Missing(&'static str),
}

impl MessageError {
    /// An error for an event name that the adapter does not list. The name is cut and
    /// escaped, so it is safe to print.
    pub(crate) fn unknown_event(name: &str) -> Self {
        const MAX_CHARS: usize = 120;
        Self::UnknownEvent(name.chars().take(MAX_CHARS).flat_map(char::escape_default).collect())
    }
}

/// A message and its event.
pub type ParsedMessage = Result<(HookEvent, HookMessage), MessageError>;

/// A command that a client would send to its hook, for a trial of the installation.
#[derive(Clone, Copy, Debug)]
pub struct SampleCall<'a> {
    pub session: &'a str,
    pub cwd: &'a str,
    pub script: &'a str,
}

/// clash's answer, before the adapter puts it into the words of the client.
#[derive(Clone, Debug, PartialEq)]
pub enum HookAnswer {
    Allow {
        reason: String,
        updated_input: Option<Map<String, Value>>,
    },
    Ask {
        reason: String,
        updated_input: Option<Map<String, Value>>,
    },
    Deny {
        reason: String,
    },
    /// No answer: the client goes on as if there were no hook.
    Silent,
    /// A text for the model, which changes nothing.
    Context(String),
    /// A text for the user and the model, which changes nothing.
    Note(String),
}

/// The output of a hook: at most one document on standard output.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HookReply {
    pub document: Option<Value>,
    /// With a reason the exit status is 2, and the client blocks the call.
    pub blocks: Option<String>,
}

impl HookReply {
    /// No output and exit status 0.
    pub fn silent() -> Self {
        Self::default()
    }

    pub fn document(document: Value) -> Self {
        Self { document: Some(document), blocks: None }
    }

    /// Exit status 2, the reason on standard error and nothing on standard output.
    /// Nearly every client honours this refusal in every mode.
    pub fn blocked(reason: String) -> Self {
        Self { document: None, blocks: Some(reason) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exit_status_is_found_in_the_words_of_a_client() {
        let told = |error: Option<&str>, output: &str| {
            let (error, output) = (error.map(str::to_owned), output.to_owned());
            HookMessage { error, output, ..HookMessage::default() }.exit_status()
        };
        assert_eq!(told(Some("Exit code 2\nmake: *** [x] Error 1"), ""), Some(2));
        assert_eq!(told(None, "Output: x\nExit Code: 17\nSignal: (none)"), Some(17));
        assert_eq!(told(None, "the exit code was 3"), None);
        assert_eq!(told(Some("cancelled"), ""), None);
    }
}
