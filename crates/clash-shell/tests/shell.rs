//! The whole shell analysis: hidden programs, hostile texts, the table of programs.

use clash_shell::{NextWord, ShellCommand, ShellWord, next_significant, program_name};
use proptest::prelude::*;

/// The file name of the program, if it is known.
fn program(command: &ShellCommand) -> Option<&str> {
    let word = command.words.first()?.known()?;
    word.rsplit('/').next()
}

/// True if a rule that denies `git push` would apply, or could apply to an unknown
/// command.
fn may_push(command: &ShellCommand) -> bool {
    if command.opaque.is_some() {
        return true;
    }
    let Some(first) = command.words.first() else { return false };
    match first.known().map(|_| program(command)) {
        None => true,
        Some(Some("git")) => {
            command.words.iter().skip(1).any(|word| word.known().is_none_or(|word| word == "push"))
        }
        Some(_) => false,
    }
}

/// Programs that push in some of the forms. Each needs a rule of its own; none is a
/// shell or git.
const OTHERS: &[&str] = &["python3", "perl", "awk", "make", "node", "x.sh", "g", "test", "kill"];

#[test]
fn no_way_to_push_looks_harmless() {
    let forms = include_str!("shell_push_forms.txt");
    let mut count = 0;
    for form in forms.lines() {
        count += 1;
        let script = form.replace("\\n", "\n");
        let found = clash_shell::find_commands(&script);
        let other = found.iter().any(|command| {
            !clash_shell::is_inert(command) && program(command).is_some_and(|p| OTHERS.contains(&p))
        });
        assert!(found.iter().any(may_push) || other, "{form}: {found:#?}");
    }
    assert!(count >= 105, "only {count} forms");
}

#[test]
fn builtins_are_inert_only_where_they_evaluate_nothing() {
    let inert = |script: &str| clash_shell::find_commands(script).iter().all(clash_shell::is_inert);
    for script in [
        "echo $x",
        "cd $dir",
        "[ -f x ]",
        "test -n y",
        "export A=1",
        "X=1",
        ": > f",
        "[ -n \"$x\" ]",
        "[ \"$a\" = \"$b\" ]",
        "printf '%s\\n' \"$x\"",
        "read -r x",
        "export A=\"$b\"",
        "[[ -f x ]]",
        "set -euo pipefail",
        "command -v git",
        "[ $? -eq 0 ]",
        "wait",
        "kill %1",
        "exit 1",
        "timeout 5 echo hi",
        "bash -c 'echo hi'",
    ] {
        assert!(inert(script), "{script}");
    }
    for script in [
        "printf -v 'a[$(evil)]' x",
        "test -v 'a[$(evil)]'",
        "[ -v $x ]",
        "read 'a[$(evil)]'",
        "unset $x",
        "eval \"$x\"",
        "ls",
        "$x",
        "./env echo hi",
        "timeout 5 ls",
        "source x",
        "sudo true",
        "[ \"$a\" \"$b\" ]",
        "export $x",
        "printf \"$x\"",
    ] {
        assert!(!inert(script), "{script}");
    }
}

/// Bash runs `evil` in each of these scripts; each was tried. A script that is run by
/// its path (`./x`, `bash x`) counts as seen: no rule about `evil` can look into a
/// file.
#[test]
fn no_spelling_hides_a_command() {
    let scripts = include_str!("shell_evasions.txt");
    for script in scripts.lines().map(|line| line.replace('⏎', "\n")) {
        let found = clash_shell::find_commands(&script);
        let seen = found.iter().any(|command| {
            let unknown = command.words.first().is_some_and(|word| word.known().is_none());
            let by_path = command.words.first().is_some_and(|word| word.prefix().contains('/'));
            command.opaque.is_some() || unknown || by_path || program(command) == Some("evil")
        });
        assert!(seen, "{script}: {found:#?}");
    }
    assert!(scripts.lines().count() > 350);
}

#[test]
fn a_nul_byte_and_a_very_long_script_are_opaque() {
    let long = "a;".repeat(clash_shell::MAX_SCRIPT_BYTES);
    for script in ["ls\0evil", long.as_str()] {
        let found = clash_shell::find_commands(script);
        assert!(matches!(found.as_slice(), [one] if one.opaque.is_some()));
        assert!(found[0].text.len() < 3000);
    }
}

#[test]
fn a_failing_cd_ends_the_script_only_if_that_is_certain() {
    let directory = |script: &str| clash_shell::find_commands(script).pop().map(|it| it.cwd);
    let inside = Some(clash_shell::CommandDirectory::Relative("x".to_owned()));
    assert_eq!(directory("set -e; cd x; ls"), inside);
    for script in [
        "cd x; ls",
        "(set -e); cd x; ls",
        "if a; then set -e; fi; cd x; ls",
        "a && set -e; cd x; ls",
        "set -e & cd x; ls",
        "set -e; set +e; cd x; ls",
        "set -e; if a; then set +e; fi; cd x; ls",
    ] {
        let unknown = Some(clash_shell::CommandDirectory::Unknown);
        assert_eq!(directory(script), unknown, "{script}");
    }
}

#[test]
fn uncalled_functions_are_found_in_the_order_of_the_script() {
    let names: Vec<String> = (0..40).map(|n| format!("program{}", n * 7 % 40)).collect();
    let script: String = names.iter().map(|n| format!("f_{n}() {{ {n}; }}\n")).collect();
    let found = clash_shell::find_commands(&script);
    let found: Vec<&str> = found.iter().filter_map(program).collect();
    assert_eq!(found, names);
}

#[test]
fn no_deep_nest_overflows_or_counts_as_no_command() {
    let nests: &[(&str, &str)] = &[
        ("(", ")"),
        ("{ ", "; }"),
        ("$(", ")"),
        ("echo \"$(", ")\""),
        ("if a; then ", "; fi"),
        ("while a; do ", "; done"),
        ("${x:-", "}"),
        ("$((", "))"),
        ("case a in a) ", ";; esac"),
        ("f() { ", "; }"),
        ("<(", ")"),
        ("a=(", ")"),
        ("x[", "]=1"),
        ("[[ ( ", " ) ]]"),
        ("echo @(", ")"),
        ("`", "`"),
        ("a && (", ")"),
        ("((", "))"),
        ("${x[", "]}"),
        ("{a,", "}"),
        ("eval ", ""),
        ("env ", ""),
        ("bash -c '", "'"),
        ("! ", ""),
        ("coproc ", ""),
        ("function f ", ""),
        ("\"", "\""),
        ("function f { ", "; }"),
        ("cat <<< $(", ")"),
        ("echo ${x/$(", ")}"),
        ("find -exec ", " \\;"),
        ("time ", ""),
        ("xargs ", ""),
        ("sudo ", ""),
        ("for i in a; do ", "; done"),
    ];
    for (open, close) in nests {
        for depth in [150, 190, 210, 10_000] {
            let script = format!("{}evil{}", open.repeat(depth), close.repeat(depth));
            assert!(!clash_shell::find_commands(&script).is_empty());
        }
        let unclosed = open.repeat(10_000);
        assert!(!clash_shell::find_commands(&unclosed).is_empty());
    }
    for nest in ["(", "$(", "if a; then ", "{ "] {
        let script = format!("{}evil", nest.repeat(10_000));
        assert!(clash_shell::find_commands(&script)[0].opaque.is_some());
    }
}

/// Sixteen times the text takes about sixteen times as long, and not 256 times, as a
/// quadratic analysis would.
#[test]
fn time_grows_with_the_length_and_no_faster() {
    // The processor time of this thread: other processes do not count.
    let spent = || -> u64 {
        let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
        stat.split(' ').next().unwrap().parse().unwrap()
    };
    let once = |script: &str| {
        let start = spent();
        assert!(!clash_shell::find_commands(script).is_empty());
        spent() - start
    };
    let cost = |script: &str| (0..5).map(|_| once(script)).min().unwrap();
    for unit in [
        "ls -la | grep x; git status && echo \"$(date)\"\n",
        "nice ",
        "eval ",
        "(a);",
        "x=1 ",
        "`a`",
        "$(a)",
        "${x}",
        "a <<E\nb\nE\n",
        "\"$x\"",
        "'q'",
        "if a; then b; fi;",
        "a=b; $a; ",
        "f() { g; }; f; ",
        "f() { f; f; }; f;",
        "{a,b}",
        "a[1]=2;",
        "for i in a; do b; done;",
        "\\\n",
        "case x in a) b;; esac;",
        ">a ",
        "&& a ",
        "| a ",
        "x=$x$x;",
        "alias l='l l';l;",
        "f(){ g;g; };g(){ f;f; };f;",
        "a+=aaaa;",
        "while x; do y=1; done;",
        "$((1))",
        "((a++));",
        "a\\\n",
        "env A=1 ",
        "xargs ",
        "bash -c a;",
        "echo a | sh;",
        "[[ a ]];",
        "<(a)",
        "#\n",
        "cat <<E $(",
        "`\\`",
        "git -c alias.x=y ",
        "trap 'a' INT;",
        "export a=1 b=2;",
        "~",
        "*",
        "a;b&",
    ] {
        let short = unit.repeat(2048 / unit.len() + 1);
        let long = unit.repeat(16 * (2048 / unit.len() + 1));
        // Below a millisecond the clock is too coarse.
        let (one, sixteen) = (cost(&short).max(1_000_000), cost(&long));
        assert!(sixteen < one * 80, "{unit:?}: {one} ns for one, {sixteen} ns for sixteen");
    }
}

#[test]
fn functions_that_double_do_not_take_for_ever() {
    let mut script = "f0() { a; }\n".to_owned();
    for i in 1..60 {
        script += &format!("f{i}() {{ f{0}; f{0}; }}\n", i - 1);
    }
    script += "f59";
    let found = clash_shell::find_commands(&script);
    assert!(found.iter().any(|command| command.opaque.is_some()));
}

/// Words between blanks; `?` is an unknown word.
fn words(text: &str) -> Vec<ShellWord> {
    let word = |w: &str| match w {
        "?" => ShellWord::Unknown,
        w => ShellWord::Known(w.to_owned()),
    };
    text.split(' ').map(word).collect()
}

/// The subcommand of each line; `?` if it is unsure, `-` if there is none.
#[test]
fn the_table_finds_the_subcommand_of_each_program() {
    for (line, expected) in [
        ("git push", "push"),
        ("git -C dir -c k=v push", "push"),
        ("git --no-pager push", "push"),
        ("git -P push", "push"),
        ("git --git-dir=.git push", "push"),
        ("git --git-dir .git push", "push"),
        ("git --weird push", "?"),
        ("git ? push", "?"),
        ("git", "-"),
        ("git -C", "-"),
        ("git -- push", "push"),
        ("/usr/bin/git push", "push"),
        ("./git push", "?"),
        ("? push", "?"),
        ("cargo +nightly build", "build"),
        ("cargo --locked -q test", "test"),
        ("cargo -Z x build", "build"),
        ("cargo --config x=y build", "build"),
        ("npm --prefix d run", "run"),
        ("npm -w x test", "test"),
        ("pnpm -C d install", "install"),
        ("pnpm --filter x build", "build"),
        ("yarn --cwd d add", "add"),
        ("bun --cwd d run", "run"),
        ("docker --host x run", "run"),
        ("docker -H x ps", "ps"),
        ("podman --log-level debug rm", "rm"),
        ("kubectl -n ns delete", "delete"),
        ("kubectl --context=c get", "get"),
        ("gh -R a/b pr", "pr"),
        ("terraform -chdir=d apply", "apply"),
        ("aws --profile p s3", "s3"),
        ("aws --region=r s3", "s3"),
        ("gcloud --project p compute", "compute"),
        ("az -o json vm", "vm"),
        ("go -C d build", "build"),
        ("pip --quiet install", "install"),
        ("pip3 --log f install", "install"),
        ("uv --directory d run", "run"),
        ("poetry -C d run", "run"),
        ("systemctl --user restart", "restart"),
        ("systemctl -H h stop", "stop"),
        ("make -C d all", "all"),
        ("make -s pp", "pp"),
        ("make -j8 all", "all"),
        ("make -f x y", "y"),
        ("ssh -p 22 host", "host"),
        ("ssh -v -i k host", "host"),
        ("ssh -p22 host", "host"),
        ("ls -l x", "?"),
        ("ls x", "x"),
        ("git -Cdir push", "push"),
    ] {
        let words = words(line);
        let found = match next_significant(&words, 1) {
            NextWord::Sure { index } => words[index].known().unwrap_or("?").to_owned(),
            NextWord::End => "-".to_owned(),
            NextWord::Unsure => "?".to_owned(),
        };
        assert_eq!(found, expected, "{line}");
    }
}

#[test]
fn an_unknown_option_makes_later_words_unsure() {
    let sure = |line: &str, at| next_significant(&words(line), at);
    assert_eq!(sure("git push origin", 2), NextWord::Sure { index: 2 });
    assert_eq!(sure("git push --force origin", 2), NextWord::Unsure);
    assert_eq!(sure("git push -- --force", 2), NextWord::Sure { index: 3 });
    assert_eq!(sure("git push", 2), NextWord::End);
    assert_eq!(sure("git -C d push origin", 4), NextWord::Sure { index: 4 });
    assert_eq!(sure("kubectl get -n ns pods", 2), NextWord::Sure { index: 4 });
    assert_eq!(sure("git stash -C push", 2), NextWord::Unsure);
    assert_eq!(sure("docker run -c x y", 2), NextWord::Unsure);
    assert_eq!(sure("git push ?", 2), NextWord::Unsure);
    assert_eq!(sure("git", 0), NextWord::Sure { index: 0 });
    assert_eq!(next_significant(&[], 0), NextWord::End);
}

#[test]
fn only_programs_of_the_system_are_known_by_name() {
    assert_eq!(program_name("git"), Some("git"));
    assert_eq!(program_name("/usr/bin/git"), Some("git"));
    for other in ["./git", "/tmp/git", "bin/git", "/home/me/bin/git", "/usr/bin/../../tmp/git"] {
        assert_eq!(program_name(other), None, "{other}");
    }
}

/// Random texts of pieces that mean something to a shell.
fn shellish() -> impl Strategy<Value = String> {
    let pieces = prop::sample::select(vec![
        "a", "b ", "$(", ")", "`", "\"", "'", "\\", "\n", ";", "&&", "|", "<<E\n", "E\n", "${",
        "}", "((", "))", "if ", "then ", "fi ", "for ", "in ", "do ", "done ", "case ", "esac ",
        "{ ", "f() ", "[[ ", "]] ", "<(", "=", "$x", "*", "{a,b}", "é", "\u{a0}", "\r", "#",
        "eval ", "bash -c ", "env ", "-", "!", "\\\n", "git -c ", "xargs ", "find ", "-exec ",
        ":-", "@P", "[", "]", "<<<", ">&", "alias q=", "trap ", "$'",
    ]);
    prop::collection::vec(pieces, 0..40).prop_map(|pieces| pieces.concat())
}

/// Scripts of the corpus.
fn corpus() -> impl Strategy<Value = &'static str> {
    let cases = include_str!("shell_corpus.txt").split("====\n");
    let scripts: Vec<_> = cases.filter_map(|case| Some(case.split_once("\n---\n")?.0)).collect();
    prop::sample::select(scripts)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text_is_analysed_without_panic(script in any::<String>()) {
        prop_assert!(!clash_shell::find_commands(&script).is_empty());
    }

    #[test]
    fn any_text_of_shell_pieces_is_analysed_and_spans_lie_in_it(script in shellish()) {
        let found = clash_shell::find_commands(&script);
        prop_assert!(!found.is_empty());
        for command in &found {
            prop_assert!(script.get(command.span.clone()).is_some(), "{:?}", command);
        }
    }

    #[test]
    fn a_program_seen_alone_is_seen_in_a_longer_script(one in corpus(), two in corpus()) {
        let opaque = |found: &[ShellCommand]| found.iter().any(|c| c.opaque.is_some());
        let both = clash_shell::find_commands(&format!("{one}\n{two}"));
        let programs = |found: &[ShellCommand]| -> Vec<String> {
            found.iter().filter_map(|c| program(c).map(str::to_owned)).collect()
        };
        // The first script may change the meaning of the second (an alias, a function),
        // but not the other way round.
        for name in programs(&clash_shell::find_commands(one)) {
            prop_assert!(opaque(&both) || programs(&both).contains(&name), "{name}");
        }
    }

    #[test]
    fn quoting_a_program_hides_nothing(quoted in "[a-z]{1,6}", at in 0usize..6, how in 0usize..4) {
        let at = at.min(quoted.len() - 1);
        let (before, after) = quoted.split_at(at);
        let script = match how {
            0 => format!("{before}''{after} x"),
            1 => format!("{before}\"\"{after} x"),
            2 => format!("\"{before}\"'{after}' x"),
            _ => format!("{before}\\\n{after} x"),
        };
        let found = clash_shell::find_commands(&script);
        let reserved = ["if", "do", "fi", "for", "in", "case", "esac", "then", "else", "done", "time", "until", "while", "coproc", "select", "elif"];
        prop_assume!(!reserved.contains(&quoted.as_str()));
        prop_assert!(found.iter().any(|c| c.opaque.is_some()
            || c.words.first().and_then(ShellWord::known) == Some(quoted.as_str())), "{script:?} {found:?}");
    }
}
