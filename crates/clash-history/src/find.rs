//! Finds histories on this machine.

use std::fs::{self, File};
use std::io::{self, BufReader};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::{CallSink, ReadTally, claude, codex, gemini, opencode, own};

/// The directories agents and clash keep their state in.
#[derive(Clone, Debug)]
pub struct HistoryRoots {
    /// `sessions` of clash's state.
    pub clash: PathBuf,
    /// `~/.claude`
    pub claude: PathBuf,
    /// `~/.codex`
    pub codex: PathBuf,
    /// `~/.gemini`
    pub gemini: PathBuf,
    /// `~/.local/share/opencode`
    pub opencode: PathBuf,
}

impl HistoryRoots {
    /// The roots by the names of the agents. An agent without a directory has no history.
    pub fn new(clash: PathBuf, of_agent: impl Fn(&str) -> Option<PathBuf>) -> Self {
        let root = |name| of_agent(name).unwrap_or_default();
        Self {
            clash,
            claude: root("claude"),
            codex: root("codex"),
            gemini: root("gemini"),
            opencode: root("opencode"),
        }
    }
}

/// The writer and format of a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum HistoryKind {
    Clash,
    Claude,
    Codex,
    Gemini,
    OpencodeDatabase,
    OpencodeStorage,
}

/// A history on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryFile {
    pub kind: HistoryKind,
    pub path: PathBuf,
    pub changed: SystemTime,
}

#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    #[error("cannot read {}: {source}", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("`{}` is no history clash knows", .0.display())]
    Unknown(PathBuf),
    #[error("there is no history of an agent here")]
    None,
}

/// Directories nest at most this deep below the directory of an agent.
const MAX_HISTORY_DEPTH: usize = 6;

impl HistoryFile {
    /// `None` if the file is gone. The log of a database counts for its time.
    fn at(kind: HistoryKind, path: PathBuf) -> Option<Self> {
        let changed = fs::metadata(&path).and_then(|meta| meta.modified()).ok()?;
        let beside = path.with_extension("db-wal");
        let newer = fs::metadata(beside).and_then(|meta| meta.modified()).ok();
        let changed =
            newer.filter(|_| kind == HistoryKind::OpencodeDatabase).unwrap_or(changed).max(changed);
        Some(Self { kind, path, changed })
    }

    /// Passes on the calls of the history, and gives the counts of its records. An error of
    /// reading ends it; the calls before it have been passed on.
    pub(crate) fn read(
        &self,
        agents: &[&'static str],
        each: &mut CallSink<'_>,
    ) -> (io::Result<ControlFlow<()>>, ReadTally) {
        let mut tally = ReadTally::default();
        let result = self.open(agents, &mut tally, each);
        (result, tally)
    }

    /// Reads bytes as if a file held them. A database can only be read from a file.
    pub fn read_bytes(
        &self,
        bytes: &[u8],
        agents: &[&'static str],
        each: &mut CallSink<'_>,
    ) -> ReadTally {
        let mut tally = ReadTally::default();
        // Reading from memory cannot fail.
        let _ = match self.kind {
            HistoryKind::Clash => own::read(&self.path, bytes, agents, &mut tally, each),
            HistoryKind::Claude => claude::read(bytes, &mut tally, each),
            HistoryKind::Codex => codex::read(bytes, &mut tally, each),
            HistoryKind::Gemini => gemini::read(&self.path, bytes, &mut tally, each),
            HistoryKind::OpencodeDatabase | HistoryKind::OpencodeStorage => {
                Ok(ControlFlow::Continue(()))
            }
        };
        tally
    }

    /// Opens the file and reads it by its kind.
    fn open(
        &self,
        agents: &[&'static str],
        tally: &mut ReadTally,
        each: &mut CallSink<'_>,
    ) -> io::Result<ControlFlow<()>> {
        let file =
            || Ok::<_, io::Error>(BufReader::with_capacity(1 << 16, File::open(&self.path)?));
        match self.kind {
            HistoryKind::Clash => own::read(&self.path, file()?, agents, tally, each),
            HistoryKind::Claude => claude::read(file()?, tally, each),
            HistoryKind::Codex => codex::read(file()?, tally, each),
            HistoryKind::Gemini => gemini::read(&self.path, file()?, tally, each),
            HistoryKind::OpencodeDatabase => opencode::read_database(&self.path, tally, each),
            HistoryKind::OpencodeStorage => opencode::read_storage(&self.path, tally, each),
        }
    }
}

/// Every history on this machine, oldest first. Directories that cannot be read are left
/// out, and links are not followed.
pub fn all_histories(roots: &HistoryRoots) -> Vec<HistoryFile> {
    let mut found = Vec::new();
    for dir in [
        roots.clash.clone(),
        roots.claude.join("projects"),
        roots.codex.join("sessions"),
        roots.codex.join("archived_sessions"),
        roots.gemini.join("tmp"),
        roots.opencode.clone(),
    ] {
        collect(&dir, 0, false, &mut found);
    }
    sorted(found)
}

/// The history that was written last; an error if there is none.
pub fn latest_history(roots: &HistoryRoots) -> Result<HistoryFile, HistoryError> {
    all_histories(roots).pop().ok_or(HistoryError::None)
}

/// Every history in a directory, oldest first; an error if there is none.
pub fn histories_below(dir: &Path) -> Result<Vec<HistoryFile>, HistoryError> {
    fs::read_dir(dir)
        .map_err(|source| HistoryError::Unreadable { path: dir.to_path_buf(), source })?;
    let mut found = Vec::new();
    collect(dir, 0, true, &mut found);
    if found.is_empty() { Err(HistoryError::None) } else { Ok(sorted(found)) }
}

/// The history in a file, recognised by its name, otherwise by its first bytes. An error if
/// the file cannot be read or is no history.
pub fn history_at(path: &Path) -> Result<HistoryFile, HistoryError> {
    let unreadable = |source| HistoryError::Unreadable { path: path.to_path_buf(), source };
    fs::metadata(path).map_err(unreadable)?;
    let kind = match by_name(path) {
        Some(kind) => kind,
        None => by_beginning(path)
            .map_err(unreadable)?
            .ok_or(HistoryError::Unknown(path.to_path_buf()))?,
    };
    HistoryFile::at(kind, path.to_path_buf()).ok_or(HistoryError::Unknown(path.to_path_buf()))
}

/// The oldest first; of the same time, in the order of their paths.
fn sorted(mut found: Vec<HistoryFile>) -> Vec<HistoryFile> {
    found.sort_by(|a, b| (a.changed, &a.path).cmp(&(b.changed, &b.path)));
    found
}

/// Collects the files that are histories by their name. With `anywhere`, for a directory
/// that the user named, also by their first bytes.
fn collect(dir: &Path, depth: usize, anywhere: bool, found: &mut Vec<HistoryFile>) {
    if dir.file_name().is_some_and(|name| name == "storage") && dir.join("part").is_dir() {
        found.extend(HistoryFile::at(HistoryKind::OpencodeStorage, dir.to_path_buf()));
        return;
    }
    let Ok(entries) = fs::read_dir(dir) else { return };
    for entry in entries.flatten() {
        // Links are not followed: they could lead anywhere.
        let Ok(kind) = entry.file_type() else { continue };
        let path = entry.path();
        if kind.is_dir() && depth < MAX_HISTORY_DEPTH {
            collect(&path, depth + 1, anywhere, found);
        } else if kind.is_file() {
            let looks = || {
                let named = path.extension().is_some_and(|it| it == "jsonl");
                if anywhere && named { by_beginning(&path).ok().flatten() } else { None }
            };
            let kind = by_name(&path).or_else(looks);
            found.extend(kind.and_then(|kind| HistoryFile::at(kind, path)));
        }
    }
}

/// The kind of a file by its name and its directory.
fn by_name(path: &Path) -> Option<HistoryKind> {
    let name = path.file_name()?.to_str()?;
    let inside = |dir: &str| path.parent().is_some_and(|parent| parent.ends_with(dir));
    Some(match name {
        _ if name.starts_with("trace.") && name.ends_with(".jsonl") => HistoryKind::Clash,
        "opencode.db" => HistoryKind::OpencodeDatabase,
        _ if name.starts_with("rollout-") && name.ends_with(".jsonl") => HistoryKind::Codex,
        _ if name.starts_with("session-") && inside("chats") => match name.rsplit_once('.')?.1 {
            "json" | "jsonl" => HistoryKind::Gemini,
            _ => return None,
        },
        // The file name is the id of a session or of a sub-agent.
        _ if name.ends_with(".jsonl")
            && path
                .ancestors()
                .skip(1)
                .take(4)
                .any(|dir| dir.parent().is_some_and(|above| above.ends_with("projects"))) =>
        {
            HistoryKind::Claude
        }
        _ => return None,
    })
}

/// The kind of a copied file, by its first 64 KiB, or of a copied directory.
fn by_beginning(path: &Path) -> io::Result<Option<HistoryKind>> {
    use std::io::Read;
    if path.is_dir() {
        return Ok(path.join("part").is_dir().then_some(HistoryKind::OpencodeStorage));
    }
    let mut head = Vec::new();
    File::open(path)?.take(1 << 16).read_to_end(&mut head)?;
    if head.starts_with(b"SQLite format 3\0") {
        return Ok(Some(HistoryKind::OpencodeDatabase));
    }
    let head = String::from_utf8_lossy(&head);
    let marks = [
        ("\"projectHash\"", HistoryKind::Gemini),
        ("\"payload\"", HistoryKind::Codex),
        ("\"sessionId\"", HistoryKind::Claude),
        ("\"v\":1,\"time\"", HistoryKind::Clash),
    ];
    Ok(marks.into_iter().find(|(mark, _)| head.contains(mark)).map(|(_, kind)| kind))
}
