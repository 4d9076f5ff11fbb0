//! The launcher: from a command to the sandbox it runs in.
//!
//! Every entry goes the same way, and no entry trusts that a hook ran:
//!
//! 1. [`settings_check`]: settings of the project that switch clash off refuse the
//!    command.
//! 2. approval: the slip that the hook left answers a question of the policy, once.
//! 3. decide: the same policy that the hook used decides the command again.
//! 4. settle: a decision that lets the command run gives its sandbox.
//! 5. [`confine`]: clash plans the sandbox, and this process becomes the command.
//!
//! | entry | called by | sandbox |
//! |---|---|---|
//! | `clash exec -- COMMAND` | the user | the policy decides |
//! | `clash exec --approval ID -- SCRIPT` | the line that a hook wrote | the policy decides |
//! | `clash-shell STRING` | an agent, in front of its own shell | the policy decides |
//! | `clash-sh -c SCRIPT` | an agent whose shell is clash | the policy decides |
//! | `clash sandbox exec NAME -- COMMAND` | the user | the user names it |
//! | `clash run AGENT` | the user | the user names it; [`crate::cmd`] plans it |

mod confine;
mod context;
mod door;
mod door_launch;
mod entries;
mod error;
pub(crate) mod gate;
mod named_commands;
mod project_program;
mod script_name;
mod settings_check;
mod shell_string;
mod witness;

pub(crate) use entries::{
    exec_main, launch_in_named, sandbox_main, sandbox_named, sh_main, shell_main,
};
pub(crate) use error::{LauncherError, report};
pub(crate) use settings_check::{HostileSettingsError, refuse_hostile_settings};

use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use clash_policy::Effect;
use clash_sandbox::launch::CommandOfDoor;
use clash_sandbox::plan::PathGrant;

use crate::approval::ApprovalSlip;
use crate::rights;
use clash_agents::Agent;
use confine::GivenParts;
use context::LaunchContext;
use named_commands::NamedCommands;

/// A launch that succeeds does not return: the process has become the command.
type Never = std::convert::Infallible;

/// A command on its way into its sandbox.
#[derive(Clone)]
struct RequestedCommand<'a> {
    /// The text that the policy judges.
    script: &'a str,
    /// The text of the trace.
    shown: &'a str,
    program: &'a OsStr,
    args: &'a [OsString],
    /// The program's file, if the room has a door in its place.
    file: Option<Arc<OwnedFd>>,
    door: Option<CommandOfDoor>,
    /// True if the processes that the command leaves go on.
    may_detach: bool,
}

impl<'a> RequestedCommand<'a> {
    fn new(script: &'a str, program: &'a OsStr, args: &'a [OsString]) -> Self {
        Self { script, shown: script, program, args, file: None, door: None, may_detach: true }
    }
}

/// Where the launcher looks for the approval of a command.
enum ApprovalSource<'a> {
    /// A user at a terminal has none: a question of the policy refuses the command.
    None,
    /// The slip of the session that is about this script.
    ForScript,
    /// The slip of this name.
    Slip(&'a str),
}

/// Who started the command, for a question of the policy without an approval.
#[derive(Clone, Copy, PartialEq, Eq)]
enum StartedBy {
    /// The agent, or a script of the user: the question refuses the command.
    Caller,
    /// A person at a terminal, who is asked.
    Person,
    /// A hook or a server in the settings. The user who wrote the settings has answered
    /// the question; the command still runs in its sandbox.
    Settings,
}

/// The grants that the client's own lines around the script need. The launcher calls it
/// only for a command that runs, because it creates a file.
type ExtraGrants<'a> = &'a dyn Fn() -> Result<Vec<PathGrant>, LauncherError>;

impl LaunchContext {
    /// Takes a command from its approval to its sandbox, and becomes the command. In this
    /// order: refuses hostile settings, takes the approval (which is then used up), decides
    /// the script, asks the user if a person started it at a terminal, settles the sandbox,
    /// makes its doors and confines. An ask of a command that the user's own settings start
    /// counts as an allow.
    fn launch(
        &self,
        command: &RequestedCommand<'_>,
        agent: Option<&Agent>,
        source: &ApprovalSource<'_>,
        started_by: StartedBy,
        extra: ExtraGrants<'_>,
    ) -> Result<Never, LauncherError> {
        refuse_hostile_settings(&self.dirs, &self.project, agent)?;
        let approval = self.take_approval(command.script, source)?;
        if let Some(approval) = approval.as_ref().filter(|approval| !approval.action.is_empty()) {
            let _ = self.action.set(approval.action.clone());
        }
        let mode = approval.as_ref().map_or("", |approval| approval.mode.as_str()).to_owned();
        let policy = self.load_policy()?;
        let mut decision = self.decide(&policy, command.script, &mode)?;
        let is_permitted = approval.as_ref().is_some_and(|approval| approval.permitted);
        let answers = NamedCommands::of_script(command.script, &decision, is_permitted);
        if started_by == StartedBy::Settings && decision.effect == Effect::Ask {
            decision.effect = Effect::Allow;
        }
        if started_by == StartedBy::Person {
            self.ask_person(&mut decision)?;
        }
        let mix = decision.mix.clone();
        let rights = approval.as_ref().map(|it| it.rights.clone()).unwrap_or_default();
        let mut room = self.settle(command.script, decision.clone(), approval)?;
        // A yes to the command is a yes to the hosts that it names. Settings ask no user.
        if mix.is_none() && started_by != StartedBy::Settings {
            rights::add_asked_hosts(&mut room, &decision);
        }
        rights::add_all(&mut room, &rights, &self.project).map_err(LauncherError::Refused)?;
        let doors = self.doors(&policy, &room, mix.as_ref(), answers, mode, 0)?;
        let is_push = door::is_push(command.script);
        let doors = doors.map(|doors| door::RoomDoors { is_push, ..doors });
        self.confine(None, &room, &extra()?, command, doors.as_ref(), GivenParts::own())
    }

    /// Takes the approval of a script from the session; `None` if the source has none. Fails
    /// if a named one is missing or about another script.
    fn take_approval(
        &self,
        script: &str,
        source: &ApprovalSource<'_>,
    ) -> Result<Option<ApprovalSlip>, LauncherError> {
        let Some(session) = &self.session else { return Ok(None) };
        Ok(match source {
            ApprovalSource::None => None,
            ApprovalSource::ForScript => ApprovalSlip::take_any(session, script)?,
            ApprovalSource::Slip(name) => Some(ApprovalSlip::take(session, name, script)?),
        })
    }
}
