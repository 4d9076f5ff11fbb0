//! The events of the kernel, and the tokens that name their sockets.

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;

/// The socket of an event. `turn` tells a slot's users apart: an event of a socket that was
/// closed meanwhile is not taken for one of its successor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Token {
    pub(super) kind: TokenKind,
    pub(super) slot: u32,
    pub(super) turn: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum TokenKind {
    Control,
    Names,
    Listener,
    Sighting,
    Client,
    Server,
    Lookup,
    Question,
    Orders,
    Extra,
}

const KINDS: [TokenKind; 10] = [
    TokenKind::Control,
    TokenKind::Names,
    TokenKind::Listener,
    TokenKind::Sighting,
    TokenKind::Client,
    TokenKind::Server,
    TokenKind::Lookup,
    TokenKind::Question,
    TokenKind::Orders,
    TokenKind::Extra,
];

impl Token {
    pub(super) fn new(kind: TokenKind, slot: u32, turn: u16) -> Self {
        Self { kind, slot, turn }
    }

    fn to_data(self) -> EventData {
        let kind = KINDS.iter().position(|kind| *kind == self.kind).unwrap_or(0) as u64;
        EventData::new_u64(kind << 48 | u64::from(self.turn) << 32 | u64::from(self.slot))
    }

    fn from_data(data: EventData) -> Option<Self> {
        let number = data.u64();
        let kind = KINDS.get((number >> 48) as usize).copied()?;
        Some(Self { kind, slot: number as u32, turn: (number >> 32) as u16 })
    }
}

pub(super) struct EventQueue {
    epoll: OwnedFd,
    events: Vec<Event>,
}

impl std::fmt::Debug for EventQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EventQueue").field("epoll", &self.epoll).finish_non_exhaustive()
    }
}

const MAX_EVENTS: usize = 256;

impl EventQueue {
    pub(super) fn new() -> Result<Self, Errno> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        Ok(Self { epoll, events: Vec::with_capacity(MAX_EVENTS) })
    }

    /// Reports as long as there is something to read.
    pub(super) fn watch(&self, fd: impl AsFd, token: Token) -> Result<(), Errno> {
        epoll::add(&self.epoll, fd, token.to_data(), EventFlags::IN)
    }

    /// Reports every change of a stream once.
    pub(super) fn watch_stream(&self, fd: impl AsFd, token: Token) -> Result<(), Errno> {
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        epoll::add(&self.epoll, fd, token.to_data(), flags)
    }

    pub(super) fn pause(&self, fd: impl AsFd, token: Token, paused: bool) {
        let flags = if paused { EventFlags::empty() } else { EventFlags::IN };
        let _ = epoll::modify(&self.epoll, fd, token.to_data(), flags);
    }

    pub(super) fn forget(&self, fd: impl AsFd) {
        let _ = epoll::delete(&self.epoll, fd);
    }

    /// Waits for events until `until`, or without an end, and puts them into `into`, which it
    /// empties first. A signal ends the wait early, without events.
    pub(super) fn wait(
        &mut self,
        until: Option<Instant>,
        into: &mut Vec<(Token, EventFlags)>,
    ) -> Result<(), Errno> {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        // Rounded up, so that a timer is due when the wait ends.
        let left = left.map(|left| left + Duration::from_millis(u64::from(!left.is_zero())));
        let left = left.and_then(|left| left.try_into().ok());
        self.events.clear();
        match epoll::wait(
            &self.epoll,
            rustix::buffer::spare_capacity(&mut self.events),
            left.as_ref(),
        ) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
        into.clear();
        // `Event` is packed, so its fields are copied.
        into.extend(self.events.iter().filter_map(|event| {
            let (data, flags) = (event.data, event.flags);
            Some((Token::from_data(data)?, flags))
        }));
        Ok(())
    }
}
