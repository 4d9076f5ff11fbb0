//! Approvals: the slip a hook leaves for the launcher.
//!
//! The hook writes a slip for every script that it allows or asks about. The launcher
//! removes the slip when it runs that script. So the launcher knows that the user
//! answered an *ask* with yes: an agent starts such a command only after a yes. And the
//! hook after the call knows whether the launcher ran: if the slip is still there, the
//! command ran some other way.

use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use crate::rights::ExtraRight;
use crate::session::Session;

/// The directory of the slips, below the session's.
pub(crate) const DIR: &str = "approvals";

/// A question that the user answered with no leaves its slip behind. After this time
/// the launcher does not accept it.
const LIFETIME: Duration = Duration::from_secs(60 * 60);

/// After this time no hook needs a slip any more.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(24 * 60 * 60);

/// The decision of a hook about one script, as JSON in a file of the session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ApprovalSlip {
    pub(crate) script: String,
    /// The sandbox the user was told about.
    pub(crate) sandbox: String,
    /// The agent's id of the tool call.
    pub(crate) call: String,
    /// The id of the action in the trace: that of the call, if the agent gives one.
    #[serde(default)]
    pub(crate) action: String,
    /// True if the client asked the user, who may have said no.
    pub(crate) asked: bool,
    /// The permission mode of the client at the time of the decision.
    pub(crate) mode: String,
    /// Further rights of this one run, to which the user has agreed or is asked to.
    #[serde(default)]
    pub(crate) rights: Vec<ExtraRight>,
    /// True if the user allowed this run although the policy does not.
    #[serde(default)]
    pub(crate) permitted: bool,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum ApprovalError {
    #[error("this session has no decision with the id `{0}`")]
    Unknown(String),
    #[error("the command differs from the one that the policy decided")]
    Changed,
    #[error("the approval has expired")]
    Expired,
    #[error("cannot use {}: {source}{}", path.display(), own_sandbox_note(source))]
    Io { path: PathBuf, source: io::Error },
}

/// Part of the launcher's refusal inside the agent's own sandbox. The hook after the call
/// looks for this text.
pub(crate) const OWN_SANDBOX: &str =
    "; clash cannot work inside the agent's own sandbox: switch that one off";

/// The agent's own sandbox lets no command remove its slip.
fn own_sandbox_note(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied => OWN_SANDBOX,
        _ => "",
    }
}

impl ApprovalSlip {
    /// Writes the slip under a random name that cannot be guessed, and returns the name.
    pub(crate) fn leave(&self, session: &Session) -> Result<String, ApprovalError> {
        let dir = session.dir.join(DIR);
        let failed = |source: io::Error| ApprovalError::Io { path: dir.clone(), source };
        let name = random_name().map_err(failed)?;
        let text = serde_json::to_vec(self).map_err(|error| failed(error.into()))?;
        let mut file = fs::File::options()
            .write(true)
            .create_new(true)
            .open(dir.join(&name))
            .map_err(failed)?;
        file.write_all(&text).map_err(failed)?;
        Ok(name)
    }

    /// Removes and returns the slip of this name. Fails if there is none, if it is about
    /// another script (it then stays), or if it is older than an hour.
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

    /// Removes and returns one slip about this script; `None` if there is none. Expired slips
    /// are removed and skipped.
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

    /// Reads the slip of this name, if it is about this script, and leaves it there. Does not
    /// check its age.
    pub(crate) fn look(session: &Session, name: &str, script: &str) -> Option<Self> {
        let slip = is_name(name).then(|| read(&session.dir.join(DIR).join(name))).flatten();
        slip.filter(|approval| approval.script == script)
    }

    /// Removes the slip of this name. True if it was still there, or if it cannot be removed:
    /// then the launcher could not remove it either. False for a name that is none.
    pub(crate) fn remove_left(session: &Session, name: &str) -> bool {
        is_name(name) && remove(&session.dir.join(DIR).join(name)).unwrap_or(true)
    }

    /// Removes the slip of a finished tool call. True if it was still there: then the
    /// launcher did not run that script. Fails if the slips cannot be listed.
    pub(crate) fn remove_of_call(session: &Session, call: &str) -> Result<bool, ApprovalError> {
        for path in slips(session)? {
            if read(&path).is_some_and(|approval| approval.call == call) {
                let _ = fs::remove_file(&path);
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Removes the slips of all questions, and those that cannot be read: the user may have
    /// answered with no. Fails if one cannot be removed.
    pub(crate) fn discard_asked(session: &Session) -> Result<(), ApprovalError> {
        for path in slips(session)? {
            if read(&path).is_none_or(|approval| approval.asked) {
                remove(&path)?;
            }
        }
        Ok(())
    }

    /// Removes the slips of requests: the user may have answered them with no, and no other
    /// command may have their rights.
    pub(crate) fn discard_requests(session: &Session) -> Result<(), ApprovalError> {
        for path in slips(session)? {
            if read(&path).is_none_or(|approval| approval.asked && !approval.rights.is_empty()) {
                remove(&path)?;
            }
        }
        Ok(())
    }

    /// Removes all slips, at the end of a session. A slip that stays expires.
    pub(crate) fn discard_all(session: &Session) {
        for path in slips(session).unwrap_or_default() {
            let _ = fs::remove_file(path);
        }
    }
}

/// 32 random hexadecimal digits.
pub(crate) fn random_name() -> io::Result<String> {
    let mut random = [0; 16];
    fs::File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut random))?;
    Ok(random.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// True for a name as [`ApprovalSlip::leave`] makes it, which leads to no other directory.
fn is_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_hexdigit())
}

/// Removes slips that no launcher took for a day, in all sessions. For example, an agent that
/// was killed never runs the command that its hook allowed.
pub(crate) fn sweep(sessions: &Path) {
    for session in fs::read_dir(sessions).into_iter().flatten().flatten() {
        for slip in fs::read_dir(session.path().join(DIR)).into_iter().flatten().flatten() {
            let written = slip.metadata().and_then(|meta| meta.modified());
            let age = written.map(|at| at.elapsed().unwrap_or_default());
            if age.is_ok_and(|age| age > FORGOTTEN_AFTER) {
                let _ = fs::remove_file(slip.path());
            }
        }
    }
}

/// The paths of all slips of a session.
fn slips(session: &Session) -> Result<Vec<PathBuf>, ApprovalError> {
    let dir = session.dir.join(DIR);
    let failed = |source| ApprovalError::Io { path: dir.clone(), source };
    let entries = fs::read_dir(&dir).map_err(failed)?;
    Ok(entries.filter_map(Result::ok).map(|entry| entry.path()).collect())
}

/// The slip in a file; `None` if it cannot be read or understood.
fn read(path: &Path) -> Option<ApprovalSlip> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

/// Removes the slip for a launcher. True if this launcher removed it, false if it was not
/// there: of two launchers that try, only one succeeds. An old slip, and one of unknown age,
/// has expired; it is removed too.
fn claim(path: &Path) -> Result<bool, ApprovalError> {
    let age = fs::metadata(path)
        .and_then(|meta| meta.modified())
        .map(|when| SystemTime::now().duration_since(when).unwrap_or_default());
    let is_fresh = age.is_ok_and(|age| age <= LIFETIME);
    match remove(path)? {
        true if !is_fresh => Err(ApprovalError::Expired),
        removed => Ok(removed),
    }
}

/// Removes a slip. True if it was there.
fn remove(path: &Path) -> Result<bool, ApprovalError> {
    match fs::remove_file(path) {
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

    fn slip(script: &str) -> ApprovalSlip {
        ApprovalSlip {
            script: script.into(),
            sandbox: "project".into(),
            call: "call-1".into(),
            action: "call-1".into(),
            asked: true,
            mode: String::new(),
            rights: Vec::new(),
            permitted: false,
        }
    }

    #[test]
    fn a_slip_is_good_once_and_only_for_its_script() {
        let (_dir, session) = session();
        let name = slip("make").leave(&session).unwrap();
        assert!(matches!(
            ApprovalSlip::take(&session, &name, "rm -rf x"),
            Err(ApprovalError::Changed)
        ));
        assert_eq!(ApprovalSlip::take(&session, &name, "make").unwrap(), slip("make"));
        assert!(matches!(
            ApprovalSlip::take(&session, &name, "make"),
            Err(ApprovalError::Unknown(_))
        ));
    }

    #[test]
    fn a_name_that_is_not_ours_reads_no_file() {
        let (_dir, session) = session();
        for name in ["", "../project", "zz", "/etc/passwd"] {
            assert!(matches!(
                ApprovalSlip::take(&session, name, "x"),
                Err(ApprovalError::Unknown(_))
            ));
        }
    }

    #[test]
    fn discarding_questions_keeps_the_allowed_scripts() {
        let (_dir, session) = session();
        slip("asked").leave(&session).unwrap();
        ApprovalSlip { asked: false, ..slip("allowed") }.leave(&session).unwrap();
        ApprovalSlip::discard_asked(&session).unwrap();
        assert_eq!(ApprovalSlip::take_any(&session, "asked").unwrap(), None);
        assert!(ApprovalSlip::take_any(&session, "allowed").unwrap().is_some());
    }

    /// Otherwise the answer no to a question would count as a yes.
    #[test]
    fn slips_that_cannot_be_discarded_are_an_error() {
        let (dir, session) = session();
        fs::create_dir(dir.path().join(DIR).join("ab")).unwrap();
        assert!(matches!(ApprovalSlip::discard_asked(&session), Err(ApprovalError::Io { .. })));
        assert!(ApprovalSlip::remove_left(&session, "ab"));
        assert!(!ApprovalSlip::remove_left(&session, "cd"));
        fs::remove_dir_all(dir.path().join(DIR)).unwrap();
        assert!(matches!(ApprovalSlip::discard_asked(&session), Err(ApprovalError::Io { .. })));
    }

    #[test]
    fn the_sweep_removes_slips_of_another_day_only() {
        let sessions = tempfile::tempdir().unwrap();
        let dir = sessions.path().join("s");
        fs::create_dir_all(dir.join(DIR)).unwrap();
        let session = Session::imagined(&dir);
        let (old, new) = (slip("a").leave(&session).unwrap(), slip("b").leave(&session).unwrap());
        let file = fs::File::options().write(true).open(dir.join(DIR).join(&old)).unwrap();
        file.set_modified(SystemTime::now() - FORGOTTEN_AFTER * 2).unwrap();
        sweep(sessions.path());
        assert!(!dir.join(DIR).join(old).exists());
        assert!(dir.join(DIR).join(new).exists());
    }

    #[test]
    fn an_old_slip_has_expired() {
        let (dir, session) = session();
        let name = slip("make").leave(&session).unwrap();
        let file = fs::File::options().write(true).open(dir.path().join(DIR).join(&name)).unwrap();
        file.set_modified(SystemTime::now() - LIFETIME * 2).unwrap();
        assert!(matches!(ApprovalSlip::take(&session, &name, "make"), Err(ApprovalError::Expired)));
    }

    #[test]
    fn a_slip_that_was_not_taken_is_found_afterwards() {
        let (_dir, session) = session();
        slip("make").leave(&session).unwrap();
        assert!(ApprovalSlip::remove_of_call(&session, "call-1").unwrap());
        assert!(!ApprovalSlip::remove_of_call(&session, "call-1").unwrap());
        slip("make").leave(&session).unwrap();
        assert_eq!(ApprovalSlip::take_any(&session, "make").unwrap(), Some(slip("make")));
        assert_eq!(ApprovalSlip::take_any(&session, "make").unwrap(), None);
        assert!(!ApprovalSlip::remove_of_call(&session, "call-1").unwrap());
    }
}
