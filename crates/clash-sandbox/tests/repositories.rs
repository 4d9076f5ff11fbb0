//! Repositories on the real kernel: the project's own stays valid for git, and no other
//! appears except a whole new one. With real git, in rooms and without, as root and as a
//! plain user.
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

/// Prints `found` if `front` has a file that only a new repository may have, and is none. Then
/// removes the files of the attack.
const FIND_AND_CLEAN: &str =
    "test ! -e front/.envrc || test -e front/.git && test ! -L front || echo found
    rm -rf new front old g";

const UNPROTECT: &[&str] = &["--unprotect", ".git"];

#[test]
fn git_always_takes_the_project_for_its_repository() {
    for options in [&[][..], UNPROTECT] {
        each_repository(options, |world| {
            for attack in [
                "rm .git/HEAD",
                "rm -f .git/HEAD",
                "mv .git/HEAD .git/OLD",
                "mv .git/HEAD h",
                "echo x > .git/HEAD",
                ": > .git/HEAD",
                "truncate -s 0 .git/HEAD",
                "chmod 0 .git/HEAD",
                "chmod 0 .git/refs",
                "chmod 0 .git/objects",
                "chmod 0 .git",
                "mv .git/refs .git/r",
                "mv .git/objects o",
                "rm -r .git/refs",
                "echo junk > .git/HEAD.lock && mv .git/HEAD.lock .git/HEAD",
                "rm -f .git/HEAD.lock; ln -s nowhere .git/HEAD.lock && mv .git/HEAD.lock .git/HEAD",
                "rm -f .git/HEAD.lock; echo 'ref: refs/heads/main' > x && mv x .git/HEAD",
                "rm -f x; echo junk > x; ln -f x .git/HEAD",
                "ln .git/HEAD y && echo junk > y",
                "mkdir -p d; mv -T d .git/HEAD",
                "cp f .git/HEAD",
                "echo ../x > .git/commondir",
                "mv .git/HEAD .git/head",
                "mkdir .git/remotes && echo 'URL: x' > .git/remotes/origin",
            ] {
                fails(&world, attack);
                let head = bare(&world, "rm -f .git/HEAD.lock x; git rev-parse --git-dir");
                assert_eq!(head, ".git", "after {attack} {:?}", world.options);
            }
        });
    }
}

/// A process that keeps the lock file open cannot change `HEAD` afterwards.
#[test]
fn a_head_is_not_changed_through_its_lock_file() {
    each_repository(&[], |world| {
        works(
            &world,
            "exec 3> .git/HEAD.lock; echo 'ref: refs/heads/other' >&3; mv .git/HEAD.lock .git/HEAD;
             echo junk >&3; echo more >&3; test ! -e .git/HEAD.lock",
        );
        assert_eq!(
            bare(&world, "cat .git/HEAD; ls .git | grep -c HEAD"),
            "ref: refs/heads/other\n1"
        );
        works(
            &world,
            "echo 'ref: refs/heads/main' > .git/HEAD.lock; ln .git/HEAD.lock l;
             mv .git/HEAD.lock .git/HEAD; echo junk > l; rm l",
        );
        assert_eq!(bare(&world, "cat .git/HEAD"), "ref: refs/heads/main");
    });
}

/// A monitor that is killed while it replaces `HEAD` leaves its copy.
#[test]
fn the_next_monitor_removes_the_copy_of_a_killed_one() {
    each_repository(&[], |world| {
        bare(&world, "echo junk > .git/HEAD.lock-clash");
        works(&world, "echo x > new && rm new");
        bare(&world, "test ! -e .git/HEAD.lock-clash && echo junk > .git/HEAD.lock-clash");
        works(&world, "git checkout -q other && git checkout -q main");
        bare(&world, "test ! -e .git/HEAD.lock-clash && git status --porcelain");
        for name in ["HEAD.lock-clash", "HEAD.lock-clash-1-0"] {
            fails(&world, &format!("echo x > .git/{name}"));
            fails(&world, &format!("echo x > x && mv x .git/{name}"));
        }
    });
}

/// A user outside puts a repository of their own under the name of one that the command
/// has made. The command may change its own repository and not the user's.
#[test]
fn a_repository_put_in_the_place_of_a_new_one_is_kept() {
    each_repository(UNPROTECT, |world| {
        let outside = world.project();
        let swap = std::thread::spawn(move || {
            let until = |name: &str| {
                while !outside.join(name).exists() {
                    std::thread::sleep(std::time::Duration::from_millis(5));
                }
            };
            until("ready");
            std::fs::rename(outside.join("new"), outside.join("away")).unwrap();
            std::fs::rename(outside.join("of_user"), outside.join("new")).unwrap();
            std::fs::write(outside.join("go"), "").unwrap();
        });
        bare(&world, "git init -q of_user");
        works(
            &world,
            "git init -q new && echo own > new/.git/hooks/pre-commit && echo x > new/.envrc &&
             touch ready && until test -e go; do sleep 0.01; done
             ! echo bad > new/.git/hooks/pre-commit && ! echo bad >> new/.git/config &&
             ! echo bad > new/.envrc",
        );
        swap.join().unwrap();
        let found = bare(&world, "cat away/.git/hooks/pre-commit; ls -A new; cat new/.git/config");
        assert!(found.starts_with("own\n.git\n") && !found.contains("bad"), "{found}");
        bare(&world, "rm -rf new away ready go");
    });
}

#[test]
fn no_repository_without_a_work_tree_is_completed() {
    for options in [&[][..], UNPROTECT] {
        each_repository(options, |world| {
            bare(
                &world,
                "mkdir -p sub half/objects half/refs bare2; cp -r .git/objects .git/refs bare2/
                 mkdir front other; echo ../build/c > front/commondir; cp .git/HEAD other/",
            );
            for attack in [
                "cp -r .git/objects .git/refs .git/HEAD .",
                "cp .git/HEAD half/HEAD",
                "mkdir half/HEAD",
                "ln -s ../f half/HEAD",
                "ln f half/HEAD",
                "cp f g && mv g half/HEAD",
                "mkfifo half/HEAD",
                "cp .git/HEAD bare2/",
                "cp .git/HEAD front/HEAD",
                "cp .git/HEAD g && mv g front/HEAD",
                "mkdir front/HEAD",
                "ln -s ../f front/HEAD",
                "echo ../build/c > other/commondir",
                "cp f other/g && mv other/g other/commondir",
                "ln -s ../f other/commondir",
                "ln f other/commondir",
                "mkdir other/commondir",
                "mkfifo other/commondir",
            ] {
                fails(&world, attack);
                bare(&world, "rm -rf HEAD objects refs g");
            }
            // The settings that such a directory would have.
            works(&world, "mkdir -p build/c/objects build/c/refs && echo x > build/c/config");
            // In a directory that the command makes, where it may make repositories.
            let made = "mkdir -p t/refs && touch t/HEAD && mkdir o2 && mv o2 t/objects";
            assert_eq!(world.sh(made).status.success(), !options.is_empty(), "{:?}", world.options);
        });
    }
}

/// Git finds `objects` and `refs` in the directory that `commondir` names.
#[test]
fn no_directory_borrows_the_parts_of_a_repository() {
    each_repository(&[], |world| {
        bare(&world, "mkdir front && echo 1 > front/f");
        let _ = world.sh("mkdir -p build/c/objects build/c/refs
             printf '[core]\n\tfsmonitor = \"touch ran; false\"\n' > build/c/config
             echo ../build/c > front/commondir; cp build/c/config front/config.worktree
             echo 'ref: refs/heads/main' > front/HEAD");
        assert_eq!(
            bare(&world, "cd front && git status -s; git rev-parse --git-dir; ls | grep ran || :")
                .lines()
                .filter(|line| *line == "." || *line == "ran")
                .count(),
            0,
            "{:?}",
            world.options
        );
    });
}

/// Makes and removes one part until the other exists too.
const TOGETHER: &str = r#"
import os, sys, time
own, other = sys.argv[1:]
end = time.time() + 2
while time.time() < end:
    try: os.close(os.open(own, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except OSError: continue
    if os.path.exists(other): print("both")
    os.unlink(own)
print("done")
"#;

/// Each of two rooms makes one part, at the same time.
#[test]
fn two_rooms_do_not_complete_a_repository_together() {
    for who in identities() {
        for tier in [&[][..], &["--simulate", "no-userns"]] {
            let world = World::new(who);
            bare(&world, "mkdir d");
            let world = world.with_places().option(tier);
            let prefix = world.prefix().join(" ");
            let half = |own: &str, other: &str| {
                format!("timeout 60 {prefix} {PYTHON} -c '{TOGETHER}' {own} {other} & ")
            };
            let (head, common) = (half("d/HEAD", "d/commondir"), half("d/commondir", "d/HEAD"));
            let found = bare(&world, &format!("{head} {common} wait"));
            assert_eq!(found, "done\ndone", "{:?}", world.options);
        }
    }
}

#[test]
fn a_repository_without_a_work_tree_that_is_there_is_kept() {
    each_repository(UNPROTECT, |world| {
        bare(&world, "git clone -q --bare . fixture.git");
        for attack in [
            "echo x >> fixture.git/config",
            "echo x > fixture.git/hooks/post-update",
            "echo x > fixture.git/commondir",
            "cp fixture.git/config c && mv c fixture.git/config",
        ] {
            fails(&world, attack);
        }
        works(&world, "git -C fixture.git update-ref refs/heads/new HEAD && rm -rf fixture.git");
    });
}

#[test]
fn everyday_work_of_git_goes_on() {
    let options = [
        UNPROTECT,
        &["--unprotect", ".git/rebase-merge/git-rebase-todo"],
        &["--unprotect", ".git/worktrees/*/rebase-merge/git-rebase-todo"],
    ];
    each_repository(&options.concat(), |world| {
        for script in [
            "echo 3 > f && git commit -qam three && git commit -q --amend -m again",
            "git switch -q other && git switch -qc topic && git checkout -q main",
            "git checkout -q --detach HEAD~1 && git checkout -q main",
            "git symbolic-ref HEAD refs/heads/other && git symbolic-ref HEAD refs/heads/main",
            "git switch -q topic && echo t > t && git add t && git commit -qm t && git rebase -q main",
            "git switch -q main && git merge -q topic && git branch -D topic",
            "git reset -q --hard HEAD~1 && git reset -q --hard ORIG_HEAD",
            "echo s > f && git stash -q && git stash pop -q && git checkout -q f",
            "GIT_SEQUENCE_EDITOR='sed -i 1s/pick/reword/' GIT_EDITOR=true git rebase -qi HEAD~2",
            "git worktree add -q wt -b wt && cd wt && git checkout -q --detach && git switch -q main -d",
            "git worktree remove wt && git worktree prune",
            "git tag v1 && git gc -q && git repack -qad && git pack-refs --all && git fsck",
            "git clone -q . copy && git -C copy fetch -q && git -C copy checkout -q --detach && rm -rf copy",
            "git init -q new && git -C new symbolic-ref HEAD refs/heads/x && rm -rf new",
            "git init -q --bare b.git && git push -q b.git main && rm -rf b.git",
            "git clone -q --bare . c.git && git -C c.git symbolic-ref HEAD refs/heads/other && rm -rf c.git",
            "git bisect start HEAD HEAD~1 && git bisect reset && git revert --no-edit HEAD",
            "git fetch -q . main:fetched && git update-ref -d refs/heads/fetched && git status -sb",
        ] {
            works(&world, script);
        }
        assert_eq!(bare(&world, "git status --porcelain; cat .git/HEAD"), "ref: refs/heads/main");
    });
}

#[test]
fn no_steps_of_a_rebase_are_planted() {
    each_repository(UNPROTECT, |world| {
        let plant = "mkdir -p .git/rebase-merge && echo exec true > ";
        fails(&world, &format!("{plant}.git/rebase-merge/git-rebase-todo"));
        fails(&world, &format!("{plant}x && mv x .git/rebase-merge/git-rebase-todo"));
        fails(
            &world,
            "rm -rf .git/rebase-merge; mkdir p && echo exec true > p/git-rebase-todo &&
             mv p .git/other && mv -T .git/other .git/rebase-merge",
        );
    });
}

/// Files that only a new repository may have do not stay behind without it.
#[test]
fn a_new_repository_does_not_lend_its_rights() {
    each_repository(UNPROTECT, |world| {
        bare(&world, "mkdir front && echo 1 > front/f");
        let plant = "mkdir -p new/sub new/.git && echo x > new/.envrc && echo x > new/sub/.envrc";
        for attack in [
            "rm -rf new/.git; mv front old; mv new front",
            "rm -rf new/.git; rm -r front; mv -T new front",
            "rm -rf new/.git; mv front old; mv new/sub front",
            "mv front old; mv new/sub front",
            "mv front old; mv new front",
            "mv front old; ln -s new/sub front",
            "mv front old; ln -s new front",
            "mv new/.git g; mv front old; mv new front",
            "rm -rf new/.git; echo y > new/.bashrc; test -e new/.git || test ! -e new/.bashrc",
        ] {
            let _ = world.sh(&format!("{plant}; {attack}"));
            let found = bare(&world, FIND_AND_CLEAN);
            assert_eq!(found, "", "{attack} {:?}", world.options);
            bare(&world, "mkdir front && echo 1 > front/f");
            // In two commands.
            let _ = world.sh(plant);
            let _ = world.sh(attack);
            let found = bare(&world, FIND_AND_CLEAN);
            assert_eq!(found, "", "in two: {attack} {:?}", world.options);
            bare(&world, "mkdir front && echo 1 > front/f");
        }
        works(&world, &format!("{plant} && rm -rf new && test ! -e new"));
    });
}

#[test]
fn no_linked_worktree_is_forged() {
    each_repository(&[], |world| {
        bare(&world, "mkdir front && git worktree add -q wt");
        let forge = "mkdir -p .git/worktrees/e && cd .git/worktrees/e &&";
        for attack in [
            "echo ../../../build/c > commondir",
            "echo ../.. > commondir",
            "echo x > g && mv g commondir",
            "ln -s ../wt/commondir commondir",
            "echo ../../../front/.git > gitdir",
            "ln ../../../f gitdir",
            "echo '[core]' > config.worktree",
            "echo '[core]' > ../wt/config.worktree",
            "echo x > ../wt/g && mv ../wt/g ../wt/config.worktree",
            "rm ../wt/commondir",
            "echo x > ../wt/commondir",
            "mkdir -p d && cp ../wt/commondir ../wt/gitdir d && mv d ../d",
        ] {
            fails(&world, &format!("{forge} {attack}"));
        }
        let _ = world.sh(&format!("{forge} cp ../wt/* .; cp -r ../wt ../copy"));
        bare(&world, "git worktree repair 2>&1; test ! -e front/.git");
        works(&world, "cd wt && git switch -qc side && echo 3 > f && git commit -qam 3");
        works(&world, "cd wt && git bisect start HEAD HEAD~1 && git bisect reset");
    });
}

/// Git obeys the settings in the directory that `commondir` names.
#[test]
fn a_new_worktree_belongs_to_its_repository() {
    let options =
        [UNPROTECT, &["--unprotect", ".git/worktrees/*/rebase-merge/git-rebase-todo"]].concat();
    each_repository(&options, |world| {
        let forge = "mkdir -p .git/worktrees/e && cd .git/worktrees/e && rm -f commondir &&";
        for attack in [
            "echo ../../../build/c > commondir",
            "exec 3<> commondir; echo x >&3; echo longer >&3",
            "echo x > g; mv g commondir",
            "echo x > g; ln g commondir",
            "ln -s ../g commondir",
            "mkdir commondir && echo x > commondir/f",
            "mkdir -p .git; echo x > commondir; echo x >> commondir",
            "mkdir -p .git; : > commondir; truncate -s 0 commondir",
            "mkdir -p .git; : > commondir; ln commondir l && echo x > l",
            "mkdir -p .git; : > commondir; mv commondir l; echo x > l; mv l commondir",
        ] {
            let _ = world.sh(&format!("{forge} {attack}"));
            let found = "cat .git/worktrees/e/commondir 2> /dev/null; find .git -name f; rm -rf .git/worktrees/e";
            let found = bare(&world, found);
            assert!(["", "../.."].contains(&&*found), "{attack}: {found} {:?}", world.options);
        }
        fails(&world, "rmdir .git/worktrees; ln -s ../front .git/worktrees");
        fails(&world, "mkdir -p .git/worktrees && ln -s ../../front .git/worktrees/e");
        works(
            &world,
            "git worktree add -q wt && git -C wt status && git worktree move wt wt2 ||
            git worktree list | grep -q wt",
        );
        works(
            &world,
            "git worktree add -q third && git worktree remove third && git worktree prune",
        );
        works(
            &world,
            "git clone -q . copy && git -C copy worktree add -q ../of-copy && git -C of-copy log -1",
        );
    });
}

/// Other version control tools also have files that name the repository.
#[test]
fn no_file_says_where_another_repository_is() {
    for who in identities() {
        for tier in [&[][..], &["--simulate", "no-userns"]] {
            let world = World::new(who);
            let app = world.project();
            let world = world.option(&["--project", app.to_str().unwrap()]).option(tier);
            bare(&world, "mkdir -p .jj .sl sub/.jj && echo x > f");
            for attack in [
                "echo ../../x > .jj/repo",
                "echo x > g; mv g .jj/repo",
                "ln f sub/.jj/repo",
                "ln -s ../f sub/.jj/repo",
                "mkfifo .jj/REPO",
                "echo x > .sl/sharedpath",
                "echo x > .lfsconfig",
                "mkdir .sl/sharedpath",
            ] {
                fails(&world, attack);
            }
            works(&world, "mkdir -p .jj/repo/store && echo x > .jj/repo/store/type");
            fails(&world, "mv .jj/repo .jj/old");
            works(&world, "mkdir -p .jj/repo/op_store new/.jj/repo/store");
        }
    }
}
