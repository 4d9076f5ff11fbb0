//! The doors of a sandbox: directories with the program `clash-door` under the names of
//! other programs.
//!
//! A launch only looks the directories up. clash makes them anew if the policy, the
//! search path, the content of a directory on it, or `clash-door` itself has changed. They
//! are in the state directory, where no sandbox can change them.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use clash_policy::decide::DecideError;
use clash_policy::doors::{RuledProgram, needs_door, ruled_programs};
use clash_policy::fnv::fnv_hash;
use clash_policy::judge::judge;
use clash_policy::steering::{self, SandboxWidening};
use clash_policy::{Effect, FileCaps, FileUse, JudgeContext, Sandbox};
use clash_sandbox::disk::Disk;
use clash_sandbox::door::DoorDirectory;

use crate::dirs::{Dirs, create_private};
use crate::env;
use crate::policy::LoadedPolicy;

/// Directories whose programs get doors even if the search path does not name them.
const SYSTEM_DIRECTORIES: [&str; 5] = ["/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin"];

/// The directories of git's own programs, from a directory with `git`.
const GIT_CORE: [&str; 2] = ["../libexec/git-core", "../lib/git-core"];

/// The file with the list of directories and names. It is written last.
const LIST: &str = "list";

#[derive(Debug, thiserror::Error)]
pub(crate) enum DoorError {
    #[error(transparent)]
    Policy(#[from] DecideError),
    #[error("the program {} is missing, through which commands run in sandboxes of their own", path.display())]
    Missing { path: PathBuf },
    #[error("cannot make the doors of a sandbox in {}: {source}", path.display())]
    Make { path: PathBuf, source: io::Error },
}

/// The doors of one sandbox.
#[derive(Debug, Default)]
pub(crate) struct DoorSet {
    pub(crate) directories: Vec<DoorDirectory>,
}

impl DoorSet {
    /// The doors of a sandbox on this machine.
    pub(crate) fn prepare(
        dirs: &Dirs,
        policy: &LoadedPolicy,
        sandbox: &Sandbox,
        is_default: bool,
        world: &JudgeContext<'_>,
    ) -> Result<Self, DoorError> {
        let program = door_program();
        let places = search_directories();
        let key = cache_key(policy, sandbox, is_default, &program, &places);
        let all = dirs.doors();
        let own = all.join(key);
        if let Some(known) = Self::read(&own) {
            return Ok(known);
        }
        let mut ruled = ruled_programs(policy.ir())?;
        ruled.retain(|name, rules| needs_door(sandbox, is_default, name, rules));
        let sandboxes = policy.sandboxes().map_err(DecideError::from)?;
        let sandboxes = sandboxes.iter().map(|sandbox| sandbox.to_sandbox());
        let sandboxes = sandboxes.collect::<Result<Vec<_>, _>>().map_err(DecideError::from)?;
        let executable = |path: &Path, rules: &RuledProgram| {
            let named = sandboxes.iter().filter(|other| rules.sandboxes.contains(&other.name));
            std::iter::once(sandbox).chain(named).any(|sandbox| can_execute(sandbox, path, world))
        };
        let made = Self::make(&all, &own, &program, &places, &|place: &Path| {
            let here = ruled.iter().filter(|(name, rules)| executable(&place.join(name), rules));
            here.map(|(name, _)| name.clone()).collect()
        });
        made.map_err(|source| match source.kind() {
            io::ErrorKind::NotFound if !program.exists() => DoorError::Missing { path: program },
            _ => DoorError::Make { path: all, source },
        })
    }

    /// The name of the program at a path that has a door.
    pub(crate) fn name_at(&self, path: &Path) -> Option<&str> {
        let (parent, name) = (path.parent()?, path.file_name()?.to_str()?);
        let directory = self.directories.iter().find(|directory| directory.at == parent)?;
        directory.names.iter().find(|known| *known == name).map(String::as_str)
    }

    fn read(own: &Path) -> Option<Self> {
        let list = fs::read_to_string(own.join(LIST)).ok()?;
        let directories = list.lines().enumerate().map(|(number, line)| {
            let mut words = line.split('\t').map(str::to_owned);
            let at = PathBuf::from(words.next().unwrap_or_default());
            DoorDirectory { at, doors: own.join(number.to_string()), names: words.collect() }
        });
        Some(Self { directories: directories.collect() })
    }

    fn make(
        all: &Path,
        own: &Path,
        program: &Path,
        places: &[PlaceOfPrograms],
        names_in: &dyn Fn(&Path) -> Vec<String>,
    ) -> io::Result<Self> {
        create_private(all)?;
        let draft = all.join(format!(".{}", std::process::id()));
        let _ = fs::remove_dir_all(&draft);
        create_private(&draft)?;
        let mut list = String::new();
        let mut count = 0_u32;
        for place in places {
            let found = place.programs(&names_in(&place.path));
            let Some(first) = found.first() else { continue };
            let doors = draft.join(count.to_string());
            fs::create_dir(&doors)?;
            fs::set_permissions(&doors, fs::Permissions::from_mode(0o755))?;
            let _ = write!(list, "{}", place.path.display());
            for name in &found {
                link(program, &doors.join(name), &doors.join(first))?;
                let _ = write!(list, "\t{name}");
            }
            list.push('\n');
            count += 1;
        }
        fs::write(draft.join(LIST), list)?;
        // Another launcher may have made the same directory meanwhile.
        if fs::rename(&draft, own).is_err() {
            fs::remove_dir_all(&draft)?;
        }
        Self::read(own).ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

/// True if a sandbox may execute a program. A door to a program that no sandbox of its rules
/// may execute would hide another program of its name behind it on the search path.
fn can_execute(sandbox: &Sandbox, path: &Path, world: &JudgeContext<'_>) -> bool {
    let file = FileUse { path: path.to_path_buf(), needs: FileCaps::EXECUTE, caseless: false };
    judge(sandbox, &file, world).is_ok_and(|verdict| verdict.effect == Effect::Allow)
}

/// Gives `clash-door` another name: by a hard link, or by one copy for each directory. Inside
/// an agent's room, no hard link leads to another directory.
fn link(program: &Path, to: &Path, first: &Path) -> io::Result<()> {
    if fs::hard_link(program, to).is_ok() {
        return Ok(());
    }
    if to == first { fs::copy(program, to).map(drop) } else { fs::hard_link(first, to) }
}

/// A directory with programs, and its state.
struct PlaceOfPrograms {
    path: PathBuf,
    stamp: (u64, u64, i64, i64),
}

impl PlaceOfPrograms {
    /// The programs of these names. In the directory of git's own programs, also all other
    /// names of git, for example `git-push`.
    fn programs(&self, names: &[String]) -> Vec<String> {
        let is_program = |name: &&String| {
            let found = fs::metadata(self.path.join(name));
            found.is_ok_and(|meta| meta.is_file() && meta.mode() & 0o111 != 0)
        };
        let mut found: Vec<String> = names.iter().filter(is_program).cloned().collect();
        if is_git_core(&self.path) && found.iter().any(|name| name == "git") {
            let entries = fs::read_dir(&self.path).into_iter().flatten().flatten();
            let others = entries.filter_map(|entry| entry.file_name().into_string().ok());
            found.extend(others.filter(|name| is_git_builtin(&self.path, name)));
        }
        found
    }
}

fn is_git_core(dir: &Path) -> bool {
    dir.file_name().is_some_and(|name| name == "git-core")
}

/// True if `git-push` and its like are git itself under another name.
fn is_git_builtin(dir: &Path, name: &str) -> bool {
    let identity = |name: &str| fs::metadata(dir.join(name)).map(|meta| (meta.dev(), meta.ino()));
    name.starts_with("git-")
        && matches!((identity("git"), identity(name)), (Ok(a), Ok(b)) if a == b)
}

/// The directories of the search path and of the system, by their real paths.
fn search_directories() -> Vec<PlaceOfPrograms> {
    let mut places: Vec<PlaceOfPrograms> = Vec::new();
    let listed = env::path_list().into_iter().chain(SYSTEM_DIRECTORIES.map(PathBuf::from));
    let with_git = listed.flat_map(|path| {
        let of_git = GIT_CORE.map(|below| path.join(below));
        std::iter::once(path).chain(of_git)
    });
    for path in with_git {
        let Ok(path) = fs::canonicalize(&path) else { continue };
        let is_text = path.to_str().is_some_and(|text| !text.contains(['\t', '\n']));
        if !is_text || places.iter().any(|known| known.path == path) {
            continue;
        }
        if let Ok(meta) = fs::metadata(&path)
            && meta.is_dir()
        {
            let stamp = (meta.dev(), meta.ino(), meta.mtime(), meta.mtime_nsec());
            places.push(PlaceOfPrograms { path, stamp });
        }
    }
    places
}

fn cache_key(
    policy: &LoadedPolicy,
    sandbox: &Sandbox,
    is_default: bool,
    program: &Path,
    places: &[PlaceOfPrograms],
) -> String {
    let stamp = fs::metadata(program).map(|meta| (meta.ino(), meta.size(), meta.mtime_nsec()));
    let mut text = format!("{:?} {} {is_default}", policy.ir().digest(), sandbox.name);
    let _ = write!(text, " {:?} {:?}", sandbox.doors, stamp.ok());
    for place in places {
        let _ = write!(text, " {:?} {:?}", place.path, place.stamp);
    }
    format!("{:016x}", fnv_hash(text.as_bytes()))
}

/// The program `clash-door`, beside this one.
pub(crate) fn door_program() -> PathBuf {
    let beside = |own: PathBuf| own.with_file_name("clash-door");
    std::env::current_exe().map(beside).unwrap_or_default()
}

/// A door that a sandbox names, and a sandbox behind it.
#[derive(Debug)]
pub(crate) struct NamedDoor {
    pub(crate) program: String,
    pub(crate) room: Sandbox,
    pub(crate) behind: String,
    /// The rights that the sandbox behind the door adds.
    pub(crate) widening: Option<SandboxWidening>,
}

/// The doors that the sandboxes of a policy name.
pub(crate) fn named_doors(
    dirs: &Dirs,
    policy: &LoadedPolicy,
) -> Result<Vec<NamedDoor>, DecideError> {
    let ruled = ruled_programs(policy.ir())?;
    let sandboxes = policy.sandboxes()?;
    let sandboxes = sandboxes.iter().map(|sandbox| sandbox.to_sandbox());
    let sandboxes = sandboxes.collect::<Result<Vec<Sandbox>, _>>()?;
    let disk = Disk::default();
    // The rights of a sandbox to credentials do not depend on the project.
    let places = dirs.places_unseen(Path::new("/"), &disk);
    let world = JudgeContext {
        places: &places,
        cwd: Path::new("/"),
        links: &disk,
        baseline: &[],
        cage: &[],
        lent: None,
    };
    let mut doors = Vec::new();
    for room in &sandboxes {
        for program in &room.doors {
            let rules = ruled.get(program).into_iter().flat_map(|rules| &rules.sandboxes);
            for behind in sandboxes.iter().filter(|it| rules.clone().any(|name| *name == it.name)) {
                doors.push(NamedDoor {
                    program: program.clone(),
                    room: room.clone(),
                    behind: behind.name.clone(),
                    widening: steering::widening(behind, room, &world),
                });
            }
        }
    }
    Ok(doors)
}

/// The words that the policy judges: `git-push x` is `git push x`.
pub(crate) fn judged_name<'a>(at: &Path, name: &'a str) -> Vec<&'a str> {
    match name.strip_prefix("git-").filter(|_| at.parent().is_some_and(is_git_core)) {
        Some(subcommand) => vec!["git", subcommand],
        None => vec![name],
    }
}
