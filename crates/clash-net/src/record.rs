//! The record of one connection, or of one refused attempt.

use std::net::IpAddr;
use std::time::Duration;

use crate::address::AddressKind;
use crate::http::HttpError;

/// The reason to refuse a name or a connection.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DenialError {
    #[error("no rule allows this name")]
    Name,
    #[error("no rule allows this port")]
    Port,
    #[error("no allowed name has this address")]
    Unpinned,
    #[error("a rule denies this address")]
    Address,
    #[error("the name leads to {0}")]
    Kind(AddressKind),
    #[error("the name leads to an address of this machine")]
    Own,
    #[error("the connection asks for `{0}` instead")]
    Foreign(String),
    #[error("the connection does not say which name it wants")]
    Nameless,
    #[error("only TLS is allowed on this port")]
    NotTls,
    #[error("{0}")]
    Http(#[from] HttpError),
    #[error("the user did not allow it")]
    NotApproved,
    #[error("the room has asked for too many names")]
    TooManyNames,
    #[error("the name is too long for a host name")]
    LongName,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordOutcome {
    Allowed,
    Denied(DenialError),
    /// The connection was allowed, and the server could not be reached.
    Failed(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionRecord {
    /// The program that asked, if the gate could find it.
    pub program: Option<String>,
    pub name: Option<String>,
    pub address: Option<IpAddr>,
    /// `None` if the program has only asked for the name's address.
    pub port: Option<u16>,
    pub outcome: RecordOutcome,
    /// True if the user was asked.
    pub asked: bool,
    /// The program has the socket itself, so its bytes are not counted.
    pub handed_over: bool,
    pub sent: u64,
    pub received: u64,
    pub duration: Duration,
}

impl ConnectionRecord {
    /// The record of a refused attempt, without program, name, address and port. The caller
    /// fills in those that it knows.
    pub fn denied(denial: DenialError) -> Self {
        Self {
            program: None,
            name: None,
            address: None,
            port: None,
            outcome: RecordOutcome::Denied(denial),
            asked: false,
            handed_over: false,
            sent: 0,
            received: 0,
            duration: Duration::ZERO,
        }
    }
}
