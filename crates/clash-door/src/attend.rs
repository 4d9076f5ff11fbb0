//! One visit to a door: send the descriptors, then follow the command to its end.

use std::ffi::{CString, c_char, c_int};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use clash_door::{
    DOOR_PATH, DoorReply, DoorRequest, MAX_DESCRIPTORS_PER_MESSAGE, MAX_PATH_BYTES, REFUSED_STATUS,
};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{CWD, Dir, Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recv, recvmsg, send, sendmsg,
};

use super::sys::{self, ReceivedSignal};

/// The time that a door waits for its turn.
const MAX_QUEUE_TIME: Duration = Duration::from_secs(10);
const QUEUE_PAUSE: Duration = Duration::from_millis(2);

/// The arguments of this process, as the kernel gave them.
pub(super) struct CommandLine(pub(super) *const *const c_char);

/// Opens the door, sends the descriptors, and follows the command. Gives the exit status of
/// this process; [`REFUSED_STATUS`] with a message if the command does not run.
pub(super) fn run(line: CommandLine) -> c_int {
    let mask = sys::block_signals();
    let socket = match open_door() {
        Ok(socket) => socket,
        Err(error) => return refuse(&line, &format!("its door does not open ({error})")),
    };
    let sent = send_descriptors(&socket, mask.bits());
    let signals = sys::signal_descriptor();
    let (Ok(()), Some(signals)) = (sent, signals) else {
        return refuse(&line, "its descriptors cannot be sent");
    };
    let mut started = None;
    let mut held = Vec::new();
    loop {
        let mut ready = [PollFd::new(&socket, PollFlags::IN), PollFd::new(&signals, PollFlags::IN)];
        match poll(&mut ready, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return REFUSED_STATUS,
        }
        let [from_launcher, from_signals] = ready.map(|fd| !fd.revents().is_empty());
        if from_signals {
            held.extend(std::iter::from_fn(|| sys::next_signal(&signals)));
        }
        match started {
            Some(joined) => forward_signals(&socket, held.drain(..), joined),
            // No command runs that could handle it, so it ends the door as it would end the
            // process between `fork` and `execve`.
            None => {
                let deadly = |signal: &ReceivedSignal| mask.is_deadly(signal.number);
                if let Some(signal) = held.iter().find(|signal| deadly(signal)) {
                    return sys::end_by(signal.number);
                }
            }
        }
        if !from_launcher {
            continue;
        }
        match receive(&socket) {
            Some((DoorReply::RunHere, Some(file))) => {
                held.iter().for_each(|signal| sys::raise(signal.number));
                sys::restore_signals(&mask);
                let mut error = sys::execute(file.as_fd(), &line);
                // The interpreter of a script opens the file by its descriptor.
                if error.raw_os_error() == Some(libc::ENOENT) {
                    let _ = rustix::io::fcntl_setfd(&file, rustix::io::FdFlags::empty());
                    error = sys::execute(file.as_fd(), &line);
                }
                return refuse(&line, &error.to_string());
            }
            Some((DoorReply::RunHere, None)) => {
                held.iter().for_each(|signal| sys::raise(signal.number));
                sys::restore_signals(&mask);
                let mut path = [0_u8; MAX_PATH_BYTES];
                let length = recv(&socket, &mut path, RecvFlags::empty()).map_or(0, |(it, _)| it);
                let path = CString::new(path.get(..length).unwrap_or_default());
                let error = path.map(|path| sys::execute_path(&path, &line));
                let why = error.map_or_else(|_| String::new(), |error| error.to_string());
                return refuse(&line, &why);
            }
            Some((DoorReply::Started { joined_group }, _)) => {
                started = Some(joined_group);
                close_all_but(&[socket.as_fd(), signals.as_fd()]);
            }
            Some((DoorReply::Stopped, _)) => sys::stop(),
            Some((DoorReply::Exited(status), _)) => return status.into(),
            Some((DoorReply::Killed(signal), _)) => return sys::end_by(signal.into()),
            None => {
                return refuse(&line, "the launcher behind its door has ended");
            }
        }
    }
}

/// Opens the door. Waits while the launcher has too many visits that it has not answered.
fn open_door() -> Result<OwnedFd, Errno> {
    let end = Instant::now() + MAX_QUEUE_TIME;
    loop {
        match openat(CWD, DOOR_PATH, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()) {
            Err(Errno::AGAIN) if Instant::now() < end => std::thread::sleep(QUEUE_PAUSE),
            opened => return opened,
        }
    }
}

/// Writes why the command was not run, and gives [`REFUSED_STATUS`].
fn refuse(line: &CommandLine, why: &str) -> c_int {
    let message = format!("clash: {} was not run: {why}\n", sys::own_name(line));
    let _ = rustix::io::write(rustix::stdio::stderr(), message.as_bytes());
    REFUSED_STATUS
}

/// Sends every descriptor that `execve` kept, except the socket, in several messages if
/// necessary. Also sends the signals that the caller had blocked.
fn send_descriptors(socket: &OwnedFd, blocked_signals: u64) -> Result<(), Errno> {
    let open: Vec<i32> =
        open_descriptors()?.into_iter().filter(|fd| *fd != socket.as_raw_fd()).collect();
    let mut batches: Vec<&[i32]> = open.chunks(MAX_DESCRIPTORS_PER_MESSAGE).collect();
    if batches.is_empty() {
        batches.push(&[]);
    }
    let count = batches.len();
    for (at, batch) in batches.into_iter().enumerate() {
        let is_last = at + 1 == count;
        let request =
            DoorRequest::Descriptors { numbers: batch.to_vec(), blocked_signals, is_last };
        let borrowed: Vec<BorrowedFd<'_>> = batch.iter().map(|fd| sys::borrow(*fd)).collect();
        let space = rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS_PER_MESSAGE));
        let mut space = vec![MaybeUninit::uninit(); space];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !borrowed.is_empty() && !control.push(SendAncillaryMessage::ScmRights(&borrowed)) {
            return Err(Errno::NOBUFS);
        }
        let bytes = request.encode();
        sendmsg(socket, &[IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL)?;
    }
    Ok(())
}

/// The descriptors that `execve` kept, as `/proc/self/fd` lists them.
fn open_descriptors() -> Result<Vec<i32>, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let own = openat(CWD, "/proc/self/fd", flags, Mode::empty())?;
    let mut found = Vec::new();
    for entry in Dir::read_from(&own)? {
        let name = entry?;
        let number = name.file_name().to_str().ok().and_then(|name| name.parse().ok());
        // The listing has a descriptor of its own.
        found.extend(number.filter(|fd| is_inheritable(*fd)));
    }
    Ok(found)
}

/// True if `execve` kept the descriptor: this process opens its own with `O_CLOEXEC`.
fn is_inheritable(fd: i32) -> bool {
    let flags = rustix::io::fcntl_getfd(sys::borrow(fd));
    flags.is_ok_and(|flags| !flags.contains(rustix::io::FdFlags::CLOEXEC))
}

/// Sends the received signals but SIGCHLD to the launcher. A command in the door's process
/// group gets those of the terminal from the kernel itself.
fn forward_signals(
    socket: &OwnedFd,
    signals: impl Iterator<Item = ReceivedSignal>,
    joined_group: bool,
) {
    for signal in signals {
        if signal.number == libc::SIGCHLD || joined_group && signal.from_kernel {
            continue;
        }
        let bytes = DoorRequest::Signal(signal.number).encode();
        let _ = send(socket, &bytes, SendFlags::NOSIGNAL);
    }
}

/// The next message of the launcher, and the file with it; `None` if the launcher has ended
/// or sent other bytes.
fn receive(socket: &OwnedFd) -> Option<(DoorReply, Option<OwnedFd>)> {
    let mut bytes = [0_u8; 8];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received =
        recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, RecvFlags::CMSG_CLOEXEC);
    let length = received.ok()?.bytes;
    let reply = DoorReply::decode(bytes.get(..length)?)?;
    let file = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut files) => files.next(),
        _ => None,
    });
    Some((reply, file))
}

/// Closes the descriptors that the command has now. A pipe would otherwise stay open after
/// the command has closed it.
fn close_all_but(kept: &[BorrowedFd<'_>]) {
    let mut numbers: Vec<i32> = kept.iter().map(|fd| fd.as_raw_fd()).collect();
    numbers.sort_unstable();
    let mut first = 0;
    for number in numbers {
        if number > first {
            sys::close_range(first, number - 1);
        }
        first = number + 1;
    }
    sys::close_range(first, i32::MAX);
}
