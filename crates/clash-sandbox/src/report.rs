//! What a plan rests on, as data: which mechanism holds each rule and why that
//! is enough. The binary prints it; nothing decides by reading it.

use std::fmt;

use crate::host::Host;
use crate::plan::Network;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    pub lines: Vec<Line>,
    listens: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The rule in the policy's words, with its place, or what it is about.
    pub rule: String,
    /// `landlock`, `seccomp`, …; [`Line::NOTHING`] when nothing holds it.
    pub mechanism: &'static str,
    pub why: String,
}

impl Line {
    /// The mechanism of a line that states a limit.
    pub const NOTHING: &'static str = "none";

    pub(crate) fn new(
        rule: impl Into<String>,
        mechanism: &'static str,
        why: impl Into<String>,
    ) -> Self {
        Self { rule: rule.into(), mechanism, why: why.into() }
    }
}

impl Report {
    /// Collects what is said; the default one does not listen.
    pub(crate) fn listening() -> Self {
        Self { lines: Vec::new(), listens: true }
    }

    /// Launching needs no report, and writing one is a good part of planning.
    pub(crate) fn say(&mut self, line: impl FnOnce() -> Line) {
        if self.listens {
            self.lines.push(line());
        }
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} | {} | {}", self.rule, self.mechanism, self.why)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lines.iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}

/// The lines that hold for every direct plan: what protects it besides its file
/// rules, and what nothing protects.
pub(crate) fn direct_tier(report: &mut Report, net: Network, host: &Host) {
    let network = match net {
        Network::Deny => "no internet socket can be made, and Landlock denies TCP on any other",
        Network::Allow => {
            "TCP, UDP and the routing socket only: no raw, MPTCP, SCTP or VSOCK sockets"
        }
    };
    report.say(|| {
        Line::new(
            format!("network {}", if net == Network::Deny { "deny" } else { "allow" }),
            if net == Network::Deny { "seccomp + landlock" } else { "seccomp" },
            network,
        )
    });
    report.say(|| {
        Line::new(
            "unix sockets",
            "seccomp",
            "none can be made, whatever the network rule: docker, ssh agent, session bus and X11 \
         listen on paths that Landlock cannot guard before ABI 9; connected stream pairs stay",
        )
    });
    report.say(|| {
        Line::new(
            "other processes",
            "landlock",
            "no signal, ptrace, memory, environment or descriptor of a process outside the sandbox",
        )
    });
    report.say(|| Line::new(
        "kernel surface",
        "seccomp",
        "no namespaces, mounts, io_uring, bpf, keys, System V IPC, foreign or x32 system calls; \
         nothing typed into the terminal"));
    let privileges = if host.root {
        "no set-user-id gain; of root's capabilities only CAP_DAC_OVERRIDE stays, within the grants"
    } else {
        "no set-user-id gain, no capabilities"
    };
    report.say(|| Line::new("privileges", "no_new_privs + capset", privileges));
    report.say(|| {
        Line::new(
            "inherited descriptors",
            "close_range",
            "only stdin, stdout and stderr get through",
        )
    });
    report.say(|| {
        Line::new(
            "metadata outside the grants",
            Line::NOTHING,
            "names, sizes, modes and times can be seen, and those of the user's own files changed",
        )
    });
    report.say(|| Line::new(
        "process list, background processes, resource limits",
        Line::NOTHING,
        "the process list is visible, a daemon outlives the command, nothing limits memory or disk"));
}
