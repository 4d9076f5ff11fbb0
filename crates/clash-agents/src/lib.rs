//! What crosses the network boundary, parsed without trust.
//!
//! So far this is the one normaliser of host names: every name a rule is
//! compared with has gone through [`name::host_of_url`], so that no second
//! spelling of a host exists. The gate, through which rooms with host rules
//! will reach the network, belongs here too.
#![forbid(unsafe_code)]

pub mod name;
