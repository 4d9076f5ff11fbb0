//! The room's resolver. Only allowed names leave as a query.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Instant;

use clash_policy::Effect;

use super::lookup::LookupWaiter;
use super::{Gate, GateHost, GateQuestion, ProgramSource, RoomProgram};
use crate::dns::{DnsAnswer, DnsQuery, MAX_MESSAGE_BYTES, RecordKind, read_query};
use crate::name::DomainName;
use crate::record::{ConnectionRecord, DenialError};

/// Below a rule such as `*.example.org` a program could put data into names. Names of real
/// hosts are shorter than this, and a command needs fewer of them.
const MAX_LABEL_BYTES: usize = 56;
const MAX_FRONT_BYTES: usize = 96;
const MAX_NAMES_BELOW: usize = 256;

/// The names below rules that a room has asked for, and the questions that wait for the user.
#[derive(Debug, Default)]
pub(super) struct AskedNames {
    below: std::collections::HashSet<DomainName>,
    waiting: Vec<(DomainName, LookupWaiter, Option<String>)>,
    /// Names that the user has allowed.
    approved: std::collections::HashSet<DomainName>,
    /// Denied names are recorded once in a while, not with every repeated query.
    denied: std::collections::HashMap<DomainName, Instant>,
}

const REPEAT_PAUSE: std::time::Duration = std::time::Duration::from_secs(1);
const MAX_WAITING: usize = 256;

impl<H: GateHost> Gate<H> {
    /// Reads at most `MAX_TURNS` queries of the room's resolver by UDP, and answers them now
    /// or later. Drops messages that are no query.
    pub(super) fn answer_datagrams(&mut self) {
        const MAX_TURNS: usize = 64;
        let mut buffer = [0; MAX_MESSAGE_BYTES];
        for _ in 0..MAX_TURNS {
            let (length, peer) = match self.names.recv_from(&mut buffer) {
                Ok(received) => received,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(_) => return,
            };
            let Some(query) = buffer.get(..length).and_then(read_query) else { continue };
            let waiter = LookupWaiter::Datagram { peer, query: query.clone() };
            self.resolve(&query, waiter, ProgramSource::Datagram(peer));
        }
    }

    /// Answers a query, now or later. `localhost` is the room's own loopback. A name that
    /// [`DomainName`] refuses does not exist.
    pub(super) fn resolve(
        &mut self,
        query: &DnsQuery,
        waiter: LookupWaiter,
        source: ProgramSource,
    ) {
        let Some(name) = query.name.clone() else {
            return self.send_answer(waiter, &DnsAnswer::NoSuchName);
        };
        let text = name.as_str();
        if text == "localhost" || text.ends_with(".localhost") {
            let addresses = vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
            let answer = DnsAnswer::Addresses { addresses, seconds: 60 };
            return self.send_answer(waiter, &answer);
        }
        self.resolve_name(&name, query.kind, waiter, source);
    }

    /// Answers a query by the rules: denied names do not exist for the room, others wait for
    /// the user's answer, allowed ones are looked up. Of an allowed name, only IPv4 and IPv6
    /// addresses are looked up; other records are empty.
    pub(super) fn resolve_name(
        &mut self,
        name: &DomainName,
        kind: RecordKind,
        waiter: LookupWaiter,
        source: ProgramSource,
    ) {
        match self.rules.judge_lookup(name) {
            Effect::Deny => self.deny_name(name, waiter, source, DenialError::Name),
            Effect::Ask => self.ask_about(name, waiter, source),
            Effect::Allow => match self.check_size(name) {
                Some(denial) => self.deny_name(name, waiter, source, denial),
                // No keys for encrypted server names, no text records.
                None if kind == RecordKind::Other => self.send_answer(waiter, &DnsAnswer::NoData),
                None => self.look_up(name, kind, waiter),
            },
        }
    }

    /// Limits the data that the names below a rule can carry.
    fn check_size(&mut self, name: &DomainName) -> Option<DenialError> {
        if self.rules.is_named(name) || self.asked.below.contains(name) {
            return None;
        }
        let labels: Vec<&str> = name.as_str().split('.').collect();
        let front: usize = labels.iter().rev().skip(2).map(|label| label.len() + 1).sum();
        if labels.iter().any(|label| label.len() > MAX_LABEL_BYTES) || front > MAX_FRONT_BYTES {
            return Some(DenialError::LongName);
        }
        if self.asked.below.len() >= MAX_NAMES_BELOW {
            return Some(DenialError::TooManyNames);
        }
        self.asked.below.insert(name.clone());
        None
    }

    /// Answers that a name does not exist, or that it is empty if a rule allows names below
    /// it. Records the refusal, at most once in `REPEAT_PAUSE` for each name.
    fn deny_name(
        &mut self,
        name: &DomainName,
        waiter: LookupWaiter,
        source: ProgramSource,
        denial: DenialError,
    ) {
        let now = Instant::now();
        let before = self.asked.denied.get(name);
        if before.is_none_or(|before| now.duration_since(*before) >= REPEAT_PAUSE) {
            if self.asked.denied.len() > 4096 {
                self.asked.denied.clear();
            }
            self.asked.denied.insert(name.clone(), now);
            // The program waits for the answer, so it still has its socket.
            let program = self.program(source, true);
            let port = program.as_ref().and_then(|program| wanted_port(program, name.as_str()));
            self.deny(ConnectionRecord {
                program: program.map(|program| program.name),
                name: Some(name.to_string()),
                port,
                ..ConnectionRecord::denied(denial)
            });
        }
        let answer = match self.rules.allows_below(name) {
            true => DnsAnswer::NoData,
            false => DnsAnswer::NoSuchName,
        };
        self.deliver(name, waiter, &answer);
    }

    /// Asks the user about a name, and lets its query wait for the answer. Denied at once if
    /// no user can be asked or too many queries wait.
    fn ask_about(&mut self, name: &DomainName, waiter: LookupWaiter, source: ProgramSource) {
        let program = self.program(source, true);
        let port = program.as_ref().and_then(|program| wanted_port(program, name.as_str()));
        let program = program.map(|program| program.name);
        let question = GateQuestion { host: name.to_string(), port, program: program.clone() };
        if self.asked.waiting.len() >= MAX_WAITING || !self.ask(&question) {
            return self.deny_name(name, waiter, source, DenialError::NotApproved);
        }
        self.asked.waiting.push((name.clone(), waiter, program));
    }

    /// Continues the queries for a host that waited for the user's answer: looks the name up
    /// if the rules now allow it, and otherwise answers that it does not exist, with one
    /// record.
    pub(super) fn resume_after_answer(&mut self, host: &str) {
        let (ready, rest): (Vec<_>, Vec<_>) = std::mem::take(&mut self.asked.waiting)
            .into_iter()
            .partition(|(name, ..)| name.as_str() == host);
        self.asked.waiting = rest;
        let mut is_recorded = false;
        for (name, waiter, program) in ready {
            if self.rules.judge_lookup(&name) == Effect::Allow {
                self.asked.approved.insert(name.clone());
                match waiter_kind(&waiter) {
                    RecordKind::Other => self.send_answer(waiter, &DnsAnswer::NoData),
                    kind => self.look_up(&name, kind, waiter),
                }
                continue;
            }
            if !std::mem::replace(&mut is_recorded, true) {
                self.deny(ConnectionRecord {
                    program,
                    name: Some(host.to_owned()),
                    asked: true,
                    ..ConnectionRecord::denied(DenialError::NotApproved)
                });
            }
            self.deliver(&name, waiter, &DnsAnswer::NoSuchName);
        }
    }

    /// Gives an answer to the party that waits for it.
    pub(super) fn deliver(&mut self, name: &DomainName, waiter: LookupWaiter, answer: &DnsAnswer) {
        match waiter {
            LookupWaiter::Proxy { connection } => self.continue_proxy(connection, name, answer),
            waiter => self.send_answer(waiter, answer),
        }
    }

    /// Sends an answer of the resolver to the room, by UDP or by TCP. A lookup of the proxy,
    /// and one for the cache, needs none.
    fn send_answer(&mut self, waiter: LookupWaiter, answer: &DnsAnswer) {
        match waiter {
            LookupWaiter::Datagram { peer, query } => {
                let _ = self.names.send_to(&query.answer(answer), peer);
            }
            LookupWaiter::Stream { connection, query } => {
                self.answer_stream(connection, &query.answer(answer));
            }
            LookupWaiter::Proxy { .. } | LookupWaiter::Nobody => {}
        }
    }
}

fn waiter_kind(waiter: &LookupWaiter) -> RecordKind {
    match waiter {
        LookupWaiter::Datagram { query, .. } | LookupWaiter::Stream { query, .. } => query.kind,
        LookupWaiter::Proxy { .. } | LookupWaiter::Nobody => RecordKind::V4,
    }
}

/// The port that a program's words name for a host, for example in an address.
pub(super) fn wanted_port(program: &RoomProgram, host: &str) -> Option<u16> {
    program.words.iter().find_map(|word| {
        let lower = word.to_ascii_lowercase();
        let at = lower.find(host)?;
        let (before, after) = (lower.get(..at)?, lower.get(at + host.len()..)?);
        let digits = after.strip_prefix(':').map(|rest| {
            rest.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default().to_owned()
        });
        if let Some(port) = digits.and_then(|digits| digits.parse::<u16>().ok()) {
            return Some(port);
        }
        match before {
            before if before.contains("https://") || before.contains("wss://") => Some(443),
            before if before.contains("http://") || before.contains("ws://") => Some(80),
            before if before.contains("ssh://") || before.ends_with('@') => Some(22),
            _ if program.name == "ssh" => Some(22),
            _ => None,
        }
    })
}

impl AskedNames {
    pub(super) fn was_approved(&self, name: Option<&DomainName>) -> bool {
        name.is_some_and(|name| self.approved.contains(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_is_found_in_the_words() {
        let port = |name: &str, words: &[&str]| {
            let words = words.iter().map(|word| (*word).to_owned()).collect();
            wanted_port(&RoomProgram { name: name.into(), words }, "evil.test")
        };
        assert_eq!(port("curl", &["curl", "-s", "https://evil.test/x"]), Some(443));
        assert_eq!(port("curl", &["curl", "http://EVIL.test:8080"]), Some(8080));
        assert_eq!(port("git", &["git", "clone", "git@evil.test:a/b"]), Some(22));
        assert_eq!(port("ssh", &["ssh", "-x", "evil.test", "git"]), Some(22));
        assert_eq!(port("curl", &["curl", "evil.test"]), None);
        assert_eq!(port("python3", &["python3", "x.py"]), None);
    }
}
