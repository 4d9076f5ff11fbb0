//! The settings of a repository on the real kernel, with real git, in rooms and without, as
//! root and as a plain user.
#![cfg(target_os = "linux")]
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stderr,
    reason = "helpers of tests"
)]

mod support;

use support::*;

/// Git changes its settings, except those that name programs or other places.
#[test]
fn git_settings_are_judged_one_by_one() {
    each_repository(&[], |world| {
        bare(
            &world,
            "git remote add origin https://a.test/x.git && git update-ref refs/remotes/origin/y HEAD",
        );
        let config = world.project().join(".git/config");
        for works in [
            "git checkout -q -b x origin/y && test $(git config branch.x.remote) = origin",
            "git remote add fork git@host.test:me/x.git",
            "git config user.email me@host.test && git config user.email you@host.test",
            "git config pull.rebase true",
            "git checkout -q main && git branch -q -D x && ! git config branch.x.remote",
        ] {
            let output = world.sh(works);
            assert!(output.status.success(), "{works}: {output:?} {:?}", world.options);
        }
        let before = std::fs::read(&config).unwrap();
        for refused in [
            "git config core.sshCommand evil",
            "git config core.hooksPath hooks",
            "git config alias.st '!evil'",
            "git config include.path ../evil",
            "git remote set-url origin https://evil.test/x.git",
            "git remote remove origin",
            "git remote add evil ext::evil",
            "git config branch.main.pushRemote fork",
            "echo evil >> .git/config",
            "cp .git/config c; mv c .git/config",
            "cp .git/config .git/config.lock; echo '[core] fsmonitor = ./x' >> .git/config.lock; mv .git/config.lock .git/config",
            "ln -s ../evil .git/config.lock; mv .git/config.lock .git/config",
        ] {
            let output = world.sh(refused);
            assert!(!output.status.success() && !output.stderr.is_empty(), "{refused}: {output:?}");
            assert_eq!(std::fs::read(&config).unwrap(), before, "{refused}");
            let _ = std::fs::remove_file(world.project().join(".git/config.lock"));
        }
        // The lock file stays open while git renames it.
        let race = "exec 9> .git/config.lock; cat .git/config >&9; mv .git/config.lock .git/config; echo '[core] fsmonitor = ./x' >&9";
        world.sh(race);
        assert_eq!(std::fs::read(&config).unwrap(), before);
    });
}
