//! A session: one run of an agent in one project. Its directory below clash's state
//! directory has the project root, the trace and the approvals.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::dirs::{Dirs, create_private, write_private};
use crate::project_root::{ProjectRoot, RootError};

#[derive(Clone, Debug)]
pub(crate) struct Session {
    pub(crate) id: String,
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
    #[error("`{0}` cannot be a session id")]
    BadId(String),
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

/// The file in which older versions kept the path of the project, and nothing else.
const OLDER_PROJECT: &str = "project";

impl Session {
    /// Opens the session, and creates its record if the session is new.
    pub(crate) fn enter(
        dirs: &Dirs,
        id: &str,
        agent: &str,
        project: &Path,
    ) -> Result<Self, SessionError> {
        match Self::open(dirs, id) {
            Err(SessionError::Unknown(_)) => Self::create(dirs, id, agent, project),
            known => known,
        }
    }

    /// Opens a session that has a record.
    pub(crate) fn open(dirs: &Dirs, id: &str) -> Result<Self, SessionError> {
        let dir = directory(dirs, id)?;
        match fs::read(dir.join(ROOT)) {
            Ok(bytes) => {
                let root = ProjectRoot::from_bytes(&bytes);
                let root = root.ok_or_else(|| SessionError::BadRecord(id.to_owned()))?;
                Ok(Self::with(id, dir, root))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Self::older(id, dir),
            Err(source) => Err(SessionError::State { path: dir, source }),
        }
    }

    fn with(id: &str, dir: PathBuf, root: ProjectRoot) -> Self {
        let agent = fs::read_to_string(dir.join(AGENT)).unwrap_or_default();
        Self { id: id.to_owned(), dir, project: root.path.clone(), root, agent }
    }

    /// Opens a session of an older version. It records the directory now, unless a link
    /// is on the path: a command may have planted it since.
    fn older(id: &str, dir: PathBuf) -> Result<Self, SessionError> {
        let path = match fs::read(dir.join(OLDER_PROJECT)) {
            Ok(path) => from_bytes(path),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(SessionError::Unknown(id.to_owned()));
            }
            Err(source) => return Err(SessionError::State { path: dir, source }),
        };
        let root = ProjectRoot::find(&path)?;
        if root.path != path {
            return Err(RootError::Replaced { path }.into());
        }
        let root = note_once(&dir, &root)?.ok_or_else(|| SessionError::BadRecord(id.to_owned()))?;
        Ok(Self::with(id, dir, root))
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

    fn create(dirs: &Dirs, id: &str, agent: &str, project: &Path) -> Result<Self, SessionError> {
        let dir = directory(dirs, id)?;
        let root = ProjectRoot::find(project)?;
        let state = |source| SessionError::State { path: dir.clone(), source };
        create_private(&dir.join(crate::approval::DIR)).map_err(state)?;
        fs::write(dir.join(AGENT), agent).map_err(state)?;
        note_project(dirs, &root.path).map_err(state)?;
        let root = note_once(&dir, &root)?.ok_or_else(|| SessionError::BadRecord(id.to_owned()))?;
        Ok(Self::with(id, dir, root))
    }

    #[cfg(test)]
    pub(crate) fn imagined(dir: &Path) -> Self {
        let root = ProjectRoot::find(dir).unwrap();
        let (id, agent) = ("s".to_owned(), "a".to_owned());
        Self { id, dir: dir.to_path_buf(), project: root.path.clone(), root, agent }
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

/// The directory of a session. The id comes from the agent, so it is checked before it
/// becomes a name.
fn directory(dirs: &Dirs, id: &str) -> Result<PathBuf, SessionError> {
    let plain = !id.is_empty()
        && id.len() <= 128
        && id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
    if !plain {
        return Err(SessionError::BadId(id.chars().take(40).collect()));
    }
    Ok(sessions_dir(dirs).join(id))
}

fn from_bytes(bytes: Vec<u8>) -> PathBuf {
    use std::os::unix::ffi::OsStringExt;
    std::ffi::OsString::from_vec(bytes).into()
}
