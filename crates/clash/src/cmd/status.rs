//! `clash status`: the policies in force and the actions blocked lately, on one screen.

use std::path::{Path, PathBuf};

use clash_history::day_and_time;
use clash_policy::rule::{Layer, LayerKind};
use clash_sandbox::facts::{Facility, HostFacts, RoomSupport};
use serde_json::{Value, json};

use super::log::{self, ActionFilter, StoryQuery};
use super::wiring::trial::{self, TrialOutcome};
use super::wiring::{AgentWiring, SettingsContent};
use super::{dirs_and_project, unless_closed};
use crate::dirs::Dirs;
use crate::policy::LoadedPolicy;
use crate::remedy::Remedy;
use crate::story::ActionStory;
use crate::ui::{CommandOutput, Failure, TextTone};
use crate::{env, exit, say};
use clash_agents::wiring::InstallScope;
use clash_agents::{AGENTS, Agent, ConfinementMethod, WiringProblem};

/// Show the policy in force here, and the actions blocked lately
///
/// Shows the policies in force and their default, the agents and the confinement of their
/// commands, the abilities of this machine, and the actions blocked lately. Exit status: 1 if
/// clash denies every action because it cannot use the policy.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The project; found from the working directory if not given
    #[arg(long, value_name = "DIR")]
    project: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Everything on the screen.
struct StatusScreen {
    project: PathBuf,
    policy: Result<PoliciesInForce, Failure>,
    agents: Vec<AgentState>,
    host: HostFacts,
    blocked: Vec<ActionStory>,
}

/// The layers of the user, of the project and of the administrator, highest first, with
/// the effect of an action that no rule matches.
struct PoliciesInForce {
    layers: Vec<Layer>,
    default: String,
    sandbox: String,
    at: Option<String>,
}

/// One agent of the user: its wiring and the confinement of its commands, in words.
struct AgentState {
    title: &'static str,
    state: &'static str,
    commands: String,
    /// The problems of the wiring.
    details: Vec<WiringProblem>,
    /// The setting of this project that works against clash.
    against: Option<String>,
}

impl Args {
    /// Collects and prints the screen. Runs the agents' hooks with a harmless command, and
    /// may probe this machine. Exit status 1 if the policies do not compile.
    pub(crate) fn run(self, out: &mut CommandOutput) -> Result<u8, Failure> {
        let (dirs, project) = dirs_and_project(self.project)?;
        let status = StatusScreen {
            policy: LoadedPolicy::load(&dirs, &project, None)
                .map_err(denial_failure)
                .and_then(describe_policies),
            agents: AGENTS.iter().filter_map(|agent| agent_state(&dirs, &project, agent)).collect(),
            host: dirs.host(),
            blocked: recent_blocks(&dirs)?,
            project,
        };
        let shown = if self.json { out.json(&status.as_json()) } else { status.print(out) };
        unless_closed(shown)?;
        Ok(if status.policy.is_ok() { exit::OK } else { exit::FAILED })
    }
}

fn denial_failure(error: crate::policy::PolicyError) -> Failure {
    let hint = error.hint();
    Failure { hint, ..Failure::new(format!("every action is denied: {error}")) }
}

/// The layers without the built-in one, and the default effect and sandbox of the highest
/// layer that sets them.
fn describe_policies(policy: LoadedPolicy) -> Result<PoliciesInForce, Failure> {
    let mut layers = policy.ir().to_layers()?;
    let default = layers.iter().find_map(|layer| layer.settings.default.clone());
    let sandbox = layers.iter().find_map(|layer| layer.settings.default_sandbox.clone());
    layers.retain(|layer| layer.kind != LayerKind::BuiltIn);
    let own = |file: &str| !file.starts_with('@');
    Ok(PoliciesInForce {
        layers,
        default: default.as_ref().map_or("ask", |rule| rule.effect.word()).to_owned(),
        sandbox: sandbox.unwrap_or_else(|| "project".to_owned()),
        at: default.filter(|rule| own(&rule.span.file)).map(|rule| rule.span.to_string()),
    })
}

/// The state of an agent; `None` if this user has no settings of it. Runs its hooks with a
/// harmless command if the settings are sound.
fn agent_state(dirs: &Dirs, project: &Path, agent: &Agent) -> Option<AgentState> {
    let wiring = AgentWiring::read(dirs, agent, &InstallScope::User);
    if wiring.files.iter().all(|file| matches!(file.content, SettingsContent::Missing)) {
        return None;
    }
    let told = |state, commands, details| {
        Some(AgentState { title: agent.title, state, commands, details, against: None })
    };
    let problems = wiring.problems(agent);
    if wiring.is_broken() {
        return told("its settings cannot be used", NOT_CONFINED.to_owned(), problems);
    }
    if !wiring.is_wired() {
        return told("not wired", "nothing it does is judged".to_owned(), Vec::new());
    }
    if !problems.is_empty() {
        return told("wired, but something is wrong", NOT_CONFINED.to_owned(), problems);
    }
    let cwd = std::env::current_dir().unwrap_or_default();
    if let Some(against) = agent.against(&dirs.for_agents(), project, &cwd) {
        let commands = match agent.abilities.confines {
            ConfinementMethod::ShellPrefix | ConfinementMethod::Shell => {
                "this project works against clash, so no command runs"
            }
            _ => {
                "this project works against clash: what it does here may not be judged, \
                 and clash starts no whole agent here"
            }
        };
        let state = told("wired", commands.to_owned(), Vec::new());
        return state.map(|state| AgentState { against: Some(against), ..state });
    }
    let instructs = agent.abilities.confines == ConfinementMethod::Instruct;
    let commands = match wiring.try_out(dirs, agent, project) {
        TrialOutcome::Ran { .. } if instructs => {
            "commands are confined, by asking the model to wrap them".to_owned()
        }
        TrialOutcome::Ran { .. } => "commands are confined".to_owned(),
        TrialOutcome::Refused { .. } => {
            format!("commands are judged; the policy refuses `{}`", trial::HARMLESS)
        }
        // Inside a sandbox of clash, a hook cannot write its trace.
        TrialOutcome::Failed(_) if env::inside_clash().is_some() => {
            "cannot be tried out inside a sandbox of clash".to_owned()
        }
        TrialOutcome::Failed(why) => {
            let fix = Some(Remedy::Doctor.to_string());
            let details = vec![WiringProblem { what: why, fix }];
            return told("wired, but a trial failed", NOT_CONFINED.to_owned(), details);
        }
    };
    match wiring.own_sandbox {
        Some(problem) => told("wired", "no command can start".to_owned(), vec![problem]),
        None => told("wired", commands, Vec::new()),
    }
}

/// The answer for every agent without a successful trial.
const NOT_CONFINED: &str = "not confined";

/// The number of blocked actions on the screen.
const RECENT: usize = 5;

/// The last actions that were refused, as a whole or in part, newest first. Does not read
/// every trace: it stops when it has many more than it shows.
fn recent_blocks(dirs: &Dirs) -> Result<Vec<ActionStory>, Failure> {
    let filter = ActionFilter::blocked();
    let mut found: Vec<ActionStory> = Vec::new();
    for session in log::traced_sessions(dirs)?.iter().rev() {
        let mut query = StoryQuery { filter: &filter, last: Some(RECENT), parsed: 0 };
        query.run(std::slice::from_ref(session), &mut |story| {
            found.push(story.clone());
            Ok(())
        })?;
        // A session that changed earlier may have later refusals, so clash collects more
        // than it shows.
        if found.len() >= 4 * RECENT {
            break;
        }
    }
    found.sort_by_key(|story| std::cmp::Reverse(story.time));
    found.truncate(RECENT);
    Ok(found)
}

impl StatusScreen {
    /// Prints the screen, one subject after the other.
    fn print(&self, out: &mut CommandOutput) -> std::io::Result<()> {
        let mut line = |name: &str, text: &str| {
            let name = out.tone(TextTone::Strong, &format!("{name:<9}"));
            out.line(format!("{name} {text}").trim_end())
        };
        line("project", &self.project.display().to_string())?;
        match &self.policy {
            Err(failure) => line("policy", &failure.message)?,
            Ok(in_force) => {
                let mut name = "policy";
                for layer in &in_force.layers {
                    let trust =
                        if layer.trusted { "" } else { ", not trusted: it can only tighten" };
                    line(name, &format!("{} ({}{trust})", layer.kind.word(), layer.origin))?;
                    name = "";
                }
                if in_force.layers.is_empty() {
                    line(name, "none of your own")?;
                }
                let at = in_force.at.as_ref().map_or(String::new(), |at| format!(" ({at})"));
                let PoliciesInForce { default, sandbox, .. } = in_force;
                line("default", &format!("{default}, in sandbox {sandbox}{at}"))?;
            }
        }
        let mut name = "agents";
        for AgentState { title, state, commands, details, against } in &self.agents {
            let against = against.as_ref().map(|what| format!(" ({what})")).unwrap_or_default();
            line(name, &format!("{title}: {state}; {commands}{against}"))?;
            name = "";
            for WiringProblem { what, fix } in details {
                line(name, &format!("  {what}"))?;
                if let Some(fix) = fix {
                    line(name, &format!("  fix: {fix}"))?;
                }
            }
        }
        if self.agents.is_empty() {
            let install = Remedy::Install { agent: clash_agents::DEFAULT_AGENT.to_owned() };
            line(name, &format!("none found; `{install}` puts clash in front of one"))?;
        }
        line("machine", &describe_machine(&self.host))?;
        let mut name = "blocked";
        for story in &self.blocked {
            let reason = say::one_line(&story.blocked_reason());
            line(name, &format!("{}  {reason}", day_and_time(story.time)))?;
            name = "";
        }
        if self.blocked.is_empty() {
            line(name, "nothing so far")?;
        }
        Ok(())
    }

    /// The fields of `--json`: the subjects of the screen in the same order.
    fn as_json(&self) -> Value {
        let layer = |layer: &Layer| json!({"layer": layer.kind.word(), "origin": layer.origin, "trusted": layer.trusted});
        let policy = match &self.policy {
            Ok(PoliciesInForce { layers, default, sandbox, at }) => json!({
                "ok": true, "layers": layers.iter().map(layer).collect::<Vec<_>>(),
                "default": default, "default_sandbox": sandbox, "at": at,
            }),
            Err(failure) => json!({"ok": false, "error": failure.message, "hint": failure.hint}),
        };
        let detail = |p: &WiringProblem| json!({"what": p.what, "fix": p.fix});
        let agent = |a: &AgentState| {
            json!({
                "agent": a.title, "state": a.state, "commands": a.commands, "against": a.against,
                "problems": a.details.iter().map(detail).collect::<Vec<_>>(),
            })
        };
        json!({
            "project": self.project, "policy": policy,
            "agents": self.agents.iter().map(agent).collect::<Vec<_>>(),
            "machine": machine_json(&self.host),
            "blocked": self.blocked.iter().map(ActionStory::as_json).collect::<Vec<_>>(),
        })
    }
}

/// The abilities of this machine in one line.
fn describe_machine(host: &HostFacts) -> String {
    let rooms = match &host.rooms {
        RoomSupport::Unprivileged => "rooms in a user namespace".to_owned(),
        RoomSupport::Root => "rooms made by root".to_owned(),
        RoomSupport::Impossible { why } => format!("no rooms ({why})"),
    };
    let mut text = match host.landlock_abi {
        0 => "no Landlock, so nothing can be confined".to_owned(),
        abi => format!("{rooms}, Landlock ABI {abi}"),
    };
    for (is, word) in [(host.root, "as root"), (host.around.container, "in a container")] {
        if is {
            text.push_str(&format!(", {word}"));
        }
    }
    match (env::inside_clash(), host.around.landlock) {
        (Some(sandbox), _) => text.push_str(&format!(", inside clash's sandbox {sandbox}")),
        (None, Some(true)) => text.push_str(", inside another sandbox"),
        (None, _) => {}
    }
    text
}

/// The facts about this machine.
fn machine_json(host: &HostFacts) -> Value {
    let facility = |facility: &Facility| match facility {
        Facility::Works => json!({"works": true}),
        Facility::Missing { why } => json!({"works": false, "why": why}),
    };
    let rooms = match &host.rooms {
        RoomSupport::Unprivileged => json!({"works": true, "by": "user namespace"}),
        RoomSupport::Root => json!({"works": true, "by": "root"}),
        RoomSupport::Impossible { why } => json!({"works": false, "why": why}),
    };
    json!({
        "landlock_abi": host.landlock_abi, "seccomp": host.seccomp, "root": host.root,
        "rooms": rooms, "notify": facility(&host.notify), "overlay": facility(&host.overlay),
        "cgroup": facility(&host.cgroup.delegated), "reflink": facility(&host.reflink),
        "container": host.around.container, "landlock_domain": host.around.landlock,
        "inside_clash": env::inside_clash(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_one_line() {
        let mut host =
            HostFacts { landlock_abi: 7, rooms: RoomSupport::Unprivileged, ..HostFacts::bare() };
        assert_eq!(describe_machine(&host), "rooms in a user namespace, Landlock ABI 7");
        clash_sandbox::host::simulate(&mut host, "container").unwrap();
        host.root = true;
        insta::assert_snapshot!(describe_machine(&host), @"no rooms (the container's filter denies new namespaces (simulated)), Landlock ABI 7, as root, in a container");
        clash_sandbox::host::simulate(&mut host, "abi=0").unwrap();
        assert!(describe_machine(&host).starts_with("no Landlock, so nothing can be confined"));
    }
}
