//! Runs a command in a sandbox written on the command line; what the tests and
//! the attack kit use in place of the clash binary.
//!
//! `room --rw DIR --r DIR --rx DIR --allow CAPS DIR --deny CAPS DIR --literal CAPS FILE
//! --deny-literal CAPS FILE --glob CAPS DIR PATTERN --deny-glob CAPS DIR PATTERN
//! --regex CAPS DIR PATTERN --deny-regex CAPS DIR PATTERN
//! --children CAPS DIR --deny-children CAPS DIR --default-allow --unprotect PATH
//! --net deny|allow --localhost PORT --serve PORT --cwd DIR --home DIR --project DIR --tmp DIR --cage PATH --host FILE
//! --simulate HOST --ahead --unprotected --limit NAME N --show -- cmd …`
//!
//! `--ahead` begins namespaces whatever the host is, as a record that lies would.
#![expect(clippy::print_stderr, reason = "a program, not the library")]

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clash_policy::{
    Effect, FileCaps, FsRule, HostPattern, NetRule, NetworkAccess, PathPattern, PolicyPlaces,
    PolicyRegex, PolicySpan, ProcessLifetime, ProtectSettings, ResourceLimits, Sandbox,
    WriteTarget,
};
use clash_sandbox::facts::RoomSupport;
use clash_sandbox::host::with_limit_facts;
use clash_sandbox::launch::{Ahead, Command, LaunchError, run};
use clash_sandbox::plan::{Cage, Request, Temporary, plan_with_report};

fn caps(letters: &str) -> FileCaps {
    FileCaps::parse(letters).unwrap_or(FileCaps::NONE)
}

fn rule(path: &str, caps: FileCaps) -> FsRule {
    FsRule {
        pattern: PathPattern::Subpath { path: path.to_owned(), follow_worktrees: true },
        effect: Effect::Allow,
        caps,
        writes: WriteTarget::InPlace,
        span: PolicySpan { file: "room".to_owned(), line: 1, column: 1 },
    }
}

fn regex(pattern: String) -> Option<PolicyRegex> {
    use regex_automata::dfa::{StartKind, dense};
    let anchored = dense::Config::new().start_kind(StartKind::Anchored);
    let whole = format!(r"\A(?:{pattern})\z");
    let dfa = dense::Builder::new().configure(anchored).build(&whole).ok()?;
    let automaton = dfa.to_sparse().ok()?.to_bytes_native_endian();
    Some(PolicyRegex { pattern, automaton })
}

fn effect(form: &str) -> Effect {
    if form.starts_with("--deny") { Effect::Deny } else { Effect::Allow }
}

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    let mut fs = Vec::new();
    let mut net = NetworkAccess::Deny;
    let mut cwd = None;
    let mut home = PathBuf::from("/nonexistent/home");
    let mut project = PathBuf::from("/nonexistent/project");
    let mut cage = Cage::default();
    let mut show = false;
    let mut host = None;
    let mut tmp = PathBuf::from("/tmp");
    let mut session = None;
    let mut protect = ProtectSettings::default();
    let mut limits = ResourceLimits::default();
    let mut serve = Vec::new();
    let mut lifetime = None;
    let mut default = Effect::Deny;
    let mut lie = false;
    while let Some(flag) = args.next() {
        let mut value = || args.next().unwrap_or_default().into_string().unwrap_or_default();
        match flag.to_str() {
            Some("--rw") => fs.push(rule(&value(), FileCaps::ALL)),
            Some("--r") => fs.push(rule(&value(), FileCaps::READ)),
            Some("--rx") => fs.push(rule(&value(), FileCaps::READ.union(FileCaps::EXECUTE))),
            Some("--allow") => {
                let caps = caps(&value());
                fs.push(rule(&value(), caps));
            }
            Some("--deny") => {
                let caps = caps(&value());
                fs.push(FsRule { effect: Effect::Deny, ..rule(&value(), caps) });
            }
            Some(form @ ("--literal" | "--deny-literal" | "--children" | "--deny-children")) => {
                let caps = caps(&value());
                let path = value();
                let pattern = match form {
                    "--literal" | "--deny-literal" => PathPattern::Literal(path.clone()),
                    _ => PathPattern::Children(path.clone()),
                };
                fs.push(FsRule { pattern, effect: effect(form), ..rule(&path, caps) });
            }
            Some(form @ ("--glob" | "--deny-glob" | "--regex" | "--deny-regex")) => {
                let caps = caps(&value());
                let (prefix, pattern) = (value(), value());
                let rule = rule(&prefix, caps);
                let pattern = match form {
                    "--glob" | "--deny-glob" => PathPattern::Glob { prefix, pattern },
                    _ => match regex(pattern) {
                        Some(regex) => PathPattern::Regex { prefix, regex },
                        None => return ExitCode::from(2),
                    },
                };
                fs.push(FsRule { pattern, effect: effect(form), ..rule });
            }
            Some("--default-allow") => default = Effect::Allow,
            Some("--unprotect") => protect.except.push(value()),
            Some("--simulate") => {
                let mut known = host.take().unwrap_or_else(clash_sandbox::host::probe_facts);
                if clash_sandbox::host::simulate(&mut known, &value()).is_err() {
                    return ExitCode::from(2);
                }
                host = Some(known);
            }
            Some("--host") => {
                host = Some(clash_sandbox::host::load_facts(std::path::Path::new(&value())))
            }
            Some("--ahead") => lie = true,
            Some("--unprotected") => protect.standard = false,
            Some("--lifetime") => {
                let word = value();
                lifetime = ProcessLifetime::ALL.into_iter().find(|known| known.word() == word);
            }
            Some("--limit") => {
                let name = value();
                let limit = value().parse().ok();
                match name.as_str() {
                    "memory" => limits.memory_bytes = limit,
                    "processes" => limits.processes = limit,
                    "cpu" => limits.cpu_seconds = limit,
                    "wall" => limits.wall_seconds = limit,
                    "files" => limits.files = limit,
                    _ => limits.file_size_bytes = limit,
                }
            }
            Some("--session-tmp") => session = Some(PathBuf::from(value())),
            Some("--tmp") => tmp = PathBuf::from(value()),
            Some("--localhost") => {
                let ports = vec![value().parse().unwrap_or(0)];
                let host = HostPattern::Localhost;
                let rule =
                    NetRule { host, ports, effect: Effect::Allow, span: PolicySpan::default() };
                net = NetworkAccess::Hosts { rules: vec![rule], default: Effect::Deny };
            }
            Some("--serve") => serve.push(value().parse().unwrap_or(0)),
            Some("--net") => {
                net = if value() == "allow" { NetworkAccess::Allow } else { NetworkAccess::Deny }
            }
            Some("--cwd") => cwd = Some(PathBuf::from(value())),
            Some("--home") => home = PathBuf::from(value()),
            Some("--project") => project = PathBuf::from(value()),
            Some("--cage") => cage.paths.push(PathBuf::from(value())),
            Some("--show") => show = true,
            Some("--") => break,
            _ => {
                eprintln!("room: unknown option {flag:?}");
                return ExitCode::from(2);
            }
        }
    }
    let sandbox =
        Sandbox { fs, net, serve, protect, limits, lifetime, default, ..Sandbox::named("room") };
    let places = PolicyPlaces {
        project,
        home,
        tmp: session.clone().unwrap_or(tmp.clone()),
        vars: Vec::new(),
    };
    let request = Request {
        sandbox: &sandbox,
        places: &places,
        cage: &cage,
        disk: &clash_sandbox::disk::Disk::default(),
        extra: &[],
        in_force: &clash_sandbox::planted::Alone,
        temporary: Temporary { session: session.as_deref(), host: &tmp },
        caches: None,
    };
    let host = host.unwrap_or_else(clash_sandbox::host::probe_facts);
    let host = with_limit_facts(host, &sandbox.limits);
    let rooms = host.rooms == RoomSupport::Unprivileged;
    let ahead = if rooms || lie { Ahead::start(&sandbox) } else { Ahead::default() };
    let (plan, report) = match plan_with_report(&request, &host) {
        Ok(planned) => planned,
        Err(refusal) => {
            eprintln!("room: {refusal}");
            eprintln!("hint: {}", refusal.hint().unwrap_or_default());
            return ExitCode::from(3);
        }
    };
    if show {
        eprint!("{}", report);
        for grant in &plan.grants {
            eprintln!("{:5} {} ({})", grant.caps.to_string(), grant.path.display(), grant.why);
        }
        for step in plan.room.iter().flat_map(|room| &room.steps) {
            eprintln!("{step}");
        }
    }
    let (env, _) = clash_sandbox::environment::scrub(std::env::vars_os(), &[]);
    let program = args.next().unwrap_or_else(|| OsString::from("true"));
    let command = Command { program, args: args.collect(), env, cwd };
    let error = run(&plan, &command, ahead);
    let cause = std::error::Error::source(&error).map(|e| format!(": {e}")).unwrap_or_default();
    eprintln!("room: {error}{cause}");
    ExitCode::from(match error {
        LaunchError::OutOfTime { .. } => 124,
        LaunchError::NotFound { .. } => 127,
        LaunchError::NotExecutable { .. } => 126,
        _ => 125,
    })
}
