//! Where things are on this machine: clash's own directories, what the
//! variables of a policy stand for, and which paths no sandbox may change.

use std::io;
use std::path::{Path, PathBuf};

use clash_policy::Sandbox;
use clash_policy::path::{Links, Places};
use clash_sandbox::disk::Disk;
use clash_sandbox::host::Host;

use crate::{agents, env};

/// clash's own places and the user's.
#[derive(Clone, Debug)]
pub(crate) struct Dirs {
    pub(crate) home: PathBuf,
    pub(crate) tmp: PathBuf,
    /// Candidates for the user's policy, the first that exists counts.
    pub(crate) user_policies: [PathBuf; 2],
    pub(crate) state: PathBuf,
    pub(crate) cache: PathBuf,
    /// Claude Code's settings directory.
    pub(crate) claude: PathBuf,
}

#[derive(Debug, thiserror::Error)]
#[error("HOME is not set to an absolute path")]
pub(crate) struct NoHome;

pub(crate) const MANAGED_POLICY: &str = "/etc/clash/policy.star";

/// Where the programs of a managed installation are.
const MACHINE: &str = "/usr/local/lib/clash";

impl Dirs {
    pub(crate) fn from_env() -> Result<Self, NoHome> {
        let home = env::path(env::HOME).ok_or(NoHome)?;
        let below =
            |variable, fallback: &str| env::path(variable).unwrap_or_else(|| home.join(fallback));
        let config = below(env::XDG_CONFIG_HOME, ".config");
        Ok(Self {
            tmp: env::path(env::TMPDIR).unwrap_or_else(|| "/tmp".into()),
            user_policies: [config.join("clash/policy.star"), home.join(".clash/policy.star")],
            state: below(env::XDG_STATE_HOME, ".local/state").join("clash"),
            cache: below(env::XDG_CACHE_HOME, ".cache").join("clash"),
            claude: below(env::CLAUDE_CONFIG_DIR, ".claude"),
            home,
        })
    }

    /// The project's policy. In the home directory it would be the user's own.
    pub(crate) fn project_policy(&self, project: &Path) -> Option<PathBuf> {
        let path = project.join(".clash/policy.star");
        (!self.user_policies.contains(&path)).then_some(path)
    }

    /// Where the programs that agents call are: in the cage, out of reach of
    /// every sandbox.
    pub(crate) fn installed(&self, name: &str) -> PathBuf {
        self.state.join("bin").join(name)
    }

    /// The records of the projects whose policies the user trusts.
    pub(crate) fn trust(&self) -> PathBuf {
        self.state.join("trust")
    }

    /// The caches of all projects, by the names of the projects.
    pub(crate) fn project_caches(&self) -> PathBuf {
        self.cache.join(clash_sandbox::cache::PROJECTS)
    }

    /// The directory of a project's own caches, below real directories.
    pub(crate) fn caches_of(&self, project: &Path, disk: &Disk) -> PathBuf {
        let projects = disk.real(&self.project_caches());
        clash_sandbox::cache::directory_of(&projects, &disk.real(project))
    }

    /// Where it is written down what this machine can enforce.
    pub(crate) fn host_record(&self) -> PathBuf {
        self.state.join("host")
    }

    /// What this machine can enforce, found out once per boot.
    pub(crate) fn host(&self) -> Host {
        Host::remembered(&self.host_record())
    }

    /// As for a whole machine: the programs are where every user can run them and
    /// only root can change them.
    pub(crate) fn of_machine(self) -> Self {
        Self { state: MACHINE.into(), ..self }
    }

    /// Whether this is the program in front of the agent's shell, the user's own or
    /// the machine's.
    pub(crate) fn is_shell_launcher(&self, path: &Path) -> bool {
        path == self.shell_launcher() || path == Path::new(MACHINE).join("bin/clash-shell")
    }

    /// The program in front of the agent's shell.
    pub(crate) fn shell_launcher(&self) -> PathBuf {
        self.installed("clash-shell")
    }

    /// Clash as the shell that agents are set to.
    pub(crate) fn agents_shell(&self) -> PathBuf {
        self.installed("clash-sh")
    }

    /// What the variables of a sandbox mean for this project. Those it does not
    /// use are not looked for.
    pub(crate) fn places_of(&self, sandbox: &Sandbox, project: &Path, disk: &Disk) -> Places {
        let uses = |name: &str| {
            sandbox.fs.iter().any(|rule| {
                rule.pattern.fixed().strip_prefix('$').is_some_and(|text| text.starts_with(name))
            })
        };
        self.some_places(uses, project, disk)
    }

    /// What the variables of a policy mean for this project.
    pub(crate) fn places(&self, project: &Path, disk: &Disk) -> Places {
        self.some_places(|_| true, project, disk)
    }

    /// The same for decisions that look at no file: nobody asks where a variable
    /// really leads, and finding out would take longer than the rest of a hook.
    pub(crate) fn places_unseen(&self, project: &Path, disk: &Disk) -> Places {
        let [project, home, tmp] = [project, &self.home, &self.tmp].map(|path| disk.real(path));
        Places::of(project, home, tmp, env::path)
    }

    fn some_places(&self, wanted: impl Fn(&str) -> bool, project: &Path, disk: &Disk) -> Places {
        let mut places = self.places_unseen(project, disk);
        places.vars.retain(|(name, _)| wanted(name));
        for (_, path) in &mut places.vars {
            *path = disk.real(path);
        }
        places
    }

    /// What every sandbox is kept from changing: clash's own files and whatever
    /// steers the agent or switches its hooks off.
    pub(crate) fn cage(&self, project: &Path, disk: &Disk) -> Vec<PathBuf> {
        let mut paths =
            vec![self.state.clone(), self.cache.clone(), "/etc/clash".into(), MACHINE.into()];
        paths.extend(self.user_policies.iter().filter_map(|p| p.parent()).map(Path::to_path_buf));
        paths.push(project.join(".clash"));
        paths.extend(agents::steering_paths(self, project));
        // Nearly all of it is there, and hardly any of it exists.
        disk.list(&self.home);
        disk.list(project);
        paths.iter().map(|path| disk.real(path)).collect()
    }
}

/// The project a command line belongs to: the nearest directory below the home
/// that holds a `.git` or `.clash`, else the directory itself. The home's own
/// `.clash` holds the user's policy and makes no project.
pub(crate) fn project_of(dir: &Path, home: &Path) -> PathBuf {
    let marked = |dir: &&Path| dir.join(".git").exists() || dir.join(".clash").exists();
    let inside = dir.ancestors().take_while(|dir| !home.starts_with(dir));
    inside.into_iter().find(marked).unwrap_or(dir).to_path_buf()
}

/// The directories whose settings clients read for a project: its own, those above it
/// up to the root of the repository, and the main worktree's.
pub(crate) fn roots_of(project: &Path) -> Vec<PathBuf> {
    let mut roots = vec![project.to_path_buf()];
    if let Some(root) = project.ancestors().find(|dir| dir.join(".git").exists()) {
        let between = project.ancestors().skip(1).take_while(|dir| dir.starts_with(root));
        roots.extend(between.map(Path::to_path_buf));
        // `gitdir: <main>/.git/worktrees/<name>`
        let link = std::fs::read_to_string(root.join(".git")).unwrap_or_default();
        let own = link.strip_prefix("gitdir:").map(|path| root.join(path.trim()));
        roots.extend(own.and_then(|own| own.ancestors().nth(3).map(Path::to_path_buf)));
    }
    roots
}

/// The `.claude` directories among them.
pub(crate) fn claude_dirs(project: &Path) -> Vec<PathBuf> {
    roots_of(project).into_iter().map(|root| root.join(".claude")).collect()
}

/// Writes a file only its owner can read, whole or not at all, and its directory.
pub(crate) fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    create_private(path.parent().ok_or(io::ErrorKind::InvalidInput)?)?;
    let temp = path.with_extension(format!("{}.tmp", std::process::id()));
    let mut options = std::fs::OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&temp)?;
    file.write_all(bytes)?;
    drop(file);
    std::fs::rename(&temp, path)
}

/// Creates a directory only its owner can enter.
pub(crate) fn create_private(dir: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)
}
