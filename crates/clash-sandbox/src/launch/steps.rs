//! The steps of a launch, as [`crate::launch`] lists them.

use std::convert::Infallible;
use std::ffi::{CString, OsStr, c_long};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use rustix::thread::{SecureComputingMode, secure_computing_mode};

use super::helper::{self, Ahead};
use super::{Command, LaunchError};
use crate::linux::bpf::BpfInstruction;
use crate::linux::cgroup::RoomCgroup;
use crate::linux::landlock::{LandlockRuleset, PendingGrants};
use crate::linux::monitor::{CallMonitor, WaitingMonitor};
use crate::linux::mounts::{MountTree, RoomParts};
use crate::linux::outputs::{self, OutputCopier};
use crate::linux::ports::PortCrossing;
use crate::linux::scratch::{self, ScratchDirectory};
use crate::linux::stdio::{InheritedStdio, StandardStreams};
use crate::linux::supervise::{RoomKeeper, attend};
use crate::linux::target::ExecTarget;
use crate::linux::{caps, landlock, limits, namespaces, redirect, seccomp, sys, terminal};
use crate::plan::room::{Inside, Room, Step};
use crate::plan::{self, Plan};

type Result<T> = std::result::Result<T, LaunchError>;

/// Steps 1 to 3, and then the others in this process or as its parent.
pub(crate) fn run(plan: &Plan, command: &Command, helper: Option<Ahead>) -> Result<Infallible> {
    // Everything that allocates or can be wrong in the request comes first.
    let mut streams = StandardStreams::examine();
    let terminals = streams.terminals();
    let hidden = terminal::is_behind(terminals).then(|| terminal::hidden(plan));
    let plan = hidden.as_ref().unwrap_or(plan);
    let mut own_tmp = None;
    let with_tmp = plan.scratch.as_ref().map(|tmp| match tmp {
        plan::Scratch::Session(path) => (plan.clone(), scratch::named(path, command)),
        plan::Scratch::Below(parent) => {
            scratch::given(own_tmp.insert(scratch::name(parent)), plan, command)
        }
    });
    let (plan, command) = with_tmp.as_ref().map_or((plan, command), |(p, c)| (p, c));
    let redirected = (!plan.redirects.is_empty()).then(|| redirect::given(plan, command));
    let (plan, command) = redirected.as_ref().map_or((plan, command), |(p, c)| (p, c));
    let target = ExecTarget::new(command)?;
    let filter =
        seccomp::filter(seccomp::FilterSurface::from_plan(plan)).map_err(LaunchError::Filter)?;

    // The relay, the monitor and the command all get it from here.
    limits::no_core_files().map_err(|e| LaunchError::Limits(e.into()))?;
    // Whoever started us may forget his children; how the command ends must be known.
    let forgets_children = sys::notice_children();
    terminal::apart(terminals).map_err(LaunchError::Terminal)?;
    if let Some(cwd) = &command.cwd {
        rustix::process::chdir(cwd).map_err(|source| LaunchError::WorkingDirectory {
            path: cwd.clone(),
            source: source.into(),
        })?;
    }
    let scratch = own_tmp.as_deref().map(ScratchDirectory::make).transpose();
    let scratch = scratch.map_err(LaunchError::Scratch)?;
    let stays = outputs::is_needed(&streams) || streams.has_writable_input();
    let outputs = OutputCopier::start(&plan.limits, &streams).map_err(LaunchError::Outputs)?;
    // A directory on stdio must be gone before its descriptor could be granted.
    let replaced = landlock::no_directory_as_stdio(&streams);
    let replaced = replaced.map_err(|e| LaunchError::Descriptors(e.into()))?;
    if replaced || outputs.is_some() || terminals != [false; 3] {
        streams = StandardStreams::examine();
    }
    let ruleset = landlock::ruleset(plan, &streams)?;
    sys::close_on_exec_from_3().map_err(LaunchError::Descriptors)?;
    let confined = Confined { plan, target: &target, filter: &filter, forgets_children };
    let given = PendingGrants::from_plan(plan, &ruleset)?;
    if plan.room.is_some() || plan.watch.is_some() || stays {
        let parent = Parent::new(confined, &ruleset, helper);
        let prepared = parent.prepare(given, scratch, outputs, &streams)?;
        return Err(parent.run(prepared));
    }
    drop(helper);
    given.put_into(&ruleset).map_err(|missed| given.error(missed))?;
    Err(confined.become_command(&ruleset, &mut 0, || Ok(())))
}

/// What is left to do once the command's view of the disk is right.
#[derive(Clone, Copy)]
struct Confined<'a> {
    plan: &'a Plan,
    target: &'a ExecTarget,
    filter: &'a [BpfInstruction],
    /// Whether the command is to ignore SIGCHLD, as its caller did.
    forgets_children: bool,
}

impl Confined<'_> {
    /// Steps 7 to 12. What the kernel answers to the filter is the listener.
    fn become_command(
        self,
        ruleset: &LandlockRuleset,
        listener: &mut c_long,
        release_signals: impl FnOnce() -> io::Result<()>,
    ) -> LaunchError {
        let mut restrict = || {
            limits::set(&self.plan.limits, self.plan.group.is_some())
                .map_err(|e| LaunchError::Limits(e.into()))?;
            rustix::thread::set_no_new_privs(true)
                .map_err(|e| LaunchError::NoNewPrivs(e.into()))?;
            landlock::enter(ruleset)?;
            caps::drop_all(self.plan.root).map_err(|e| LaunchError::Capabilities(e.into()))?;
            let flags = if self.plan.watch.is_some() { sys::WITH_LISTENER } else { 0 };
            *listener = sys::install_filter(self.filter, flags).map_err(|error| {
                match error.raw_os_error() {
                    Some(libc::EBUSY) => LaunchError::AlreadyWatched,
                    _ => LaunchError::Seccomp(error),
                }
            })?;
            if self.forgets_children {
                sys::forget_children();
            }
            sys::default_sigpipe().map_err(LaunchError::Signals)
        };
        match restrict().and_then(|()| release_signals().map_err(LaunchError::Signals)) {
            Ok(()) => self.target.execute(),
            Err(error) => error,
        }
    }
}

/// The command's parent: who does steps 4 to 6 and 13.
struct Parent<'a> {
    confined: Confined<'a>,
    plan: &'a Plan,
    room: Option<&'a Room>,
    ruleset: &'a LandlockRuleset,
    helper: Option<Ahead>,
    /// The steps of the view up to /proc, which shows the processes of whoever mounts it.
    before_processes: &'a [Step],
    from_processes: &'a [Step],
    /// /proc can only be mounted where the host's is still there: a root that lets go of
    /// the old one comes after it.
    enters_last: bool,
}

/// Everything that is there before the command's process is.
struct Prepared {
    cwd: CString,
    view: Option<MountTree>,
    monitor: Option<WaitingMonitor>,
    mask: sys::SignalMask,
    inherited: InheritedStdio,
    keeper: RoomKeeper,
    /// Where the numbers of processes are limited, and to how many.
    numbers: Option<(OwnedFd, u64)>,
}

impl<'a> Parent<'a> {
    fn new(confined: Confined<'a>, ruleset: &'a LandlockRuleset, helper: Option<Ahead>) -> Self {
        let plan = confined.plan;
        let room = plan.room.as_ref();
        // Begun on the word of a record that was wrong, it has nothing to say that is
        // waited for here.
        let helper = helper.filter(|_| room.is_some_and(|room| room.user_namespace));
        let steps = room.map_or(&[][..], |room| &room.steps);
        let of_processes = steps.iter().position(|step| matches!(step, Step::Processes { .. }));
        let (before_processes, from_processes) =
            steps.split_at(of_processes.unwrap_or(steps.len()));
        let enters_last = room.is_some_and(|room| room.inside == Inside::Rooms);
        Self {
            confined,
            plan,
            room,
            ruleset,
            helper,
            before_processes,
            from_processes,
            enters_last,
        }
    }

    fn prepare(
        &self,
        given: PendingGrants,
        scratch: Option<ScratchDirectory>,
        outputs: Option<OutputCopier>,
        streams: &StandardStreams,
    ) -> Result<Prepared> {
        let helper = self.helper.as_ref();
        let filling = Filling::start(given, self.ruleset, helper);
        let cwd = rustix::process::getcwd(Vec::new())
            .map_err(|e| LaunchError::WorkingDirectory { path: ".".into(), source: e.into() })?;
        let group = self.plan.group.as_deref();
        let group = group.map(|parent| RoomCgroup::new(parent, &self.plan.limits)).transpose();
        let group = group.map_err(LaunchError::Limits)?;
        let numbers = self.numbers(group.is_some())?;
        let ports = self.room.map(|room| PortCrossing::start(&room.ports)).transpose()?;
        let monitor = self.monitor()?;
        let parts = self.room.map(|room| helper::leave_host(room, helper)).transpose()?;
        let inherited = match self.room {
            Some(room) => InheritedStdio::guard(&room.returned, streams),
            None => InheritedStdio::guard_roomless(streams),
        };
        let mask = sys::hold_signals().map_err(LaunchError::Signals)?;
        let monitor = monitor.map(CallMonitor::wait).transpose().map_err(LaunchError::Monitor)?;
        let view = parts.map(|parts| self.build(parts)).transpose()?;
        let all_done_here = filling.help()?;
        if let (Some(room), Some(view), false) = (self.room, &view, self.enters_last) {
            view.enter(room.inside).map_err(|e| LaunchError::Enter(e.into()))?;
        }
        if let Some(room) = self.room
            && room.own_network
        {
            helper::own_network(helper)?;
            if let Some(ports) = &ports {
                ports.listen(&room.ports)?;
            }
        }
        // Whoever could not make namespaces has taken no rule either.
        if !all_done_here {
            filling.finish()?;
        }
        if let Some(helper) = helper {
            helper.let_go();
        }
        // Before anybody is there to look into this process.
        sys::undumpable().map_err(LaunchError::Namespaces)?;
        let keeper = if self.room.is_some() {
            namespaces::own_processes()?;
            RoomKeeper::start(ports, group)?
        } else {
            RoomKeeper::of_children(group, scratch)?
        };
        let keeper = keeper.with_outputs(outputs);
        Ok(Prepared { cwd, view, monitor, mask, inherited, keeper, numbers })
    }

    /// Without a cgroup, root's processes are counted by their numbers.
    fn numbers(&self, counted: bool) -> Result<Option<(OwnedFd, u64)>> {
        let needed = self.plan.root && self.room.is_some() && !counted;
        let Some(most) = self.plan.limits.processes.filter(|_| needed) else { return Ok(None) };
        let settings = limits::process_numbers().map_err(|e| LaunchError::Limits(e.into()))?;
        Ok(Some((settings, most)))
    }

    fn monitor(&self) -> Result<Option<CallMonitor>> {
        let Some(watch) = &self.plan.watch else { return Ok(None) };
        // The filter of an outer sandbox may forbid it; then every call would be refused
        // without a word.
        if !matches!(secure_computing_mode(), Ok(SecureComputingMode::Disabled)) {
            sys::memory_can_be_reached().map_err(|e| LaunchError::Unseen(e.into()))?;
        }
        let monitor = CallMonitor::new(self.ruleset.clone(), watch, self.plan.root);
        monitor.map(Some).map_err(|e| LaunchError::Monitor(e.into()))
    }

    fn build(&self, parts: RoomParts) -> Result<MountTree> {
        let mut view = MountTree::new(parts, self.before_processes)
            .map_err(|e| LaunchError::Root(e.into()))?;
        self.before_processes.iter().try_for_each(|step| view.step(step))?;
        Ok(view)
    }

    /// Steps 6 to 13. Returns when the command could not be started or is out of time.
    fn run(mut self, prepared: Prepared) -> LaunchError {
        let Prepared { cwd, mut view, monitor, mask, inherited, keeper, numbers } = prepared;
        let helper = self.helper.take();
        // Nobody else has been sent it: the command is not there yet.
        if let Err(error) = sys::let_through(&mask) {
            return LaunchError::Signals(error);
        }
        let (mut failure, mut listener, mut stop) = (None, 0, None);
        let started = keeper.run_until_exec(|| {
            // Stopped before it is the command, it would keep us waiting.
            let release_signals = || {
                stop = sys::held_stop();
                sys::set_mask(&mask)
            };
            let group = keeper.group.as_ref();
            let settled = self.settle(&cwd, view.as_mut(), group, numbers.as_ref());
            failure = Some(match settled {
                Ok(()) => {
                    self.confined.become_command(self.ruleset, &mut listener, release_signals)
                }
                Err(error) => error,
            });
        });
        // By now it has gone, so nobody waits for it.
        drop(helper);
        let child = match (started, failure) {
            (Ok(child), None) => child,
            (Ok(_), Some(error)) => return error,
            (Err(error), _) => return LaunchError::Process(error),
        };
        if let Some(signal) = stop {
            sys::kill(child, signal);
        }
        if let Some((monitor, listener)) = monitor.zip(sys::listener(listener)) {
            monitor.start(listener);
        }
        let lives_on = self.room.is_some_and(|room| room.lives_on);
        attend(keeper, &inherited, child, lives_on, self.plan.limits.wall_seconds)
    }

    /// What the command's own process has to do in the room.
    fn settle(
        &self,
        cwd: &CString,
        view: Option<&mut MountTree>,
        group: Option<&RoomCgroup>,
        numbers: Option<&(OwnedFd, u64)>,
    ) -> Result<()> {
        match (group, numbers) {
            (Some(group), _) => group.join(),
            (None, Some((settings, most))) => limits::number_processes(settings, *most),
            (None, None) => Ok(()),
        }
        .map_err(|e| LaunchError::Limits(e.into()))?;
        let (Some(room), Some(view)) = (self.room, view) else {
            return sys::die_with_parent().map_err(LaunchError::Process);
        };
        self.from_processes.iter().try_for_each(|step| view.step(step))?;
        landlock::own_places(self.plan, room, view, self.ruleset)?;
        if self.enters_last {
            view.enter(room.inside).map_err(|e| LaunchError::Enter(e.into()))?;
        }
        rustix::process::chdir(cwd).map_err(|source| LaunchError::NotInRoom {
            path: PathBuf::from(OsStr::from_bytes(cwd.as_bytes())),
            source: source.into(),
        })
    }
}

/// Opening what is granted takes as long as building the view.
struct Filling<'a> {
    given: &'static PendingGrants,
    ruleset: &'a LandlockRuleset,
    helper: Option<&'a Ahead>,
}

impl<'a> Filling<'a> {
    fn start(
        given: PendingGrants,
        ruleset: &'a LandlockRuleset,
        helper: Option<&'a Ahead>,
    ) -> Self {
        let given: &'static PendingGrants = Box::leak(Box::new(given));
        let helper = helper.filter(|helper| helper.hand_over(given, ruleset));
        Self { given, ruleset, helper }
    }

    /// Does what the helper has not begun. Says whether that was all there is.
    fn help(&self) -> Result<bool> {
        self.given.put_into(self.ruleset).map_err(|missed| self.given.error(missed))
    }

    fn finish(&self) -> Result<()> {
        let Some(helper) = self.helper else { return Ok(()) };
        helper.taken().ok_or(LaunchError::Helper)?.map_err(|missed| self.given.error(missed))
    }
}
