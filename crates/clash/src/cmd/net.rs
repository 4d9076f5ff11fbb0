//! `clash net`: the hosts that sandboxes may reach, and the connections of sessions.

use clash_history::day_and_time;
use clash_policy::{Effect, HostPattern, NetRule, NetworkAccess, Sandbox};
use serde_json::{Value, json};

use super::log::{ActionFilter, StoryQuery, traced_sessions};
use super::unless_closed;
use crate::dirs::{Dirs, project_of};
use crate::launcher::sandbox_named;
use crate::policy::LoadedPolicy;
use crate::trace::TraceRecord;
use crate::ui::{CommandOutput, Failure};

/// Show the hosts that a sandbox reaches, and the latest connections
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Names of sandboxes, or `log` for the latest connections
    #[arg(required = true, value_name = "NAME|log")]
    names: Vec<String>,
    /// Show the last N connections
    #[arg(short, default_value_t = 20)]
    n: usize,
    /// Show refused connections only
    #[arg(long)]
    denied: bool,
    /// Print JSON, one object a line
    #[arg(long)]
    json: bool,
}

impl Args {
    /// Prints the host rules and the last connections of each sandbox named, or with `log`
    /// the last connections of all. Compiles the policy of the current project if it must.
    pub(crate) fn run(self, out: &mut CommandOutput) -> Result<u8, Failure> {
        let dirs = Dirs::from_env()?;
        if self.names == ["log"] {
            return self.show_log(&dirs, out);
        }
        let cwd = std::env::current_dir().map_err(Failure::new)?;
        let project = project_of(&cwd, &dirs.home);
        let policy = LoadedPolicy::load(&dirs, &project, None).map_err(Failure::new)?;
        for name in &self.names {
            let sandbox = sandbox_named(&policy, name).map_err(Failure::new)?;
            let recent = latest(&dirs, self.n, |record| {
                record.sandbox.as_deref() == Some(name) && (!self.denied || is_denied(record))
            })?;
            match self.json {
                true => unless_closed(out.verbatim(as_json(&sandbox, &recent).to_string()))?,
                false => unless_closed(show(out, &sandbox, &recent))?,
            };
        }
        Ok(crate::exit::OK)
    }

    /// Prints the last connections of all sessions, one line each.
    fn show_log(&self, dirs: &Dirs, out: &mut CommandOutput) -> Result<u8, Failure> {
        let recent = latest(dirs, self.n, |record| !self.denied || is_denied(record))?;
        for record in &recent {
            match self.json {
                true => unless_closed(out.verbatim(record_json(record).to_string()))?,
                false => unless_closed(out.line(line_of(record)))?,
            };
        }
        if recent.is_empty() && !self.json {
            unless_closed(out.line("no connection went through a gate yet"))?;
        }
        Ok(crate::exit::OK)
    }
}

fn is_denied(record: &TraceRecord) -> bool {
    record.effect.as_deref() == Some("deny")
}

/// The last connections of all sessions, the newest last.
fn latest(
    dirs: &Dirs,
    most: usize,
    wanted: impl Fn(&TraceRecord) -> bool,
) -> Result<Vec<TraceRecord>, Failure> {
    let filter = ActionFilter::default();
    let mut found = Vec::new();
    for dir in traced_sessions(dirs)? {
        let mut query = StoryQuery { filter: &filter, last: None, parsed: 0 };
        query.run(&[dir], &mut |story| {
            found.extend(story.connections.iter().filter(|record| wanted(record)).cloned());
            Ok(())
        })?;
    }
    found.sort_by_key(|record| record.time);
    let first = found.len().saturating_sub(most);
    Ok(found.split_off(first))
}

/// One connection in a line: time, effect, program, host, sandbox, and the bytes moved unless
/// it was denied.
fn line_of(record: &TraceRecord) -> String {
    let connection = record.connection.clone().unwrap_or_default();
    let host = match connection.port {
        0 => connection.host.clone(),
        port => format!("{}:{port}", connection.host),
    };
    let address = connection.address.map(|address| format!(" ({address})")).unwrap_or_default();
    let amount = match (connection.sent, connection.received) {
        _ if is_denied(record) => String::new(),
        (Some(sent), Some(received)) => {
            format!("  {sent} bytes out, {received} in, {} ms", record.duration_ms.unwrap_or(0))
        }
        // The program has the socket itself.
        _ => "  bytes not counted".to_owned(),
    };
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    format!(
        "{}  {:5}  {} → {host}{address}  [{}]{amount}",
        day_and_time(record.time),
        text(&record.effect),
        text(&record.what),
        text(&record.sandbox)
    )
}

fn record_json(record: &TraceRecord) -> Value {
    let connection = record.connection.clone().unwrap_or_default();
    json!({
        "time": record.time, "session": record.session, "sandbox": record.sandbox,
        "program": record.what, "effect": record.effect, "reason": record.reason,
        "host": connection.host, "port": connection.port, "address": connection.address,
        "sent": connection.sent, "received": connection.received,
        "duration_ms": record.duration_ms,
    })
}

/// The rules of a sandbox, the deciding ones first: its text and its effect.
fn rules_of(sandbox: &Sandbox) -> Vec<(String, String, Effect)> {
    let (rules, default): (&[NetRule], Effect) = match &sandbox.net {
        NetworkAccess::Hosts { rules, default } => (rules, *default),
        NetworkAccess::Deny => (&[], Effect::Deny),
        NetworkAccess::Allow => (&[], Effect::Allow),
        NetworkAccess::Ask => (&[], Effect::Ask),
    };
    let mut all: Vec<(String, String, Effect)> =
        rules.iter().map(|rule| (rule.host.to_string(), ports_of(rule), rule.effect)).collect();
    all.push(("every other host".to_owned(), String::new(), default));
    all
}

/// The ports of a rule. Without ports of its own, an allow covers the web ports, and port 22
/// for git hosts and addresses.
fn ports_of(rule: &NetRule) -> String {
    if !rule.ports.is_empty() {
        let ports: Vec<String> = rule.ports.iter().map(u16::to_string).collect();
        return ports.join(", ");
    }
    let git = match &rule.host {
        HostPattern::Name(name) | HostPattern::Exact(name) => clash_policy::net::is_git_host(name),
        HostPattern::Addresses { .. } => true,
        HostPattern::Localhost => false,
    };
    match (rule.effect, git) {
        (Effect::Allow, true) => "443, 80, 22".to_owned(),
        (Effect::Allow, false) => "443, 80".to_owned(),
        _ => "every port".to_owned(),
    }
}

/// Prints the rules of a sandbox and its last connections.
fn show(out: &mut CommandOutput, sandbox: &Sandbox, recent: &[TraceRecord]) -> std::io::Result<()> {
    out.line(format!("sandbox {} ({})", sandbox.name, sandbox.span))?;
    for (host, ports, effect) in rules_of(sandbox) {
        let ports = if ports.is_empty() { String::new() } else { format!("  ports {ports}") };
        out.line(format!("  {:5}  {host}{ports}", effect.to_string()))?;
    }
    if !sandbox.serve.is_empty() {
        let ports: Vec<String> = sandbox.serve.iter().map(u16::to_string).collect();
        out.line(format!("  serves ports {} on this machine", ports.join(", ")))?;
    }
    if recent.is_empty() {
        return out.line("  no connection yet");
    }
    out.line("  latest connections:")?;
    recent.iter().try_for_each(|record| out.line(format!("    {}", line_of(record))))
}

fn as_json(sandbox: &Sandbox, recent: &[TraceRecord]) -> Value {
    let rules: Vec<Value> = rules_of(sandbox)
        .into_iter()
        .map(|(host, ports, effect)| json!({"host": host, "ports": ports, "effect": effect.to_string()}))
        .collect();
    json!({
        "sandbox": sandbox.name, "at": sandbox.span.to_string(), "rules": rules,
        "serve": sandbox.serve,
        "connections": recent.iter().map(record_json).collect::<Vec<_>>(),
    })
}
