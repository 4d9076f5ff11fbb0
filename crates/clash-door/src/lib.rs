//! Messages between a door and the launcher outside the room.
//!
//! A *door* is a program in a room that stands in the place of another one, for example at
//! `/usr/bin/git`. It asks the launcher to run the real program in the sandbox that the
//! policy gives it. The launcher reads the arguments, the environment and the working
//! directory of the door's process from the kernel (`/proc`). The door sends only its
//! descriptors and, later, the signals that it receives.
//!
//! The door opens [`DOOR_PATH`]. No such file exists: the monitor of the room recognises
//! the path and answers with a socket. Each message is one packet of that socket.

/// The path that a door opens to reach the launcher.
pub const DOOR_PATH: &str = "/run/clash/door";

/// The sixth argument of an `execve` that the monitor lets pass. The kernel ignores it. A
/// command that uses it starts a program in its own room, which it may do in any case.
pub const EXECUTE_MARK: u32 = 0x636c_6173;

/// The descriptors in one message. The kernel accepts at most 253.
pub const MAX_DESCRIPTORS_PER_MESSAGE: usize = 200;

/// The longest path of a program in a message.
pub const MAX_PATH_BYTES: usize = 4095;

/// The longest message in bytes.
pub const MAX_MESSAGE_BYTES: usize = 2 + MAX_PATH_BYTES;
const _: () = assert!(MAX_MESSAGE_BYTES >= 16 + 4 * MAX_DESCRIPTORS_PER_MESSAGE);

/// Exit status of a command that the policy refuses.
pub const REFUSED_STATUS: i32 = 126;

/// A message of the door.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DoorRequest {
    /// Some of the door's descriptors, in the order of the attached ones.
    Descriptors {
        /// The numbers that the descriptors have in the door.
        numbers: Vec<i32>,
        /// The signals that the door's caller had blocked, one bit for each.
        blocked_signals: u64,
        /// True if all descriptors are sent.
        is_last: bool,
    },
    /// The door received a signal.
    Signal(i32),
    /// The visitor wanted to start the program at this path of the project. The monitor sends
    /// this in front of the first message, because the door has another path.
    Started { path: Vec<u8> },
}

/// A message of the launcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DoorReply {
    /// The door itself executes the real program, whose file is attached. Without a file,
    /// the next message is the path of the program.
    RunHere,
    /// The command runs.
    Started {
        /// True if the command is in the door's process group. Then the terminal sends it
        /// signals directly.
        joined_group: bool,
    },
    /// The command has stopped, and the door stops too.
    Stopped,
    Exited(u8),
    Killed(u8),
}

const DESCRIPTORS: u8 = b'D';
const SIGNAL: u8 = b'S';
const STARTED: u8 = b'P';

impl DoorRequest {
    /// The bytes of one packet.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Descriptors { numbers, blocked_signals, is_last } => {
                let mut bytes = vec![DESCRIPTORS, u8::from(*is_last)];
                bytes.extend(blocked_signals.to_le_bytes());
                bytes.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
                bytes
            }
            Self::Signal(signal) => {
                let mut bytes = vec![SIGNAL];
                bytes.extend(signal.to_le_bytes());
                bytes
            }
            Self::Started { path } => {
                let mut bytes = vec![STARTED];
                bytes.extend(path);
                bytes.push(0);
                bytes
            }
        }
    }

    /// Reads one packet. `None` for bytes that are no message: an unknown kind, a wrong
    /// length.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        match bytes.split_first()? {
            (&DESCRIPTORS, rest) => {
                let (&last, rest) = rest.split_first()?;
                let (mask, numbers) = rest.split_first_chunk::<8>()?;
                let (numbers, tail) = numbers.as_chunks::<4>();
                let known = last <= 1 && tail.is_empty();
                known.then(|| Self::Descriptors {
                    numbers: numbers.iter().map(|bytes| i32::from_le_bytes(*bytes)).collect(),
                    blocked_signals: u64::from_le_bytes(*mask),
                    is_last: last == 1,
                })
            }
            (&STARTED, path) => {
                let path = path.strip_suffix(&[0]).filter(|path| !path.contains(&0))?;
                Some(Self::Started { path: path.to_vec() })
            }
            (&SIGNAL, rest) => Some(Self::Signal(i32::from_le_bytes(rest.try_into().ok()?))),
            _ => None,
        }
    }
}

impl DoorReply {
    /// The bytes of one packet.
    pub const fn encode(self) -> [u8; 2] {
        match self {
            Self::RunHere => [b'R', 0],
            Self::Started { joined_group } => [b'G', joined_group as u8],
            Self::Stopped => [b'T', 0],
            Self::Exited(status) => [b'X', status],
            Self::Killed(signal) => [b'K', signal],
        }
    }

    /// `None` for bytes that are no message.
    pub const fn decode(bytes: &[u8]) -> Option<Self> {
        Some(match bytes {
            [b'R', 0] => Self::RunHere,
            [b'G', joined @ (0 | 1)] => Self::Started { joined_group: *joined == 1 },
            [b'T', 0] => Self::Stopped,
            [b'X', status] => Self::Exited(*status),
            [b'K', signal] => Self::Killed(*signal),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_round_trip_and_other_bytes_are_refused() {
        for request in [
            DoorRequest::Descriptors {
                numbers: vec![0, 1, 2, 63],
                blocked_signals: 1 << 40,
                is_last: true,
            },
            DoorRequest::Descriptors { numbers: vec![], blocked_signals: 0, is_last: false },
            DoorRequest::Signal(15),
            DoorRequest::Started { path: b"./x".to_vec() },
        ] {
            let bytes = request.encode();
            assert_eq!(DoorRequest::decode(&bytes), Some(request));
            assert_eq!(DoorRequest::decode(bytes.get(..bytes.len() - 1).unwrap_or_default()), None);
        }
        assert_eq!(DoorRequest::decode(b""), None);
        assert_eq!(DoorRequest::decode(b"D\x020123456789"), None);
        assert_eq!(DoorRequest::decode(b"S123"), None);
    }

    #[test]
    fn replies_round_trip_and_other_bytes_are_refused() {
        for reply in [
            DoorReply::RunHere,
            DoorReply::Started { joined_group: true },
            DoorReply::Started { joined_group: false },
            DoorReply::Stopped,
            DoorReply::Exited(255),
            DoorReply::Killed(9),
        ] {
            assert_eq!(DoorReply::decode(&reply.encode()), Some(reply));
        }
        assert_eq!(DoorReply::decode(b"X"), None);
        assert_eq!(DoorReply::decode(b"G\x02"), None);
    }
}
