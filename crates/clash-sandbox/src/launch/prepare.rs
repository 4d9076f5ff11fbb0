//! Phase `prepare`: work with the rights of the caller, in the host's namespaces.

use std::borrow::Cow;
use std::cell::Cell;
use std::ffi::{CString, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use rustix::thread::{SecureComputingMode, secure_computing_mode};

use super::helper::HelperProcess;
use super::phases::{LaunchResult, ParentContext};
use super::{LaunchCommand, LaunchError, LaunchServices};
use crate::linux::bpf::BpfInstruction;
use crate::linux::cgroup::RoomCgroup;
use crate::linux::doors::{DoorBroker, DoorLine, start_broker};
use crate::linux::landlock::{LandlockRuleset, PendingGrants};
use crate::linux::monitor::{CallMonitor, HandoverLine};
use crate::linux::outputs::{self, OutputCopier};
use crate::linux::ports::PortCrossing;
use crate::linux::scratch::{self, ScratchDirectory};
use crate::linux::stdio::StandardStreams;
use crate::linux::{landlock, limits, redirect, seccomp, sys, terminal};
use crate::plan::{self, SandboxPlan};

/// The plan and the command, with the launcher's own additions.
pub(super) struct LaunchRequest<'a> {
    pub(super) plan: Cow<'a, SandboxPlan>,
    pub(super) command: Cow<'a, LaunchCommand>,
    /// The temporary directory that the launcher makes for this command.
    own_tmp: Option<PathBuf>,
    /// The standard streams that are terminals.
    terminals: [bool; 3],
}

impl<'a> LaunchRequest<'a> {
    /// The plan and command of a launch, changed where this needs it: hides a terminal that
    /// no stream has, and adds the temporary directory and the caches of the roomless tiers.
    /// Makes no file.
    pub(super) fn new(
        plan: &'a SandboxPlan,
        command: &'a LaunchCommand,
        terminals: [bool; 3],
    ) -> Self {
        let (mut plan, mut command) = (Cow::Borrowed(plan), Cow::Borrowed(command));
        if terminal::has_unused_terminal(terminals) {
            plan = Cow::Owned(terminal::without_terminal(&plan));
        }
        let mut own_tmp = None;
        match &plan.scratch {
            Some(plan::ScratchPlan::Session(path)) => {
                command = Cow::Owned(scratch::set_tmp_variables(path, &command));
            }
            Some(plan::ScratchPlan::Below(parent)) => {
                let path = own_tmp.insert(scratch::choose_path(parent));
                let (with_tmp, named) = scratch::add_scratch(path, &plan, &command);
                (plan, command) = (Cow::Owned(with_tmp), Cow::Owned(named));
            }
            None => {}
        }
        if !plan.redirects.is_empty() {
            let (redirected, named) = redirect::add_redirects(&plan, &command);
            (plan, command) = (Cow::Owned(redirected), Cow::Owned(named));
        }
        Self { plan, command, own_tmp, terminals }
    }
}

pub(super) fn assemble_filter(plan: &SandboxPlan) -> LaunchResult<Vec<BpfInstruction>> {
    seccomp::filter(seccomp::FilterSurface::from_plan(plan)).map_err(LaunchError::FilterAssembly)
}

/// The state of the calling process after its preparation.
pub(super) struct PreparedProcess {
    pub(super) ruleset: LandlockRuleset,
    pub(super) ignores_sigchld: bool,
    pub(super) scratch: Option<ScratchDirectory>,
    pub(super) outputs: Option<OutputCopier>,
    /// True if the launcher has to stay for the standard streams.
    pub(super) copies_streams: bool,
}

/// Prepares this process: no core files, a terminal of its own, the working directory, the
/// temporary directory, copied outputs. Makes the empty ruleset, and marks all descriptors
/// from 3 on to close at `execve`, except those of a door.
pub(super) fn prepare_process(
    request: &LaunchRequest<'_>,
    streams: &mut StandardStreams,
) -> LaunchResult<PreparedProcess> {
    let LaunchRequest { plan, command, own_tmp, terminals } = request;
    // The relay, the monitor and the command inherit this limit.
    limits::no_core_files().map_err(|e| LaunchError::CoreLimit(e.into()))?;
    // A caller may ignore SIGCHLD, but the launcher must see the end of the command.
    let ignores_sigchld = sys::notice_children();
    if command.door.is_none() {
        terminal::separate_terminal(*terminals).map_err(LaunchError::Terminal)?;
    }
    if let Some(cwd) = &command.cwd {
        rustix::process::chdir(cwd).map_err(|source| LaunchError::WorkingDirectory {
            path: cwd.clone(),
            source: source.into(),
        })?;
    }
    let scratch = own_tmp.as_deref().map(ScratchDirectory::make).transpose();
    let scratch = scratch.map_err(LaunchError::TemporaryDirectory)?;
    let is_door = command.door.is_some();
    let copies_streams = !is_door && (outputs::is_needed(streams) || streams.has_writable_input());
    let outputs = match is_door {
        true => None,
        false => OutputCopier::start(&plan.limits, streams).map_err(LaunchError::OutputCopy)?,
    };
    // Before a rule could grant the directory to its descriptor.
    let replaced = landlock::replace_directories_on_stdio(streams);
    let replaced = replaced.map_err(|e| LaunchError::Stdio(e.into()))?;
    if replaced || outputs.is_some() || *terminals != [false; 3] {
        *streams = StandardStreams::examine();
    }
    let ruleset = landlock::make_ruleset(plan, streams)?;
    sys::close_on_exec_from_3().map_err(LaunchError::Descriptors)?;
    let kept = command.door.iter().flat_map(|door| &door.descriptors);
    kept.for_each(|fd| sys::keep_across_exec(*fd));
    Ok(PreparedProcess { ruleset, ignores_sigchld, scratch, outputs, copies_streams })
}

/// The parts that a launcher needs to stay as the command's parent.
pub(super) struct ParentParts<'a> {
    pub(super) filling: GrantFilling<'a>,
    pub(super) cwd: CString,
    pub(super) cgroup: Option<RoomCgroup>,
    /// The host's settings of process numbers, and the limit.
    pub(super) numbers: Option<(OwnedFd, u64)>,
    pub(super) ports: Option<PortCrossing>,
    pub(super) monitor: Option<CallMonitor>,
    pub(super) broker: Option<DoorBroker>,
}

/// Starts what works beside the command: the broker of the doors, the filling of the ruleset,
/// the cgroup, the port forwarder, and the monitor.
pub(super) fn prepare_parent<'a>(
    parent: &ParentContext<'a>,
    grants: PendingGrants,
    services: &LaunchServices<'_>,
) -> LaunchResult<ParentParts<'a>> {
    let plan = parent.launch.plan;
    let doors = services.doors.map(start_broker).transpose().map_err(LaunchError::Broker)?;
    let (line, broker) = doors.unzip();
    let filling = GrantFilling::start(grants, parent.launch.ruleset, parent.helper);
    let cwd = working_directory(parent.launch.command)?;
    let cgroup = plan.group.as_deref().map(|group| RoomCgroup::new(group, &plan.limits));
    let cgroup = cgroup.transpose().map_err(LaunchError::Cgroup)?;
    let numbers = process_numbers(parent, cgroup.is_some())?;
    let start = |room| PortCrossing::start(room, services.gate, services.servers);
    let mut ports = parent.room.map(start).transpose()?;
    let handover = ports.as_mut().and_then(PortCrossing::take_line);
    let monitor = monitor(parent, line, handover)?;
    Ok(ParentParts { filling, cwd, cgroup, numbers, ports, monitor, broker })
}

/// The working directory of the command: that of the door's visitor, or this process's own.
fn working_directory(command: &LaunchCommand) -> LaunchResult<CString> {
    if let Some(door) = &command.door {
        let cwd = door.cwd.clone().into_os_string();
        return CString::new(cwd.into_vec())
            .map_err(|error| LaunchError::NulByte(OsString::from_vec(error.into_vec())));
    }
    rustix::process::getcwd(Vec::new())
        .map_err(|e| LaunchError::WorkingDirectory { path: ".".into(), source: e.into() })
}

/// Without a cgroup, root's processes are limited by the room's process numbers.
fn process_numbers(
    parent: &ParentContext<'_>,
    in_cgroup: bool,
) -> LaunchResult<Option<(OwnedFd, u64)>> {
    let plan = parent.launch.plan;
    let needed = plan.root && parent.room.is_some() && !in_cgroup;
    let Some(most) = plan.limits.processes.filter(|_| needed) else { return Ok(None) };
    let settings =
        limits::open_number_settings().map_err(|e| LaunchError::ProcessNumbers(e.into()))?;
    Ok(Some((settings, most)))
}

/// The monitor that the plan asks for, not yet running. Fails if an outer sandbox keeps it
/// from reading memory.
fn monitor(
    parent: &ParentContext<'_>,
    doors: Option<DoorLine>,
    handover: Option<HandoverLine>,
) -> LaunchResult<Option<CallMonitor>> {
    let plan = parent.launch.plan;
    let Some(watch) = &plan.watch else { return Ok(None) };
    // The filter of an outer sandbox may forbid to read memory. The monitor would then
    // refuse every call without a reason.
    if !matches!(secure_computing_mode(), Ok(SecureComputingMode::Disabled)) {
        sys::memory_can_be_reached().map_err(|e| LaunchError::MemoryAccess(e.into()))?;
    }
    let monitor = CallMonitor::new(parent.launch.ruleset.clone(), watch, plan.root, doors);
    let monitor = monitor.map(|monitor| monitor.with_handover(handover));
    monitor.map(Some).map_err(|e| LaunchError::Monitor(e.into()))
}

/// Adds the grants to the ruleset, together with the helper. Opening the granted paths takes
/// as long as building the mount tree.
pub(super) struct GrantFilling<'a> {
    grants: &'static PendingGrants,
    ruleset: &'a LandlockRuleset,
    helper: Option<&'a HelperProcess>,
    /// True if the launcher has added every grant. A helper that could not make namespaces
    /// takes no grant, and its end must not fail the launch.
    complete: Cell<bool>,
}

impl<'a> GrantFilling<'a> {
    /// Gives the grants to the helper as well, if it can take some.
    fn start(
        grants: PendingGrants,
        ruleset: &'a LandlockRuleset,
        helper: Option<&'a HelperProcess>,
    ) -> Self {
        let grants: &'static PendingGrants = Box::leak(Box::new(grants));
        let helper = helper.filter(|helper| helper.hand_over(grants, ruleset));
        Self { grants, ruleset, helper, complete: Cell::new(false) }
    }

    /// Adds the grants that the helper has not taken.
    pub(super) fn add_rest(&self) -> LaunchResult<()> {
        let all = self
            .grants
            .add_to_ruleset(self.ruleset)
            .map_err(|missed| self.grants.error_with_path(missed))?;
        self.complete.set(all);
        Ok(())
    }

    /// Waits until the helper has added its grants.
    pub(super) fn finish(&self) -> LaunchResult<()> {
        let Some(helper) = self.helper.filter(|_| !self.complete.get()) else { return Ok(()) };
        helper
            .taken()
            .ok_or(LaunchError::Helper)?
            .map_err(|missed| self.grants.error_with_path(missed))
    }
}
