//! Chooses the trials for a sandbox: inside and beside each of its rules, at credentials
//! and clash's own files, on the network and among the processes.

use std::fs;
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use clash_policy::judge::{PathVerdict, judge};
use clash_policy::path::{LinkResolver, is_below};
use clash_policy::{
    Effect, FileCaps, FileUse, JudgeContext, PathPattern, PolicyPlaces, Sandbox, WriteTarget,
    witness,
};
use clash_sandbox::disk::Disk;

use super::act::TrialAct;
use super::parts::{SCRATCH, SECRET_VARIABLE, ScratchRemover};
use crate::decision::readable_in_a_room;
use crate::dirs::Dirs;
use crate::env;
use crate::ui::Failure;

/// A trial with the result that the policy expects.
pub(super) struct SandboxTrial {
    pub(super) what: String,
    pub(super) act: TrialAct,
    pub(super) allowed: bool,
    /// The line of the rule that decides, if there is one.
    pub(super) at: Option<String>,
}

/// The trials, with the files and sockets that exist for them.
pub(super) struct TrialSetup<'a> {
    sandbox: &'a Sandbox,
    places: PolicyPlaces,
    disk: Disk,
    cage: Vec<PathBuf>,
    list: Vec<SandboxTrial>,
    tidier: ScratchRemover,
    listening: Vec<Box<dyn std::fmt::Debug>>,
}

/// A search for a file in a directory looks at this many names.
const MAX_NAMES_SEARCHED: usize = 1000;

impl<'a> TrialSetup<'a> {
    /// Chooses all trials and makes their files, sockets and listeners. Starts the tidier
    /// first.
    pub(super) fn new(dirs: &Dirs, project: &Path, sandbox: &'a Sandbox) -> Result<Self, Failure> {
        let disk = Disk::default();
        let mut places = dirs.places_unseen(project, &disk);
        // Outside a session `$TMPDIR` is a directory of the command's own.
        places.tmp = crate::temporary::session_tmp(&dirs.state);
        let cage = dirs.cage(project, &disk);
        let tidier = ScratchRemover::start()?;
        let (list, listening) = (Vec::new(), Vec::new());
        let mut trials = Self { sandbox, places, disk, cage, list, tidier, listening };
        trials.add_rule_trials()?;
        trials.add_cage_trials(dirs)?;
        trials.add_network_trials()?;
        trials.add_process_trials()?;
        Ok(trials)
    }

    /// Takes the list of trials. Files and sockets stay until this value is dropped.
    pub(super) fn take(&mut self) -> Vec<SandboxTrial> {
        std::mem::take(&mut self.list)
    }

    /// The result that the policy expects for a path, and the line of its rule. Changes in
    /// the cage are never expected.
    fn expected(&self, path: &Path, needs: FileCaps) -> Result<(bool, Option<String>), Failure> {
        let (verdict, caged) = self.verdict(path, needs)?;
        let rule = verdict.rule.and_then(|index| self.sandbox.fs.get(index));
        let at = rule.map(|rule| rule.span.to_string()).filter(|_| !caged);
        Ok((verdict.effect == Effect::Allow && !caged, at))
    }

    /// True if commands see a copy without secrets in the place of the file.
    fn is_masked(&self, path: &Path) -> Result<bool, Failure> {
        let rule = self.verdict(path, FileCaps::READ)?.0.rule;
        let rule = rule.and_then(|index| self.sandbox.fs.get(index));
        Ok(rule.is_some_and(|rule| rule.writes == WriteTarget::Masked))
    }

    /// The verdict of the judge, and whether a change would be one of the cage.
    fn verdict(&self, path: &Path, needs: FileCaps) -> Result<(PathVerdict, bool), Failure> {
        let baseline = readable_in_a_room();
        let world = JudgeContext {
            places: &self.places,
            cwd: &self.places.project,
            links: &self.disk,
            baseline: &baseline,
            cage: &self.cage,
            lent: None,
        };
        let path = self.disk.real(path);
        let caged =
            needs.intersects(FileCaps::CHANGE) && self.cage.iter().any(|own| is_below(&path, own));
        let file = FileUse { path, needs, caseless: false };
        Ok((judge(self.sandbox, &file, &world)?, caged))
    }

    /// Adds a trial whose expected result comes from the judge.
    fn add_file_trial(
        &mut self,
        what: String,
        act: TrialAct,
        path: &Path,
        needs: FileCaps,
    ) -> Result<(), Failure> {
        if needs == FileCaps::READ && self.is_masked(path)? {
            // The command reads a copy, and the judge answers for the file.
            return Ok(());
        }
        let (allowed, at) = self.expected(path, needs)?;
        self.list.push(SandboxTrial { what, act, allowed, at });
        Ok(())
    }

    /// Adds a trial that no sandbox may permit.
    fn add_blocked_trial(&mut self, what: impl Into<String>, act: TrialAct) {
        self.list.push(SandboxTrial { what: what.into(), act, allowed: false, at: None });
    }

    /// Adds trials inside each rule whose path exists, and in the user's directory above it:
    /// a grant that is too wide opens that directory.
    fn add_rule_trials(&mut self) -> Result<(), Failure> {
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
            if rule.writes == WriteTarget::Project {
                // The room writes to the project's own cache, but the judge answers for
                // the shared one.
                self.add_read_trial(&path)?;
            } else if path.is_dir() && (rule.effect == Effect::Allow || pattern) {
                if !self.add_scratch_trials(&path)? {
                    self.add_read_trial(&path)?;
                }
            } else if path.is_dir() {
                self.add_stray_trials(&path)?;
            } else {
                let (read, open) = (TrialAct::Read(path.clone()), TrialAct::Open(path.clone()));
                self.add_file_trial(format!("read {name}"), read, &path, FileCaps::READ)?;
                self.add_file_trial(format!("open {name} to write"), open, &path, FileCaps::WRITE)?;
            }
        }
        for path in seen {
            if let Some(parent) = path.parent().filter(|parent| self.is_users(parent)) {
                self.add_stray_trials(parent)?;
            }
        }
        Ok(())
    }

    /// The directory where a pattern begins, without links; `None` for an unknown variable.
    fn fixed(&self, pattern: &PathPattern) -> Option<PathBuf> {
        Some(self.disk.real(&self.places.expand(pattern.fixed()).ok()?))
    }

    /// Example file names for the globs and regexes of the sandbox that reach into a
    /// directory, each once.
    fn names_below(&self, dir: &Path) -> Vec<String> {
        let mut names = Vec::new();
        for rule in &self.sandbox.fs {
            let example = match &rule.pattern {
                PathPattern::Glob { pattern, .. } => Some(pattern.replace(['*', '?'], "x")),
                PathPattern::Regex { regex, .. } => witness::example(regex),
                _ => None,
            };
            let above = self.fixed(&rule.pattern).is_some_and(|fixed| is_below(dir, &fixed));
            let name = example.as_deref().and_then(|path| path.rsplit('/').next());
            let Some(name) = name.filter(|name| above && !name.is_empty()) else { continue };
            if !names.iter().any(|known| known == name) {
                names.push(name.to_owned());
            }
        }
        names
    }

    /// True for a directory of the user's own, where a test may create a file.
    fn is_users(&self, path: &Path) -> bool {
        [&self.places.project, &self.places.home, &self.places.tmp]
            .iter()
            .any(|place| is_below(path, place))
    }

    /// Tries every right in a new directory below `path`, and names that the sandbox's
    /// patterns match. False, and no trial, if the directory cannot be made.
    fn add_scratch_trials(&mut self, path: &Path) -> Result<bool, Failure> {
        let dir = path.join(format!("{SCRATCH}{}", std::process::id()));
        if !self.is_users(path) || dir.exists() || !self.make_scratch_directory(&dir)? {
            return Ok(false);
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
        self.add_file_trial(
            format!("read a file in {at}"),
            TrialAct::Read(file.clone()),
            &file,
            FileCaps::READ,
        )?;
        self.add_file_trial(
            format!("write a file in {at}"),
            TrialAct::Open(file.clone()),
            &file,
            FileCaps::WRITE,
        )?;
        self.add_file_trial(
            format!("change a file's mode in {at}"),
            TrialAct::Chmod(file.clone()),
            &file,
            FileCaps::WRITE,
        )?;
        self.add_file_trial(
            format!("create a file in {at}"),
            TrialAct::Create(new.clone()),
            &new,
            FileCaps::CREATE,
        )?;
        self.add_file_trial(
            format!("delete a file in {at}"),
            TrialAct::Delete(gone.clone()),
            &gone,
            FileCaps::DELETE,
        )?;
        self.add_file_trial(
            format!("run a program in {at}"),
            TrialAct::Run(run.clone()),
            &run,
            FileCaps::EXECUTE.union(FileCaps::READ),
        )?;
        for name in self.names_below(&dir) {
            let named = dir.join(&name);
            let act = TrialAct::Create(named.clone());
            self.add_file_trial(format!("create {name} in {at}"), act, &named, FileCaps::CREATE)?;
        }
        Ok(true)
    }

    /// Tries to read a directory and, if it is the user's, to create a file in it.
    fn add_stray_trials(&mut self, dir: &Path) -> Result<(), Failure> {
        let file = dir.join(format!("{SCRATCH}{}", std::process::id()));
        let known = |trial: &SandboxTrial| trial.act == TrialAct::Create(file.clone());
        if file.exists() || self.list.iter().any(known) || !dir.is_dir() {
            return Ok(());
        }
        self.add_read_trial(dir)?;
        if self.is_users(dir) {
            let at = dir.display();
            self.tidier.leave(&file)?;
            self.add_file_trial(
                format!("create a file in {at}"),
                TrialAct::Create(file.clone()),
                &file,
                FileCaps::CREATE,
            )?;
        }
        Ok(())
    }

    /// Tries to read a path, once. A room may have a directory of its own under the same
    /// path, so for a directory it tries to read a file in it.
    fn add_read_trial(&mut self, path: &Path) -> Result<(), Failure> {
        let file = if path.is_dir() { self.file_in(path)? } else { None };
        let (what, path) = match &file {
            Some(file) => (format!("read a file in {}", path.display()), file.as_path()),
            None => (format!("read {}", path.display()), path),
        };
        let act = TrialAct::Read(path.to_path_buf());
        if self.list.iter().any(|trial| trial.act == act) {
            return Ok(());
        }
        self.add_file_trial(what, act, path, FileCaps::READ)
    }

    /// A visible file in a directory, among its first 1000 names. Creates one in a directory
    /// of the user if there is none.
    fn file_in(&mut self, dir: &Path) -> Result<Option<PathBuf>, Failure> {
        let there = fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
        let hidden = |path: &Path| {
            path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."))
        };
        let found =
            there.take(MAX_NAMES_SEARCHED).filter(|path| path.is_file() && !hidden(path)).min();
        if found.is_some() || !self.is_users(dir) {
            return Ok(found);
        }
        let canary = dir.join(format!("{SCRATCH}{}-c", std::process::id()));
        self.tidier.leave(&canary)?;
        Ok(fs::write(&canary, "text").is_ok().then_some(canary))
    }

    /// Adds trials at the home, at credentials, at clash's own files and at those of agents.
    fn add_cage_trials(&mut self, dirs: &Dirs) -> Result<(), Failure> {
        let home = self.places.home.clone();
        self.add_stray_trials(&home)?;
        for path in SECRETS.iter().map(|name| home.join(name)).filter(|path| path.exists()) {
            self.add_read_trial(&path)?;
        }
        for path in ["/etc/shadow", "/proc/sys/kernel/core_pattern"] {
            self.add_blocked_trial(format!("open {path} to write"), TrialAct::Open(path.into()));
        }
        for path in self.cage.clone() {
            if path.is_file() {
                self.add_blocked_trial(
                    format!("open {} to write", path.display()),
                    TrialAct::Open(path),
                );
            } else if path.is_dir() {
                let file = path.join(format!("{SCRATCH}{}", std::process::id()));
                self.tidier.leave(&file)?;
                self.add_blocked_trial(
                    format!("create a file in {}", path.display()),
                    TrialAct::Create(file),
                );
            }
        }
        let record = dirs.host_record();
        if record.is_file() {
            self.add_file_trial(
                format!("read {}", record.display()),
                TrialAct::Read(record.clone()),
                &record,
                FileCaps::READ,
            )?;
        }
        Ok(())
    }

    /// Adds trials at a TCP and a UDP port that listen on this machine, and at sockets.
    fn add_network_trials(&mut self) -> Result<(), Failure> {
        let tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let udp = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        let (tcp_port, udp_port) = (tcp.local_addr()?.port(), udp.local_addr()?.port());
        std::thread::spawn(move || {
            let mut byte = [0; 1];
            while let Ok((_, from)) = udp.recv_from(&mut byte) {
                let _ = udp.send_to(&byte, from);
            }
        });
        self.listening.push(Box::new(tcp));
        for (what, port, act) in [
            ("a TCP port of this machine", tcp_port, TrialAct::Tcp(tcp_port)),
            ("a UDP port of this machine", udp_port, TrialAct::Udp(udp_port)),
        ] {
            let (effect, rule) = self.sandbox.net.judge("127.0.0.1", port);
            let at = rule.map(|rule| rule.span.to_string());
            let what = format!("reach {what}");
            self.list.push(SandboxTrial { what, act, allowed: effect == Effect::Allow, at });
        }
        self.add_socket_trials()
    }

    /// Adds trials at sockets: one whose path no rule grants, an abstract one, and those of
    /// ssh-agent and Docker, which act with the user's rights.
    fn add_socket_trials(&mut self) -> Result<(), Failure> {
        let dir = self.places.home.join(format!("{SCRATCH}{}-s", std::process::id()));
        let path = dir.join("s");
        if !self.expected(&path, FileCaps::WRITE)?.0 && self.make_scratch_directory(&dir)? {
            // `bind` fails if the path is longer than 107 bytes.
            if let Ok(listener) = UnixListener::bind(&path) {
                self.listening.push(Box::new(listener));
                self.add_blocked_trial(
                    "connect to a socket in the home directory",
                    TrialAct::Unix(path),
                );
            }
        }
        #[cfg(target_os = "linux")]
        {
            use std::os::linux::net::SocketAddrExt;
            let name = format!("clash-test-{}", std::process::id());
            let address = std::os::unix::net::SocketAddr::from_abstract_name(&name)?;
            self.listening.push(Box::new(UnixListener::bind_addr(&address)?));
            self.add_blocked_trial("connect to an abstract socket", TrialAct::Abstract(name));
        }
        let agents = [env::path("SSH_AUTH_SOCK"), Some("/var/run/docker.sock".into())];
        for path in agents.into_iter().flatten().filter(|path| path.exists()) {
            let what = format!("connect to {}", path.display());
            self.add_file_trial(what, TrialAct::Unix(path.clone()), &path, FileCaps::WRITE)?;
        }
        Ok(())
    }

    /// Adds trials at this process, from inside: a signal, its environment, and a variable
    /// that looks like a secret.
    fn add_process_trials(&mut self) -> Result<(), Failure> {
        let own = std::process::id();
        self.add_blocked_trial("signal a process outside", TrialAct::Signal(i32::try_from(own)?));
        self.add_blocked_trial(
            "read the environment of a process outside",
            TrialAct::Read(format!("/proc/{own}/environ").into()),
        );
        let (kept, _) = clash_sandbox::environment::scrub(
            [(SECRET_VARIABLE.into(), "secret".into())].into_iter(),
            &self.sandbox.env,
        );
        let what = format!("see the variable {SECRET_VARIABLE}");
        let act = TrialAct::Variable(SECRET_VARIABLE.to_owned());
        self.list.push(SandboxTrial { what, act, allowed: !kept.is_empty(), at: None });
        Ok(())
    }

    /// Creates a directory that the tidier removes. False if it cannot be created.
    fn make_scratch_directory(&mut self, dir: &Path) -> Result<bool, Failure> {
        self.tidier.leave(dir)?;
        Ok(fs::create_dir(dir).is_ok())
    }
}

/// The usual paths of keys and tokens in a home directory.
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
