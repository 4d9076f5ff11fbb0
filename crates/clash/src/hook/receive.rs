//! Reads the message of an agent from standard input.

use std::ffi::OsString;
use std::io::Read;

use clash_agents::{Agent, HookEvent, HookMessage, find_agent};

use super::HookError;

/// A longer message is refused unread; no agent sends one.
const MAX_MESSAGE_BYTES: u64 = 1 << 20;

/// The agent, the event and the message. Settings may name the event as a further
/// argument; the hook believes the message only.
pub(super) fn receive(
    args: &[OsString],
) -> Result<(&'static Agent, HookEvent, HookMessage), HookError> {
    let agent = args.first().and_then(|name| name.to_str()).and_then(find_agent);
    let agent = agent.filter(|_| args.len() <= 2).ok_or(HookError::Usage)?;
    let mut input = Vec::new();
    let mut stdin = std::io::stdin().take(MAX_MESSAGE_BYTES + 1);
    stdin.read_to_end(&mut input).map_err(HookError::Read)?;
    if input.len() as u64 > MAX_MESSAGE_BYTES {
        return Err(HookError::TooLarge);
    }
    let (event, message) = agent.read_message(&input)?;
    Ok((agent, event, message))
}
