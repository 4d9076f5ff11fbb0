//! Runs the phases of a launch in their order.

use std::cell::RefCell;
use std::convert::Infallible;
use std::ffi::c_long;

use super::again::KeptLauncher;
use super::attend::StartedCommand;
use super::helper::HelperProcess;
use super::prepare::{LaunchRequest, ParentParts};
use super::{
    LaunchCommand, LaunchError, LaunchServices, again, attend, connect, isolate, mount, prepare,
    restrict, spawn,
};
use crate::linux::bpf::BpfInstruction;
use crate::linux::doors::KeptPlace;
use crate::linux::landlock::{LandlockRuleset, PendingGrants};
use crate::linux::stdio::StandardStreams;
use crate::linux::supervise::{AttendedEnd, AttendedRoom, KeeperLine, KeeperOffer};
use crate::linux::target::ExecTarget;
use crate::plan::SandboxPlan;
use crate::plan::room::{MountStep, RoomInterior, RoomPlan};

pub(super) type LaunchResult<T> = Result<T, LaunchError>;

/// The data that the command's own process needs to restrict itself.
#[derive(Clone, Copy)]
pub(super) struct CommandContext<'a> {
    pub(super) plan: &'a SandboxPlan,
    pub(super) command: &'a LaunchCommand,
    pub(super) target: &'a ExecTarget,
    pub(super) filter: &'a [BpfInstruction],
    pub(super) ruleset: &'a LandlockRuleset,
    /// True if the command is to ignore SIGCHLD, as its caller did.
    pub(super) ignores_sigchld: bool,
}

/// The data of a launcher that stays as the command's parent.
pub(super) struct ParentContext<'a> {
    pub(super) launch: CommandContext<'a>,
    pub(super) room: Option<&'a RoomPlan>,
    pub(super) helper: Option<&'a HelperProcess>,
    /// The steps of the mount tree before /proc. /proc shows the processes of the process
    /// that mounts it, so the command's process carries out the others.
    pub(super) steps_before_proc: &'a [MountStep],
    pub(super) steps_from_proc: &'a [MountStep],
    /// True if the tree is entered after /proc is mounted. /proc can be mounted only while the
    /// host's is visible, and this tree lets go of the old root.
    pub(super) enters_last: bool,
}

/// Runs all phases. Without a room, a monitor or copied streams this process becomes the
/// command, otherwise it attends to it and ends as the command does. Returns only on failure.
pub(super) fn run(
    plan: &SandboxPlan,
    command: &LaunchCommand,
    helper: Option<HelperProcess>,
    services: LaunchServices<'_>,
) -> LaunchResult<Infallible> {
    let mut streams = StandardStreams::examine();
    let request = LaunchRequest::new(plan, command, streams.terminals());
    let plan = request.plan.as_ref();
    let target = ExecTarget::new(&request.command)?;
    let filter = prepare::assemble_filter(plan)?;
    let process = prepare::prepare_process(&request, &mut streams)?;
    let (ruleset, ignores_sigchld) = (&process.ruleset, process.ignores_sigchld);
    let launch = CommandContext {
        plan,
        command: &request.command,
        target: &target,
        filter: &filter,
        ruleset,
        ignores_sigchld,
    };
    let grants = PendingGrants::from_plan(plan, ruleset)?;
    if plan.room.is_none() && plan.watch.is_none() && !process.copies_streams {
        drop(helper);
        grants.add_to_ruleset(ruleset).map_err(|missed| grants.error_with_path(missed))?;
        return Err(restrict::become_command(launch, &mut 0, || Ok(())));
    }
    // A helper that was started because of a wrong record has made nothing of use.
    let uses_helper = plan.room.as_ref().is_some_and(|room| room.user_namespace);
    let helper = helper.filter(|_| uses_helper);
    let parent = ParentContext::new(launch, helper.as_ref());
    let ParentParts { filling, cwd, cgroup, numbers, ports, monitor, broker } =
        prepare::prepare_parent(&parent, grants, &services)?;
    let line = services.ledger.map(KeeperLine::new).transpose().map_err(LaunchError::KeeperLine)?;
    let (line, post) = line.unzip();
    let isolated = isolate::isolate(&parent, monitor, post, &streams)?;
    let mut tree = mount::mount(&parent, isolated.parts, &filling)?;
    connect::connect(&parent, ports.as_ref(), &filling)?;
    let keeper = spawn::start_keeper(&parent, ports, cgroup, process.scratch)?;
    let keeper = keeper.with_outputs(process.outputs).with_doors(broker);
    let diagnosis = attend::diagnosis(plan);
    let offer = services.keep.filter(|_| again::may_keep(plan)).zip(line.as_ref());
    let condition = RefCell::new(None);
    let when_settled =
        || *condition.borrow_mut() = offer.and_then(|(_, line)| again::condition(plan, line));
    let numbers = numbers.as_ref();
    let settings = spawn::CommandSettings { cwd: &cwd, numbers, when_settled: &when_settled };
    let mut listener: c_long = 0;
    let started =
        spawn::spawn(&parent, &keeper, settings, tree.as_mut(), &isolated.mask, &mut listener);
    // By now the helper has ended, so dropping it does not wait.
    drop(helper);
    let command = started?;
    let given = request.command.door.as_ref().map_or(&[][..], |door| &door.descriptors);
    let heir = line.as_ref().map(|line| KeeperOffer { line, given });
    let (stdio, monitor) = (&isolated.stdio, isolated.monitor);
    let started = StartedCommand {
        pid: command,
        listener,
        monitor,
        diagnosis: diagnosis.clone(),
        stdio,
        heir,
    };
    // The room is registered at the last moment, when nothing is in its way.
    let (mut condition, place) = (condition.take(), RefCell::new(None));
    let is_kept = || {
        *place.borrow_mut() = offer.filter(|_| condition.is_some()).and_then(|it| it.0.register());
        place.borrow().is_some()
    };
    match attend::attend(plan, AttendedRoom { keeper, is_kept: &is_kept }, started) {
        AttendedEnd::Failed(error) => Err(error),
        AttendedEnd::Free(keeper, end) => match (offer, place.take(), condition.take()) {
            (Some((_, line)), Some(place), Some(condition)) => {
                let condition = condition.with_sockets(KeptPlace::SOCKETS);
                KeptLauncher { launch, line, place, condition, diagnosis, given }
                    .serve(*keeper, &end)
            }
            _ => end.repeat(),
        },
    }
}

impl<'a> ParentContext<'a> {
    /// Splits the steps of the room at the mount of /proc, which only a process in the new
    /// namespace can make.
    fn new(launch: CommandContext<'a>, helper: Option<&'a HelperProcess>) -> Self {
        let room = launch.plan.room.as_ref();
        let steps = room.map_or(&[][..], |room| &room.steps);
        let proc = steps.iter().position(|step| matches!(step, MountStep::Processes { .. }));
        let (steps_before_proc, steps_from_proc) = steps.split_at(proc.unwrap_or(steps.len()));
        let enters_last = room.is_some_and(|room| room.inside == RoomInterior::Rooms);
        Self { launch, room, helper, steps_before_proc, steps_from_proc, enters_last }
    }
}
