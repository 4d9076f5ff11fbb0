//! Runs the policy compiler `clash-compile`, which lies beside `clash`, and tells its
//! failures apart.

use std::io::{self, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Output, Stdio};

use clash_protocol::report::{CompileReport, CompilerEvent};
use clash_protocol::request::CompilerRequest;
use clash_protocol::{CLASH_VERSION, PROTOCOL_VERSION, protocol_argument};
use rustix::process::Signal;

/// The path of the policy compiler, beside this program. Empty if this program's own path is
/// unknown.
pub(crate) fn compiler_path() -> PathBuf {
    let beside = |own: PathBuf| own.with_file_name("clash-compile");
    std::env::current_exe().map(beside).unwrap_or_default()
}

/// The remedy for a compiler that is absent or of another version.
pub(crate) const REINSTALL_HINT: &str =
    "clash, clash-compile and clash-door belong in one directory; install clash again";

/// The compiler ended without an answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CompilerError {
    #[error("the policy compiler {} is missing", path.display())]
    Missing { path: PathBuf },
    #[error("cannot run the policy compiler {}: {source}", path.display())]
    CannotRun { path: PathBuf, source: io::Error },
    #[error(
        "the policy compiler {} is of clash {version} (protocol {protocol}), but this is clash {CLASH_VERSION} (protocol {PROTOCOL_VERSION})",
        path.display()
    )]
    OtherVersion { path: PathBuf, version: String, protocol: u32 },
    #[error("the policy does not compile: {}the policy takes too long to evaluate", at(place))]
    TimeLimit { place: Option<String> },
    #[error(
        "the policy does not compile: {}the policy needs too much memory to evaluate",
        at(place)
    )]
    MemoryLimit { place: Option<String> },
    #[error("the policy compiler failed: {}{message}", at(place))]
    Panicked { place: Option<String>, message: String },
    #[error("signal {signal} ended the policy compiler: {}it did not finish", at(place))]
    Killed { place: Option<String>, signal: i32 },
    #[error("the policy compiler does not understand clash: {message}")]
    BadRequest { message: String },
    #[error(
        "the policy compiler {} gave an answer that clash cannot read ({status})", path.display()
    )]
    UnreadableAnswer { path: PathBuf, status: ExitStatus },
    #[error("the policy compiler answered another request")]
    WrongAnswer,
}

/// A place as the beginning of a message, for example `/p/policy.star:2:1: `.
fn at(place: &Option<String>) -> String {
    place.as_ref().map(|place| format!("{place}: ")).unwrap_or_default()
}

impl CompilerError {
    /// The remedy, if the user has one.
    pub(crate) fn hint(&self) -> Option<&'static str> {
        match self {
            Self::TimeLimit { .. } => {
                Some("a policy is a short program: look for a loop that does not end")
            }
            Self::MemoryLimit { .. } => Some("look for a list or string that grows in a loop"),
            Self::Panicked { .. } => Some("this is a bug in clash; please report it"),
            Self::Missing { .. }
            | Self::OtherVersion { .. }
            | Self::BadRequest { .. }
            | Self::UnreadableAnswer { .. }
            | Self::WrongAnswer => Some(REINSTALL_HINT),
            Self::CannotRun { .. } | Self::Killed { .. } => None,
        }
    }
}

/// The compiler's answer to a request.
#[derive(Debug)]
pub(crate) enum CompilerAnswer {
    /// The layers compile.
    Image {
        image: Vec<u8>,
        report: CompileReport,
    },
    /// The layers have mistakes.
    Mistakes(CompileReport),
    /// The documentation or the library as JSON.
    Product(Vec<u8>),
    UnknownName {
        message: String,
        nearest: Option<String>,
    },
}

/// Runs the compiler on one request, with an empty environment: the meaning of a policy must
/// not depend on the caller's. A policy with mistakes is an answer, not an error.
pub(crate) fn ask_compiler(request: &CompilerRequest) -> Result<CompilerAnswer, CompilerError> {
    let path = compiler_path();
    let mut command = Command::new(&path);
    command.arg(protocol_argument()).env_clear();
    match run(&mut command, request) {
        Ok(output) => read_answer(path, output),
        Err(source) if source.kind() == io::ErrorKind::NotFound => {
            Err(CompilerError::Missing { path })
        }
        Err(source) => Err(CompilerError::CannotRun { path, source }),
    }
}

/// Starts the compiler, gives it the request, and waits for its end.
fn run(command: &mut Command, request: &CompilerRequest) -> io::Result<Output> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let message = serde_json::to_vec(request)?;
    let mut child = command.spawn()?;
    if let Some(mut input) = child.stdin.take() {
        // A compiler that ends before it has read all of it says why itself.
        let _ = input.write_all(&message);
    }
    child.wait_with_output()
}

/// The beginning of the last line of a Rust program that the kernel refused memory.
const ALLOCATION_FAILED: &str = "memory allocation of ";

/// Understands the compiler's events on standard error. Skips unknown lines after the first.
/// Without a last event that names the result it is an error, so a policy that did not fully
/// compile is never used.
fn read_answer(path: PathBuf, output: Output) -> Result<CompilerAnswer, CompilerError> {
    let Output { status, stdout, stderr } = output;
    let said = String::from_utf8_lossy(&stderr);
    let mut events = said.lines().map(serde_json::from_str::<CompilerEvent>);
    let unreadable = |path| CompilerError::UnreadableAnswer { path, status };
    match events.next() {
        Some(Ok(event)) if event == CompilerEvent::started() => {}
        Some(Ok(CompilerEvent::Started { protocol, version })) => {
            return Err(CompilerError::OtherVersion { path, version, protocol });
        }
        _ => return Err(ended_by_signal(status, None, &said).unwrap_or(unreadable(path))),
    }
    // The compiler announces only the first statements of a policy.
    let mut latest = None;
    for event in events {
        match event {
            Ok(CompilerEvent::Evaluating { place }) => {
                latest = Some(format!("{place} or just after"))
            }
            Ok(CompilerEvent::TimeLimit { place }) => {
                return Err(CompilerError::TimeLimit { place: place.or(latest) });
            }
            Ok(CompilerEvent::MemoryLimit { place }) => {
                return Err(CompilerError::MemoryLimit { place: place.or(latest) });
            }
            Ok(CompilerEvent::Panicked { place, message }) => {
                return Err(CompilerError::Panicked { place: place.or(latest), message });
            }
            Ok(CompilerEvent::BadRequest { message }) => {
                return Err(CompilerError::BadRequest { message });
            }
            Ok(CompilerEvent::UnknownName { message, nearest }) => {
                return Ok(CompilerAnswer::UnknownName { message, nearest });
            }
            Ok(CompilerEvent::Compiled(report)) if !report.mistakes.is_empty() => {
                return Ok(CompilerAnswer::Mistakes(report));
            }
            Ok(CompilerEvent::Compiled(report)) if status.success() => {
                return Ok(CompilerAnswer::Image { image: stdout, report });
            }
            Ok(CompilerEvent::Answered) if status.success() => {
                return Ok(CompilerAnswer::Product(stdout));
            }
            Ok(_) | Err(_) => {}
        }
    }
    Err(ended_by_signal(status, latest, &said).unwrap_or(unreadable(path)))
}

/// The failure that a signal stands for; `None` if no signal ended the compiler.
fn ended_by_signal(status: ExitStatus, place: Option<String>, said: &str) -> Option<CompilerError> {
    let signal = status.signal()?;
    let out_of_memory = || said.lines().any(|line| line.starts_with(ALLOCATION_FAILED));
    Some(if signal == Signal::XCPU.as_raw() {
        CompilerError::TimeLimit { place }
    } else if signal == Signal::ABORT.as_raw() && out_of_memory() {
        CompilerError::MemoryLimit { place }
    } else {
        CompilerError::Killed { place, signal }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const STARTED: &str = r#"{"event":"started","protocol":2,"version":"0.1.0"}"#;
    const EVALUATING: &str = r#"{"event":"evaluating","place":"/p/policy.star:2:1"}"#;

    /// The answer of a compiler that ended with this wait status and these lines.
    fn answer(status: i32, lines: &[&str]) -> Result<CompilerAnswer, CompilerError> {
        let stderr = lines.join("\n").into_bytes();
        let output =
            Output { status: ExitStatus::from_raw(status), stdout: b"image".to_vec(), stderr };
        read_answer("/bin/clash-compile".into(), output)
    }

    fn message(status: i32, lines: &[&str]) -> String {
        answer(status, lines).unwrap_err().to_string()
    }

    const FAILED: i32 = 1 << 8;
    const SIGABRT: i32 = 6;
    const SIGKILL: i32 = 9;
    const SIGXCPU: i32 = 24;

    #[test]
    fn a_panic_is_told_as_a_panic() {
        let panicked = r#"{"event":"panicked","place":null,"message":"index out of bounds"}"#;
        for status in [101 << 8, SIGABRT] {
            let said = message(status, &[STARTED, EVALUATING, panicked]);
            assert_eq!(
                said,
                "the policy compiler failed: /p/policy.star:2:1 or just after: index out of bounds"
            );
        }
    }

    #[test]
    fn limits_are_told_apart_from_other_signals() {
        let limit = r#"{"event":"time-limit","place":null}"#;
        let slow = "the policy does not compile: /p/policy.star:2:1 or just after: the policy takes too long to evaluate";
        assert_eq!(message(FAILED, &[STARTED, EVALUATING, limit]), slow);
        assert_eq!(message(SIGXCPU, &[STARTED, EVALUATING]), slow);
        let allocation = "memory allocation of 17179869184 bytes failed";
        let big = "the policy does not compile: /p/policy.star:2:1 or just after: the policy needs too much memory to evaluate";
        assert_eq!(message(SIGABRT, &[STARTED, EVALUATING, allocation]), big);
        let big = "the policy does not compile: /p/policy.star:3:1: the policy needs too much memory to evaluate";
        let limit = r#"{"event":"memory-limit","place":"/p/policy.star:3:1"}"#;
        assert_eq!(message(101 << 8, &[STARTED, limit]), big);
        assert_eq!(
            message(SIGKILL, &[STARTED, EVALUATING]),
            "signal 9 ended the policy compiler: /p/policy.star:2:1 or just after: it did not finish"
        );
        assert!(matches!(answer(SIGABRT, &[STARTED]), Err(CompilerError::Killed { .. })));
        assert!(matches!(answer(SIGKILL, &[]), Err(CompilerError::Killed { .. })));
    }

    #[test]
    fn another_version_is_told_before_all_else() {
        let other = r#"{"event":"started","protocol":3,"version":"0.9.0"}"#;
        let report = r#"{"event":"something new"}"#;
        let error = answer(0, &[other, report]).unwrap_err();
        assert!(matches!(&error, CompilerError::OtherVersion { protocol: 3, .. }), "{error}");
        assert!(error.to_string().contains("is of clash 0.9.0"), "{error}");
        let older = r#"{"event":"started","protocol":2,"version":"0.0.9"}"#;
        assert!(matches!(answer(0, &[older]), Err(CompilerError::OtherVersion { .. })));
    }

    #[test]
    fn an_answer_without_an_end_is_unreadable() {
        let compiled =
            r#"{"event":"compiled","mistakes":[],"warnings":[],"project":null,"expectations":0}"#;
        assert!(matches!(
            answer(0, &[STARTED, EVALUATING, compiled]),
            Ok(CompilerAnswer::Image { .. })
        ));
        for (status, lines) in [
            (0, &[][..]),
            (0, &[STARTED]),
            (0, &[compiled]),
            (FAILED, &[STARTED, compiled]),
            (0, &[STARTED, "{"]),
            (2 << 8, &["clash-compile is called by clash with the policies"]),
        ] {
            let error = answer(status, lines).unwrap_err();
            assert!(matches!(error, CompilerError::UnreadableAnswer { .. }), "{lines:?}: {error}");
        }
    }

    #[test]
    fn a_refused_request_is_told_with_its_reason() {
        let refused = r#"{"event":"bad-request","message":"missing field `layers`"}"#;
        let said = message(2 << 8, &[STARTED, refused]);
        assert_eq!(said, "the policy compiler does not understand clash: missing field `layers`");
    }
}
