//! Claude Code's transcripts: `projects/<project>/<session>.jsonl`. Seen with
//! version 2.1.325.
//!
//! A call is a `tool_use` block of an `assistant` line, its result a
//! `tool_result` block of a `user` line. Other lines repeat messages (what was
//! sent to the model) and are no calls.

use std::fmt;
use std::io::{self, BufRead};
use std::ops::ControlFlow;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use crate::join::{Waiting, without_texts};
use crate::{Call, Each, Outcome, Seen, Tally, lines, time};

#[derive(Deserialize)]
struct Line {
    #[serde(default, rename = "type")]
    kind: Option<String>,
    #[serde(default)]
    timestamp: Option<String>,
    #[serde(default)]
    cwd: Option<String>,
    #[serde(default, rename = "sessionId")]
    session: Option<String>,
    #[serde(default)]
    message: Option<Message>,
}

#[derive(Deserialize)]
struct Message {
    #[serde(default)]
    content: Blocks,
}

/// The blocks of a message; a message that is only text has none.
#[derive(Default)]
struct Blocks(Vec<Block>);

#[derive(Deserialize)]
struct Block {
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

impl<'de> Deserialize<'de> for Blocks {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = Blocks;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text or blocks")
            }

            fn visit_str<E>(self, _: &str) -> Result<Blocks, E> {
                Ok(Blocks::default())
            }

            fn visit_unit<E>(self) -> Result<Blocks, E> {
                Ok(Blocks::default())
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Blocks, A::Error> {
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(Blocks::default())
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Blocks, A::Error> {
                let mut blocks = Vec::new();
                while let Some(block) = seq.next_element()? {
                    blocks.push(block);
                }
                Ok(Blocks(blocks))
            }
        }
        from.deserialize_any(Either)
    }
}

pub(crate) fn read(
    from: impl BufRead,
    tally: &mut Tally,
    each: &mut Each<'_>,
) -> io::Result<ControlFlow<()>> {
    let mut waiting = Waiting::default();
    let flow = lines::each(from, tally, |line: Line| {
        let (Some("assistant" | "user"), Some(message)) = (line.kind.as_deref(), line.message)
        else {
            return ControlFlow::Continue(());
        };
        let when = line.timestamp.as_deref().and_then(time::parse);
        let (cwd, session) = (line.cwd.map(Into::into), line.session.unwrap_or_default());
        for block in message.content.0 {
            match (block.kind.as_str(), block.input) {
                ("tool_use", Some(input)) => {
                    let call = Call { session: session.clone(), id: block.id };
                    let seen = Seen {
                        when,
                        agent: "claude",
                        call,
                        cwd: cwd.clone(),
                        tool: block.name,
                        input: without_texts(input),
                        outcome: Outcome::Unknown,
                    };
                    waiting.call(seen, each)?;
                }
                ("tool_result", _) => {
                    let failed = block.is_error == Some(true);
                    let outcome = if failed { Outcome::Failed } else { Outcome::Ran };
                    waiting.result(&block.tool_use_id, outcome, each)?;
                }
                _ => {}
            }
        }
        ControlFlow::Continue(())
    })?;
    if flow.is_break() { Ok(flow) } else { Ok(waiting.end(each)) }
}
