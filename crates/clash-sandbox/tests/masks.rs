//! Settings files of which commands see a copy without the secrets.
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
use std::os::unix::fs::symlink;
use std::process::Command;

use support::*;

const NPMRC: &str = "registry=https://npm.corp/\n//npm.corp/:_authToken=npm_s3cr3t\n";
const MASKED: &str = "registry=https://npm.corp/\n//npm.corp/:_authToken=xxxxxxxxxx";

/// The world with `~/.npmrc`, which the sandbox masks.
fn with_npmrc(world: World) -> (World, String) {
    let path = write(&world, "home/.npmrc", NPMRC);
    let world = world.option(&["--masked", &path]);
    (world, path)
}

/// Runs a case in a room, in a room with watched reads, and in the watched tier.
fn in_all(case: impl Fn(World)) {
    for who in identities() {
        for options in
            [&[][..], &["--deny-glob", "r", "/", "**/*.hidden"], &["--simulate", "no-userns"]]
        {
            case(World::new(who).with_places().option(options));
        }
    }
}

#[test]
fn a_command_sees_the_registry_and_not_the_token() {
    in_all(|world| {
        let (world, path) = with_npmrc(world);
        assert_eq!(works(&world, "cat ~/.npmrc"), MASKED);
        assert_eq!(works(&world, "cd ~ && cat .npmrc"), MASKED);
        works(&world, "test -r ~/.npmrc && test -f ~/.npmrc && ! test -w ~/.npmrc");
        let size = works(&world, "stat -c %s ~/.npmrc");
        assert_eq!(size, NPMRC.len().to_string());
        assert_eq!(fs::read_to_string(path).unwrap(), NPMRC);
    });
}

#[test]
fn no_way_leads_to_the_masked_file_itself() {
    in_all(|world| {
        let (world, path) = with_npmrc(world);
        for script in [
            "echo x >> ~/.npmrc",
            ": > ~/.npmrc",
            "rm -f ~/.npmrc; ! test -e ~/.npmrc",
            "mv ~/.npmrc moved",
            "mv src ~/.npmrc",
            "ln -s ~/.npmrc link",
            "ln -s ../.npmrc link",
            "chmod 666 ~/.npmrc",
            "exec 5<> ~/.npmrc",
            "exec 5< ~/.npmrc; echo x > /proc/self/fd/5",
            "sh ~/.npmrc",
            "truncate -s 0 ~/.npmrc",
        ] {
            let output = world.sh(&format!("touch src; {script}"));
            assert!(!text(&output).contains("s3cr3t"), "{script}");
            assert_eq!(fs::read_to_string(&path).unwrap(), NPMRC, "{script}");
            assert!(!output.status.success(), "{script}: {}", text(&output));
        }
        // Neither a second name nor a held descriptor shows more than the copy.
        for script in [
            "ln ~/.npmrc name && cat name",
            "exec 5< ~/.npmrc; cat /proc/self/fd/5",
            "cp ~/.npmrc copy; cat copy",
            "cat ~/../home/./.npmrc",
            "grep -r npm_ ~ 2>/dev/null; head -c 999 < ~/.npmrc",
        ] {
            let shown = text(&world.sh(script));
            assert!(!shown.contains("s3cr3t"), "{script}: {shown}");
            assert_eq!(fs::read_to_string(&path).unwrap(), NPMRC, "{script}");
        }
    });
}

#[test]
fn a_rule_for_the_file_itself_gives_the_real_one() {
    each_tier(|world| {
        let (world, path) = with_npmrc(world);
        for rule in [["--literal", "r", &path], ["--allow", "r", &path]] {
            let before: Vec<&str> = world.options.iter().map(String::as_str).collect();
            let open = World::beside(&world).option(&before).option(&rule);
            assert_eq!(works(&open, "cat ~/.npmrc"), NPMRC.trim());
            fails(&open, "echo x >> ~/.npmrc");
        }
        // A rule for the directory around it does not.
        let home = world.path("home").display().to_string();
        let before: Vec<&str> = world.options.iter().map(String::as_str).collect();
        let around = World::beside(&world).option(&before).option(&["--allow", "rwcd", &home]);
        assert_eq!(works(&around, "cat ~/.npmrc"), MASKED);
        assert!(
            works(&around, "ln ~/.npmrc ~/n 2>/dev/null; cat ~/n 2>&1; true")
                .find("s3cr3t")
                .is_none()
        );
        works(&around, "mv ~/.npmrc ~/n 2>/dev/null; ! grep s3cr3t ~/n");
        // A deny with the same path wins over the mask.
        let denied = World::beside(&world).option(&before).option(&["--deny-deny", "r", &path]);
        fails(&denied, "cat ~/.npmrc");
    });
}

#[test]
fn no_rename_or_default_uncovers_a_masked_file() {
    each_tier(|world| {
        let path = write(&world, "home/.cfg/.npmrc", NPMRC);
        let home = world.path("home").display().to_string();
        let masked = ["--masked", &path];
        let before: Vec<&str> = world.options.iter().map(String::as_str).collect();
        for wide in [&["--allow", "rwcd", &home][..], &["--default-allow"]] {
            let world = World::beside(&world).option(&before).option(&masked).option(wide);
            assert_eq!(works(&world, "cat ~/.cfg/.npmrc"), MASKED);
            for script in [
                "mv ~/.cfg ~/other; cat ~/other/.npmrc",
                "ln ~/.cfg/.npmrc ~/name; cat ~/name",
                "ln -s .cfg ~/dir; cat ~/dir/.npmrc",
                "ln -s ~/.cfg/.npmrc ~/app/link; cat ~/app/link",
                "mkdir ~/new; mv ~/.cfg/.npmrc ~/new/x; cat ~/new/x",
                "rm -rf ~/.cfg; cat ~/.cfg/.npmrc",
            ] {
                let shown = text(&world.sh(script));
                assert!(!shown.contains("s3cr3t"), "{wide:?} {script}: {shown}");
                assert_eq!(fs::read_to_string(&path).unwrap(), NPMRC, "{script}");
                assert!(!world.project().join("link").is_symlink(), "{script}");
            }
        }
    });
}

#[test]
fn a_link_of_the_user_is_followed_and_masked() {
    each_tier(|world| {
        let file = write(&world, "home/dotfiles/npmrc-of-work", NPMRC);
        let link = world.path("home/.npmrc");
        symlink("dotfiles/npmrc-of-work", &link).unwrap();
        let world = world.option(&["--masked", link.to_str().unwrap()]);
        assert_eq!(works(&world, "cat ~/.npmrc"), MASKED);
        fails(&world, "echo x >> ~/.npmrc");
        assert_eq!(fs::read_to_string(file).unwrap(), NPMRC);
    });
}

#[test]
fn what_cannot_be_masked_stays_hidden() {
    each_tier(|world| {
        let xml = write(&world, "home/.m2/settings.xml", "<a><password>s3cr3t</a>");
        let large = write(&world, "home/.npmrc", &format!("{NPMRC}#{}", "a".repeat(1 << 20)));
        let wide = write(&world, "home/.yarnrc.yml", "npmAuthToken: s3cr3t\0");
        let fifo = world.path("home/pip.conf");
        assert!(world.prepare(Command::new("mkfifo")).arg(&fifo).status().unwrap().success());
        let world = world.option(&["--masked", &xml, "--masked", &large, "--masked", &wide]);
        let world = world.option(&["--masked", fifo.to_str().unwrap()]);
        let missing = world.path("home/uv.toml").display().to_string();
        let world = world.option(&["--masked", &missing]);
        for file in ["~/.m2/settings.xml", "~/.npmrc", "~/.yarnrc.yml", "~/pip.conf", "~/uv.toml"] {
            let output = world.sh(&format!("timeout 5 cat {file}"));
            assert!(!output.status.success(), "{file}: {}", text(&output));
            assert!(!text(&output).contains("s3cr3t"), "{file}");
        }
    });
}

#[test]
fn a_token_that_comes_later_is_never_seen() {
    each_tier(|world| {
        let path = write(&world, "home/.npmrc", "registry=https://npm.corp/\n");
        let world = world.option(&["--masked", &path]);
        let script = "touch ready; while [ ! -e go ]; do sleep 0.02; done; cat ~/.npmrc";
        let mut command = world.command(&["sh", "-c", script]);
        let child = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
        eventually("the command runs", || world.project().join("ready").exists());
        fs::write(&path, NPMRC).unwrap();
        fs::write(world.project().join("go"), "").unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(text(&output), "registry=https://npm.corp/");
    });
}
