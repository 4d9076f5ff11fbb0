//! The filter between a room and an agent of ssh. The room may list keys and sign. It may
//! not add or remove keys, lock the agent or make it load a library.
//!
//! The filter is a process outside the room. It ends when its standard input ends.

use std::env;
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use clash_policy::steering::SSH_AGENT_SOCKET;

/// The verb that starts the filter.
pub(crate) const VERB: &str = "lend-ssh-agent";

/// The limit of OpenSSH for a message.
const MAX_MESSAGE_BYTES: usize = 256 * 1024;

/// The room may have this many connections at the same time.
const MAX_CONNECTIONS: usize = 32;

const FAILURE: u8 = 5;
const REQUEST_IDENTITIES: u8 = 11;
const SIGN_REQUEST: u8 = 13;
const EXTENSION: u8 = 27;
const SESSION_BIND: &[u8] = b"session-bind@openssh.com";

/// Serves the agent that the environment names, until standard input ends. It prints the
/// socket for the room and the socket of the agent. Returns the exit status.
pub(crate) fn main() -> u8 {
    let Some(agent) = env::var_os(SSH_AGENT_SOCKET).map(PathBuf::from) else { return 1 };
    let Ok(dir) = make_directory() else { return 1 };
    let served = serve(&dir.join("agent"), agent);
    let _ = fs::remove_dir_all(&dir);
    u8::from(served.is_err())
}

/// Accepts connections in a thread, until standard input ends.
fn serve(socket: &Path, agent: PathBuf) -> io::Result<()> {
    let listener = UnixListener::bind(socket)?;
    print_now(&format!("{}\n{}\n", socket.display(), agent.display()))?;
    let _ = std::thread::Builder::new().spawn(move || accept(&listener, &agent))?;
    io::copy(&mut io::stdin().lock(), &mut io::sink())?;
    Ok(())
}

/// Prints a text and flushes.
fn print_now(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Creates a directory that only the user may enter. It is in /tmp, as that of ssh-agent:
/// every room can show a socket there, but not in another `TMPDIR`.
fn make_directory() -> io::Result<PathBuf> {
    let mut random = [0_u8; 8];
    fs::File::open("/dev/urandom")?.read_exact(&mut random)?;
    let name = format!("clash-ssh-{:016x}", u64::from_ne_bytes(random));
    let dir = Path::new("/tmp").join(name);
    fs::DirBuilder::new().mode(0o700).create(&dir)?;
    Ok(dir)
}

/// Starts a thread for each client. Closes clients beyond [`MAX_CONNECTIONS`]. Never returns.
fn accept(listener: &UnixListener, agent: &Path) {
    let open = Arc::new(AtomicUsize::new(0));
    for client in listener.incoming() {
        let Ok(client) = client else {
            std::thread::sleep(std::time::Duration::from_millis(10));
            continue;
        };
        if open.fetch_add(1, Ordering::SeqCst) >= MAX_CONNECTIONS {
            open.fetch_sub(1, Ordering::SeqCst);
            continue;
        }
        let (agent, counted) = (agent.to_path_buf(), Arc::clone(&open));
        let started = std::thread::Builder::new().spawn(move || {
            let _ = converse(client, &agent);
            counted.fetch_sub(1, Ordering::SeqCst);
        });
        if started.is_err() {
            open.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

/// Answers one client until it ends. Passes permitted requests on and refuses the others.
/// `session-bind` binds a connection, so each client has a connection of its own to the
/// agent.
fn converse(mut client: UnixStream, agent: &Path) -> io::Result<()> {
    let mut agent = UnixStream::connect(agent)?;
    loop {
        let request = receive(&mut client)?;
        if is_passed(&request) {
            send(&mut agent, &request)?;
            let answer = receive(&mut agent)?;
            send(&mut client, &answer)?;
        } else {
            send(&mut client, &[FAILURE])?;
        }
    }
}

/// True if a request lists keys, signs, or binds the connection to a session.
fn is_passed(request: &[u8]) -> bool {
    match request {
        [REQUEST_IDENTITIES] | [SIGN_REQUEST, ..] => true,
        [EXTENSION, a, b, c, d, rest @ ..] => {
            let length = u32::from_be_bytes([*a, *b, *c, *d]);
            usize::try_from(length).is_ok_and(|length| length == SESSION_BIND.len())
                && rest.starts_with(SESSION_BIND)
        }
        _ => false,
    }
}

/// One message of the agent's protocol. Fails if it is empty or longer than
/// [`MAX_MESSAGE_BYTES`].
fn receive(from: &mut UnixStream) -> io::Result<Vec<u8>> {
    let mut length = [0_u8; 4];
    from.read_exact(&mut length)?;
    let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
    if length == 0 || length > MAX_MESSAGE_BYTES {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut message = vec![0_u8; length];
    from.read_exact(&mut message)?;
    Ok(message)
}

/// Sends a message with its length in front.
fn send(to: &mut UnixStream, message: &[u8]) -> io::Result<()> {
    let length = u32::try_from(message.len()).map_err(|_| io::ErrorKind::InvalidData)?;
    let mut framed = length.to_be_bytes().to_vec();
    framed.extend_from_slice(message);
    to.write_all(&framed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extension(name: &[u8]) -> Vec<u8> {
        let mut request = vec![EXTENSION];
        request.extend_from_slice(&u32::try_from(name.len()).unwrap().to_be_bytes());
        request.extend_from_slice(name);
        request
    }

    #[test]
    fn only_listing_signing_and_binding_pass() {
        assert!(is_passed(&[REQUEST_IDENTITIES]));
        assert!(is_passed(&[SIGN_REQUEST, 0, 0]));
        assert!(is_passed(&extension(SESSION_BIND)));
        assert!(!is_passed(&extension(b"query")));
        assert!(!is_passed(&extension(b"session-bind@openssh.com.evil")));
        assert!(!is_passed(&[]));
        assert!(!is_passed(&[REQUEST_IDENTITIES, 0]));
        for kind in (0..=255).filter(|it| ![REQUEST_IDENTITIES, SIGN_REQUEST].contains(it)) {
            assert!(!is_passed(&[kind]), "{kind}");
        }
    }

    #[test]
    fn a_message_without_bounds_ends_the_connection() {
        for length in [0, 256 * 1024 + 1, u32::MAX] {
            let (mut one, mut other) = UnixStream::pair().unwrap();
            one.write_all(&length.to_be_bytes()).unwrap();
            assert!(receive(&mut other).is_err(), "{length}");
        }
    }
}
