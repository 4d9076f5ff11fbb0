//! Live questions: a command that is already running waits for the answer of the user.
//!
//! The launcher asks only if a listener is registered (`clash asks --follow`, for example).
//! Without a listener, or without an answer in time, the answer is no.
//!
//! All files are in `questions` of clash's state directory, which no room can reach:
//!
//! | file | content |
//! |---|---|
//! | `listener` | each listener holds a shared lock on it |
//! | `ID.question` | the question; the process that waits holds a lock on it |
//! | `ID.answer` | the answer |
//!
//! An answer for the session is kept in the session's own directory, in `answers`. It holds
//! for questions with the same subject, sandbox, directory and kind.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clash_policy::fnv::fnv_hash;
use serde::{Deserialize, Serialize};

use crate::dirs::{Dirs, create_private, write_private};
use crate::remedy::Remedy;
use crate::session::Session;

/// The time for an answer. Agents end a command after two minutes on their own.
pub(crate) const MAX_ANSWER_TIME: Duration = Duration::from_secs(110);

/// Questions that wait at the same time. A command in a room can cause any number.
const MAX_WAITING_QUESTIONS: usize = 64;

/// The longest subject that a question shows.
const MAX_SUBJECT_BYTES: usize = 4096;

const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(50);

const VERSION: u32 = 1;
const QUESTION: &str = "question";
const ANSWER: &str = "answer";
const LISTENER: &str = "listener";
const ANSWERS: &str = "answers";

/// The subject of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum QuestionKind {
    /// A command that only shows while a script runs.
    Command,
    /// A host that a command wants to reach.
    Host,
}

/// A question about something that a running command wants.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LiveQuestion {
    pub(crate) kind: QuestionKind,
    /// The command line, or the host with its port. An answer for the session holds for
    /// exactly this text.
    pub(crate) subject: String,
    /// The sandbox that gets the right.
    pub(crate) sandbox: String,
    /// The sentence with the rule.
    pub(crate) reason: String,
    /// The commands that led here, for example `make → sh → git push`.
    pub(crate) chain: String,
    pub(crate) project: PathBuf,
    /// The directory of the command; of a host, the project.
    pub(crate) directory: PathBuf,
    /// The command with which the user allows it from now on; `None` if no rule can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) remedy: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LiveAnswer {
    /// Yes, for this one question
    Once,
    /// Yes, also for the same question later in this session
    Session,
    /// No
    Deny,
}

/// The end of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QuestionOutcome {
    Allowed,
    Denied,
    /// No listener is registered, or the last one has gone.
    Unheard,
    /// No answer came in time.
    TimedOut,
    /// The process that wanted the right has ended.
    Abandoned,
    /// Too many questions wait already.
    TooMany,
    /// The user could not see the whole subject.
    TooLong,
}

impl QuestionOutcome {
    /// The reason of a refusal, as the end of a sentence. Empty for a yes.
    pub(crate) fn why_refused(self) -> String {
        let why = match self {
            Self::Unheard => {
                return format!("nothing listens for questions (`{}` does)", Remedy::Watch);
            }
            Self::Allowed => "",
            Self::Denied => "the answer was no",
            Self::TimedOut => "no answer came in time",
            Self::Abandoned => "the command has ended",
            Self::TooMany => "too many questions wait already",
            Self::TooLong => "it is too long for a question",
        };
        why.to_owned()
    }
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum QuestionError {
    #[error("no question with the id `{0}` waits")]
    Unknown(String),
    #[error("the question belongs to no session: answer it with `once` or `deny`")]
    Sessionless,
    #[error("cannot use {}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
}

/// A question that waits for its answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WaitingQuestion {
    v: u32,
    pub(crate) id: String,
    /// Milliseconds since 1970.
    pub(crate) asked: u64,
    pub(crate) until: u64,
    /// The name of the session's directory.
    pub(crate) session: Option<String>,
    #[serde(flatten)]
    pub(crate) question: LiveQuestion,
}

/// Asks the user and waits, at most `time`. `is_abandoned` tells that the answer is no longer
/// of use. Allowed at once if the user has answered it for the session; unheard without a
/// listener.
pub(crate) fn ask(
    dirs: &Dirs,
    session: Option<&Session>,
    question: &LiveQuestion,
    time: Duration,
    is_abandoned: &dyn Fn() -> bool,
) -> Result<QuestionOutcome, QuestionError> {
    let desk = QuestionDesk::new(dirs);
    if session.is_some_and(|session| is_answered(&session.dir, question)) {
        return Ok(QuestionOutcome::Allowed);
    }
    if !desk.has_listener() {
        return Ok(QuestionOutcome::Unheard);
    }
    if question.subject.len() > MAX_SUBJECT_BYTES {
        return Ok(QuestionOutcome::TooLong);
    }
    if desk.waiting()?.len() >= MAX_WAITING_QUESTIONS {
        return Ok(QuestionOutcome::TooMany);
    }
    let id = new_id().map_err(|source| desk.failed(source))?;
    let asked = now();
    let mut question = question.clone();
    question.chain.truncate(question.chain.floor_char_boundary(MAX_SUBJECT_BYTES));
    let record = WaitingQuestion {
        v: VERSION,
        id: id.clone(),
        asked,
        until: asked.saturating_add(u64::try_from(time.as_millis()).unwrap_or(u64::MAX)),
        session: session.map(|session| session.name.clone()),
        question,
    };
    let posted = desk.post(&record)?;
    let deadline = Instant::now() + time;
    let outcome = loop {
        match desk.read_answer(&id) {
            Some(LiveAnswer::Once | LiveAnswer::Session) => break QuestionOutcome::Allowed,
            Some(LiveAnswer::Deny) => break QuestionOutcome::Denied,
            None if is_abandoned() => break QuestionOutcome::Abandoned,
            None if !desk.has_listener() => break QuestionOutcome::Unheard,
            None if Instant::now() >= deadline => break QuestionOutcome::TimedOut,
            None => std::thread::sleep(LOOK_AGAIN_AFTER),
        }
    };
    desk.remove(&id);
    drop(posted);
    Ok(outcome)
}

/// The questions that wait, the oldest first.
pub(crate) fn waiting(dirs: &Dirs) -> Result<Vec<WaitingQuestion>, QuestionError> {
    QuestionDesk::new(dirs).waiting()
}

/// Answers a question. Fails for an unknown id, and for an answer for the session if the
/// question has none.
pub(crate) fn answer(
    dirs: &Dirs,
    id: &str,
    answer: LiveAnswer,
) -> Result<WaitingQuestion, QuestionError> {
    let desk = QuestionDesk::new(dirs);
    let known = desk.waiting()?.into_iter().find(|question| question.id == id);
    let question = known.ok_or_else(|| QuestionError::Unknown(id.chars().take(40).collect()))?;
    if answer == LiveAnswer::Session {
        let session = question.session.as_deref().and_then(|it| Session::open_named(dirs, it).ok());
        let session = session.ok_or(QuestionError::Sessionless)?;
        note_answer(&session.dir, &question.question)?;
    }
    let text = serde_json::to_vec(&answer).map_err(|error| desk.failed(error.into()))?;
    write_private(&desk.file(id, ANSWER), &text).map_err(|source| desk.failed(source))?;
    Ok(question)
}

/// A process that shows questions to the user. While it lives, launchers ask.
#[derive(Debug)]
pub(crate) struct QuestionListener {
    _lock: File,
}

impl QuestionListener {
    /// Registers a listener until the value is dropped: only then questions wait for an
    /// answer.
    pub(crate) fn register(dirs: &Dirs) -> Result<Self, QuestionError> {
        let desk = QuestionDesk::new(dirs);
        let lock = desk.listener_file().map_err(|source| desk.failed(source))?;
        lock.lock_shared().map_err(|source| desk.failed(source))?;
        Ok(Self { _lock: lock })
    }
}

/// The directory of all questions.
struct QuestionDesk {
    dir: PathBuf,
}

impl QuestionDesk {
    fn new(dirs: &Dirs) -> Self {
        Self { dir: dirs.state.join("questions") }
    }

    fn failed(&self, source: io::Error) -> QuestionError {
        QuestionError::Io { path: self.dir.clone(), source }
    }

    fn file(&self, id: &str, kind: &str) -> PathBuf {
        self.dir.join(format!("{id}.{kind}"))
    }

    /// Opens the file that listeners lock. Creates it if it is missing.
    fn listener_file(&self) -> io::Result<File> {
        create_private(&self.dir)?;
        let mut options = File::options();
        options.create(true).truncate(false).write(true).mode(0o600);
        options.open(self.dir.join(LISTENER))
    }

    /// True if a listener holds its lock. Another process that looks at the same instant
    /// can pass for a listener; [`ask`] looks again and again.
    fn has_listener(&self) -> bool {
        let file = File::open(self.dir.join(LISTENER));
        file.is_ok_and(|file| matches!(file.try_lock(), Err(TryLockError::WouldBlock)))
    }

    /// Writes a question. It waits as long as the returned file is open.
    fn post(&self, record: &WaitingQuestion) -> Result<File, QuestionError> {
        let failed = |source| self.failed(source);
        let text = serde_json::to_vec(record).map_err(|error| failed(error.into()))?;
        // Locked under a name that no reader looks at, so that it is never seen unlocked.
        let hidden = self.file(&record.id, "new");
        let mut options = File::options();
        options.write(true).create_new(true).mode(0o600);
        let mut file = options.open(&hidden).map_err(failed)?;
        io::Write::write_all(&mut file, &text).map_err(failed)?;
        file.lock().map_err(failed)?;
        fs::rename(&hidden, self.file(&record.id, QUESTION)).map_err(failed)?;
        Ok(file)
    }

    /// The questions whose processes wait. Removes those of ended processes.
    fn waiting(&self) -> Result<Vec<WaitingQuestion>, QuestionError> {
        let entries = match fs::read_dir(&self.dir) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(source) => return Err(self.failed(source)),
        };
        let mut found: Vec<WaitingQuestion> = Vec::new();
        for path in entries.flatten().map(|entry| entry.path()) {
            if path.extension().is_some_and(|kind| kind == QUESTION)
                && let Some(question) = self.read_question(&path)
            {
                found.push(question);
            }
        }
        found.sort_by(|a, b| (a.asked, &a.id).cmp(&(b.asked, &b.id)));
        Ok(found)
    }

    /// A question that still waits. Removes one whose process has ended. `None` for an
    /// answered one, another version and a damaged file.
    fn read_question(&self, path: &Path) -> Option<WaitingQuestion> {
        let id = path.file_stem()?.to_str()?;
        let mut file = File::open(path).ok()?;
        if file.try_lock_shared().is_ok() {
            self.remove(id);
            return None;
        }
        let mut text = Vec::new();
        file.read_to_end(&mut text).ok()?;
        let question: WaitingQuestion = serde_json::from_slice(&text).ok()?;
        let is_open = !self.file(id, ANSWER).exists();
        (question.v == VERSION && question.id == id && is_open).then_some(question)
    }

    /// The answer to a question; `None` if there is none yet. A damaged one is a no.
    fn read_answer(&self, id: &str) -> Option<LiveAnswer> {
        let text = fs::read(self.file(id, ANSWER)).ok()?;
        // An answer that cannot be read is no yes.
        Some(serde_json::from_slice(&text).unwrap_or(LiveAnswer::Deny))
    }

    /// Removes a question and its answer.
    fn remove(&self, id: &str) {
        for kind in [QUESTION, ANSWER] {
            let _ = fs::remove_file(self.file(id, kind));
        }
    }
}

/// The question without the parts that differ from one time to the next.
fn session_key(question: &LiveQuestion) -> String {
    let LiveQuestion { kind, subject, sandbox, directory, .. } = question;
    serde_json::json!([kind, subject, sandbox, directory]).to_string()
}

fn answer_file(session: &Path, question: &LiveQuestion) -> PathBuf {
    let hash = fnv_hash(session_key(question).as_bytes());
    session.join(ANSWERS).join(format!("{hash:016x}"))
}

/// True if the user has answered the question for the whole session.
fn is_answered(session: &Path, question: &LiveQuestion) -> bool {
    let known = fs::read_to_string(answer_file(session, question));
    known.is_ok_and(|known| known == session_key(question))
}

/// Notes that the user allowed this for the session.
fn note_answer(session: &Path, question: &LiveQuestion) -> Result<(), QuestionError> {
    let path = answer_file(session, question);
    write_private(&path, session_key(question).as_bytes())
        .map_err(|source| QuestionError::Io { path, source })
}

/// A short name that is easy to type and not in use.
fn new_id() -> io::Result<String> {
    let mut random = [0; 4];
    File::open("/dev/urandom")?.read_exact(&mut random)?;
    Ok(random.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A state directory for one test.
    fn desk() -> (tempfile::TempDir, Dirs) {
        let dir = tempfile::tempdir().unwrap();
        let mut dirs = Dirs::from_env().unwrap();
        dirs.state = dir.path().to_path_buf();
        (dir, dirs)
    }

    fn question(subject: &str) -> LiveQuestion {
        LiveQuestion {
            kind: QuestionKind::Command,
            subject: subject.to_owned(),
            sandbox: "project".to_owned(),
            reason: "a rule asks".to_owned(),
            chain: format!("make → {subject}"),
            project: PathBuf::from("/app"),
            directory: PathBuf::from("/app/web"),
            remedy: None,
        }
    }

    const SHORT: Duration = Duration::from_millis(200);
    const LONG: Duration = Duration::from_secs(60);

    /// A new session in the state directory.
    fn session(dirs: &Dirs) -> Session {
        let dir = dirs.state.join("sessions/one");
        fs::create_dir_all(&dir).unwrap();
        Session::enter(dirs, "one", "terminal", &dirs.state).unwrap()
    }

    /// Answers the next question in another thread.
    fn answering<T>(dirs: &Dirs, with: LiveAnswer, run: impl FnOnce() -> T) -> T {
        std::thread::scope(|threads| {
            threads.spawn(|| {
                loop {
                    if let Some(first) = waiting(dirs).unwrap().first() {
                        answer(dirs, &first.id, with).unwrap();
                        return;
                    }
                    std::thread::sleep(Duration::from_millis(5));
                }
            });
            run()
        })
    }

    #[test]
    fn without_a_listener_the_answer_is_no_at_once() {
        let (_dir, dirs) = desk();
        let asked = |time| ask(&dirs, None, &question("git push"), time, &|| false).unwrap();
        assert_eq!(asked(LONG), QuestionOutcome::Unheard);
        drop(QuestionListener::register(&dirs).unwrap());
        assert_eq!(asked(LONG), QuestionOutcome::Unheard);
        assert_eq!(waiting(&dirs).unwrap(), []);
    }

    #[test]
    fn a_question_without_an_answer_ends_in_time() {
        let (_dir, dirs) = desk();
        let _listener = QuestionListener::register(&dirs).unwrap();
        let end = ask(&dirs, None, &question("git push"), SHORT, &|| false).unwrap();
        assert_eq!(end, QuestionOutcome::TimedOut);
        let end = ask(&dirs, None, &question("git push"), LONG, &|| true).unwrap();
        assert_eq!(end, QuestionOutcome::Abandoned);
        assert_eq!(waiting(&dirs).unwrap(), []);
        assert_eq!(fs::read_dir(dirs.state.join("questions")).unwrap().count(), 1);
    }

    #[test]
    fn an_answer_reaches_the_process_that_waits() {
        let (_dir, dirs) = desk();
        let _listener = QuestionListener::register(&dirs).unwrap();
        let _second = QuestionListener::register(&dirs).unwrap();
        let asked = || ask(&dirs, None, &question("git push"), LONG, &|| false).unwrap();
        assert_eq!(answering(&dirs, LiveAnswer::Once, asked), QuestionOutcome::Allowed);
        assert_eq!(answering(&dirs, LiveAnswer::Deny, asked), QuestionOutcome::Denied);
        let unknown = answer(&dirs, "../x", LiveAnswer::Once);
        assert!(matches!(unknown, Err(QuestionError::Unknown(_))));
    }

    #[test]
    fn an_answer_for_the_session_holds_for_the_same_place_only() {
        let (_dir, dirs) = desk();
        let session = session(&dirs);
        let listener = QuestionListener::register(&dirs).unwrap();
        let asked =
            |question: &LiveQuestion| ask(&dirs, Some(&session), question, SHORT, &|| false);
        let first = question("git push");
        let long = || ask(&dirs, Some(&session), &first, LONG, &|| false).unwrap();
        assert_eq!(answering(&dirs, LiveAnswer::Session, long), QuestionOutcome::Allowed);
        drop(listener);
        assert_eq!(asked(&first).unwrap(), QuestionOutcome::Allowed);
        let later = LiveQuestion { chain: "sh → git push".to_owned(), ..first.clone() };
        assert_eq!(asked(&later).unwrap(), QuestionOutcome::Allowed);
        for other in [
            question("git push --force"),
            LiveQuestion { sandbox: "online".to_owned(), ..first.clone() },
            LiveQuestion { kind: QuestionKind::Host, ..first.clone() },
            LiveQuestion { directory: PathBuf::from("/app"), ..first.clone() },
        ] {
            assert_eq!(asked(&other).unwrap(), QuestionOutcome::Unheard, "{other:?}");
        }
    }

    #[test]
    fn a_question_of_an_ended_process_is_forgotten() {
        let (_dir, dirs) = desk();
        let desk = QuestionDesk::new(&dirs);
        let _listener = QuestionListener::register(&dirs).unwrap();
        let record = WaitingQuestion {
            v: VERSION,
            id: "0a0b0c0d".to_owned(),
            asked: 1,
            until: 2,
            session: None,
            question: question("git push"),
        };
        let held = desk.post(&record).unwrap();
        assert_eq!(waiting(&dirs).unwrap(), [record]);
        drop(held);
        assert_eq!(waiting(&dirs).unwrap(), []);
        assert!(!desk.file("0a0b0c0d", QUESTION).exists());
    }
}
