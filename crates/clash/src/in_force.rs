//! The sandboxes in force for a project, and the links that their commands may have
//! planted: a command in one sandbox may write where another sandbox reads.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clash_policy::ir::IrError;
use clash_policy::path::{LinkResolver, ProtectedLink, is_below};
use clash_policy::rule::{Layer, LayerSettings, MatchBranch, MatchNode};
use clash_policy::{Effect, PolicyPlaces, ProtectSettings, Sandbox};
use clash_sandbox::disk::Disk;
use clash_sandbox::planted::{SandboxesInForce, WritableTrees, trees_of};

use crate::dirs::Dirs;
use crate::policy::LoadedPolicy;
use crate::session;
use crate::temporary::TmpNames;

/// The sandboxes of the policy in force. The policy is read only if a link is on the path
/// of a rule.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PolicySandboxes<'a> {
    pub(crate) dirs: &'a Dirs,
    pub(crate) project: &'a Path,
    pub(crate) session: Option<&'a Path>,
}

impl SandboxesInForce for PolicySandboxes<'_> {
    /// As the trait asks. `None`, so every link is suspect, if the policy cannot be loaded.
    fn trees(&self) -> Option<Vec<PathBuf>> {
        let policy = LoadedPolicy::load(self.dirs, self.project, self.session).ok()?;
        let places = self.dirs.places_unseen(self.project, &Disk::default());
        let mut trees = changeable_trees(&policy, &places).ok()?;
        // Other projects count too: two rules may lead from one project into another. A
        // directory that contains the home is no project that commands could write.
        let others = session::projects(self.dirs);
        trees.extend(others.into_iter().filter(|tree| !is_below(&places.home, tree)));
        Some(trees)
    }
}

/// The trees that commands may change. Every layer counts, also one whose allows do not
/// count now: the user may have trusted it yesterday. Loading a file of the library
/// defines all its sandboxes. A sandbox of the library that no rule names and that may
/// write the whole home (`workspace`) does not count: otherwise every link in the home
/// would be suspect.
fn changeable_trees(policy: &LoadedPolicy, places: &PolicyPlaces) -> Result<Vec<PathBuf>, IrError> {
    let mut trees = Vec::new();
    for layer in policy.ir().to_layers()? {
        let named = named_sandboxes(&layer);
        for sandbox in layer.sandboxes.iter().filter(|sandbox| !reaches_more(sandbox)) {
            let counts =
                named.contains(sandbox.name.as_str()) || !sandbox.span.file.starts_with("@clash//");
            let own = trees_of(sandbox, places);
            trees.extend(own.into_iter().filter(|tree| counts || !is_below(&places.home, tree)));
        }
    }
    Ok(trees)
}

/// True if commands in the sandbox reach every file anyway, so that a link opens nothing.
fn reaches_more(sandbox: &Sandbox) -> bool {
    sandbox.unrestricted || sandbox.default == Effect::Allow
}

/// The sandboxes that the rules and settings of a layer name.
fn named_sandboxes(layer: &Layer) -> BTreeSet<&str> {
    let LayerSettings { default, default_sandbox, .. } = &layer.settings;
    let default = default.as_ref().and_then(|rule| rule.sandbox.as_deref());
    let mut names: BTreeSet<&str> = default.into_iter().chain(default_sandbox.as_deref()).collect();
    let mut left: Vec<&MatchBranch> =
        layer.groups.iter().flat_map(|group| &group.branches).collect();
    while let Some(branch) = left.pop() {
        match &branch.then {
            MatchNode::Rule(rule) => names.extend(rule.sandbox.as_deref()),
            MatchNode::Tree(branches) => left.extend(branches),
        }
    }
    names
}

/// The disk, and a note of the paths of a policy that lead elsewhere by a link.
#[derive(Debug)]
pub(crate) struct NotedLinks<'a> {
    disk: &'a Disk,
    /// The session's temporary directory, for a command in a room.
    names: Option<TmpNames<'a>>,
    met: RefCell<BTreeSet<PathBuf>>,
    /// Paths treated as missing, because a command may have planted a link on them.
    closed: BTreeSet<PathBuf>,
}

/// A link on the way of a path in a policy that a command may have planted.
#[derive(Debug, thiserror::Error)]
#[error(
    "the policy's path `{}` leads elsewhere by the link `{}`; commands may write in `{}`, and an \
     earlier one may have planted the link: look at it, and remove it unless it is yours",
    path.display(), link.display(), tree.display()
)]
pub(crate) struct PlantedPathError {
    path: PathBuf,
    link: PathBuf,
    tree: PathBuf,
}

impl<'a> NotedLinks<'a> {
    pub(crate) fn new(disk: &'a Disk, names: Option<TmpNames<'a>>) -> Self {
        Self { disk, names, met: RefCell::default(), closed: BTreeSet::new() }
    }

    /// The same disk with every suspect path treated as missing, and the first of these
    /// paths. `None` if no path is suspect.
    pub(crate) fn without_planted(
        &self,
        places: &PolicyPlaces,
        in_force: &dyn SandboxesInForce,
    ) -> Option<(Self, PlantedPathError)> {
        let met = self.met.borrow();
        met.first()?;
        let trees = WritableTrees::collect(places, self.disk, in_force, None);
        let suspect = |path: &PathBuf| {
            let (link, tree) = trees.link_on(path, &self.disk.real(path), self.disk)?;
            Some(PlantedPathError { path: path.clone(), link, tree })
        };
        let mut suspects: Vec<PlantedPathError> = met.iter().filter_map(suspect).collect();
        let closed = suspects.iter().map(|suspect| suspect.path.clone()).collect();
        let first = if suspects.is_empty() { None } else { Some(suspects.swap_remove(0)) };
        let Self { disk, names, .. } = *self;
        first.map(|first| (Self { disk, names, met: RefCell::default(), closed }, first))
    }
}

impl LinkResolver for NotedLinks<'_> {
    /// The real path; for a script, a path below /tmp means the session's directory.
    fn real(&self, path: &Path) -> PathBuf {
        let moved = self.names.and_then(|names| names.meaning(path));
        self.disk.real(moved.as_deref().unwrap_or(path))
    }

    /// The real path, noted if it differs. A closed path leads to a path that does not exist.
    fn follow<'p>(&self, path: Cow<'p, Path>) -> Cow<'p, Path> {
        if self.closed.contains(path.as_ref()) {
            return Cow::Borrowed(Path::new("/\u{1}nowhere"));
        }
        let real = self.real(&path);
        if real.as_os_str() == path.as_os_str() {
            return path;
        }
        self.met.borrow_mut().insert(path.into_owned());
        Cow::Owned(real)
    }

    fn aliases(&self, path: &Path, root: &Path, protect: &ProtectSettings) -> Vec<ProtectedLink> {
        self.disk.aliases(path, root, protect)
    }

    fn remote_addresses(&self, project: &Path, words: &[&str]) -> Vec<String> {
        self.disk.remote_addresses(project, words)
    }

    fn git_is_steered(&self, dir: &Path, project: &Path, subcommand: &str) -> Option<String> {
        self.disk.git_is_steered(dir, project, subcommand)
    }
}
