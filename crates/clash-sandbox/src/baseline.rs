//! The system baseline: what every sandbox may read and execute unless its
//! policy denies it, so that ordinary programs start at all.
//!
//! Every entry costs about four microseconds per launch, so whole directories
//! are named where they hold no secrets, and files that libraries quietly do
//! without are left out. Links need no entry (Landlock looks at what is opened
//! in the end), so /etc/alternatives is not here. /etc is the exception: it mixes
//! configuration that programs need with keys and hashes that root in a
//! container could read, so its files are named one by one. Not here on
//! purpose: /etc/shadow, /etc/ssl/private, ssh host keys, sudoers, /etc/pki
//! except certificates, package managers' credentials, home directories, /run,
//! /var, /dev/shm, and /dev/pts with /dev/ptmx (whoever may open /dev/pts can
//! read what the user types in every other terminal; a sandbox that needs
//! pseudo-terminals grants it by name).
//!
//! Entries that do not exist are skipped by the launcher. Reading other processes' secrets
//! through /proc is stopped by Landlock's ptrace rule, not by this table.

use clash_policy::Caps;

/// One path every sandbox gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    pub path: &'static str,
    pub caps: Caps,
    /// What stops working without it.
    pub why: &'static str,
}

const RX: Caps = Caps::READ.union(Caps::EXECUTE);
const R: Caps = Caps::READ;
const RW: Caps = Caps::READ.union(Caps::WRITE);

const PROGRAMS: &str = "programs and their libraries";
const LOADER: &str = "the dynamic loader";
const ACCOUNTS: &str = "user and group names";
const NAMES: &str = "host name lookup";
const TLS: &str = "certificates and TLS settings";
const LOCALE: &str = "locale and time zone";
const SHELLS: &str = "shell start-up and line editing";
const SYSTEM: &str = "which system this is";
const TOOLS: &str = "system-wide settings of common tools";
const LANGUAGES: &str = "language runtimes' own configuration";
const DEVICES: &str = "the harmless devices";
const KERNEL: &str = "what runtimes ask the kernel about the machine and themselves";

const fn entry(path: &'static str, caps: Caps, why: &'static str) -> Entry {
    Entry { path, caps, why }
}

/// The table. Directories come before what lies in them.
pub const ENTRIES: &[Entry] = &[
    entry("/usr", RX, PROGRAMS),
    entry("/bin", RX, PROGRAMS),
    entry("/sbin", RX, PROGRAMS),
    entry("/lib", RX, PROGRAMS),
    entry("/lib64", RX, PROGRAMS),
    entry("/lib32", RX, PROGRAMS),
    entry("/opt", RX, PROGRAMS),
    entry("/nix/store", RX, PROGRAMS),
    entry("/gnu/store", RX, PROGRAMS),
    entry("/etc/ld.so.cache", R, LOADER),
    entry("/etc/ld.so.preload", R, LOADER),
    entry("/etc/passwd", R, ACCOUNTS),
    entry("/etc/group", R, ACCOUNTS),
    entry("/etc/nsswitch.conf", R, NAMES),
    entry("/etc/hosts", R, NAMES),
    entry("/etc/hostname", R, NAMES),
    entry("/etc/resolv.conf", R, NAMES),
    entry("/etc/services", R, NAMES),
    entry("/etc/protocols", R, NAMES),
    entry("/etc/ssl/certs", R, TLS),
    entry("/etc/ssl/cert.pem", R, TLS),
    entry("/etc/ssl/openssl.cnf", R, TLS),
    entry("/etc/ca-certificates", R, TLS),
    entry("/etc/pki/tls/certs", R, TLS),
    entry("/etc/pki/tls/cert.pem", R, TLS),
    entry("/etc/pki/tls/openssl.cnf", R, TLS),
    entry("/etc/pki/ca-trust", R, TLS),
    entry("/etc/crypto-policies", R, TLS),
    entry("/var/lib/ca-certificates", R, TLS),
    entry("/etc/localtime", R, LOCALE),
    entry("/etc/timezone", R, LOCALE),
    entry("/etc/locale.conf", R, LOCALE),
    entry("/etc/profile", R, SHELLS),
    entry("/etc/profile.d", R, SHELLS),
    entry("/etc/bash.bashrc", R, SHELLS),
    entry("/etc/bashrc", R, SHELLS),
    entry("/etc/zsh", R, SHELLS),
    entry("/etc/inputrc", R, SHELLS),
    entry("/etc/terminfo", R, SHELLS),
    entry("/etc/os-release", R, SYSTEM),
    entry("/etc/lsb-release", R, SYSTEM),
    entry("/etc/redhat-release", R, SYSTEM),
    entry("/etc/alpine-release", R, SYSTEM),
    entry("/etc/gitconfig", R, TOOLS),
    entry("/etc/gitattributes", R, TOOLS),
    entry("/etc/ssh/ssh_config", R, TOOLS),
    entry("/etc/ssh/ssh_config.d", R, TOOLS),
    entry("/etc/ssh/ssh_known_hosts", R, TOOLS),
    entry("/etc/mime.types", R, TOOLS),
    entry("/etc/magic", R, TOOLS),
    entry("/etc/fonts", R, TOOLS),
    entry("/etc/xml", R, TOOLS),
    entry("/etc/dpkg", R, TOOLS),
    entry("/etc/vim", R, TOOLS),
    entry("/etc/wgetrc", R, TOOLS),
    entry("/etc/krb5.conf", R, TOOLS),
    entry("/etc/perl", R, LANGUAGES),
    entry("/etc/python3.11", R, LANGUAGES),
    entry("/etc/python3.12", R, LANGUAGES),
    entry("/etc/python3.13", R, LANGUAGES),
    entry("/etc/java", R, LANGUAGES),
    entry("/etc/java-11-openjdk", R, LANGUAGES),
    entry("/etc/java-17-openjdk", R, LANGUAGES),
    entry("/etc/java-21-openjdk", R, LANGUAGES),
    entry("/etc/java-25-openjdk", R, LANGUAGES),
    entry("/dev/null", RW, DEVICES),
    entry("/dev/zero", RW, DEVICES),
    entry("/dev/full", RW, DEVICES),
    entry("/dev/random", RW, DEVICES),
    entry("/dev/urandom", RW, DEVICES),
    entry("/dev/tty", RW, DEVICES),
    entry("/proc", R, KERNEL),
    entry("/sys/fs/cgroup", R, KERNEL),
    entry("/sys/devices/system", R, KERNEL),
    entry("/sys/kernel/mm/transparent_hugepage", R, KERNEL),
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn nothing_is_listed_twice_and_nothing_lies_below_a_directory_before_it() {
        for (at, entry) in ENTRIES.iter().enumerate() {
            for earlier in &ENTRIES[..at] {
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
            let covered = ENTRIES.iter().find(|e| Path::new(secret).starts_with(e.path));
            assert_eq!(covered, None, "{secret}");
        }
    }

    #[test]
    fn only_devices_can_be_written() {
        for entry in ENTRIES.iter().filter(|e| e.caps.intersects(Caps::CHANGE)) {
            assert!(entry.path.starts_with("/dev/"), "{}", entry.path);
            assert_eq!(entry.caps, RW);
        }
    }
}
