//! Calls that wait for their result. Agents write both as separate records; the
//! number of calls in flight is small unless a history is broken, and then the
//! oldest goes on without a result.

use std::collections::VecDeque;
use std::ops::ControlFlow;

use serde_json::{Map, Value};

use crate::{Each, Outcome, Seen};

const MOST: usize = 256;

#[derive(Debug, Default)]
pub(crate) struct Waiting {
    calls: VecDeque<Seen>,
}

impl Waiting {
    pub(crate) fn call(&mut self, seen: Seen, each: &mut Each<'_>) -> ControlFlow<()> {
        // A message may be written several times as it grows.
        self.calls.retain(|known| known.call.id != seen.call.id);
        self.calls.push_back(seen);
        if self.calls.len() > MOST
            && let Some(seen) = self.calls.pop_front()
        {
            return each(seen);
        }
        ControlFlow::Continue(())
    }

    pub(crate) fn result(
        &mut self,
        id: &str,
        outcome: Outcome,
        each: &mut Each<'_>,
    ) -> ControlFlow<()> {
        let at = self.calls.iter().position(|known| known.call.id == id);
        match at.and_then(|at| self.calls.remove(at)) {
            Some(seen) => each(Seen { outcome, ..seen }),
            None => ControlFlow::Continue(()),
        }
    }

    /// Whether the same call already waits.
    pub(crate) fn has(&self, tool: &str, input: &Map<String, Value>) -> bool {
        self.calls.iter().any(|seen| seen.tool == tool && seen.input == *input)
    }

    /// Whatever nobody answered.
    pub(crate) fn end(self, each: &mut Each<'_>) -> ControlFlow<()> {
        self.calls.into_iter().try_for_each(each)
    }
}

/// What a tool was given without what it was to write: a policy is not about
/// the text of a file.
pub(crate) fn without_texts(mut input: Map<String, Value>) -> Map<String, Value> {
    const LONGEST: usize = 4096;
    input.retain(|name, value| {
        name == "command" || !matches!(value, Value::String(text) if text.len() > LONGEST)
    });
    for text in ["content", "new_string", "old_string", "new_source", "edits"] {
        input.remove(text);
    }
    input
}
