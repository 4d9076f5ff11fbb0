//! The paths of this machine: clash's own directories, the values of a policy's
//! variables, and the paths that no sandbox may change.

use std::io;
use std::path::{Path, PathBuf};

use clash_agents::UserContext;
use clash_policy::path::{LinkResolver, PolicyPlaces};
use clash_sandbox::disk::Disk;
use clash_sandbox::facts::HostFacts;
use clash_sandbox::host;
use clash_sandbox::plan::CagePaths;

use crate::session::sessions_dir;
use crate::{env, temporary};

/// The directories of clash and of the user.
#[derive(Clone, Debug)]
pub(crate) struct Dirs {
    pub(crate) home: PathBuf,
    /// The host's temporary directory.
    pub(crate) tmp: PathBuf,
    /// The temporary directory of the session, in a session.
    pub(crate) session_tmp: Option<PathBuf>,
    /// The possible paths of the user's policy; the first that exists is in force.
    pub(crate) user_policies: [PathBuf; 2],
    pub(crate) state: PathBuf,
    pub(crate) cache: PathBuf,
}

#[derive(Debug, thiserror::Error)]
#[error("HOME is not set to an absolute path")]
pub(crate) struct NoHomeError;

/// The administrator's policy for all users.
pub(crate) const MANAGED_POLICY: &str = "/etc/clash/policy.star";

/// The directory of an installation for all users.
const MACHINE: &str = "/usr/local/lib/clash";

impl Dirs {
    /// Reads `HOME`, `TMPDIR` and the XDG variables. A variable without an absolute path
    /// counts as not set. Creates nothing.
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

    /// The same directories in a session, which has a temporary directory of its own.
    pub(crate) fn in_session(self, session: &Path) -> Self {
        Self { session_tmp: Some(temporary::session_tmp(session)), ..self }
    }

    /// The project's policy. `None` in the home directory, where it is the user's own.
    pub(crate) fn project_policy(&self, project: &Path) -> Option<PathBuf> {
        let path = project.join(".clash/policy.star");
        (!self.user_policies.contains(&path)).then_some(path)
    }

    /// A program that agents call. It is in the cage: no sandbox can change it.
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

    /// The prepared doors of sandboxes.
    pub(crate) fn doors(&self) -> PathBuf {
        self.state.join("doors")
    }

    /// The record of this machine's abilities.
    pub(crate) fn host_record(&self) -> PathBuf {
        self.state.join("host")
    }

    /// The abilities of this machine, from the record or by a probe, which then writes the
    /// record.
    pub(crate) fn host(&self) -> HostFacts {
        host::load_facts(&self.host_record())
    }

    /// The directories of an installation for all users: every user can run its programs,
    /// and only root can change them.
    pub(crate) fn of_machine(self) -> Self {
        Self { state: MACHINE.into(), ..self }
    }

    /// The paths and variables that the descriptions of agents need.
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

    /// The values of a policy's variables for this project, without links: for advice to
    /// the user. The planner uses [`Self::places_unseen`].
    pub(crate) fn places(&self, project: &Path, disk: &Disk) -> PolicyPlaces {
        let mut places = self.places_unseen(&disk.real(project), disk);
        for path in places.vars.iter_mut().map(|(_, path)| path).chain([&mut places.tmp]) {
            *path = disk.real(path);
        }
        places
    }

    /// The values of a policy's variables for this project, with links left as they are. A
    /// command may have planted a link, and only the path with the link shows that. The
    /// home has no links. The project must have none: its path comes from the session's
    /// record or from the kernel.
    pub(crate) fn places_unseen(&self, project: &Path, disk: &Disk) -> PolicyPlaces {
        // No command can replace a directory on the path of the session's own.
        let session = self.session_tmp.as_ref().map(|tmp| disk.real(tmp));
        let tmp = session.unwrap_or_else(|| self.tmp.clone());
        PolicyPlaces::new(project.to_path_buf(), disk.real(&self.home), tmp, env::path)
    }

    /// The cage for the planner, with the record of removed links, which lies in a directory
    /// where launchers in the room of a whole agent may write.
    pub(crate) fn cage_paths(&self, paths: Vec<PathBuf>) -> CagePaths {
        CagePaths { paths, former_links: Some(sessions_dir(self).join(".former-links")) }
    }

    /// The paths that no sandbox may change: clash's own files, and files that steer the
    /// agent or switch its hooks off. The list has their real paths and every link that
    /// leads there: a command that replaces such a link would bring its own policy. For
    /// example, a policy may be a link into a directory of dotfiles, which is the project.
    pub(crate) fn cage(&self, project: &Path, disk: &Disk) -> Vec<PathBuf> {
        let mut paths = vec![self.state.clone(), self.cache.clone(), MACHINE.into()];
        let policies = self.user_policies.iter().filter_map(|path| path.parent());
        for dir in policies.chain([Path::new("/etc/clash")]) {
            paths.extend(disk.links_in(dir));
            paths.push(dir.to_path_buf());
        }
        paths.push(project.join(".clash"));
        paths.extend(clash_agents::steering_paths(&self.for_agents(), project));
        // Nearly all paths are below these two, and most do not exist: one listing of each
        // is faster than a call for every path.
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

/// The project of a directory: the nearest directory around it, below the home or beside it,
/// that has a `.git` or `.clash`; otherwise the directory itself. The home and directories
/// above it are no projects.
pub(crate) fn project_of(dir: &Path, home: &Path) -> PathBuf {
    let marked = |dir: &&Path| dir.join(".git").exists() || dir.join(".clash").exists();
    let inside = dir.ancestors().take_while(|dir| !home.starts_with(dir));
    inside.into_iter().find(marked).unwrap_or(dir).to_path_buf()
}

/// Writes a file that only its owner can read, whole or not at all: it replaces an existing
/// one in one step. Creates its directory.
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

/// Creates a directory and its parents for their owner alone. Existing directories keep their
/// modes.
pub(crate) fn create_private(dir: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clash_policy::{FileCaps, ProtectSettings, protect};

    /// Otherwise the monitor would refuse every link to the project's root: the link would
    /// be a way around the cage.
    #[test]
    fn cage_paths_in_a_project_are_protected_names() {
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
