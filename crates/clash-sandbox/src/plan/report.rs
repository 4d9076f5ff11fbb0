//! The lines of the report that come from the tier: what protects a sandbox
//! besides its file rules, and what nothing protects.

use std::path::{Path, PathBuf};

use clash_policy::Effect;

use super::{Network, Rule};
use crate::host::Host;
use crate::report::{Line, Report};
use crate::room::{Room, Step};

pub(super) fn tier(
    report: &mut Report,
    rules: &[Rule<'_>],
    protected: &[PathBuf],
    room: Option<&Room>,
    net: Network,
    host: &Host,
) {
    for deny in rules.iter().filter(|rule| rule.rule.effect != Effect::Allow) {
        report.say(|| denied(deny, room));
    }
    let (held, missing): (Vec<&PathBuf>, _) = protected.iter().partition(|p| is_held(p, room));
    for path in held {
        let why = "read-only, and its directories cannot be renamed";
        report.say(|| Line::new(path.display().to_string(), "mount", why));
    }
    if !missing.is_empty() {
        let names: Vec<String> = missing.iter().map(|path| path.display().to_string()).collect();
        let why = "not there now, or links: they could be made";
        report.say(|| Line::new(names.join(", "), Line::NOTHING, why));
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
    let (others, why) = match room {
        Some(_) => ("pid namespace + landlock", "no other process can be seen or reached"),
        None => (
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
    match room {
        Some(_) => say(
            "metadata outside the grants",
            "mount namespace",
            "what is not granted is not there, and what is only read is mounted read-only",
        ),
        None => say(
            "metadata outside the grants",
            Line::NOTHING,
            "names, sizes, modes and times can be seen, and those of the user's own files changed \
             where the sandbox may write anything",
        ),
    }
    match room {
        Some(Room { lives_on: true, .. }) => say(
            "background processes",
            "pid namespace",
            "live on in the room, unless the launcher is killed",
        ),
        Some(_) => say(
            "background processes",
            "pid namespace",
            "all of the room ends with the command, and with the launcher",
        ),
        None => say(
            "process list, background processes",
            Line::NOTHING,
            "the process list is visible, a daemon outlives the command",
        ),
    }
}

fn denied(deny: &Rule<'_>, room: Option<&Room>) -> Line {
    let own = room.into_iter().flat_map(|room| &room.steps).find(|step| match step {
        Step::Cover { path, .. } | Step::Bind { path, .. } | Step::Rebind { path, .. } => {
            *path == deny.real
        }
        _ => false,
    });
    match own {
        Some(Step::Cover { .. }) => {
            Line::new(deny.text(), "mount", "something empty is mounted over it")
        }
        Some(Step::Bind { access, .. } | Step::Rebind { access, .. }) => {
            Line::new(deny.text(), "mount", format!("a mount of its own: {access}"))
        }
        _ if room.is_some() => Line::new(deny.text(), "mount namespace", "it is not in the view"),
        _ => Line::new(deny.text(), "landlock", "nothing grants it; what no rule grants is denied"),
    }
}

fn is_held(path: &Path, room: Option<&Room>) -> bool {
    room.into_iter().flat_map(|room| &room.steps).any(|step| {
        matches!(step, Step::Rebind { path: at, access } if path.starts_with(at) && !access.write)
    })
}
