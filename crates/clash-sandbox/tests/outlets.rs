//! Ways out of a sandbox that no rule names: core files, the standard streams and
//! the temporary directory. Each case runs as root and as a plain user.
#![cfg(target_os = "linux")]
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stderr,
    reason = "helpers of tests"
)]

mod support;

use std::fs;
use std::os::unix::fs::chown;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;

use support::*;

/// Runs a script with core files switched on outside.
fn with_core_files(world: &World, script: &str) -> std::process::Output {
    let prefix = world.prefix().join(" ");
    world.bare(&["/bin/sh", "-c", &format!("ulimit -c unlimited; exec {prefix} {script}")])
}

fn entries(dir: &Path) -> Vec<String> {
    let names = fs::read_dir(dir).unwrap();
    names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

fn hooks_of(world: &World) -> std::path::PathBuf {
    let hooks = world.project().join(".git/hooks");
    fs::create_dir_all(&hooks).unwrap();
    if world.who.is_some() {
        chown(world.project().join(".git"), world.who, world.who).unwrap();
        chown(&hooks, world.who, world.who).unwrap();
    }
    hooks
}

fn core_files_land_in_the_working_directory() -> bool {
    let pattern = fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap_or_default();
    let plain = !pattern.starts_with(['|', '/', '@']);
    if !plain {
        eprintln!("SKIPPED (core_pattern is {pattern}): core files do not land in the project");
    }
    plain
}

#[test]
fn a_crash_leaves_no_core_file_in_any_tier() {
    if !core_files_land_in_the_working_directory() {
        return;
    }
    let crash = "/bin/sh -c 'cd .git/hooks; kill -SEGV $$'";
    in_both_tiers(|world| {
        let hooks = hooks_of(&world);
        let output = with_core_files(&world, crash);
        assert_eq!(output.status.signal(), Some(libc::SIGSEGV), "{}", text(&output));
        assert_eq!(entries(&hooks), [""; 0], "as {:?}", world.who);
        // Without a sandbox it is there.
        world.bare(&["/bin/sh", "-c", &format!("ulimit -c unlimited; {crash}")]);
        assert_eq!(entries(&hooks).len(), 1);
    });
    // Where nothing may be written the launcher becomes the command.
    everyone(|world| {
        let hooks = hooks_of(&world);
        let (room, project) = (world.path("room"), world.project());
        let line = format!(
            "ulimit -c unlimited; exec {} --r {} -- {crash}",
            room.display(),
            project.display()
        );
        let output = world.bare(&["/bin/sh", "-c", &line]);
        assert_eq!(output.status.signal(), Some(libc::SIGSEGV), "{}", text(&output));
        assert_eq!(entries(&hooks), [""; 0], "as {:?}", world.who);
    });
}

#[test]
fn the_limit_of_core_files_cannot_be_raised() {
    in_both_tiers(|world| {
        let raise = "__import__('resource').setrlimit(4, (1 << 20, 1 << 20))";
        let script = format!("{PRELUDE}\ntry: {raise}; print('RAISED')\nexcept Exception: pass");
        let output = world.run(&[PYTHON, "-c", &script]);
        assert_eq!(text(&output), "", "as {:?}", world.who);
        let soft = "__import__('resource').setrlimit(4, (1 << 20, 1))";
        let script = format!("{PRELUDE}\ntry: {soft}; print('RAISED')\nexcept Exception: pass");
        assert_eq!(text(&world.run(&[PYTHON, "-c", &script])), "", "as {:?}", world.who);
    });
}
