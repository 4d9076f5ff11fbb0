use proptest::prelude::*;

use crate::support::{POSTS, PROGRAM, comments, library, program, tokens};
use clash_syntax::fmt::format;

fn formatted(source: &str) -> String {
    format(source).unwrap_or_else(|error| panic!("{error}\n{source}"))
}

/// Formats, and checks everything formatting promises.
fn checked(source: &str) -> String {
    let once = formatted(source);
    assert_eq!(formatted(&once), once, "not idempotent, from:\n{source}");
    assert_eq!(tokens(&once), tokens(source), "tokens changed:\n{source}\n---\n{once}");
    assert_eq!(comments(&once), comments(source), "comments changed:\n{source}\n---\n{once}");
    assert!(once.lines().all(|line| line.trim_end() == line) || once.contains("\"\"\""));
    once
}

#[test]
fn the_library_is_written_in_the_style() {
    for source in &library() {
        assert_eq!(&checked(source), source);
    }
}

#[test]
fn the_example_policy_keeps_its_shape() {
    let source = include_str!("../../../clash-lang/tests/language/example.star");
    assert_eq!(checked(source), source);
}

#[test]
fn untidy_source_is_formatted() {
    let source = "load('@clash//sandboxes.star', \"project\",\"git_safe\",  'git_full')\r\nwhen( {\"Bash\":{\n(\"cargo\",'rustc') : allow( sandbox=rust_full ),   # toolchain\n\n\n\n    # hooks\n'git':allow(sandbox = git_full)\n}} )\n\n\n\nx=1\ndef f(a,b=2):\n  '''Doc.'''\n\n  if a: return b   # early\n  # end\ny = 2   \n";
    insta::assert_snapshot!(checked(source), @r#"
    load("@clash//sandboxes.star", "git_full", "git_safe", "project")
    when({
        "Bash": {
            ("cargo", "rustc"): allow(sandbox = rust_full),  # toolchain

            # hooks
            "git": allow(sandbox = git_full),
        },
    })

    x = 1


    def f(a, b = 2):
        """Doc."""

        if a:
            return b  # early
        # end


    y = 2
    "#);
}

#[test]
fn policies_of_the_posts_are_formatted_readably() {
    insta::assert_snapshot!(checked(&POSTS.concat()), @r#"
    rust_full = sandbox(
        name = "rust_full",
        default = ask(),
        fs = {
            subpath("$PWD", follow_worktrees = True): allow(FULL),
            "$HOME": {
                glob(".cargo/**"): allow(),
                glob(".rustup/**"): allow(),
            },
            glob("$TMPDIR/**"): allow(),
        },
        net = allow(),
    )
    load("@clash//sandboxes.star", "project")
    load("@clash//rust.star", "rust_full")
    load("@clash//sandboxes.star", "git_full", "git_safe")
    when({
        "Bash": {
            ("cargo", "rustc", "rustup"): allow(sandbox = rust_full),
            "git": allow(sandbox = git_full),
        },
    })
    "#);
}

#[test]
fn long_brackets_break_one_item_per_line() {
    let source = format!(
        "x = f({}, k = [1, 2])\ny = (aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa + bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb)\n",
        "\"0123456789\", ".repeat(8).trim_end_matches(", ")
    );
    insta::assert_snapshot!(checked(&source), @r#"
    x = f(
        "0123456789",
        "0123456789",
        "0123456789",
        "0123456789",
        "0123456789",
        "0123456789",
        "0123456789",
        "0123456789",
        k = [1, 2],
    )
    y = (
        aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa +
        bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb
    )
    "#);
}

#[test]
fn a_comment_without_a_place_keeps_its_expression_as_written() {
    let source = "when({\n  \"a\":  # odd\n     allow( ),\n  \"b\":allow( ),\n})\nx = {  # after\n  # dangling\n}\n";
    insta::assert_snapshot!(checked(source), @r#"
    when({
        "a":  # odd
         allow( ),
        "b": allow(),
    })
    x = {  # after
        # dangling
    }
    "#);
}

#[test]
fn quotes_change_only_where_nothing_else_must() {
    insta::assert_snapshot!(checked("x = ['a', 'say \"hi\"', 'it\\'s', r'\\d', b'x', '', '''t''', f'{a}']\n"), @r#"x = ["a", 'say "hi"', "it\'s", r'\d', b'x', "", """t""", f'{a}']"#);
}

#[test]
fn one_of_everything_keeps_its_tokens() {
    checked(PROGRAM);
    for source in ["", "#", "# only\n\n\n# comments\n", "x", "x;", "x; y;  # c\n", "(1,)", "x = 1,"]
    {
        checked(source);
    }
}

/// A value that breaks because it has to, and the second time because of its comma.
#[test]
fn text_before_a_broken_value_stays_on_its_line() {
    let long = "\"a long string to make lines overflow sooner\"";
    for key in ["a", "a.b(c)", "lambda # c\n p: a", "lambda p # c\n:\n\n a"] {
        for value in [format!("({long}, {long}, 3)"), format!("f({long}, {long})[{long}]")] {
            checked(&format!("x = {{ ({key}) : {value} }}\n"));
            checked(&format!("x = ({key})({value})\n"));
        }
    }
}

proptest! {
    #[test]
    fn any_program_keeps_its_tokens_and_comments(source in program()) {
        checked(&source);
    }
}
