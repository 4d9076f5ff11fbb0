//! The processes of rooms, and the ports on which they listen, read from /proc.

use std::collections::{BTreeSet, HashSet};
use std::fs;

/// All processes that the caller can see.
pub(super) struct ProcessList(Vec<SeenProcess>);

struct SeenProcess {
    pid: u32,
    parent: u32,
    /// The number in the innermost process namespace, if it is not that of the caller.
    inside: Option<u32>,
}

impl ProcessList {
    pub(super) fn read() -> Self {
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        Self(pids.filter_map(SeenProcess::read).collect())
    }

    /// The processes of a room: those that descend from its first process, and the commands
    /// behind its doors, which descend from its broker. Leaves out the processes of clash:
    /// they are in no process namespace of their own, or process 1 of one.
    pub(super) fn of_room(&self, first: u32, broker: Option<u32>) -> Vec<u32> {
        let is_room = self.0.iter().any(|it| it.pid == first && it.inside.is_some());
        let mut found = self.descendants(first);
        found.retain(|process| !is_room || process.inside.is_some_and(|number| number > 1));
        let behind = broker.map(|broker| self.descendants(broker)).unwrap_or_default();
        let commands = behind.into_iter().filter(|it| it.inside.is_some_and(|number| number > 1));
        found.into_iter().chain(commands).map(|process| process.pid).collect()
    }

    /// The processes that descend from `root`, without it.
    fn descendants(&self, root: u32) -> Vec<&SeenProcess> {
        let mut known = HashSet::from([root]);
        let mut found: Vec<&SeenProcess> = Vec::new();
        loop {
            let is_new = |it: &&SeenProcess| known.contains(&it.parent) && !known.contains(&it.pid);
            let new: Vec<&SeenProcess> = self.0.iter().filter(is_new).collect();
            if new.is_empty() {
                return found;
            }
            known.extend(new.iter().map(|process| process.pid));
            found.extend(new);
        }
    }
}

impl SeenProcess {
    /// `None` if the process has ended, also if its parent has not asked about it yet.
    fn read(pid: u32) -> Option<Self> {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let field =
            |name: &str| status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        if field("State")?.trim_start().starts_with(['Z', 'X']) {
            return None;
        }
        let parent = field("PPid")?.trim().parse().ok()?;
        let numbers = field("NSpid")?.split_whitespace().skip(1);
        Some(Self { pid, parent, inside: numbers.last().and_then(|number| number.parse().ok()) })
    }
}

/// The TCP ports on which one of these processes listens.
pub(super) fn listening_ports(processes: &[u32]) -> Vec<u16> {
    let mut ports = BTreeSet::new();
    for pid in processes {
        let own = sockets(*pid);
        if own.is_empty() {
            continue;
        }
        for table in ["tcp", "tcp6"] {
            let table = fs::read_to_string(format!("/proc/{pid}/net/{table}")).unwrap_or_default();
            ports.extend(table.lines().filter_map(|line| listening_port(line, &own)));
        }
    }
    ports.into_iter().collect()
}

/// The inodes of the sockets that a process has open.
fn sockets(pid: u32) -> HashSet<String> {
    let open = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let inode = |entry: fs::DirEntry| {
        let target = fs::read_link(entry.path()).ok()?;
        Some(target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned())
    };
    open.filter_map(inode).collect()
}

/// The port of a line of /proc/net/tcp, if it is a listening socket of these.
fn listening_port(line: &str, own: &HashSet<String>) -> Option<u16> {
    const LISTENS: &str = "0A";
    let words: Vec<&str> = line.split_whitespace().collect();
    let (local, state, inode) = (words.get(1)?, words.get(3)?, words.get(9)?);
    if *state != LISTENS || !own.contains(*inode) {
        return None;
    }
    u16::from_str_radix(local.rsplit_once(':')?.1, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_listening_sockets_of_the_processes_count() {
        let own = HashSet::from(["77".to_owned()]);
        let line = |state: &str, inode: &str| {
            format!(
                "  0: 0100007F:1F90 00000000:0000 {state} 00000000:00000000 00:00000000 00000000  1000  0 {inode} 1 0 100 0"
            )
        };
        assert_eq!(listening_port(&line("0A", "77"), &own), Some(8080));
        assert_eq!(listening_port(&line("01", "77"), &own), None);
        assert_eq!(listening_port(&line("0A", "78"), &own), None);
        assert_eq!(listening_port("  sl  local_address rem_address", &own), None);
    }

    #[test]
    fn the_processes_of_clash_do_not_count() {
        let process = |pid, parent, inside| SeenProcess { pid, parent, inside };
        let list = ProcessList(vec![
            process(10, 1, Some(1)),
            process(11, 10, Some(3)),
            process(12, 11, Some(4)),
            process(20, 1, None),
            process(21, 20, None),
            process(22, 21, Some(1)),
            process(23, 21, Some(2)),
            process(30, 1, Some(9)),
        ]);
        assert_eq!(list.of_room(10, Some(20)), [11, 12, 23]);
        assert_eq!(list.of_room(10, None), [11, 12]);
    }
}
