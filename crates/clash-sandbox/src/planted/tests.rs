//! Tests which links on the way of a rule are suspect.

use super::*;
use clash_policy::{PolicySpan, ProtectSettings, WriteTarget};
use std::fs;
use std::os::unix::fs::symlink;

/// Other sandboxes that may create names in these trees.
#[derive(Debug)]
struct OtherSandboxes(Vec<PathBuf>);

impl SandboxesInForce for OtherSandboxes {
    fn trees(&self) -> Option<Vec<PathBuf>> {
        Some(self.0.clone())
    }
}

/// The planner must not ask for them.
#[derive(Debug)]
struct NeverAsked;

impl SandboxesInForce for NeverAsked {
    fn trees(&self) -> Option<Vec<PathBuf>> {
        panic!("no link was met")
    }
}

#[derive(Debug)]
struct UnlistedSandboxes;

impl SandboxesInForce for UnlistedSandboxes {
    fn trees(&self) -> Option<Vec<PathBuf>> {
        None
    }
}

struct TestHome {
    base: PathBuf,
    places: PolicyPlaces,
    _dir: tempfile::TempDir,
}

impl TestHome {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let base = fs::canonicalize(dir.path()).unwrap();
        for sub in ["home/app/src", "home/.ssh", "home/.npm/_cacache", "data/cargo", "tmp"] {
            fs::create_dir_all(base.join(sub)).unwrap();
        }
        let home = base.join("home");
        let vars = vec![("COREPACK_HOME".to_owned(), home.join(".cache/node/corepack"))];
        let places = PolicyPlaces { project: home.join("app"), home, tmp: base.join("tmp"), vars };
        Self { base, places, _dir: dir }
    }

    fn link(self, target: &str, at: &str) -> Self {
        let at = self.base.join("home").join(at);
        fs::create_dir_all(at.parent().unwrap()).unwrap();
        symlink(target.replace("/W", self.base.to_str().unwrap()), at).unwrap();
        self
    }

    fn suspect(&self, fs: Vec<FsRule>, in_force: &dyn SandboxesInForce) -> Option<SuspectLink> {
        let protect = ProtectSettings::default();
        let sandbox = Sandbox { default: Effect::Ask, fs, protect, ..Sandbox::named("s") };
        let disk = Disk::default();
        let paths: Vec<_> = sandbox
            .fs
            .iter()
            .map(|rule| {
                let written = self.places.expand(rule.pattern.fixed()).unwrap();
                let real = disk.real(&written);
                (rule, written, real)
            })
            .collect();
        let placed: Vec<_> =
            paths.iter().map(|(rule, written, real)| RuleOnDisk { rule, written, real }).collect();
        let ground = LinkCheck { sandbox: &sandbox, places: &self.places, disk: &disk, in_force };
        ground.first_suspect(&placed)
    }

    fn others(&self, trees: &[&str]) -> OtherSandboxes {
        OtherSandboxes(trees.iter().map(|tree| self.base.join("home").join(tree)).collect())
    }
}

fn rule(effect: Effect, caps: &str, path: &str) -> FsRule {
    let pattern = PathPattern::Subpath { path: path.to_owned(), follow_worktrees: false };
    let caps = FileCaps::parse(caps).unwrap();
    FsRule { pattern, effect, caps, writes: WriteTarget::InPlace, span: PolicySpan::default() }
}

fn allow(caps: &str, path: &str) -> FsRule {
    rule(Effect::Allow, caps, path)
}

#[test]
fn a_link_in_a_tree_of_another_sandbox_is_suspect() {
    let home = TestHome::new().link("..", ".npm/_logs");
    let rules = || vec![allow("r", "~/.npm"), allow("rwcd", "~/.npm/_logs")];
    let suspect = home.suspect(rules(), &home.others(&[".npm"])).unwrap();
    assert_eq!(suspect.link, home.base.join("home/.npm/_logs"));
    assert_eq!(suspect.target, home.base.join("home"));
}

#[test]
fn a_link_in_the_middle_of_a_variable_is_suspect() {
    let home = TestHome::new().link("../..", ".cache/node/corepack");
    let rules = || vec![allow("r", "$COREPACK_HOME/v1")];
    assert!(home.suspect(rules(), &home.others(&[".cache/node"])).is_some());
}

#[test]
fn the_root_of_a_tree_is_not_inside_it() {
    let home = TestHome::new().link("/W/data/cargo", ".npm/_logs");
    let rules = || vec![allow("rwcd", "~/.npm/_logs")];
    assert!(home.suspect(rules(), &home.others(&[".npm/_logs"])).is_none());
    assert!(home.suspect(rules(), &home.others(&[".npm"])).is_some());
}

#[test]
fn a_link_that_stays_in_its_tree_gives_no_more_rights() {
    let home = TestHome::new().link("_cacache", ".npm/_logs");
    let others = home.others(&[".npm"]);
    let wider = vec![allow("r", "~/.npm"), allow("rwcd", "~/.npm/_logs")];
    assert!(home.suspect(wider, &others).is_some());
    let same = vec![allow("rwcd", "~/.npm"), allow("rwcd", "~/.npm/_logs")];
    assert!(home.suspect(same, &others).is_none());
    let denied = vec![
        allow("rwcd", "~/.npm"),
        rule(Effect::Deny, "rwcd", "~/.npm/_cacache"),
        allow("rw", "~/.npm/_logs/sub"),
    ];
    assert!(home.suspect(denied, &others).is_some());
}

#[test]
fn a_link_does_not_lift_the_protection_of_its_target() {
    let home = TestHome::new().link(".git", "app/data");
    fs::create_dir_all(home.base.join("home/app/.git/hooks")).unwrap();
    for path in ["$PWD/data", "$PWD/data/hooks"] {
        let rules = vec![allow("rwcd", "$PWD"), allow("rwcd", path)];
        assert!(home.suspect(rules, &NoOtherSandboxes).is_some(), "{path}");
    }
}

#[test]
fn a_link_behind_a_link_of_the_user_is_suspect() {
    let home = TestHome::new().link(".npm/tool", ".tool").link("../.ssh", ".npm/tool");
    let rules = || vec![allow("r", "~/.tool")];
    let suspect = home.suspect(rules(), &home.others(&[".npm"])).unwrap();
    assert_eq!(suspect.link, home.base.join("home/.npm/tool"));
}

#[test]
fn a_dangling_link_is_suspect() {
    let home = TestHome::new().link("../.config/autostart", ".npm/_logs");
    assert!(home.suspect(vec![allow("rwcd", "~/.npm/_logs")], &home.others(&[".npm"])).is_some());
}

#[test]
fn links_that_no_sandbox_can_have_made_go_on_working() {
    let home = TestHome::new().link("/W/data/cargo", ".cargo").link("/W/data", ".cache");
    let rules = || vec![allow("rwcd", "~/.cargo"), allow("rwcd", "~/.cache/cargo")];
    let others = home.others(&[".cargo", ".cache/cargo", ".cache/node", ".npm", "app"]);
    assert_eq!(home.suspect(rules(), &others), None);
    assert!(home.suspect(rules(), &UnlistedSandboxes).is_some());
}

#[test]
fn without_a_link_nothing_is_asked() {
    let home = TestHome::new();
    let rules = vec![allow("rwcd", "$PWD"), allow("r", "~/.npm"), allow("r", "~/none")];
    assert_eq!(home.suspect(rules, &NeverAsked), None);
}
