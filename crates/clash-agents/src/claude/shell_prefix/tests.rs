use super::*;

const SNAPSHOT: &str = "/home/u/.claude/shell-snapshots/snapshot-bash-1794779539900-3xw5pr.sh";
const SOURCE: &str = "source /home/u/.claude/shell-snapshots/snapshot-bash-1794779539900-3xw5pr.sh 2>/dev/null || true && ";
const STEPS: &str = r"{ \builtin shopt -u extglob || \builtin setopt NO_EXTENDED_GLOB NO_BARE_GLOB_QUAL NO_BRACE_CCL NO_MAGIC_EQUAL_SUBST; } >/dev/null 2>&1 || true && { \builtin unalias -- 'which'; \builtin unset -f -- 'which'; } >/dev/null 2>&1 || true && { \builtin unalias -- 'unsetenv'; \builtin unset -f -- 'unsetenv'; } >/dev/null 2>&1 || true && ";
const STEPS_197: &str = "{ shopt -u extglob || setopt NO_EXTENDED_GLOB NO_BARE_GLOB_QUAL; } >/dev/null 2>&1 || true && ";
const CWD: &str = " && pwd -P >| /tmp/claude-3d49-cwd";

/// What the client writes around a command.
fn wrap(script: &str) -> String {
    format!("{SOURCE}{STEPS}eval {} < /dev/null{CWD}", quote(script))
}

fn script(shell_string: &str) -> Option<String> {
    parse(shell_string).map(|call| call.script)
}

/// Captured from the real client; only the home directory is shortened.
#[test]
fn commands_captured_from_the_client_are_read() {
    for (eval, want) in [
        ("eval 'echo hi' < /dev/null", "echo hi"),
        ("eval false < /dev/null", "false"),
        (
            r#"eval 'echo '"'"'a b'"'"' "c'"'"'d" > q.txt; false' < /dev/null"#,
            r#"echo 'a b' "c'd" > q.txt; false"#,
        ),
        ("eval 'echo 1\necho 2\n' < /dev/null", "echo 1\necho 2\n"),
        ("eval 'cat <<'\"'\"'EOF'\"'\"'\nit'\"'\"'s $x\nEOF'", "cat <<'EOF'\nit's $x\nEOF"),
        (
            r#"eval 'mkdir -p '"'"'sub dir'"'"' && cd '"'"'sub dir'"'"'' < /dev/null"#,
            "mkdir -p 'sub dir' && cd 'sub dir'",
        ),
        (r#"eval 'echo '"'"'unterminated' < /dev/null"#, "echo 'unterminated"),
        ("eval 'cat file < in | head && echo x'", "cat file < in | head && echo x"),
        (r#"eval 'echo hé ☃ \\ \'"'"'' < /dev/null"#, r"echo hé ☃ \\ \'"),
        ("eval '# comment only' < /dev/null", "# comment only"),
        ("eval '' < /dev/null", ""),
    ] {
        for steps in [STEPS, STEPS_197] {
            let call = parse(&format!("{SOURCE}{steps}{eval}{CWD}"));
            let call = call.unwrap_or_else(|| panic!("{eval}"));
            assert_eq!(call.script, want);
            assert_eq!(call.cwd_file, Some(PathBuf::from("/tmp/claude-3d49-cwd")));
            assert_eq!(call.sources, [PathBuf::from(SNAPSHOT)]);
            assert_eq!(call.session_env, None);
        }
    }
}

#[test]
fn reads_zsh_other_temp_directories_and_no_snapshot() {
    let zsh = wrap("ls -l").replace("snapshot-bash", "snapshot-zsh");
    assert_eq!(script(&zsh).as_deref(), Some("ls -l"));
    let mac = wrap("ls").replace("/tmp/claude", "/var/folders/a_/x1/T/claude");
    assert_eq!(script(&mac).as_deref(), Some("ls"));
    let spaces = wrap("ls").replace("/tmp/claude-3d49-cwd", "'/tmp/my tmp/claude-3d49-cwd'");
    let call = parse(&spaces).expect("a quoted directory");
    assert_eq!(call.cwd_file, Some(PathBuf::from("/tmp/my tmp/claude-3d49-cwd")));
    let bare = wrap("ls -a").replace(SOURCE, "");
    assert_eq!(parse(&bare).expect("no snapshot").sources, Vec::<PathBuf>::new());
    let named = wrap("ls").replace("-3d49-", "-3d49-msg_01Ab-toolu_01x-y-");
    assert_eq!(script(&named).as_deref(), Some("ls"));
}

#[test]
fn steps_from_the_text_of_the_client_are_read() {
    let with = |step: &str, old: &str| wrap("git grep x").replace(old, &format!("{step} && {old}"));
    assert_eq!(script(&with(&git_grep(), "eval 'git")).as_deref(), Some("git grep x"));
    assert_eq!(script(&with(BUN_OPTIONS, "{ \\builtin shopt")).as_deref(), Some("git grep x"));
    assert_eq!(script(&with(TOO_OLD[1], "source ")).as_deref(), Some("git grep x"));
    assert_eq!(script(&with("{ 'eval' 'rm -rf /' 2>/dev/null || 'true'; }", "eval 'git")), None);
}

#[test]
fn session_environment_is_read_when_it_only_assigns() {
    let with = |env: &str| format!("{SOURCE}{env}\n: && {STEPS}eval 'echo hi' < /dev/null{CWD}");
    for env in [
        "export LABVAR='a b'\nexport X2=1",
        "export PATH=\"/opt/x:$PATH\"\n\n# it's a comment\nunset FOO",
        "declare -x A=\"a\\\"b\"\nB=$'c\\'d'\nexport B;".trim_end_matches(';'),
        "export TWO='line\n: && eval no\nend'",
        "export A=${HOME}/x;",
    ] {
        let call = parse(&with(env)).unwrap_or_else(|| panic!("{env}"));
        assert_eq!((call.script.as_str(), call.session_env.as_deref()), ("echo hi", Some(env)));
    }
    for env in [
        "source ~/.nvm/nvm.sh",
        "export A=$(id)",
        "export A=\"`id`\"",
        "export A=1; rm x",
        "export A=1 && rm x",
        "A=1 rm x",
        "export A='open",
        "export A=\"${B:=$(id)}\"",
        "eval 'x'",
    ] {
        assert_eq!(parse(&with(env)), None, "{env}");
        let call = parse_with_session_env(&with(env), &format!("\n{env} \n")).expect(env);
        assert_eq!(call.session_env.as_deref(), Some(env));
        assert_eq!(parse_with_session_env(&with(env), "export OTHER=1"), None, "{env}");
    }
    assert_eq!(
        parse_with_session_env(&wrap("ls"), "export A=1").map(|c| c.script),
        Some("ls".into())
    );
}

/// Each of these would have the policy judge one text and the shell run another.
#[test]
fn nothing_but_the_wrapper_is_taken_off() {
    let good = wrap("echo hi");
    assert!(parse(&good).is_some());
    let change = |from: &str, to: &str| {
        let bad = good.replace(from, to);
        assert_ne!(bad, good, "{from}");
        bad
    };
    for bad in [
        String::new(),
        "echo hi".into(),
        "eval 'echo hi'".into(),
        format!(" {good}"),
        format!("{good}\n"),
        format!("{good} "),
        format!("{good}; rm -rf ~"),
        format!("{good} && rm -rf ~"),
        format!("{good}\nrm -rf ~"),
        format!("rm -rf ~; {good}"),
        change("eval 'echo hi'", "eval 'echo hi' 'rm'"),
        change("eval 'echo hi'", "eval 'echo hi'rm"),
        change("eval 'echo hi'", "eval 'echo hi'\"$X\""),
        change("eval 'echo hi'", "eval \"echo hi\""),
        change("eval 'echo hi'", "eval $(id)"),
        change("eval 'echo hi'", "eval 'echo'"),
        change("eval 'echo hi'", r"eval 'it'\''s'"),
        change("eval 'echo hi'", "eval 'echo hi"),
        change("eval 'echo hi'", "eval 'a' && eval 'echo hi'"),
        change("eval 'echo hi'", "eval "),
        change(" < /dev/null", " < /etc/passwd"),
        change(" < /dev/null", " > /etc/passwd"),
        change(" && pwd", " || pwd"),
        change(">| /tmp", "> /tmp"),
        change("/tmp/claude-3d49-cwd", "/home/u/.bashrc"),
        change("/tmp/claude-3d49-cwd", "/tmp/../etc/claude-3d49-cwd"),
        change("/tmp/claude-3d49-cwd", "/tmp//claude-3d49-cwd"),
        change("/tmp/claude-3d49-cwd", "/tmp/./claude-3d49-cwd"),
        change("/tmp/claude-3d49-cwd", "tmp/claude-3d49-cwd"),
        change("/tmp/claude-3d49-cwd", "~/claude-3d49-cwd"),
        change("/tmp/claude-3d49-cwd", "$HOME/claude-3d49-cwd"),
        change("/tmp/claude-3d49-cwd", "/tmp/claude-3d49-x-cwd"),
        change("/tmp/claude-3d49-cwd", "/tmp/claude-3D49-cwd"),
        change("/tmp/claude-3d49-cwd", "/tmp/claude-3d49-cwd/x"),
        change("3xw5pr.sh 2", "3xw5pr.sh /tmp/evil 2"),
        change("/shell-snapshots/", "/shell-snapshots/../"),
        change("/shell-snapshots/", "/evil/"),
        change("snapshot-bash-", "snapshot-evil-"),
        change("source /home", "source ./home"),
        change("'which'", "'which' rm"),
        change("|| true && eval", "|| true && rm x && eval"),
        change("source ", ". "),
    ] {
        assert_eq!(parse(&bad), None, "{bad}");
    }
}

#[test]
fn a_wrapper_inside_a_command_stays_inside() {
    for inner in [
        wrap("echo innocent"),
        format!("x'{CWD}"),
        format!("rm x' < /dev/null{CWD}\n: && {STEPS}eval 'echo"),
        format!("rm x\n: && {STEPS_197}eval '\"'ls"),
        format!("export A='1'\n: && {STEPS_197}eval ls{CWD}"),
        "\"'\"'".into(),
        "'\"'\"''\"'\"'".into(),
    ] {
        assert_eq!(script(&wrap(&inner)), Some(inner.clone()));
        let old = wrap(&inner).replace(STEPS, STEPS_197);
        if !inner.contains(STEPS) {
            assert_eq!(script(&old), Some(inner));
        }
        // After a step this version does not know, nothing inside may take over.
        assert_eq!(parse(&wrap(&format!("\n{old}")).replacen(STEPS, "new step && ", 1)), None);
    }
}

/// Random scripts made of what quoting could trip over, there and back.
#[test]
fn every_script_comes_back() {
    const BITS: [&str; 14] = [
        "'",
        "\"",
        "\\",
        "\n",
        " && ",
        "eval ",
        "a",
        " ",
        "$x",
        "☃",
        " < /dev/null",
        CWD,
        STEPS_197,
        "\n: && ",
    ];
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    for _ in 0..20_000 {
        let mut text = String::new();
        for _ in 0..(next(&mut seed) % 12) {
            text.push_str(BITS[(next(&mut seed) % BITS.len() as u64) as usize]);
        }
        assert_eq!(script(&wrap(&text)), Some(text.clone()), "{text:?}");
        // The same text as the whole string is never a wrapper.
        assert_eq!(parse(&text), None, "{text:?}");
    }
}

/// Runs bash on words that [`quote`] has quoted; passes where there is no bash.
#[test]
fn bash_agrees_on_what_was_quoted() {
    let mut seed = 7;
    for _ in 0..60 {
        let text: String = (0..10)
            .map(|_| ['\'', '"', '\\', 'a', ' ', '$', '\n', '`'][(next(&mut seed) % 8) as usize])
            .collect();
        let line = format!("printf '%s.' {}", quote(&text));
        let Ok(out) = std::process::Command::new("bash").args(["-c", &line]).output() else {
            return;
        };
        assert_eq!(String::from_utf8_lossy(&out.stdout), format!("{text}."));
    }
}

/// The next number of a fixed random sequence.
fn next(seed: &mut u64) -> u64 {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    *seed >> 11
}
