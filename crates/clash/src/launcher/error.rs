//! What can go wrong on the way to a launch, the hint for the user and the exit status.

use std::io::Write;
use std::path::PathBuf;

use clash_sandbox::launch::LaunchError;
use clash_sandbox::plan::PlanError;

use super::{HostileSettingsError, Never};
use crate::approval::ApprovalError;
use crate::cmd::hint_for_name;
use crate::decision::DecisionError;
use crate::dirs::NoHomeError;
use crate::doors::DoorError;
use crate::exit;
use crate::policy::PolicyError;
use crate::remedy::Remedy;
use crate::session::SessionError;
use crate::trace::TraceError;
use crate::ui;

#[derive(Debug, thiserror::Error)]
pub(crate) enum LauncherError {
    #[error("usage: clash exec [--approval ID] -- COMMAND [ARG …]")]
    Usage,
    #[error("cannot find the working directory: {0}")]
    WorkingDirectory(std::io::Error),
    #[error(transparent)]
    NoHome(#[from] NoHomeError),
    #[error(transparent)]
    Session(#[from] SessionError),
    #[error(transparent)]
    HostileSettings(#[from] HostileSettingsError),
    #[error(transparent)]
    Policy(#[from] PolicyError),
    #[error(transparent)]
    Decision(#[from] DecisionError),
    #[error(transparent)]
    Approval(#[from] ApprovalError),
    #[error(transparent)]
    Trace(#[from] TraceError),
    #[error(transparent)]
    Doors(#[from] DoorError),
    #[error("{0}")]
    Refused(String),
    #[error("sandbox {sandbox} cannot be set up: {refusal}")]
    NoPlan { sandbox: String, refusal: Box<PlanError> },
    #[error("sandbox {sandbox}: {error}")]
    Launch { sandbox: String, error: LaunchError },
    #[error("no hook of clash ran in this session of the agent, so nothing of it is decided")]
    NoSession,
    #[error("there is no sandbox `{name}`")]
    NoSandbox { name: String, known: Vec<String> },
    #[error("the shell string of the agent is not text")]
    NotText,
    #[error("cannot prepare {}: {source}", path.display())]
    CwdFile { path: PathBuf, source: std::io::Error },
    #[error("cannot make the session's temporary directory in {}: {source}", path.display())]
    Temporary { path: PathBuf, source: std::io::Error },
}

impl LauncherError {
    /// The exit status: usage, refused, not found, out of time, or 125 for every other
    /// failure before the command starts.
    fn status(&self) -> u8 {
        match self {
            Self::Usage => exit::USAGE,
            Self::Refused(_) | Self::Approval(_) | Self::NoSession | Self::HostileSettings(_) => {
                exit::REFUSED
            }
            Self::Session(SessionError::Root(_)) => exit::REFUSED,
            Self::Launch { error: LaunchError::OutOfTime { .. }, .. } => exit::OUT_OF_TIME,
            Self::Launch { error: LaunchError::NotFound { .. }, .. } => exit::NOT_FOUND,
            Self::Launch {
                error: LaunchError::NotExecutable { .. } | LaunchError::KeptScript { .. },
                ..
            } => exit::REFUSED,
            _ => exit::NO_SANDBOX,
        }
    }

    /// The remedy, if there is one to name.
    fn hint(&self) -> Option<String> {
        match self {
            Self::NoPlan { refusal, .. } => refusal.hint(),
            Self::HostileSettings(_) => Some(HostileSettingsError::HINT.to_owned()),
            Self::NoSession => {
                Some(format!("something switches its hooks off; `{}` says what", Remedy::Doctor))
            }
            Self::NoSandbox { name, known } => {
                let known: Vec<&str> = known.iter().map(String::as_str).collect();
                Some(hint_for_name(name, &known))
            }
            Self::Launch { error: LaunchError::NotExecutable { .. }, sandbox } => {
                let show = Remedy::SandboxShow { sandbox: sandbox.clone() };
                Some(format!("`{show}` lists what it may execute"))
            }
            _ => None,
        }
    }
}

/// Says on standard error why a launch failed, and returns its exit status.
pub(super) fn status(result: Result<Never, LauncherError>) -> u8 {
    match result {
        Ok(never) => match never {},
        Err(error) => report(&error),
    }
}

/// Prints the error, its causes and the hint, and returns the exit status.
pub(crate) fn report(error: &LauncherError) -> u8 {
    let mut text = format!("clash: {error}");
    let mut source = match error {
        LauncherError::Launch { error, .. } => std::error::Error::source(error),
        LauncherError::NoPlan { refusal, .. } => std::error::Error::source(refusal.as_ref()),
        other => std::error::Error::source(other),
    };
    while let Some(cause) = source {
        text.push_str(&format!(": {cause}"));
        source = cause.source();
    }
    if let Some(hint) = error.hint() {
        text.push_str(&format!("\n\nhint: {hint}"));
    }
    let _ = writeln!(std::io::stderr(), "{}", ui::for_people(&text));
    error.status()
}
