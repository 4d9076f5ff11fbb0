//! `clash statusline`: one line about a session, for agents that show one.

use std::io::Read;

use serde_json::Value;

use super::unless_closed;
use crate::dirs::Dirs;
use crate::questions;
use crate::remedy::Remedy;
use crate::session::{name_of, sessions_dir};
use crate::story::StoryJoiner;
use crate::ui::{CommandOutput, Failure};
use crate::{env, rooms, say, trace};

/// Print one line about a session, for the status line of an agent
///
/// Reads the message of the agent from standard input and takes its `session_id`. The line
/// has only what clash's own files say: the last sandbox, the last block, waiting questions
/// and rooms in the background. It reads the end of one trace, however long the trace is.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The session, if standard input does not name it
    #[arg(long, value_name = "ID")]
    session: Option<String>,
}

/// An agent's message is shorter.
const MAX_MESSAGE_BYTES: u64 = 64 * 1024;
/// The longest text about a block.
const MAX_BLOCK_CHARS: usize = 60;

impl Args {
    pub(crate) fn run(self, out: &mut CommandOutput) -> Result<u8, Failure> {
        let dirs = Dirs::from_env()?;
        let session = match self.session {
            Some(session) => Some(session),
            None => session_of_message()?.or_else(env::client_session),
        };
        unless_closed(out.line(line(&dirs, session.as_deref())))
    }
}

fn session_of_message() -> Result<Option<String>, Failure> {
    let mut text = String::new();
    std::io::stdin().take(MAX_MESSAGE_BYTES).read_to_string(&mut text)?;
    let message: Value = serde_json::from_str(&text).unwrap_or_default();
    Ok(message.get("session_id").and_then(Value::as_str).map(str::to_owned))
}

/// The line. It never says that a session is confined: only an action that ran shows that.
fn line(dirs: &Dirs, session: Option<&str>) -> String {
    let Some(name) = session.map(name_of) else {
        return "clash: this session is not known".to_owned();
    };
    let records = trace::read_end(&sessions_dir(dirs).join(&name)).unwrap_or_default();
    let mut joiner = StoryJoiner::default();
    for record in records {
        joiner.add(record);
    }
    let mut parts = Vec::new();
    let last = joiner.stories().rev().find(|story| !story.sandbox.is_empty());
    parts.push(match last {
        Some(story) => format!("last sandbox {}", say::one_line(&story.sandbox)),
        None => "no command in a sandbox yet".to_owned(),
    });
    if let Some(story) = joiner.stories().rev().find(|story| story.is_blocked()) {
        let what = story.blocked_line().unwrap_or_else(|| format!("denied: {}", story.what));
        let what: String = say::one_line(&what).chars().take(MAX_BLOCK_CHARS).collect();
        parts.push(format!("{what} ({})", Remedy::AllowLast));
    }
    let is_own = |waiting: &&questions::WaitingQuestion| waiting.session.as_ref() == Some(&name);
    let waiting = questions::waiting(dirs).unwrap_or_default().iter().filter(is_own).count();
    if waiting > 0 {
        parts.push(format!("{waiting} waiting ({})", Remedy::Watch));
    }
    let running = rooms::list(dirs);
    let running = running.iter().filter(|room| room.record.session.as_ref() == Some(&name));
    let running = running.count();
    if running > 0 {
        parts.push(format!("{running} in the background ({})", Remedy::Ps));
    }
    format!("clash: {}", parts.join(", "))
}
