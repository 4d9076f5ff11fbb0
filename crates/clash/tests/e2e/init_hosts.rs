//! The hosts that `clash init` finds and writes into the policy: the machine's are allowed,
//! the project's only if the user says so.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::PathBuf;

use crate::init::init;
use crate::support::{Machine, Ran, Who, as_each_user, clash};

/// A machine whose npm and cargo have mirrors, and a hostile project.
fn mirrored(who: Who) -> Machine {
    let m = Machine::new(who);
    m.write(".npmrc", "registry=https://npm.corp.test/\n//npm.corp.test/:_authToken=s3cr3t\n");
    m.write(
        ".cargo/config.toml",
        "[source.crates-io]\nreplace-with = \"m\"\n[source.m]\nregistry = \"sparse+https://crates.corp.test:8443/\"\n",
    );
    m.write("app/package.json", "{}");
    m.write("app/.npmrc", "registry=https://evil.test/\n");
    m.write("app/Cargo.toml", "");
    m.write("app/Cargo.lock", "source = \"registry+https://evil.test/index\"\n");
    m.write("app/.git/HEAD", "ref: refs/heads/main\n");
    m.write("app/.git/config", "[remote \"origin\"]\n\turl = git@code.test:me/app.git\n");
    m
}

fn policy_file(m: &Machine) -> PathBuf {
    m.home().join(".config/clash/policy.star")
}

/// The entries of a list `NAME_hosts` in the policy.
fn hosts(m: &Machine, name: &str) -> Vec<String> {
    let text = fs::read_to_string(policy_file(m)).unwrap();
    let (_, list) = text.split_once(&format!("\n{name}_hosts = [")).unwrap_or_default();
    let (list, _) = list.split_once(']').unwrap_or_default();
    list.split(',').map(|it| it.trim().replace('"', "")).filter(|it| !it.is_empty()).collect()
}

#[test]
fn presets_reach_the_mirrors_and_remotes_of_the_machine() {
    let m = mirrored(Who::Me);
    let ran = init(&m, &["--quick"]).succeeds();
    let ran = ran.says("not allowed, because only the project names them: evil.test");
    assert!(!ran.stdout.contains("s3cr3t"), "{ran:?}");
    assert_eq!(hosts(&m, "node"), ["npm.corp.test"]);
    assert_eq!(hosts(&m, "rust"), ["crates.corp.test:8443"]);
    assert_eq!(hosts(&m, "git"), ["code.test:22"]);
    m.clash(["policy", "check", "--strict"]).succeeds().says("no mistakes, no warnings");
    m.clash(["net", "node_full_here"]).succeeds().says("npm.corp.test").says("ask");
}

#[test]
fn hosts_of_the_project_need_the_user() {
    let m = mirrored(Who::Me);
    init(&m, &["--quick", "--project-hosts"]).succeeds();
    assert_eq!(hosts(&m, "node"), ["npm.corp.test", "evil.test"]);
    let m = mirrored(Who::Me);
    init(&m, &["--quick", "--yes"]).succeeds();
    assert_eq!(hosts(&m, "node"), ["npm.corp.test"]);
}

/// An agent could have changed the project's files between the two runs.
#[test]
fn a_further_run_adds_hosts_of_the_machine_only() {
    let m = mirrored(Who::Me);
    init(&m, &["--quick"]).succeeds();
    m.write("app/.git/config", "[remote \"x\"]\n\turl = https://late.test/x\n");
    m.write("app/package-lock.json", "\"resolved\": \"https://late.test/x.tgz\"\n");
    init(&m, &["--quick", "--yes"]).succeeds().says("late.test");
    assert_eq!(hosts(&m, "git"), ["code.test:22"]);
    assert_eq!(hosts(&m, "node"), ["npm.corp.test"]);
    m.write(".yarnrc.yml", "npmRegistryServer: \"http://127.0.0.1:4873\"\n");
    init(&m, &["--quick"]).exits(1).says("localhost(ports = [4873])");
    init(&m, &["--quick", "--yes"]).succeeds();
    let text = fs::read_to_string(policy_file(&m)).unwrap();
    assert!(text.contains("node_hosts = [\n    localhost(ports = [4873]),\n    \"npm.c"), "{text}");
    init(&m, &["--quick", "--yes", "--project-hosts"]).succeeds();
    assert_eq!(hosts(&m, "git"), ["late.test", "code.test:22"]);
    m.clash(["policy", "check"]).succeeds();
}

#[test]
fn every_host_is_reached_if_the_user_says_so() {
    let m = mirrored(Who::Me);
    init(&m, &["--quick", "--all-hosts"]).succeeds();
    let text = fs::read_to_string(policy_file(&m)).unwrap();
    assert!(text.contains("sandbox = node_full)") && !text.contains("_hosts"), "{text}");
}

/// A server on the loopback that answers each connection once.
fn registry() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut stream = stream;
            let _ = stream.read(&mut [0; 1024]);
            let _ = stream.write_all(b"HTTP/1.0 200 OK\r\n\r\nregistry");
        }
    });
    port
}

#[test]
fn a_local_mirror_is_reached_and_its_neighbour_is_not() {
    as_each_user(|m| {
        let (mirror, other) = (registry(), registry());
        m.write(".npmrc", &format!("registry=http://localhost:{mirror}/\n"));
        m.write("app/package.json", "{}");
        init(&m, &["--quick"]).succeeds();
        let get = |port: u16| {
            let url = format!("http://localhost:{port}/");
            let args = ["sandbox", "exec", "node_full_here", "--", "curl", "-sm", "5", &url];
            Ran::of(m.command(clash()).args(args))
        };
        get(mirror).succeeds().says("registry");
        let refused = get(other);
        assert!(refused.code != Some(0) && !refused.stdout.contains("registry"), "{refused:?}");
    });
}
