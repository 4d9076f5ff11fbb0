//! Decides a tool call before the agent runs it.

use std::path::Path;

use clash_agents::{HookAnswer, QuestionSupport, attended, own_rules};
use clash_policy::decide::{Decision, DecisionCause};
use clash_policy::rule::LayerKind;
use clash_policy::{Action, Effect, ToolInput, protect};

use super::launcher_line::{LaunchWay, LauncherLine, calls_launcher, gives_rights};
use super::request::RightRequest;
use super::tmp_paths::{MovedInput, use_instead};
use super::{HookCall, HookError};
use crate::approval::ApprovalSlip;
use crate::blocks::BlockFacts;
use crate::foresee::{self, ForeseenAt};
use crate::launcher::{refuse_hostile_settings, sandbox_named};
use crate::permit::OncePermit;
use crate::policy::LoadedPolicy;
use crate::rights::ExtraRight;
use crate::trace::{BlockEvidence, RefusingPart, TraceEvent, TraceRecord};
use crate::{judged, say, watch};

/// A tool call with its decision.
struct DecidedCall {
    action: Action,
    decision: Decision,
    input: MovedInput,
    /// True if the paths were judged below the session's directory instead of /tmp.
    moved: bool,
    /// Further rights of this one run.
    rights: Vec<ExtraRight>,
}

impl HookCall<'_> {
    /// Decides a tool call before it runs, and records the decision. Silent for a call that
    /// is no action. Refuses hostile settings, scripts that call the launcher, and questions
    /// that the client cannot ask.
    pub(super) fn before(&self) -> Result<HookAnswer, HookError> {
        let Some(action) = self.action()? else { return Ok(HookAnswer::Silent) };
        // Not only for commands: a skill may start some of its own.
        refuse_hostile_settings(self.dirs, &self.session.project, Some(self.agent))?;
        if let ToolInput::Script(script) = &action.input {
            if let Some(answer) = self.answer_instructed(script)? {
                return Ok(answer);
            }
            if calls_launcher(script) {
                return Err(HookError::CallsLauncher);
            }
            ApprovalSlip::discard_requests(self.session)?;
            let cwd = Path::new(&self.message.cwd);
            if let Some(request) = RightRequest::read(script, cwd, &self.dirs.home)? {
                return self.answer_request(&request);
            }
            if gives_rights(script) {
                return Err(HookError::OnlyUser);
            }
        } else {
            // A tool may run commands that no hook sees. There the approval of a question
            // that the user answered with no must not count.
            ApprovalSlip::discard_asked(self.session)?;
        }
        let mut call = self.decide_call(action)?;
        let mut reason = self.reason(&mut call);
        if let Some(permitted) = self.use_permit(&mut call) {
            reason = permitted;
        }
        let blocks = self.foresee(&call);
        if let Some(block) = blocks.first() {
            reason = format!("{reason}; clash foresees a block: {}", block.sentence());
        }
        self.decision_record(&call.action, &call.decision, &reason).append(self.session)?;
        for block in &blocks {
            let record = self.new_record(TraceEvent::Block);
            block
                .record(record, RefusingPart::Policy, BlockEvidence::Foreseen)
                .append(self.session)?;
        }
        let reason = format!("clash: {reason}");
        match call.decision.effect {
            Effect::Deny => Ok(HookAnswer::Deny { reason }),
            Effect::Ask if !self.can_ask() => Ok(HookAnswer::Deny { reason }),
            Effect::Ask | Effect::Allow => self.let_through(call, reason),
        }
    }

    /// Decides the call as it is and, if it is not allowed, with its paths below /tmp in
    /// the session's directory.
    fn decide_call(&self, action: Action) -> Result<DecidedCall, HookError> {
        let decision = self.decide(&action)?;
        if decision.effect != Effect::Allow
            && let Some(moved) = self.move_to_session_tmp(&action)?
        {
            let decision = self.decide(&moved.action)?;
            let (action, input) = (moved.action, moved.input);
            let rights = Vec::new();
            return Ok(DecidedCall { action, decision, input, moved: true, rights });
        }
        let (input, rights) = (MovedInput::AsGiven, Vec::new());
        Ok(DecidedCall { action, decision, input, moved: false, rights })
    }

    /// The reason for the decision. A stricter rule of the client's own takes precedence.
    fn reason(&self, call: &mut DecidedCall) -> String {
        let mut reason = say::reason(&call.decision);
        if let Some((effect, rule)) =
            self.own_rule(&call.action).filter(|(own, _)| *own > call.decision.effect)
        {
            reason = format!("{} has a rule of its own, {rule}", self.agent.title);
            call.decision.effect = effect;
        }
        if let Some(way_on) = say::way_on(&call.decision, &call.action) {
            reason = format!("{reason}; {way_on}");
        }
        if call.decision.effect == Effect::Ask && !self.can_ask() {
            reason = format!(
                "{reason}; {} cannot ask here, so it is not done: tell the user and stop",
                self.agent.title
            );
        }
        reason
    }

    /// The answer to a call that is allowed or that the client asks about: a script gets its
    /// launcher line, a moved path its place in the session. Denies where the client can take
    /// neither, with the line or path to use instead.
    fn let_through(&self, call: DecidedCall, reason: String) -> Result<HookAnswer, HookError> {
        let DecidedCall { action, decision, input, moved, rights } = call;
        let updated_input = match &action.input {
            ToolInput::Script(script) => {
                self.note_carried_files(&decision);
                match self.approve(script, &decision, &rights)? {
                    LaunchWay::ByClient => None,
                    LaunchWay::Rewritten(input) => Some(input),
                    LaunchWay::Instructed(line) => {
                        return Ok(HookAnswer::Deny {
                            reason: format!(
                                "clash: run it in its sandbox, with exactly this command: {line}"
                            ),
                        });
                    }
                }
            }
            ToolInput::Files(files) => {
                let input = match input {
                    MovedInput::AsGiven => None,
                    MovedInput::Replaced(input) => Some(input),
                    MovedInput::Refused => {
                        return Ok(HookAnswer::Deny { reason: use_instead(&action) });
                    }
                };
                // A path below /tmp is judged as another one. Commands cannot put a link in
                // its way: the monitor judges their links, and the host's /tmp is not theirs.
                if !moved {
                    self.check_unmoved(&action)?;
                    judged::note(self.session, self.message, files)?;
                }
                input
            }
            _ => None,
        };
        Ok(match decision.effect {
            Effect::Allow => HookAnswer::Allow { reason, updated_input },
            Effect::Ask | Effect::Deny => HookAnswer::Ask { reason, updated_input },
        })
    }

    /// Uses the permit that the user left for the next run of this script. No permit lifts
    /// a refusal of a managed policy.
    fn use_permit(&self, call: &mut DecidedCall) -> Option<String> {
        let ToolInput::Script(script) = &call.action.input else { return None };
        let is_managed = call.decision.parts.iter().any(|part| {
            part.effect > Effect::Allow
                && matches!(part.cause, DecisionCause::Rule { layer: LayerKind::Managed, .. })
        });
        if is_managed || call.decision.sandbox.is_none() {
            return None;
        }
        let permit = OncePermit::take(self.session, script)?;
        self.is_permitted.set(true);
        call.decision.effect = Effect::Allow;
        call.rights = permit.rights;
        Some(format!("`{}` is allowed: the user allowed it once", say::brief(script)))
    }

    /// The blocks that the words of a command show. Further rights of this run count.
    fn foresee(&self, call: &DecidedCall) -> Vec<BlockFacts> {
        let ToolInput::Script(script) = &call.action.input else { return Vec::new() };
        if !call.rights.is_empty() {
            return Vec::new();
        }
        let (project, cwd) = (&self.session.project, Path::new(&self.message.cwd));
        let at = ForeseenAt { dirs: self.dirs, project, cwd };
        foresee::foreseen(at, script, &call.decision, &|name| {
            let policy = LoadedPolicy::load(self.dirs, project, Some(&self.session.dir)).ok()?;
            sandbox_named(&policy, name).ok()
        })
    }

    /// Fails if the paths lead elsewhere than when they were judged.
    fn check_unmoved(&self, action: &Action) -> Result<(), HookError> {
        match self.action() {
            Ok(Some(now)) if now.input == action.input => Ok(()),
            _ => Err(HookError::Moves),
        }
    }

    /// Notes the instructions and pipelines that the command's sandbox, unlike most, may
    /// write.
    pub(super) fn note_carried_files(&self, decision: &Decision) {
        let excepts = |path: &String| path != protect::REPOSITORY;
        if decision.sandbox.iter().any(|sandbox| sandbox.protect.except.iter().any(excepts)) {
            watch::remember_carried(self.session);
        }
    }

    /// The strictest of the client's own rules about a command. The client itself will
    /// not see the command that clash has rewritten.
    fn own_rule(&self, action: &Action) -> Option<(Effect, String)> {
        let ToolInput::Script(script) = &action.input else { return None };
        let user = self.dirs.for_agents();
        own_rules::strictest_rule(self.agent, &user, &self.session.project, script)
    }

    /// True if the client can ask the user now. Some can only if a user sits at the terminal.
    pub(super) fn can_ask(&self) -> bool {
        match self.agent.abilities.asks {
            QuestionSupport::Yes => true,
            QuestionSupport::Attended => attended::is_attended(self.agent.abilities.program),
            QuestionSupport::No => false,
        }
    }

    /// The client is about to ask the user itself. A deny of the policy answers instead.
    pub(super) fn question(&self) -> Result<HookAnswer, HookError> {
        let Some(action) = self.action()? else { return Ok(HookAnswer::Silent) };
        // The question may be about the line that the hook made of the command.
        if let (ToolInput::Script(script), Ok(own)) = (&action.input, std::env::current_exe())
            && LauncherLine::read(script, &own).is_some()
        {
            return Ok(HookAnswer::Silent);
        }
        let decision = self.decide(&action)?;
        let reason = say::reason(&decision);
        self.decision_record(&action, &decision, &reason).append(self.session)?;
        Ok(match decision.effect {
            Effect::Deny => HookAnswer::Deny { reason: format!("clash: {reason}") },
            // The hook has allowed the call before. The client asks for a reason of its
            // own, and the user answers.
            Effect::Allow | Effect::Ask => HookAnswer::Silent,
        })
    }

    /// The record of a decision, with the script, the files or the hosts that it is about.
    pub(super) fn decision_record(
        &self,
        action: &Action,
        decision: &Decision,
        reason: &str,
    ) -> TraceRecord {
        let what = match &action.input {
            ToolInput::Script(script) => script.clone(),
            ToolInput::Files(files) => {
                let paths = files.iter().map(|file| file.path.display().to_string());
                paths.collect::<Vec<_>>().join(", ")
            }
            ToolInput::Hosts(hosts) if !hosts.is_empty() => {
                let hosts = hosts.iter().map(|host| host.host.as_str());
                hosts.collect::<Vec<_>>().join(", ")
            }
            ToolInput::Hosts(_) | ToolInput::Fields(_) => action.tool.clone(),
        };
        let rule = match decision.decisive().map(|part| &part.cause) {
            Some(DecisionCause::Rule { span, .. } | DecisionCause::Default { span, .. }) => {
                Some(span.to_string())
            }
            _ => None,
        };
        TraceRecord {
            what: Some(what),
            effect: Some(decision.effect.to_string()),
            sandbox: decision.sandbox.as_ref().map(|sandbox| sandbox.name.clone()),
            rule,
            reason: Some(reason.to_owned()),
            ..self.new_record(TraceEvent::Decision)
        }
    }
}
