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
            "git update-ref refs/remotes/origin/z HEAD && git branch -q -u origin/z && test $(git config --get-all branch.x.merge) = refs/heads/z",
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

/// Sparse checkout and upkeep write their files; nothing else reaches these names.
#[test]
fn sparse_checkout_and_upkeep_work() {
    let unprotected = ["--unprotect", ".git", "--unprotect", ".git/info/sparse-checkout"];
    each_repository(&unprotected, |world| {
        bare(
            &world,
            "mkdir a b && echo 1 > a/f && echo 1 > b/f && git add -A && git commit -qm dirs",
        );
        for works in [
            "git sparse-checkout set a && test -e a/f && test ! -e b/f",
            "git sparse-checkout disable && test -e b/f",
            "git gc -q && git update-server-info && test -e .git/info/refs",
        ] {
            let output = world.sh(works);
            assert!(output.status.success(), "{works}: {output:?} {:?}", world.options);
        }
        for refused in [
            "echo '* filter=x' > .git/info/attributes",
            "git config --worktree core.fsmonitor ./x",
            "echo '[core] fsmonitor = ./x' >> .git/config.worktree",
            "mv .git/info x && mkdir .git/info; echo > .git/info/attributes",
            "mkdir x; echo > x/attributes; rm -rf .git/info; mv -T x .git/info",
        ] {
            let output = world.sh(refused);
            assert!(!output.status.success(), "{refused}: {output:?}");
            assert!(!world.project().join(".git/info/attributes").exists(), "{refused}");
        }
    });
}

/// A command adds a submodule and works in it. Later commands change neither its settings
/// nor its hooks, and put no other repository in its place.
#[test]
fn submodules_are_added_and_then_kept() {
    each_repository(&["--unprotect", ".git"], |world| {
        bare(&world, "git init -q --bare -b main sub.git && git push -q ./sub.git main");
        let git = "export GIT_ALLOW_PROTOCOL=file; git -c user.name=a -c user.email=a@b";
        for works in [
            "submodule add -q ./sub.git vendor/lib && git commit -qm sub",
            "-C vendor/lib commit -q --allow-empty -m inner && git -C vendor/lib gc -q",
            "-C vendor/lib checkout -q -b hooks2 && git -C vendor/lib config user.name b",
            "submodule deinit -q -f vendor/lib && git submodule update -q --init",
        ] {
            let output = world.sh(&format!("{git} {works}"));
            assert!(output.status.success(), "{works}: {output:?} {:?}", world.options);
        }
        let inner = world.project().join(".git/modules/vendor/lib");
        let before = std::fs::read(inner.join("config")).unwrap();
        let listed = std::fs::read(world.project().join(".gitmodules")).unwrap();
        for refused in [
            "git -C vendor/lib config core.fsmonitor ./x",
            "git -C vendor/lib config remote.origin.url https://evil.test/",
            "echo '[core] fsmonitor = ./x' >> .git/modules/vendor/lib/config",
            "echo x > .git/modules/vendor/lib/hooks/post-checkout",
            "mkdir -p h && echo x > h/pre-commit && mv h .git/modules/vendor/lib/hooks/h",
            "mv .git/modules/vendor/lib .git/modules/vendor/old",
            "mv .git/modules/vendor m",
            "mv .git/modules m",
            "mkdir .git/modules/vendor/lib/new && echo x > .git/modules/vendor/lib/new/config",
            "echo /x > .git/modules/vendor/lib/objects/info/alternates",
            "ln -s ../../evil .git/modules/new",
            "git config -f .gitmodules submodule.vendor/lib.url https://evil.test/",
            "git config -f .gitmodules submodule.vendor/lib.update '!evil'",
            "echo x >> .gitmodules",
        ] {
            let output = world.sh(refused);
            assert!(!output.status.success(), "{refused}: {output:?} {:?}", world.options);
            assert_eq!(std::fs::read(inner.join("config")).unwrap(), before, "{refused}");
            let now = std::fs::read(world.project().join(".gitmodules")).unwrap();
            assert_eq!(now, listed, "{refused}");
        }
    });
}
