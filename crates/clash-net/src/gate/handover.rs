//! The gate's answers to orders for sockets (`crate::handover`).

use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::RecvFlags;

use super::{Gate, GateHost, ProgramSource};
use crate::handover::{HandoverAnswer, HandoverMessage, HandoverPurpose};
use crate::record::{ConnectionRecord, RecordOutcome};
use crate::rules::{AddressVerdict, HostRules};

/// Orders taken in one go.
const MAX_ORDERS: usize = 64;

impl<H: GateHost> Gate<H> {
    /// Answers the monitor's orders. At the end of the line it is no longer watched.
    pub(super) fn take_orders(&mut self) {
        let Some(line) = self.orders.take() else { return };
        for _ in 0..MAX_ORDERS {
            let message = match HandoverMessage::receive(&line, RecvFlags::DONTWAIT) {
                Ok(Some(message)) => message,
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => break,
                // The monitor has ended.
                Ok(None) | Err(_) => return self.queue.forget(&line),
            };
            match message.purpose {
                HandoverPurpose::Order => {
                    let answer = self.judge_order(&message);
                    if answer.send(&message, &line).is_err() {
                        return self.queue.forget(&line);
                    }
                }
                HandoverPurpose::Report { error, millis } => {
                    self.record_handover(&message, error, millis);
                }
            }
        }
        self.orders = Some(line);
    }

    /// A socket if the rules need no look at the bytes. Everything else takes the way through
    /// the gate, which also refuses.
    fn judge_order(&mut self, order: &HandoverMessage) -> HandoverAnswer {
        let address = order.address.to_canonical();
        let names = self.pins.names(address);
        let is_permitted = match self.rules.judge_address(address, order.port, names) {
            AddressVerdict::Granted => true,
            AddressVerdict::For(_) => {
                HostRules::is_native_port(order.port) && !self.own.contains(&address)
            }
            AddressVerdict::Ask | AddressVerdict::Denied(_) => false,
        };
        let host = names.first().map_or_else(|| address.to_string(), ToString::to_string);
        // The user's proxy is the way out for other hosts.
        if !is_permitted || !address.is_loopback() && self.proxy_for(&host).is_some() {
            return HandoverAnswer::Relay;
        }
        order.new_socket().map_or(HandoverAnswer::Relay, HandoverAnswer::Socket)
    }

    /// Records a connection that a program made on a socket of the host's network. Its bytes
    /// are not counted.
    fn record_handover(&mut self, report: &HandoverMessage, error: i32, millis: u32) {
        let address: IpAddr = report.address.to_canonical();
        let names = self.pins.names(address);
        let name = match self.rules.judge_address(address, report.port, names) {
            _ if address.is_loopback() => Some("localhost".to_owned()),
            AddressVerdict::For(allowed) => allowed.first().map(ToString::to_string),
            _ => names.first().map(ToString::to_string),
        };
        let program = self.host.program(ProgramSource::Process(report.process));
        let outcome = match error {
            0 => RecordOutcome::Allowed,
            error => RecordOutcome::Failed(std::io::Error::from_raw_os_error(error).to_string()),
        };
        let is_approved = |name: &String| {
            let name = crate::name::DomainName::parse(name);
            self.asked.was_approved(name.as_ref())
        };
        let asked = name.as_ref().is_some_and(is_approved);
        self.host.record(&ConnectionRecord {
            program: program.map(|program| program.name),
            name,
            address: Some(address),
            port: Some(report.port),
            outcome,
            asked,
            handed_over: true,
            sent: 0,
            received: 0,
            duration: Duration::from_millis(u64::from(millis)),
        });
    }
}

/// Answers orders for ports of the host's loopback, in a room without a gate. Ends with the
/// line.
pub fn serve_loopback_orders(line: &OwnedFd, ports: &[u16]) {
    loop {
        let order = match HandoverMessage::receive(line, RecvFlags::empty()) {
            Ok(Some(message)) => message,
            Err(Errno::INTR) => continue,
            Ok(None) | Err(_) => return,
        };
        if order.purpose != HandoverPurpose::Order {
            continue;
        }
        let is_permitted =
            order.address.to_canonical().is_loopback() && ports.contains(&order.port);
        let socket = is_permitted.then(|| order.new_socket().ok()).flatten();
        let answer = socket.map_or(HandoverAnswer::Relay, HandoverAnswer::Socket);
        if answer.send(&order, line).is_err() {
            return;
        }
    }
}
