//! The launcher's side of a room's gate: its records in the trace, its refusals on standard
//! error, its questions to the user, and the user's own proxy.

use std::cell::RefCell;
use std::collections::HashSet;
use std::ffi::OsString;
use std::io::Write;
use std::path::Path;

use clash_policy::{Effect, NetworkAccess, Sandbox};
use clash_sandbox::gate::{
    ConnectionRecord, DenialError, GATE_PROXY, GateQuestion, GateService, RecordOutcome, Upstream,
    UpstreamProxy,
};

use super::RequestedCommand;
use super::context::LaunchContext;
use crate::blocks::host_block;
use crate::questions::{self, LiveQuestion, MAX_ANSWER_TIME, QuestionKind, QuestionOutcome};
use crate::remedy::Remedy;
use crate::trace::{BlockEvidence, RefusingPart, TraceEvent, TraceRecord, TracedConnection};
use crate::{env, say};

/// The service of one room's gate.
pub(super) struct GateLedger<'a> {
    context: &'a LaunchContext,
    sandbox: &'a Sandbox,
    /// The command of the room, for programs that the gate could not find.
    command: String,
    proxy: Option<UpstreamProxy>,
    /// Refusals that were told already.
    told: RefCell<HashSet<String>>,
}

/// Refusals of one room that clash prints. A program that tries many hosts must not fill the
/// screen.
const MAX_TOLD: usize = 20;

/// The variables that name a proxy, in the order in which they count.
const PROXY_VARIABLES: [&str; 6] =
    ["https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY", "http_proxy", "HTTP_PROXY"];
const EXCEPT_VARIABLES: [&str; 2] = ["no_proxy", "NO_PROXY"];

impl<'a> GateLedger<'a> {
    /// The gate's service for one command. Reads the user's own proxy from the environment; a
    /// proxy that cannot be read counts as none.
    pub(super) fn new(
        context: &'a LaunchContext,
        sandbox: &'a Sandbox,
        command: &RequestedCommand<'_>,
    ) -> Self {
        let named = PROXY_VARIABLES.iter().find_map(|name| env::text(name));
        let except = EXCEPT_VARIABLES.iter().find_map(|name| env::text(name)).unwrap_or_default();
        let proxy = named.and_then(|proxy| UpstreamProxy::parse(&proxy, &except));
        let told = RefCell::default();
        let program = Path::new(command.program).file_name().unwrap_or_default();
        let command = match command.shown.is_empty() {
            true => program.to_string_lossy().into_owned(),
            false => say::brief(command.shown),
        };
        Self { context, sandbox, command, proxy, told }
    }

    /// Names the gate's proxy to programs that have another one in their environment. They
    /// cannot reach that one from the room.
    pub(super) fn name_proxy(env: &mut [(OsString, OsString)]) {
        for (name, value) in env {
            if PROXY_VARIABLES.iter().any(|known| name == known) {
                *value = GATE_PROXY.into();
            } else if EXCEPT_VARIABLES.iter().any(|known| name == known) {
                *value = "localhost,127.0.0.1,::1".into();
            }
        }
    }

    fn program(&self, record: &ConnectionRecord) -> String {
        record.program.clone().unwrap_or_else(|| self.command.clone())
    }

    /// Tells a refusal to the user or the agent, once.
    fn tell(&self, record: &ConnectionRecord, denial: &DenialError) {
        let host = host_of(record);
        let text = refusal(&self.program(record), &host, record, denial, self.sandbox);
        let mut told = self.told.borrow_mut();
        let is_new = told.len() < MAX_TOLD && told.insert(host);
        if is_new {
            let _ = writeln!(std::io::stderr(), "clash: {text}");
        }
    }
}

/// The name or address of a connection, with its port if that is known.
fn host_of(record: &ConnectionRecord) -> String {
    let host = record.name.clone().or(record.address.map(|address| address.to_string()));
    let host = host.unwrap_or_else(|| "an unknown host".to_owned());
    match record.port {
        Some(port) if host.contains(':') => format!("[{host}]:{port}"),
        Some(port) => format!("{host}:{port}"),
        None => host,
    }
}

/// The sentence about a refused connection, for example "curl → evil.example:443 is not in
/// sandbox `node_full`; allowed: …; to allow it: …".
fn refusal(
    program: &str,
    host: &str,
    record: &ConnectionRecord,
    denial: &DenialError,
    sandbox: &Sandbox,
) -> String {
    let name = &sandbox.name;
    let what = match denial {
        DenialError::Name | DenialError::Unpinned | DenialError::Port => {
            format!("is not in sandbox `{name}`")
        }
        DenialError::NotApproved => format!("was not approved for sandbox `{name}`"),
        denial => format!("is refused in sandbox `{name}`: {denial}"),
    };
    let (for_what, to) = match (denial, &record.name, record.address) {
        (DenialError::Kind(_) | DenialError::Own, _, Some(address)) => {
            ("this address", address.to_string())
        }
        (DenialError::Name | DenialError::NotApproved | DenialError::Port, Some(host), _) => {
            ("it", with_port(host, record.port))
        }
        (DenialError::Unpinned, _, Some(address)) => {
            ("it", with_port(&address.to_string(), record.port))
        }
        _ => ("", String::new()),
    };
    let grant = || Remedy::SandboxAllow { sandbox: name.clone(), right: "host", what: to.clone() };
    let remedy = match for_what {
        "" => String::new(),
        what => format!("; to allow {what}: {}", grant()),
    };
    format!("{program} → {host} {what}; allowed: {}{remedy}", allowed(sandbox))
}

/// The host, with its port unless it is 80 or 443.
fn with_port(host: &str, port: Option<u16>) -> String {
    match port {
        None | Some(443 | 80) => host.to_owned(),
        Some(port) if host.contains(':') => format!("'[{host}]:{port}'"),
        Some(port) => format!("{host}:{port}"),
    }
}

/// The hosts that a sandbox reaches by rules, at most six, for a message.
pub(crate) fn allowed(sandbox: &Sandbox) -> String {
    const MAX_SHOWN: usize = 6;
    let NetworkAccess::Hosts { rules, default } = &sandbox.net else {
        return "no host".to_owned();
    };
    let open = rules.iter().filter(|rule| rule.effect == Effect::Allow);
    let mut shown: Vec<String> = open.map(ToString::to_string).collect();
    shown.dedup();
    let more = shown.len().saturating_sub(MAX_SHOWN);
    shown.truncate(MAX_SHOWN);
    if more > 0 {
        shown.push(format!("{more} more"));
    }
    if *default == Effect::Allow {
        shown.push("every other host".to_owned());
    }
    if shown.is_empty() { "no host".to_owned() } else { shown.join(", ") }
}

impl GateService for GateLedger<'_> {
    /// Records a connection in the trace of the session, a denied one also as a block, and
    /// tells the user of a denial.
    fn record(&self, record: &ConnectionRecord) {
        let denial = match &record.outcome {
            RecordOutcome::Denied(denial) => Some(denial),
            RecordOutcome::Allowed | RecordOutcome::Failed(_) => None,
        };
        if let Some(denial) = denial {
            self.tell(record, denial);
        }
        let Some(session) = &self.context.session else { return };
        let host = host_of(record);
        let program = self.program(record);
        let reason = match &record.outcome {
            RecordOutcome::Allowed => None,
            RecordOutcome::Denied(denial) => {
                Some(refusal(&program, &host, record, denial, self.sandbox))
            }
            RecordOutcome::Failed(error) => Some(format!("{program} → {host}: {error}")),
        };
        let effect = match (denial, record.asked) {
            (Some(_), _) => "deny",
            (None, true) => "ask",
            (None, false) => "allow",
        };
        let name = record.name.clone().or(record.address.map(|address| address.to_string()));
        let millis = u64::try_from(record.duration.as_millis()).unwrap_or(u64::MAX);
        let traced = TraceRecord {
            what: Some(program),
            effect: Some(effect.to_owned()),
            sandbox: Some(self.sandbox.name.clone()),
            reason: reason.clone(),
            connection: Some(TracedConnection {
                host: name.unwrap_or_default(),
                port: record.port.unwrap_or(0),
                address: record.address.map(|address| address.to_string()),
                sent: (!record.handed_over).then_some(record.sent),
                received: (!record.handed_over).then_some(record.received),
            }),
            duration_ms: Some(millis),
            ..self.context.new_record(session, TraceEvent::Connection)
        };
        let _ = traced.append(session);
        if denial.is_some() {
            let block = host_block(self.sandbox, &host);
            let base = self.context.new_record(session, TraceEvent::Block);
            let block = block.record(base, RefusingPart::Gate, BlockEvidence::Seen);
            let _ = TraceRecord { reason, ..block }.append(session);
        }
    }

    /// Asks the user about a host. False unless the answer is yes in time.
    fn ask(&self, question: &GateQuestion) -> bool {
        let program = question.program.clone().unwrap_or_else(|| self.command.clone());
        let host = match question.port {
            Some(port) => format!("{}:{port}", question.host),
            None => question.host.clone(),
        };
        let remedy = Remedy::SandboxAllow {
            sandbox: self.sandbox.name.clone(),
            right: "host",
            what: question.host.clone(),
        };
        let live = LiveQuestion {
            kind: QuestionKind::Host,
            subject: question.host.clone(),
            sandbox: self.sandbox.name.clone(),
            reason: format!("{program} → {host} needs your approval ({})", self.sandbox.span),
            chain: program,
            project: self.context.project.clone(),
            directory: self.context.project.clone(),
            remedy: Some(remedy.to_string()),
        };
        let dirs = &self.context.dirs;
        let session = self.context.session.as_ref();
        let answer = questions::ask(dirs, session, &live, MAX_ANSWER_TIME, &|| false);
        matches!(answer, Ok(QuestionOutcome::Allowed))
    }

    fn can_ask(&self) -> bool {
        true
    }

    fn upstream(&self) -> Upstream {
        Upstream { proxy: self.proxy.clone(), ..Upstream::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clash_policy::{HostPattern, NetRule, PolicySpan};

    #[test]
    fn a_refusal_names_the_program_the_host_and_the_remedy() {
        let rule = |name: &str, ports: &[u16]| NetRule {
            host: HostPattern::Name(name.into()),
            ports: ports.to_vec(),
            effect: Effect::Allow,
            span: PolicySpan::default(),
        };
        let rules = vec![rule("github.com", &[]), rule("npm.test", &[8443])];
        let net = NetworkAccess::Hosts { rules, default: Effect::Deny };
        let sandbox = Sandbox { net, ..Sandbox::named("node_full") };
        let mut record = ConnectionRecord {
            program: Some("curl".into()),
            name: Some("evil.example".into()),
            port: Some(443),
            ..ConnectionRecord::denied(DenialError::Name)
        };
        let text = |record: &ConnectionRecord, denial: &DenialError| {
            refusal("curl", &host_of(record), record, denial, &sandbox)
        };
        assert_eq!(
            text(&record, &DenialError::Name),
            "curl → evil.example:443 is not in sandbox `node_full`; allowed: github.com, \
             npm.test:8443; to allow it: clash sandbox allow node_full host evil.example"
        );
        record.address = "10.1.2.3".parse().ok();
        record.port = Some(8080);
        assert!(text(&record, &DenialError::Port).ends_with("host evil.example:8080"));
        let private = DenialError::Kind(clash_sandbox::gate::AddressKind::Private);
        assert!(text(&record, &private).contains("the name leads to a private address"));
        assert!(text(&record, &private).ends_with("clash sandbox allow node_full host 10.1.2.3"));
    }
}
