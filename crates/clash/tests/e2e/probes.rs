//! The attack probes of `tests/attacks` against a strict project sandbox, on a synthetic
//! host that ends with the run: as a developer and as root, each also without user
//! namespaces.
//!
//! `tests/expected/probes.json` holds the recorded result of each probe and, for each
//! probe that is not blocked, the reason. A result that is worse than recorded fails the
//! test; a better one asks to be recorded:
//!
//! ```text
//! CLASH_RECORD_PROBES=1 cargo test -p clash --test e2e probes
//! ```
//!
//! Not run: the classes E and Q, whose files in the project a command is meant to write.
//! M needs the hook. The classes K and L and the utility U18 also run against a sandbox with
//! host rules.
//!
//! Needs root, because the runner makes namespaces and accounts, and python3.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;

use serde::{Deserialize, Serialize};

use crate::support::{clash, is_root, skipped, test_file};

/// Groups of classes that run side by side: a probe mostly waits.
const SHARDS: [&str; 3] = ["A,B,C,I,N,U", "G,H,J,K", "D,F"];

/// The classes whose results can differ for root without namespaces.
const MAY_DIFFER: [&str; 2] = ["A,B,C,N,U", "G,H,J"];

/// The project, its own temporary files, no network.
const POLICY: &str = r#"
sandbox(
    name = "strict",
    default = deny(),
    fs = {
        subpath("$PWD", follow_worktrees = True): allow(FULL),
        literal("$PWD/.env"): deny(),
        "$HOME": {literal(".gitconfig"): allow("r")},
    },
    net = deny(),
    protect = ["Dockerfile"],
    limits = {"memory": "4G", "processes": 400, "file_size": "2G"},
)
"#;

/// The project, and one host.
const HOSTS_POLICY: &str = r#"
sandbox(
    name = "hosts",
    default = deny(),
    fs = {subpath("$PWD", follow_worktrees = True): allow(FULL)},
    net = ["allowed.test"],
)
"#;

/// The same sandbox for root without namespaces: there nothing counts root's processes, and
/// the planner refuses such a limit.
fn uncounted() -> String {
    POLICY.replace("strict", "uncounted").replace(r#", "processes": 400"#, "")
}

/// The utility that needs an allowed host.
const NEEDS_NETWORK: &str = "U18";

/// The result of each probe, by its id.
type Statuses = BTreeMap<String, String>;

/// The recorded results.
#[derive(Debug, Default, Deserialize, Serialize)]
struct Expected {
    /// The reason why a probe is not blocked, and what would block it. Written by hand.
    open: BTreeMap<String, String>,
    user: Statuses,
    root: Statuses,
    no_userns: Statuses,
    root_no_userns: Statuses,
}

impl Expected {
    /// The file of the recorded results.
    fn file() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/expected/probes.json")
    }

    /// Reads the recorded results. Fails the test without the file.
    fn read() -> Self {
        serde_json::from_str(&fs::read_to_string(Self::file()).unwrap()).unwrap()
    }

    /// The results of one user and tier.
    fn of(&mut self, who: Who) -> &mut Statuses {
        match who {
            Who::User => &mut self.user,
            Who::Root => &mut self.root,
            Who::UserWithoutNamespaces => &mut self.no_userns,
            Who::RootWithoutNamespaces => &mut self.root_no_userns,
        }
    }
}

/// The user and the tier of a run.
#[derive(Clone, Copy, Debug)]
enum Who {
    User,
    Root,
    UserWithoutNamespaces,
    RootWithoutNamespaces,
}

impl Who {
    /// The groups of probes that run at the same time. As root without namespaces, only those
    /// whose result may differ, unless all are wanted.
    fn shards(self) -> &'static [&'static str] {
        let all = recording() || std::env::var_os("CLASH_NIGHTLY").is_some();
        match self {
            Self::RootWithoutNamespaces if !all => &MAY_DIFFER,
            _ => &SHARDS,
        }
    }

    /// True if this run includes the probe.
    fn runs(self, id: &str) -> bool {
        self.shards().iter().any(|classes| classes.split(',').any(|class| id.starts_with(class)))
    }

    /// The name of the sandbox in the policy.
    fn sandbox(self) -> &'static str {
        if matches!(self, Self::RootWithoutNamespaces) { "uncounted" } else { "strict" }
    }

    /// The option of clash that simulates a host without namespaces.
    fn simulates(self) -> &'static str {
        match self {
            Self::User | Self::Root => "",
            Self::UserWithoutNamespaces | Self::RootWithoutNamespaces => "--simulate no-userns ",
        }
    }
}

/// One line of the runner's report.
#[derive(Debug, Deserialize)]
struct Row {
    id: String,
    status: String,
    info: String,
    title: String,
}

#[derive(Debug, Deserialize)]
struct Report {
    results: Vec<Row>,
}

/// The runner of the probes, and a directory with copies of clash and a policy.
struct Kit {
    runner: PathBuf,
    /// Outside /tmp and /run, which the synthetic host replaces.
    dir: tempfile::TempDir,
}

impl Kit {
    /// Prints the reason and returns `None` if something is missing.
    fn here() -> Option<Self> {
        let missing = |what: &str| {
            skipped(&format!("the threat probes: {what}"));
            None
        };
        let runner = test_file("attacks/run.py");
        if !is_root() {
            return missing("they were recorded by root, and the tests do not run as root");
        }
        let works = |command: &mut Command| command.output().is_ok_and(|o| o.status.success());
        if !works(Command::new("python3").arg("--version")) {
            return missing("no python3");
        }
        let namespaces = ["--mount", "--pid", "--net", "--ipc", "--uts", "--fork", "true"];
        if !works(Command::new("unshare").args(namespaces)) {
            return missing("no namespaces for the synthetic host");
        }
        let dir = tempfile::Builder::new().prefix("clash-probes-").tempdir_in("/var/tmp").unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        // With the compiler, which clash looks for beside itself.
        for file in fs::read_dir(clash().parent().unwrap()).unwrap() {
            let file = file.unwrap();
            fs::copy(file.path(), dir.path().join(file.file_name())).unwrap();
        }
        let config = dir.path().join("config/clash");
        fs::create_dir_all(&config).unwrap();
        fs::write(config.join("policy.star"), [POLICY, &uncounted(), HOSTS_POLICY].concat())
            .unwrap();
        Some(Self { runner, dir })
    }

    /// Runs these groups of probes at the same time, each in its own process.
    fn run(&self, who: Who, which: &[&str]) -> Vec<Row> {
        let program = self.dir.path().join("clash");
        let start = |(at, only): (usize, &&str)| {
            let report = self.dir.path().join(format!("{at}.json"));
            let mut command = Command::new("python3");
            command
                .arg(&self.runner)
                .args(["--quiet", "--only", only, "--skip", NEEDS_NETWORK, "--wrap"])
                .arg(format!(
                    "/usr/bin/env XDG_CONFIG_HOME={} {} sandbox exec {} {}--",
                    self.dir.path().join("config").display(),
                    program.display(),
                    who.sandbox(),
                    who.simulates()
                ))
                .arg("--json")
                .arg(&report)
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped());
            if matches!(who, Who::Root | Who::RootWithoutNamespaces) {
                command.arg("--as-root");
            }
            (command.spawn().unwrap(), report)
        };
        let runs: Vec<_> = which.iter().enumerate().map(start).collect();
        let mut rows = Vec::new();
        for (child, report) in runs {
            let output = child.wait_with_output().unwrap();
            let text = fs::read_to_string(&report)
                .unwrap_or_else(|error| panic!("{}: {error}: {output:?}", report.display()));
            rows.extend(serde_json::from_str::<Report>(&text).unwrap().results);
        }
        rows
    }

    /// Runs the groups of this user and tier. A probe that did not run (unless that is its
    /// recorded result) gets a second try alone, because the machine may have been busy; an
    /// escape gets none.
    fn run_all(&self, who: Who, expected: &Statuses) -> Vec<Row> {
        let mut rows = self.run(who, who.shards());
        let inconclusive = |row: &&Row| {
            matches!(row.status.as_str(), "NORUN" | "ERROR" | "BROKEN")
                && expected.get(&row.id) != Some(&row.status)
        };
        let again: Vec<&str> =
            rows.iter().filter(inconclusive).map(|row| row.id.as_str()).collect();
        if !again.is_empty() {
            let again = self.run(who, &[again.join(",").as_str()]);
            rows.retain(|row| again.iter().all(|other| other.id != row.id));
            rows.extend(again);
        }
        rows
    }
}

/// True if the attack was blocked, or ordinary work succeeded.
fn is_good(status: &str) -> bool {
    matches!(status, "BLOCKED" | "OK")
}

/// Says on stderr, past the test runner's capture, that a result is better than recorded.
fn improved(what: &str) {
    let hint = "record it with CLASH_RECORD_PROBES=1";
    let _ = writeln!(std::io::stderr(), "IMPROVED: probe {what}; {hint}");
}

/// True if the results are to be recorded.
fn recording() -> bool {
    std::env::var_os("CLASH_RECORD_PROBES").is_some()
}

/// Runs the probes and compares the results with the recorded ones. Worse results fail;
/// better ones are only printed. With `CLASH_RECORD_PROBES`, records them instead.
fn compare(who: Who) {
    let Some(kit) = Kit::here() else { return };
    let mut expected = Expected::read();
    let recorded = std::mem::take(expected.of(who));
    let rows = kit.run_all(who, &recorded);
    if recording() {
        return record(who, &rows);
    }
    let mut worse = Vec::new();
    for row in &rows {
        let Row { id, status, info, title } = row;
        match recorded.get(id).map(String::as_str) {
            Some(known) if known == status => {}
            _ if status == "SKIPPED" => skipped(&format!("probe {id}: {info}")),
            Some(known) if is_good(status) => improved(&format!("{id} was {known}, is {status}")),
            known => worse.push(format!(
                "{id} is {status}, recorded as {}: {title}: {info}",
                known.unwrap_or("nothing")
            )),
        }
    }
    let gone = recorded.keys().filter(|id| who.runs(id) && rows.iter().all(|row| row.id != **id));
    worse.extend(gone.map(|id| format!("{id} did not run")));
    assert!(worse.is_empty(), "as {who:?}:\n{}", worse.join("\n"));
}

/// Replaces the recorded results of one user and tier.
fn record(who: Who, rows: &[Row]) {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _guard = ONE_AT_A_TIME.lock().unwrap();
    let mut expected = Expected::read();
    *expected.of(who) = rows.iter().map(|row| (row.id.clone(), row.status.clone())).collect();
    let text = serde_json::to_string_pretty(&expected).unwrap();
    fs::write(Expected::file(), format!("{text}\n")).unwrap();
}

#[test]
fn probes_of_a_developer_are_not_worse_than_recorded() {
    compare(Who::User);
}

#[test]
fn probes_of_root_are_not_worse_than_recorded() {
    compare(Who::Root);
}

#[test]
fn developer_probes_without_namespaces_are_not_worse() {
    compare(Who::UserWithoutNamespaces);
}

#[test]
fn root_probes_without_namespaces_are_not_worse() {
    compare(Who::RootWithoutNamespaces);
}

#[test]
fn host_rules_hold_against_every_network_probe() {
    let Some(kit) = Kit::here() else { return };
    for options in [&[][..], &["--as-root"]] {
        let report = kit.dir.path().join("hosts.json");
        let wrap = format!(
            "/usr/bin/env XDG_CONFIG_HOME={} {} sandbox exec hosts --",
            kit.dir.path().join("config").display(),
            kit.dir.path().join("clash").display()
        );
        let mut command = Command::new("python3");
        command.arg(&kit.runner).args(["--quiet", "--net", "--only", "K,L,U07,U18"]);
        command.args(["--wrap", &wrap, "--json"]).arg(&report).args(options);
        let output = command.stdin(Stdio::null()).output().unwrap();
        let text =
            fs::read_to_string(&report).unwrap_or_else(|error| panic!("{error}: {output:?}"));
        let rows = serde_json::from_str::<Report>(&text).unwrap().results;
        let bad: Vec<&Row> = rows.iter().filter(|row| !is_good(&row.status)).collect();
        assert!(bad.is_empty() && rows.len() >= 58, "{options:?}: {bad:?}");
    }
}

#[test]
fn every_probe_that_is_not_blocked_has_a_reason() {
    if recording() {
        return; // the file is being written
    }
    let Expected { open, user, root, no_userns, root_no_userns } = Expected::read();
    let bad = |(id, status): (&String, &String)| (!is_good(status)).then(|| id.clone());
    let mut through: Vec<String> =
        [user, root, no_userns, root_no_userns].iter().flatten().filter_map(bad).collect();
    through.sort();
    through.dedup();
    let explained: Vec<String> = open.into_keys().collect();
    assert_eq!(explained, through);
}
