//! One operation that `clash sandbox test` tries inside a sandbox.
//!
//! An operation changes only files that the test has made. It only opens files of the
//! user. A file that it creates against the policy is removed by the tidier.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpStream, UdpSocket};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// One operation, as JSON between the test and the process in the sandbox.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum TrialAct {
    /// Opens a file and reads a byte, or reads the first name of a directory.
    Read(PathBuf),
    /// Opens for writing and writes nothing.
    Open(PathBuf),
    /// Creates a file that does not exist.
    Create(PathBuf),
    Delete(PathBuf),
    /// Sets the mode that the file has already.
    Chmod(PathBuf),
    /// Runs a script that does nothing.
    Run(PathBuf),
    /// Connects to a port of the machine.
    Tcp(u16),
    /// Sends to a port of the machine and waits for an answer.
    Udp(u16),
    Unix(PathBuf),
    /// Connects to an abstract socket.
    Abstract(String),
    /// Sends signal 0 to a process.
    Signal(i32),
    /// Looks for an environment variable.
    Variable(String),
}

/// The time for an answer over UDP on a busy machine. A blocked send fails at once.
const UDP_TIMEOUT: Duration = Duration::from_secs(5);

impl TrialAct {
    /// Carries out the operation for real, for example creates the file or runs the program,
    /// and undoes nothing. The error is that of the system.
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
                socket.set_read_timeout(Some(UDP_TIMEOUT))?;
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

/// Performs the acts on standard input, one JSON text a line. Prints a line for each:
/// `null`, or the error of the system.
pub(super) fn perform_all() -> io::Result<()> {
    let mut asked = String::new();
    io::stdin().read_to_string(&mut asked)?;
    let mut out = io::stdout().lock();
    for line in asked.lines() {
        let act: TrialAct = serde_json::from_str(line)?;
        let answer = act.perform().err().map(|error| error.to_string());
        writeln!(out, "{}", serde_json::to_string(&answer)?)?;
    }
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_act_changes_only_its_own_file() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        fs::write(&file, "text").unwrap();
        for act in [
            TrialAct::Read(file.clone()),
            TrialAct::Open(file.clone()),
            TrialAct::Chmod(file.clone()),
        ] {
            act.perform().unwrap();
        }
        assert_eq!(fs::read_to_string(&file).unwrap(), "text");
        assert!(TrialAct::Create(file.clone()).perform().is_err());
        assert!(TrialAct::Run(file.clone()).perform().is_err());
        let new = dir.path().join("new");
        TrialAct::Create(new.clone()).perform().unwrap();
        TrialAct::Delete(new.clone()).perform().unwrap();
        assert!(!new.exists() && TrialAct::Read(new).perform().is_err());
    }

    #[test]
    fn acts_without_a_listener_fail() {
        let taken = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = taken.local_addr().unwrap().port();
        drop(taken);
        assert!(TrialAct::Udp(port).perform().is_err());
        assert!(TrialAct::Tcp(port).perform().is_err());
        assert!(TrialAct::Abstract("clash-no-listener".into()).perform().is_err());
        assert!(TrialAct::Signal(i32::try_from(std::process::id()).unwrap()).perform().is_ok());
        assert!(TrialAct::Signal(0).perform().is_err());
    }
}
