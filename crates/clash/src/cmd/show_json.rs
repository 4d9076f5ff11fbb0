//! Policies and sandboxes as JSON, for scripts. `docs/formats.md` describes the format. A
//! new version only adds fields.

use clash_policy::rule::{KeySubject, Layer, LayerGroup, MatchBranch, MatchNode, PolicyRule};
use clash_policy::{NetworkAccess, ProcessLifetime, ResourceLimits, Sandbox};
use serde_json::{Value, json};

/// All properties of a sandbox.
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
        "lifetime": sandbox.lifetime.map(ProcessLifetime::word),
        "doors": sandbox.doors,
        "protect": {"standard": protect.standard, "also": protect.also, "except": protect.except},
    })
}

fn limit_json(limit: u64) -> Value {
    if limit == ResourceLimits::UNLIMITED { "unlimited".into() } else { limit.into() }
}

/// `allow`, `deny`, `ask`, or the rules about hosts and their default.
fn net_json(net: &NetworkAccess) -> Value {
    let (rules, default) = match net {
        NetworkAccess::Allow => return "allow".into(),
        NetworkAccess::Deny => return "deny".into(),
        NetworkAccess::Ask => return "ask".into(),
        NetworkAccess::Hosts { rules, default } => (rules, default),
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

/// A layer: its settings, rules and sandboxes.
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

fn group_json(group: &LayerGroup) -> Value {
    json!({"name": group.name, "doc": group.doc, "tree": tree_json(&group.branches)})
}

/// The branches as an array.
fn tree_json(branches: &[MatchBranch]) -> Value {
    branches.iter().map(branch_json).collect()
}

/// A key with its rule, or with the tree below it.
fn branch_json(branch: &MatchBranch) -> Value {
    let keys: Vec<String> = branch.key.patterns.iter().map(ToString::to_string).collect();
    let about = match branch.key.subject {
        KeySubject::Tool => "tool",
        KeySubject::Mode => "mode",
        KeySubject::Agent => "agent",
        KeySubject::Word => "word",
        KeySubject::Option => "option",
        KeySubject::End => "end",
        KeySubject::Host => "host",
        KeySubject::Path => "path",
        KeySubject::Field => "field",
        KeySubject::Value => "value",
    };
    match &branch.then {
        MatchNode::Rule(rule) => json!({"about": about, "keys": keys, "rule": rule_json(rule)}),
        MatchNode::Tree(below) => json!({"about": about, "keys": keys, "tree": tree_json(below)}),
    }
}

fn rule_json(rule: &PolicyRule) -> Value {
    json!({
        "effect": rule.effect.word(), "sandbox": rule.sandbox, "reason": rule.reason,
        "at": rule.span.to_string(),
    })
}
