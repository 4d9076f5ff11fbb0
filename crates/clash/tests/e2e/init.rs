//! `clash init`: its screens and its policies. It loses no file of the user.

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use serde_json::{Value, json};

use crate::claude_client::CLAUDE;
use crate::policy::shown;
use crate::postures::SECRET;
use crate::support::{Machine, Ran, Who, as_each_user, clash, feed, skipped};

/// A project with rust, node and git, and a directory of packages that must not count.
fn rust_and_node_project(who: Who) -> Machine {
    let m = Machine::new(who);
    m.write("app/Cargo.toml", "[package]\nname = \"app\"\n");
    m.write("app/web/package.json", "{}");
    m.write("app/web/package-lock.json", "\"resolved\": \"https://npm.example/x.tgz\"\n");
    m.write("app/node_modules/x/setup.py", "");
    m.write("app/.git/HEAD", "ref: refs/heads/main\n");
    m
}

/// The path of the policy that `clash init` makes for the user.
fn policy_file(m: &Machine) -> PathBuf {
    m.home().join(".config/clash/policy.star")
}

/// The text of that policy. Fails the test if there is none.
fn policy(m: &Machine) -> String {
    fs::read_to_string(policy_file(m)).unwrap()
}

/// Runs `clash init` for no agent.
pub(crate) fn init(m: &Machine, args: &[&str]) -> Ran {
    m.clash(["init", "--agent", "none"].iter().chain(args))
}

#[test]
fn init_names_each_toolchain_and_its_file() {
    let m = rust_and_node_project(Who::Me);
    // The hosts depend on the tools of the machine: `init_hosts.rs` tests them.
    let args = ["init", "--quick", "--agent", "none", "--all-hosts"];
    insta::assert_snapshot!(shown(&m, &args), @r"
    detecting ecosystems...
    found: rust (Cargo.toml)
    found: node (web/package-lock.json, web/package.json)
    found: git (.git)
    generating policy with: rust, node, git (moderate)
    wrote ~/.config/clash/policy.star
    `clash policy show` shows what holds, `clash policy undo` takes it back.
    No agent is wired yet: `clash install --agent claude` wires one.
    ");
    assert!(policy(&m).contains("# its files name npm.example"), "{}", policy(&m));
}

/// The new policy of a project with Rust and git, with the rules about git apart.
fn new_policy() -> (String, String) {
    let m = Machine::new(Who::Me);
    m.write("app/Cargo.toml", "");
    m.write("app/.git/HEAD", "");
    let args = ["--quick", "--all-hosts", "--ecosystem", "rust", "--ecosystem", "git"];
    Ran::of(m.command(clash()).args(["init", "--agent", "none"]).args(args).env("PATH", "/bin"))
        .succeeds();
    let text = policy(&m);
    let (before, rest) = text.split_once("# git (.git)\n").unwrap();
    let (git, after) = rest.split_once("\n\n").unwrap();
    let git: Vec<&str> = git.lines().map(|line| line.strip_prefix("        ").unwrap()).collect();
    (format!("{before}# git\n\n{after}"), git.join("\n"))
}

#[test]
fn a_new_policy_reads_well() {
    let (text, _) = new_policy();
    insta::assert_snapshot!(text, @r##"
    # What coding agents may do, by `clash init` (moderate). It is yours to change.
    # Each command runs in the sandbox named here: X_safe without network, X_full with it.
    # `clash sandbox show project` shows what one grants, `clash explain bash "git push"` what is decided.

    load("@clash//files.star", "files")
    load("@clash//git.star", "git_checkout_safe", "git_hooks", "git_rebase_safe")
    load("@clash//rust.star", "rust_full", "rust_global")
    load("@clash//sandboxes.star", "asked_web", "git_full", "git_safe", "project")

    # What no rule names is asked about, and runs in the project without network.
    settings(default = ask(), default_sandbox = project)

    # Programs for files, interpreters and compilers, in the project: `clash policy docs files`.
    when(files)

    when({
        "Bash": {
            # Removing whole directories.
            "find": {
                "-delete": ask(reason = "removes files that may exist nowhere else"),
                glob("**"): allow(),
            },
            "rm": {
                ("--recursive", "-R", "-r"): ask(reason = "removes files that may exist nowhere else"),
                glob("**"): allow(),
            },
            "rsync": {
                glob("--del*"): ask(reason = "removes files that may exist nowhere else"),
                glob("**"): allow(),
            },
            "shred": ask(reason = "removes files that may exist nowhere else"),

            # rust (Cargo.toml)
            "cargo": {
                ("login", "logout", "owner"): ask(sandbox = rust_full, reason = "acts in your name"),
                ("publish", "yank"): ask(sandbox = rust_full, reason = "acts in your name"),
                "install": ask(sandbox = rust_global, reason = "programs for all projects"),
                "uninstall": ask(sandbox = rust_global, reason = "programs for all projects"),
                glob("**"): allow(sandbox = rust_full),
            },
            ("cargo-clippy", "cargo-fmt", "clippy-driver", "rust-analyzer"): allow(sandbox = rust_full),
            ("rustc", "rustdoc", "rustfmt"): allow(sandbox = rust_full),
            "rustup": {
                ("show", "which"): allow(sandbox = rust_full),
                glob("**"): ask(sandbox = rust_global, reason = "changes it for all projects"),
            },

            # git

            # The session's own servers; other hosts when you say so.
            ("curl", "wget"): allow(sandbox = asked_web),
        },
        # The agent's own tools: files of the project; others are asked about.
        ("Glob", "Grep", "LS", "Read"): allow(sandbox = project),
        ("Edit", "MultiEdit", "NotebookEdit", "Write"): allow(sandbox = project),
    })

    expect(ask, "git push --force")
    expect(ask, "git push origin main")
    expect(ask, "cargo publish")
    "##);
}

#[test]
fn the_rules_about_git_read_well() {
    let (_, git) = new_policy();
    insta::assert_snapshot!(git, @r##"
    "git": {
        "lfs": {
            ("clone", "fetch", "lock", "locks", "pull", "unlock"): allow(sandbox = git_full),
            "install": ask(sandbox = git_hooks, reason = "changes hooks, which git runs later"),
            "uninstall": ask(
                sandbox = git_hooks,
                reason = "changes hooks, which git runs later",
            ),
            "update": ask(sandbox = git_hooks, reason = "changes hooks, which git runs later"),
            glob("**"): allow(sandbox = git_checkout_safe),
        },
        "push": ask(sandbox = git_full),
        ("clone", "fetch", "ls-remote", "pull", "remote"): allow(sandbox = git_full),
        "submodule": allow(sandbox = git_full),
        ("bisect", "cherry-pick", "merge", "revert"): allow(sandbox = git_checkout_safe),
        "sparse-checkout": allow(sandbox = git_checkout_safe),
        ("checkout", "switch"): {
            ("--", "--discard-changes", "--force", "-f", "."): ask(
                sandbox = git_checkout_safe,
                reason = "drops work that is not committed",
            ),
            glob("**"): allow(sandbox = git_checkout_safe),
        },
        "restore": {
            "--worktree": ask(
                sandbox = git_checkout_safe,
                reason = "drops work that is not committed",
            ),
            "-W": ask(sandbox = git_checkout_safe, reason = "drops work that is not committed"),
            ("--staged", "-S"): allow(sandbox = git_checkout_safe),
            glob("**"): ask(
                sandbox = git_checkout_safe,
                reason = "drops work that is not committed",
            ),
        },
        "worktree": {
            "remove": {
                "--force": ask(
                    sandbox = git_checkout_safe,
                    reason = "drops work that is not committed",
                ),
                "-f": ask(
                    sandbox = git_checkout_safe,
                    reason = "drops work that is not committed",
                ),
                glob("**"): allow(sandbox = git_checkout_safe),
            },
            glob("**"): allow(sandbox = git_checkout_safe),
        },
        "rm": {
            "--force": ask(sandbox = git_safe, reason = "drops work that is not committed"),
            "-f": ask(sandbox = git_safe, reason = "drops work that is not committed"),
            glob("**"): allow(sandbox = git_safe),
        },
        "rebase": allow(sandbox = git_rebase_safe),
        "clean": ask(sandbox = git_safe, reason = "removes files that exist nowhere else"),
        "reset": {
            "--hard": ask(
                sandbox = git_checkout_safe,
                reason = "drops work that is not committed",
            ),
            glob("**"): allow(sandbox = git_checkout_safe),
        },
        "stash": {
            "clear": ask(
                sandbox = git_checkout_safe,
                reason = "drops work that is not committed",
            ),
            "drop": ask(
                sandbox = git_checkout_safe,
                reason = "drops work that is not committed",
            ),
            glob("**"): allow(sandbox = git_checkout_safe),
        },
        ("credential", "send-email"): ask(sandbox = git_full, reason = "acts in your name"),
        glob("**"): allow(sandbox = git_safe),
    },
    "##);
}

/// Every toolchain in at least two postures.
#[test]
fn every_generated_policy_is_formatted_and_without_warnings() {
    for (at, some) in ALL.chunks(6).enumerate() {
        for posture in ["strict", "moderate", "permissive"].iter().skip(at % 2) {
            let m = Machine::new(Who::Me);
            let named = some.iter().flat_map(|name| ["--ecosystem", name]);
            let args: Vec<&str> =
                ["--quick", "--posture", posture].into_iter().chain(named).collect();
            init(&m, &args).succeeds();
            m.clash(["policy", "check", "--strict"]).succeeds().says("no mistakes, no warnings");
            m.clash(["fmt", "--check"]).succeeds();
        }
    }
}

const ALL: &[&str] = &[
    "rust",
    "go",
    "python",
    "node",
    "ruby",
    "java",
    "dotnet",
    "swift",
    "php",
    "elixir",
    "haskell",
    "zig",
    "c",
    "make",
    "bazel",
    "nix",
    "docker",
    "kubernetes",
    "terraform",
    "databases",
    "git",
    "github",
];

#[test]
fn a_policy_that_is_there_is_never_overwritten_unasked() {
    let mine = "# Mine.\nwhen({\n    \"Bash\": {\"cargo\": deny()},\n})\n";
    let m = rust_and_node_project(Who::Me);
    m.write(".config/clash/policy.star", mine);
    init(&m, &["--quick"]).exits(1).says("+        \"npm\"").says("there is a policy already");
    init(&m, &["--json"]).succeeds().says("\"written\": false");
    init(&m, &["--dry-run"]).exits(0).says("# Mine.");
    assert_eq!(policy(&m), mine);
    init(&m, &["--yes"]).succeeds().says("changed");
    let merged = policy(&m);
    assert!(merged.contains("# Mine.") && merged.contains("\"cargo\": deny()"), "{merged}");
    assert!(merged.contains("node_safe") && !merged.contains("\"cargo\": {"), "{merged}");
    m.clash(["policy", "check"]).succeeds();
    // A second run changes nothing. With another toolchain, a run adds only its rules.
    init(&m, &["--quick"]).succeeds().says("says all of this already");
    m.write("app/go.mod", "module x\n");
    init(&m, &["--quick"]).exits(1).says("+        \"go\"");
    init(&m, &["--replace", "--yes", "--posture", "strict"]).succeeds().says("is kept as");
    let kept = policy_file(&m).with_file_name("policy.star.before-init-1");
    assert_eq!(fs::read_to_string(kept).unwrap(), merged);
    assert!(policy(&m).contains("(strict)"), "{}", policy(&m));
    m.clash(["policy", "undo", "--yes"]).succeeds();
    assert_eq!(policy(&m), merged);
}

#[test]
fn a_script_gets_json_and_a_dry_run_writes_nothing() {
    let m = rust_and_node_project(Who::Me);
    let said = |args: &[&str]| -> Value {
        serde_json::from_str(&init(&m, args).succeeds().stdout).unwrap()
    };
    let dry = said(&["--json", "--dry-run", "--posture", "strict"]);
    assert!(!policy_file(&m).exists());
    assert_eq!(dry["policy"]["action"], "create");
    assert_eq!(dry["policy"]["written"], false);
    let found = dry["found"].as_array().unwrap();
    assert_eq!(found[0], json!({"ecosystem": "rust", "files": ["Cargo.toml"], "ci": null}));
    let mut hosts = dry["hosts"].as_array().unwrap().iter();
    let lock = hosts.find(|it| it["host"] == "npm.example").unwrap();
    assert_eq!((&lock["by"], &lock["allowed"]), (&json!("project"), &json!(false)));
    assert_eq!(said(&["--json"])["policy"]["written"], false);
    assert!(!policy_file(&m).exists());
    let made = said(&["--json", "--yes"]);
    assert_eq!(made["policy"]["written"], true);
    assert_eq!(made["policy"]["changes"][0]["text"], json!(policy(&m)));
    assert_eq!(made["policy"]["warnings"], json!([]));
    init(&m, &["--ecosystem", "cobol"]).exits(1).says("no toolchain `cobol`").says("rust, go");
    m.clash(["init", "--agent", "eliza"]).exits(1).says("no agent `eliza`");
}

#[test]
fn an_imported_deny_holds_in_every_sandbox() {
    as_each_user(|m| {
        m.write(
            ".claude/settings.json",
            r#"{"permissions": {"deny": ["Read(./.env)"], "allow": ["Bash(gh pr list:*)"]}}"#,
        );
        m.write("app/.env", "KEY=hunter2");
        m.write("app/sub/.env", "KEY=hunter2");
        m.make_dir(m.project().join(".git"));
        let toolchains = ["--ecosystem", "git", "--ecosystem", "python"];
        let args = ["init", "--quick", "--agent", "claude"].into_iter().chain(toolchains);
        Ran::of(m.command(clash()).args(args)).succeeds();
        for command in ["cat .env", "cat sub/.env", "python3 -c 'print(open(\".env\").read())'"] {
            let ran = m.clash(["exec", "--", "sh", "-c", command]);
            assert!(ran.code != Some(0) && !ran.stdout.contains("hunter2"), "{ran:?}");
        }
        m.clash(["exec", "--", "git", "hash-object", ".env"]).exits(128);
        // An imported allow gets a sandbox in which the command works.
        m.clash(["explain", "bash", "gh pr list"]).says("sandbox github_full");
    });
}

#[test]
fn agents_are_wired_and_their_permissions_taken_over() {
    let m = rust_and_node_project(Who::Me);
    let settings = r#"{"permissions": {"deny": ["Bash(sudo:*)"], "allow": ["Bash(mycheck:*)"]}}"#;
    m.write(".claude/settings.json", settings);
    m.write("app/.claude/settings.json", r#"{"permissions": {"allow": ["Bash(evil:*)"]}}"#);
    m.clash(["init", "--quick", "--agent", "claude"]).succeeds().says("clash now decides");
    let wired = fs::read_to_string(m.home().join(".claude/settings.json")).unwrap();
    assert!(wired.contains("hook claude") && wired.contains("Bash(sudo:*)"), "{wired}");
    m.bash("sudo ls").is("deny", "imported_claude.star");
    m.bash("mycheck all").is("allow", "imported_claude.star");
    m.bash("evil").is("ask", "");
    m.bash("cargo build").is("allow", "policy.star");
    let m = rust_and_node_project(Who::Me);
    m.write(".claude/settings.json", settings);
    init(&m, &["--quick", "--no-import"]).succeeds();
    m.bash("sudo ls").is("ask", "");
    assert_eq!(fs::read_to_string(m.home().join(".claude/settings.json")).unwrap(), settings);
}

#[test]
fn a_project_policy_is_in_force_once_it_is_trusted() {
    let m = rust_and_node_project(Who::Me);
    m.write(".claude/settings.json", r#"{"permissions": {"allow": ["Bash(mine:*)"]}}"#);
    let mut command = m.command(clash());
    // A mirror and a directory outside the project belong to this machine alone.
    m.write(".cargo/config.toml", "[source.m]\nregistry = \"sparse+https://mirror.example/\"\n");
    command.env("CARGO_TARGET_DIR", m.home().join("builds"));
    Ran::of(command.args(["init", "--quick", "--agent", "none", "--scope", "project"]))
        .succeeds()
        .says("wrote ")
        .says("`clash trust` makes it count");
    assert!(!policy_file(&m).exists());
    let text = fs::read_to_string(m.project().join(".clash/policy.star")).unwrap();
    assert!(text.contains("rust_full") && !text.contains("_here"), "{text}");
    for own in ["mine", "builds", "mirror.example"] {
        assert!(!text.contains(own), "{text}");
    }
    assert!(text.contains("npm.example"), "{text}");
    m.bash("cargo build").is("ask", "");
    m.clash(["trust", "--yes"]).succeeds();
    m.bash("cargo build").is("allow", "policy.star");
    m.bash("cargo publish").is("ask", "");
}

/// Runs `clash init` at a terminal and types lines.
fn typed(m: &Machine, lines: &str) -> Option<Ran> {
    at_terminal(m, "init", lines)
}

/// Runs clash at a terminal of 80 columns and types lines.
pub(crate) fn at_terminal(m: &Machine, args: &str, lines: &str) -> Option<Ran> {
    typed_into(m.command("script"), args, lines)
}

/// As [`at_terminal`], with a given `script` command. Prints a skip if there is no `script`.
pub(crate) fn typed_into(mut command: Command, args: &str, lines: &str) -> Option<Ran> {
    command.env("COLUMNS", "80");
    let line = format!("'{}' {args}; echo status=$?", clash().display());
    command.args(["-qfec", &line, "/dev/null"]).env("TERM", "dumb").env("NO_COLOR", "1");
    if Command::new("script").arg("--version").output().is_err() {
        skipped("questions at a terminal: there is no `script` to make a terminal");
        return None;
    }
    Some(Ran::from(feed(command, lines.as_bytes()).wait_with_output().unwrap()))
}

#[test]
fn at_a_terminal_a_few_questions_lead_to_a_policy() {
    let m = rust_and_node_project(Who::Me);
    m.write(".claude/settings.json", r#"{"permissions": {"deny": ["Bash(sudo:*)"]}}"#);
    let Some(ran) = typed(&m, "4\nstrict\nrust git\nnone\nno\ny\n") else { return };
    let ran = ran
        .says("found: rust (Cargo.toml)")
        .says("How much should happen without asking you?")
        .says("1, 2 or 3")
        .says("permissions of")
        .says("Write ")
        .says("status=0");
    let text = policy(&m);
    assert!(text.contains("(strict)") && text.contains("rust_safe"), "{text}");
    assert!(!text.contains("node_safe") && !text.contains("imported"), "{text}\n{ran:?}");
}

#[test]
fn empty_answers_take_the_defaults_and_no_changes_nothing() {
    let m = rust_and_node_project(Who::Me);
    let Some(ran) = typed(&m, "\n\n\nn\n") else { return };
    ran.says("status=1");
    assert!(!policy_file(&m).exists());
    typed(&m, "\n\n\ny\n").unwrap().says("status=0");
    let first = policy(&m);
    assert!(first.contains("(moderate)") && first.contains("node_safe"), "{first}");
    // In the second run there is a policy. Clash replaces it and keeps the old one beside it.
    typed(&m, "1\n\n\nreplace\ny\n").unwrap().says("There is a policy already").says("status=0");
    assert!(policy(&m).contains("(strict)"));
    let kept = policy_file(&m).with_file_name("policy.star.before-init-1");
    assert_eq!(fs::read_to_string(kept).unwrap(), first);
    // Without the last answer, clash changes nothing.
    let before = policy(&m);
    typed(&m, "2\n").unwrap().says("status=1");
    assert_eq!(policy(&m), before);
}

/// The question is about the policy that the answers change, which is the project's here.
#[test]
fn the_question_of_init_is_about_the_policy_of_its_scope() {
    let m = rust_and_node_project(Who::Me).policy("settings(default = ask())\n");
    let users = m.home().join(".clash/policy.star");
    let of_project = m.project().join(".clash/policy.star");
    let args = "init --scope project --agent none";
    let Some(ran) = at_terminal(&m, args, "strict\n\ny\n") else { return };
    let ran = ran.says("status=0");
    assert!(!ran.stdout.contains("There is a policy already"), "{ran:?}");
    let first = fs::read_to_string(&of_project).unwrap();
    let ran = at_terminal(&m, args, "moderate\n\nreplace\ny\n").unwrap().says("status=0");
    let asked = ran.stdout.split("There is a policy already, ").nth(1).unwrap_or_default();
    assert!(asked.starts_with("~/app/.clash/policy.star"), "{ran:?}");
    let kept = of_project.with_file_name("policy.star.before-init-1");
    assert_eq!(fs::read_to_string(kept).unwrap(), first);
    assert_eq!(fs::read_to_string(users).unwrap(), "settings(default = ask())\n");
}

#[test]
fn missing_caches_are_made_and_sandboxes_write_only_their_own() {
    as_each_user(|m| {
        let before: Vec<_> =
            fs::read_dir(m.project()).unwrap().map(|e| e.unwrap().file_name()).collect();
        let m = m.policy("load(\"@clash//go.star\", \"go\")\nwhen(go)\n");
        m.inside("go_safe", "echo x > ~/.cache/go-build/x").succeeds();
        m.inside("go_safe", "echo x > ~/go/pkg/mod/x").fails();
        m.inside("go_full", "echo x > ~/go/pkg/mod/x").succeeds();
        m.inside("go_full", "echo x > ~/.cache/x").fails();
        let after: Vec<_> =
            fs::read_dir(m.project()).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(before, after);
    });
}

#[test]
fn detection_of_toolchains_says_if_it_stopped_early() {
    let m = Machine::new(Who::Me);
    m.write("app/Cargo.toml", "");
    let many = if std::env::var_os("CLASH_NIGHTLY").is_some() { 100 } else { 3 };
    for dir in 0..many {
        let dir = m.project().join(format!("data/d{dir}"));
        m.make_dir(&dir);
        for file in 0..1000 {
            fs::write(dir.join(format!("f{file}")), "").unwrap();
        }
    }
    let said: Value = serde_json::from_str(&init(&m, &["--json"]).succeeds().stdout).unwrap();
    assert_eq!(said["ecosystems"], json!(["rust"]));
    assert_eq!(said["complete"], many <= 49);
}

#[test]
fn a_new_user_gets_a_confined_action_after_two_commands() {
    as_each_user(|m| {
        m.write("app/Makefile", "all:\n\t@echo built; cat ~/.ssh/id_ed25519 || echo kept\n");
        m.write(".ssh/id_ed25519", SECRET);
        let start = Instant::now();
        m.clash(["init", "--quick", "--agent", "claude"]).succeeds().says("clash now decides");
        m.bash("make").is("allow", "policy.star");
        let ran = m.clash(["exec", "--", "make"]).succeeds().says("built").says("kept");
        assert!(!ran.stdout.contains(SECRET), "{ran:?}");
        took("the first confined action", start);
    });
}

/// Prints a time, past the capture of the test runner. No test checks it.
fn took(what: &str, start: Instant) {
    let _ = writeln!(std::io::stderr(), "from nothing to {what}: {:?}", start.elapsed());
}

#[test]
fn one_command_confines_the_real_claude_of_a_new_user() {
    let Some(claude) = CLAUDE.here() else { return };
    let m = CLAUDE.bare(Who::Me);
    fs::remove_file(m.home().join(".clash/policy.star")).unwrap();
    m.write("app/Makefile", "all:\n\t@echo built; cat ~/.ssh/id_ed25519 || echo kept\n");
    let start = Instant::now();
    m.clash(["init", "--quick", "--agent", "claude"]).succeeds().says("clash now decides");
    let talk = claude.run(&m, &[(CLAUDE.shell)("make"), (CLAUDE.shell)("curl x.test")]);
    took("the first confined action of the real client", start);
    talk.results[0].ran().says("built").says("kept");
    talk.results[1].refused("needs your approval");
}

#[test]
fn a_learned_policy_is_written_after_a_yes() {
    let m = rust_and_node_project(Who::Me);
    let seen = r#"{"v":1,"time":1794776639000,"event":"decision","agent":"claude","call":"a","tool":"Bash","what":"cargo test"}
{"v":1,"event":"exit","call":"a","ok":true}
"#;
    m.write("app/trace.jsonl", seen);
    init(&m, &["--from-trace", "trace.jsonl"]).succeeds().says("cargo");
    assert!(!policy_file(&m).exists());
    init(&m, &["--quick"]).succeeds();
    let before = policy(&m);
    init(&m, &["--from-trace", "trace.jsonl", "--yes"]).succeeds().says("is kept as");
    assert!(policy(&m).contains("cargo") && policy(&m) != before, "{}", policy(&m));
    m.clash(["policy", "check"]).succeeds();
    m.clash(["policy", "undo", "--yes"]).succeeds();
    assert_eq!(policy(&m), before);
}

/// `clash init` chooses the posture of a new policy. An existing policy keeps its posture.
#[test]
fn a_posture_is_changed_or_refused_and_never_ignored() {
    let m = rust_and_node_project(Who::Me);
    init(&m, &["--quick", "--posture", "moderate"]).succeeds();
    let before = policy(&m);
    init(&m, &["--posture", "strict", "--yes"])
        .exits(1)
        .says("its posture stays")
        .says("clash init --posture strict --replace");
    assert_eq!(policy(&m), before);
    init(&m, &["--posture", "strict", "--replace", "--yes"]).succeeds().says("is kept as");
    assert!(policy(&m).contains("(strict)"), "{}", policy(&m));
}

#[test]
fn a_dry_run_into_a_closed_pipe_is_quiet() {
    let m = rust_and_node_project(Who::Me);
    let line = format!("{} init --agent none --dry-run | head -n 1", clash().display());
    let ran = Ran::of(m.command("sh").args(["-c", &line])).succeeds();
    assert!(!ran.stderr.contains("pipe"), "{ran:?}");
}

#[test]
fn init_in_the_home_changes_nothing_and_says_where_to_go() {
    as_each_user(|m| {
        for place in [m.home(), m.home().parent().unwrap().to_owned(), "/".into()] {
            let mut command = m.command(clash());
            let ran = Ran::of(command.args(["init", "--quick"]).current_dir(&place)).exits(1);
            ran.says("Nothing was changed").says("hint: `cd` into a project");
        }
        let config = m.home().join(".config");
        assert!(!config.exists() && !m.state().exists(), "{config:?}");
    });
}

#[test]
fn the_policy_is_shown_in_short_and_whole_on_request() {
    let m = rust_and_node_project(Who::Me);
    let Some(ran) = typed(&m, "\n\nnone\nview\nno\n") else { return };
    let (short, whole) = ran.stdout.split_once("or view to read its").unwrap();
    assert!(short.contains("The policy in short:") && !short.contains("when({"), "{short}");
    assert!(whole.contains("when({") && whole.contains("# rust (Cargo.toml)"), "{whole}");
    // One screen, up to the question.
    let screen = short.split_once("The policy in short:").unwrap().1;
    assert!(screen.lines().count() < 22, "{screen}");
    assert!(!policy_file(&m).exists());
}

#[test]
fn a_given_posture_is_not_asked_for() {
    let m = rust_and_node_project(Who::Me);
    let Some(ran) = at_terminal(&m, "init --posture strict", "\nnone\nyes\n") else { return };
    assert!(!ran.stdout.contains("How much should happen"), "{ran:?}");
    assert!(policy(&m).contains("(strict)"));
}
