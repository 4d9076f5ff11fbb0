//! The gate of a room with host rules, as the launcher's caller sees it.
//!
//! The gate is a process outside the room, in the host's network (`linux/gate.rs`). It judges
//! every name and connection of the room by the plan's rules (`clash-net`).

pub use clash_net::address::AddressKind;
pub use clash_net::gate::GateQuestion;
pub use clash_net::upstream::{Upstream, UpstreamProxy};
pub use clash_net::{ConnectionRecord, DenialError, RecordOutcome};

/// Takes the records of a gate and asks the user. Runs in the gate's process, or in a child of
/// it, outside every sandbox.
pub trait GateService {
    fn record(&self, record: &ConnectionRecord);

    /// Asks the user, and waits for the answer. Runs in a process of its own.
    fn ask(&self, question: &GateQuestion) -> bool;

    /// True if there may be a user to ask.
    fn can_ask(&self) -> bool {
        false
    }

    /// The way to the network outside.
    fn upstream(&self) -> Upstream {
        Upstream::default()
    }
}

/// The variables that lead programs to the gate's proxy. Only for programs that have one of
/// them already.
pub const GATE_PROXY: &str = "http://192.0.0.1:3128";
