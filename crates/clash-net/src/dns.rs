//! DNS messages: the queries of a room, the answers of the gate, and the queries and answers
//! between the gate and the host's name servers. Both sides may be hostile.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::name::DomainName;

/// The largest message that the gate reads.
pub const MAX_MESSAGE_BYTES: usize = 4096;
/// An answer over UDP without EDNS has at most this size.
const MAX_ADDRESSES: usize = 16;
const MAX_RECORDS: usize = 64;
const MAX_POINTERS: usize = 32;

const TYPE_A: u16 = 1;
const TYPE_CNAME: u16 = 5;
const TYPE_AAAA: u16 = 28;
const CLASS_INTERNET: u16 = 1;

const RESPONSE: u16 = 0x8000;
const TRUNCATED: u16 = 0x0200;
const RECURSION_DESIRED: u16 = 0x0100;
const RECURSION_AVAILABLE: u16 = 0x0080;
const OPCODE: u16 = 0x7800;

/// The kind of record that a query asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RecordKind {
    V4,
    V6,
    /// Any other kind, which the gate answers with no data.
    Other,
}

impl RecordKind {
    fn code(self) -> u16 {
        match self {
            Self::V4 => TYPE_A,
            _ => TYPE_AAAA,
        }
    }
}

/// A query of a program in the room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnsQuery {
    id: u16,
    recursion: u16,
    /// The question as it was written, for the answer.
    question: Vec<u8>,
    /// `None` if the name is none that the gate knows.
    pub name: Option<DomainName>,
    pub kind: RecordKind,
}

/// The outcome of a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DnsAnswer {
    Addresses {
        addresses: Vec<IpAddr>,
        seconds: u32,
    },
    /// The name exists, without records of this kind.
    NoData,
    NoSuchName,
    ServerFailure,
}

/// Reads a query. `None` if the message is none, and deserves no answer.
pub fn read_query(message: &[u8]) -> Option<DnsQuery> {
    let mut reader = MessageReader { message, at: 0 };
    let [id, flags, questions, answers, authorities, _] = reader.header()?;
    if flags & (RESPONSE | OPCODE) != 0 || questions != 1 || answers != 0 || authorities != 0 {
        return None;
    }
    let start = reader.at;
    let name = reader.plain_name()?;
    let (kind, class) = (reader.number()?, reader.number()?);
    let kind = match (kind, class) {
        (TYPE_A, CLASS_INTERNET) => RecordKind::V4,
        (TYPE_AAAA, CLASS_INTERNET) => RecordKind::V6,
        _ => RecordKind::Other,
    };
    let question = message.get(start..reader.at)?.to_vec();
    Some(DnsQuery { id, recursion: flags & RECURSION_DESIRED, question, name, kind })
}

impl DnsQuery {
    /// The message that answers this query: its number and question again, and at most
    /// `MAX_ADDRESSES` addresses of the kind that was asked for. Without such addresses it is
    /// an empty answer without an error.
    pub fn answer(&self, answer: &DnsAnswer) -> Vec<u8> {
        let (code, addresses, seconds): (u16, &[IpAddr], u32) = match answer {
            DnsAnswer::Addresses { addresses, seconds } => (0, addresses, *seconds),
            DnsAnswer::NoData => (0, &[], 0),
            DnsAnswer::NoSuchName => (3, &[], 0),
            DnsAnswer::ServerFailure => (2, &[], 0),
        };
        let fitting: Vec<&IpAddr> = addresses
            .iter()
            .filter(|address| address.is_ipv4() == (self.kind == RecordKind::V4))
            .take(MAX_ADDRESSES)
            .collect();
        let flags = RESPONSE | RECURSION_AVAILABLE | self.recursion | code;
        let count = u16::try_from(fitting.len()).unwrap_or(0);
        let mut message = Vec::with_capacity(512);
        for number in [self.id, flags, 1, count, 0, 0] {
            message.extend(number.to_be_bytes());
        }
        message.extend(&self.question);
        for address in fitting {
            // A pointer to the name in the question.
            message.extend([0xc0, 12]);
            message.extend(self.kind.code().to_be_bytes());
            message.extend(CLASS_INTERNET.to_be_bytes());
            message.extend(seconds.to_be_bytes());
            match address {
                IpAddr::V4(v4) => {
                    message.extend([0, 4]);
                    message.extend(v4.octets());
                }
                IpAddr::V6(v6) => {
                    message.extend([0, 16]);
                    message.extend(v6.octets());
                }
            }
        }
        message
    }
}

/// A query of the gate to a name server.
pub fn write_query(id: u16, name: &DomainName, kind: RecordKind) -> Vec<u8> {
    let mut message = Vec::with_capacity(300);
    for number in [id, RECURSION_DESIRED, 1, 0, 0, 0] {
        message.extend(number.to_be_bytes());
    }
    for label in name.as_str().split('.') {
        message.push(u8::try_from(label.len()).unwrap_or(0));
        message.extend(label.as_bytes());
    }
    message.push(0);
    message.extend(kind.code().to_be_bytes());
    message.extend(CLASS_INTERNET.to_be_bytes());
    message
}

/// The answer of a name server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerAnswer {
    Final(DnsAnswer),
    /// The answer is longer than a datagram: ask again by TCP.
    Truncated,
}

/// Reads the answer to a query. `None` if the message answers another one.
pub fn read_answer(
    message: &[u8],
    id: u16,
    name: &DomainName,
    kind: RecordKind,
) -> Option<ServerAnswer> {
    let mut reader = MessageReader { message, at: 0 };
    let [answered, flags, questions, answers, _, _] = reader.header()?;
    if answered != id || flags & RESPONSE == 0 || flags & OPCODE != 0 || questions != 1 {
        return None;
    }
    if reader.name()?.as_ref() != Some(name)
        || (reader.number()?, reader.number()?) != (kind.code(), CLASS_INTERNET)
    {
        return None;
    }
    if flags & TRUNCATED != 0 {
        return Some(ServerAnswer::Truncated);
    }
    let outcome = match flags & 0xf {
        0 => addresses(&mut reader, answers, name, kind).unwrap_or(DnsAnswer::ServerFailure),
        3 => DnsAnswer::NoSuchName,
        _ => DnsAnswer::ServerFailure,
    };
    Some(ServerAnswer::Final(outcome))
}

/// The addresses of the name, or of the name that its aliases lead to. Aliases come before
/// their targets in every answer of a real server.
fn addresses(
    reader: &mut MessageReader<'_>,
    count: u16,
    name: &DomainName,
    kind: RecordKind,
) -> Option<DnsAnswer> {
    let mut owner = name.clone();
    let mut found = Vec::new();
    let mut seconds = u32::MAX;
    for _ in 0..usize::from(count).min(MAX_RECORDS) {
        let of = reader.name()?;
        let (record, class) = (reader.number()?, reader.number()?);
        let life = u32::from(reader.number()?) << 16 | u32::from(reader.number()?);
        let length = usize::from(reader.number()?);
        let start = reader.at;
        let end = start.checked_add(length)?;
        let data = reader.message.get(start..end)?;
        let is_ours = of.as_ref() == Some(&owner) && class == CLASS_INTERNET;
        match (record, data) {
            (TYPE_CNAME, _) if is_ours => {
                owner = reader.name()??;
                seconds = seconds.min(life);
            }
            (TYPE_A, data) if is_ours && kind == RecordKind::V4 => {
                let octets = <[u8; 4]>::try_from(data).ok()?;
                found.push(IpAddr::V4(Ipv4Addr::from(octets)));
                seconds = seconds.min(life);
            }
            (TYPE_AAAA, data) if is_ours && kind == RecordKind::V6 => {
                let octets = <[u8; 16]>::try_from(data).ok()?;
                found.push(IpAddr::V6(Ipv6Addr::from(octets)));
                seconds = seconds.min(life);
            }
            _ => {}
        }
        reader.at = end;
    }
    found.truncate(MAX_ADDRESSES);
    Some(match found.is_empty() {
        true => DnsAnswer::NoData,
        false => DnsAnswer::Addresses { addresses: found, seconds },
    })
}

struct MessageReader<'a> {
    message: &'a [u8],
    at: usize,
}

impl MessageReader<'_> {
    fn byte(&mut self) -> Option<u8> {
        let byte = self.message.get(self.at).copied()?;
        self.at += 1;
        Some(byte)
    }

    fn number(&mut self) -> Option<u16> {
        Some(u16::from(self.byte()?) << 8 | u16::from(self.byte()?))
    }

    fn header(&mut self) -> Option<[u16; 6]> {
        let mut numbers = [0; 6];
        for number in &mut numbers {
            *number = self.number()?;
        }
        Some(numbers)
    }

    /// A name without pointers, as in a question.
    fn plain_name(&mut self) -> Option<Option<DomainName>> {
        let mut text = Vec::new();
        loop {
            match self.byte()? {
                0 => return Some(as_name(&text)),
                length @ 1..=63 => self.label(length, &mut text)?,
                _ => return None,
            }
        }
    }

    /// A name with pointers to earlier parts of the message.
    fn name(&mut self) -> Option<Option<DomainName>> {
        let mut text = Vec::new();
        let mut after = None;
        let mut pointers = 0;
        loop {
            match self.byte()? {
                0 => {
                    self.at = after.unwrap_or(self.at);
                    return Some(as_name(&text));
                }
                length @ 1..=63 => self.label(length, &mut text)?,
                high if high & 0xc0 == 0xc0 => {
                    let low = self.byte()?;
                    after.get_or_insert(self.at);
                    self.at = usize::from(high & 0x3f) << 8 | usize::from(low);
                    pointers += 1;
                    if pointers > MAX_POINTERS {
                        return None;
                    }
                }
                _ => return None,
            }
        }
    }

    /// Appends one label and a dot. `None` for a label with a dot in it, and beyond 255
    /// bytes.
    fn label(&mut self, length: u8, text: &mut Vec<u8>) -> Option<()> {
        let end = self.at.checked_add(usize::from(length))?;
        // A dot inside a label would make the text mean another name.
        let label = self.message.get(self.at..end).filter(|label| !label.contains(&b'.'))?;
        text.extend(label);
        text.push(b'.');
        self.at = end;
        (text.len() <= 255).then_some(())
    }
}

fn as_name(text: &[u8]) -> Option<DomainName> {
    DomainName::parse(std::str::from_utf8(text).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn name(text: &str) -> DomainName {
        DomainName::parse(text).unwrap()
    }

    #[test]
    fn an_answer_has_the_addresses_of_its_kind() {
        let message = write_query(7, &name("a.test"), RecordKind::V4);
        let query = read_query(&message).unwrap();
        assert_eq!((query.name.clone(), query.kind), (Some(name("a.test")), RecordKind::V4));
        let addresses = ["192.0.2.1".parse().unwrap(), "2001:db8::1".parse().unwrap()];
        let answer = DnsAnswer::Addresses { addresses: addresses.to_vec(), seconds: 60 };
        let read = read_answer(&query.answer(&answer), 7, &name("a.test"), RecordKind::V4);
        let first =
            DnsAnswer::Addresses { addresses: vec!["192.0.2.1".parse().unwrap()], seconds: 60 };
        assert_eq!(read, Some(ServerAnswer::Final(first)));
        let read = |answer: &DnsAnswer| {
            read_answer(&query.answer(answer), 7, &name("a.test"), RecordKind::V4)
        };
        for outcome in [DnsAnswer::NoData, DnsAnswer::NoSuchName, DnsAnswer::ServerFailure] {
            assert_eq!(read(&outcome), Some(ServerAnswer::Final(outcome)));
        }
    }

    #[test]
    fn an_answer_to_another_question_is_none() {
        let query = read_query(&write_query(7, &name("a.test"), RecordKind::V4)).unwrap();
        let message = query.answer(&DnsAnswer::NoData);
        assert_eq!(read_answer(&message, 8, &name("a.test"), RecordKind::V4), None);
        assert_eq!(read_answer(&message, 7, &name("b.test"), RecordKind::V4), None);
        assert_eq!(read_answer(&message, 7, &name("a.test"), RecordKind::V6), None);
    }

    #[test]
    fn records_of_other_names_are_left_out() {
        let mut message = write_query(7, &name("a.test"), RecordKind::V4);
        message[2] = 0x80;
        message[7] = 3;
        // b.test A, then an alias of a.test to c.test, then c.test A.
        message.extend(b"\x01b\x04test\0\0\x01\0\x01\0\0\0\x09\0\x04\x09\x09\x09\x09");
        message.extend(b"\xc0\x0c\0\x05\0\x01\0\0\0\x09\0\x04\x01c\xc0\x0e");
        message.extend(b"\x01c\xc0\x0e\0\x01\0\x01\0\0\0\x05\0\x04\x01\x02\x03\x04");
        let answer =
            DnsAnswer::Addresses { addresses: vec!["1.2.3.4".parse().unwrap()], seconds: 5 };
        let read = read_answer(&message, 7, &name("a.test"), RecordKind::V4);
        assert_eq!(read, Some(ServerAnswer::Final(answer)));
    }

    #[test]
    fn pointers_cannot_make_the_reader_turn_for_ever() {
        let mut message = write_query(7, &name("a.test"), RecordKind::V4);
        message[2] = 0x80;
        message[7] = 1;
        let at = u8::try_from(message.len()).unwrap();
        message.extend([0xc0, at]);
        let read = read_answer(&message, 7, &name("a.test"), RecordKind::V4);
        assert_eq!(read, Some(ServerAnswer::Final(DnsAnswer::ServerFailure)));
        assert_eq!(read_query(b"\0\x01\x01\0\0\x01\0\0\0\0\0\0\xc0\x0c\0\x01\0\x01"), None);
    }

    #[test]
    fn a_label_with_a_dot_or_a_nul_is_no_name() {
        let query = |label: &[u8]| {
            let mut message =
                vec![0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, u8::try_from(label.len()).unwrap()];
            message.extend(label);
            message.extend(b"\0\0\x01\0\x01");
            read_query(&message)
        };
        assert_eq!(query(b"a.test"), None);
        assert_eq!(query(b"a\0b").unwrap().name, None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(bytes: Vec<u8>) {
            let _ = read_query(&bytes);
            let mut message = write_query(7, &name("a.test"), RecordKind::V4);
            message[2] = 0x80;
            message[7] = 9;
            message.extend(bytes);
            let _ = read_answer(&message, 7, &name("a.test"), RecordKind::V4);
        }
    }
}
