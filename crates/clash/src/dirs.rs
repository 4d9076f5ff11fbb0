//! Where things are on this machine: clash's own directories, what the
//! variables of a policy stand for, and which paths no sandbox may change.

use std::io;
use std::path::{Path, PathBuf};

use clash_agents::UserContext;
use clash_policy::path::{LinkResolver, PolicyPlaces};
use clash_sandbox::disk::Disk;
use clash_sandbox::facts::HostFacts;
use clash_sandbox::host;

use crate::{env, temporary};

/// clash's own places and the user's.
#[derive(Clone, Debug)]
pub(crate) struct Dirs {
    pub(crate) home: PathBuf,
    /// The host's temporary directory.
    pub(crate) tmp: PathBuf,
    /// The session's, in a session.
    pub(crate) session_tmp: Option<PathBuf>,
    /// Candidates for the user's policy, the first that exists counts.
    pub(crate) user_policies: [PathBuf; 2],
    pub(crate) state: PathBuf,
    pub(crate) cache: PathBuf,
}

#[derive(Debug, thiserror::Error)]
#[error("HOME is not set to an absolute path")]
pub(crate) struct NoHomeError;

pub(crate) const MANAGED_POLICY: &str = "/etc/clash/policy.star";

/// Where the programs of a managed installation are.
const MACHINE: &str = "/usr/local/lib/clash";

impl Dirs {
    pub(crate) fn from_env() -> Result<Self, NoHomeError> {
        let home = env::path(env::HOME).ok_or(NoHomeError)?;
        let below =
            |variable, fallback: &str| env::path(variable).unwrap_or_else(|| home.join(fallback));
        let config = below(env::XDG_CONFIG_HOME, ".config");
        Ok(Self {
            tmp: env::path(env::TMPDIR).unwrap_or_else(|| "/tmp".into()),
            session_tmp: None,
            user_policies: [config.join("clash/policy.star"), home.join(".clash/policy.star")],
            state: below(env::XDG_STATE_HOME, ".local/state").join("clash"),
            cache: below(env::XDG_CACHE_HOME, ".cache").join("clash"),
            home,
        })
    }

    /// The same in a session, which has a temporary directory of its own.
    pub(crate) fn in_session(self, session: &Path) -> Self {
        Self { session_tmp: Some(temporary::of_session(session)), ..self }
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
        self.cache.join(clash_sandbox::plan::cache::PROJECTS)
    }

    /// The directory of a project's own caches, below real directories.
    pub(crate) fn caches_of(&self, project: &Path, disk: &Disk) -> PathBuf {
        let projects = disk.real(&self.project_caches());
        clash_sandbox::plan::cache::directory_of(&projects, &disk.real(project))
    }

    /// Where it is written down what this machine can enforce.
    pub(crate) fn host_record(&self) -> PathBuf {
        self.state.join("host")
    }

    /// What this machine can enforce, found out once per boot.
    pub(crate) fn host(&self) -> HostFacts {
        host::load_facts(&self.host_record())
    }

    /// As for a whole machine: the programs are where every user can run them and
    /// only root can change them.
    pub(crate) fn of_machine(self) -> Self {
        Self { state: MACHINE.into(), ..self }
    }

    /// The same for the descriptions of agents.
    pub(crate) fn for_agents(&self) -> UserContext {
        UserContext {
            home: self.home.clone(),
            tmp: self.tmp.clone(),
            state: self.state.clone(),
            machine_state: MACHINE.into(),
            user_id: rustix::process::getuid().as_raw(),
            variable: env::raw,
        }
    }

    /// What the variables of a policy mean for this project, where they really lead:
    /// for advice to the user. What is enforced starts from [`Self::places_unseen`].
    pub(crate) fn places(&self, project: &Path, disk: &Disk) -> PolicyPlaces {
        let mut places = self.places_unseen(&disk.real(project), disk);
        for path in places.vars.iter_mut().map(|(_, path)| path).chain([&mut places.tmp]) {
            *path = disk.real(path);
        }
        places
    }

    /// What the variables of a policy mean for this project, with links on the way
    /// left as they are: a command may have planted one, and only the path as it is
    /// written shows that. The home is real, and the project has to be: it comes from
    /// the session's record or from the kernel.
    pub(crate) fn places_unseen(&self, project: &Path, disk: &Disk) -> PolicyPlaces {
        // No command can replace a part of the way to the session's own.
        let session = self.session_tmp.as_ref().map(|tmp| disk.real(tmp));
        let tmp = session.unwrap_or_else(|| self.tmp.clone());
        PolicyPlaces::new(project.to_path_buf(), disk.real(&self.home), tmp, env::path)
    }

    /// What every sandbox is kept from changing: clash's own files and whatever
    /// steers the agent or switches its hooks off. Real paths, and every link on the way
    /// there: a command that may replace such a link would bring its own policy. A
    /// policy may be a link into a directory of dotfiles, which may be the project.
    pub(crate) fn cage(&self, project: &Path, disk: &Disk) -> Vec<PathBuf> {
        let mut paths = vec![self.state.clone(), self.cache.clone(), MACHINE.into()];
        let policies = self.user_policies.iter().filter_map(|path| path.parent());
        for dir in policies.chain([Path::new("/etc/clash")]) {
            paths.extend(disk.links_in(dir));
            paths.push(dir.to_path_buf());
        }
        paths.push(project.join(".clash"));
        paths.extend(clash_agents::steering_paths(&self.for_agents(), project));
        // Nearly all of it is there, and hardly any of it exists.
        disk.list(&self.home);
        disk.list(project);
        let mut cage = Vec::with_capacity(paths.len());
        for path in paths {
            let real = disk.real(&path);
            if real.as_os_str() != path.as_os_str() {
                cage.extend(disk.links_on(&path).0);
            }
            cage.push(real);
        }
        cage
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

#[cfg(test)]
mod tests {
    use super::*;
    use clash_policy::{FileCaps, ProtectSettings, protect};

    /// Otherwise a link to the project's root would be a way around the cage, and the
    /// monitor would refuse every such link.
    #[test]
    fn the_cage_in_a_project_is_on_the_list_of_names() {
        let dirs = Dirs::from_env().unwrap();
        let project = Path::new("/nowhere/app");
        let cage = dirs.cage(project, &Disk::default());
        let inside = cage.iter().filter_map(|path| path.strip_prefix(project).ok());
        let named = |below: &&Path| {
            protect::kept(&ProtectSettings::default(), below, 0, FileCaps::WRITE).is_none()
        };
        assert_eq!(inside.filter(named).collect::<Vec<_>>(), [] as [&Path; 0]);
    }
}
