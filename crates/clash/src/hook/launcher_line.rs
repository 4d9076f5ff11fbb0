//! The line that runs a command in its sandbox: `clash exec --approval ID -- 'SCRIPT'`.

use std::path::Path;

use clash_agents::{ConfinementMethod, HookAnswer};
use clash_policy::Effect;
use clash_policy::decide::Decision;
use clash_shell::shell_quoted;
use serde_json::{Map, Value};

use super::{HookCall, HookError};
use crate::approval::ApprovalSlip;
use crate::rights::ExtraRight;
use crate::say;

/// The kernel takes no argument longer than 128 KiB (`MAX_ARG_STRLEN`), and the line has
/// quotes and the approval around the script.
const MAX_SCRIPT_BYTES: usize = 100 << 10;

/// The line around a command. It is short, because users see it when they are asked, and
/// always the same, because the hook recognises it afterwards.
pub(super) struct LauncherLine<'a> {
    pub(super) session: &'a str,
    pub(super) slip: &'a str,
}

impl<'a> LauncherLine<'a> {
    fn write(&self, own: &Path, script: &str) -> String {
        let own = shell_quoted(&own.to_string_lossy());
        let Self { session, slip } = self;
        format!("{own} exec --approval {session}.{slip} -- {}", shell_quoted(script))
    }

    /// Reads exactly such a line: its approval, and the script in it.
    pub(super) fn read(text: &'a str, own: &Path) -> Option<(Self, String)> {
        let text = text.trim();
        let rest = text.strip_prefix(&shell_quoted(&own.to_string_lossy()))?;
        let (id, quoted) = rest.strip_prefix(" exec --approval ")?.split_once(" -- ")?;
        let (session, slip) = id.split_once('.')?;
        let inner = quoted.strip_prefix('\'')?.strip_suffix('\'')?.replace(r"'\''", "'");
        let this = Self { session, slip };
        (this.write(own, &inner) == text).then_some((this, inner))
    }
}

/// How a command gets into its sandbox.
pub(super) enum LaunchWay {
    /// The client starts the launcher itself.
    ByClient,
    /// The tool call gets this input.
    Rewritten(Map<String, Value>),
    /// The model has to run this line.
    Instructed(String),
}

/// True for a script that calls the launcher with an approval. A model that has seen the
/// launcher's line may try it.
pub(super) fn calls_launcher(script: &str) -> bool {
    script.contains("--approval")
        && clash_shell::find_commands(script).iter().any(|command| {
            let words = || command.words.iter().map(|word| word.known());
            let program = words().next().flatten().and_then(|word| word.rsplit('/').next());
            program == Some("clash") && words().any(|word| word == Some("--approval"))
        })
}

/// True for a script that calls a command of clash which gives rights. Only the user runs
/// these; in a sandbox they could change nothing anyway.
pub(super) fn gives_rights(script: &str) -> bool {
    const GIVING: [&[&str]; 10] = [
        &["allow"],
        &["answer"],
        &["sandbox", "allow"],
        &["policy", "allow"],
        &["policy", "ask"],
        &["policy", "remove"],
        &["policy", "undo"],
        &["trust"],
        &["uninstall"],
        &["init"],
    ];
    script.contains("clash")
        && clash_shell::find_commands(script).iter().any(|command| {
            let mut words = command.words.iter().map(|word| word.known().unwrap_or_default());
            let program = words.next().and_then(|word| word.rsplit('/').next());
            let words: Vec<&str> = words.filter(|word| !word.starts_with('-')).collect();
            program == Some("clash") && GIVING.iter().any(|giving| words.starts_with(giving))
        })
}

impl HookCall<'_> {
    /// Leaves the approval for the launcher, and chooses the way in which the launcher
    /// gets in front of the command.
    pub(super) fn approve(
        &self,
        script: &str,
        decision: &Decision,
        rights: &[ExtraRight],
    ) -> Result<LaunchWay, HookError> {
        if script.len() > MAX_SCRIPT_BYTES {
            return Err(HookError::TooLong);
        }
        let sandbox = decision.sandbox.as_ref().map(|s| s.name.clone()).unwrap_or_default();
        let approval = ApprovalSlip {
            script: script.to_owned(),
            sandbox,
            call: self.message.call.clone(),
            action: self.action_id.clone(),
            asked: decision.effect == Effect::Ask,
            mode: self.message.mode.clone(),
            rights: rights.to_vec(),
            permitted: self.is_permitted.get(),
        };
        let slip = approval.leave(self.session)?;
        if self.agent.starts_launcher(&self.dirs.for_agents()) {
            return Ok(LaunchWay::ByClient);
        }
        let own = std::env::current_exe().map_err(HookError::OwnPath)?;
        let line = LauncherLine { session: &self.session.name, slip: &slip }.write(&own, script);
        if self.agent.abilities.confines == ConfinementMethod::Instruct {
            return Ok(LaunchWay::Instructed(line));
        }
        Ok((self.agent.rewrite)(self.message, &line)
            .map_or_else(|| LaunchWay::Instructed(line), LaunchWay::Rewritten))
    }

    /// The answer to the line that clash told the model to run, if its approval is still
    /// there. The launcher then judges the command inside the line again.
    pub(super) fn answer_instructed(&self, script: &str) -> Result<Option<HookAnswer>, HookError> {
        if self.agent.abilities.confines != ConfinementMethod::Instruct {
            return Ok(None);
        }
        let own = std::env::current_exe().map_err(HookError::OwnPath)?;
        let Some((line, inner)) = LauncherLine::read(script, &own) else { return Ok(None) };
        if line.session != self.session.name {
            return Ok(None);
        }
        let Some(slip) = ApprovalSlip::look(self.session, line.slip, &inner) else {
            return Ok(None);
        };
        Ok(Some(if slip.asked {
            let reason = format!(
                "clash: `{}` needs your approval, to run in sandbox {}",
                say::brief(&inner),
                slip.sandbox
            );
            HookAnswer::Ask { reason, updated_input: None }
        } else {
            let reason = format!("clash: it runs in sandbox {}", slip.sandbox);
            HookAnswer::Allow { reason, updated_input: None }
        }))
    }
}
