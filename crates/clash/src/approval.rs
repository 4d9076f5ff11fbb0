//! Approvals: the slip a hook leaves for the launcher.
//!
//! The hook writes one for every script it lets through or asks about; the
//! launcher takes it away when it runs that script. So the launcher knows that
//! an *ask* was answered (an agent starts a command it asked about only after
//! a yes), and the hook that runs afterwards knows whether the launcher ran at
//! all: a slip still lying there means the command ran some other way.

use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use crate::session::Session;

pub(crate) const DIR: &str = "approvals";

/// A prompt that was answered no leaves its slip behind; after this long it is
/// worth nothing.
const LIFETIME: Duration = Duration::from_secs(60 * 60);

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Approval {
    pub(crate) script: String,
    /// The sandbox the user was told about.
    pub(crate) sandbox: String,
    /// The agent's id of the tool call.
    pub(crate) call: String,
    /// Whether the user was asked, and so may have said no.
    pub(crate) asked: bool,
    /// The permission mode the decision was made in.
    pub(crate) mode: String,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum ApprovalError {
    #[error("nothing was decided under the id `{0}` in this session")]
    Unknown(String),
    #[error("the command is not the one that was decided")]
    Changed,
    #[error("the approval has expired")]
    Expired,
    #[error("cannot use {}: {source}{}", path.display(), inside(source))]
    Io { path: PathBuf, source: io::Error },
}

/// Part of the launcher's refusal inside a sandbox that the agent brings along.
pub(crate) const OWN_SANDBOX: &str =
    "; clash cannot work inside the agent's own sandbox: switch that one off";

/// Commands get no approval inside a sandbox that the agent brings along.
fn inside(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied => OWN_SANDBOX,
        _ => "",
    }
}

impl Approval {
    /// Leaves the slip; the name returned is random and cannot be guessed.
    pub(crate) fn leave(&self, session: &Session) -> Result<String, ApprovalError> {
        let dir = session.dir.join(DIR);
        let failed = |source: io::Error| ApprovalError::Io { path: dir.clone(), source };
        let mut random = [0; 16];
        fs::File::open("/dev/urandom")
            .and_then(|mut file| file.read_exact(&mut random))
            .map_err(failed)?;
        let name: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        let text = serde_json::to_vec(self).map_err(|error| failed(error.into()))?;
        let mut file = fs::File::options()
            .write(true)
            .create_new(true)
            .open(dir.join(&name))
            .map_err(failed)?;
        file.write_all(&text).map_err(failed)?;
        Ok(name)
    }

    /// Takes the slip with this name, if it is about this script.
    pub(crate) fn take(session: &Session, name: &str, script: &str) -> Result<Self, ApprovalError> {
        let unknown = || ApprovalError::Unknown(name.chars().take(40).collect());
        if !is_name(name) {
            return Err(unknown());
        }
        let path = session.dir.join(DIR).join(name);
        let Some(approval) = read(&path) else { return Err(unknown()) };
        if approval.script != script {
            return Err(ApprovalError::Changed);
        }
        claim(&path)?.then_some(approval).ok_or_else(unknown)
    }

    /// Takes a slip about this script, whatever its name.
    pub(crate) fn take_any(session: &Session, script: &str) -> Result<Option<Self>, ApprovalError> {
        for path in slips(session)? {
            match read(&path) {
                Some(approval) if approval.script == script => match claim(&path) {
                    Ok(true) => return Ok(Some(approval)),
                    Ok(false) | Err(ApprovalError::Expired) => {}
                    Err(error) => return Err(error),
                },
                _ => {}
            }
        }
        Ok(None)
    }

    /// The slip of this name, if it lies there for this script; it stays.
    pub(crate) fn look(session: &Session, name: &str, script: &str) -> Option<Self> {
        let slip = is_name(name).then(|| read(&session.dir.join(DIR).join(name))).flatten();
        slip.filter(|approval| approval.script == script)
    }

    /// Whether the slip with this name still lies there; removes it.
    pub(crate) fn is_left(session: &Session, name: &str) -> bool {
        is_name(name) && fs::remove_file(session.dir.join(DIR).join(name)).is_ok()
    }

    /// Removes the slip of a finished tool call. `true`: it still lay there, so
    /// the launcher never ran that script.
    pub(crate) fn left_over(session: &Session, call: &str) -> Result<bool, ApprovalError> {
        for path in slips(session)? {
            if read(&path).is_some_and(|approval| approval.call == call) {
                let _ = fs::remove_file(&path);
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Removes the slips of questions that nobody has answered yet.
    pub(crate) fn discard_asked(session: &Session) {
        for path in slips(session).unwrap_or_default() {
            if read(&path).is_none_or(|approval| approval.asked) {
                let _ = fs::remove_file(path);
            }
        }
    }

    /// Removes everything still open, at the end of a session.
    pub(crate) fn discard_all(session: &Session) {
        for path in slips(session).unwrap_or_default() {
            let _ = fs::remove_file(path);
        }
    }
}

/// What [`Approval::leave`] gives out, and nothing that leads elsewhere.
fn is_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_hexdigit())
}

fn slips(session: &Session) -> Result<Vec<PathBuf>, ApprovalError> {
    let dir = session.dir.join(DIR);
    let failed = |source| ApprovalError::Io { path: dir.clone(), source };
    let entries = fs::read_dir(&dir).map_err(failed)?;
    Ok(entries.filter_map(Result::ok).map(|entry| entry.path()).collect())
}

fn read(path: &Path) -> Option<Approval> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

/// Whoever removes the file owns it; of two that try, one succeeds.
fn claim(path: &Path) -> Result<bool, ApprovalError> {
    let age = fs::metadata(path)
        .and_then(|meta| meta.modified())
        .map(|when| SystemTime::now().duration_since(when).unwrap_or_default());
    match fs::remove_file(path) {
        Ok(()) if age.is_ok_and(|age| age > LIFETIME) => Err(ApprovalError::Expired),
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(source) => Err(ApprovalError::Io { path: path.to_path_buf(), source }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session() -> (tempfile::TempDir, Session) {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join(DIR)).unwrap();
        let session = Session::imagined(dir.path());
        (dir, session)
    }

    fn slip(script: &str) -> Approval {
        Approval {
            script: script.into(),
            sandbox: "project".into(),
            call: "call-1".into(),
            asked: true,
            mode: String::new(),
        }
    }

    #[test]
    fn a_slip_is_good_once_and_only_for_its_script() {
        let (_dir, session) = session();
        let name = slip("make").leave(&session).unwrap();
        assert!(matches!(Approval::take(&session, &name, "rm -rf x"), Err(ApprovalError::Changed)));
        assert_eq!(Approval::take(&session, &name, "make").unwrap(), slip("make"));
        assert!(matches!(Approval::take(&session, &name, "make"), Err(ApprovalError::Unknown(_))));
    }

    #[test]
    fn a_name_that_is_not_ours_reads_no_file() {
        let (_dir, session) = session();
        for name in ["", "../project", "zz", "/etc/passwd"] {
            assert!(matches!(Approval::take(&session, name, "x"), Err(ApprovalError::Unknown(_))));
        }
    }

    #[test]
    fn a_question_that_was_not_answered_is_forgotten_and_an_allow_is_not() {
        let (_dir, session) = session();
        slip("asked").leave(&session).unwrap();
        Approval { asked: false, ..slip("allowed") }.leave(&session).unwrap();
        Approval::discard_asked(&session);
        assert_eq!(Approval::take_any(&session, "asked").unwrap(), None);
        assert!(Approval::take_any(&session, "allowed").unwrap().is_some());
    }

    #[test]
    fn what_was_not_taken_is_found_afterwards() {
        let (_dir, session) = session();
        slip("make").leave(&session).unwrap();
        assert!(Approval::left_over(&session, "call-1").unwrap());
        assert!(!Approval::left_over(&session, "call-1").unwrap());
        slip("make").leave(&session).unwrap();
        assert_eq!(Approval::take_any(&session, "make").unwrap(), Some(slip("make")));
        assert_eq!(Approval::take_any(&session, "make").unwrap(), None);
        assert!(!Approval::left_over(&session, "call-1").unwrap());
    }
}
