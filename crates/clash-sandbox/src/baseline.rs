//! The system baseline: paths that every sandbox may read or execute unless its policy
//! denies them, so that ordinary programs start.
//!
//! Each entry costs about four microseconds per launch. So the table names whole
//! directories that have no secrets, and leaves out files that libraries do not need. Links
//! need no entry, because Landlock checks the opened file; so /etc/alternatives is not
//! here. /etc mixes settings that programs need with keys and hashes that root in a
//! container could read, so its files are named one by one. Left out on purpose:
//! /etc/shadow, /etc/ssl/private, ssh host keys, sudoers, /etc/pki except certificates,
//! credentials of package managers, home directories, /run, /var, /dev/shm, and /dev/pts
//! with /dev/ptmx. A process that may open /dev/pts can read the keys of every other
//! terminal; a sandbox that needs pseudo-terminals grants it by name.
//!
//! The launcher skips entries that do not exist. Landlock's ptrace rule, not this table,
//! protects the secrets of other processes in /proc.

use clash_policy::FileCaps;

/// One path every sandbox gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BaselineEntry {
    pub path: &'static str,
    /// Whether the path is a directory where it exists. The table says so, because asking
    /// would cost a system call each. Where a system differs, the entry gives less, never
    /// more.
    pub directory: bool,
    pub caps: FileCaps,
    /// The function that fails without the entry.
    pub why: &'static str,
}

const RX: FileCaps = FileCaps::READ.union(FileCaps::EXECUTE);
const R: FileCaps = FileCaps::READ;
const RW: FileCaps = FileCaps::READ.union(FileCaps::WRITE);

const PROGRAMS: &str = "programs and their libraries";
const LOADER: &str = "the dynamic loader";
const ACCOUNTS: &str = "user and group names";
const HOST_NAMES: &str = "host name lookup";
const TLS: &str = "certificates and TLS settings";
const LOCALE: &str = "locale and time zone";
const SHELLS: &str = "shell start-up and line editing";
const SYSTEM: &str = "which system this is";
const TOOLS: &str = "system-wide settings of common tools";
const LANGUAGES: &str = "language runtimes' own configuration";
const DEVICES: &str = "the harmless devices";
const KERNEL: &str = "facts about the machine and the process that runtimes read";

/// An entry for a directory with everything in it.
const fn tree(path: &'static str, caps: FileCaps, why: &'static str) -> BaselineEntry {
    BaselineEntry { path, directory: true, caps, why }
}

/// An entry for a single file or device.
const fn file(path: &'static str, caps: FileCaps, why: &'static str) -> BaselineEntry {
    BaselineEntry { path, directory: false, caps, why }
}

/// Entries that are links on some systems. A room needs their real paths.
pub const LINKED: [&str; 4] = ["/etc/resolv.conf", "/etc/hosts", "/etc/ssl/certs", "/opt"];

/// The table. A directory comes before the entries in it.
pub const BASELINE_ENTRIES: &[BaselineEntry] = &[
    tree("/usr", RX, PROGRAMS),
    tree("/bin", RX, PROGRAMS),
    tree("/sbin", RX, PROGRAMS),
    tree("/lib", RX, PROGRAMS),
    tree("/lib64", RX, PROGRAMS),
    tree("/lib32", RX, PROGRAMS),
    tree("/opt", RX, PROGRAMS),
    tree("/nix/store", RX, PROGRAMS),
    tree("/gnu/store", RX, PROGRAMS),
    file("/etc/ld.so.cache", R, LOADER),
    file("/etc/ld.so.preload", R, LOADER),
    file("/etc/passwd", R, ACCOUNTS),
    file("/etc/group", R, ACCOUNTS),
    file("/etc/nsswitch.conf", R, HOST_NAMES),
    file("/etc/hosts", R, HOST_NAMES),
    file("/etc/hostname", R, HOST_NAMES),
    file("/etc/resolv.conf", R, HOST_NAMES),
    file("/etc/services", R, HOST_NAMES),
    file("/etc/protocols", R, HOST_NAMES),
    tree("/etc/ssl/certs", R, TLS),
    file("/etc/ssl/cert.pem", R, TLS),
    file("/etc/ssl/openssl.cnf", R, TLS),
    tree("/etc/ca-certificates", R, TLS),
    tree("/etc/pki/tls/certs", R, TLS),
    file("/etc/pki/tls/cert.pem", R, TLS),
    file("/etc/pki/tls/openssl.cnf", R, TLS),
    tree("/etc/pki/ca-trust", R, TLS),
    tree("/etc/crypto-policies", R, TLS),
    tree("/var/lib/ca-certificates", R, TLS),
    file("/etc/localtime", R, LOCALE),
    file("/etc/timezone", R, LOCALE),
    file("/etc/locale.conf", R, LOCALE),
    file("/etc/profile", R, SHELLS),
    tree("/etc/profile.d", R, SHELLS),
    file("/etc/bash.bashrc", R, SHELLS),
    file("/etc/bashrc", R, SHELLS),
    tree("/etc/zsh", R, SHELLS),
    file("/etc/inputrc", R, SHELLS),
    tree("/etc/terminfo", R, SHELLS),
    file("/etc/os-release", R, SYSTEM),
    file("/etc/lsb-release", R, SYSTEM),
    file("/etc/redhat-release", R, SYSTEM),
    file("/etc/debian_version", R, SYSTEM),
    file("/etc/fedora-release", R, SYSTEM),
    file("/etc/centos-release", R, SYSTEM),
    file("/etc/system-release", R, SYSTEM),
    file("/etc/arch-release", R, SYSTEM),
    file("/etc/alpine-release", R, SYSTEM),
    file("/etc/gitconfig", R, TOOLS),
    file("/etc/gitattributes", R, TOOLS),
    file("/etc/ssh/ssh_config", R, TOOLS),
    tree("/etc/ssh/ssh_config.d", R, TOOLS),
    file("/etc/ssh/ssh_known_hosts", R, TOOLS),
    file("/etc/mime.types", R, TOOLS),
    file("/etc/magic", R, TOOLS),
    tree("/etc/fonts", R, TOOLS),
    tree("/etc/xml", R, TOOLS),
    tree("/etc/dpkg", R, TOOLS),
    tree("/etc/vim", R, TOOLS),
    file("/etc/wgetrc", R, TOOLS),
    file("/etc/krb5.conf", R, TOOLS),
    tree("/etc/perl", R, LANGUAGES),
    tree("/etc/python3.11", R, LANGUAGES),
    tree("/etc/python3.12", R, LANGUAGES),
    tree("/etc/python3.13", R, LANGUAGES),
    tree("/etc/java", R, LANGUAGES),
    tree("/etc/java-11-openjdk", R, LANGUAGES),
    tree("/etc/java-17-openjdk", R, LANGUAGES),
    tree("/etc/java-21-openjdk", R, LANGUAGES),
    tree("/etc/java-25-openjdk", R, LANGUAGES),
    file("/dev/null", RW, DEVICES),
    file("/dev/zero", RW, DEVICES),
    file("/dev/full", RW, DEVICES),
    file("/dev/random", RW, DEVICES),
    file("/dev/urandom", RW, DEVICES),
    file("/dev/tty", RW, DEVICES),
    tree("/proc", R, KERNEL),
    tree("/sys/fs/cgroup", R, KERNEL),
    tree("/sys/devices/system", R, KERNEL),
    tree("/sys/kernel/mm/transparent_hugepage", R, KERNEL),
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn entries_are_unique_and_sorted_by_directory() {
        for (at, entry) in BASELINE_ENTRIES.iter().enumerate() {
            for earlier in &BASELINE_ENTRIES[..at] {
                assert!(!Path::new(entry.path).starts_with(earlier.path), "{}", entry.path);
            }
        }
    }

    #[test]
    fn secrets_and_shared_places_are_outside() {
        for secret in [
            "/etc/shadow",
            "/etc/gshadow",
            "/etc/sudoers",
            "/etc/ssl/private/key.pem",
            "/etc/pki/tls/private/key.pem",
            "/etc/ssh/ssh_host_ed25519_key",
            "/etc/clash/policy.star",
            "/etc/npmrc",
            "/root/.ssh/id_ed25519",
            "/home/u/.ssh/id_ed25519",
            "/run/docker.sock",
            "/var/lib/dpkg/status",
            "/dev/shm/x",
            "/dev/pts/0",
            "/dev/vda",
            "/tmp/x",
        ] {
            let covered = BASELINE_ENTRIES.iter().find(|e| Path::new(secret).starts_with(e.path));
            assert_eq!(covered, None, "{secret}");
        }
    }

    #[test]
    fn only_devices_can_be_written() {
        for entry in BASELINE_ENTRIES.iter().filter(|e| e.caps.intersects(FileCaps::CHANGE)) {
            assert!(entry.path.starts_with("/dev/"), "{}", entry.path);
            assert_eq!(entry.caps, RW);
        }
    }
}
