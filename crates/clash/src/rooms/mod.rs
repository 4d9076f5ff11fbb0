//! The records of rooms whose processes go on after their command.
//!
//! Each room has a file in `rooms` of the state directory. The room's keeper holds an
//! exclusive lock on it as long as it lives, however it ends. So a record without a lock
//! belongs to no room, and the next reader removes it.

mod processes;

use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime};

use clash_sandbox::room_ledger::{LeftRoom, RoomLedger};
use rustix::fs::{
    AtFlags, FlockOperation, Mode, OFlags, RenameFlags, flock, mkdirat, openat, renameat_with,
    unlinkat,
};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

use crate::dirs::{Dirs, create_private};
use crate::session::Session;
use processes::ProcessList;

const DIR: &str = "rooms";
const VERSION: u32 = 1;
/// The ending of the mark that the agent has heard of a room.
const TOLD: &str = "told";
/// The longest command in a record.
const MAX_COMMAND_CHARS: usize = 1000;
/// The time in which a stopped room ends. Afterwards its keeper is killed, which ends it.
const MAX_STOP_TIME: Duration = Duration::from_secs(20);
/// The hook of a session's end waits at most this long. The rooms end in any case.
const MAX_SESSION_STOP_TIME: Duration = Duration::from_secs(1);
const STOP_PAUSE: Duration = Duration::from_millis(5);
/// The time in which a command behind a door of an ended room gets its own keeper.
const MAX_HANDOVER_TIME: Duration = Duration::from_millis(300);
/// A record that is not complete after this time never will be.
const MAX_WRITE_TIME: Duration = Duration::from_secs(60);

/// The record of one room.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct RoomRecord {
    v: u32,
    pub(crate) id: String,
    /// The name of the session's directory.
    pub(crate) session: Option<String>,
    pub(crate) sandbox: String,
    pub(crate) command: String,
    pub(crate) project: PathBuf,
    /// The start of the command, in milliseconds since 1970.
    pub(crate) started: u64,
    pub(crate) keeper: u32,
    first: u32,
    broker: Option<u32>,
}

impl RoomRecord {
    /// The record of a room that may outlive its command.
    pub(crate) fn new(
        session: Option<&Session>,
        project: &Path,
        sandbox: &str,
        command: &str,
    ) -> Self {
        Self {
            v: VERSION,
            id: String::new(),
            session: session.map(|session| session.name.clone()),
            sandbox: sandbox.to_owned(),
            command: command.chars().take(MAX_COMMAND_CHARS).collect(),
            project: project.to_path_buf(),
            started: now(),
            keeper: 0,
            first: 0,
            broker: None,
        }
    }
}

fn now() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

/// Writes the record of a room, from inside the room's namespaces.
pub(crate) struct RecordedRoom {
    /// The state directory.
    state: OwnedFd,
    record: Mutex<RoomRecord>,
    held: Mutex<Option<(OwnedFd, File, String)>>,
}

impl RecordedRoom {
    /// Call this where the state directory can be reached by its path.
    pub(crate) fn prepare(dirs: &Dirs, record: RoomRecord) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let open = || rustix::fs::open(&dirs.state, flags, Mode::empty());
        let state = match open() {
            Err(Errno::NOENT) => {
                create_private(&dirs.state)?;
                open()?
            }
            opened => opened?,
        };
        Ok(Self { state, record: Mutex::new(record), held: Mutex::new(None) })
    }

    /// Writes the record of a room under a new short id. The file is locked before it gets
    /// its name, so a reader never sees a record of a living room without a lock. Returns the
    /// directory, the locked file and the id.
    fn write(&self, room: &LeftRoom) -> io::Result<(OwnedFd, File, String)> {
        let current = self.record.lock().map_err(|_| Errno::IO)?.clone();
        match mkdirat(&self.state, DIR, Mode::from_raw_mode(0o700)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let dir = openat(&self.state, DIR, flags, Mode::empty())?;
        let temp = format!(".{}", room.keeper);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC;
        let mut file = File::from(openat(&dir, &temp, flags, Mode::from_raw_mode(0o600))?);
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        // Two rooms may try the same name.
        for attempt in 0..1000_u64 {
            let mix = (now() ^ (u64::from(room.keeper) << 20)).wrapping_add(attempt);
            let id = format!("{:06x}", mix.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40);
            let record = RoomRecord {
                id: id.clone(),
                keeper: room.keeper,
                first: room.first,
                broker: room.broker,
                ..current.clone()
            };
            file.set_len(0)?;
            io::Seek::rewind(&mut file)?;
            file.write_all(&serde_json::to_vec(&record)?)?;
            match renameat_with(&dir, &temp, &dir, &id, RenameFlags::NOREPLACE) {
                Ok(()) => return Ok((dir, file, id)),
                Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }
}

impl RoomLedger for RecordedRoom {
    fn enter(&self, room: &LeftRoom) -> io::Result<()> {
        let written = self.write(room)?;
        if let Ok(mut held) = self.held.lock() {
            *held = Some(written);
        }
        Ok(())
    }

    fn rename(&self, command: &str) {
        if let Ok(mut record) = self.record.lock() {
            record.command = command.chars().take(MAX_COMMAND_CHARS).collect();
            record.started = now();
        }
    }

    fn leave(&self) {
        let Ok(mut held) = self.held.lock() else { return };
        if let Some((dir, file, id)) = held.take() {
            let _ = unlinkat(&dir, &id, AtFlags::empty());
            let _ = unlinkat(&dir, format!("{id}.{TOLD}"), AtFlags::empty());
            drop(file);
        }
    }
}

/// A room that runs.
#[derive(Clone, Debug)]
pub(crate) struct RunningRoom {
    pub(crate) record: RoomRecord,
    /// The number of its processes, with those behind its doors.
    pub(crate) processes: usize,
    /// The TCP ports on which they listen.
    pub(crate) ports: Vec<u16>,
}

/// All rooms that run without their command, the oldest first. Removes the records of rooms
/// that have ended.
pub(crate) fn list(dirs: &Dirs) -> Vec<RunningRoom> {
    let records = records(dirs);
    if records.is_empty() {
        return Vec::new();
    }
    let all = ProcessList::read();
    let running = records.into_iter().map(|(_, record)| {
        let processes = all.of_room(record.first, record.broker);
        let ports = processes::listening_ports(&processes);
        RunningRoom { record, processes: processes.len(), ports }
    });
    running.collect()
}

/// The records of rooms that run, the oldest first, each with its file. Removes the files of
/// rooms that have ended, and what killed keepers have left.
fn records(dirs: &Dirs) -> Vec<(File, RoomRecord)> {
    let dir = dirs.state.join(DIR);
    let mut found = Vec::new();
    for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = entry.path();
        if name.contains('.') {
            remove_orphan(&dir, &path, &name);
            continue;
        }
        let Ok(file) = File::open(&path) else { continue };
        match is_alive(&file) {
            true => {
                let record = serde_json::from_reader::<_, RoomRecord>(&file);
                found.extend(record.ok().filter(|it| it.v == VERSION).map(|it| (file, it)));
            }
            false => {
                let _ = fs::remove_file(&path);
                let _ = fs::remove_file(dir.join(format!("{name}.{TOLD}")));
            }
        }
    }
    found.sort_by_key(|(_, record)| record.started);
    found
}

/// Removes a mark without its record, and a record that a killed keeper did not complete.
fn remove_orphan(dir: &Path, path: &Path, name: &str) {
    let is_orphan = match name.strip_suffix(&format!(".{TOLD}")) {
        Some(room) => !dir.join(room).exists(),
        None => {
            let written = fs::metadata(path).and_then(|meta| meta.modified());
            let age = written.map(|at| at.elapsed().unwrap_or_default());
            age.is_ok_and(|age| age > MAX_WRITE_TIME)
        }
    };
    if is_orphan {
        let _ = fs::remove_file(path);
    }
}

/// True if the keeper of this record lives.
fn is_alive(file: &File) -> bool {
    match file.try_lock_shared() {
        Ok(()) => {
            let _ = file.unlock();
            false
        }
        Err(TryLockError::WouldBlock) => true,
        Err(TryLockError::Error(_)) => false,
    }
}

/// The rooms of a session of which the agent has not heard. Marks them as told.
pub(crate) fn find_untold(dirs: &Dirs, session: &str) -> Vec<RunningRoom> {
    let dir = dirs.state.join(DIR);
    // Usually there is no room at all.
    if fs::read_dir(&dir).map_or(true, |mut entries| entries.next().is_none()) {
        return Vec::new();
    }
    let mut rooms = list(dirs);
    rooms.retain(|room| {
        let is_own = room.record.session.as_deref() == Some(session);
        let mark = dir.join(format!("{}.{TOLD}", room.record.id));
        is_own && File::options().write(true).create_new(true).open(mark).is_ok()
    });
    rooms
}

/// Ends rooms and waits until they are gone.
pub(crate) fn stop(dirs: &Dirs, is_meant: impl Fn(&RoomRecord) -> bool) -> Vec<RoomRecord> {
    stop_within(dirs, is_meant, MAX_STOP_TIME, true)
}

/// Ends the rooms of a session, at its end. When a room ends, a command behind one of its
/// doors can get a keeper of its own, so this looks again until no new room appears.
pub(crate) fn stop_session(dirs: &Dirs, session: &str) -> Vec<RoomRecord> {
    let is_own = |record: &RoomRecord| record.session.as_deref() == Some(session);
    let end = Instant::now() + MAX_SESSION_STOP_TIME;
    let mut stopped: Vec<RoomRecord> = Vec::new();
    let mut quiet_since = Instant::now();
    loop {
        let left = end.saturating_duration_since(Instant::now());
        for record in stop_within(dirs, is_own, left, false) {
            quiet_since = Instant::now();
            if stopped.iter().all(|known| known.id != record.id) {
                stopped.push(record);
            }
        }
        let is_quiet = stopped.is_empty() || quiet_since.elapsed() > MAX_HANDOVER_TIME;
        if is_quiet || Instant::now() >= end {
            return stopped;
        }
        std::thread::sleep(STOP_PAUSE);
    }
}

/// Sends SIGTERM to the keepers of the rooms meant and waits for their end, at most `most`.
/// With `kills`, then sends SIGKILL and waits for their end without a limit. Returns the
/// records of all rooms meant, also of those that still run. Removes the records of rooms
/// that have ended.
fn stop_within(
    dirs: &Dirs,
    is_meant: impl Fn(&RoomRecord) -> bool,
    most: Duration,
    kills: bool,
) -> Vec<RoomRecord> {
    let mut left: Vec<(File, RoomRecord)> = records(dirs);
    left.retain(|(_, record)| is_meant(record));
    let stopped = left.iter().map(|(_, record)| record.clone()).collect();
    for (file, record) in &left {
        signal(file, record, Signal::TERM);
        // A keeper that was stopped goes on.
        signal(file, record, Signal::CONT);
    }
    let end = Instant::now() + most;
    while !left.is_empty() && Instant::now() < end {
        left.retain(|(file, _)| is_alive(file));
        std::thread::sleep(STOP_PAUSE);
    }
    if kills && !left.is_empty() {
        for (file, record) in &left {
            signal(file, record, Signal::KILL);
        }
        while left.iter().any(|(file, _)| is_alive(file)) {
            std::thread::sleep(STOP_PAUSE);
        }
    }
    // Removes the records of keepers that were killed.
    records(dirs);
    stopped
}

/// Sends a signal to the keeper, if it lives. The lock proves that the number of the process
/// is still the keeper's.
fn signal(file: &File, record: &RoomRecord, signal: Signal) {
    let pid = i32::try_from(record.keeper).ok().and_then(Pid::from_raw);
    let process = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
    if let Some(process) = process.filter(|_| is_alive(file)) {
        let _ = pidfd_send_signal(&process, signal);
    }
}
