//! Caches that all projects share: a command reads them, and its changes stay in a
//! cache of its own project. Each attack runs in the sandbox that `clash init --quick`
//! gives the tool, as root and as a plain user, with rooms and without.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::support::{Machine, Ran, as_each_user, clash, eventually};

/// How a room holds a cache: mounted, mounted without overlays, by a variable.
const HOSTS: [&[&str]; 3] = [&[], &["--simulate", "no-overlay"], &["--simulate", "no-userns"]];

const PRESETS: &str = r#"
load("@clash//node.star", "node_full", "node_safe")
load("@clash//python.star", "python_full", "python_safe")
load("@clash//rust.star", "rust_full", "rust_safe")
load("@clash//java.star", "java_full", "java_safe")
load("@clash//go.star", "go_full", "go_safe")
"#;

const POLICY: &str = r#"
load("@clash//python.star", "python_safe")
load("@clash//rust.star", "rust_full", "rust_safe")

own = sandbox(
    name = "own",
    default = deny(),
    fs = {"$PWD": allow(), "$HOME/shared": cache(), "$HOME/shared/denied": deny()},
    net = deny(),
)
settings(default = ask(), default_sandbox = own)
"#;

impl Machine {
    fn on(&self, host: &[&str], sandbox: &str, script: &str) -> Ran {
        let args = ["sandbox", "exec", sandbox].into_iter().chain(host.iter().copied());
        self.clash(args.chain(["--", "sh", "-c", script]))
    }

    /// The same in another project of the same user.
    fn elsewhere(&self, host: &[&str], sandbox: &str, script: &str) -> Ran {
        self.make_dir(self.outside().join(".git"));
        let mut command = self.command(clash());
        command.current_dir(self.outside()).args(["sandbox", "exec", sandbox]);
        Ran::of(command.args(host).args(["--", "sh", "-c", script]))
    }
}

/// Every file below a directory: its content, mode and number.
fn state(dir: &Path) -> BTreeMap<PathBuf, (Vec<u8>, u32, u64)> {
    let mut found = BTreeMap::new();
    let mut left = vec![dir.to_path_buf()];
    while let Some(path) = left.pop() {
        let meta = fs::symlink_metadata(&path).unwrap();
        let text = if meta.is_file() { fs::read(&path).unwrap() } else { Vec::new() };
        if meta.is_dir() {
            left.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
        found.insert(path, (text, meta.mode(), meta.ino()));
    }
    found
}

/// Places that programs outside run or believe: the file, and who may try to change it.
const TARGETS: [(&str, &[&str]); 12] = [
    (".cargo/registry/src/index/dep-1.0.0/build.rs", &["rust_safe", "rust_full"]),
    (".cargo/registry/cache/index/dep-1.0.0.crate", &["rust_safe", "rust_full"]),
    (".cargo/git/checkouts/dep/abc/src/lib.rs", &["rust_safe", "rust_full"]),
    (".npm/_npx/0a/node_modules/.bin/tool", &["node_safe", "node_full"]),
    (".npm/_cacache/content-v2/sha512/aa/bb", &["node_safe", "node_full"]),
    (".cache/node/corepack/v1/pnpm/9/bin/pnpm.cjs", &["node_safe", "node_full"]),
    (".cache/ms-playwright/chromium-1/chrome", &["node_safe", "node_full"]),
    (".cache/black/25.1/cache.pickle", &["python_safe", "python_full"]),
    (".cache/pre-commit/repo/bin/hook", &["python_safe", "python_full"]),
    (".cache/uv/archive-v0/x/pkg/__init__.py", &["python_safe", "python_full"]),
    (".gradle/wrapper/dists/gradle-9/bin/gradle", &["java_safe", "java_full"]),
    ("go/pkg/mod/example.com/dep@v1.0.0/dep.go", &["go_safe", "go_full"]),
];

#[test]
fn no_build_changes_a_file_that_runs_outside() {
    as_each_user(|machine| {
        let machine = machine.policy(PRESETS);
        for (file, _) in TARGETS {
            machine.write(file, "original\n");
        }
        let before = state(&machine.home());
        for host in HOSTS {
            for (file, sandboxes) in TARGETS {
                for sandbox in sandboxes {
                    let dir = Path::new(file).parent().unwrap().display();
                    let script = format!(
                        "cd ~; echo evil >> {file}; chmod 777 {file}; echo evil > {dir}/planted; \
                         ln -s /etc/passwd {dir}/link; mv {file} {file}.moved; \
                         cp /bin/true {file}; rm -rf {dir}; touch -d 2001-01-01 {dir}"
                    );
                    machine.on(host, sandbox, &script);
                }
            }
        }
        for (path, known) in before {
            if !path.starts_with(machine.home().join(".clash")) {
                assert_eq!(state(&path).remove(&path), Some(known), "{}", path.display());
            }
        }
        for (file, _) in TARGETS {
            let dir = machine.home().join(file).parent().unwrap().to_path_buf();
            assert_eq!(fs::read_dir(&dir).unwrap().count(), 1, "{}", dir.display());
        }
    });
}

#[test]
fn another_project_never_builds_a_patched_source() {
    as_each_user(|machine| {
        let machine = machine.policy(PRESETS);
        let source = ".cargo/registry/src/index/dep-1.0.0/build.rs";
        machine.write(source, "original\n");
        for host in HOSTS {
            let patch = format!("echo evil > ~/{source}; echo evil > $CARGO_HOME/registry/planted");
            machine.on(host, "rust_full", &patch);
            let seen = machine.elsewhere(host, "rust_full", "grep -r evil ~/.cargo $CARGO_HOME");
            assert_eq!(seen.stdout, "", "{host:?}");
        }
    });
}

#[test]
fn a_cache_is_found_again_by_the_next_command() {
    as_each_user(|machine| {
        let machine = machine.policy(POLICY);
        machine.write("shared/old", "shared\n");
        let fetch = "mkdir ~/shared/new && echo fetched > ~/shared/new/crate && rm -f ~/shared/old";
        machine.on(&[], "own", fetch).succeeds();
        machine.on(&[], "own", "cat ~/shared/new/crate; ls ~/shared").succeeds().says("fetched");
        let seen = machine.on(&[], "own", "ls ~/shared").succeeds();
        assert_eq!(seen.stdout, "new\n");
        // The other project has the shared cache and nothing else.
        let seen = machine.elsewhere(&[], "own", "ls ~/shared").succeeds();
        assert_eq!(seen.stdout, "old\n");
        assert_eq!(fs::read_dir(machine.home().join("shared")).unwrap().count(), 1);
    });
}

#[test]
fn without_overlays_a_cache_starts_empty_and_stays() {
    as_each_user(|machine| {
        let machine = machine.policy(POLICY);
        machine.write("shared/old", "shared\n");
        let host = HOSTS[1];
        machine.on(host, "own", "echo fetched > ~/shared/new").succeeds();
        let seen = machine.on(host, "own", "ls ~/shared").succeeds();
        assert_eq!(seen.stdout, "new\n");
    });
}

#[test]
fn without_rooms_a_variable_names_the_projects_cache() {
    as_each_user(|machine| {
        let machine = machine.policy(POLICY);
        let config = "[net]\noffline = true\n";
        machine.write(".cargo/config.toml", config);
        machine.write(".cargo/registry/cache/x", "shared\n");
        let host = HOSTS[2];
        // Nothing was fetched for the project yet, and there is no network.
        let seen = machine.on(host, "rust_safe", "cat ~/.cargo/registry/cache/x; env").succeeds();
        assert!(seen.stdout.contains("shared") && !seen.stdout.contains("CARGO_HOME"), "{seen:?}");
        let fetch = "set -e; mkdir -p $CARGO_HOME/registry/p/.github/workflows; cd $CARGO_HOME; \
                     echo x > registry/p/.envrc; mkdir registry/p/.vscode; \
                     echo fetched > registry/x";
        machine.on(host, "rust_full", fetch).succeeds();
        let seen =
            machine.on(host, "rust_safe", "cat $CARGO_HOME/registry/x $CARGO_HOME/config.toml");
        assert_eq!(seen.stdout, format!("fetched\n{config}"), "{seen:?}");
        // A link in the place of the copied file leads nowhere.
        let target = machine.write("precious", "mine\n");
        let plant = "cd $CARGO_HOME && rm config.toml && ln -s ~/precious config.toml";
        machine.on(host, "rust_full", plant);
        machine.on(host, "rust_full", "true").succeeds();
        assert_eq!(fs::read_to_string(target).unwrap(), "mine\n");
        let seen =
            machine.on(host, "python_safe", "echo x > $UV_CACHE_DIR/x && cat $UV_CACHE_DIR/x");
        assert_eq!(seen.stdout, "x\n", "{seen:?}");
    });
}

#[test]
fn no_room_reaches_the_directory_of_the_caches() {
    as_each_user(|machine| {
        let machine = machine.policy(POLICY);
        machine.write("shared/old", "shared\n");
        machine.elsewhere(&[], "own", "echo other > ~/shared/secret").succeeds();
        for host in HOSTS {
            let look = "cat ~/.cache/clash/projects/*/*/*/secret; ls -R ~/.cache/clash; \
                        echo evil > ~/.cache/clash/projects/x; mkdir -p ~/.cache/clash/projects/y";
            let seen = machine.on(host, "own", look);
            assert!(!seen.stdout.contains("other"), "{host:?} {seen:?}");
        }
        let projects = machine.home().join(".cache/clash/projects");
        assert!(!projects.join("x").exists() && !projects.join("y").exists());
        let mode = fs::metadata(&projects).unwrap().mode();
        assert_eq!(mode & 0o777, 0o700);
    });
}

#[test]
fn a_deny_inside_a_cache_holds_in_the_projects_own() {
    as_each_user(|machine| {
        let machine = machine.policy(POLICY);
        machine.write("shared/denied/key", "secret\n");
        machine.write("shared/open", "open\n");
        for host in HOSTS {
            let script = "cat ~/shared/denied/key; mkdir ~/shared/denied; echo x > ~/shared/denied/y; \
                          mv ~/shared/denied ~/shared/moved; mkdir ~/shared/a && mv ~/shared/a ~/shared/denied; \
                          echo ran; cat ~/shared/moved/key ~/shared/denied/y";
            let seen = machine.on(host, "own", script);
            assert_eq!(seen.stdout, "ran\n", "{host:?} {seen:?}");
        }
    });
}

#[test]
fn everyday_file_operations_work_in_a_cache() {
    as_each_user(|machine| {
        let machine = machine.policy(POLICY);
        machine.write("shared/dir/file", "text\n");
        let script = "set -e; cd ~/shared; echo a > a; ln a b; mv a c; ln -s c d; cat d; \
                      mkdir -p x/y; mv x z; echo more >> dir/file; mv dir/file dir/renamed; \
                      mv dir moved; cp -a moved copy; chmod 500 copy; chmod 700 copy; \
                      touch -d 2001-01-01 c; printf '#!/bin/sh\\necho ran\\n' > run; \
                      chmod +x run; ./run; rm -rf moved; ls; mkdir -p p/.github/workflows p/.vscode \
                      p/.git/hooks; echo x > p/.envrc; echo x > p/CLAUDE.md";
        for host in &HOSTS[..1] {
            let seen = machine.on(host, "own", script).succeeds();
            assert_eq!(seen.stdout, "a\nran\nb\nc\ncopy\nd\nrun\nz\n", "{seen:?}");
        }
        assert_eq!(fs::read_to_string(machine.home().join("shared/dir/file")).unwrap(), "text\n");
    });
}

#[test]
fn a_killed_launcher_leaves_a_usable_cache() {
    as_each_user(|machine| {
        let machine = machine.policy(POLICY);
        machine.write("shared/old", "shared\n");
        for round in 0..5 {
            let mut command = machine.command(clash());
            let script = format!(
                "echo {round} > ~/shared/kept; echo begun; \
                 while :; do echo x > ~/shared/a; mv ~/shared/a ~/shared/b; rm ~/shared/b; done"
            );
            command.args(["sandbox", "exec", "own", "--", "sh", "-c", &script]);
            let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
            let kept = machine.home().join("shared/kept");
            assert!(!kept.exists());
            std::io::Read::read(&mut child.stdout.take().unwrap(), &mut [0; 6]).unwrap();
            std::thread::sleep(Duration::from_millis(30));
            child.kill().unwrap();
            child.wait().unwrap();
            let seen = machine.on(&[], "own", "cat ~/shared/kept ~/shared/old").succeeds();
            assert_eq!(seen.stdout, format!("{round}\nshared\n"));
        }
    });
}

#[test]
fn two_commands_at_once_both_see_the_projects_cache() {
    as_each_user(|machine| {
        let machine = machine.policy(POLICY);
        machine.write("shared/old", "shared\n");
        machine.on(&[], "own", "echo fetched > ~/shared/new").succeeds();
        let mut command = machine.command(clash());
        let script =
            "cat ~/shared/new; echo first > ~/shared/first; read line; cat ~/shared/second";
        command.args(["sandbox", "exec", "own", "--", "sh", "-c", script]);
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut first = command.spawn().unwrap();
        std::io::Read::read(first.stdout.as_mut().unwrap(), &mut [0; 8]).unwrap();
        let seen =
            machine.on(&[], "own", "cat ~/shared/new ~/shared/old; echo 2 > ~/shared/second");
        assert_eq!(seen.succeeds().stdout, "fetched\nshared\n");
        machine.clash(["cache", "clear"]).exits(1).says("a running command uses it");
        drop(first.stdin.take());
        let output = first.wait_with_output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "", "{output:?}");
        // The cache of the first is the one that stays.
        let seen = machine.on(&[], "own", "cat ~/shared/first").succeeds();
        assert_eq!(seen.stdout, "first\n");
    });
}

#[test]
fn the_agents_file_tools_do_not_change_a_shared_cache() {
    as_each_user(|machine| {
        let machine = machine.policy(
            "own = sandbox(name = \"own\", default = deny(), fs = {\"$PWD\": allow(), \
             \"$HOME/shared\": cache()}, net = deny())\n\
             when({(\"Read\", \"Write\"): allow(sandbox = own)})\n",
        );
        let file = machine.write("shared/old", "shared\n");
        let read = machine.asks("Read", serde_json::json!({"file_path": file}));
        assert_eq!(read.effect, "allow", "{read:?}");
        let write = serde_json::json!({"file_path": file, "content": "evil"});
        let write = machine.asks("Write", write);
        assert_ne!(write.effect, "allow", "{write:?}");
    });
}

#[test]
fn caches_can_be_listed_and_removed() {
    as_each_user(|machine| {
        let machine = machine.policy(POLICY);
        machine.clash(["cache", "list"]).succeeds().says("no project has caches of its own");
        machine.clash(["cache", "clear"]).succeeds().says("there is no cache to remove");
        machine.write("shared/old", "shared\n");
        machine.on(
            &[],
            "own",
            "mkdir ~/shared/d && echo x > ~/shared/d/new && chmod 500 ~/shared/d",
        );
        machine.on(HOSTS[2], "python_safe", "true").succeeds();
        machine.clash(["cache", "list"]).succeeds().says("~/shared");
        let json: serde_json::Value =
            serde_json::from_str(&machine.clash(["cache", "list", "--json"]).stdout).unwrap();
        assert!(json["projects"][0]["caches"].as_array().unwrap().len() > 1, "{json}");
        machine.clash(["cache", "clear"]).succeeds();
        machine.clash(["cache", "list"]).succeeds().says("no project has caches of its own");
        machine.on(&[], "own", "cat ~/shared/d/new").fails();
        machine.on(&[], "own", "cat ~/shared/old").succeeds();
    });
}

#[test]
fn a_sandbox_says_where_its_caches_are() {
    as_each_user(|machine| {
        let machine = machine.policy(POLICY);
        machine.write("shared/old", "shared\n");
        machine.clash(["sandbox", "show", "own"]).succeeds().says("cache rwcdx  $HOME/shared/**");
        let plan = machine.clash(["sandbox", "plan", "own"]).succeeds();
        let plan = plan.says("changes stay in");
        assert!(plan.stdout.contains("/.cache/clash/projects/"), "{plan:?}");
        let plan = machine.clash(["sandbox", "plan", "own", "--simulate", "no-userns"]);
        plan.succeeds().says("the shared cache is read-only");
        machine.clash(["sandbox", "test", "own"]).succeeds();
    });
}

#[test]
fn the_end_of_a_command_does_not_wait_for_the_disk() {
    as_each_user(|machine| {
        let machine = machine.policy(POLICY);
        machine.write("shared/old", "shared\n");
        machine.on(&[], "own", "true").succeeds();
        eventually("a quick command", || {
            let start = Instant::now();
            machine.on(&[], "own", "echo x > ~/shared/x").succeeds();
            start.elapsed() < Duration::from_millis(500)
        });
    });
}
