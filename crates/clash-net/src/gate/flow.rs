//! One direction of a connection: bytes from one socket to the other, with little memory.
//!
//! Small messages go through one shared buffer. A direction with much data uses a pipe and
//! `splice`, so that the data is not copied. An idle direction holds nothing.

use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};

const BUFFER_BYTES: usize = 16 * 1024;
const PIPE_BYTES: usize = 1024 * 1024;
const MAX_PIPES: usize = 64;
/// Less than this in one go ends the use of a pipe.
const BULK_BYTES: usize = 32 * 1024;
/// All directions together hold at most this many bytes that a slow reader has not taken.
const MAX_HELD_BYTES: usize = 24 * 1024 * 1024;
/// The number of transfers before other connections get their turn.
const TURNS: usize = 16;

/// A socket, and what the kernel last said about it.
#[derive(Debug)]
pub(super) struct Endpoint {
    pub(super) socket: OwnedFd,
    pub(super) readable: bool,
    pub(super) writable: bool,
    /// The other side has ended its stream, so that the next read finds the end.
    pub(super) hung_up: bool,
}

impl Endpoint {
    pub(super) fn new(socket: OwnedFd) -> Self {
        Self { socket, readable: false, writable: true, hung_up: false }
    }
}

#[derive(Debug)]
struct PipePair {
    reader: OwnedFd,
    writer: OwnedFd,
}

/// The memory that all connections share.
#[derive(Debug)]
pub(super) struct RelayMemory {
    pub(super) buffer: Vec<u8>,
    spare: Vec<PipePair>,
    pipes: usize,
    held: usize,
}

impl RelayMemory {
    pub(super) fn new() -> Self {
        Self { buffer: vec![0; BUFFER_BYTES], spare: Vec::new(), pipes: 0, held: 0 }
    }

    /// A free pipe, or a new one up to `MAX_PIPES`. `None`: the caller copies instead.
    fn pipe(&mut self) -> Option<PipePair> {
        if let Some(pair) = self.spare.pop() {
            return Some(pair);
        }
        if self.pipes >= MAX_PIPES {
            return None;
        }
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).ok()?;
        // A user may have only so many large pipes; a small one works too.
        let _ = fcntl_setpipe_size(&writer, PIPE_BYTES);
        self.pipes += 1;
        Some(PipePair { reader, writer })
    }
}

#[derive(Debug, Default)]
enum HeldBytes {
    #[default]
    Nothing,
    Copied {
        bytes: Vec<u8>,
        at: usize,
    },
    Piped {
        pipe: PipePair,
        bytes: usize,
    },
}

#[derive(Debug, Default)]
pub(super) struct Flow {
    held: HeldBytes,
    ended: bool,
    shut: bool,
    bulk: bool,
    pub(super) bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FlowState {
    /// Nothing to do until the kernel reports an event.
    Waiting,
    /// The connection's turn is over; there is more to do.
    Busy,
    /// The end of the stream was passed on.
    Done,
}

impl Flow {
    pub(super) fn is_done(&self) -> bool {
        self.shut
    }

    /// Adds bytes that are to be sent before any other.
    pub(super) fn hold(&mut self, more: &[u8], memory: &mut RelayMemory) -> Result<(), Errno> {
        if more.is_empty() {
            return Ok(());
        }
        memory.held += more.len();
        if memory.held > MAX_HELD_BYTES {
            memory.held -= more.len();
            return Err(Errno::NOBUFS);
        }
        match &mut self.held {
            HeldBytes::Copied { bytes, .. } => bytes.extend_from_slice(more),
            held => *held = HeldBytes::Copied { bytes: more.to_vec(), at: 0 },
        }
        Ok(())
    }

    /// Gives the memory back at the end of the connection.
    pub(super) fn release(&mut self, memory: &mut RelayMemory) {
        match std::mem::take(&mut self.held) {
            HeldBytes::Nothing => {}
            HeldBytes::Copied { bytes, .. } => memory.held -= bytes.len(),
            // The pipe still has bytes in it.
            HeldBytes::Piped { .. } => memory.pipes -= 1,
        }
    }

    /// Sends the held bytes without waiting. True if nothing is held any more, false if the
    /// receiver takes no more now. An error if the connection is broken.
    pub(super) fn flush(
        &mut self,
        to: &mut Endpoint,
        memory: &mut RelayMemory,
    ) -> Result<bool, Errno> {
        loop {
            let sent = match &mut self.held {
                HeldBytes::Nothing => return Ok(true),
                _ if !to.writable => return Ok(false),
                HeldBytes::Copied { bytes, at } => {
                    let rest = bytes.get(*at..).unwrap_or_default();
                    send(&to.socket, rest, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)
                        .inspect(|sent| *at += sent)
                }
                HeldBytes::Piped { pipe, bytes } => {
                    let flags = SpliceFlags::NONBLOCK | SpliceFlags::MOVE;
                    splice(&pipe.reader, None, &to.socket, None, *bytes, flags)
                        .inspect(|sent| *bytes = bytes.saturating_sub(*sent))
                }
            };
            match sent {
                Ok(_) => {}
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => {
                    to.writable = false;
                    return Ok(false);
                }
                Err(error) => return Err(error),
            }
            let is_empty = match &self.held {
                HeldBytes::Nothing => true,
                HeldBytes::Copied { bytes, at } => *at >= bytes.len(),
                HeldBytes::Piped { bytes, .. } => *bytes == 0,
            };
            if is_empty {
                match std::mem::take(&mut self.held) {
                    HeldBytes::Nothing => {}
                    HeldBytes::Copied { bytes, .. } => memory.held -= bytes.len(),
                    HeldBytes::Piped { pipe, .. } => memory.spare.push(pipe),
                }
            }
        }
    }

    /// Moves bytes until one side has to wait (`Waiting`), the reader's end has been passed
    /// on (`Done`), or `TURNS` rounds are over (`Busy`), so that one fast connection does not
    /// hold up the others. Uses a pipe if the last read was large.
    pub(super) fn pump(
        &mut self,
        from: &mut Endpoint,
        to: &mut Endpoint,
        memory: &mut RelayMemory,
    ) -> Result<FlowState, Errno> {
        for _ in 0..TURNS {
            if !self.flush(to, memory)? {
                return Ok(FlowState::Waiting);
            }
            if self.ended {
                return Ok(self.end(to));
            }
            if !from.readable {
                return Ok(FlowState::Waiting);
            }
            let pipe = if self.bulk { memory.pipe() } else { None };
            match pipe {
                Some(pipe) => self.fill_pipe(pipe, from, memory)?,
                None => self.copy(from, to, memory)?,
            }
        }
        Ok(FlowState::Busy)
    }

    /// Passes on the end of the stream.
    pub(super) fn end(&mut self, to: &Endpoint) -> FlowState {
        if !self.shut {
            self.shut = true;
            let _ = shutdown(&to.socket, Shutdown::Write);
        }
        FlowState::Done
    }

    /// Moves bytes from the socket into the pipe with `splice`. The pipe is held until
    /// `flush` has emptied it, or goes back to the spare ones if nothing was moved.
    fn fill_pipe(
        &mut self,
        pipe: PipePair,
        from: &mut Endpoint,
        memory: &mut RelayMemory,
    ) -> Result<(), Errno> {
        let flags = SpliceFlags::NONBLOCK | SpliceFlags::MOVE;
        match splice(&from.socket, None, &pipe.writer, None, PIPE_BYTES, flags) {
            Ok(0) => self.ended = true,
            Ok(bytes) => {
                self.bytes += bytes as u64;
                self.bulk = bytes >= BULK_BYTES;
                self.held = HeldBytes::Piped { pipe, bytes };
                return Ok(());
            }
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => from.readable = false,
            Err(error) => {
                memory.pipes -= 1;
                return Err(error);
            }
        }
        memory.spare.push(pipe);
        Ok(())
    }

    /// Reads into the shared buffer and sends it at once. Holds the rest if the receiver
    /// takes only a part.
    fn copy(
        &mut self,
        from: &mut Endpoint,
        to: &mut Endpoint,
        memory: &mut RelayMemory,
    ) -> Result<(), Errno> {
        let Some(count) = self.read(from, &mut memory.buffer[..])? else { return Ok(()) };
        self.bulk = count == BUFFER_BYTES;
        let bytes = memory.buffer.get(..count).unwrap_or_default();
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let sent = match send(&to.socket, bytes, flags) {
            Ok(sent) => sent,
            Err(Errno::AGAIN | Errno::INTR) => 0,
            Err(error) => return Err(error),
        };
        if sent < count {
            to.writable = false;
            let rest = bytes.get(sent..).unwrap_or_default().to_vec();
            self.hold(&rest, memory)?;
        }
        Ok(())
    }

    /// Reads into the buffer. `None` if there is nothing to read.
    pub(super) fn read(
        &mut self,
        from: &mut Endpoint,
        buffer: &mut [u8],
    ) -> Result<Option<usize>, Errno> {
        let space = buffer.len();
        match recv(from.socket.as_fd(), buffer, RecvFlags::DONTWAIT) {
            Ok((_, 0)) => {
                self.ended = true;
                Ok(None)
            }
            Ok((_, count)) => {
                self.bytes += count as u64;
                // A short read has emptied the socket. The kernel reports further bytes.
                from.readable = count == space || from.hung_up;
                Ok(Some(count))
            }
            Err(Errno::INTR) => Ok(None),
            Err(Errno::AGAIN) => {
                from.readable = false;
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended
    }
}
