//! Namespaces that are made while the plan still is.
//!
//! Making them takes as long as planning, and what is to be made can be told from
//! the sandbox alone. A process that shares our memory does it, on another
//! processor if there is one, and stays until the launcher has joined what it made.
//! Where the plan turns out to need none, they go with it.
//!
//! Only for user namespaces: joining a mount namespace leads back to its root, out
//! of whatever root directory the launcher was given, and whoever has been given
//! one cannot make user namespaces.

use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

use rustix::io::Errno;
use rustix::net::{AddressFamily, Shutdown, SocketFlags, SocketType, shutdown, socketpair};
use rustix::process::{Pid, PidfdFlags, WaitOptions, getgid, getuid, pidfd_open, waitpid};
use rustix::thread::{ThreadNameSpaceType, move_into_thread_name_spaces};

use super::namespaces::{Wanted, make};
use super::sys;

#[derive(Debug)]
pub(crate) struct Ahead {
    maker: Option<Pid>,
    /// What it says when it is done; it stays until this is shut.
    answer: OwnedFd,
    own_network: bool,
}

struct Errand {
    wanted: Wanted,
    answer: RawFd,
}

const DONE: u8 = 1;

impl Ahead {
    /// A failure only costs time.
    pub(crate) fn start(own_network: bool) -> Option<Self> {
        let (unix, stream) = (AddressFamily::UNIX, SocketType::STREAM);
        let (answer, told) = socketpair(unix, stream, SocketFlags::CLOEXEC, None).ok()?;
        let wanted = Wanted::new(getuid(), getgid(), true, own_network);
        let errand = Box::leak(Box::new(Errand { wanted, answer: told.as_raw_fd() }));
        let maker = sys::run_beside(run, errand).ok()?;
        Some(Self { maker: Pid::from_raw(maker), answer, own_network })
    }

    /// Joins the namespaces, if they are those that are wanted and were made. Who
    /// made them then leaves.
    pub(crate) fn join(&mut self, own_network: bool) -> bool {
        let Some(maker) = self.maker else { return false };
        let mut said = [0];
        let wanted = own_network == self.own_network;
        let done = wanted && read(&self.answer, &mut said) && said == [DONE];
        let mut kinds = ThreadNameSpaceType::USER
            | ThreadNameSpaceType::MOUNT
            | ThreadNameSpaceType::INTER_PROCESS_COMMUNICATION;
        if own_network {
            kinds |= ThreadNameSpaceType::NETWORK;
        }
        let joined = || {
            let maker = pidfd_open(maker, PidfdFlags::empty())?;
            move_into_thread_name_spaces(maker.as_fd(), kinds)
        };
        let joined = done && joined().is_ok();
        self.let_go();
        joined
    }

    /// Not only closed: processes started meanwhile have it too.
    fn let_go(&self) {
        let _ = shutdown(&self.answer, Shutdown::Both);
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        self.let_go();
        while matches!(waitpid(self.maker, WaitOptions::empty()), Err(Errno::INTR)) {}
    }
}

fn read(from: &OwnedFd, byte: &mut [u8; 1]) -> bool {
    loop {
        match rustix::io::read(from, &mut byte[..]) {
            Err(Errno::INTR) => {}
            read => return read == Ok(1),
        }
    }
}

/// The other process. Whoever waits for the end of our output must not have to
/// wait for it.
fn run(errand: &Errand) {
    sys::close_all_but(errand.answer);
    if make(&errand.wanted).is_ok() {
        sys::tell_and_stay(errand.answer, DONE);
    }
}
