//! Plans a sandbox for one command, and becomes the command inside it.

use std::cell::RefCell;
use std::ffi::OsString;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use clash_policy::decide::{SandboxMix, default_sandbox_name};
use clash_policy::{
    FileCaps, JudgeContext, NetworkAccess, PolicyPlaces, ProcessLifetime, Sandbox, steering,
};
use clash_sandbox::disk::Disk;
use clash_sandbox::door::{DoorDirectory, KeptCommand};
use clash_sandbox::facts::{HostFacts, RoomSupport};
use clash_sandbox::gate::GateService;
use clash_sandbox::host::{self, HostRecord};
use clash_sandbox::launch::{self, LaunchError, LaunchHelper, LaunchServices};
use clash_sandbox::plan::cache::has_caches;
use clash_sandbox::plan::room::MountStep;
use clash_sandbox::plan::{GrantReason, PathGrant, PlanRequest, SandboxPlan, TemporaryPaths, plan};
use clash_sandbox::room_ledger::RoomLedger;
use clash_sandbox::visit::{DoorService, KeepOffer};
use clash_sandbox::witness;

use super::context::LaunchContext;
use super::door::{self, DoorPlace, RoomDoors, real_file};
use super::gate::GateLedger;
use super::named_commands::NamedCommands;
use super::{LauncherError, Never, RequestedCommand};
use crate::decision::DecisionError;
use crate::doors::{self, DoorSet};
use crate::env;
use crate::in_force::PolicySandboxes;
use crate::policy::LoadedPolicy;
use crate::rights;
use crate::rooms::{RecordedRoom, RoomRecord};
use crate::session::SERVED_PORTS;
use crate::ssh_agent::{self, LentAgent};
use crate::temporary::{self, HeldTmp};
use crate::trace::TraceEvent;

/// Needs of a room besides its sandbox.
#[derive(Clone, Copy)]
struct RoomAdditions<'a> {
    grants: &'a [PathGrant],
    doors: &'a [DoorDirectory],
}

/// The environment of a launch before its sandbox removes secrets, and a door's offer.
pub(super) struct GivenParts<'a> {
    environment: Vec<(OsString, OsString)>,
    /// The offer to keep the room, and the key of seals.
    keep: Option<(KeepOffer, &'a RandomState)>,
}

impl GivenParts<'_> {
    /// The variables of this process, and no offer.
    pub(super) fn own() -> Self {
        Self { environment: env::all().collect(), keep: None }
    }
}

/// A planned room and the variables of its command.
struct PreparedRoom {
    plan: SandboxPlan,
    env: Vec<(OsString, OsString)>,
    agent: Option<LentAgent>,
    /// The sandbox without rights that a lent agent rules out.
    narrowed: Option<Sandbox>,
    tmp: Option<HeldTmp>,
}

impl LaunchContext {
    /// Plans the sandbox of a command behind a door, with doors of its own, and becomes the
    /// command.
    pub(super) fn confine_behind_door(
        &self,
        outer: &RoomDoors<'_>,
        sandbox: &Sandbox,
        command: &RequestedCommand<'_>,
        environment: Vec<(OsString, OsString)>,
        keep: Option<KeepOffer>,
    ) -> Result<Never, LauncherError> {
        let (answers, mode) = (outer.named.clone(), outer.mode.clone());
        let doors = self.doors(outer.policy, sandbox, None, answers, mode, outer.depth + 1)?;
        let is_push = door::is_push(command.script);
        let doors = doors.map(|doors| RoomDoors { is_push, ..doors });
        let program = Path::new(command.program);
        let has_door = doors.as_ref().is_some_and(|doors| doors.set.name_at(program).is_some());
        let file = has_door.then(|| real_file(program)).transpose();
        let file = file.map_err(|error| LauncherError::Launch {
            sandbox: sandbox.name.clone(),
            error: LaunchError::NotExecutable {
                program: command.program.to_owned(),
                source: error.into(),
            },
        })?;
        let command = RequestedCommand { file: file.map(Arc::new), ..command.clone() };
        let given = GivenParts { environment, keep: keep.map(|offer| (offer, &outer.seal_key)) };
        self.confine(None, sandbox, &[], &command, doors.as_ref(), given)
    }

    /// The doors of a room, made anew if they are out of date ([`DoorSet::prepare`]). `None`
    /// if no program in it needs one, for an unrestricted sandbox, and for root inside an
    /// agent's room.
    pub(super) fn doors<'a>(
        &'a self,
        policy: &'a LoadedPolicy,
        room: &'a Sandbox,
        mix: Option<&SandboxMix>,
        answers: NamedCommands,
        mode: String,
        depth: u32,
    ) -> Result<Option<RoomDoors<'a>>, LauncherError> {
        if room.unrestricted || is_in_room_of_root() {
            return Ok(None);
        }
        let default = default_sandbox_name(policy.ir()).map_err(DecisionError::from)?;
        let is_default = default == room.name;
        let set = DoorSet::prepare(&self.dirs, policy, room, is_default, &self.project)?;
        if set.directories.is_empty() {
            return Ok(None);
        }
        Ok(Some(RoomDoors {
            context: self,
            policy,
            room,
            is_default,
            set,
            places: RefCell::default(),
            mix: mix.cloned(),
            named: answers,
            mode,
            depth,
            is_push: false,
            seal_key: RandomState::new(),
        }))
    }

    /// Plans the sandbox, records the launch, and becomes the command in it. Without `host`, the
    /// facts are those of this machine. The command gets the given variables that the
    /// sandbox does not hold back. An unrestricted sandbox is not planned. Returns only on
    /// failure.
    pub(super) fn confine(
        &self,
        host: Option<HostFacts>,
        sandbox: &Sandbox,
        extra: &[PathGrant],
        command: &RequestedCommand<'_>,
        doors: Option<&RoomDoors<'_>>,
        given: GivenParts<'_>,
    ) -> Result<Never, LauncherError> {
        if sandbox.unrestricted {
            return self.launch_unconfined(&sandbox.name, command);
        }
        let (ahead, host) = match host {
            Some(host) if host.rooms == RoomSupport::Unprivileged => {
                (LaunchHelper::start(sandbox), host)
            }
            Some(host) => (LaunchHelper::default(), host),
            None => self.start_ahead(sandbox),
        };
        let doors = doors.map(|doors| doors.on_host(&host)).transpose()?.flatten();
        let prepared =
            self.prepare(sandbox, extra, command.script, doors, host, given.environment)?;
        // Held until the command has ended: this process stays until then.
        let PreparedRoom { plan, mut env, agent, narrowed, tmp: _tmp } = prepared;
        let sandbox = narrowed.as_ref().unwrap_or(sandbox);
        let is_gated = plan.room.as_ref().is_some_and(|room| room.ports.gate.is_some());
        if is_gated {
            GateLedger::name_proxy(&mut env);
        }
        let gate = is_gated.then(|| GateLedger::new(self, sandbox, command));
        self.trace(TraceEvent::Launch, command.shown, None, Some(&sandbox.name))?;
        witness::set(self.witness(sandbox)?);
        let ledger = command.may_detach.then(|| self.ledger(sandbox, command.shown)).flatten();
        let keep = given.keep.filter(|_| agent.is_none());
        let keep = keep.map(|(offer, key)| offer.with_seal(seal_of(key, &plan)));
        let command = launch::LaunchCommand {
            program: command.program.to_owned(),
            args: command.args.to_vec(),
            env,
            cwd: None,
            door: command.door.clone(),
            file: command.file.clone(),
        };
        let servers = self.session.as_ref().map(|session| session.dir.join(SERVED_PORTS));
        let services = LaunchServices {
            servers: servers.as_deref(),
            doors: doors.map(|doors| doors as &dyn DoorService),
            ledger,
            gate: gate.as_ref().map(|gate| gate as &dyn GateService),
            keep: keep.as_ref(),
        };
        let error = launch::run_with_services(&plan, &command, ahead, services);
        Err(LauncherError::Launch { sandbox: sandbox.name.clone(), error })
    }

    /// Plans the sandbox of a command for this host, and collects the command's variables.
    fn prepare(
        &self,
        sandbox: &Sandbox,
        extra: &[PathGrant],
        script: &str,
        doors: Option<&RoomDoors<'_>>,
        host: HostFacts,
        environment: Vec<(OsString, OsString)>,
    ) -> Result<PreparedRoom, LauncherError> {
        let tmp = self.hold_tmp(sandbox)?;
        let disk = host.disk();
        let agent = self.lend_agent(script, sandbox, &host);
        let narrowed = agent.as_ref().map(|_| ssh_agent::without_shared_tmp(sandbox));
        let sandbox = narrowed.as_ref().unwrap_or(sandbox);
        let mut extra = extra.to_vec();
        extra.extend(agent.iter().map(|agent| PathGrant {
            path: agent.socket.clone(),
            caps: FileCaps::READ.union(FileCaps::WRITE),
            why: GrantReason::Launcher,
        }));
        let places = self.dirs.places_unseen(&self.project, &disk);
        let doors_of_room = doors.map_or(&[][..], |doors| &doors.set.directories);
        let additions = RoomAdditions { grants: &extra, doors: doors_of_room };
        let has_rooms = !matches!(host.rooms, RoomSupport::Impossible { .. });
        let plan = self.plan(sandbox, additions, &places, &disk, tmp.as_ref(), host)?;
        let mut env = self.environment(sandbox, &places, &disk, agent.as_ref(), environment);
        if !has_rooms {
            doors::take_off_path(&self.dirs, &mut env);
        }
        if let Some(doors) = doors {
            *doors.places.borrow_mut() = door_places(&plan, doors_of_room);
            if !has_rooms {
                doors.set.put_on_path(&mut env);
                if let Some(git) = doors.set.git_core() {
                    env.retain(|(name, _)| name != env::GIT_EXEC_PATH);
                    env.push((env::GIT_EXEC_PATH.into(), git.into()));
                }
            }
        }
        Ok(PreparedRoom { plan, env, agent, narrowed, tmp })
    }

    /// Plans a command behind a door once more, for a room that is kept. The seal of the plan
    /// tells whether the room still has this plan: a file that a rule denies may exist by now,
    /// or a granted one may be another. Records the launch if the seal is the expected one;
    /// `None` otherwise.
    pub(super) fn prepare_for_kept_room(
        &self,
        outer: &RoomDoors<'_>,
        sandbox: &Sandbox,
        command: &RequestedCommand<'_>,
        environment: Vec<(OsString, OsString)>,
        expected: u64,
    ) -> Result<Option<KeptCommand>, LauncherError> {
        let Some(door) = &command.door else { return Ok(None) };
        let (answers, mode) = (outer.named.clone(), outer.mode.clone());
        let doors = self.doors(outer.policy, sandbox, None, answers, mode, outer.depth + 1)?;
        let host = HostRecord::read(&self.dirs.host_record()).facts();
        let inner = doors.as_ref().map(|doors| doors.on_host(&host)).transpose()?.flatten();
        let script = command.script;
        let PreparedRoom { plan, env, agent, tmp: _tmp, .. } =
            self.prepare(sandbox, &[], script, inner, host, environment)?;
        if agent.is_some() || seal_of(&outer.seal_key, &plan) != expected {
            return Ok(None);
        }
        let program = Path::new(command.program);
        let has_door = inner.is_some_and(|doors| doors.set.name_at(program).is_some());
        let Ok(file) = has_door.then(|| real_file(program)).transpose() else { return Ok(None) };
        self.trace(TraceEvent::Launch, command.shown, None, Some(&sandbox.name))?;
        Ok(Some(KeptCommand {
            program: command.program.to_owned(),
            name: door.name.clone(),
            args: command.args.to_vec(),
            env,
            cwd: door.cwd.clone(),
            file,
            shown: command.shown.to_owned(),
        }))
    }

    /// True if every launch in this sandbox gets parts of its own, such as an agent of ssh or
    /// a host that the user allowed for one command.
    pub(super) fn has_own_parts(&self, sandbox: &Sandbox, script: &str) -> bool {
        // A kept room does not see servers of the session that began after it, and the user's
        // yes to a host is for one command.
        let NetworkAccess::Hosts { rules, .. } = &sandbox.net else {
            return ssh_agent::is_wanted(sandbox, script, &self.project, &self.dirs);
        };
        let fetches = rules.is_empty() && !sandbox.serve.is_empty();
        fetches
            || rules.iter().any(|rule| rights::is_answer(&rule.span))
            || ssh_agent::is_wanted(sandbox, script, &self.project, &self.dirs)
    }

    /// The ledger of rooms. `None` if the room ends with its command, by its policy or
    /// because it could not be listed.
    fn ledger(&self, sandbox: &Sandbox, command: &str) -> Option<Arc<dyn RoomLedger>> {
        if sandbox.lifetime == Some(ProcessLifetime::Action) {
            return None;
        }
        let record = RoomRecord::new(self.session.as_ref(), &self.project, &sandbox.name, command);
        let ledger = RecordedRoom::prepare(&self.dirs, record).ok()?;
        Some(Arc::new(ledger))
    }

    /// Plans the sandbox for this session and project. Creates missing directories of its
    /// caches.
    fn plan(
        &self,
        sandbox: &Sandbox,
        additions: RoomAdditions<'_>,
        places: &PolicyPlaces,
        disk: &Disk,
        tmp: Option<&HeldTmp>,
        host: HostFacts,
    ) -> Result<SandboxPlan, LauncherError> {
        let session = self.session.as_ref().map(|session| session.dir.as_path());
        let in_force = PolicySandboxes { dirs: &self.dirs, project: &self.project, session };
        crate::caches::make_missing(sandbox, places, disk, &in_force);
        let cage = self.dirs.cage_paths(self.dirs.cage(&self.project, disk));
        let held = tmp.map(|held| held.path.as_path());
        let caches = has_caches(sandbox).then(|| self.dirs.caches_of(&self.project, disk));
        let request = PlanRequest {
            sandbox,
            places,
            cage: &cage,
            disk,
            extra: additions.grants,
            in_force: &in_force,
            temporary: TemporaryPaths { session: held, host: &self.dirs.tmp },
            caches: caches.as_deref(),
            doors: additions.doors,
        };
        let host = host::with_limit_facts(host, &sandbox.limits);
        plan(&request, &host).map_err(|refusal| LauncherError::NoPlan {
            sandbox: sandbox.name.clone(),
            refusal: Box::new(refusal),
        })
    }

    /// The variables that the command gets: those that the sandbox does not hold back, the
    /// lent ssh agent, and the sandbox's name. Without variables that name programs if the
    /// sandbox may read credentials.
    fn environment(
        &self,
        sandbox: &Sandbox,
        places: &PolicyPlaces,
        disk: &Disk,
        agent: Option<&LentAgent>,
        given: Vec<(OsString, OsString)>,
    ) -> Vec<(OsString, OsString)> {
        let (mut env, _) = clash_sandbox::environment::scrub(given.into_iter(), &sandbox.env);
        let world = JudgeContext { links: disk, ..JudgeContext::without_disk(places) };
        if steering::reads_credentials(sandbox, &world) {
            env.retain(|(name, value)| !clash_sandbox::environment::names_program(name, value));
        }
        env.retain(|(name, _)| name != env::CLASH_SANDBOX && name != steering::SSH_AGENT_SOCKET);
        if let Some(agent) = agent {
            env.push((steering::SSH_AGENT_SOCKET.into(), agent.socket.clone().into()));
        }
        env.push((env::CLASH_SANDBOX.into(), sandbox.name.clone().into()));
        // A room shows the home at its real path only.
        if self.dirs.home != places.home {
            env::use_real_home(&mut env, &self.dirs.home, &places.home);
        }
        env
    }

    /// The agent of ssh, if the sandbox wants it and a room can have it: starts the filter
    /// process. Says on standard error why a wanted agent is not lent.
    fn lend_agent(&self, script: &str, sandbox: &Sandbox, host: &HostFacts) -> Option<LentAgent> {
        if !ssh_agent::is_wanted(sandbox, script, &self.project, &self.dirs) {
            return None;
        }
        let lent = if matches!(host.rooms, RoomSupport::Impossible { .. }) {
            Err("this machine has no user namespaces, so no socket can be lent".to_owned())
        } else if ssh_agent::mentions_tmp(script, &self.dirs.tmp) {
            Err("the command uses the temporary directory, where other sockets are".to_owned())
        } else {
            ssh_agent::lend(&self.dirs)
        };
        lent.map_err(|why| {
            let sandbox = &sandbox.name;
            let _ =
                writeln!(std::io::stderr(), "clash: sandbox {sandbox} gets no key of ssh: {why}");
        })
        .ok()
    }

    /// The session's temporary directory, if the sandbox uses it.
    fn hold_tmp(&self, sandbox: &Sandbox) -> Result<Option<HeldTmp>, LauncherError> {
        let session = self.session.as_ref().filter(|_| temporary::is_used_by(sandbox));
        let held = session.map(|session| temporary::hold(&session.dir)).transpose();
        held.map_err(|source| LauncherError::Temporary { path: self.dirs.state.clone(), source })
    }

    /// Starts the room if the record of this machine says that it can make one, and then
    /// finds out whether the record still holds.
    fn start_ahead(&self, sandbox: &Sandbox) -> (LaunchHelper, HostFacts) {
        let file = self.dirs.host_record();
        let recorded = HostRecord::read(&file);
        let ahead = if recorded.promises_rooms() {
            LaunchHelper::start(sandbox)
        } else {
            LaunchHelper::default()
        };
        (ahead, recorded.facts())
    }

    /// Becomes the command without a sandbox: a policy that the user trusts names this
    /// sandbox as unrestricted.
    fn launch_unconfined(
        &self,
        sandbox: &str,
        command: &RequestedCommand<'_>,
    ) -> Result<Never, LauncherError> {
        use std::os::unix::process::CommandExt;
        self.trace(TraceEvent::Launch, command.shown, None, Some(sandbox))?;
        let source = std::process::Command::new(command.program).args(command.args).exec();
        let program = command.program.to_owned();
        let error = match source.kind() {
            std::io::ErrorKind::NotFound => LaunchError::NotFound { program },
            _ => LaunchError::NotExecutable { program, source },
        };
        Err(LauncherError::Launch { sandbox: sandbox.to_owned(), error })
    }
}

/// True for root inside the room of a whole agent. Root makes no rooms there, and the monitor
/// that doors need cannot open the command's files. So a command there has no doors: it runs
/// with the rights of its own sandbox only.
fn is_in_room_of_root() -> bool {
    let first = std::fs::read("/proc/1/comm").unwrap_or_default();
    first.starts_with(b"clash") && rustix::process::geteuid().is_root()
}

/// A number that tells this plan from others: its text, and the files that its paths lead to
/// now. No command knows the key.
fn seal_of(key: &RandomState, plan: &SandboxPlan) -> u64 {
    struct HashedText<'a, H: Hasher>(&'a mut H);
    impl<H: Hasher> std::fmt::Write for HashedText<'_, H> {
        fn write_str(&mut self, text: &str) -> std::fmt::Result {
            self.0.write(text.as_bytes());
            Ok(())
        }
    }
    let mut seal = key.build_hasher();
    let _ = std::fmt::write(&mut HashedText(&mut seal), format_args!("{plan:?}"));
    let steps = plan.room.iter().flat_map(|room| &room.steps);
    let shown = steps.filter_map(|step| match step {
        MountStep::Bind { path, .. } | MountStep::Rebind { path, .. } => Some(path),
        MountStep::Cover { path, .. } => Some(path),
        MountStep::Show { from, .. } => Some(from),
        MountStep::Doors { doors, .. } => Some(doors),
        _ => None,
    });
    for path in plan.grants.iter().map(|grant| &grant.path).chain(shown) {
        let identity = path.symlink_metadata().map(|meta| (meta.dev(), meta.ino()));
        identity.ok().hash(&mut seal);
    }
    seal.finish()
}

/// The directories with doors: in the place of programs, or on the search path if there is
/// no room.
fn door_places(plan: &SandboxPlan, doors: &[DoorDirectory]) -> Vec<DoorPlace> {
    let Some(room) = &plan.room else {
        let on_path = |directory: &DoorDirectory| {
            let seen = std::fs::canonicalize(&directory.on_path).ok()?;
            Some(DoorPlace { seen, programs: directory.at.clone() })
        };
        return doors.iter().filter_map(on_path).collect();
    };
    let mounted = room.steps.iter().filter_map(|step| match step {
        MountStep::Doors { at, .. } => Some(at.clone()),
        _ => None,
    });
    mounted.map(|at| DoorPlace { seen: at.clone(), programs: at }).collect()
}
