//! Persistence paths on the real kernel: files that tools obey, and the repositories, links and
//! directories around them. In rooms and without, as root and as a plain user.
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

use support::*;

#[test]
fn persistence_paths_do_not_come_to_be_by_any_way() {
    each_tier(|world| {
        works(&world, "mkdir -p src/deep x/hooks && echo x > plain && echo x > x/hooks/pre-commit");
        for attack in [
            "echo x > .envrc",
            "echo x > src/deep/.envrc",
            "touch .envrc",
            "cp plain .envrc",
            "mv plain .envrc",
            "ln plain .envrc",
            "ln -s plain .envrc",
            "mkdir .vscode",
            "mkdir -p src/.idea/x",
            "mv src .vscode",
            "mv x .git",
            "mkdir src/.git",
            "ln -s x src/.git",
            "ln -s . self && echo x > self/.envrc",
            "ln -s .envrc link && echo x > link",
            "cd src && echo x > ../.mcp.json",
            "echo x > /proc/self/cwd/.envrc",
            "exec 3<. && echo x > /proc/self/fd/3/.envrc",
            "exec 3<. && echo x > /dev/fd/3/.envrc",
            "echo x > .ENVRC",
            "mkfifo .envrc",
            "echo x > all.code-workspace",
            "tar cf t.tar --transform s/plain/.envrc/ plain && tar xf t.tar",
        ] {
            works(&world, "rm -f self link t.tar");
            fails(&world, attack);
        }
        works(&world, "rm -rf self link t.tar");
        assert_eq!(names(&world.project()), ["plain", "src", "x"], "nothing is left behind");
        assert_eq!(names(&world.path("home/app/src")), ["deep"]);
        assert!(names(&world.path("home/app/src/deep")).is_empty());
    });
}

#[test]
fn new_repositories_can_be_made_and_are_then_protected() {
    if !has_git() {
        return;
    }
    each_tier(|world| {
        let commit = "git -c user.name=a -c user.email=a@b commit -qm x --allow-empty";
        fails(&world, "git init -q sub");
        let world = world.option(&["--unprotect", ".git"]);
        works(&world, "rm -rf sub");
        works(&world, &format!("git init -q . && echo 1 > f && git add f && {commit}"));
        works(&world, "git clone -q . copy 2>&1 && test -s copy/f && git -C copy config a.b c");
        for attack in [
            "git config a.b c",
            "git -C copy config a.b d",
            "echo x > .git/hooks/pre-commit",
            "echo x > copy/.git/hooks/pre-commit",
            "mkdir copy/.vscode",
            "mv copy/.git .git2",
            "git init -q fresh && mv fresh/.git/hooks copy/hooks && mv copy/hooks copy/.git/hooks",
        ] {
            fails(&world, attack);
        }
        works(&world, &format!("cd copy && echo 2 > f && git add f && {commit}"));
        works(&world, "git worktree add -q wt 2>&1 && cd wt && echo 3 > f && git add f");
        fails(&world, "echo x > .git/worktrees/wt/commondir");
    });
}

#[test]
fn a_read_only_descriptor_does_not_reopen_for_writing() {
    each_tier(|world| {
        let made = "mkdir -p .git && echo old > .git/config && echo old > plain";
        assert!(world.bare(&["/bin/sh", "-c", made]).status.success());
        let redirected = |redirect: &str, inner: &str| {
            let script = format!("exec \"$@\" {redirect}");
            let mut argv = vec!["/bin/sh".to_owned(), "-c".into(), script, "sh".into()];
            argv.extend(world.prefix());
            argv.extend(["/bin/sh".into(), "-c".into(), inner.into()]);
            world.bare(&argv.iter().map(String::as_str).collect::<Vec<_>>()).status.success()
        };
        for attack in [
            "echo x > /proc/self/fd/0",
            "echo x >> /dev/stdin",
            "exec 5< .git/config; echo x > /proc/self/fd/5",
            "exec 5< .git/config; echo x 1<> /proc/self/fd/5",
        ] {
            assert!(!redirected("< .git/config", attack), "{attack} {:?}", world.options);
        }
        assert_eq!(fs::read_to_string(world.project().join(".git/config")).unwrap(), "old\n");
        assert!(redirected("< .git/config", "read line < /dev/stdin && test $line = old"));
        assert!(redirected(">> .git/config", "echo given > /dev/stdout"));
        assert!(redirected("< plain", "exec 5< plain; echo x > /proc/self/fd/5"));
    });
}

#[test]
fn hooks_are_kept_where_the_configuration_says_they_are() {
    each_tier(|world| {
        let made = "mkdir -p .git tools/hooks linked && ln -s ../tools/hooks linked/to &&
            printf '[core]\n\thooksPath = linked/to\n' > .git/config";
        assert!(world.bare(&["/bin/sh", "-c", made]).status.success());
        for attack in [
            "echo x > tools/hooks/pre-commit",
            "echo x > linked/to/pre-commit",
            "rm linked/to",
            "mv tools other",
            "mv linked other",
            "mkdir .githooks",
        ] {
            fails(&world, attack);
        }
        works(&world, "echo x > tools/file && mkdir more");
        works(&world.option(&["--unprotect", "linked/to"]), "echo x > tools/hooks/pre-commit");
    });
}

/// A command that may make repositories could otherwise put one with hooks in the place of
/// a repository that people use.
#[test]
fn a_repository_that_is_there_is_not_replaced() {
    if !has_git() {
        return;
    }
    let made = "git init -q . && git init -q lib && mkdir -p sub .git/worktrees/wt &&
        echo ../.. > .git/worktrees/wt/commondir && echo gitdir: ../lib/.git > sub/.git";
    let attacks = [
        "echo gitdir: evil > sub/.git",
        "rm sub/.git",
        "mkdir a && echo x > a/b && mv a/b sub/.git",
        "chmod 600 sub/.git",
        "mkdir -p b/c && mv .git b/c/.git && mkdir b/.git && echo x > b/c/.git/config",
        "mkdir c && mv .git c/.git",
        "mkdir d && mv lib d/lib && mkdir d/.git; echo x > d/lib/.git/config; r=$?; mv d/lib . && (exit $r)",
        "mv .git/worktrees/wt .git/worktrees/other",
        "mv .git/worktrees lib/.git/worktrees",
    ];
    let each = attacks.map(|attack| format!("({attack}) 2>&- && echo worked: '{attack}'"));
    each_tier(|world| {
        assert!(world.bare(&["/bin/sh", "-c", made]).status.success());
        for option in [&["--unprotect", ".envrc"], &["--unprotect", ".git"]] {
            let before: Vec<&str> = world.options.iter().map(String::as_str).collect();
            let world = World::beside(&world).option(&before).option(option);
            let said = works(&world, &format!("{}\nrm -rf a b c d\ntrue", each.join("\n")));
            assert_eq!(said, "", "{:?}", world.options);
        }
    });
}

#[test]
fn a_virtual_environment_can_be_made_and_not_changed() {
    if python_is_missing() {
        return;
    }
    each_tier(|world| {
        let output = world.run(&[PYTHON, "-m", "venv", "--without-pip", ".venv"]);
        assert!(output.status.success(), "{}", text(&output));
        works(&world, ". .venv/bin/activate && python -c pass");
        for attack in [
            "echo x >> .venv/bin/activate",
            "chmod 700 .venv/bin/activate",
            "mv .venv/bin/activate.csh .venv/bin/activate",
            "rm .venv/bin/activate.fish && echo x > .venv/bin/activate.fish",
            "echo x > .venv/bin/activate.fish",
            "echo x > x && ln x .venv/bin/activate.fish",
            "ln -s x .venv/bin/activate.fish",
            "cd .venv/bin && rm -f activate.csh && mv ../../x activate.csh",
        ] {
            fails(&world, attack);
        }
        works(&world, "rm -rf .venv");
        assert_eq!(names(&world.project()), ["x"]);
        let output = world.run(&[PYTHON, "-m", "venv", "--without-pip", "--clear", ".venv"]);
        assert!(output.status.success(), "{}", text(&output));
    });
}

/// Tools obey the target of the link.
#[test]
fn what_a_protected_link_leads_to_is_protected_too() {
    let made = "mkdir -p env/v1 tools/hooks scripts/husky conf .git/hooks sub/env src sub/.git &&
        echo 1 > env/dev.sh && ln -s env/dev.sh .envrc &&
        echo 1 > env/v1/x && ln -s v1 env/now && ln -s env/now/x .bashrc &&
        ln -s scripts/husky .husky && ln -s conf .cargo && ln -s later/rc .npmrc &&
        echo 1 > tools/check && ln -s ../../tools/check .git/hooks/pre-commit &&
        ln -s ../hooks sub/.git/hooks && mkdir sub/hooks &&
        echo 1 > sub/env/dev.sh && ln -s env/dev.sh sub/.envrc && echo 1 > plain";
    let attacks = [
        "echo x > .envrc",
        "echo x > env/dev.sh",
        "echo x >> env/../env/dev.sh",
        "rm env/dev.sh",
        "chmod 777 env/dev.sh",
        "truncate -s 0 env/dev.sh",
        "mv plain env/dev.sh",
        "cp --remove-destination plain env/dev.sh",
        "ln env/dev.sh second && echo x > second",
        "ln -f plain env/dev.sh",
        "mv env other",
        "rm env/now",
        "ln -sfn ../src env/now",
        "mv env/now now",
        "echo x > env/v1/x",
        "mv env/v1 env/v2",
        "echo x > scripts/husky/pre-commit",
        "mkdir scripts/husky/_",
        "mv scripts/husky h",
        "mv scripts h",
        "rmdir scripts/husky",
        "echo x > conf/config.toml",
        "mkdir later && echo x > later/rc",
        "echo x > src/rc && ln -s src later",
        "mkdir pre && echo x > pre/rc && mv -T pre later",
        "ln -s src l && mv -T l later",
        "echo x > tools/check",
        "echo x > sub/hooks/post-checkout",
        "echo x > sub/env/dev.sh",
        "cd sub && echo x > env/dev.sh",
    ];
    let each = attacks.map(|attack| format!("({attack}) 2>&- && echo worked: '{attack}'"));
    each_tier(|world| {
        let output = world.bare(&["/bin/sh", "-c", made]);
        assert!(output.status.success(), "{}", text(&output));
        let said = works(&world, &format!("{}\ntrue", each.join("\n")));
        assert_eq!(said, "", "{:?}", world.options);
        let kept = "cat .envrc .bashrc tools/check sub/.envrc | sort -u; ls scripts/husky conf";
        assert_eq!(text(&world.bare(&["/bin/sh", "-c", kept])), "1\nconf:\n\nscripts/husky:");
        // Files beside the targets are not protected.
        works(
            &world,
            "echo 2 > env/other && echo 2 > conf/x && echo 2 > tools/x && echo 2 > src/x",
        );
        fails(&world, "mv sub moved");
        assert_eq!(text(&world.bare(&["/bin/sh", "-c", "rm -rf moved; cat sub/.envrc"])), "1");
        works(&world, "mv src sources");
        let shared = world.path("shared");
        let made = "mkdir ../../shared && ln -s ../../shared/rc .zshrc";
        assert!(world.bare(&["/bin/sh", "-c", made]).status.success());
        let world = world.option(&["--rw", shared.to_str().unwrap()]);
        works(&world, "echo 2 > ../../shared/other");
        fails(&world, "echo x > ../../shared/rc");
        works(&world.option(&["--unprotect", ".envrc"]), "echo 2 > env/dev.sh");
    });
}

/// Part of these directories is protected, and a link would replace the directory.
#[test]
fn no_link_replaces_a_partly_protected_directory() {
    each_tier(|world| {
        works(&world, "mkdir -p a/workflows && echo x > a/config.toml && ln -s a free");
        for attack in [
            "ln -s a .cargo",
            "ln -s ../a a/.github",
            "mv free .github",
            "mv -T free .cargo",
            "ln free .cargo",
            "cp -P free .cargo",
        ] {
            fails(&world, attack);
            assert_eq!(names(&world.project()), ["a", "free"], "{attack}");
        }
        works(&world, "mv free other && ln -s a bin && mkdir -p node_modules/x/.github");
        works(&world, "ln -sfn a/workflows other && test -d other/../workflows");
    });
}

/// A directory with a repository can be renamed, and no other is made in its place.
#[test]
fn a_repository_inside_a_renamed_directory_is_not_remade() {
    let made = "mkdir -p third/lib/.git/hooks && echo old > third/lib/.git/config";
    each_tier(|world| {
        assert!(world.bare(&["/bin/sh", "-c", made]).status.success());
        for attack in [
            "mv third x && mkdir -p third/lib/.git/hooks",
            "mkdir -p third/lib && cp -r x/lib/.git third/lib/",
            "mkdir -p third/lib && mv x/lib/.git third/lib/.git",
            "mkdir -p evil/hooks && ln -s ../../evil third/lib/.git",
            "echo gitdir: ../evil > third/lib/.git",
            "echo x > x/lib/.git/config",
            "mkdir x/lib/.git/hooks/x",
        ] {
            fails(&world, attack);
        }
        assert_eq!(names(&world.path("home/app/third/lib")), [""; 0]);
        works(&world, "rm -rf third && mv x third && cat third/lib/.git/config");
        fails(&world, "echo x > third/lib/.git/config");
    });
}

#[test]
fn worktrees_can_be_added_and_removed_with_the_right() {
    if !has_git() {
        return;
    }
    let git = "git -c user.name=a -c user.email=a@b";
    let made = format!(
        "git init -q . && mkdir .vscode && echo 1 > .vscode/x && echo 1 > .gitattributes &&
         echo 1 > f && git add -A && {git} commit -qm x && git worktree add -q ../far &&
         git worktree add -q theirs"
    );
    each_tier(|world| {
        let output = world.bare(&["/bin/sh", "-c", &made]);
        assert!(output.status.success(), "{}", text(&output));
        for attack in ["rm theirs/.git", "rm theirs/.vscode/x", "git worktree remove theirs"] {
            fails(&world, attack);
        }
        let restore = "git -C theirs checkout -q . && git -C theirs status --porcelain";
        assert_eq!(text(&world.bare(&["/bin/sh", "-c", restore])), "");
        let world = world.option(&["--unprotect", ".git"]);
        works(&world, "git worktree add -q wt 2>&1 && test -e wt/.vscode/x && cd wt && git status");
        for attack in [
            "echo x > wt/.vscode/x",
            "rm .vscode/x",
            "rm .git/worktrees/wt/commondir",
            "rm .git/worktrees/far/commondir",
            "rm -r .git/worktrees/far",
            "git worktree remove --force ../far",
            "rm wt/.vscode/x && echo x > wt/.vscode/x",
            "rm wt/.git && echo gitdir: evil > wt/.git",
            "rm wt/.vscode/x; mkdir wt/.idea",
        ] {
            fails(&world, attack);
        }
        works(&world, "git worktree add -q other 2>&1 && git worktree remove other 2>&1");
        works(&world, "git worktree remove --force theirs 2>&1 && test ! -e theirs");
        let listed = text(&world.bare(&["git", "worktree", "list"]));
        assert!(listed.contains("/far ") && !listed.contains("theirs"), "{listed}");
    });
}
