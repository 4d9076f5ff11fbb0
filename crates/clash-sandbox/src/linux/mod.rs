//! Turns plan data into kernel state on Linux, one file per kernel facility. Nothing here
//! makes plans or probes the host.

pub(crate) mod bpf;
pub(crate) mod caps;
pub(crate) mod cgroup;
pub(crate) mod doors;
pub(crate) mod gate;
pub(crate) mod landlock;
pub(crate) mod limits;
pub(crate) mod monitor;
pub(crate) mod mounts;
pub(crate) mod namespaces;
pub(crate) mod netlink;
pub(crate) mod network;
pub(crate) mod outputs;
pub(crate) mod overlay;
pub(crate) mod ports;
pub(crate) mod redirect;
pub(crate) mod scratch;
pub(crate) mod seccomp;
pub(crate) mod served;
pub(crate) mod stdio;
pub(crate) mod supervise;
pub(crate) mod sys;
pub(crate) mod target;
pub(crate) mod terminal;
