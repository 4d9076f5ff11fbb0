use super::*;
use crate::facts::RoomSupport;
use crate::plan::report::ReportLine;
use crate::planted::NoOtherSandboxes;
use clash_policy::{Effect, PathPattern, ProtectSettings};
use insta::assert_snapshot;
use proptest::prelude::*;
use std::fs;
use std::os::unix::fs::symlink;

/// A home with a project in it on the real disk.
struct PlanWorld {
    base: PathBuf,
    places: PolicyPlaces,
    cage: CagePaths,
    _dir: tempfile::TempDir,
}

fn host() -> HostFacts {
    let rooms = RoomSupport::Impossible { why: "it is a test".into() };
    HostFacts {
        landlock_abi: 7,
        seccomp: true,
        rooms,
        notify: Facility::Works,
        ..HostFacts::bare()
    }
}

impl PlanWorld {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let base = fs::canonicalize(dir.path()).unwrap();
        for sub in ["home/app/src", "home/app/.claude", "home/.ssh", "home/.clash", "tmp"] {
            fs::create_dir_all(base.join(sub)).unwrap();
        }
        fs::write(base.join("home/.gitconfig"), "").unwrap();
        let home = base.join("home");
        let places =
            PolicyPlaces { project: home.join("app"), home, tmp: base.join("tmp"), vars: vec![] };
        Self { base, places, cage: CagePaths::default(), _dir: dir }
    }

    fn caged(mut self, path: &str) -> Self {
        self.cage.paths.push(self.base.join(path));
        self
    }

    fn temporary(&self) -> TemporaryPaths<'_> {
        TemporaryPaths { session: Some(&self.places.tmp), host: &self.places.tmp }
    }

    fn plan(&self, fs: Vec<FsRule>) -> Result<SandboxPlan, PlanError> {
        self.plan_for(&sandbox(fs), &host())
    }

    fn plan_for(&self, sandbox: &Sandbox, host: &HostFacts) -> Result<SandboxPlan, PlanError> {
        self.reported(sandbox, host).map(|(plan, _)| plan).map_err(unwrap_no_room)
    }

    /// The request for this sandbox alone, without needs of the launcher.
    fn request<'a>(&'a self, sandbox: &'a Sandbox, disk: &'a Disk) -> PlanRequest<'a> {
        PlanRequest {
            sandbox,
            places: &self.places,
            cage: &self.cage,
            disk,
            extra: &[],
            in_force: &NoOtherSandboxes,
            temporary: self.temporary(),
            caches: None,
            doors: &[],
        }
    }

    fn reported(
        &self,
        sandbox: &Sandbox,
        host: &HostFacts,
    ) -> Result<(SandboxPlan, PlanReport), PlanError> {
        let disk = Disk::default();
        let request = self.request(sandbox, &disk);
        let (plan, report) = plan_with_report(&request, host)?;
        assert_eq!(super::plan(&request, host).ok().as_ref(), Some(&plan));
        Ok((plan, report))
    }

    /// The plan's grants and report, or the refusal and its hint. The temporary directory
    /// is shown as `/W`.
    fn show(&self, fs: Vec<FsRule>) -> String {
        let text = match self.reported(&sandbox(fs), &host()) {
            Ok((plan, report)) => {
                let mut text = String::new();
                for grant in &plan.grants {
                    text += &format!("{} {} ({})\n", grant.caps, grant.path.display(), grant.why);
                }
                for line in report.lines.iter().filter(|l| l.mechanism == ReportLine::NOTHING) {
                    text += &format!("{line}\n");
                }
                text
            }
            Err(refusal) => {
                let refusal = unwrap_no_room(refusal);
                format!("{refusal}\nhint: {}", refusal.hint().unwrap_or_default())
            }
        };
        let text = text.replace(&self.base.display().to_string(), "/W");
        let limits = ["metadata outside", "process list", "x of "];
        let own = |line: &&str| !limits.iter().any(|limit| line.starts_with(limit));
        text.lines().filter(own).collect::<Vec<_>>().join("\n")
    }
}

/// The refusal inside `NoRoom`, or the refusal itself.
fn unwrap_no_room(refusal: PlanError) -> PlanError {
    match refusal {
        PlanError::NoRoom { rule, .. } => *rule,
        other => other,
    }
}

fn sandbox(fs: Vec<FsRule>) -> Sandbox {
    let protect = ProtectSettings { standard: false, ..ProtectSettings::default() };
    Sandbox { fs, protect, span: span(1), ..Sandbox::named("t") }
}

fn span(line: u32) -> PolicySpan {
    PolicySpan { file: "policy.star".into(), line, column: 1 }
}

fn rule(effect: Effect, caps: &str, pattern: PathPattern) -> FsRule {
    FsRule {
        pattern,
        effect,
        caps: FileCaps::parse(caps).unwrap(),
        writes: WriteTarget::InPlace,
        span: span(7),
    }
}

fn below(path: &str) -> PathPattern {
    PathPattern::Subpath { path: path.into(), follow_worktrees: false }
}

fn allow(caps: &str, path: &str) -> FsRule {
    rule(Effect::Allow, caps, below(path))
}

fn deny(caps: &str, path: &str) -> FsRule {
    rule(Effect::Deny, caps, below(path))
}

#[test]
fn allows_become_grants() {
    let world = PlanWorld::new();
    let rules = vec![
        allow("rwcdx", "$PWD"),
        rule(Effect::Allow, "r", PathPattern::Literal("~/.gitconfig".into())),
    ];
    assert_snapshot!(world.show(rules), @r"
    r /W/home/.gitconfig (policy.star:7)
    rwcdx /W/home/app (policy.star:7)
    ");
}

#[test]
fn what_does_not_exist_gets_nothing_and_is_not_created() {
    let world = PlanWorld::new();
    assert_snapshot!(world.show(vec![allow("rwcd", "$HOME/.cache/x")]), @"allow rwcd $HOME/.cache/x/** (policy.star:7) | none | does not exist now; nothing granted");
    assert!(!world.base.join("home/.cache").exists());
}

#[test]
fn a_deny_inside_an_allow_is_watched_also_for_new_names() {
    let world = PlanWorld::new();
    let watch = |rules: Vec<FsRule>| world.plan(rules).unwrap().watch.unwrap();
    let source = watch(vec![allow("rwcd", "$PWD"), deny("w", "$PWD/src")]);
    assert_eq!(source.rights.caps(&world.places.project.join("src/x")).to_string(), "rcd");
    let ask = rule(Effect::Ask, "rwcdx", PathPattern::Literal("$PWD/.env".into()));
    let missing = watch(vec![allow("r", "$PWD"), ask]);
    assert_eq!(missing.rights.caps(&world.places.project.join(".env")), FileCaps::NONE);
}

#[test]
fn without_a_room_every_open_is_watched() {
    let world = PlanWorld::new();
    let plan = world.plan(vec![allow("rwcd", "$PWD")]).unwrap();
    let watch = plan.watch.unwrap();
    assert!(watch.reads && watch.processes == ProcView::OfTheHost { net: false });
    assert_eq!(plan.scratch, Some(ScratchPlan::Below(world.base.join("tmp"))));
    let caps = |path: &str| watch.rights.caps(Path::new(path)).to_string();
    assert_eq!([caps("/proc/self"), caps("/proc/cpuinfo")], ["r", "r"]);
    assert_eq!([caps("/proc"), caps("/proc/1/cmdline")], ["", ""]);
    // The policy's own rule about it is neither widened nor narrowed.
    for said in [allow("rwcd", "$TMPDIR"), allow("r", "$TMPDIR")] {
        let plan = world.plan(vec![allow("rwcd", "$PWD"), said]).unwrap();
        assert_eq!(plan.scratch, Some(ScratchPlan::Session(world.base.join("tmp"))));
    }
    let denied = world.plan(vec![allow("rwcd", "$PWD"), deny("rwcdx", "$TMPDIR")]).unwrap();
    assert_eq!(denied.scratch, None);
    assert_eq!(world.plan(vec![allow("r", "$PWD")]).unwrap().scratch, None);
}

#[test]
fn only_a_command_with_its_own_tmp_reports_one() {
    let world = PlanWorld::new();
    let reported = |fs: Vec<FsRule>, rooms: RoomSupport| {
        let sandbox = sandbox(fs);
        let disk = Disk::default();
        let request = PlanRequest {
            temporary: TemporaryPaths { session: None, host: &world.places.tmp },
            ..world.request(&sandbox, &disk)
        };
        let (_, report) = plan_with_report(&request, &HostFacts { rooms, ..host() }).unwrap();
        let about = |line: &&ReportLine| line.rule.contains("$TMPDIR");
        report.lines.iter().filter(about).map(|line| line.mechanism).collect::<Vec<_>>()
    };
    for rooms in [host().rooms, RoomSupport::Unprivileged] {
        let rules = |caps, more| vec![allow("r", "$PWD"), allow(caps, "$TMPDIR"), more];
        let harmless = || allow("r", "$HOME/.gitconfig");
        // The direct tier makes no temporary directory.
        assert_eq!(reported(rules("r", harmless()), rooms.clone()), [ReportLine::NOTHING]);
        assert_eq!(reported(rules("rwcd", harmless()), rooms.clone()), ["own directory"]);
        assert_eq!(reported(rules("r", allow("w", "$PWD/src")), rooms.clone()), ["own directory"]);
        // A rule names the host's directory itself.
        let tmp = world.places.tmp.to_str().unwrap();
        assert_eq!(reported(rules("rwcd", allow("rwcd", tmp)), rooms), [ReportLine::NOTHING]);
    }
}

#[test]
fn what_has_to_be_watched_is_refused_where_nothing_can_be() {
    let world = PlanWorld::new();
    let mut deaf = host();
    crate::host::simulate(&mut deaf, "no-notify").unwrap();
    let refused = |rules: Vec<FsRule>| {
        let refusal = world.plan_for(&sandbox(rules), &deaf).unwrap_err();
        assert_eq!(refusal.span().map(|span| span.file.as_str()), Some("policy.star"));
        format!("{refusal}\nhint: {}", refusal.hint().unwrap())
    };
    assert_snapshot!(refused(vec![allow("rwcd", "$PWD"), deny("w", "$PWD/src")]), @r"
    policy.star:7: `$PWD/src/**` holds only if what the command does is watched, and that cannot be done here: no listener (simulated)
    hint: use Linux 5.19 or newer, or let the container runtime or the sandbox around this one permit seccomp listeners; `clash doctor` tries one
    ");
    assert!(refused(vec![allow("rwcd", "$PWD")]).starts_with("policy.star:1: `fs` holds"));
    // A plan that Landlock holds alone needs no monitor.
    world.plan_for(&sandbox(vec![allow("rx", "$PWD")]), &deaf).unwrap();
}

#[test]
fn a_deny_that_takes_nothing_away_is_fine() {
    let world = PlanWorld::new();
    let plans = [
        vec![allow("r", "$PWD"), deny("wcd", "$PWD/src")],
        vec![allow("rwcdx", "$PWD"), deny("rwcdx", "$HOME/.ssh")],
        vec![allow("rwcdx", "$PWD"), deny("rwcdx", "$HOME")],
        vec![deny("rwcdx", "/home"), allow("r", "$PWD")],
    ];
    for rules in plans {
        let plan = world.plan(rules).unwrap();
        assert!(plan.grants.iter().any(|g| g.path == world.places.project));
    }
}

#[test]
fn on_the_same_path_the_stricter_rule_wins_per_capability() {
    let world = PlanWorld::new();
    assert_snapshot!(world.show(vec![allow("rwcdx", "$PWD"), deny("d", "$PWD")]), @"rwcx /W/home/app (policy.star:7)");
}

#[test]
fn a_pattern_grants_its_tree_and_every_use_is_watched() {
    let world = PlanWorld::new();
    let glob = PathPattern::Glob { prefix: "$PWD".into(), pattern: "**/*.rs".into() };
    let plan = world.plan(vec![rule(Effect::Allow, "rwx", glob.clone())]).unwrap();
    assert_eq!(plan.grants.first().map(|grant| grant.caps.to_string()).as_deref(), Some("rw"));
    let watch = plan.watch.unwrap();
    let caps = |name: &str| watch.rights.caps(&world.places.project.join(name)).to_string();
    assert_eq!((caps("src/a.rs").as_str(), caps("src/a.c").as_str()), ("rwx", ""));
    // Where nothing is granted, these denies need no mechanism.
    let children = PathPattern::Children("$PWD".into());
    for pattern in [&glob, &children] {
        let denied = world.plan(vec![rule(Effect::Deny, "r", pattern.clone())]).unwrap();
        assert_eq!(denied.watch, None);
        let rules = vec![allow("r", "$PWD"), rule(Effect::Deny, "r", pattern.clone())];
        assert!(world.plan(rules).unwrap().watch.is_some());
    }
    // A glob above the grant may match inside it. Children of a directory above it are less
    // specific than the grant.
    let above = PathPattern::Glob { prefix: "$HOME".into(), pattern: "**/.env".into() };
    let rules = vec![allow("r", "$PWD"), rule(Effect::Deny, "r", above)];
    assert!(world.plan(rules).unwrap().watch.is_some());
    let children = rule(Effect::Deny, "r", PathPattern::Children("$HOME".into()));
    assert_eq!(world.plan(vec![allow("r", "$PWD"), children]).unwrap().watch, None);
}

#[test]
fn a_literal_is_one_file_or_a_directory_without_its_content() {
    let world = PlanWorld::new();
    let directory = rule(Effect::Allow, "r", PathPattern::Literal("$PWD".into()));
    let watch = world.plan(vec![directory]).unwrap().watch.unwrap();
    assert_eq!(watch.rights.caps(&world.places.project), FileCaps::READ);
    assert_eq!(watch.rights.caps(&world.places.project.join("src")), FileCaps::NONE);
    let file = rule(Effect::Allow, "rwcd", PathPattern::Literal("~/.gitconfig".into()));
    assert_snapshot!(world.show(vec![file]), @"rw /W/home/.gitconfig (policy.star:7)");
}

#[test]
fn a_default_of_allow_leaves_the_cage_and_persistence_paths() {
    let world = PlanWorld::new().caged("home/.clash");
    let protect = ProtectSettings::default();
    let open = Sandbox { default: Effect::Allow, protect, ..sandbox(vec![]) };
    let watch = world.plan_for(&open, &host()).unwrap().watch.unwrap();
    let caps = |path: &str| watch.rights.caps(&world.base.join(path)).to_string();
    assert_eq!(caps("home/.ssh/id"), "rwcdx");
    assert_eq!(caps("home/.clash/policy.star"), "");
    assert_eq!(caps("home/app/.vscode/tasks.json"), "rx");
}

#[test]
fn links_are_followed_and_the_target_is_granted() {
    let world = PlanWorld::new();
    fs::create_dir(world.base.join("cache")).unwrap();
    symlink(world.base.join("cache"), world.base.join("home/.cache")).unwrap();
    assert_snapshot!(world.show(vec![allow("rw", "~/.cache")]), @"rw /W/cache (policy.star:7)");
}

#[test]
fn a_link_planted_in_the_project_does_not_open_its_target() {
    let world = PlanWorld::new();
    symlink(world.base.join("home/.ssh"), world.base.join("home/app/public")).unwrap();
    let rules = vec![allow("rwcdx", "$PWD"), allow("r", "$PWD/public")];
    assert_snapshot!(world.show(rules), @r"
    policy.star:7: `$PWD/public/**` leads to `/W/home/.ssh` by the link `/W/home/app/public`; commands may write in `/W/home/app`, and an earlier one may have planted the link
    hint: look at the link with `ls -l /W/home/app/public`; if you did not make it, remove it; if it is yours, allow `/W/home/.ssh` by its own path
    ");
}

#[test]
fn a_link_planted_by_another_sandbox_opens_nothing() {
    let world = PlanWorld::new();
    symlink(world.base.join("home/.ssh"), world.base.join("home/app/public")).unwrap();
    symlink(world.base.join("home/.ssh"), world.base.join("tmp/x")).unwrap();
    for path in ["$PWD/public", "$TMPDIR/x"] {
        let refusal = world.plan(vec![allow("r", path)]).unwrap_err();
        assert!(matches!(refusal, PlanError::PlantedLink(_)), "{path}: {refusal}");
    }
}

#[test]
fn the_cage_holds_against_grants_above_and_inside_it() {
    let world = PlanWorld::new().caged("home/.clash");
    for caps in ["r", "rwcd"] {
        let watch = world.plan(vec![allow(caps, "$HOME")]).unwrap().watch.unwrap();
        assert_eq!(watch.rights.caps(&world.base.join("home/.clash/x")), FileCaps::NONE);
    }
    assert_snapshot!(world.show(vec![allow("w", "$HOME/.clash")]), @r"
    `w` on `/W/home/.clash` (policy.star:7) would reach `/W/home/.clash`, which no sandbox may touch
    hint: allow the directories beside `/W/home/.clash` one by one
    ");
    world.plan(vec![allow("rwcdx", "$PWD")]).unwrap();
}

#[test]
fn settings_in_the_project_can_be_read_and_not_changed() {
    let world = PlanWorld::new().caged("home/app/.claude");
    let watch = world.plan(vec![allow("rwcd", "$PWD")]).unwrap().watch.unwrap();
    let settings = world.base.join("home/app/.claude/settings.json");
    assert_eq!(watch.rights.caps(&settings), FileCaps::READ);
    let named = vec![allow("rw", "$PWD/.claude")];
    assert!(matches!(world.plan(named), Err(PlanError::Caged { .. })));
}

#[test]
fn a_project_that_is_itself_caged_is_refused() {
    let world = PlanWorld::new().caged("home/app");
    assert!(matches!(world.plan(vec![allow("rw", "$PWD")]), Err(PlanError::Caged { .. })));
}

#[test]
fn a_link_into_the_cage_is_still_the_cage() {
    let world = PlanWorld::new().caged("home/.clash");
    symlink(world.base.join("home/.clash"), world.base.join("state")).unwrap();
    let path = world.base.join("state").display().to_string();
    assert!(matches!(world.plan(vec![allow("w", &path)]), Err(PlanError::Caged { .. })));
}

#[test]
fn the_launcher_may_reach_inside_the_cage_but_not_over_it() {
    let world = PlanWorld::new().caged("home/.clash");
    fs::write(world.base.join("home/.clash/snapshot"), "").unwrap();
    let extra = |path: &str| {
        [PathGrant {
            path: world.base.join(path),
            caps: FileCaps::READ,
            why: GrantReason::Launcher,
        }]
    };
    let sandbox = sandbox(vec![]);
    let plan_with = |extra: &[PathGrant]| {
        let disk = Disk::default();
        let request = PlanRequest { extra, ..world.request(&sandbox, &disk) };
        plan(&request, &host())
    };
    plan_with(&extra("home/.clash/snapshot")).unwrap();
    assert!(matches!(plan_with(&extra("home/.clash")), Err(PlanError::Caged { .. })));
}

#[test]
fn a_deny_on_what_the_launcher_needs_is_not_overridden() {
    let world = PlanWorld::new();
    let sandbox = sandbox(vec![deny("r", "~/.gitconfig")]);
    let extra = [PathGrant {
        path: world.base.join("home/.gitconfig"),
        caps: FileCaps::READ,
        why: GrantReason::Launcher,
    }];
    let disk = Disk::default();
    let request = PlanRequest { extra: &extra, ..world.request(&sandbox, &disk) };
    let watch = plan(&request, &host()).unwrap().watch.unwrap();
    assert!(watch.rights.caps(&extra[0].path).is_empty());
}

/// A command that still runs can replace a file that the launcher has just made.
#[test]
fn a_file_of_the_launcher_that_became_a_link_is_refused() {
    let world = PlanWorld::new();
    let trap = world.base.join("claude-1a2b-cwd");
    symlink("/etc/passwd", &trap).unwrap();
    let sandbox = sandbox(vec![]);
    let extra = [PathGrant {
        path: trap.clone(),
        caps: FileCaps::parse("rw").unwrap(),
        why: GrantReason::Launcher,
    }];
    let disk = Disk::default();
    let request = PlanRequest { extra: &extra, ..world.request(&sandbox, &disk) };
    assert!(matches!(plan(&request, &host()), Err(PlanError::Replaced { path }) if path == trap));
}

#[test]
fn the_baseline_gives_way_to_a_deny_that_covers_an_entry() {
    let world = PlanWorld::new();
    let has = |plan: &SandboxPlan, path: &str| plan.baseline.iter().any(|(e, _)| e.path == path);
    assert!(has(&world.plan(vec![]).unwrap(), "/proc"));
    assert!(!has(&world.plan(vec![deny("rwcdx", "/proc")]).unwrap(), "/proc"));
    let plan = world.plan(vec![deny("rwcdx", "/etc")]).unwrap();
    assert!(!plan.baseline.iter().any(|(e, _)| e.path.starts_with("/etc")));
    let plan = world.plan(vec![deny("w", "/usr")]).unwrap();
    assert!(has(&plan, "/usr"));
    let watch = world.plan(vec![deny("r", "/usr/share")]).unwrap().watch.unwrap();
    assert_eq!(watch.rights.caps(Path::new("/usr/share/x")), FileCaps::EXECUTE);
}

#[test]
fn an_old_host_is_refused_with_what_would_be_open() {
    let world = PlanWorld::new();
    let refusal = |abi, seccomp| {
        let host = HostFacts { landlock_abi: abi, seccomp, ..host() };
        world.plan_for(&sandbox(vec![]), &host).unwrap_err().to_string()
    };
    assert_snapshot!(refusal(0, true), @"this kernel offers no Landlock, which every sandbox needs for its file rules");
    assert_snapshot!(refusal(5, true), @"Landlock ABI 5 is too old, 6 is needed: processes outside the sandbox could be signalled and abstract sockets reached");
    assert_snapshot!(refusal(3, true), @"Landlock ABI 3 is too old, 6 is needed: TCP could not be denied");
    assert_snapshot!(refusal(6, false), @"this kernel offers no seccomp filters, which the network rule and io_uring need");
}

#[test]
fn an_outer_seccomp_listener_refuses_every_plan() {
    let around = crate::facts::Surroundings { listener: true, ..host().around };
    let host = HostFacts { around, ..host() };
    let refusal = PlanWorld::new().plan_for(&sandbox(vec![]), &host).unwrap_err();
    assert_snapshot!(refusal, @"a sandbox around this one answers for its system calls, and could carry out what an inner one denies");
    assert!(refusal.hint().is_some() && refusal.span().is_none());
}

#[test]
fn an_unknown_variable_is_refused_with_its_place() {
    let world = PlanWorld::new();
    let refusal = world.plan(vec![allow("r", "$NOPE/x")]).unwrap_err();
    assert_eq!(refusal.span(), Some(&span(7)));
}

#[test]
fn grants_that_repeat_one_above_are_dropped() {
    let world = PlanWorld::new();
    let rules = vec![allow("rwcdx", "$PWD"), allow("r", "$PWD/src"), allow("rw", "$PWD")];
    assert_snapshot!(world.show(rules), @"rwcdx /W/home/app (policy.star:7)");
}

#[test]
fn a_grant_on_a_baseline_path_is_the_policys() {
    let world = PlanWorld::new();
    let plan = world.plan(vec![allow("rwcdx", "/opt")]).unwrap();
    let opt: Vec<_> = plan.grants.iter().filter(|g| g.path == Path::new("/opt")).collect();
    if Path::new("/opt").exists() {
        assert_eq!(opt.len(), 1);
        assert_eq!((opt[0].caps, &opt[0].why), (FileCaps::ALL, &GrantReason::Rule(span(7))));
    }
}

#[test]
fn the_report_names_every_rule_and_the_limits() {
    let world = PlanWorld::new();
    let rules = sandbox(vec![allow("r", "$PWD"), deny("r", "~/.ssh")]);
    let text = world.reported(&rules, &host()).unwrap().1.to_string();
    for part in ["allow r $PWD", "deny r ~/.ssh", "network deny", "unix sockets", "metadata"] {
        assert!(text.contains(part), "{part}");
    }
}

/// Rules over a small tree, for the property tests.
fn any_rules() -> impl Strategy<Value = Vec<FsRule>> {
    let path = prop::sample::select(vec![
        "$PWD",
        "$PWD/src",
        "$PWD/.claude",
        "$HOME/.ssh",
        "$HOME",
        "$TMPDIR",
        "$PWD/missing",
    ]);
    let effect = prop::sample::select(vec![Effect::Allow, Effect::Deny, Effect::Ask]);
    let one = (path, effect, 1u8..32, 0u8..4).prop_map(|(path, effect, caps, kind)| FsRule {
        writes: WriteTarget::InPlace,
        pattern: match kind {
            0 => PathPattern::Children(path.into()),
            1 => PathPattern::Glob { prefix: path.into(), pattern: "**/x".into() },
            2 => PathPattern::Literal(path.into()),
            _ => below(path),
        },
        effect,
        caps: FileCaps::from_bits(caps).unwrap(),
        span: span(7),
    });
    prop::collection::vec(one, 0..5)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Landlock gets no grant without an allow and none in the cage. The monitor watches
    /// every grant that exceeds the rules.
    #[test]
    fn a_plan_never_gives_what_a_rule_takes(rules in any_rules()) {
        let world = PlanWorld::new().caged("home/.clash");
        let Ok(plan) = world.plan(rules.clone()) else { return Ok(()) };
        let place = |r: &FsRule| world.places.expand(r.pattern.fixed()).unwrap();
        for grant in &plan.grants {
            let named = rules.iter().filter(|r| r.effect == Effect::Allow && place(r) == grant.path);
            let caps = named.fold(FileCaps::NONE, |caps, r| caps.union(r.caps));
            prop_assert!(caps.contains(grant.caps));
            let caged = world.base.join("home/.clash");
            prop_assert!(!is_below(&grant.path, &caged));
            let takes = |r: &&FsRule| r.effect != Effect::Allow && r.caps.intersects(grant.caps);
            let inside = |r: &FsRule| place(r) != grant.path && is_below(&place(r), &grant.path);
            if rules.iter().filter(takes).any(inside) || is_below(&caged, &grant.path) {
                prop_assert!(plan.watch.is_some(), "{grant:?}");
            }
        }
    }
}
