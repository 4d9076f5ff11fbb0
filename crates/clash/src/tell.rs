//! The texts that clash gives to a model: at the start of a session the rights that it
//! has, and after a command the accesses that its sandbox blocked.
//!
//! A model without these texts tries, fails, and looks for a way around. So a text names
//! the sandbox, the blocked path and the next step.

use std::path::Path;

use clash_policy::ir::IrError;
use clash_policy::rule::OnViolation;
use clash_policy::{Effect, FileCaps, NetworkAccess, Sandbox};

use crate::blocks::BlockFacts;
use crate::dirs::Dirs;
use crate::policy::LoadedPolicy;
use crate::remedy::Remedy;
use crate::rooms::{RoomRecord, RunningRoom};
use crate::say::brief;
use clash_agents::{Agent, QuestionSupport};

/// Tells the model the rights of this session: the default effect, the default sandbox, /tmp,
/// and a problem with the agent's own sandbox.
pub(crate) fn at_start(
    policy: &LoadedPolicy,
    agent: &Agent,
    tmp: &Path,
) -> Result<String, IrError> {
    let mut default = None;
    let mut sandbox = None;
    for layer in policy.ir().layers() {
        let layer = layer?;
        if let (None, Some(rule)) = (default, layer.default()?) {
            default = Some(rule.effect()?);
        }
        if let (None, Some(named)) = (&sandbox, layer.default_sandbox()?) {
            sandbox = Some(named.to_sandbox()?);
        }
    }
    let rest = match (default.unwrap_or(Effect::Ask), agent.abilities.asks) {
        (Effect::Allow, _) => "is allowed",
        (Effect::Deny, _) => "is refused",
        (Effect::Ask, QuestionSupport::No) => "is refused, because this agent cannot ask the user",
        (Effect::Ask, _) => "needs the user's approval",
    };
    let mut text = format!(
        "clash confines this session: every command runs in a sandbox that the user's policy \
         chooses and the operating system enforces; file and web tools are judged by the same \
         policy. An action that no rule mentions {rest}."
    );
    if let Some(sandbox) = sandbox.filter(|sandbox| !sandbox.unrestricted) {
        text.push_str(&format!(" {}", described(&sandbox)));
    }
    text.push_str(&format!(
        " /tmp is a directory of this session; to edit a file in it with a file tool, use its path \
         in {}.",
        tmp.display()
    ));
    text.push_str(
        " A refusal names its rule and the way on: another form that works, an alternative inside \
         the rights, a request to the user, or to stop. Do not look for a way around it.",
    );
    // Only the settings are read: no hook learns the agent's command line.
    if let Some(problem) =
        Dirs::from_env().ok().and_then(|dirs| agent.own_sandbox(&dirs.for_agents()))
    {
        let fix = problem.fix.unwrap_or_default();
        text.push_str(&format!(" {}; if commands fail, tell the user: {fix}.", problem.what));
    }
    Ok(text)
}

/// One sentence about a sandbox: the first places that it may change, and its network.
fn described(sandbox: &Sandbox) -> String {
    let writable = sandbox
        .fs
        .iter()
        .filter(|rule| rule.effect == Effect::Allow && rule.caps.contains(FileCaps::WRITE));
    let mut writable: Vec<String> = writable.map(|rule| rule.pattern.to_string()).collect();
    if writable.len() > MAX_LISTED {
        let more = writable.len() - MAX_LISTED;
        writable.truncate(MAX_LISTED);
        writable.push(format!("{more} more places"));
    }
    let writes = match writable.as_slice() {
        [] => "may change no file".to_owned(),
        some => format!("may change only {}", some.join(", ")),
    };
    format!(
        "Commands normally run in sandbox {}: it {writes}; {}.",
        sandbox.name,
        net(&sandbox.net)
    )
}

/// A text for the model lists this many paths or hosts.
const MAX_LISTED: usize = 6;

/// The network of a sandbox in words. Of host rules, it names only allowed hosts, at most
/// `MAX_LISTED`.
fn net(net: &NetworkAccess) -> String {
    match net {
        NetworkAccess::Deny => "it has no network".to_owned(),
        NetworkAccess::Allow => "it has network".to_owned(),
        NetworkAccess::Ask => "every new host needs the user's approval".to_owned(),
        NetworkAccess::Hosts { rules, .. } => {
            let granted = rules.iter().filter(|rule| rule.effect == Effect::Allow);
            let mut names: Vec<String> = granted.map(|rule| rule.host.to_string()).collect();
            names.dedup();
            names.truncate(MAX_LISTED);
            format!("it reaches only {}", names.join(", "))
        }
    }
}

/// Tells the model what was blocked and the next step: an alternative inside the grants, a
/// request for one more right, or to stop.
pub(crate) fn about_blocks(
    blocks: &[BlockFacts],
    script: &str,
    on: Option<OnViolation>,
    can_ask: bool,
) -> Option<String> {
    const MAX_TOLD: usize = 3;
    let first = blocks.first()?;
    let mut text = format!("clash blocked this: {}.", first.sentence());
    for block in blocks.iter().skip(1).take(MAX_TOLD - 1) {
        text.push_str(&format!(" Also: {}.", block.sentence()));
    }
    if !first.nearby.is_empty() {
        text.push_str(&format!(" Granted there: {}.", first.nearby));
    }
    // A request is one command and nothing else.
    let is_one = || {
        let commands = clash_shell::find_commands(script);
        matches!(commands.as_slice(), [one] if one.redirections.is_empty() && one.opaque.is_none())
    };
    let ask = first.request.as_ref().filter(|_| can_ask && !script.contains('\n') && is_one());
    let ask = ask.map(|request| format!("{request} -- {script}"));
    let then = match (on.unwrap_or(OnViolation::Smart), ask) {
        (OnViolation::Stop, _) => {
            " Stop here and do not try another way: tell the user what was blocked and why you \
             need it."
                .to_owned()
        }
        (OnViolation::Workaround, _) => {
            " Go on in a way that stays inside the granted rights; do not try to get around the \
             sandbox."
                .to_owned()
        }
        (OnViolation::Smart, Some(ask)) => format!(
            " If the task can be done inside the granted rights, do that. If it needs this one \
             right, ask the user for it, once, with `{ask}`. Otherwise stop and tell the user. Do \
             not try to get around it."
        ),
        (OnViolation::Smart, None) => {
            " If the task can be done inside the granted rights, do that. Otherwise stop and tell \
             the user what was blocked and why you need it. Do not try to get around it."
                .to_owned()
        }
    };
    text.push_str(&then);
    if let Some(grant) = &first.grant {
        text.push_str(&format!(" The user allows it with: {grant}"));
    }
    Some(text)
}

/// Tells about rooms whose processes go on after their command.
pub(crate) fn about_rooms(rooms: &[RunningRoom]) -> String {
    let about = |room: &RunningRoom| {
        let RoomRecord { id, command, .. } = &room.record;
        let ports: Vec<String> = room.ports.iter().map(u16::to_string).collect();
        let ports = match ports.as_slice() {
            [] => String::new(),
            ports => format!(", ports {}", ports.join(", ")),
        };
        let command = brief(command);
        format!(
            "clash: a process is still running in room {id} (`{command}`{ports}). It goes on \
             until the session ends; `{}` in a terminal ends it",
            Remedy::Stop { room: id.clone() }
        )
    };
    rooms.iter().map(about).collect::<Vec<_>>().join("\n")
}
