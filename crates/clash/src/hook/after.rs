//! Checks after a tool call that it ran as decided, and tells the user and the model.

use std::path::{Path, PathBuf};

use clash_agents::{ConfinementMethod, HookAnswer, HookEvent, ToolError};
use clash_policy::{Action, ToolInput};

use super::launcher_line::LauncherLine;
use super::{HookCall, HookError, reply};
use crate::approval::{ApprovalSlip, OWN_SANDBOX};
use crate::blocks::BlockFacts;
use crate::observed::{self, EndedCommand};
use crate::policy::LoadedPolicy;
use crate::remedy::Remedy;
use crate::trace::{self, BlockEvidence, RefusingPart, TraceEvent, TraceRecord};
use crate::{judged, rooms, tell, watch};

impl HookCall<'_> {
    /// Records how the tool call ended. Raises an alarm for a command that did not go
    /// through the launcher, and for a file tool that used other files than judged.
    pub(super) fn after(&self, event: HookEvent) -> Result<HookAnswer, HookError> {
        let record = TraceRecord {
            ok: Some(event == HookEvent::AfterTool),
            reason: self.message.error.clone(),
            status: self.message.exit_status(),
            duration_ms: self.message.duration_ms,
            ..self.new_record(TraceEvent::Exit)
        };
        record.append(self.session)?;
        if let Err(error) = self.check_project() {
            return Ok(HookAnswer::Note(format!("clash: {error}")));
        }
        let script = match self.action() {
            Ok(Some(Action { input: ToolInput::Script(script), .. })) => script,
            Ok(Some(Action { input: ToolInput::Files(files), .. })) => {
                let Some(text) = judged::find_difference(self.session, self.message, &files) else {
                    return Ok(HookAnswer::Silent);
                };
                let text = format!("clash: {text}; look at what runs in the background");
                return self.raise_alarm(text);
            }
            // The path did not move when it was judged.
            Err(error @ ToolError::Moves { .. }) => {
                return self.raise_alarm(format!("clash: {error}"));
            }
            _ => return Ok(HookAnswer::Silent),
        };
        let always = self.agent.abilities.confines == ConfinementMethod::RewriteAlways;
        if always && reply::is_refusal(&script) {
            return Ok(HookAnswer::Silent);
        }
        match self.alarm(&script)? {
            Some(text) => self.raise_alarm(text),
            None => {
                let told = [self.blocked_by_sandbox(&script), self.rooms_left()?];
                let told: Vec<String> = told.into_iter().flatten().collect();
                let is_silent = told.is_empty();
                Ok(if is_silent {
                    HookAnswer::Silent
                } else {
                    HookAnswer::Context(told.join("\n"))
                })
            }
        }
    }

    /// The rooms of this session whose processes go on, for the model. It hears of each room
    /// once, and so does the trace.
    fn rooms_left(&self) -> Result<Option<String>, HookError> {
        let rooms = rooms::find_untold(self.dirs, &self.session.name);
        for room in &rooms {
            let record = TraceRecord {
                what: Some(room.record.command.clone()),
                sandbox: Some(room.record.sandbox.clone()),
                reason: Some(format!("its processes go on in room {}", room.record.id)),
                pid: Some(room.record.keeper),
                ..self.new_record(TraceEvent::RoomStart)
            };
            record.append(self.session)?;
        }
        Ok((!rooms.is_empty()).then(|| tell::about_rooms(&rooms)))
    }

    /// Blocks of this call that the trace has already, for example of the monitor.
    fn traced_blocks(&self) -> Vec<TraceRecord> {
        let is_of_call = |record: &TraceRecord| {
            record.event == TraceEvent::Block
                && record.call.as_deref() == Some(self.action_id.as_str())
        };
        let records = trace::read_end(&self.session.dir).unwrap_or_default();
        records.into_iter().filter(is_of_call).collect()
    }

    /// The rules that a failed command ran into, for the model and for the trace. It is only
    /// a help: on an error the model hears nothing.
    fn blocked_by_sandbox(&self, ran: &str) -> Option<String> {
        let failed = self.message.error.as_deref().unwrap_or_default();
        let output = format!("{}\n{failed}", self.message.output);
        let has_failed =
            self.message.error.is_some() || self.message.exit_status().unwrap_or(0) != 0;
        let is_suspicious = observed::is_suspicious(&output);
        if !is_suspicious && !has_failed {
            return None;
        }
        let own = std::env::current_exe().ok()?;
        let inner = LauncherLine::read(ran, &own).map(|(_, inner)| inner);
        let script = inner.as_deref().unwrap_or(ran);
        let action = Action::script(self.agent.name, &self.message.mode, script);
        let sandbox = self.decide(&action).ok()?.sandbox?;
        let (project, cwd) = (&self.session.project, Path::new(&self.message.cwd));
        let place = EndedCommand {
            dirs: self.dirs,
            project,
            cwd,
            sandbox: &sandbox,
            script,
            failed: has_failed,
        };
        let known = self.traced_blocks();
        let is_known = |block: &BlockFacts| {
            let mut whats = known.iter().filter_map(|it| it.block.as_ref());
            whats.any(|it| it.what == block.what)
        };
        let mut blocks: Vec<BlockFacts> =
            if is_suspicious { observed::blocks_in(&place, &output) } else { Vec::new() };
        for block in blocks.iter().filter(|block| !is_known(block)) {
            let record = self.new_record(TraceEvent::Block);
            let record = block.record(record, RefusingPart::Kernel, BlockEvidence::Inferred);
            record.append(self.session).ok()?;
        }
        let traced = known.iter().filter_map(|it| BlockFacts::of_record(it, &sandbox));
        for block in traced {
            if !blocks.iter().any(|other| other.what == block.what) {
                blocks.push(block);
            }
        }
        let policy = LoadedPolicy::load(self.dirs, project, Some(&self.session.dir)).ok()?;
        let on = policy.ir().layers().find_map(|layer| layer.ok()?.on_sandbox_violation().ok()?);
        tell::about_blocks(&blocks, script, on, self.can_ask())
    }

    /// The first alarm about a command that has ended: it did not go through the launcher,
    /// the project's settings work against clash, or files that steer agents changed. `None`
    /// if all is well.
    fn alarm(&self, ran: &str) -> Result<Option<String>, HookError> {
        if !self.went_through_launcher(ran)? {
            if self.is_in_own_sandbox(ran) {
                let title = self.agent.title;
                return Ok(Some(format!(
                    "clash: nothing ran: no command of clash can start in the sandbox of {title} \
                     itself; run `{}`",
                    Remedy::Doctor
                )));
            }
            return Ok(Some(format!(
                "clash: this command did not run in its sandbox: another hook or setting replaced \
                 it, or it never started; run `{}`",
                Remedy::Doctor
            )));
        }
        let user = self.dirs.for_agents();
        if let Some(problem) = (self.agent.hostile)(&user, &self.session.project) {
            return Ok(Some(format!(
                "clash: settings in this project work against clash: {problem}; \
                 remove that before the next session"
            )));
        }
        let listed = |paths: &[PathBuf]| {
            paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
        };
        let changed = watch::find_changed(self.dirs, self.session);
        let carried = watch::carried_changed(self.session);
        if !changed.is_empty() {
            return Ok(Some(format!(
                "clash: {} changed during this command and will be obeyed by the next session: \
                 look at it before you start one",
                listed(&changed)
            )));
        }
        Ok((!carried.is_empty()).then(|| {
            format!(
                "clash: git changed {}, which agents or build servers obey: look at it before \
                 you start a session or push",
                listed(&carried)
            )
        }))
    }

    /// True if the launcher was started as decided and refused because of the sandbox that
    /// the agent brings along.
    fn is_in_own_sandbox(&self, ran: &str) -> bool {
        let own = std::env::current_exe().unwrap_or_default();
        let is_ours = LauncherLine::read(ran, &own).is_some();
        let error = self.message.error.as_deref().unwrap_or_default();
        let refused =
            [self.message.output.as_str(), error].iter().any(|text| text.contains(OWN_SANDBOX));
        is_ours && refused
    }

    /// True if the command that ran is the one that was decided, as far as the client
    /// shows it.
    fn went_through_launcher(&self, ran: &str) -> Result<bool, HookError> {
        // A command in the background may not have begun yet.
        let in_background = self.message.runs_in_background;
        if matches!(
            self.agent.abilities.confines,
            ConfinementMethod::ShellPrefix | ConfinementMethod::Shell
        ) {
            let left = || ApprovalSlip::remove_of_call(self.session, &self.message.call);
            return Ok(in_background || !left()?);
        }
        let own = std::env::current_exe().map_err(HookError::OwnPath)?;
        let Some((line, _)) = LauncherLine::read(ran, &own) else { return Ok(false) };
        let ours = line.session == self.session.name;
        Ok(ours && (in_background || !ApprovalSlip::remove_left(self.session, line.slip)))
    }
}
