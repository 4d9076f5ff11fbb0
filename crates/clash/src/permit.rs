//! Permits: the user allows the next attempt of one command (`clash allow --once`).
//!
//! A permit is a file in the session's directory, which no room can reach. The hook that
//! decides the command removes it.

use std::fs;
use std::io;

use serde::{Deserialize, Serialize};

use crate::approval::random_name;
use crate::dirs::write_private;
use crate::rights::ExtraRight;
use crate::session::Session;

const DIR: &str = "permits";

/// The next run of one script may happen, with further rights.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OncePermit {
    pub(crate) script: String,
    pub(crate) rights: Vec<ExtraRight>,
}

impl OncePermit {
    pub(crate) fn leave(&self, session: &Session) -> io::Result<()> {
        let text = serde_json::to_vec(self)?;
        write_private(&session.dir.join(DIR).join(random_name()?), &text)
    }

    /// Removes and returns a permit for this script: the same text, or the same after secrets
    /// are hidden, because the trace has only that form. `None` if there is no such permit or
    /// its file cannot be removed.
    pub(crate) fn take(session: &Session, script: &str) -> Option<Self> {
        for entry in fs::read_dir(session.dir.join(DIR)).ok()?.flatten() {
            let permit: Option<Self> =
                fs::read(entry.path()).ok().and_then(|text| serde_json::from_slice(&text).ok());
            // The trace has the script without secrets.
            let hidden = clash_history::hide_secrets(script);
            let is_for =
                |permit: &Self| permit.script == script || Some(&permit.script) == hidden.as_ref();
            if let Some(permit) = permit.filter(is_for)
                && fs::remove_file(entry.path()).is_ok()
            {
                return Some(permit);
            }
        }
        None
    }
}
