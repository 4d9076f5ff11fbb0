//! The start and the end of a session, and settings that change while it runs.

use clash_agents::{Answer, claude};

use super::{HookCall, HookError};
use crate::approval::Approval;
use crate::policy::LoadedPolicy;
use crate::trace::{self, Record};
use crate::{judged, tell, temporary, watch};

impl HookCall<'_> {
    pub(super) fn session_start(&self) -> Result<Answer, HookError> {
        let record = Record {
            agent: Some(self.agent.name.to_owned()),
            what: Some(self.session.project.display().to_string()),
            ..Record::new(self.session, trace::Event::SessionStart)
        };
        record.append(self.session)?;
        if let Err(error) = self.check_project() {
            return Ok(Answer::Note(format!("clash: every action is denied: {error}")));
        }
        watch::remember(self.dirs, self.session);
        temporary::sweep(self.dirs);
        Ok(match LoadedPolicy::load(self.dirs, &self.session.project, Some(&self.session.dir)) {
            Ok(policy) => {
                let tmp = temporary::of_session(&self.session.dir);
                tell::at_start(&policy, self.agent, &tmp).map_or(Answer::Silent, Answer::Context)
            }
            Err(error) => Answer::Note(format!("clash: every action is denied: {error}")),
        })
    }

    /// The session's /tmp stays for some days: the user may resume the session, and a
    /// command may have moved files of the project there.
    pub(super) fn session_end(&self) -> Result<Answer, HookError> {
        Approval::discard_all(self.session);
        judged::discard_all(self.session);
        Record::new(self.session, trace::Event::SessionEnd).append(self.session)?;
        Ok(Answer::Silent)
    }

    /// Settings of a project come into force with the next session: a command of this one
    /// may have written them, and a hook in them would run outside every sandbox. The
    /// user's own come into force at once unless they switch clash off.
    pub(super) fn settings_change(&self) -> Answer {
        match self.message.source.as_str() {
            "policy_settings" | "skills" => Answer::Silent,
            "user_settings" => match claude::off_switch(&self.dirs.claude.join("settings.json")) {
                Some(what) => {
                    Answer::Deny { reason: format!("clash: the user's settings: {what}") }
                }
                None => Answer::Silent,
            },
            _ => Answer::Deny {
                reason: "clash: settings of a project come into force with the next session"
                    .to_owned(),
            },
        }
    }
}
