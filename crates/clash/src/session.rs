//! A session: one run of an agent in one project. Its directory below clash's state
//! directory has the project root, the trace and the approvals.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::dirs::{Dirs, create_private, write_private};
use crate::project_root::{ProjectRoot, RootError};

/// An open session. Its record is on the disk.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    /// The agent's own text, whatever it is.
    pub(crate) id: String,
    /// The id as the name of a directory, see [`name_of`]. The same text for ids of
    /// letters, digits, `-` and `_`.
    pub(crate) name: String,
    pub(crate) dir: PathBuf,
    /// `$PWD` of policies. It is fixed when the session starts; a `cd` of the agent does
    /// not change it. The path has no links; [`Self::check_root`] checks that it still
    /// leads to the same directory.
    pub(crate) project: PathBuf,
    root: ProjectRoot,
    /// The agent, by its name in `clash hook NAME`.
    pub(crate) agent: String,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum SessionError {
    #[error("there is no session `{0}`")]
    Unknown(String),
    #[error("the record of session `{0}` cannot be used: start a new session")]
    BadRecord(String),
    #[error(transparent)]
    Root(#[from] RootError),
    #[error("cannot use the state directory {}: {source}", path.display())]
    State { path: PathBuf, source: io::Error },
}

const ROOT: &str = "root";
const AGENT: &str = "agent";

/// The directory in which the session's rooms find each other's servers, below the session's.
pub(crate) const SERVED_PORTS: &str = "served";

/// The file with the id, if the directory's name is not the id.
const ID: &str = "id";

/// The file in which older versions kept the path of the project, and nothing else.
const OLDER_PROJECT: &str = "project";

impl Session {
    /// Opens the session, and creates its directory and record if the session is new. Without
    /// an id, the project has one session.
    pub(crate) fn enter(
        dirs: &Dirs,
        id: &str,
        agent: &str,
        project: &Path,
    ) -> Result<Self, SessionError> {
        let name = if id.is_empty() { name_of_project(project) } else { name_of(id) };
        match Self::open_named(dirs, &name) {
            Err(SessionError::Unknown(_)) => Self::create(dirs, id, &name, agent, project),
            known => known,
        }
    }

    /// Opens a session that has a record, by the agent's id. Creates nothing.
    pub(crate) fn open(dirs: &Dirs, id: &str) -> Result<Self, SessionError> {
        Self::open_named(dirs, &name_of(id))
    }

    /// Opens a session by the text that a user typed: the agent's id, or the name that
    /// `clash log` shows.
    pub(crate) fn find(dirs: &Dirs, text: &str) -> Result<Self, SessionError> {
        match Self::open(dirs, text) {
            Err(SessionError::Unknown(_)) => Self::open_named(dirs, text),
            known => known,
        }
    }

    /// Opens a session by the name of its directory. Fails for an unknown or impossible name,
    /// and for a damaged record.
    pub(crate) fn open_named(dirs: &Dirs, name: &str) -> Result<Self, SessionError> {
        if !is_name(name) {
            return Err(SessionError::Unknown(brief(name)));
        }
        let dir = sessions_dir(dirs).join(name);
        match fs::read(dir.join(ROOT)) {
            Ok(bytes) => {
                let root = ProjectRoot::from_bytes(&bytes);
                let root = root.ok_or_else(|| SessionError::BadRecord(name.to_owned()))?;
                Ok(Self::from_record(name, dir, root))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Self::older(name, dir),
            Err(source) => Err(SessionError::State { path: dir, source }),
        }
    }

    /// The session of a record. A missing id is the name of the directory.
    fn from_record(name: &str, dir: PathBuf, root: ProjectRoot) -> Self {
        let agent = fs::read_to_string(dir.join(AGENT)).unwrap_or_default();
        let id = if is_plain(name) { None } else { fs::read_to_string(dir.join(ID)).ok() };
        let id = id.unwrap_or_else(|| name.to_owned());
        Self { id, name: name.to_owned(), dir, project: root.path.clone(), root, agent }
    }

    /// Opens a session of an older version. It records the directory now, unless a link is on
    /// the path: a command may have planted it since. Fails if there is no such session
    /// either.
    fn older(name: &str, dir: PathBuf) -> Result<Self, SessionError> {
        let path = match fs::read(dir.join(OLDER_PROJECT)) {
            Ok(path) => from_bytes(path),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(SessionError::Unknown(name.to_owned()));
            }
            Err(source) => return Err(SessionError::State { path: dir, source }),
        };
        let root = ProjectRoot::find(&path)?;
        if root.path != path {
            return Err(RootError::Replaced { path }.into());
        }
        let bad = || SessionError::BadRecord(name.to_owned());
        let root = note_once(&dir, &root)?.ok_or_else(bad)?;
        Ok(Self::from_record(name, dir, root))
    }

    /// Fails unless the project is still the directory in which the session began.
    pub(crate) fn check_root(&self) -> Result<(), RootError> {
        self.root.check()
    }

    /// Records the project anew, if the user resumes the session in a new directory of the
    /// same path, for example after another `git clone`.
    pub(crate) fn resume(&mut self) -> Result<(), SessionError> {
        let Ok(root) = ProjectRoot::find(&self.project) else { return Ok(()) };
        if root.path == self.project && root != self.root {
            let state = |source| SessionError::State { path: self.dir.clone(), source };
            write_private(&self.dir.join(ROOT), &root.to_bytes()).map_err(state)?;
            self.root = root;
        }
        Ok(())
    }

    /// Makes the directory of a session with its record. If another hook makes it at the same
    /// time, the record of the first holds.
    fn create(
        dirs: &Dirs,
        id: &str,
        name: &str,
        agent: &str,
        project: &Path,
    ) -> Result<Self, SessionError> {
        let dir = sessions_dir(dirs).join(name);
        let root = ProjectRoot::find(project)?;
        let state = |source| SessionError::State { path: dir.clone(), source };
        create_private(&dir.join(crate::approval::DIR)).map_err(state)?;
        fs::write(dir.join(AGENT), agent).map_err(state)?;
        if name != id {
            fs::write(dir.join(ID), id).map_err(state)?;
        }
        note_project(dirs, &root.path).map_err(state)?;
        let bad = || SessionError::BadRecord(name.to_owned());
        let root = note_once(&dir, &root)?.ok_or_else(bad)?;
        Ok(Self::from_record(name, dir, root))
    }

    /// A session in this directory, without a record.
    #[cfg(test)]
    pub(crate) fn imagined(dir: &Path) -> Self {
        let root = ProjectRoot::find(dir).unwrap();
        let (id, name, agent) = ("s".to_owned(), "s".to_owned(), "a".to_owned());
        Self { id, name, dir: dir.to_path_buf(), project: root.path.clone(), root, agent }
    }
}

/// The list of projects. The dot keeps it apart from sessions, whose names have none.
const PROJECTS: &str = ".projects";

/// The projects of all past sessions: their commands could write there.
pub(crate) fn projects(dirs: &Dirs) -> Vec<PathBuf> {
    let known = fs::read(sessions_dir(dirs).join(PROJECTS)).unwrap_or_default();
    let paths = known.split(|byte| *byte == 0).filter(|path| path.starts_with(b"/"));
    paths.map(|path| from_bytes(path.to_vec())).collect()
}

/// Appends a project to the list, unless it is there.
fn note_project(dirs: &Dirs, project: &Path) -> io::Result<()> {
    use std::io::Write;
    use std::os::unix::ffi::OsStrExt;
    if projects(dirs).iter().any(|known| known == project) {
        return Ok(());
    }
    let line = [project.as_os_str().as_bytes(), b"\0"].concat();
    let mut options = fs::File::options();
    options.create(true).append(true).open(sessions_dir(dirs).join(PROJECTS))?.write_all(&line)
}

/// Writes the record of the root unless there is one, and returns the record that is there.
/// If two hooks write at the same time, both get the record of the first.
fn note_once(dir: &Path, root: &ProjectRoot) -> Result<Option<ProjectRoot>, SessionError> {
    let state = |source| SessionError::State { path: dir.to_path_buf(), source };
    let temp = dir.join(format!("{ROOT}.{}", std::process::id()));
    fs::write(&temp, root.to_bytes()).map_err(state)?;
    let linked = fs::hard_link(&temp, dir.join(ROOT));
    fs::remove_file(&temp).map_err(state)?;
    match linked {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(state(error)),
        _ => Ok(ProjectRoot::from_bytes(&fs::read(dir.join(ROOT)).map_err(state)?)),
    }
}

pub(crate) fn sessions_dir(dirs: &Dirs) -> PathBuf {
    dirs.state.join("sessions")
}

/// The longest name of a session's directory.
const MAX_NAME_BYTES: usize = 128;

/// An id that is a directory's name as it stands.
fn is_plain(id: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    !id.is_empty() && id.len() <= MAX_NAME_BYTES && id.bytes().all(plain)
}

/// A name that [`name_of`] or [`name_of_project`] may have made.
fn is_name(name: &str) -> bool {
    is_plain(&name.replace('%', "_"))
}

/// The directory's name for an id. Ids come from the agent and may be any text. Two
/// ids never share a name: other bytes than letters, digits, `-` and `_` become `%`
/// and two hexadecimal digits, for example `a%40b`; a longer id becomes its digest.
pub(crate) fn name_of(id: &str) -> String {
    if is_plain(id) {
        return id.to_owned();
    }
    let mut name = String::new();
    for byte in id.bytes() {
        match byte {
            b'-' | b'_' => name.push(char::from(byte)),
            byte if byte.is_ascii_alphanumeric() => name.push(char::from(byte)),
            byte => name.push_str(&format!("%{byte:02X}")),
        }
        if name.len() > MAX_NAME_BYTES {
            // `%lo` is no escaped byte.
            return format!("%long-{}", blake3::hash(id.as_bytes()).to_hex());
        }
    }
    name
}

/// The directory's name where the agent gives no id: one session for each project.
fn name_of_project(project: &Path) -> String {
    use std::os::unix::ffi::OsStrExt;
    format!("%none-{}", blake3::hash(project.as_os_str().as_bytes()).to_hex())
}

/// An unknown name in a message.
fn brief(name: &str) -> String {
    name.chars().take(40).collect()
}

fn from_bytes(bytes: Vec<u8>) -> PathBuf {
    use std::os::unix::ffi::OsStringExt;
    std::ffi::OsString::from_vec(bytes).into()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_id_has_a_directory_of_its_own() {
        let long = "x".repeat(4096);
        let other = format!("{}y", "x".repeat(4095));
        let ids = [
            "a@b",
            "a%40b",
            "a%b",
            "a/b",
            "a",
            "A",
            "../x",
            "/",
            ".",
            "..",
            ".projects",
            "ä",
            "a\0b",
            "a\nb",
            "%long-",
            &long,
            &other,
        ];
        let names: HashSet<String> = ids.iter().map(|id| name_of(id)).collect();
        assert_eq!(names.len(), ids.len(), "{names:?}");
        for name in &names {
            assert!(is_name(name) && name.len() <= MAX_NAME_BYTES, "{name}");
        }
        assert_eq!(name_of("a@b"), "a%40b");
    }

    #[test]
    fn ids_of_older_versions_keep_their_directory() {
        for id in ["0f3a-b_C", &"x".repeat(128)] {
            assert_eq!(name_of(id), id);
        }
        assert!(name_of(&"x".repeat(129)).starts_with("%long-"));
    }

    #[test]
    fn a_name_leads_nowhere_else() {
        for name in ["", "..", "a/b", ".projects", "a.b", "ä"] {
            assert!(!is_name(name), "{name}");
        }
    }
}
