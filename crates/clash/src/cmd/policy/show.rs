//! `clash policy show`: the policies in force, as a tree and as JSON.

use std::io;
use std::path::PathBuf;

use clash_policy::ir;
use clash_policy::rule::{
    KeyPattern, KeySubject, Layer, LayerKind, LayerSettings, MatchBranch, MatchKey, MatchNode,
    ONLY_HOST, PolicyRule,
};
use clash_policy::{NetworkAccess, Sandbox};
use serde_json::{Value, json};

use super::{files, layer_kind};
use crate::cmd::show_json::layer_json;
use crate::cmd::unless_closed;
use crate::ui::{CommandOutput, Failure, TextTone};

/// Show the policies in force: layers, rules, settings, sandboxes
///
/// Shows the compiled layers, the highest first.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Show this file alone, as the user's policy
    file: Option<PathBuf>,
    /// Show only this layer: managed, session, project, user or built-in
    #[arg(long, value_name = "KIND", value_parser = layer_kind)]
    layer: Option<LayerKind>,
    /// Print JSON in the format of docs/formats.md
    #[arg(long)]
    json: bool,
    /// The project; found from the working directory if not given
    #[arg(long, value_name = "DIR", conflicts_with = "file")]
    project: Option<PathBuf>,
}

impl Args {
    /// Compiles the policies in force, or one file alone, and prints their layers.
    pub(crate) fn run(self, out: &mut CommandOutput) -> Result<u8, Failure> {
        let policy = files(self.file.as_deref(), self.project)?.compile()?;
        let mut layers = policy.ir().to_layers()?;
        layers.retain(|layer| self.layer.is_none_or(|kind| kind == layer.kind));
        unless_closed(if self.json {
            let layers: Vec<Value> = layers.iter().map(layer_json).collect();
            out.json(&json!({"ir": ir::IMAGE_VERSION, "layers": layers}))
        } else {
            layers.iter().try_for_each(|layer| print_layer(out, layer))
        })
    }
}

/// Prints the settings, rules and own sandboxes of a layer.
fn print_layer(out: &mut CommandOutput, layer: &Layer) -> io::Result<()> {
    let kind = out.tone(TextTone::Strong, layer.kind.word());
    let trust = if layer.trusted { "" } else { ", not trusted: it can only tighten" };
    out.line(format!("{kind} ({}{trust})", layer.origin))?;
    print_settings(out, &layer.settings)?;
    for group in &layer.groups {
        if group.branches.is_empty() {
            continue;
        }
        let doc = if group.doc.is_empty() { String::new() } else { format!(": {}", group.doc) };
        match group.name.as_str() {
            "" => out.line("  rules")?,
            name => out.line(format!("  policy {name}{doc}"))?,
        }
        print_tree(out, &group.branches, 2)?;
    }
    let own: Vec<&Sandbox> = layer.sandboxes.iter().filter(|it| is_own(layer, it)).collect();
    if !own.is_empty() {
        out.line("  sandboxes")?;
    }
    own.into_iter().try_for_each(|it| {
        let place = out.tone(TextTone::Faint, &format!("({})", it.span));
        out.line(format!("    {}: {} {place}", it.name, summary(it)))
    })
}

/// True if the layer itself defines or uses the sandbox. A module of clash defines others too.
fn is_own(layer: &Layer, sandbox: &Sandbox) -> bool {
    fn names(branches: &[MatchBranch], name: &str) -> bool {
        branches.iter().any(|branch| match &branch.then {
            MatchNode::Rule(rule) => rule.sandbox.as_deref() == Some(name),
            MatchNode::Tree(below) => names(below, name),
        })
    }
    let LayerSettings { default, default_sandbox, .. } = &layer.settings;
    let by_default = default.as_ref().and_then(|rule| rule.sandbox.as_ref());
    layer.kind == LayerKind::BuiltIn
        || !sandbox.span.file.starts_with('@')
        || [default_sandbox.as_ref(), by_default].contains(&Some(&sandbox.name))
        || layer.groups.iter().any(|group| names(&group.branches, &sandbox.name))
}

/// Prints the settings that a layer has. Nothing if it has none.
fn print_settings(out: &mut CommandOutput, settings: &LayerSettings) -> io::Result<()> {
    let LayerSettings { default, default_sandbox, on_sandbox_violation, harness_defaults, .. } =
        settings;
    let lines = [
        default.as_ref().map(|rule| format!("default: {}", describe_rule(out, rule))),
        default_sandbox.as_ref().map(|name| format!("default sandbox: {name}")),
        on_sandbox_violation.map(|on| format!("on sandbox violation: {}", on.word())),
        harness_defaults.map(|on| format!("built-in rules: {}", if on { "on" } else { "off" })),
    ];
    if lines.iter().any(Option::is_some) {
        out.line("  settings")?;
    }
    lines.into_iter().flatten().try_for_each(|line| out.line(format!("    {line}")))
}

/// Prints the branches, indented by their depth.
fn print_tree(out: &mut CommandOutput, branches: &[MatchBranch], depth: usize) -> io::Result<()> {
    let indent = "  ".repeat(depth);
    for MatchBranch { key, then } in branches {
        match then {
            MatchNode::Rule(rule) => {
                out.line(format!("{indent}{}: {}", key_text(key), describe_rule(out, rule)))?;
            }
            MatchNode::Tree(below) => {
                out.line(format!("{indent}{}", key_text(key)))?;
                print_tree(out, below, depth + 1)?;
            }
        }
    }
    Ok(())
}

/// The patterns of a key, with the subject in front where it is not clear.
fn key_text(MatchKey { subject, patterns }: &MatchKey) -> String {
    let texts: Vec<String> =
        patterns.iter().map(|pattern| pattern_text(pattern, *subject)).collect();
    let text = texts.join(", ");
    match subject {
        KeySubject::Mode => format!("mode {text}"),
        KeySubject::Agent => format!("agent {text}"),
        KeySubject::Field => format!("field {text}"),
        KeySubject::End => "nothing more".to_owned(),
        _ => text,
    }
}

/// The pattern as the policy writes it; `exactly NAME` for one host without its subdomains.
fn pattern_text(pattern: &KeyPattern, subject: KeySubject) -> String {
    let text = pattern.to_string();
    match text.strip_prefix(ONLY_HOST) {
        Some(name) if subject == KeySubject::Host => format!("exactly {name}"),
        _ => text,
    }
}

/// The effect, the sandbox, the reason and the line of a rule.
fn describe_rule(out: &CommandOutput, rule: &PolicyRule) -> String {
    let sandbox = rule.sandbox.as_ref().map_or_else(String::new, |name| format!(" in {name}"));
    let reason = rule.reason.as_ref().map_or_else(String::new, |why| format!(": {why}"));
    let place = out.tone(TextTone::Faint, &format!("({})", rule.span));
    format!("{}{sandbox}{reason} {place}", rule.effect)
}

/// A sandbox in a few words. `clash sandbox show` prints all of it.
fn summary(sandbox: &Sandbox) -> String {
    if sandbox.unrestricted {
        return "no confinement at all".to_owned();
    }
    let net = match &sandbox.net {
        NetworkAccess::Allow => "any network".to_owned(),
        NetworkAccess::Ask => "network asks".to_owned(),
        NetworkAccess::Deny => "no network".to_owned(),
        NetworkAccess::Hosts { rules, default } => {
            format!("{} host rules, others {default}", rules.len())
        }
    };
    format!("{} path rules, others {}; {net}", sandbox.fs.len(), sandbox.default)
}
