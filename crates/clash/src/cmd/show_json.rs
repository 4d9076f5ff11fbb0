//! Policies and sandboxes as JSON, for scripts. The shape is described in
//! docs/formats.md and grows only by new fields.

use clash_policy::rule::{Branch, Group, Layer, Node, Rule, Subject};
use clash_policy::{Lifetime, Limits, Net, Sandbox};
use serde_json::{Value, json};

pub(super) fn sandbox_json(sandbox: &Sandbox) -> Value {
    let fs: Vec<Value> = sandbox
        .fs
        .iter()
        .map(|rule| {
            let effect = rule.word();
            json!({
                "path": rule.pattern.to_string(), "effect": effect,
                "caps": rule.caps.to_string(), "at": rule.span.to_string(),
            })
        })
        .collect();
    let env: Vec<Value> = sandbox
        .env
        .iter()
        .map(|rule| json!({"name": rule.name, "effect": rule.effect.word(), "at": rule.span.to_string()}))
        .collect();
    let limits = sandbox.limits.named().into_iter();
    let limits: serde_json::Map<String, Value> =
        limits.filter_map(|(name, limit)| Some((name.to_owned(), limit_json(limit?)))).collect();
    let protect = &sandbox.protect;
    json!({
        "name": sandbox.name, "doc": sandbox.doc, "at": sandbox.span.to_string(),
        "unrestricted": sandbox.unrestricted, "default": sandbox.default.word(), "fs": fs,
        "net": net_json(&sandbox.net), "serve": sandbox.serve, "env": env, "limits": limits,
        "lifetime": sandbox.lifetime.map(Lifetime::word),
        "protect": {"standard": protect.standard, "also": protect.also, "except": protect.except},
    })
}

fn limit_json(limit: u64) -> Value {
    if limit == Limits::UNLIMITED { "unlimited".into() } else { limit.into() }
}

fn net_json(net: &Net) -> Value {
    let (rules, default) = match net {
        Net::Allow => return "allow".into(),
        Net::Deny => return "deny".into(),
        Net::Ask => return "ask".into(),
        Net::Hosts { rules, default } => (rules, default),
    };
    let hosts: Vec<Value> = rules
        .iter()
        .map(|rule| {
            json!({
                "host": rule.host.to_string(), "ports": rule.ports,
                "effect": rule.effect.word(), "at": rule.span.to_string(),
            })
        })
        .collect();
    json!({"hosts": hosts, "default": default.word()})
}

pub(super) fn layer_json(layer: &Layer) -> Value {
    let settings = &layer.settings;
    json!({
        "layer": layer.kind.word(), "origin": layer.origin, "trusted": layer.trusted,
        "settings": {
            "default": settings.default.as_ref().map(rule_json),
            "default_sandbox": settings.default_sandbox,
            "on_sandbox_violation": settings.on_sandbox_violation.map(|on| on.word()),
            "harness_defaults": settings.harness_defaults,
        },
        "policies": layer.groups.iter().map(group_json).collect::<Vec<_>>(),
        "sandboxes": layer.sandboxes.iter().map(sandbox_json).collect::<Vec<_>>(),
    })
}

fn group_json(group: &Group) -> Value {
    json!({"name": group.name, "doc": group.doc, "tree": tree_json(&group.branches)})
}

fn tree_json(branches: &[Branch]) -> Value {
    branches.iter().map(branch_json).collect()
}

fn branch_json(branch: &Branch) -> Value {
    let keys: Vec<String> = branch.key.patterns.iter().map(ToString::to_string).collect();
    let about = match branch.key.subject {
        Subject::Tool => "tool",
        Subject::Mode => "mode",
        Subject::Agent => "agent",
        Subject::Word => "word",
        Subject::Option => "option",
        Subject::End => "end",
        Subject::Host => "host",
        Subject::Path => "path",
        Subject::Field => "field",
        Subject::Value => "value",
    };
    match &branch.then {
        Node::Rule(rule) => json!({"about": about, "keys": keys, "rule": rule_json(rule)}),
        Node::Tree(below) => json!({"about": about, "keys": keys, "tree": tree_json(below)}),
    }
}

fn rule_json(rule: &Rule) -> Value {
    json!({
        "effect": rule.effect.word(), "sandbox": rule.sandbox, "reason": rule.reason,
        "at": rule.span.to_string(),
    })
}
