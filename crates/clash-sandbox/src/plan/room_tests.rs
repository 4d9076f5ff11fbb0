//! The steps of a room as data. `tests/rooms.rs` checks on the kernel that the steps have
//! their effect.

use super::*;
use crate::facts::{Facility, RoomSupport};
use crate::planted::NoOtherSandboxes;
use clash_policy::judge::{JudgeContext as Judged, judge};
use clash_policy::{
    Effect, FileUse, HostPattern, NetRule, NetworkAccess, PathPattern, ProtectSettings,
};
use insta::assert_snapshot;
use proptest::prelude::*;
use std::fs;

struct RoomWorld {
    base: PathBuf,
    places: PolicyPlaces,
    cage: CagePaths,
    _dir: tempfile::TempDir,
}

impl RoomWorld {
    fn new() -> Self {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let base = fs::canonicalize(dir.path()).unwrap();
        for sub in ["home/app/a/b/c", "home/app/.git/hooks", "home/.clash", "home/lib", "tmp"] {
            fs::create_dir_all(base.join(sub)).unwrap();
        }
        fs::write(base.join("home/app/.env"), "").unwrap();
        fs::write(base.join("home/.gitconfig"), "").unwrap();
        let home = base.join("home");
        let places =
            PolicyPlaces { project: home.join("app"), home, tmp: base.join("tmp"), vars: vec![] };
        Self { base, places, cage: CagePaths::default(), _dir: dir }
    }

    fn plan(&self, sandbox: &Sandbox, host: &HostFacts) -> Result<SandboxPlan, PlanError> {
        let disk = Disk::default();
        let (places, cage) = (&self.places, &self.cage);
        let temporary = TemporaryPaths { session: Some(&places.tmp), host: &places.tmp };
        let (disk, in_force, caches) = (&disk, &NoOtherSandboxes, None);
        let extra = &[];
        plan(
            &PlanRequest {
                sandbox,
                places,
                cage,
                disk,
                extra,
                in_force,
                temporary,
                caches,
                doors: &[],
            },
            host,
        )
    }

    /// The steps that concern this world's own files, or the refusal.
    fn steps(&self, sandbox: &Sandbox) -> String {
        let text = match self.plan(sandbox, &host()) {
            Ok(plan) => match plan.room {
                Some(room) => room.steps.iter().map(|step| format!("{step}\n")).collect(),
                None => "direct".to_owned(),
            },
            Err(refusal) => refusal.to_string(),
        };
        let text = text.replace(&self.base.display().to_string(), "/W");
        let own = |line: &&str| {
            line.contains("/W") && !line.starts_with("directory") || *line == "direct"
        };
        text.lines().filter(own).collect::<Vec<_>>().join("\n")
    }
}

fn host() -> HostFacts {
    HostFacts {
        landlock_abi: 7,
        seccomp: true,
        rooms: RoomSupport::Unprivileged,
        notify: Facility::Works,
        gate: Facility::Works,
        ..HostFacts::bare()
    }
}

fn rule(effect: Effect, caps: &str, path: &str) -> FsRule {
    let span = PolicySpan { file: "policy.star".into(), line: 7, column: 1 };
    let pattern = PathPattern::Subpath { path: path.into(), follow_worktrees: false };
    FsRule {
        pattern,
        effect,
        caps: FileCaps::parse(caps).unwrap(),
        writes: WriteTarget::InPlace,
        span,
    }
}

fn sandbox(fs: Vec<FsRule>) -> Sandbox {
    Sandbox { fs, ..Sandbox::named("t") }
}

#[test]
fn grants_are_bound_and_persistence_paths_need_no_mount() {
    let world = RoomWorld::new();
    let mut config = rule(Effect::Allow, "r", "");
    config.pattern = PathPattern::Literal("$HOME/.gitconfig".into());
    let fs =
        vec![rule(Effect::Allow, "rwcdx", "$PWD"), config, rule(Effect::Allow, "r", "$HOME/lib")];
    assert_snapshot!(world.steps(&sandbox(fs)), @r"
    file /W/home/.gitconfig
    rebind /W read-only, noexec
    scratch /W/tmp
    bind /W/home/.gitconfig read-only, noexec
    bind /W/home/app writable
    bind /W/home/lib read-only, noexec
    ");
}

#[test]
fn rules_inside_rules_become_mounts_on_mounts() {
    let world = RoomWorld::new();
    let fs = vec![
        rule(Effect::Allow, "rwcdx", "$PWD"),
        rule(Effect::Deny, "rwcdx", "$PWD/a/b"),
        rule(Effect::Allow, "rx", "$PWD/a/b/c"),
        rule(Effect::Deny, "wcd", "$PWD/.env"),
    ];
    let protect = ProtectSettings { standard: false, ..ProtectSettings::default() };
    assert_snapshot!(world.steps(&Sandbox { protect, ..sandbox(fs) }), @r"
    rebind /W read-only, noexec
    scratch /W/tmp
    bind /W/home/app writable
    rebind /W/home/app/.env read-only
    cover /W/home/app/a/b but for c
    bind /W/home/app/a/b/c read-only
    ");
}

#[test]
fn a_sandbox_that_changes_nothing_needs_no_room() {
    let world = RoomWorld::new();
    assert_eq!(world.steps(&sandbox(vec![rule(Effect::Allow, "rx", "$PWD")])), "direct");
}

#[test]
fn an_existing_cage_is_covered_and_a_missing_one_watched() {
    let mut world = RoomWorld::new();
    world.cage.paths.push(world.base.join("home/.clash"));
    let home = |caps| sandbox(vec![rule(Effect::Allow, caps, "$HOME")]);
    assert_snapshot!(world.steps(&home("r")), @r"
    rebind /W read-only, noexec
    scratch /W/tmp
    bind /W/home read-only, noexec
    cover /W/home/.clash
    ");
    let missing = world.base.join("home/.claude.json");
    world.cage.paths.push(missing.clone());
    let plan = world.plan(&home("rwcd"), &host()).unwrap();
    assert_eq!(plan.watch.unwrap().rights.caps(&missing), FileCaps::NONE);
}

#[test]
fn reads_are_watched_only_where_a_mount_cannot_deny_them() {
    let world = RoomWorld::new();
    let protect = ProtectSettings { standard: false, ..ProtectSettings::default() };
    let watched = |inner: Vec<FsRule>| {
        let mut fs = vec![rule(Effect::Allow, "rwcdx", "$PWD")];
        fs.extend(inner);
        let sandbox = Sandbox { protect: protect.clone(), ..sandbox(fs) };
        world.plan(&sandbox, &host()).unwrap().watch.map(|watch| watch.reads)
    };
    assert_eq!(watched(vec![]), Some(false), "links can be made");
    assert_eq!(watched(vec![rule(Effect::Deny, "w", "$PWD/a")]), Some(false));
    assert_eq!(watched(vec![rule(Effect::Deny, "r", "$PWD/a")]), Some(true));
    // A process outside can put another directory there, and then no mount covers it.
    assert_eq!(watched(vec![rule(Effect::Deny, "rwcdx", "$PWD/a")]), Some(false));
    assert_eq!(watched(vec![rule(Effect::Deny, "rwcd", "$PWD/new")]), Some(false));
    let mut glob = rule(Effect::Deny, "rwcd", "");
    glob.pattern = PathPattern::Glob { prefix: "$PWD".into(), pattern: "**/.env".into() };
    assert_eq!(watched(vec![glob]), Some(true));
}

#[test]
fn execution_alone_cannot_be_taken_from_names() {
    let world = RoomWorld::new();
    let mut glob = rule(Effect::Deny, "x", "");
    glob.pattern = PathPattern::Glob { prefix: "$PWD".into(), pattern: "**/*.sh".into() };
    let fs = vec![rule(Effect::Allow, "rwcdx", "$PWD"), glob.clone()];
    let refusal = world.plan(&sandbox(fs), &host()).unwrap_err();
    assert!(matches!(refusal, PlanError::Execute { .. }));
    assert!(refusal.to_string().ends_with(", where it is granted"), "{refusal}");
    glob.caps = FileCaps::parse("rx").unwrap();
    let fs = vec![rule(Effect::Allow, "rwcdx", "$PWD"), glob];
    assert!(world.plan(&sandbox(fs), &host()).is_ok());
    let fs = vec![rule(Effect::Allow, "rwcdx", "$PWD"), rule(Effect::Deny, "x", "$PWD/a")];
    assert!(world.plan(&sandbox(fs.clone()), &host()).is_ok());
    let mut container = host();
    crate::host::simulate(&mut container, "container").unwrap();
    let refusal = world.plan(&sandbox(fs), &container).unwrap_err();
    assert!(
        matches!(refusal, PlanError::NoRoom { .. }) && refusal.hint().unwrap().contains("AppArmor")
    );
}

#[test]
fn a_room_needs_less_of_landlock_and_a_host_for_it() {
    let world = RoomWorld::new();
    let writes = sandbox(vec![rule(Effect::Allow, "rwcdx", "$PWD")]);
    for (abi, fine) in [(1, false), (2, false), (3, true), (5, true), (7, true)] {
        let host = HostFacts { landlock_abi: abi, ..host() };
        assert_eq!(world.plan(&writes, &host).is_ok(), fine, "ABI {abi}");
    }
    let mut container = host();
    crate::host::simulate(&mut container, "container").unwrap();
    let plan = world.plan(&writes, &container).unwrap();
    assert!(plan.room.is_none() && plan.watch.is_some());
    let mut root = host();
    crate::host::simulate(&mut root, "root").unwrap();
    assert!(!world.plan(&writes, &root).unwrap().room.unwrap().user_namespace);
}

#[test]
fn host_rules_are_refused_where_no_gate_can_be_made() {
    let world = RoomWorld::new();
    let mut bare = host();
    crate::host::simulate(&mut bare, "no-gate").unwrap();
    let with =
        |net: NetworkAccess| Sandbox { net, ..sandbox(vec![rule(Effect::Allow, "r", "$PWD")]) };
    let name = NetRule {
        host: HostPattern::Name("github.com".into()),
        ports: Vec::new(),
        effect: Effect::Allow,
        span: PolicySpan::default(),
    };
    let hosts = |rule| NetworkAccess::Hosts { rules: vec![rule], default: Effect::Deny };
    let refusal = world.plan(&with(hosts(name.clone())), &bare).unwrap_err();
    assert!(refusal.to_string().contains("gate cannot be made here: no veth"), "{refusal}");
    assert!(refusal.hint().unwrap().contains("modprobe veth"));
    // Ports of the loopback need no gate.
    let local = NetRule { host: HostPattern::Localhost, ports: vec![8080], ..name };
    world.plan(&with(hosts(local)), &bare).unwrap();
}

#[test]
fn limits_on_all_of_a_command_need_a_room() {
    let world = RoomWorld::new();
    let mut limited = sandbox(vec![rule(Effect::Allow, "r", "$PWD")]);
    limited.limits.memory_bytes = Some(1);
    assert!(world.plan(&limited, &host()).unwrap().room.is_none());
    limited.limits.processes = Some(10);
    assert!(world.plan(&limited, &host()).unwrap().room.is_some());
    // Root's processes are counted by their numbers, if the host can do that.
    let root = HostFacts { root: true, ..host() };
    match world.plan(&limited, &root) {
        Ok(plan) => assert!(plan.room.is_some()),
        Err(refusal) => assert!(matches!(refusal, PlanError::Uncounted { .. }), "{refusal}"),
    }
}

proptest! {
    /// Marks get their rights from the same rules as the judge of file tools.
    #[test]
    fn the_view_says_what_the_judge_says(
        rules in prop::collection::vec((0usize..4, any::<bool>(), 1u8..32), 1..6)
    ) {
        let world = RoomWorld::new();
        let paths = ["$PWD", "$PWD/a", "$PWD/a/b", "$PWD/a/b/c"];
        let fs: Vec<FsRule> = rules
            .into_iter()
            .map(|(at, allow, caps)| {
                let effect = if allow { Effect::Allow } else { Effect::Deny };
                rule(effect, &FileCaps::from_bits(caps).unwrap().to_string(), paths[at])
            })
            .collect();
        let sandbox = sandbox(fs);
        let disk = Disk::default();
        let (places, cage) = (&world.places, &world.cage);
        let temporary = TemporaryPaths { session: Some(&places.tmp), host: &places.tmp };
        let (sandbox, disk, extra, in_force) = (&sandbox, &disk, &[], &NoOtherSandboxes);
        let caches = None;
        let request =
            PlanRequest { sandbox, places, cage, disk, extra, in_force, temporary, caches, doors: &[] };
        let resolved = resolve_rules(&request).unwrap();
        let grants = grants_of_allow_rules(&resolved, None, &mut PlanReport::default());
        let rights = collect_rights(&request, &resolved, &grants, &[]).unwrap();
        let (request, rules, grants) = (&request, &resolved, &grants);
        let sources = MountSources { request, rules, grants, baseline: &[], rights: &rights, masks: &MaskedFiles::new() };
        let judged = Judged { places, cwd: &places.project, links: disk, baseline: &[], cage: &[], lent: None };
        for path in paths {
            let path = places.expand(path).unwrap();
            for cap in FileCaps::each() {
                let file = FileUse { path: path.clone(), needs: cap, caseless: false };
                let verdict = judge(sandbox, &file, &judged).unwrap();
                let seen = sources.caps(&path, false).contains(cap);
                prop_assert_eq!(seen, verdict.effect == Effect::Allow, "{} {}", path.display(), cap);
            }
        }
    }
}
