//! The session, the project and the directories of a command that is about to run, and
//! the decision about it.

use std::cell::OnceCell;
use std::path::PathBuf;

use clash_agents::Agent;
use clash_policy::decide::Decision;
use clash_policy::{Action, Effect, Sandbox};

use super::LauncherError;
use crate::approval::ApprovalSlip;
use crate::decision::{self, DecisionContext};
use crate::dirs::{Dirs, project_of};
use crate::policy::LoadedPolicy;
use crate::session::{Session, SessionError, name_of};
use crate::trace::{TraceEvent, TraceRecord};
use crate::{say, ui};

/// Where a command is about to run, before its sandbox is known.
pub(super) struct LaunchContext {
    pub(super) dirs: Dirs,
    pub(super) session: Option<Session>,
    pub(super) project: PathBuf,
    /// The id of the action in the trace, as the approval says it.
    pub(super) action: OnceCell<String>,
}

impl LaunchContext {
    /// The context of a session, or of the working directory if clash does not know the
    /// session. Fails, with an alarm, if another directory is in the place of the
    /// session's project.
    pub(super) fn for_session(id: Option<&str>) -> Result<Self, LauncherError> {
        Self::for_session_named(id.map(name_of).as_deref())
    }

    /// As [`Self::for_session`], by the name of the session's directory. An unknown name
    /// counts as none. Fails, with an alarm in the record, if the project's directory was
    /// replaced.
    pub(super) fn for_session_named(name: Option<&str>) -> Result<Self, LauncherError> {
        let dirs = Dirs::from_env()?;
        let session = match name.map(|name| Session::open_named(&dirs, name)) {
            Some(Ok(session)) => Some(session),
            Some(Err(SessionError::Unknown(_))) | None => None,
            Some(Err(error)) => return Err(error.into()),
        };
        let Some(session) = session else {
            let cwd = std::env::current_dir().map_err(LauncherError::WorkingDirectory)?;
            let project = project_of(&cwd, &dirs.home);
            return Ok(Self { dirs, session: None, project, action: OnceCell::new() });
        };
        session.check_root().or_else(|error| {
            let reason = Some(error.to_string());
            TraceRecord { reason, ..TraceRecord::new(&session, TraceEvent::Alarm) }
                .append(&session)?;
            Err(LauncherError::Session(error.into()))
        })?;
        let dirs = dirs.in_session(&session.dir);
        let project = session.project.clone();
        Ok(Self { dirs, session: Some(session), project, action: OnceCell::new() })
    }

    /// The agent of the session.
    pub(super) fn agent(&self) -> Option<&'static Agent> {
        clash_agents::find_agent(&self.session.as_ref()?.agent)
    }

    /// The policy of the project, with the rules of the session.
    pub(super) fn load_policy(&self) -> Result<LoadedPolicy, LauncherError> {
        let session = self.session.as_ref().map(|session| session.dir.as_path());
        Ok(LoadedPolicy::load(&self.dirs, &self.project, session)?)
    }

    /// Decides a script by this policy, as the session's agent or as `terminal`.
    pub(super) fn decide(
        &self,
        policy: &LoadedPolicy,
        script: &str,
        mode: &str,
    ) -> Result<Decision, LauncherError> {
        let agent = self.session.as_ref().map_or("terminal", |session| session.agent.as_str());
        let action = Action::script(agent, mode, script);
        let session = self.session.as_ref().map(|session| session.dir.as_path());
        // Without a working directory no relative name is resolved.
        let cwd = std::env::current_dir().unwrap_or_default();
        let scene = DecisionContext { project: &self.project, session, cwd: &cwd };
        Ok(decision::decide_by(policy, &self.dirs, scene, &action)?)
    }

    /// Asks the person at the terminal about a command that needs approval. A yes makes
    /// the decision an allow.
    pub(super) fn ask_person(&self, decision: &mut Decision) -> Result<(), LauncherError> {
        let Some(sandbox) = &decision.sandbox else { return Ok(()) };
        if decision.effect != Effect::Ask {
            return Ok(());
        }
        let reason = say::reason(decision);
        // A command behind a door has a sandbox of its own.
        let own = decision.decisive().and_then(|part| part.sandbox.as_ref());
        let question =
            format!("clash: {reason}\nRun it in sandbox {}?", own.unwrap_or(&sandbox.name));
        if !ui::confirm(&question).unwrap_or_default() {
            return Err(LauncherError::Refused("it was not run: you said no".to_owned()));
        }
        decision.effect = Effect::Allow;
        Ok(())
    }

    /// The sandbox of a decision that lets the command run: an allow, or an ask with an
    /// approval for the same sandbox. Records and returns a refusal otherwise.
    pub(super) fn settle(
        &self,
        script: &str,
        decision: Decision,
        approval: Option<ApprovalSlip>,
    ) -> Result<Sandbox, LauncherError> {
        let reason = say::reason(&decision);
        let refused = |why: &str| {
            self.trace(TraceEvent::Decision, script, Some((Effect::Deny, &reason)), None)?;
            Err(LauncherError::Refused(format!("{reason}{why}")))
        };
        let Some(sandbox) = decision.sandbox else { return refused("") };
        match (decision.effect, approval) {
            (Effect::Deny | Effect::Ask, Some(approval)) if approval.permitted => Ok(sandbox),
            (Effect::Deny, _) => refused(""),
            (Effect::Allow, _) => Ok(sandbox),
            (Effect::Ask, Some(approval)) if approval.sandbox == sandbox.name => Ok(sandbox),
            (Effect::Ask, Some(_)) => refused(", and the policy changed since it was given"),
            (Effect::Ask, None) => refused(", and clash cannot ask here"),
        }
    }

    /// Adds a record to the session's trace. Does nothing without a session.
    pub(super) fn trace(
        &self,
        event: TraceEvent,
        script: &str,
        effect: Option<(Effect, &str)>,
        sandbox: Option<&str>,
    ) -> Result<(), LauncherError> {
        let Some(session) = &self.session else { return Ok(()) };
        let record = TraceRecord {
            what: Some(script.to_owned()),
            effect: effect.map(|(effect, _)| effect.to_string()),
            reason: effect.map(|(_, reason)| reason.to_owned()),
            sandbox: sandbox.map(str::to_owned),
            ..self.new_record(session, event)
        };
        Ok(record.append(session)?)
    }

    /// A record about the action of this launcher.
    pub(super) fn new_record(&self, session: &Session, event: TraceEvent) -> TraceRecord {
        TraceRecord {
            call: self.action.get().cloned(),
            pid: Some(std::process::id()),
            ..TraceRecord::new(session, event)
        }
    }
}
