//! Runs a command in a sandbox described on the command line. The tests and the attack probes
//! use it in place of the clash binary.
//!
//! `room --rw DIR --r DIR --rx DIR --allow CAPS DIR --deny CAPS DIR --literal CAPS FILE
//! --deny-literal CAPS FILE --glob CAPS DIR PATTERN --deny-glob CAPS DIR PATTERN
//! --regex CAPS DIR PATTERN --deny-regex CAPS DIR PATTERN
//! --children CAPS DIR --deny-children CAPS DIR --default-allow --unprotect PATH
//! --net deny|allow --host-rule 'allow NAME' --hosts FILE --resolver FILE --proxy URL
//! --records FILE --localhost PORT --serve PORT --cwd DIR --home DIR --project DIR --tmp DIR
//! --session-tmp DIR --lifetime WORD --cage PATH --former-links FILE --host FILE --simulate HOST --ahead --unprotected --limit NAME N --show -- cmd …`
//!
//! `--ahead` starts the helper process whatever the host can do, as after a wrong record.
//!
//! Ends as the command ended, or with 2 (unknown option), 3 (the plan is refused), 124 (out of
//! time), 125 (the launch failed), 126 (not executable) or 127 (not found).
#![expect(clippy::print_stderr, reason = "a program, not the library")]

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clash_policy::{
    Effect, FileCaps, FsRule, HostPattern, NetRule, NetworkAccess, PathPattern, PolicyPlaces,
    PolicyRegex, PolicySpan, ProcessLifetime, Sandbox, WriteTarget,
};
use clash_sandbox::disk::Disk;
use clash_sandbox::facts::{HostFacts, RoomSupport};
use clash_sandbox::gate::{ConnectionRecord, GateQuestion, GateService, Upstream, UpstreamProxy};
use clash_sandbox::host;
use clash_sandbox::launch::{
    LaunchCommand, LaunchError, LaunchHelper, LaunchServices, run_with_services,
};
use clash_sandbox::plan::report::PlanReport;
use clash_sandbox::plan::{CagePaths, PlanRequest, SandboxPlan, TemporaryPaths, plan_with_report};
use clash_sandbox::planted::NoOtherSandboxes;
use clash_sandbox::room_ledger::{LeftRoom, RoomLedger};

/// The options before `--`.
struct RoomOptions {
    sandbox: Sandbox,
    cwd: Option<PathBuf>,
    home: PathBuf,
    project: PathBuf,
    tmp: PathBuf,
    session: Option<PathBuf>,
    cage: CagePaths,
    host: Option<HostFacts>,
    ahead: bool,
    show: bool,
    upstream: Upstream,
    /// A file for the records of the gate.
    records: Option<PathBuf>,
}

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    let options = match RoomOptions::parse(&mut args) {
        Ok(options) => options,
        Err(message) => {
            eprintln!("room: {message}");
            return ExitCode::from(2);
        }
    };
    let program = args.next().unwrap_or_else(|| OsString::from("true"));
    launch(options, program, args.collect())
}

impl RoomOptions {
    fn new() -> Self {
        Self {
            sandbox: Sandbox {
                net: NetworkAccess::Deny,
                default: Effect::Deny,
                ..Sandbox::named("room")
            },
            cwd: None,
            home: PathBuf::from("/nonexistent/home"),
            project: PathBuf::from("/nonexistent/project"),
            tmp: PathBuf::from("/tmp"),
            session: None,
            cage: CagePaths::default(),
            host: None,
            ahead: false,
            show: false,
            upstream: Upstream::default(),
            records: None,
        }
    }

    /// Reads the options up to `--`. A missing or malformed value counts as empty, zero or
    /// none.
    fn parse(args: &mut dyn Iterator<Item = OsString>) -> Result<Self, String> {
        let mut options = Self::new();
        while let Some(flag) = args.next() {
            let mut value = || args.next().unwrap_or_default().into_string().unwrap_or_default();
            match flag.to_str() {
                Some("--") => break,
                Some(flag) => options.set(flag, &mut value)?,
                None => return Err(format!("unknown option {flag:?}")),
            }
        }
        Ok(options)
    }

    /// Applies one option, and takes its values.
    fn set(&mut self, flag: &str, value: &mut dyn FnMut() -> String) -> Result<(), String> {
        let sandbox = &mut self.sandbox;
        match flag {
            "--default-allow" => sandbox.default = Effect::Allow,
            "--unprotect" => sandbox.protect.except.push(value()),
            "--unprotected" => sandbox.protect.standard = false,
            "--lifetime" => {
                let word = value();
                sandbox.lifetime =
                    ProcessLifetime::ALL.into_iter().find(|known| known.word() == word);
            }
            "--limit" => self.set_limit(&value(), &value()),
            "--localhost" => sandbox.net = localhost(&value()),
            "--host-rule" => add_host_rule(&mut sandbox.net, &value())?,
            "--resolver" => self.upstream.resolver_file = PathBuf::from(value()),
            "--hosts" => self.upstream.hosts_file = PathBuf::from(value()),
            "--proxy" => self.upstream.proxy = UpstreamProxy::parse(&value(), ""),
            "--records" => self.records = Some(PathBuf::from(value())),
            "--serve" => sandbox.serve.push(value().parse().unwrap_or(0)),
            "--net" => {
                sandbox.net =
                    if value() == "allow" { NetworkAccess::Allow } else { NetworkAccess::Deny }
            }
            "--simulate" => {
                let mut facts = self.host.take().unwrap_or_else(host::probe_facts);
                host::simulate(&mut facts, &value()).map_err(|error| error.to_string())?;
                self.host = Some(facts);
            }
            "--host" => self.host = Some(host::load_facts(Path::new(&value()))),
            "--ahead" => self.ahead = true,
            "--session-tmp" => self.session = Some(PathBuf::from(value())),
            "--tmp" => self.tmp = PathBuf::from(value()),
            "--cwd" => self.cwd = Some(PathBuf::from(value())),
            "--home" => self.home = PathBuf::from(value()),
            "--project" => self.project = PathBuf::from(value()),
            "--former-links" => self.cage.former_links = Some(PathBuf::from(value())),
            "--cage" => self.cage.paths.push(PathBuf::from(value())),
            "--show" => self.show = true,
            "--masked" => {
                let mut rule = file_rule("--deny-literal", &mut {
                    let mut values = ["rwcdx".to_owned(), value()].into_iter();
                    move || values.next().unwrap_or_default()
                })?;
                rule.writes = WriteTarget::Masked;
                sandbox.fs.push(rule);
            }
            _ => sandbox.fs.push(file_rule(flag, value)?),
        }
        Ok(())
    }

    /// Sets the limit of this name; any other name is the limit on file size.
    fn set_limit(&mut self, name: &str, value: &str) {
        let limits = &mut self.sandbox.limits;
        let limit = value.parse().ok();
        match name {
            "memory" => limits.memory_bytes = limit,
            "processes" => limits.processes = limit,
            "cpu" => limits.cpu_seconds = limit,
            "wall" => limits.wall_seconds = limit,
            "files" => limits.files = limit,
            _ => limits.file_size_bytes = limit,
        }
    }
}

/// The file rule of an option such as `--rw DIR` or `--deny-glob CAPS DIR PATTERN`. Takes the
/// option's values. An error for an unknown option, for wrong rights and for a wrong
/// expression.
fn file_rule(flag: &str, value: &mut dyn FnMut() -> String) -> Result<FsRule, String> {
    let tree = |path: String| PathPattern::Subpath { path, follow_worktrees: true };
    let (caps, pattern) = match flag {
        "--rw" => (FileCaps::ALL, tree(value())),
        "--r" => (FileCaps::READ, tree(value())),
        "--rx" => (FileCaps::READ.union(FileCaps::EXECUTE), tree(value())),
        _ => {
            let form = flag.strip_prefix("--deny-").or_else(|| flag.strip_prefix("--"));
            let caps = value();
            let pattern = match form.unwrap_or_default() {
                "allow" | "deny" => tree(value()),
                "literal" => PathPattern::Literal(value()),
                "children" => PathPattern::Children(value()),
                "glob" => PathPattern::Glob { prefix: value(), pattern: value() },
                "regex" => PathPattern::Regex { prefix: value(), regex: regex(value())? },
                _ => return Err(format!("unknown option {flag:?}")),
            };
            let caps = FileCaps::parse(&caps).map_err(|_| format!("no rights: {caps:?}"))?;
            (caps, pattern)
        }
    };
    let effect = if flag.starts_with("--deny") { Effect::Deny } else { Effect::Allow };
    let span = PolicySpan { file: "room".to_owned(), line: 1, column: 1 };
    Ok(FsRule { pattern, effect, caps, writes: WriteTarget::InPlace, span })
}

/// A regular expression as the policy compiler makes it.
fn regex(pattern: String) -> Result<PolicyRegex, String> {
    use regex_automata::dfa::{StartKind, dense};
    let anchored = dense::Config::new().start_kind(StartKind::Anchored);
    let whole = format!(r"\A(?:{pattern})\z");
    let dfa = dense::Builder::new().configure(anchored).build(&whole);
    let dfa = dfa.map_err(|error| error.to_string())?;
    let sparse = dfa.to_sparse().map_err(|error| error.to_string())?;
    Ok(PolicyRegex { pattern, automaton: sparse.to_bytes_native_endian() })
}

/// A denied network that reaches this port of the host's loopback.
fn localhost(port: &str) -> NetworkAccess {
    let ports = vec![port.parse().unwrap_or(0)];
    let host = HostPattern::Localhost;
    let rule = NetRule { host, ports, effect: Effect::Allow, span: PolicySpan::default() };
    NetworkAccess::Hosts { rules: vec![rule], default: Effect::Deny }
}

/// Adds `allow NAME`, `deny NAME` or `ask NAME`. A name may be `=name` (exactly), `name:port`,
/// an address or a range, or `default`.
fn add_host_rule(net: &mut NetworkAccess, text: &str) -> Result<(), String> {
    let (effect, host) = text.split_once(' ').ok_or("a rule is `allow NAME`")?;
    let effect = match effect {
        "allow" => Effect::Allow,
        "ask" => Effect::Ask,
        _ => Effect::Deny,
    };
    let (mut rules, mut default) = match std::mem::replace(net, NetworkAccess::Deny) {
        NetworkAccess::Hosts { rules, default } => (rules, default),
        _ => (Vec::new(), Effect::Deny),
    };
    if host == "default" {
        default = effect;
    } else {
        let (host, ports) = match host.rsplit_once(':') {
            Some((host, port)) if !host.contains(':') => {
                (host, vec![port.parse().map_err(|_| format!("`{port}` is no port"))?])
            }
            _ => (host, Vec::new()),
        };
        let (address, bits) = host.split_once('/').unwrap_or((host, ""));
        let host = match (address.parse::<std::net::IpAddr>(), host.strip_prefix('=')) {
            _ if host == "localhost" => HostPattern::Localhost,
            (Ok(base), _) => {
                let width = if base.is_ipv4() { 32 } else { 128 };
                HostPattern::Addresses { base, bits: bits.parse().unwrap_or(width) }
            }
            (_, Some(exact)) => HostPattern::Exact(exact.to_owned()),
            _ => HostPattern::Name(host.to_owned()),
        };
        rules.push(NetRule { host, ports, effect, span: PolicySpan::default() });
    }
    *net = NetworkAccess::Hosts { rules, default };
    Ok(())
}

/// Writes the records of the gate to a file, one a line.
struct RecordedGate {
    upstream: Upstream,
    records: Option<PathBuf>,
}

impl GateService for RecordedGate {
    fn record(&self, record: &ConnectionRecord) {
        use std::io::Write;
        let Some(path) = &self.records else { return };
        let ConnectionRecord { program, name, address, port, outcome, sent, received, .. } = record;
        let text = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
        let (program, name) = (text(program.clone()), text(name.clone()));
        let address = text(address.map(|address| address.to_string()));
        let port = text(port.map(|port| port.to_string()));
        let line = format!("{program} {name} {address} {port} {outcome:?} {sent} {received}\n");
        let file = std::fs::File::options().append(true).create(true).open(path);
        let _ = file.and_then(|mut file| file.write_all(line.as_bytes()));
    }

    fn ask(&self, question: &GateQuestion) -> bool {
        question.host.starts_with("yes")
    }

    fn can_ask(&self) -> bool {
        true
    }

    fn upstream(&self) -> Upstream {
        self.upstream.clone()
    }
}

/// Plans and becomes the command. Returns the exit status of a failure.
fn launch(options: RoomOptions, program: OsString, args: Vec<OsString>) -> ExitCode {
    let gate = RecordedGate { upstream: options.upstream, records: options.records };
    let RoomOptions { sandbox, cwd, home, project, tmp, session, cage, host, ahead, show, .. } =
        options;
    let places = PolicyPlaces {
        project,
        home,
        tmp: session.clone().unwrap_or(tmp.clone()),
        vars: Vec::new(),
    };
    let request = PlanRequest {
        sandbox: &sandbox,
        places: &places,
        cage: &cage,
        disk: &Disk::default(),
        extra: &[],
        in_force: &NoOtherSandboxes,
        temporary: TemporaryPaths { session: session.as_deref(), host: &tmp },
        caches: None,
        doors: &[],
    };
    let facts = host.unwrap_or_else(host::probe_facts);
    let facts = host::with_limit_facts(facts, &sandbox.limits);
    let helps = ahead || facts.rooms == RoomSupport::Unprivileged;
    let helper = if helps { LaunchHelper::start(&sandbox) } else { LaunchHelper::default() };
    let (plan, report) = match plan_with_report(&request, &facts) {
        Ok(planned) => planned,
        Err(refusal) => {
            eprintln!("room: {refusal}");
            eprintln!("hint: {}", refusal.hint().unwrap_or_default());
            return ExitCode::from(3);
        }
    };
    if show {
        print(&plan, &report);
    }
    let (env, _) = clash_sandbox::environment::scrub(std::env::vars_os(), &[]);
    let command = LaunchCommand { program, args, env, cwd, ..LaunchCommand::default() };
    let outlives = sandbox.lifetime == Some(ProcessLifetime::Detached);
    let ledger = outlives.then(|| Arc::new(NoLedger) as Arc<dyn RoomLedger>);
    let services =
        LaunchServices { doors: None, gate: Some(&gate), ledger, keep: None, servers: None };
    let error = run_with_services(&plan, &command, helper, services);
    let cause = std::error::Error::source(&error).map(|e| format!(": {e}")).unwrap_or_default();
    eprintln!("room: {error}{cause}");
    ExitCode::from(match error {
        LaunchError::OutOfTime { .. } => 124,
        LaunchError::NotFound { .. } => 127,
        LaunchError::NotExecutable { .. } => 126,
        _ => 125,
    })
}

/// Rooms of this example are not listed.
struct NoLedger;

impl RoomLedger for NoLedger {
    fn enter(&self, _: &LeftRoom) -> std::io::Result<()> {
        Ok(())
    }

    fn leave(&self) {}
}

/// Prints the report, the grants and the mounts to standard error.
fn print(plan: &SandboxPlan, report: &PlanReport) {
    eprint!("{report}");
    for grant in &plan.grants {
        eprintln!("{:5} {} ({})", grant.caps.to_string(), grant.path.display(), grant.why);
    }
    for step in plan.room.iter().flat_map(|room| &room.steps) {
        eprintln!("{step}");
    }
}
