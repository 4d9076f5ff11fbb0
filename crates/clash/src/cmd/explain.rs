//! `clash explain`: what would be decided, by which rule, in which sandbox.

use std::path::PathBuf;

use clap::Subcommand;
use clash_policy::decide::{Cause, Decision, Part};
use clash_policy::path::Links;
use clash_policy::{Action, Caps, Effect, Input, Net, Sandbox};
use clash_sandbox::disk::Disk;
use serde_json::{Value, json};

use super::{project, unless_closed};
use crate::decision;
use crate::say;
use crate::ui::{Failure, Out, Tone};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
    /// The project the action belongs to; found from the working directory if not given
    #[arg(long, value_name = "DIR", global = true)]
    project: Option<PathBuf>,
    /// The agent that would act
    #[arg(long, value_name = "NAME", global = true, default_value = "claude")]
    agent: String,
    /// The permission mode the agent would be in
    #[arg(long, value_name = "NAME", global = true, default_value = "default")]
    mode: String,
    /// Everything as JSON
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum What {
    /// A command line or script
    Bash {
        /// The script, as one argument
        script: String,
    },
    /// Reading a file
    Read { path: PathBuf },
    /// Writing a file
    Write { path: PathBuf },
    /// Changing a file
    Edit { path: PathBuf },
    /// Fetching a page
    Webfetch { url: String },
    /// Any other tool, by its name
    Tool { name: String },
}

impl Args {
    pub(crate) fn run(self, out: &mut Out) -> Result<u8, Failure> {
        let (dirs, project) = project(self.project)?;
        let (tool, input) = input(self.what)?;
        let action = Action { agent: self.agent, tool, mode: self.mode, input };
        let decision = decision::decide(&dirs, &project, &action)?;
        unless_closed(if self.json {
            out.json(&as_json(&decision))
        } else {
            text(out, &action, &decision)
        })
    }
}

fn input(what: What) -> Result<(String, Input), Failure> {
    let file = |tool: &str, path: PathBuf, needs| -> Result<_, Failure> {
        let path = Disk::default().real(&std::env::current_dir()?.join(path));
        Ok((tool.to_owned(), Input::File { path, needs }))
    };
    match what {
        What::Bash { script } => Ok(("Bash".to_owned(), Input::Script(script))),
        What::Read { path } => file("Read", path, Caps::READ),
        What::Write { path } => file("Write", path, Caps::WRITE.union(Caps::CREATE)),
        What::Edit { path } => file("Edit", path, Caps::READ.union(Caps::WRITE)),
        What::Webfetch { url } => {
            Ok(("WebFetch".to_owned(), Input::Host(clash_net::name::host_of_url(&url)?)))
        }
        What::Tool { name } => Ok((name, Input::Other)),
    }
}

fn tone(effect: Effect) -> Tone {
    match effect {
        Effect::Allow => Tone::Good,
        Effect::Ask => Tone::Care,
        Effect::Deny => Tone::Bad,
    }
}

fn text(out: &mut Out, action: &Action, decision: &Decision) -> std::io::Result<()> {
    let word = out.tone(tone(decision.effect), decision.effect.word());
    out.line(format!("{word}: {}", say::reason(decision)))?;
    if let Input::Script(_) = action.input {
        out.line("")?;
        out.line("commands:")?;
        for part in &decision.parts {
            let word = out.tone(tone(part.effect), &format!("{:<5}", part.effect.word()));
            out.line(format!("  {word}  {}  [{}]", say::brief(&part.what), cause(part)))?;
        }
    }
    // A refused action runs nowhere, and a page is fetched by the agent itself.
    let confined = matches!(action.input, Input::Script(_) | Input::File { .. });
    match &decision.sandbox {
        Some(sandbox) if confined && decision.effect < Effect::Deny => {
            out.line("")?;
            grants(out, sandbox)
        }
        _ => Ok(()),
    }
}

/// What a sandbox grants, as people read it.
pub(super) fn grants(out: &mut Out, sandbox: &Sandbox) -> std::io::Result<()> {
    let doc = if sandbox.doc.is_empty() { String::new() } else { format!(": {}", sandbox.doc) };
    out.line(format!("sandbox {} ({}){doc}", out.tone(Tone::Strong, &sandbox.name), sandbox.span))?;
    for rule in &sandbox.fs {
        out.line(format!(
            "  {:<5} {:<5}  {}",
            rule.effect.word(),
            rule.caps.to_string(),
            rule.pattern
        ))?;
    }
    out.line(format!(
        "  {:<5} {:<5}  every other path (the system's programs stay readable)",
        sandbox.default.word(),
        "rwcdx"
    ))?;
    let net = match sandbox.net {
        Net::Allow => "allow",
        Net::Deny => "deny",
    };
    out.line(format!("  {net:<5}        network"))
}

fn cause(part: &Part) -> String {
    let mut text = match &part.cause {
        Cause::Rule { layer, trail, span, doubtful, .. } => {
            let doubt = if *doubtful { ", may match" } else { "" };
            format!("{} {} at {span}{doubt}", layer.word(), trail.join(" > "))
        }
        Cause::Default { layer, span } => {
            format!("default of the {} policy at {span}", layer.word())
        }
        Cause::Inert => "runs no program".to_owned(),
        Cause::Cage => "clash's own".to_owned(),
    };
    if let Some(sandbox) = part.sandbox.as_ref().filter(|_| part.effect < Effect::Deny) {
        text.push_str(&format!(", sandbox {sandbox}"));
    }
    if let Some(why) = part.opaque {
        text.push_str(&format!(", opaque: {why}"));
    }
    text
}

fn as_json(decision: &Decision) -> Value {
    let parts: Vec<Value> = decision.parts.iter().map(part_json).collect();
    json!({
        "effect": decision.effect.word(),
        "reason": say::reason(decision),
        "sandbox": decision.sandbox.as_ref().map(sandbox_json),
        "parts": parts,
    })
}

fn part_json(part: &Part) -> Value {
    let rule = match &part.cause {
        Cause::Rule { layer, trail, span, reason, untrusted, doubtful } => json!({
            "layer": layer.word(), "keys": trail, "at": span.to_string(), "reason": reason,
            "untrusted": untrusted, "doubtful": doubtful,
        }),
        Cause::Default { layer, span } => {
            json!({"layer": layer.word(), "default": true, "at": span.to_string()})
        }
        Cause::Inert | Cause::Cage => Value::Null,
    };
    json!({
        "what": part.what, "effect": part.effect.word(), "sandbox": part.sandbox,
        "rule": rule, "opaque": part.opaque,
    })
}

pub(super) fn sandbox_json(sandbox: &Sandbox) -> Value {
    let fs: Vec<Value> = sandbox
        .fs
        .iter()
        .map(|rule| json!({"path": rule.pattern.to_string(), "effect": rule.effect.word(), "caps": rule.caps.to_string(), "at": rule.span.to_string()}))
        .collect();
    json!({
        "name": sandbox.name, "doc": sandbox.doc, "at": sandbox.span.to_string(),
        "default": sandbox.default.word(), "fs": fs,
        "net": match sandbox.net { Net::Allow => "allow", Net::Deny => "deny" },
    })
}
