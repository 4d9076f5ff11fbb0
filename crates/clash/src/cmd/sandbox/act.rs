//! One operation that `clash sandbox test` tries inside a sandbox.
//!
//! None of them changes anything but what was made for it: a file that is the
//! user's own is only opened, and what was created where nothing should have
//! been is removed at once by whoever made it.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpStream, UdpSocket};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Act {
    /// Opens and reads a byte; of a directory, its first name.
    Read(PathBuf),
    /// Opens for writing and writes nothing.
    Open(PathBuf),
    /// Makes a file that is not there.
    Create(PathBuf),
    Delete(PathBuf),
    /// Sets the mode it has.
    Chmod(PathBuf),
    /// Runs a script that does nothing.
    Run(PathBuf),
    /// Connects to a port of the machine.
    Tcp(u16),
    /// Wants an answer from a port of the machine.
    Udp(u16),
    Unix(PathBuf),
    /// A socket with a name that is no path.
    Abstract(String),
    /// Whether a process could be signalled.
    Signal(i32),
    /// Sees a variable.
    Variable(String),
}

/// Long enough for a loaded machine. Nothing waits for it where all is well: what
/// is blocked is refused at once.
const PATIENCE: Duration = Duration::from_secs(5);

impl Act {
    pub(super) fn perform(&self) -> io::Result<()> {
        match self {
            Self::Read(path) if path.is_dir() => fs::read_dir(path)?.next().transpose().map(drop),
            Self::Read(path) => fs::File::open(path)?.read(&mut [0]).map(drop),
            Self::Open(path) => fs::File::options().append(true).open(path).map(drop),
            Self::Create(path) => {
                fs::File::options().write(true).create_new(true).open(path).map(drop)
            }
            Self::Delete(path) => fs::remove_file(path),
            Self::Chmod(path) => fs::set_permissions(path, fs::metadata(path)?.permissions()),
            Self::Run(path) => {
                let mut command = Command::new(path);
                command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
                let status = command.status()?;
                if status.success() { Ok(()) } else { Err(io::Error::other(status.to_string())) }
            }
            Self::Tcp(port) => TcpStream::connect((Ipv4Addr::LOCALHOST, *port)).map(drop),
            Self::Udp(port) => {
                let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
                socket.set_read_timeout(Some(PATIENCE))?;
                socket.connect((Ipv4Addr::LOCALHOST, *port))?;
                socket.send(b"?")?;
                socket.recv(&mut [0]).map(drop)
            }
            Self::Unix(path) => UnixStream::connect(path).map(drop),
            Self::Abstract(name) => abstract_socket(name),
            Self::Signal(pid) => {
                let pid =
                    rustix::process::Pid::from_raw(*pid).ok_or(io::ErrorKind::InvalidInput)?;
                Ok(rustix::process::test_kill_process(pid)?)
            }
            Self::Variable(name) => match std::env::var_os(name) {
                Some(_) => Ok(()),
                None => Err(io::Error::other("not set")),
            },
        }
    }
}

#[cfg(target_os = "linux")]
fn abstract_socket(name: &str) -> io::Result<()> {
    use std::os::linux::net::SocketAddrExt;
    let address = std::os::unix::net::SocketAddr::from_abstract_name(name)?;
    UnixStream::connect_addr(&address).map(drop)
}

#[cfg(not(target_os = "linux"))]
fn abstract_socket(_: &str) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Tries what standard input lists, a JSON text a line, and answers each with a
/// line: `null`, or what the system said.
pub(super) fn perform_all() -> io::Result<()> {
    let mut asked = String::new();
    io::stdin().read_to_string(&mut asked)?;
    let mut out = io::stdout().lock();
    for line in asked.lines() {
        let act: Act = serde_json::from_str(line)?;
        let answer = act.perform().err().map(|error| error.to_string());
        writeln!(out, "{}", serde_json::to_string(&answer)?)?;
    }
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trying_changes_nothing_but_what_it_is_about() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        fs::write(&file, "text").unwrap();
        for act in [Act::Read(file.clone()), Act::Open(file.clone()), Act::Chmod(file.clone())] {
            act.perform().unwrap();
        }
        assert_eq!(fs::read_to_string(&file).unwrap(), "text");
        assert!(Act::Create(file.clone()).perform().is_err());
        assert!(Act::Run(file.clone()).perform().is_err());
        let new = dir.path().join("new");
        Act::Create(new.clone()).perform().unwrap();
        Act::Delete(new.clone()).perform().unwrap();
        assert!(!new.exists() && Act::Read(new).perform().is_err());
    }

    #[test]
    fn what_nobody_listens_on_is_not_reached() {
        let taken = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = taken.local_addr().unwrap().port();
        drop(taken);
        assert!(Act::Udp(port).perform().is_err());
        assert!(Act::Tcp(port).perform().is_err());
        assert!(Act::Abstract("clash-nobody-listens".into()).perform().is_err());
        assert!(Act::Signal(i32::try_from(std::process::id()).unwrap()).perform().is_ok());
        assert!(Act::Signal(0).perform().is_err());
    }
}
