//! Joins calls with their results, which agents write as separate records. Few calls wait
//! at a time. In a broken history more would wait; then the oldest goes on without a
//! result.

use std::collections::VecDeque;
use std::ops::ControlFlow;

use serde_json::{Map, Value};

use crate::{CallOutcome, CallSink, SeenCall};

const MAX_WAITING_CALLS: usize = 256;

/// The calls of a history whose results have not come yet.
#[derive(Debug, Default)]
pub(crate) struct WaitingCalls {
    calls: VecDeque<SeenCall>,
}

impl WaitingCalls {
    /// Adds a call. Of several with the same id, the last counts. The oldest goes on
    /// without a result if too many wait.
    pub(crate) fn call(&mut self, seen: SeenCall, each: &mut CallSink<'_>) -> ControlFlow<()> {
        // A message may be written several times as it grows.
        self.calls.retain(|known| known.call.id != seen.call.id);
        self.calls.push_back(seen);
        if self.calls.len() > MAX_WAITING_CALLS
            && let Some(seen) = self.calls.pop_front()
        {
            return each(seen);
        }
        ControlFlow::Continue(())
    }

    /// Passes on the call with this id. A result without a call is dropped.
    pub(crate) fn result(
        &mut self,
        id: &str,
        outcome: CallOutcome,
        each: &mut CallSink<'_>,
    ) -> ControlFlow<()> {
        let at = self.calls.iter().position(|known| known.call.id == id);
        match at.and_then(|at| self.calls.remove(at)) {
            Some(seen) => each(SeenCall { outcome, ..seen }),
            None => ControlFlow::Continue(()),
        }
    }

    /// True if an equal call already waits.
    pub(crate) fn has(&self, tool: &str, input: &Map<String, Value>) -> bool {
        self.calls.iter().any(|seen| seen.tool == tool && seen.input == *input)
    }

    /// Passes on the calls that have no result.
    pub(crate) fn end(self, each: &mut CallSink<'_>) -> ControlFlow<()> {
        self.calls.into_iter().try_for_each(each)
    }
}

/// A tool's input without the texts to write, and without other texts over 4 KiB except a
/// command: no rule depends on them.
pub(crate) fn without_texts(mut input: Map<String, Value>) -> Map<String, Value> {
    const MAX_KEPT_TEXT_BYTES: usize = 4096;
    input.retain(|name, value| {
        name == "command"
            || !matches!(value, Value::String(text) if text.len() > MAX_KEPT_TEXT_BYTES)
    });
    for text in ["content", "new_string", "old_string", "new_source", "edits"] {
        input.remove(text);
    }
    input
}
