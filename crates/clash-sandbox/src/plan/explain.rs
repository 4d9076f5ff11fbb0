//! The lines of the report about the tier: further protections of a sandbox besides its
//! file rules, and gaps that no mechanism covers.

use std::path::Path;

use clash_policy::protect::entries;
use clash_policy::{Effect, ResourceLimits};

use super::{FoundPath, NetworkMode, ResolvedRule, WatchPlan};
use crate::facts::HostFacts;
use crate::plan::report::{PlanReport, ReportLine};
use crate::plan::room::{MountStep, RoomPlan};

/// Reports the mechanism for each limit that is set, and the processes to which it applies.
/// [`report_files_limit`] reports the limit on files.
pub(super) fn report_limits(
    report: &mut PlanReport,
    limits: &ResourceLimits,
    group: Option<&Path>,
    root: bool,
) {
    for (name, value) in limits.named() {
        let Some(value) = value.filter(|_| name != "files") else { continue };
        let (mechanism, why) = match name {
            "memory" | "processes" if group.is_some() => {
                ("cgroup", "for all of the room's processes together")
            }
            "memory" => ("rlimit", "address space, for each process"),
            "processes" if root => ("process numbers", "those of the room's namespace run out"),
            "processes" => ("rlimit", "the kernel counts them per user namespace"),
            "wall" => ("launcher", "ends the room"),
            _ => ("rlimit", "for each process"),
        };
        report.say(|| ReportLine::new(format!("limit {name} {value}"), mechanism, why));
    }
}

/// Reports the limit on names, if there is one. The monitor counts them; without a monitor
/// nothing can be made.
pub(super) fn report_files_limit(
    report: &mut PlanReport,
    limits: &ResourceLimits,
    watch: Option<&WatchPlan>,
) {
    let (mechanism, why) = match watch {
        Some(_) => ("monitor", "names that the room makes, less those it removes"),
        None => ("landlock", "no name can be made"),
    };
    let most = match watch {
        Some(watch) => watch.files,
        None => limits.files.and(limits.most_files()),
    };
    if let Some(most) = most {
        report.say(|| ReportLine::new(format!("limit files {most}"), mechanism, why));
    }
}

/// Reports each deny, and then the protections and gaps of the tier.
pub(super) fn report_tier(
    report: &mut PlanReport,
    rules: &[ResolvedRule<'_>],
    watch: Option<&WatchPlan>,
    room: Option<&RoomPlan>,
    net: NetworkMode,
    host: &HostFacts,
) {
    for deny in rules.iter().filter(|rule| rule.rule.effect != Effect::Allow) {
        report.say(|| line_of_deny(deny, watch, room));
    }
    if let Some(watch) = watch {
        report_monitor(report, watch, room);
    }
    report_network(report, net, watch, room);
    report_unix_sockets(report, room);
    report_other_processes(report, watch, room);
    report_kernel_surface(report, host);
    report_metadata(report, watch, room);
    report_background(report, watch, room);
}

fn add_line(report: &mut PlanReport, rule: &str, mechanism: &'static str, why: &str) {
    report.say(|| ReportLine::new(rule, mechanism, why));
}

/// Reports the persistence paths, the files that git obeys, and the cost of the watched
/// opens.
fn report_monitor(report: &mut PlanReport, watch: &WatchPlan, room: Option<&RoomPlan>) {
    let kept = entries(&watch.rights.sandbox.protect).count();
    if kept > 0 {
        let why = "neither made nor changed at any depth of the project, nor can a directory \
             be renamed so that one of them appears";
        report.say(|| ReportLine::new(format!("{kept} persistence paths"), "monitor", why));
    }
    for path in &watch.rights.held {
        let why = "git finds its repository or its hooks by it";
        report.say(|| ReportLine::new(path.display().to_string(), "monitor", why));
    }
    let why = match watch.reads {
        false => {
            "the launcher carries out opens for writing and calls that change names, modes and \
             times, inside the same Landlock rules"
        }
        true if room.is_none() => {
            "the launcher carries out every open and every look at a path, because no namespace \
             hides the host's files and processes: each costs several times as much"
        }
        true => {
            "the launcher carries out every open, because a rule takes reading away where no \
             mount can: opening a file costs several times as much"
        }
    };
    add_line(report, "names that do not exist yet", "monitor", why);
}

/// Reports the mechanism of the network rule, and each port that the room shares with the
/// host.
fn report_network(
    report: &mut PlanReport,
    net: NetworkMode,
    watch: Option<&WatchPlan>,
    room: Option<&RoomPlan>,
) {
    let (rule, mechanism, why) = match (net, room) {
        (NetworkMode::Deny, Some(room)) if room.ports.gate.is_some() => (
            "network hosts",
            "network namespace + gate",
            "it has a loopback and a link to the gate; the gate resolves only allowed names, and \
             dials only their addresses, on allowed ports, for TLS and HTTP only under these names",
        ),
        (NetworkMode::Deny, Some(_)) => {
            ("network deny", "network namespace", "it has a loopback of its own and nothing else")
        }
        (NetworkMode::Deny, None) if watch.is_some_and(|watch| watch.connects.is_some()) => (
            "network addresses",
            "seccomp + landlock + monitor",
            "the launcher carries out each connect, if a rule allows the address and port; the \
             command makes TCP sockets only, and no server; connections are not recorded",
        ),
        (NetworkMode::Deny, None) => (
            "network deny",
            "seccomp + landlock",
            "no internet socket can be made, and Landlock denies TCP on any other",
        ),
        (NetworkMode::Allow, _) => (
            "network allow",
            "seccomp",
            "TCP, UDP and the routing socket only: no raw, MPTCP, SCTP or VSOCK sockets",
        ),
    };
    add_line(report, rule, mechanism, why);
    let Some(room) = room else { return };
    let reached = "a process outside takes the connection and connects to this port of the host's \
         loopback, and to nothing else";
    let served = "when a server listens in the room, the host's loopback and later rooms of the \
         session lead to it";
    if let Some(clash_policy::NetworkAccess::Hosts { rules, .. }) = &room.ports.gate {
        let local = &clash_policy::HostPattern::Localhost;
        for rule in rules.iter().filter(|rule| rule.host != *local) {
            let why = match rule.effect {
                Effect::Allow => "resolved and dialled by the gate",
                Effect::Ask => "the gate asks the user first; no answer is a no",
                Effect::Deny => "never resolved, never dialled",
            };
            add_line(report, &format!("net {} {rule}", rule.effect), "gate", why);
        }
    }
    for port in &room.ports.reached {
        add_line(report, &format!("localhost {port}"), "forwarder", reached);
    }
    if !room.ports.served.is_empty() {
        let ports: Vec<String> = room.ports.served.iter().map(u16::to_string).collect();
        add_line(report, &format!("serve {}", ports.join(", ")), "forwarder", served);
    }
}

/// Reports whether Unix sockets can be used, and why others are out of reach.
fn report_unix_sockets(report: &mut PlanReport, room: Option<&RoomPlan>) {
    let (mechanism, why) = match room {
        Some(room) if room.unix_sockets => (
            "mount namespace",
            "a socket is granted by name; others are visible only inside trees that may be written",
        ),
        Some(room) if room.own_sockets => (
            "seccomp + monitor",
            "streams and packets among the room's processes; the monitor connects only to sockets \
             of the room's network namespace",
        ),
        _ => (
            "seccomp",
            "none can be made, whatever the network rule: docker, ssh agent, session bus and X11 \
             listen on paths that Landlock cannot guard before ABI 9; connected stream pairs stay",
        ),
    };
    add_line(report, "unix sockets", mechanism, why);
}

/// Reports how the tier keeps the command from other processes.
fn report_other_processes(
    report: &mut PlanReport,
    watch: Option<&WatchPlan>,
    room: Option<&RoomPlan>,
) {
    let (mechanism, why) = match (room, watch) {
        (Some(_), _) => ("pid namespace + landlock", "no other process can be seen or reached"),
        (None, Some(_)) => (
            "landlock + monitor",
            "no other process can be reached, and each sees only its own entries of /proc",
        ),
        (None, None) => (
            "landlock",
            "no signal, ptrace, memory, environment or descriptor of a process outside the sandbox",
        ),
    };
    add_line(report, "other processes", mechanism, why);
}

/// Reports the refused kernel calls, the dropped privileges and the closed descriptors. They
/// are the same in every tier.
fn report_kernel_surface(report: &mut PlanReport, host: &HostFacts) {
    add_line(
        report,
        "kernel surface",
        "seccomp",
        "no namespaces, mounts, io_uring, bpf, keys, foreign or x32 system calls; nothing typed \
         into the terminal",
    );
    let privileges = if host.root {
        "no set-user-id gain; of root's capabilities only CAP_DAC_OVERRIDE stays, within the grants"
    } else {
        "no set-user-id gain, no capabilities"
    };
    add_line(report, "privileges", "no_new_privs + capset", privileges);
    let streams = "only stdin, stdout and stderr get through";
    add_line(report, "inherited descriptors", "close_range", streams);
}

/// Reports how much a command learns about paths without a grant: names, sizes, modes and
/// times.
fn report_metadata(report: &mut PlanReport, watch: Option<&WatchPlan>, room: Option<&RoomPlan>) {
    let (mechanism, why) = match (room, watch) {
        (Some(_), _) => (
            "mount namespace",
            "paths without a grant are not there, and read-only paths are mounted read-only",
        ),
        (None, Some(_)) => (
            "monitor",
            "paths without a grant seem not to be there; only the errors of `execve` and `chdir` \
             tell whether one exists",
        ),
        (None, None) => (
            ReportLine::NOTHING,
            "names, sizes, modes and times can be seen; none of them can be changed",
        ),
    };
    add_line(report, "metadata outside the grants", mechanism, why);
}

/// Reports the fate of processes that still run when the command ends.
fn report_background(report: &mut PlanReport, watch: Option<&WatchPlan>, room: Option<&RoomPlan>) {
    let rule = "background processes";
    let (rule, mechanism, why) = match (room, watch) {
        (Some(RoomPlan { lives_on: true, .. }), _) => {
            (rule, "pid namespace, keeper", "go on in the room, until they end or are stopped")
        }
        (Some(_), _) => {
            (rule, "pid namespace", "all of the room ends with the command, and with the launcher")
        }
        (None, Some(_)) => (
            rule,
            "launcher",
            "orphans become children of a guard process, which ends them with the launcher or \
             the keeper",
        ),
        (None, None) => (
            "process list, background processes",
            ReportLine::NOTHING,
            "the process list is visible, a daemon outlives the command",
        ),
    };
    add_line(report, rule, mechanism, why);
}

/// The line about a deny or ask rule: a mount of its own, the monitor, its absence from the
/// mount tree, or Landlock, which grants nothing there.
fn line_of_deny(
    deny: &ResolvedRule<'_>,
    watch: Option<&WatchPlan>,
    room: Option<&RoomPlan>,
) -> ReportLine {
    let own = room.into_iter().flat_map(|room| &room.steps).find(|step| match step {
        MountStep::Cover { path, .. }
        | MountStep::Bind { path, .. }
        | MountStep::Rebind { path, .. } => *path == deny.real,
        _ => false,
    });
    let text = deny.text();
    match own {
        Some(MountStep::Cover { .. }) if !deny.is_partial() => {
            ReportLine::new(text, "mount", "something empty is mounted over it")
        }
        Some(MountStep::Bind { access, .. } | MountStep::Rebind { access, .. })
            if !deny.is_partial() =>
        {
            ReportLine::new(text, "mount", format!("a mount of its own: {access}"))
        }
        _ if watch.is_some() && deny.is_partial() => ReportLine::new(
            text,
            "monitor",
            "the monitor judges each name when it is used, also new ones",
        ),
        _ if watch.is_some() && deny.found == FoundPath::Missing => ReportLine::new(
            text,
            "monitor",
            "it does not exist, and cannot be made from inside; a file that a process outside makes \
             meanwhile can be read, unless reading is watched",
        ),
        _ if room.is_some() => {
            ReportLine::new(text, "mount namespace", "it is not in the mount tree")
        }
        _ if watch.is_some() => ReportLine::new(
            text,
            "landlock + monitor",
            "the monitor judges each use where something around it is granted",
        ),
        _ => ReportLine::new(text, "landlock", "no rule grants it, so it is denied"),
    }
}
