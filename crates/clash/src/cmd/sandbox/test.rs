//! `clash sandbox test`: what a sandbox's rules say, against what happens.
//!
//! Expected is what the judge of the policy says, who never looks at the plan;
//! seen is what a process in the sandbox could do. Four processes of clash take
//! part: this one prepares and compares; a *launcher* enters the sandbox as any
//! command would; in it clash itself, let in by a grant to the launcher, *tries*;
//! and one outside, which outlives whatever happens to the others, *tidies* up.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use clap::Subcommand;
use clash_policy::judge::judge;
use clash_policy::path::{Links, is_below};
use clash_policy::{Caps, Effect, FileUse, PathPattern, Places, Sandbox, World};
use clash_sandbox::disk::Disk;
use clash_sandbox::launch;
use clash_sandbox::plan::{Grant, Why};
use serde_json::{Value, json};

use super::trial::{Act, perform_all};
use super::{find, plan, sandboxes, unless_closed};
use crate::decision::readable_in_a_room;
use crate::dirs::Dirs;
use crate::policy::Policy;
use crate::ui::{Failure, Out, Progress, Tone};
use crate::{env, exit};

#[derive(Debug, Subcommand)]
pub(super) enum Part {
    /// Enter the sandbox and try there
    Launch { name: String },
    /// Try what standard input says
    Try,
    /// Remove what standard input names, once it ends
    Tidy,
}

impl Part {
    pub(super) fn run(self, dirs: Dirs, project: &Path) -> Result<u8, Failure> {
        match self {
            Self::Launch { name } => Err(enter(&dirs, project, &name)),
            Self::Try => unless_closed(perform_all()),
            Self::Tidy => tidy(),
        }
    }
}

/// A trial, and what the policy says about it.
struct Trial {
    what: String,
    act: Act,
    allowed: bool,
    /// The rule, where one decides.
    at: Option<String>,
}

/// A trial that was made.
struct Seen {
    trial: Trial,
    /// What the system said, if it did not work.
    said: Option<String>,
}

impl Seen {
    fn agrees(&self) -> bool {
        self.trial.allowed == self.said.is_none()
    }
}

pub(super) fn run(
    out: &mut Out,
    dirs: &Dirs,
    project: &Path,
    sandbox: &Sandbox,
    json: bool,
) -> Result<u8, Failure> {
    if sandbox.unrestricted {
        return Err(Failure::new(format!(
            "sandbox {} confines nothing, so there is nothing to try",
            sandbox.name
        )));
    }
    let host = dirs.host();
    let (planned, _) = plan::make(dirs, project, sandbox, &host, &[])
        .map_err(|refusal| plan::refused(sandbox, refusal))?;
    let progress = Progress::of("trying");
    let seen = Bench::new(dirs, project, sandbox)?.run(project)?;
    drop(progress);
    let wrong = seen.iter().filter(|seen| !seen.agrees()).count();
    unless_closed(if json {
        out.json(&as_json(sandbox, &seen))
    } else {
        show(out, &sandbox.name, plan::tier(&planned), &seen)
    })?;
    Ok(if wrong == 0 { exit::OK } else { exit::FAILED })
}

fn show(out: &mut Out, name: &str, tier: &str, seen: &[Seen]) -> io::Result<()> {
    out.line(format!("sandbox {name}, {tier}"))?;
    for one in seen {
        let word = if one.said.is_none() { "allowed" } else { "blocked" };
        let (mark, tone) = if one.agrees() { ("ok", Tone::Good) } else { ("WRONG", Tone::Bad) };
        let mut line =
            format!("  {}  {word}  {}", out.tone(tone, &format!("{mark:<5}")), one.trial.what);
        if let Some(at) = &one.trial.at {
            line.push_str(&out.tone(Tone::Faint, &format!("  ({at})")));
        }
        if !one.agrees() {
            match &one.said {
                Some(said) => line.push_str(&format!(": the policy allows it, but: {said}")),
                None => line.push_str(": the policy does not allow it"),
            }
        }
        out.line(line)?;
    }
    let wrong = seen.iter().filter(|one| !one.agrees()).count();
    out.line(match wrong {
        0 => format!("{} tried, all as the policy says", seen.len()),
        wrong => format!("{} tried, {wrong} not as the policy says", seen.len()),
    })
}

fn as_json(sandbox: &Sandbox, seen: &[Seen]) -> Value {
    let word = |allowed: bool| if allowed { "allowed" } else { "blocked" };
    let one = |one: &Seen| {
        json!({
            "what": one.trial.what, "act": one.trial.act, "at": one.trial.at,
            "expected": word(one.trial.allowed), "seen": word(one.said.is_none()),
            "said": one.said, "agrees": one.agrees(),
        })
    };
    json!({
        "sandbox": sandbox.name, "ok": seen.iter().all(Seen::agrees),
        "trials": seen.iter().map(one).collect::<Vec<_>>(),
    })
}

/// Everything that is set up for the trials, and goes with them.
struct Bench<'a> {
    sandbox: &'a Sandbox,
    places: Places,
    disk: Disk,
    cage: Vec<PathBuf>,
    trials: Vec<Trial>,
    tidier: Option<Child>,
    _listening: Vec<Box<dyn std::fmt::Debug>>,
}

/// Scratch directories are hidden, and nobody else's.
const SCRATCH: &str = ".clash-test-";

fn is_scratch(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(SCRATCH))
}

/// Nobody has to look through a whole directory to find a file in it.
const ENOUGH: usize = 1000;

impl<'a> Bench<'a> {
    fn new(dirs: &Dirs, project: &Path, sandbox: &'a Sandbox) -> Result<Self, Failure> {
        let disk = Disk::default();
        let places = dirs.places(project, &disk);
        let cage = dirs.cage(project, &disk);
        let mut tidier = part("tidy", project)?;
        // A key pressed at the terminal is not for it.
        let tidier = Some(tidier.process_group(0).stdin(Stdio::piped()).spawn()?);
        let (trials, _listening) = (Vec::new(), Vec::new());
        let mut bench = Self { sandbox, places, disk, cage, trials, tidier, _listening };
        bench.rules()?;
        bench.around(dirs)?;
        bench.network()?;
        bench.processes()?;
        Ok(bench)
    }

    /// What the policy says about a path.
    fn judged(&self, path: &Path, needs: Caps) -> Result<(bool, Option<String>), Failure> {
        let baseline = readable_in_a_room();
        let world = World {
            places: &self.places,
            cwd: &self.places.project,
            links: &self.disk,
            baseline: &baseline,
            cage: &self.cage,
        };
        let path = self.disk.real(path);
        let caged =
            needs.intersects(Caps::CHANGE) && self.cage.iter().any(|own| is_below(&path, own));
        let file = FileUse { path, needs, caseless: false };
        let verdict = judge(self.sandbox, &file, &world)?;
        let rule = verdict.rule.and_then(|index| self.sandbox.fs.get(index));
        let at = rule.map(|rule| rule.span.to_string()).filter(|_| !caged);
        Ok((verdict.effect == Effect::Allow && !caged, at))
    }

    fn file(&mut self, what: String, act: Act, path: &Path, needs: Caps) -> Result<(), Failure> {
        let (allowed, at) = self.judged(path, needs)?;
        self.trials.push(Trial { what, act, allowed, at });
        Ok(())
    }

    fn blocked(&mut self, what: impl Into<String>, act: Act) {
        self.trials.push(Trial { what: what.into(), act, allowed: false, at: None });
    }

    /// Inside each rule, and beside it.
    fn rules(&mut self) -> Result<(), Failure> {
        let mut seen: Vec<PathBuf> = Vec::new();
        for rule in &self.sandbox.fs {
            let Some(path) = self.fixed(&rule.pattern).filter(|path| path.exists()) else {
                continue;
            };
            if seen.contains(&path) {
                continue;
            }
            seen.push(path.clone());
            let name = path.display();
            let pattern =
                !matches!(rule.pattern, PathPattern::Subpath { .. } | PathPattern::Literal(_));
            if path.is_dir() && (rule.effect == Effect::Allow || pattern) {
                self.look(&path)?;
                self.scratch(&path)?;
            } else if path.is_dir() {
                self.stray(&path)?;
            } else {
                let (read, open) = (Act::Read(path.clone()), Act::Open(path.clone()));
                self.file(format!("read {name}"), read, &path, Caps::READ)?;
                self.file(format!("open {name} to write"), open, &path, Caps::WRITE)?;
            }
        }
        // What lies beside a grant is the easiest mistake to make.
        for path in seen {
            if let Some(parent) = path.parent().filter(|parent| self.is_users(parent)) {
                self.stray(parent)?;
            }
        }
        Ok(())
    }

    /// Where a pattern begins on this disk.
    fn fixed(&self, pattern: &PathPattern) -> Option<PathBuf> {
        Some(self.disk.real(&self.places.expand(pattern.fixed()).ok()?))
    }

    /// Names that the sandbox's patterns below a directory are about.
    fn names_below(&self, dir: &Path) -> Vec<String> {
        let mut names = Vec::new();
        for rule in &self.sandbox.fs {
            let PathPattern::Glob { pattern, .. } = &rule.pattern else { continue };
            let above = self.fixed(&rule.pattern).is_some_and(|fixed| is_below(dir, &fixed));
            let name = pattern.rsplit('/').next().unwrap_or_default().replace(['*', '?'], "x");
            if above && !name.is_empty() && !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }

    /// Whether a directory is one where a test may make a file: the user's own.
    fn is_users(&self, path: &Path) -> bool {
        [&self.places.project, &self.places.home, &self.places.tmp]
            .iter()
            .any(|place| is_below(path, place))
    }

    /// Tries every right in a directory made for it.
    fn scratch(&mut self, path: &Path) -> Result<(), Failure> {
        let dir = path.join(format!("{SCRATCH}{}", std::process::id()));
        if !self.is_users(path) || dir.exists() || !self.make(&dir)? {
            return Ok(());
        }
        for (name, text, mode) in
            [("file", "text", 0o600), ("gone", "", 0o600), ("run", "#!/bin/sh\nexit 0\n", 0o700)]
        {
            let file = dir.join(name);
            fs::write(&file, text)?;
            fs::set_permissions(&file, fs::Permissions::from_mode(mode))?;
        }
        let [file, new, gone, run] = ["file", "new", "gone", "run"].map(|name| dir.join(name));
        let at = path.display();
        self.file(format!("read a file in {at}"), Act::Read(file.clone()), &file, Caps::READ)?;
        self.file(format!("write a file in {at}"), Act::Open(file.clone()), &file, Caps::WRITE)?;
        self.file(
            format!("change a file's mode in {at}"),
            Act::Chmod(file.clone()),
            &file,
            Caps::WRITE,
        )?;
        self.file(format!("create a file in {at}"), Act::Create(new.clone()), &new, Caps::CREATE)?;
        self.file(
            format!("delete a file in {at}"),
            Act::Delete(gone.clone()),
            &gone,
            Caps::DELETE,
        )?;
        self.file(
            format!("run a program in {at}"),
            Act::Run(run.clone()),
            &run,
            Caps::EXECUTE.union(Caps::READ),
        )?;
        for name in self.names_below(&dir) {
            let named = dir.join(&name);
            let act = Act::Create(named.clone());
            self.file(format!("create {name} in {at}"), act, &named, Caps::CREATE)?;
        }
        Ok(())
    }

    /// Tries to see what lies in a directory and to make a file in it.
    fn stray(&mut self, dir: &Path) -> Result<(), Failure> {
        let file = dir.join(format!("{SCRATCH}{}", std::process::id()));
        let known = |trial: &Trial| trial.act == Act::Create(file.clone());
        if file.exists() || self.trials.iter().any(known) || !dir.is_dir() {
            return Ok(());
        }
        self.look(dir)?;
        if self.is_users(dir) {
            let at = dir.display();
            self.leave(&file)?;
            self.file(
                format!("create a file in {at}"),
                Act::Create(file.clone()),
                &file,
                Caps::CREATE,
            )?;
        }
        Ok(())
    }

    /// Tries to read something of a path. A room may have a directory of its own
    /// under the same name, so of a directory it is a file in it that counts.
    fn look(&mut self, path: &Path) -> Result<(), Failure> {
        let file = if path.is_dir() { self.file_in(path)? } else { None };
        let (what, path) = match &file {
            Some(file) => (format!("read a file in {}", path.display()), file.as_path()),
            None => (format!("read {}", path.display()), path),
        };
        let act = Act::Read(path.to_path_buf());
        if self.trials.iter().any(|trial| trial.act == act) {
            return Ok(());
        }
        self.file(what, act, path, Caps::READ)
    }

    /// A file that lies in a directory, if need be one made for it.
    fn file_in(&mut self, dir: &Path) -> Result<Option<PathBuf>, Failure> {
        let there = fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
        let hidden = |path: &Path| {
            path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."))
        };
        let found = there.take(ENOUGH).filter(|path| path.is_file() && !hidden(path)).min();
        if found.is_some() || !self.is_users(dir) {
            return Ok(found);
        }
        let canary = dir.join(format!("{SCRATCH}{}-c", std::process::id()));
        self.leave(&canary)?;
        Ok(fs::write(&canary, "text").is_ok().then_some(canary))
    }

    /// What is nobody's business: credentials, clash's own files, the agents'.
    fn around(&mut self, dirs: &Dirs) -> Result<(), Failure> {
        let home = self.places.home.clone();
        self.stray(&home)?;
        for path in SECRETS.iter().map(|name| home.join(name)).filter(|path| path.exists()) {
            self.look(&path)?;
        }
        for path in ["/etc/shadow", "/proc/sys/kernel/core_pattern"] {
            self.blocked(format!("open {path} to write"), Act::Open(path.into()));
        }
        for path in self.cage.clone() {
            if path.is_file() {
                self.blocked(format!("open {} to write", path.display()), Act::Open(path));
            } else if path.is_dir() {
                let file = path.join(format!("{SCRATCH}{}", std::process::id()));
                self.leave(&file)?;
                self.blocked(format!("create a file in {}", path.display()), Act::Create(file));
            }
        }
        let record = dirs.host_record();
        if record.is_file() {
            self.file(
                format!("read {}", record.display()),
                Act::Read(record.clone()),
                &record,
                Caps::READ,
            )?;
        }
        Ok(())
    }

    fn network(&mut self) -> Result<(), Failure> {
        let tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let udp = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        let (tcp_port, udp_port) = (tcp.local_addr()?.port(), udp.local_addr()?.port());
        std::thread::spawn(move || {
            let mut byte = [0; 1];
            while let Ok((_, from)) = udp.recv_from(&mut byte) {
                let _ = udp.send_to(&byte, from);
            }
        });
        self._listening.push(Box::new(tcp));
        for (what, port, act) in [
            ("a TCP port of this machine", tcp_port, Act::Tcp(tcp_port)),
            ("a UDP port of this machine", udp_port, Act::Udp(udp_port)),
        ] {
            let (effect, rule) = self.sandbox.net.judge("127.0.0.1", port);
            let at = rule.map(|rule| rule.span.to_string());
            let what = format!("reach {what}");
            self.trials.push(Trial { what, act, allowed: effect == Effect::Allow, at });
        }
        self.sockets()
    }

    /// Sockets of others: one whose path no rule grants, one without a path, and
    /// those that commonly lead to somebody who acts for the user.
    fn sockets(&mut self) -> Result<(), Failure> {
        let dir = self.places.home.join(format!("{SCRATCH}{}-s", std::process::id()));
        let path = dir.join("s");
        if !self.judged(&path, Caps::WRITE)?.0 && self.make(&dir)? {
            // The longest path a socket can have is short.
            if let Ok(listener) = UnixListener::bind(&path) {
                self._listening.push(Box::new(listener));
                self.blocked("connect to a socket in the home directory", Act::Unix(path));
            }
        }
        #[cfg(target_os = "linux")]
        {
            use std::os::linux::net::SocketAddrExt;
            let name = format!("clash-test-{}", std::process::id());
            let address = std::os::unix::net::SocketAddr::from_abstract_name(&name)?;
            self._listening.push(Box::new(UnixListener::bind_addr(&address)?));
            self.blocked("connect to an abstract socket", Act::Abstract(name));
        }
        let agents = [env::path("SSH_AUTH_SOCK"), Some("/var/run/docker.sock".into())];
        for path in agents.into_iter().flatten().filter(|path| path.exists()) {
            let what = format!("connect to {}", path.display());
            self.file(what, Act::Unix(path.clone()), &path, Caps::WRITE)?;
        }
        Ok(())
    }

    fn processes(&mut self) -> Result<(), Failure> {
        let own = std::process::id();
        self.blocked("signal a process outside", Act::Signal(i32::try_from(own)?));
        self.blocked(
            "read the environment of a process outside",
            Act::Read(format!("/proc/{own}/environ").into()),
        );
        let (kept, _) = clash_sandbox::environment::scrub(
            [(SECRET_VARIABLE.into(), "secret".into())].into_iter(),
            &self.sandbox.env,
        );
        let what = format!("see the variable {SECRET_VARIABLE}");
        let act = Act::Variable(SECRET_VARIABLE.to_owned());
        self.trials.push(Trial { what, act, allowed: !kept.is_empty(), at: None });
        Ok(())
    }

    /// Makes a directory that will be removed; `false` where one cannot be made.
    fn make(&mut self, dir: &Path) -> Result<bool, Failure> {
        self.leave(dir)?;
        Ok(fs::create_dir(dir).is_ok())
    }

    /// Has whatever will be found there removed in the end.
    fn leave(&mut self, path: &Path) -> Result<(), Failure> {
        let to = self.tidier.as_mut().and_then(|child| child.stdin.as_mut());
        let to = to.ok_or_else(|| Failure::new("there is nobody to tidy up"))?;
        Ok(writeln!(to, "{}", serde_json::to_string(path)?)?)
    }

    fn run(mut self, project: &Path) -> Result<Vec<Seen>, Failure> {
        let mut launcher = part("launch", project)?;
        launcher.arg(&self.sandbox.name).env(SECRET_VARIABLE, "secret");
        launcher.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = launcher.spawn()?;
        let mut asked = String::new();
        for trial in &self.trials {
            asked.push_str(&serde_json::to_string(&trial.act)?);
            asked.push('\n');
        }
        if let Some(mut stdin) = child.stdin.take() {
            // A launcher that failed reads nothing; its own words say why.
            let _ = stdin.write_all(asked.as_bytes());
        }
        let output = child.wait_with_output()?;
        let answers: Vec<Option<String>> = String::from_utf8_lossy(&output.stdout)
            .lines()
            .map(serde_json::from_str)
            .collect::<Result<_, _>>()
            .unwrap_or_default();
        if !output.status.success() || answers.len() != self.trials.len() {
            let said = String::from_utf8_lossy(&output.stderr);
            let said = said.trim().trim_start_matches("clash: ");
            let status = exit::NO_SANDBOX;
            let message =
                format!("nothing could be tried in the sandbox ({}): {said}", output.status);
            return Err(Failure { status, ..Failure::new(message) });
        }
        let trials = std::mem::take(&mut self.trials);
        let seen =
            trials.into_iter().zip(answers).map(|(trial, said)| on_disk(Seen { trial, said }));
        Ok(seen.collect())
    }
}

/// A room has directories of its own under names that the machine has too: what
/// was made or removed there was not made or removed here.
fn on_disk(seen: Seen) -> Seen {
    let elsewhere = match &seen.trial.act {
        Act::Create(path) => !path.exists(),
        Act::Delete(path) => path.exists(),
        _ => false,
    };
    let said = seen.said.or_else(|| elsewhere.then(|| "it happened only inside".to_owned()));
    Seen { said, ..seen }
}

impl Drop for Bench<'_> {
    fn drop(&mut self) {
        if let Some(mut tidier) = self.tidier.take() {
            if let Some(mut stdin) = tidier.stdin.take() {
                let _ = writeln!(stdin, "{DONE}");
            }
            let _ = tidier.wait();
        }
    }
}

/// Looks like a secret, and is none.
const SECRET_VARIABLE: &str = "CLASH_TEST_TOKEN";

/// Where keys and tokens usually lie in a home directory.
const SECRETS: &[&str] = &[
    ".ssh",
    ".aws",
    ".gnupg",
    ".netrc",
    ".git-credentials",
    ".config/gh",
    ".docker/config.json",
    ".kube",
    ".npmrc",
    ".pypirc",
    ".cargo/credentials.toml",
    ".password-store",
    ".bash_history",
];

/// Another process of this program.
fn part(name: &str, project: &Path) -> Result<Command, Failure> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["sandbox", "--project"]).arg(project).args(["part", name]);
    Ok(command)
}

/// Becomes clash again, inside the sandbox.
fn enter(dirs: &Dirs, project: &Path, name: &str) -> Failure {
    let launch = || -> Result<std::convert::Infallible, Failure> {
        let known = sandboxes(&Policy::load(dirs, project, None)?)?;
        let sandbox = find(&known, name)?;
        let own = std::env::current_exe()?;
        let caps = Caps::READ.union(Caps::EXECUTE);
        let extra = [Grant { path: own.clone(), caps, why: Why::Launcher }];
        let (plan, _) = plan::make(dirs, project, sandbox, &dirs.host(), &extra)
            .map_err(|refusal| plan::refused(sandbox, refusal))?;
        let (env, _) = clash_sandbox::environment::scrub(env::all(), &sandbox.env);
        let args = ["sandbox", "part", "try"].map(Into::into).to_vec();
        let command = launch::Command { program: own.into(), args, env, cwd: Some("/".into()) };
        Err(Failure::from(launch::run(&plan, &command)))
    };
    match launch() {
        Ok(never) => match never {},
        Err(failure) => Failure { status: exit::NO_SANDBOX, ..failure },
    }
}

/// The last line of who names what is to be removed, if it came to its end.
const DONE: &str = "done";

/// Waits until nobody can name anything any more, and removes what was named. If
/// the one who named it was killed, a trial may still be going on.
fn tidy() -> Result<u8, Failure> {
    let mut named = String::new();
    io::stdin().read_to_string(&mut named)?;
    let paths: Vec<PathBuf> =
        named.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let rounds = if named.lines().last() == Some(DONE) { 1 } else { ROUNDS };
    for round in 0..rounds {
        if round > 0 {
            std::thread::sleep(Duration::from_millis(100));
        }
        for path in paths.iter().filter(|path| is_scratch(path)) {
            let _ = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
        }
    }
    Ok(exit::OK)
}

const ROUNDS: usize = 50;
