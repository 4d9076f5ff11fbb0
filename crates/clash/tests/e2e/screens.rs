//! The screens of the first hour: 80 columns, no colour, in a pipe. Every sentence on
//! them is found out by a check; the tests of that check are with the command.

use crate::init::typed_into;
use crate::support::{Machine, Ran, Who, as_each_user, clash};

const POLICY: &str = r#"
load("@clash//sandboxes.star", "git_full", "project")
settings(default = ask(), default_sandbox = project)
when({
    "Bash": {
        "git push": ask(sandbox = git_full, reason = "others see it"),
        "sudo": deny(reason = "not on this machine, where every command of an agent runs as the user: ask the administrator for the package, or put it into the image of the container"),
    },
    "Read": allow(),
})
"#;

/// Everything that a command prints to stdout and stderr with `COLUMNS=80`, checked by
/// [`checked`].
fn screen(m: &Machine, args: &[&str]) -> String {
    let ran = Ran::of(m.command(clash()).args(args).env("COLUMNS", "80"));
    let text = format!("{}{}", ran.stdout, ran.stderr);
    checked(m, &text)
}

/// Checks that a text has no colour, no home path and no line over 80 columns. Removes spaces
/// at line ends.
fn checked(m: &Machine, text: &str) -> String {
    assert!(!text.contains('\u{1b}'), "{text}");
    assert!(!text.contains(&m.home().display().to_string()), "{text}");
    let wide = text.lines().find(|line| line.chars().count() > 80);
    assert_eq!(wide, None, "{text}");
    text.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

/// The text with fixed times and dates.
fn with_fixed_times(text: &str) -> String {
    let is_time = |word: &str| word.len() == 8 && word.bytes().filter(|b| *b == b':').count() == 2;
    let is_date = |word: &str| word.len() == 10 && word.bytes().filter(|b| *b == b'-').count() == 2;
    let word = |word: &str| match word {
        word if is_date(word) => "2026-01-02".to_owned(),
        word if is_time(word) => "03:04:05".to_owned(),
        word => word.to_owned(),
    };
    text.split(' ')
        .map(|part| part.split('\n').map(word).collect::<Vec<_>>().join("\n"))
        .collect::<Vec<_>>()
        .join(" ")
}

/// A project with rust, node and git, and settings of an agent to import.
fn polyglot_project() -> Machine {
    let m = Machine::new(Who::Me);
    m.write("app/Cargo.toml", "[package]\nname = \"app\"\n");
    m.write("app/web/package.json", "{}");
    m.write("app/.git/HEAD", "ref: refs/heads/main\n");
    m.write(".claude/settings.json", r#"{"permissions": {"deny": ["Bash(sudo:*)"]}}"#);
    m
}

#[test]
fn init_in_80_columns() {
    let m = polyglot_project();
    // The hosts depend on the tools of the machine.
    let args = ["init", "--quick", "--all-hosts", "--agent", "claude"];
    insta::assert_snapshot!(screen(&m, &args), @r"
    detecting ecosystems...
    found: rust (Cargo.toml)
    found: node (web/package.json)
    found: git (.git)
    generating policy with: rust, node, git (moderate)
    with the permissions in ~/.claude/settings.json (`--no-import` leaves them out)
    wrote ~/.config/clash/policy.star
    changed ~/.claude/settings.json
    Claude Code: clash now decides; a trial command ran in sandbox project
    Running sessions keep their old settings: start a new one.
    `clash policy show` shows what holds, `clash policy undo` takes it back.
    ");
    let m = polyglot_project();
    let mut command = m.command("script");
    // Toolchains of this machine that are elsewhere would have sandboxes of their own.
    command.env("PATH", "/bin");
    let Some(ran) = typed_into(command, "init --agent none --all-hosts", "\n\n\nno\n") else {
        return;
    };
    // Without the codes of the progress line; the answers were typed before the questions.
    let text =
        ran.stdout.replace('\r', "").replace("\u{1b}[K\n", "\n").replace("[no]: ", "[no]:\n");
    let (_, text) = text.split_once("detecting").unwrap();
    insta::assert_snapshot!(checked(&m, text), @r"
     ecosystems...
    found: rust (Cargo.toml)
    found: node (web/package.json)
    found: git (.git)

    How much should happen without asking you?
      1  strict
           runs    reading and editing the project, builds and tests without network
           asks    the network, what cannot be undone (rm -r, git reset --hard, git
                   restore), unknown commands
           blocks  files outside the project and the toolchains' caches, credentials
      2  moderate
           runs    the same, and installing dependencies, git fetch and pull
           asks    git push, publishing, what cannot be undone (rm -r, git reset
                   --hard, git restore), unknown commands
           blocks  files outside the project and the toolchains' caches, credentials
      3  permissive
           runs    the same, git push, web pages, unknown commands, and what cannot
                   be undone in the project (rm -r src, git reset --hard)
           asks    publishing, rewriting history that others have, programs for all
                   projects
           blocks  files outside the project and the toolchains' caches, credentials
    Posture [moderate]:
    Toolchains [rust node git]:
    permissions of ~/.claude/settings.json
      Bash sudo: deny()
    Take them over? [yes]:
    The policy in short:
      runs in project            ack, actionlint, addr2line, ag and 197 more
      runs in rust_full          cargo, cargo-clippy, cargo-fmt and 7 more
      runs in node_full          npm add, npm audit, npm ci and 18 more
      runs in node_safe          npm, ./node_modules/.bin/* and 11 more
      runs in git_full           git lfs clone, git lfs fetch and 10 more
      runs in git_checkout_safe  git lfs, git bisect, git cherry-pick and 9 more
      runs in git_safe           git rm, git
      runs in git_rebase_safe    git rebase
      runs in asked_web          curl, wget
      asks about                 find -delete, rm -R, rsync --del* and 54 more
      denies                     sudo
      everything else            is asked about, and runs in project

    Write ~/.config/clash/policy.star? yes, no, or view to read its 180 lines [no]:
    clash: ~/.config/clash/policy.star was not written
    status=1
    ");
}

#[test]
fn status_in_80_columns() {
    let m = Machine::new(Who::Me).policy(POLICY);
    m.clash(["install", "--agent", "claude"]).succeeds();
    m.bash("sudo reboot").is("deny", "not on this machine");
    let text = screen(&m, &["status"]);
    let (above, rest) = text.split_once("machine ").unwrap();
    let (_, blocked) = rest.split_once("\nblocked").unwrap();
    insta::assert_snapshot!(with_fixed_times(&format!("{above}blocked{blocked}")), @r"
    project   ~/app
    policy    user (~/.clash/policy.star)
    default   ask, in sandbox project (~/.clash/policy.star:3)
    agents    Claude Code: wired; commands are confined
    blocked   2026-01-02 03:04:05  `sudo reboot` is denied (rule at
                                   ~/.clash/policy.star:7): not on this machine,
                                   where every command of an agent runs as the user:
                                   ask the administrator for the package, or put it
                                   into the image of the container; the user allows
                                   it with: clash policy allow -- sudo reboot
    ");
}

#[test]
fn doctor_in_80_columns() {
    let m = Machine::new(Who::Me).policy(POLICY);
    m.clash(["install", "--agent", "claude"]).succeeds();
    let text = screen(&m, &["doctor"]);
    // These two differ from machine to machine.
    let is_alike =
        |section: &&str| !["this machine\n", "git\n"].iter().any(|it| section.starts_with(it));
    let sections: Vec<&str> = text.split("\n\n").filter(is_alike).collect();
    insta::assert_snapshot!(sections.join("\n\n"), @r"
    policy
      ok     user policy ~/.clash/policy.star
      ok     it compiles

    sandboxes
      ok     15 of 15 can be enforced here

    clash's own files
      ok     state directory ~/.local/state/clash
      ok     cache directory ~/.cache/clash

    Claude Code
      ok     installed in ~/.claude/settings.json
      ok     the installed hook answers, and blocks what it does not understand
      ok     it let `true` through, which ran in sandbox project
    ");
}

#[test]
fn doctor_says_what_is_so_of_this_process() {
    as_each_user(|m| {
        let text = screen(&m, &["doctor"]);
        let is_root = m.who == Who::Me && crate::support::is_root();
        assert_eq!(text.contains("ok     plain user"), !is_root, "{text}");
        assert!(!text.contains("note   not ") && !text.contains("note   plain user"), "{text}");
    });
}

#[test]
fn install_in_80_columns() {
    let m = Machine::new(Who::Me).policy(POLICY);
    insta::assert_snapshot!(screen(&m, &["install", "--agent", "claude"]), @r"
    changed ~/.claude/settings.json
    Claude Code: clash now decides; a trial command ran in sandbox project
    Running sessions keep their old settings: start a new one.
    ");
    insta::assert_snapshot!(screen(&m, &["install", "--agent", "claude"]), @r"
    clash is in ~/.claude/settings.json already
    Claude Code: clash decides; a trial command ran in sandbox project
    ");
    m.write(".codex/config.toml", "broken = [");
    insta::assert_snapshot!(screen(&m, &["install", "--agent", "codex"]), @r"
    clash: ~/.codex/config.toml: not TOML: unclosed array, expected `]`

    hint: correct the file, or move it away, and try again
    ");
    let text = screen(&m, &["uninstall", "--agent", "claude"]);
    let sizeless = |line: &str| match line.split_once("B  ~") {
        Some((_, path)) => format!("  SIZE  ~{path}"),
        None => line.to_owned(),
    };
    let lines: Vec<String> = text.lines().map(sizeless).collect();
    insta::assert_snapshot!(lines.join("\n"), @r"
    clash is out of ~/.claude/settings.json

    left on this machine:
      SIZE  ~/.clash (your policy)
      SIZE  ~/.local/state/clash (sessions, trust, copies of settings)
      SIZE  ~/.cache/clash (compiled policies)
    `clash uninstall --purge` removes it, and asks about your policy.
    ");
}

#[test]
fn explain_in_80_columns() {
    let m = Machine::new(Who::Me).policy(POLICY);
    insta::assert_snapshot!(screen(&m, &["explain", "git push | cat"]), @r"
    ask: `git push` needs your approval (rule at ~/.clash/policy.star:6): others see
      it

    commands:
      ask    git push  [user Bash > git > push at ~/.clash/policy.star:6, sandbox
                       git_full]
      allow  cat  [needs no rule of its own]

    sandbox git_full (@clash//git.star:120): Git with its remotes: the network and
      the ssh agent, but no private key.
      allow rwcdx  $PWD/**
      allow rwcdx  $TMPDIR/**
      allow r      $HOME/.gitconfig
      allow r      $XDG_CONFIG_HOME/git/attributes
      allow r      $XDG_CONFIG_HOME/git/config
      allow r      $XDG_CONFIG_HOME/git/ignore
      allow r      $XDG_CONFIG_HOME/gh/config.yml
      allow r      $XDG_CONFIG_HOME/gh/hosts.yml
      allow r      $HOME/.ssh/config
      allow r      $HOME/.ssh/id_ecdsa.pub
      allow r      $HOME/.ssh/id_ecdsa_sk.pub
      allow r      $HOME/.ssh/id_ed25519.pub
      allow r      $HOME/.ssh/id_ed25519_sk.pub
      allow r      $HOME/.ssh/id_rsa.pub
      allow r      $HOME/.ssh/known_hosts
      allow r      $HOME/.ssh/known_hosts2
      allow rx     the system's programs and libraries
      deny  rwcdx  every other path
      allow        network
      allow        $SSH_AUTH_SOCK
    ");
    insta::assert_snapshot!(screen(&m, &["explain", "read", "~/.ssh/id_ed25519"]), @r"
    deny: `~/.ssh/id_ed25519` is denied: it holds ssh keys, and no rule names it

    because:
      deny   ~/.ssh/id_ed25519  [user Read at ~/.clash/policy.star:9]
             sandbox project says deny read by the list of credentials (ssh keys)
    ");
}

#[test]
fn log_in_80_columns() {
    let m = Machine::new(Who::Me).policy(POLICY);
    m.bash("echo hi").is("allow", "");
    m.bash("git push origin main").is("ask", "");
    m.bash("sudo reboot").is("deny", "");
    insta::assert_snapshot!(with_fixed_times(&screen(&m, &["log"])), @r"
    test-ses.1    2026-01-02 03:04:05  allow           Bash       project      echo
                                       hi
    test-ses.2    2026-01-02 03:04:05  ask             Bash       git_full     git
                                       push origin main  (~/.clash/policy.star:6)
    test-ses.3    2026-01-02 03:04:05  deny            Bash       project      sudo
                                       reboot  [`sudo reboot` is denied (rule at
                                       ~/.clash/policy.star:7): not on this machine,
                                       where every comm…]
    ");
}

#[test]
fn status_shows_a_long_reason_whole() {
    let m = Machine::new(Who::Me).policy(POLICY);
    m.bash("sudo reboot").is("deny", "");
    m.clash(["status"]).succeeds().says("put it into the image of the container");
}

#[test]
fn a_reader_that_has_gone_is_no_failure() {
    let m = polyglot_project();
    m.clash(["init", "--quick", "--agent", "claude"]).succeeds();
    m.bash("sudo reboot");
    for args in [
        "init --dry-run --agent none",
        "init --json",
        "status",
        "doctor",
        "explain ls",
        "log",
        "log --json",
        "policy show",
        "policy check",
        "policy test",
        "policy docs",
        "sandbox list",
        "sandbox show project",
        "sandbox plan project",
        "trust --list",
        "cache list",
        "install",
        "fmt --check",
        "policy diff /dev/null /dev/null",
        "--help",
        "init --help",
    ] {
        let line = format!("'{}' {args} | true; exit ${{PIPESTATUS[0]}}", clash().display());
        let ran = Ran::of(m.command("bash").args(["-c", &line]));
        assert!(!ran.stderr.to_lowercase().contains("pipe"), "{args}: {ran:?}");
        assert!(ran.signal.is_none() && ran.code != Some(101), "{args}: {ran:?}");
    }
}
