//! Claude Code's transcripts: `projects/<project>/<session>.jsonl`. Seen with
//! version 2.1.325.
//!
//! A call is a `tool_use` block of an `assistant` line, its result a
//! `tool_result` block of a `user` line. Other lines repeat the messages that went to
//! the model, and are no calls.

use std::fmt;
use std::io::{self, BufRead};
use std::ops::ControlFlow;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use crate::join::{WaitingCalls, without_texts};
use crate::{CallId, CallOutcome, CallSink, ReadTally, SeenCall, lines, time};

#[derive(Deserialize)]
struct ClaudeLine {
    #[serde(default, rename = "type")]
    kind: Option<String>,
    #[serde(default)]
    timestamp: Option<String>,
    #[serde(default)]
    cwd: Option<String>,
    #[serde(default, rename = "sessionId")]
    session: Option<String>,
    #[serde(default)]
    message: Option<ClaudeMessage>,
}

#[derive(Deserialize)]
struct ClaudeMessage {
    #[serde(default)]
    content: ContentBlocks,
}

/// The blocks of a message; a message that is only text has none.
#[derive(Default)]
struct ContentBlocks(Vec<ContentBlock>);

#[derive(Deserialize)]
struct ContentBlock {
    #[serde(default, rename = "type")]
    kind: String,
    #[serde(default)]
    id: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    input: Option<Map<String, Value>>,
    #[serde(default)]
    tool_use_id: String,
    #[serde(default)]
    is_error: Option<bool>,
}

impl<'de> Deserialize<'de> for ContentBlocks {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct BlocksVisitor;
        impl<'de> Visitor<'de> for BlocksVisitor {
            type Value = ContentBlocks;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text or blocks")
            }

            fn visit_str<E>(self, _: &str) -> Result<ContentBlocks, E> {
                Ok(ContentBlocks::default())
            }

            fn visit_unit<E>(self) -> Result<ContentBlocks, E> {
                Ok(ContentBlocks::default())
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ContentBlocks, A::Error> {
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(ContentBlocks::default())
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<ContentBlocks, A::Error> {
                let mut blocks = Vec::new();
                while let Some(block) = seq.next_element()? {
                    blocks.push(block);
                }
                Ok(ContentBlocks(blocks))
            }
        }
        from.deserialize_any(BlocksVisitor)
    }
}

/// Passes on the calls of a transcript, each with its result. The reader passes on a call
/// without a result at the end of the file. A resumed session may repeat calls.
pub(crate) fn read(
    from: impl BufRead,
    tally: &mut ReadTally,
    each: &mut CallSink<'_>,
) -> io::Result<ControlFlow<()>> {
    let mut waiting = WaitingCalls::default();
    let flow = lines::each(from, tally, |line: ClaudeLine| {
        let (Some("assistant" | "user"), Some(message)) = (line.kind.as_deref(), line.message)
        else {
            return ControlFlow::Continue(());
        };
        let when = line.timestamp.as_deref().and_then(time::parse);
        let (cwd, session) = (line.cwd.map(Into::into), line.session.unwrap_or_default());
        for block in message.content.0 {
            match (block.kind.as_str(), block.input) {
                ("tool_use", Some(input)) => {
                    let call = CallId { session: session.clone(), id: block.id };
                    let seen = SeenCall {
                        when,
                        agent: "claude",
                        call,
                        cwd: cwd.clone(),
                        tool: block.name,
                        input: without_texts(input),
                        outcome: CallOutcome::Unknown,
                    };
                    waiting.call(seen, each)?;
                }
                ("tool_result", _) => {
                    let failed = block.is_error == Some(true);
                    let outcome = if failed { CallOutcome::Failed } else { CallOutcome::Ran };
                    waiting.result(&block.tool_use_id, outcome, each)?;
                }
                _ => {}
            }
        }
        ControlFlow::Continue(())
    })?;
    if flow.is_break() { Ok(flow) } else { Ok(waiting.end(each)) }
}
