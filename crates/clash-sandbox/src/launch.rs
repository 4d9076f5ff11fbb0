//! Carries a plan out and lets the command take over.
//!
//! The steps, in this order; `docs/launch.md` says the same and why, and each
//! has its own error variant so that a failure names its step:
//!
//!  1. take a terminal of one's own if the user's is on stdin, stdout or stderr;
//!     change to the working directory; make a temporary directory   (watched only)
//!  2. take directories off stdin, stdout and stderr; make the Landlock ruleset;
//!     open every granted path and put it in, with a parent during steps 4 and 5
//!     and with the help of another process
//!  3. mark every descriptor from 3 on close-on-exec
//!  4. leave the host's namespaces                      (rooms only)
//!     as far as they were made ahead by joining those; the network after step 5
//!  5. build the room's view of the disk and enter it   (rooms only)
//!  6. start the room's process 1                       (rooms only)
//!     and the command's own                            (rooms, or watched)
//!  7. set limits
//!  8. set no_new_privs
//!  9. enter the Landlock domain
//! 10. drop capabilities
//! 11. install the seccomp filter, with a listener if the plan is watched
//! 12. give signals back their meaning and `execve`
//! 13. answer for the command                           (if watched)
//!
//! Without a room or a monitor all of it happens to the calling process, which
//! becomes the command. With either, the steps from 7 to 12 are the command's own
//! process, and the caller stays as its parent until it ends, and ends the same
//! way.
//!
//! Nothing is undone on failure: the process is then partly restricted and good
//! for nothing but reporting the error and exiting.

use std::ffi::OsString;
use std::io;
#[cfg(target_os = "linux")]
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use clash_policy::Sandbox;

use crate::plan::Plan;
#[cfg(target_os = "linux")]
use crate::{
    linux::landlock::{Given, Ruleset},
    room::{Inside, Room, Step},
};

#[cfg(target_os = "linux")]
pub use crate::linux::bpf::BpfError;

/// What to run. `env` is the whole environment, already scrubbed.
#[derive(Clone, Debug, Default)]
pub struct Command {
    /// Searched for in the `PATH` of `env` unless it has a slash.
    pub program: OsString,
    /// Without the program itself.
    pub args: Vec<OsString>,
    pub env: Vec<(OsString, OsString)>,
    pub cwd: Option<PathBuf>,
}

#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    #[error("`{}` has a NUL byte in it", .0.to_string_lossy())]
    NulByte(OsString),
    #[error("step 1, a terminal of its own")]
    Terminal(#[source] io::Error),
    #[error("step 1, working directory `{}`", path.display())]
    WorkingDirectory { path: PathBuf, source: io::Error },
    #[error("step 1, a temporary directory of the command's own")]
    Scratch(#[source] io::Error),
    #[error("step 2, opening the granted path `{}`", path.display())]
    Grant { path: PathBuf, source: io::Error },
    #[error("step 2, building the Landlock ruleset")]
    Ruleset(#[source] io::Error),
    #[error("step 2, the process that helps ended too early")]
    Helper,
    #[error("step 3, closing inherited descriptors")]
    Descriptors(#[source] io::Error),
    #[error("step 4, new namespaces")]
    Namespaces(#[source] io::Error),
    #[error("step 4, the user's identity in the new namespace")]
    Identity(#[source] io::Error),
    #[error("step 4, the loopback interface")]
    Loopback(#[source] io::Error),
    #[error("step 4, port {port} of the loopback interface")]
    Port { port: u16, source: io::Error },
    #[error("step 4, starting the process that forwards ports")]
    Forwarder(#[source] io::Error),
    #[error("step 6, starting the room's process 1")]
    Keeper(#[source] io::Error),
    #[error("step 6, starting the command's process")]
    Process(#[source] io::Error),
    #[error("step 5, the room's root")]
    Root(#[source] io::Error),
    #[error("step 5, {step}")]
    View { step: String, source: io::Error },
    #[error("step 5, entering the room")]
    Enter(#[source] io::Error),
    #[error("step 6, working directory `{}`, which is not part of the sandbox", path.display())]
    NotInRoom { path: PathBuf, source: io::Error },
    #[error("step 7, limits")]
    Limits(#[source] io::Error),
    #[error("step 8, no_new_privs")]
    NoNewPrivs(#[source] io::Error),
    #[error("step 9, entering the Landlock domain")]
    Landlock(#[source] io::Error),
    #[error("step 10, dropping capabilities")]
    Capabilities(#[source] io::Error),
    #[cfg(target_os = "linux")]
    #[error("step 11, assembling the seccomp filter")]
    Filter(#[source] BpfError),
    #[error("step 11, installing the seccomp filter")]
    Seccomp(#[source] io::Error),
    #[error("step 11, watching the command's calls, which a sandbox around this one already does")]
    AlreadyWatched,
    #[error(
        "step 6, seeing what the command's calls are about, which a sandbox around this one forbids"
    )]
    Unseen(#[source] io::Error),
    #[error("step 12, signals")]
    Signals(#[source] io::Error),
    /// Shells report this as 127.
    #[error("`{}` not found", program.to_string_lossy())]
    NotFound { program: OsString },
    /// Shells report this as 126.
    #[error("`{}` cannot be executed", program.to_string_lossy())]
    NotExecutable { program: OsString, source: io::Error },
    #[error("the command was ended after {seconds} s, the sandbox's limit")]
    OutOfTime { seconds: u64 },
    #[error("step 13, starting the monitor")]
    Monitor(#[source] io::Error),
    #[error("waiting for the command")]
    Waiting(#[source] io::Error),
    #[error("the process that was to become the command ended before it did")]
    Vanished,
    #[error("this system has no sandbox that clash can use")]
    Unsupported,
}

/// What is begun before there is a plan.
#[derive(Debug, Default)]
pub struct Ahead {
    #[cfg(target_os = "linux")]
    namespaces: Option<crate::linux::ahead::Ahead>,
}

impl Ahead {
    /// To be called as soon as the sandbox is known, and before any thread is made,
    /// where user namespaces are likely to work.
    #[cfg(target_os = "linux")]
    pub fn start(sandbox: &Sandbox) -> Self {
        let own_network = crate::plan::namespaces(sandbox);
        Self { namespaces: own_network.and_then(crate::linux::ahead::Ahead::start) }
    }

    #[cfg(not(target_os = "linux"))]
    pub fn start(_: &Sandbox) -> Self {
        Self::default()
    }
}

/// Runs the command inside the plan. Returns only on failure.
pub fn run(plan: &Plan, command: &Command, ahead: Ahead) -> LaunchError {
    match steps(plan, command, ahead) {
        Ok(never) => match never {},
        Err(error) => error,
    }
}

#[cfg(not(target_os = "linux"))]
fn steps(_: &Plan, _: &Command, _: Ahead) -> Result<std::convert::Infallible, LaunchError> {
    Err(LaunchError::Unsupported)
}

#[cfg(target_os = "linux")]
fn steps(
    plan: &Plan,
    command: &Command,
    ahead: Ahead,
) -> Result<std::convert::Infallible, LaunchError> {
    use crate::linux::scratch::{self, Scratch};
    use crate::linux::target::Target;
    use crate::linux::{landlock, seccomp, sys, terminal};

    // Everything that allocates or can be wrong in the request comes first.
    let own_tmp = plan.scratch.as_deref().map(scratch::name);
    let with_tmp = own_tmp.as_deref().map(|path| scratch::given(path, plan, command));
    let (plan, command) = with_tmp.as_ref().map_or((plan, command), |(p, c)| (p, c));
    let target = Target::new(command)?;
    let filter = seccomp::filter(plan.surface()).map_err(LaunchError::Filter)?;

    // Whoever started us may forget his children; how the command ends must be known.
    let forgets_children = sys::notice_children();
    terminal::apart().map_err(LaunchError::Terminal)?;
    if let Some(cwd) = &command.cwd {
        rustix::process::chdir(cwd).map_err(|source| LaunchError::WorkingDirectory {
            path: cwd.clone(),
            source: source.into(),
        })?;
    }
    let scratch = own_tmp.as_deref().map(Scratch::make).transpose();
    let scratch = scratch.map_err(LaunchError::Scratch)?;
    // A directory on stdio must be gone before its descriptor could be granted.
    landlock::no_directory_as_stdio().map_err(|e| LaunchError::Descriptors(e.into()))?;
    let ruleset = landlock::ruleset(plan)?;
    sys::close_on_exec_from_3().map_err(LaunchError::Descriptors)?;
    let confined = Confined { plan, target: &target, filter: &filter, forgets_children };
    let given = Given::of(plan, &ruleset)?;
    if plan.room.is_some() || plan.watch.is_some() {
        return Err(as_parent(plan.room.as_ref(), confined, &ruleset, given, ahead, scratch));
    }
    drop(ahead);
    given.put_into(&ruleset).map_err(|missed| given.error(missed))?;
    Err(confined.become_command(&ruleset, &mut 0, || Ok(())))
}

/// What is left to do once the command's view of the disk is right.
#[cfg(target_os = "linux")]
#[derive(Clone, Copy)]
struct Confined<'a> {
    plan: &'a Plan,
    target: &'a crate::linux::target::Target,
    filter: &'a [crate::linux::bpf::Insn],
    /// Whether the command is to ignore SIGCHLD, as its caller did.
    forgets_children: bool,
}

#[cfg(target_os = "linux")]
impl Confined<'_> {
    /// Steps 7 to 12. What the kernel answers to the filter is the listener.
    fn become_command(
        self,
        ruleset: &Ruleset,
        listener: &mut std::ffi::c_long,
        release_signals: impl FnOnce() -> io::Result<()>,
    ) -> LaunchError {
        use crate::linux::{caps, landlock, limits, sys};
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

/// Steps 4 to 13 as the command's parent.
#[cfg(target_os = "linux")]
fn as_parent(
    room: Option<&Room>,
    confined: Confined<'_>,
    ruleset: &Ruleset,
    given: Given,
    ahead: Ahead,
    scratch: Option<crate::linux::scratch::Scratch>,
) -> LaunchError {
    use crate::linux::cgroup::Group;
    use crate::linux::monitor::Monitor;
    use crate::linux::ports::Crossing;
    use crate::linux::stdio::Inherited;
    use crate::linux::supervisor::{Keeper, attend};
    use crate::linux::{landlock, limits, mounts::View, namespaces, sys};

    let plan = confined.plan;
    // Begun on the word of a record that was wrong, it has nothing to say that is waited
    // for here.
    let ahead = ahead.namespaces.filter(|_| room.is_some_and(|room| room.user_namespace));
    // /proc shows the processes of whoever mounts it, and can only be mounted where
    // the host's is still there: a root that lets go of the old one comes last.
    let steps = room.map_or(&[][..], |room| &room.steps);
    let enters_last = room.is_some_and(|room| room.inside == Inside::Rooms);
    let of_processes = steps.iter().position(|step| matches!(step, Step::Processes { .. }));
    let (outside, inside) = steps.split_at(of_processes.unwrap_or(steps.len()));
    let filling = Filling::start(given, ruleset, ahead.as_ref());
    let prepare = || -> Result<_, LaunchError> {
        let cwd = rustix::process::getcwd(Vec::new())
            .map_err(|e| LaunchError::WorkingDirectory { path: ".".into(), source: e.into() })?;
        let group = plan.group.as_deref().map(|parent| Group::new(parent, &plan.limits));
        let group = group.transpose().map_err(LaunchError::Limits)?;
        let numbered = plan.root && room.is_some() && group.is_none();
        let numbers = plan.limits.processes.filter(|_| numbered);
        let numbers =
            numbers.map(|most| limits::process_numbers().map(|settings| (settings, most)));
        let numbers = numbers.transpose().map_err(|e| LaunchError::Limits(e.into()))?;
        let ports = room.map(|room| Crossing::start(&room.ports)).transpose()?;
        let monitor = match &plan.watch {
            None => None,
            Some(watch) => {
                // The filter of an outer sandbox may forbid it; then every call would
                // be refused without a word.
                sys::memory_can_be_reached().map_err(|e| LaunchError::Unseen(e.into()))?;
                let monitor = Monitor::new(ruleset.clone(), watch, plan.root);
                Some(monitor.map_err(|e| LaunchError::Monitor(e.into()))?)
            }
        };
        let (mut own_parts, mut view, mut inherited) = (None, None, None);
        if let Some(room) = room {
            let parts = namespaces::leave_host(room, ahead.as_ref())?;
            own_parts = Some(parts);
            inherited = Some(Inherited::guard());
        }
        let mask = sys::hold_signals().map_err(LaunchError::Signals)?;
        let monitor = monitor.map(Monitor::wait).transpose().map_err(LaunchError::Monitor)?;
        if let Some(parts) = own_parts {
            let view = view.insert(View::new(parts).map_err(|e| LaunchError::Root(e.into()))?);
            outside.iter().try_for_each(|step| view.step(step))?;
        }
        filling.help()?;
        if let (Some(room), Some(view), false) = (room, &view, enters_last) {
            view.enter(room.inside).map_err(|e| LaunchError::Enter(e.into()))?;
        }
        if let Some(room) = room
            && room.own_network
        {
            namespaces::own_network(ahead.as_ref())?;
            if let Some(ports) = &ports {
                ports.listen(&room.ports)?;
            }
        }
        filling.finish()?;
        if let Some(ahead) = &ahead {
            ahead.let_go();
        }
        // Before anybody is there to look into this process.
        sys::undumpable().map_err(LaunchError::Namespaces)?;
        let keeper = if room.is_some() {
            namespaces::own_processes()?;
            Keeper::start(ports, group)?
        } else {
            Keeper::of_children(group, scratch)?
        };
        Ok((cwd, view, monitor, mask, inherited, keeper, numbers))
    };
    let (cwd, mut view, monitor, mask, inherited, keeper, numbers) = match prepare() {
        Ok(prepared) => prepared,
        Err(error) => return error,
    };
    let mut settle = || -> Result<(), LaunchError> {
        match (&keeper.group, &numbers) {
            (Some(group), _) => group.join(),
            (None, Some((settings, most))) => limits::number_processes(settings, *most),
            (None, None) => Ok(()),
        }
        .map_err(|e| LaunchError::Limits(e.into()))?;
        let (Some(room), Some(view)) = (room, &mut view) else {
            return sys::die_with_parent().map_err(LaunchError::Process);
        };
        inside.iter().try_for_each(|step| view.step(step))?;
        landlock::own_places(room, view, ruleset)?;
        if enters_last {
            view.enter(room.inside).map_err(|e| LaunchError::Enter(e.into()))?;
        }
        rustix::process::chdir(&cwd).map_err(|source| LaunchError::NotInRoom {
            path: PathBuf::from(std::ffi::OsStr::from_bytes(cwd.as_bytes())),
            source: source.into(),
        })
    };
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
        failure = Some(match settle() {
            Ok(()) => confined.become_command(ruleset, &mut listener, release_signals),
            Err(error) => error,
        });
    });
    // By now it has gone, so nobody waits for it.
    drop(ahead);
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
    let lives_on = room.is_some_and(|room| room.lives_on);
    attend(keeper, inherited.as_ref(), child, lives_on, plan.limits.wall_seconds)
}

/// Opening what is granted takes as long as building the view.
#[cfg(target_os = "linux")]
struct Filling<'a> {
    given: &'static Given,
    ruleset: &'a Ruleset,
    helper: Option<&'a crate::linux::ahead::Ahead>,
}

#[cfg(target_os = "linux")]
impl<'a> Filling<'a> {
    fn start(
        given: Given,
        ruleset: &'a Ruleset,
        helper: Option<&'a crate::linux::ahead::Ahead>,
    ) -> Self {
        let given: &'static Given = Box::leak(Box::new(given));
        let helper = helper.filter(|helper| helper.hand_over(given, ruleset));
        Self { given, ruleset, helper }
    }

    /// Does what the helper has not begun.
    fn help(&self) -> Result<(), LaunchError> {
        self.given.put_into(self.ruleset).map_err(|missed| self.given.error(missed))
    }

    fn finish(&self) -> Result<(), LaunchError> {
        let Some(helper) = self.helper else { return Ok(()) };
        helper.taken().ok_or(LaunchError::Helper)?.map_err(|missed| self.given.error(missed))
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    /// Step 2 fails before anything is restricted, so this can run in the test
    /// process itself.
    #[test]
    fn a_directory_swapped_for_a_link_after_planning_is_not_granted() {
        use crate::plan::{Grant, Network, Why};
        use clash_policy::{Caps, Span};

        let dir = tempfile::tempdir().unwrap();
        let path = std::fs::canonicalize(dir.path()).unwrap().join("public");
        std::os::unix::fs::symlink("/etc", &path).unwrap();
        let grant = Grant { path: path.clone(), caps: Caps::READ, why: Why::Rule(Span::default()) };
        let plan = Plan {
            sandbox: "t".into(),
            baseline: Vec::new(),
            grants: vec![grant],
            net: Network::Deny,
            landlock_abi: crate::host::Host::quick().landlock_abi,
            root: false,
            room: None,
            watch: None,
            limits: clash_policy::Limits::default(),
            group: None,
            scratch: None,
        };
        let command = Command { program: "true".into(), ..Command::default() };
        let error = run(&plan, &command, Ahead::default());
        assert!(matches!(error, LaunchError::Grant { path: p, .. } if p == path));
    }
}
