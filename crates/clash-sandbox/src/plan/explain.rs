//! The lines of the report about the tier: further protections of a sandbox besides its
//! file rules, and gaps that no mechanism covers.

use std::path::Path;

use clash_policy::protect::entries;
use clash_policy::{Effect, ResourceLimits};

use super::{Found, Network, Rule, Watch};
use crate::facts::HostFacts;
use crate::plan::report::{Line, Report};
use crate::plan::room::{Room, Step};

/// Reports the mechanism for each limit, and the processes to which it applies.
pub(super) fn limits(
    report: &mut Report,
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
        report.say(|| Line::new(format!("limit {name} {value}"), mechanism, why));
    }
}

/// Reports the limit on names only if the monitor counts, or nothing can be made.
pub(super) fn files(report: &mut Report, limits: &ResourceLimits, watch: Option<&Watch>) {
    let (mechanism, why) = match watch {
        Some(_) => ("monitor", "names that the room makes, less those it removes"),
        None => ("landlock", "no name can be made"),
    };
    let most = match watch {
        Some(watch) => watch.files,
        None => limits.files.and(limits.most_files()),
    };
    if let Some(most) = most {
        report.say(|| Line::new(format!("limit files {most}"), mechanism, why));
    }
}

pub(super) fn tier(
    report: &mut Report,
    rules: &[Rule<'_>],
    watch: Option<&Watch>,
    room: Option<&Room>,
    net: Network,
    host: &HostFacts,
) {
    for deny in rules.iter().filter(|rule| rule.rule.effect != Effect::Allow) {
        report.say(|| denied(deny, watch, room));
    }
    if let Some(watch) = watch {
        let kept = entries(&watch.rights.sandbox.protect).count();
        if kept > 0 {
            let why = "neither made nor changed at any depth of the project, nor can a directory \
                 be renamed so that one of them comes to be";
            report.say(|| Line::new(format!("{kept} persistence paths"), "monitor", why));
        }
        for path in &watch.rights.held {
            let why = "git finds its repository or its hooks by it";
            report.say(|| Line::new(path.display().to_string(), "monitor", why));
        }
        let why = match watch.reads {
            false => {
                "opens for writing and calls that change names, modes and times are carried \
                 out by the launcher, inside the same Landlock rules"
            }
            true if room.is_none() => {
                "every open and every look at a path is carried out by the launcher, because no \
                 namespace hides the host's files and processes: each costs several times as much"
            }
            true => {
                "every open is carried out by the launcher, because a rule takes reading away \
                 where no mount can: opening a file costs several times as much"
            }
        };
        report.say(|| Line::new("names that do not exist yet", "monitor", why));
    }
    let mut say = |rule: &str, mechanism: &'static str, why: &str| {
        report.say(|| Line::new(rule, mechanism, why));
    };
    match (net, room) {
        (Network::Deny, Some(_)) => {
            say(
                "network deny",
                "network namespace",
                "it has a loopback of its own and nothing else",
            );
        }
        (Network::Deny, None) => say(
            "network deny",
            "seccomp + landlock",
            "no internet socket can be made, and Landlock denies TCP on any other",
        ),
        (Network::Allow, _) => say(
            "network allow",
            "seccomp",
            "TCP, UDP and the routing socket only: no raw, MPTCP, SCTP or VSOCK sockets",
        ),
    }
    if let Some(room) = room {
        for (what, ports, why) in [
            (
                "localhost",
                &room.ports.reached,
                "taken inside by a process outside that connects to the host's loopback, this \
                 port, and nothing else",
            ),
            (
                "serve",
                &room.ports.served,
                "the host's loopback is listened on, and each connection is one to the room's own",
            ),
        ] {
            for port in ports {
                say(&format!("{what} {port}"), "forwarder", why);
            }
        }
    }
    if room.is_some_and(|room| room.unix_sockets) {
        say(
            "unix sockets",
            "mount namespace",
            "a socket is granted by name; others can be seen only inside trees that may be written",
        );
    } else {
        say(
            "unix sockets",
            "seccomp",
            "none can be made, whatever the network rule: docker, ssh agent, session bus and X11 \
             listen on paths that Landlock cannot guard before ABI 9; connected stream pairs stay",
        );
    }
    let (others, why) = match (room, watch) {
        (Some(_), _) => ("pid namespace + landlock", "no other process can be seen or reached"),
        (None, Some(_)) => (
            "landlock + monitor",
            "no other process can be reached, and of /proc each sees its own entries alone",
        ),
        (None, None) => (
            "landlock",
            "no signal, ptrace, memory, environment or descriptor of a process outside the sandbox",
        ),
    };
    say("other processes", others, why);
    say(
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
    say("privileges", "no_new_privs + capset", privileges);
    say("inherited descriptors", "close_range", "only stdin, stdout and stderr get through");
    match (room, watch) {
        (Some(_), _) => say(
            "metadata outside the grants",
            "mount namespace",
            "what is not granted is not there, and what is only read is mounted read-only",
        ),
        (None, Some(_)) => say(
            "metadata outside the grants",
            "monitor",
            "answered as if it were not there; only whether it is can be told by trying to \
             execute it or to make it the working directory",
        ),
        (None, None) => say(
            "metadata outside the grants",
            Line::NOTHING,
            "names, sizes, modes and times can be seen; none of them can be changed",
        ),
    }
    match (room, watch) {
        (Some(Room { lives_on: true, .. }), _) => say(
            "background processes",
            "pid namespace",
            "live on in the room, unless the launcher is killed",
        ),
        (Some(_), _) => say(
            "background processes",
            "pid namespace",
            "all of the room ends with the command, and with the launcher",
        ),
        (None, Some(_)) => say(
            "background processes",
            "launcher",
            "what the command leaves behind becomes the child of a process that ends it with the \
             command, and with the launcher",
        ),
        (None, None) => say(
            "process list, background processes",
            Line::NOTHING,
            "the process list is visible, a daemon outlives the command",
        ),
    }
}

fn denied(deny: &Rule<'_>, watch: Option<&Watch>, room: Option<&Room>) -> Line {
    let own = room.into_iter().flat_map(|room| &room.steps).find(|step| match step {
        Step::Cover { path, .. } | Step::Bind { path, .. } | Step::Rebind { path, .. } => {
            *path == deny.real
        }
        _ => false,
    });
    let text = deny.text();
    match own {
        Some(Step::Cover { .. }) if !deny.wider() => {
            Line::new(text, "mount", "something empty is mounted over it")
        }
        Some(Step::Bind { access, .. } | Step::Rebind { access, .. }) if !deny.wider() => {
            Line::new(text, "mount", format!("a mount of its own: {access}"))
        }
        _ if watch.is_some() && deny.wider() => {
            Line::new(text, "monitor", "each name is looked at when it is used, also new ones")
        }
        _ if watch.is_some() && deny.found == Found::Missing => Line::new(
            text,
            "monitor",
            "it is not there, and cannot be made from inside; what others make meanwhile can be \
             read, unless reading is watched",
        ),
        _ if room.is_some() => Line::new(text, "mount namespace", "it is not in the view"),
        _ if watch.is_some() => Line::new(
            text,
            "landlock + monitor",
            "each use is looked at where something around \
             it is granted",
        ),
        _ => Line::new(text, "landlock", "nothing grants it; what no rule grants is denied"),
    }
}
