//! The start and the end of a session, and settings that change while it runs.

use clash_agents::HookAnswer;

use super::{HookCall, HookError};
use crate::approval::ApprovalSlip;
use crate::policy::LoadedPolicy;
use crate::session::sessions_dir;
use crate::trace::{TraceEvent, TraceRecord, segments};
use crate::{approval, judged, rooms, tell, temporary, watch};

impl HookCall<'_> {
    /// Records the start of the session, removes old temporary directories, and answers with
    /// the rules, or with the reason why every action is denied.
    pub(super) fn session_start(&self) -> Result<HookAnswer, HookError> {
        let record = TraceRecord {
            agent: Some(self.agent.name.to_owned()),
            what: Some(self.session.project.display().to_string()),
            ..TraceRecord::new(self.session, TraceEvent::SessionStart)
        };
        record.append(self.session)?;
        if let Err(error) = self.check_project() {
            return Ok(HookAnswer::Note(format!("clash: every action is denied: {error}")));
        }
        watch::remember_states(self.dirs, self.session);
        temporary::sweep(self.dirs);
        approval::sweep(&sessions_dir(self.dirs));
        segments::forget_old(&sessions_dir(self.dirs), &self.session.dir);
        Ok(match LoadedPolicy::load(self.dirs, &self.session.project, Some(&self.session.dir)) {
            Ok(policy) => {
                let tmp = temporary::session_tmp(&self.session.dir);
                tell::at_start(&policy, self.agent, &tmp)
                    .map_or(HookAnswer::Silent, HookAnswer::Context)
            }
            Err(error) => HookAnswer::Note(format!("clash: every action is denied: {error}")),
        })
    }

    /// The session's /tmp stays for some days: the user may resume the session, and a
    /// command may have moved files of the project there.
    pub(super) fn session_end(&self) -> Result<HookAnswer, HookError> {
        let stopped = rooms::stop_session(self.dirs, &self.session.name);
        ApprovalSlip::discard_all(self.session);
        judged::discard_all(self.session);
        for room in stopped {
            let record = TraceRecord {
                what: Some(room.command),
                sandbox: Some(room.sandbox),
                reason: Some(format!("room {} was stopped with the session", room.id)),
                ..TraceRecord::new(self.session, TraceEvent::RoomEnd)
            };
            record.append(self.session)?;
        }
        TraceRecord::new(self.session, TraceEvent::SessionEnd).append(self.session)?;
        Ok(HookAnswer::Silent)
    }

    /// Refuses settings that would switch clash off, or that a command of this session may
    /// have written.
    pub(super) fn settings_change(&self) -> HookAnswer {
        let refuse = self.agent.extras.refuse_settings_change;
        match refuse(&self.dirs.for_agents(), &self.message.source) {
            Some(why) => HookAnswer::Deny { reason: format!("clash: {why}") },
            None => HookAnswer::Silent,
        }
    }
}
