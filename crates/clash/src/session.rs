//! A session: one run of an agent in one project. Its directory below clash's
//! state holds the project root, the trace and the open approvals.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::dirs::{Dirs, create_private};

#[derive(Clone, Debug)]
pub(crate) struct Session {
    pub(crate) id: String,
    pub(crate) dir: PathBuf,
    /// `$PWD` of policies: fixed when the session starts, whatever the agent
    /// does with `cd`.
    pub(crate) project: PathBuf,
    /// Whose session it is, in the word of `clash hook`.
    pub(crate) agent: String,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum SessionError {
    #[error("`{0}` cannot be a session id")]
    BadId(String),
    #[error("there is no session `{0}`")]
    Unknown(String),
    #[error("cannot use the state directory {}: {source}", path.display())]
    State { path: PathBuf, source: io::Error },
}

const PROJECT: &str = "project";
const AGENT: &str = "agent";

impl Session {
    /// Opens the session, creating its record on first sight.
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

    /// Opens a session that has been seen before.
    pub(crate) fn open(dirs: &Dirs, id: &str) -> Result<Self, SessionError> {
        let dir = directory(dirs, id)?;
        match fs::read(dir.join(PROJECT)) {
            Ok(path) => {
                let agent = fs::read_to_string(dir.join(AGENT)).unwrap_or_default();
                Ok(Self { id: id.to_owned(), dir, project: from_bytes(path), agent })
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(SessionError::Unknown(id.to_owned()))
            }
            Err(source) => Err(SessionError::State { path: dir, source }),
        }
    }

    fn create(dirs: &Dirs, id: &str, agent: &str, project: &Path) -> Result<Self, SessionError> {
        use std::os::unix::ffi::OsStrExt;
        let dir = directory(dirs, id)?;
        let state = |source| SessionError::State { path: dir.clone(), source };
        create_private(&dir.join(crate::approval::DIR)).map_err(state)?;
        fs::write(dir.join(AGENT), agent).map_err(state)?;
        // Two hooks may arrive at once: whoever links first decides, and both
        // read what stands there.
        let temp = dir.join(format!("{PROJECT}.{}", std::process::id()));
        fs::write(&temp, project.as_os_str().as_bytes()).map_err(state)?;
        let linked = fs::hard_link(&temp, dir.join(PROJECT));
        fs::remove_file(&temp).map_err(state)?;
        match linked {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(state(error)),
            _ => Self::open(dirs, id),
        }
    }
}

pub(crate) fn sessions_dir(dirs: &Dirs) -> PathBuf {
    dirs.state.join("sessions")
}

/// Ids come from the agent and become a directory name.
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
