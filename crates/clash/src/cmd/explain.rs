//! `clash explain`: the decision about an action, the rule behind it and the sandbox.

use std::path::{Path, PathBuf};

use clap::Subcommand;
use clash_policy::decide::{Decision, DecisionCause, DecisionPart, SandboxJudgement};
use clash_policy::rule::LayerKind;
use clash_policy::{
    Action, Effect, NetworkAccess, ResourceLimits, Sandbox, ToolInput, WriteTarget,
};
use serde_json::{Value, json};

use super::show_json::sandbox_json;
use super::{dirs_and_project, unless_closed};
use crate::blocks::BlockFacts;
use crate::decision::{self, DecisionContext};
use crate::foresee::{self, ForeseenAt};
use crate::held_path::HeldPaths;
use crate::policy::LoadedPolicy;
use crate::say;
use crate::ui::{CommandOutput, Failure, TextTone};
use clash_agents::tool_input::{self, CallContext};
use clash_shell::command_line;

/// Show how the policy would decide an action; the same as `clash explain`
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: ExplainedAction,
    /// The project of the action; found from the working directory if not given
    #[arg(long, value_name = "DIR", global = true)]
    project: Option<PathBuf>,
    /// The agent that acts
    #[arg(long, value_name = "NAME", global = true, default_value = clash_agents::DEFAULT_AGENT)]
    agent: String,
    /// The permission mode of the agent
    #[arg(long, value_name = "NAME", global = true, default_value = "default")]
    mode: String,
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum ExplainedAction {
    /// Run a command line or script; you can leave out the word `bash`
    Bash {
        /// The script as one argument, or the words of a command. Write `--` before a
        /// command with options
        #[arg(required = true)]
        script: Vec<String>,
    },
    /// Read a file
    Read { path: PathBuf },
    /// Write a file
    Write { path: PathBuf },
    /// Change a file
    Edit { path: PathBuf },
    /// Fetch a web page
    Webfetch { url: String },
    /// Call any other tool, by its name
    Tool {
        name: String,
        /// The tool's input as a JSON object
        #[arg(long, value_name = "JSON", default_value = "{}")]
        input: String,
    },
    #[command(external_subcommand)]
    Command(Vec<String>),
}

/// The script: one argument as it is, several as the words of a command.
fn script_of_words(words: &[String]) -> String {
    match words {
        [script] => script.clone(),
        words => command_line(words),
    }
}

impl Args {
    /// Decides the action as the hook would, and prints the decision. Runs and records nothing.
    pub(crate) fn run(self, out: &mut CommandOutput) -> Result<u8, Failure> {
        let (dirs, project) = dirs_and_project(self.project)?;
        let (tool, input) = tool_use(self.what, &dirs.home)?;
        let action = Action { agent: self.agent, tool, mode: self.mode, input };
        let policy = LoadedPolicy::load(&dirs, &project, None)?;
        let cwd = std::env::current_dir()?;
        let scene = DecisionContext { project: &project, session: None, cwd: &cwd };
        let decision = decision::decide_by(&policy, &dirs, scene, &action)?;
        let blocks = match &action.input {
            ToolInput::Script(script) => {
                let at = ForeseenAt { dirs: &dirs, project: &project, cwd: &cwd };
                foresee::foreseen(at, script, &decision, &|name| {
                    crate::launcher::sandbox_named(&policy, name).ok()
                })
            }
            _ => Vec::new(),
        };
        unless_closed(if self.json {
            let mut value = as_json(&decision);
            let sentences: Vec<String> = blocks.iter().map(BlockFacts::sentence).collect();
            if let Some(object) = value.as_object_mut() {
                object.insert("foreseen".to_owned(), json!(sentences));
            }
            out.json(&value)
        } else {
            print_decision(out, &action, &decision, &untrusted(&policy)?, &blocks)
        })
    }
}

/// The layers that the user does not trust. Their allows count as ask.
fn untrusted(policy: &LoadedPolicy) -> Result<Vec<LayerKind>, Failure> {
    let mut kinds = Vec::new();
    for layer in policy.ir().layers() {
        let layer = layer?;
        if !layer.trusted()? {
            kinds.push(layer.kind()?);
        }
    }
    Ok(kinds)
}

/// The tool and its input as the agent's adapter would read them. Fails if the input is no
/// JSON object.
fn tool_use(what: ExplainedAction, home: &Path) -> Result<(String, ToolInput), Failure> {
    let (tool, input) = match what {
        ExplainedAction::Bash { script: words } | ExplainedAction::Command(words) => {
            ("Bash".to_owned(), json!({"command": script_of_words(&words)}))
        }
        ExplainedAction::Read { path } => ("Read".to_owned(), json!({"file_path": path})),
        ExplainedAction::Write { path } => ("Write".to_owned(), json!({"file_path": path})),
        ExplainedAction::Edit { path } => ("Edit".to_owned(), json!({"file_path": path})),
        ExplainedAction::Webfetch { url } => ("WebFetch".to_owned(), json!({"url": url})),
        ExplainedAction::Tool { name, input } => (name, serde_json::from_str(&input)?),
    };
    let Value::Object(input) = input else {
        return Err(Failure::new("the input of a tool is a JSON object")
            .hint("for example --input '{\"path\": \"/etc/hosts\"}'"));
    };
    Ok(tool_input::read_tool_use(
        &tool,
        &input,
        &CallContext { cwd: &std::env::current_dir()?, home, paths: &HeldPaths },
    )?)
}

fn effect_tone(effect: Effect) -> TextTone {
    match effect {
        Effect::Allow => TextTone::Good,
        Effect::Ask => TextTone::Care,
        Effect::Deny => TextTone::Bad,
    }
}

/// Prints the effect, each part with its cause, and the sandbox if the action runs in one.
fn print_decision(
    out: &mut CommandOutput,
    action: &Action,
    decision: &Decision,
    untrusted: &[LayerKind],
    blocks: &[BlockFacts],
) -> std::io::Result<()> {
    let word = out.tone(effect_tone(decision.effect), decision.effect.word());
    out.line(format!("{word}: {}", say::reason(decision)))?;
    out.line("")?;
    out.line(if matches!(action.input, ToolInput::Script(_)) { "commands:" } else { "because:" })?;
    for part in &decision.parts {
        let word = out.tone(effect_tone(part.effect), &format!("{:<5}", part.effect.word()));
        out.line(format!("  {word}  {}  [{}]", say::brief(&part.what), describe_cause(part)))?;
        for step in steps(part, untrusted) {
            out.line(format!("         {step}"))?;
        }
    }
    for block in blocks {
        let word = out.tone(TextTone::Bad, "block");
        out.line(format!("  {word}  {}", block.sentence()))?;
        if let Some(grant) = &block.grant {
            out.line(format!("         to allow it: {grant}"))?;
        }
    }
    // A refused action runs nowhere, and the agent itself fetches a page.
    let confined = matches!(action.input, ToolInput::Script(_) | ToolInput::Files(_));
    match &decision.sandbox {
        Some(sandbox) if confined && decision.effect < Effect::Deny => {
            out.line("")?;
            if decision.mix.is_some() {
                let room = &sandbox.name;
                out.line(format!(
                    "The script runs in sandbox {room}, commands of others behind doors."
                ))?;
            }
            print_sandbox(out, sandbox)
        }
        _ => Ok(()),
    }
}

/// Prints the file rules, the network, the environment, ports, limits, lifetime and doors of
/// a sandbox.
pub(super) fn print_sandbox(out: &mut CommandOutput, sandbox: &Sandbox) -> std::io::Result<()> {
    let doc = if sandbox.doc.is_empty() { String::new() } else { format!(": {}", sandbox.doc) };
    out.line(format!(
        "sandbox {} ({}){doc}",
        out.tone(TextTone::Strong, &sandbox.name),
        sandbox.span
    ))?;
    for rule in &sandbox.fs {
        let caps = match rule.writes {
            WriteTarget::Masked => "r, without secrets".to_owned(),
            _ => rule.caps.to_string(),
        };
        out.line(format!("  {:<5} {caps:<5}  {}", rule.word(), rule.pattern))?;
    }
    out.line("  allow rx     the system's programs and libraries")?;
    let happens = match sandbox.default {
        Effect::Ask => ": commands are blocked, file tools ask",
        Effect::Allow | Effect::Deny => "",
    };
    out.line(format!("  {:<5} rwcdx  every other path{happens}", sandbox.default.word()))?;
    print_network(out, &sandbox.net)?;
    for rule in &sandbox.env {
        out.line(format!("  {:<5}        ${}", rule.effect.word(), rule.name))?;
    }
    if !sandbox.serve.is_empty() {
        let ports: Vec<String> = sandbox.serve.iter().map(u16::to_string).collect();
        out.line(format!("  serve        {}", ports.join(", ")))?;
    }
    for (name, limit) in sandbox.limits.named() {
        if let Some(limit) = limit {
            out.line(format!("  limit        {name} {}", ResourceLimits::shown(limit)))?;
        }
    }
    if let Some(lifetime) = sandbox.lifetime {
        out.line(format!("  lifetime     {}", lifetime.word()))?;
    }
    if !sandbox.doors.is_empty() {
        out.line(format!("  doors        {}", sandbox.doors.join(", ")))?;
    }
    Ok(())
}

/// Prints the rules about hosts, and the effect for every other host.
fn print_network(out: &mut CommandOutput, net: &NetworkAccess) -> std::io::Result<()> {
    let (rules, rest) = match net {
        NetworkAccess::Allow => (&[][..], Effect::Allow),
        NetworkAccess::Ask => (&[][..], Effect::Ask),
        NetworkAccess::Deny => (&[][..], Effect::Deny),
        NetworkAccess::Hosts { rules, default } => (rules.as_slice(), *default),
    };
    for rule in rules {
        out.line(format!("  {:<5}        {rule}", rule.effect.word()))?;
    }
    let what = if rules.is_empty() { "network" } else { "every other host" };
    out.line(format!("  {:<5}        {what}", rest.word()))
}

/// The cause of a decision in words: the rule and its line, the sandbox, and why it is
/// steered or opaque.
fn describe_cause(part: &DecisionPart) -> String {
    let mut text = match &part.cause {
        DecisionCause::Rule { layer, trail, span, doubtful, .. } => {
            let doubt = if *doubtful { ", may match" } else { "" };
            format!("{} {} at {span}{doubt}", layer.word(), trail.join(" > "))
        }
        DecisionCause::Default { layer, span, .. } => {
            format!("default of the {} policy at {span}", layer.word())
        }
        DecisionCause::Inert => "needs no rule of its own".to_owned(),
        DecisionCause::Opened => "opened by the shell".to_owned(),
        DecisionCause::Cage => "clash's own".to_owned(),
    };
    if let Some(sandbox) = part.sandbox.as_ref().filter(|_| part.effect < Effect::Deny) {
        text.push_str(&format!(", sandbox {sandbox}"));
    }
    if let Some(hosts) = part.shown_hosts() {
        text.push_str(&format!(", asks about {hosts}"));
    }
    if let Some(why) = &part.steered {
        text.push_str(&format!(", steered: {why}"));
    }
    if let Some(why) = part.opaque {
        text.push_str(&format!(", opaque: {why}"));
    }
    text
}

/// The other causes of a decision about one part: its sandbox, and the overruled layers.
fn steps(part: &DecisionPart, untrusted: &[LayerKind]) -> Vec<String> {
    let mut steps = Vec::new();
    if let Some(SandboxJudgement { effect, caps, rule, credential }) = &part.judged {
        let sandbox = part.sandbox.as_deref().unwrap_or_default();
        let about = if caps.is_empty() { String::new() } else { format!(" {}", say::words(*caps)) };
        let by = match (rule, credential) {
            (Some((rule, span)), _) => format!("{rule} at {span}"),
            (None, Some(secret)) => format!("the list of credentials ({secret})"),
            (None, None) => "its default".to_owned(),
        };
        steps.push(format!("sandbox {sandbox} says {effect}{about} by {by}"));
    }
    steps.extend(part.overruled.iter().map(|other| {
        let trust = if untrusted.contains(&other.layer) { ", which is not trusted," } else { "" };
        let (layer, effect) = (other.layer.word(), other.effect);
        let trail = other.trail.join(" > ");
        format!("overruled: the {layer} policy{trust} says {effect} by {trail} at {}", other.span)
    }));
    steps
}

/// The decision in the format of `docs/formats.md`.
fn as_json(decision: &Decision) -> Value {
    let parts: Vec<Value> = decision.parts.iter().map(part_json).collect();
    json!({
        "effect": decision.effect.word(),
        "reason": say::reason(decision),
        "sandbox": decision.sandbox.as_ref().map(sandbox_json),
        "doors": decision.mix.is_some(),
        "parts": parts,
    })
}

/// One part: the action, the rule behind it, and the rules that it overrules.
fn part_json(part: &DecisionPart) -> Value {
    let rule = match &part.cause {
        DecisionCause::Rule { layer, trail, span, reason, untrusted, doubtful } => json!({
            "layer": layer.word(), "keys": trail, "at": span.to_string(), "reason": reason,
            "untrusted": untrusted, "doubtful": doubtful,
        }),
        DecisionCause::Default { layer, span, reason } => {
            json!({"layer": layer.word(), "default": true, "at": span.to_string(), "reason": reason})
        }
        DecisionCause::Inert | DecisionCause::Opened | DecisionCause::Cage => Value::Null,
    };
    let overruled: Vec<Value> = part
        .overruled
        .iter()
        .map(|other| json!({"layer": other.layer.word(), "effect": other.effect.word(), "keys": other.trail, "at": other.span.to_string()}))
        .collect();
    json!({
        "what": part.what, "effect": part.effect.word(), "sandbox": part.sandbox,
        "rule": rule, "opaque": part.opaque, "steered": part.steered, "overruled": overruled,
        "judged": part.judged.as_ref().map(judged_json),
    })
}

fn judged_json(judged: &SandboxJudgement) -> Value {
    let (rule, at) = judged.rule.as_ref().map(|(rule, at)| (rule, at.to_string())).unzip();
    json!({"effect": judged.effect.word(), "caps": judged.caps.to_string(), "rule": rule, "at": at})
}
