//! The gate: the only way from a room to the network under host rules.
//!
//! The room's programs ask the gate for names and connect to the gate's sockets. The gate
//! resolves allowed names only, remembers the addresses of each (pins), and dials nothing
//! else. This crate has no unsafe code, starts no thread or process, reads no environment and
//! prints nothing: its caller gives it sockets and takes its records.

pub mod address;
pub mod dns;
pub mod gate;
pub mod handover;
pub mod http;
pub mod name;
mod pins;
pub mod record;
pub mod rules;
pub mod tls;
pub mod upstream;

pub use gate::{Gate, GateHost, GateSockets};
pub use record::{ConnectionRecord, DenialError, RecordOutcome};
pub use rules::HostRules;
