//! The tree: nothing lost, nothing accepted that should not be, nothing hostile
//! slow or deadly.

use proptest::prelude::*;

use crate::support::{POSTS, PROGRAM, library};
use clash_syntax::{
    ExpressionKind, LiteralValue, MAX_TREE_DEPTH, ParseError, StatementKind, SyntaxTree,
};

/// The texts of all tokens.
fn texts(file: &SyntaxTree) -> String {
    file.tokens().iter().map(|token| file.text(token.span)).collect()
}

/// The message for a source that must not parse.
fn problem(source: &str) -> String {
    SyntaxTree::parse(source).expect_err("should not parse").to_string()
}

/// The value of the first statement, which must be an expression.
fn literal(source: &str) -> Option<LiteralValue> {
    let file = SyntaxTree::parse(source).expect(source);
    match &file.statements()[0].kind {
        StatementKind::Expr(expr) => expr.literal(source),
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_byte_is_kept() {
    let library = library();
    for source in library.iter().map(String::as_str).chain(POSTS.iter().copied()).chain([
        PROGRAM,
        "",
        "#",
        "x",
        "\n\n",
        "x\r\ny\r\n",
    ]) {
        let file = SyntaxTree::parse(source).expect(source);
        assert_eq!(texts(&file), source);
    }
}

#[test]
fn literals_are_read_as_the_evaluator_reads_them() {
    let string = |s: &str| Some(LiteralValue::String(s.into()));
    assert_eq!(literal(r"'a\x41\u0042\n\q'"), string("aAB\n\\q"));
    assert_eq!(literal(r#"r'\d\''"#), string(r"\d'"));
    assert_eq!(literal("'''a\r\n\\\nb'''"), string("a\nb"));
    assert_eq!(literal(r"'\101\0'"), string("A\0"));
    assert_eq!(literal("b'a'"), None);
    assert_eq!(literal("f'a'"), None);
    assert_eq!(literal("-0x10"), Some(LiteralValue::Int(-16)));
    assert_eq!(literal("1.5e3"), Some(LiteralValue::Float(1500.0)));
    assert_eq!(literal("99999999999999999999"), None);
    assert_eq!(
        literal("[('a',), {'k': [True, None]}]"),
        Some(LiteralValue::List(vec![
            LiteralValue::Tuple(vec![LiteralValue::String("a".into())]),
            LiteralValue::Dict(vec![(
                LiteralValue::String("k".into()),
                LiteralValue::List(vec![LiteralValue::Bool(true), LiteralValue::None]),
            )]),
        ]))
    );
    assert_eq!(literal("[f(1)]"), None);
}

#[test]
fn calls_at_the_top_level_can_be_walked() {
    let source = "# rules\nprefix_rule(\n    pattern = [\"git\", [\"push\", \"fetch\"]],\n    decision = \"forbidden\",\n)\nx = f(1)\nhost(\"a\")\n";
    let file = SyntaxTree::parse(source).unwrap();
    let calls: Vec<_> = file.calls().collect();
    assert_eq!(calls.len(), 2);
    let (statement, rule) = calls[0];
    assert_eq!(rule.name(), Some("prefix_rule"));
    assert_eq!(file.position(statement.span.start), (2, 1));
    assert_eq!(rule.named("decision").and_then(|d| d.string()), Some("forbidden"));
    assert!(
        matches!(rule.named("pattern").unwrap().literal(source), Some(LiteralValue::List(l)) if l.len() == 2)
    );
    assert_eq!(calls[1].1.positional().next().and_then(|a| a.string()), Some("a"));
}

#[test]
fn operators_bind_as_in_starlark() {
    let shape = |source: &str| {
        let file = SyntaxTree::parse(source).unwrap();
        let StatementKind::Expr(expr) = &file.statements()[0].kind else { panic!() };
        let ExpressionKind::Binary { left, operator, right } = &expr.kind else {
            panic!("{expr:?}")
        };
        [left.span, *operator, right.span].map(|span| file.text(span).to_owned())
    };
    assert_eq!(shape("a + b * c"), ["a", "+", "b * c"]);
    assert_eq!(shape("a - b - c"), ["a - b", "-", "c"]);
    assert_eq!(shape("not a and b not in c"), ["not a", "and", "b not in c"]);
    assert_eq!(shape("a or b and c"), ["a", "or", "b and c"]);
    assert_eq!(shape("-a | b"), ["-a", "|", "b"]);
    assert_eq!(shape("a | b ^ c & d << e"), ["a", "|", "b ^ c & d << e"]);
}

#[test]
fn errors_have_line_and_column() {
    insta::assert_snapshot!(problem("when({\n    \"a\" deny(),\n})\n"), @"2:9: expected `:` and a value, found `deny`");
    insta::assert_snapshot!(problem("x = 'abc\n"), @"1:5: this string is not closed");
    insta::assert_snapshot!(problem("f(1\n"), @"2:1: expected `,` or `)`, found the end of the file");
    insta::assert_snapshot!(problem("if x:\npass\n"), @"2:1: expected an indented block, found `pass`");
    insta::assert_snapshot!(problem("if x:\n    a\n  b\n"), @"3:3: this line is indented like no line before it");
    insta::assert_snapshot!(problem("  x\n"), @"1:3: expected an expression, found an indented line");
    insta::assert_snapshot!(problem("import os\n"), @"1:1: `import` is reserved and cannot be used");
    insta::assert_snapshot!(problem("é = 1?"), @"1:1: unexpected character `é`");
    insta::assert_snapshot!(problem("x = 08"), @"1:5: `08` is not a number");
    insta::assert_snapshot!(problem("x = '\\xzz'"), @"1:5: this escape sequence does not stand for a character");
    insta::assert_snapshot!(problem("'a' 'b'"), @"1:5: expected the end of the line, found `'b'`");
    insta::assert_snapshot!(problem("x[]"), @"1:4: expected an index, found the end of the file");
}

#[test]
fn hostile_nesting_is_refused_at_once() {
    for (open, close) in
        [("(", ")"), ("[", "]"), ("{1:", "}"), ("f(", ")"), ("-", ""), ("not ", "")]
    {
        for source in
            [open.repeat(100_000), format!("{}1{}", open.repeat(100_000), close.repeat(100_000))]
        {
            let error = SyntaxTree::parse(&source).expect_err(open);
            assert!(matches!(error.problem, ParseError::TooDeep(_)), "{open}: {error}");
        }
    }
    for chain in [".a", "()", "[0]", " + 1", " if a else a", " and b"] {
        let error = SyntaxTree::parse(&format!("a{}", chain.repeat(100_000))).expect_err(chain);
        assert!(matches!(error.problem, ParseError::TooDeep(_)), "{chain}: {error}");
    }
    let blocks: String = (0..1000).map(|n| format!("{}if x:\n", " ".repeat(n))).collect();
    assert!(matches!(
        SyntaxTree::parse(&blocks).expect_err("deep").problem,
        ParseError::TooDeep(_)
    ));
    assert!(SyntaxTree::parse(&"f'{".repeat(100_000)).is_err());
}

#[test]
fn the_deepest_accepted_tree_can_be_walked() {
    for (open, close) in
        [("(", ")"), ("[", "]"), ("{1: ", "}"), ("when(", ")"), ("match({1: ", "})")]
    {
        let fits = (1..MAX_TREE_DEPTH).rev().find_map(|depth| {
            let source = format!("{}allow(){}", open.repeat(depth), close.repeat(depth));
            SyntaxTree::parse(&source).is_ok().then_some(source)
        });
        let source = fits.expect(open);
        clash_syntax::fmt::format(&source).unwrap();
        clash_syntax::upgrade::upgrade(&source).unwrap();
        clash_syntax::edit::set(&source, &[clash_syntax::edit::RuleKey::str("a")], "deny()")
            .unwrap();
    }
}

#[test]
fn time_grows_with_the_length_and_no_faster() {
    let line = "when({\"Bash\": {\"git\": {\"push\": deny(reason = \"no\")}}})  # note\n";
    // Of this thread on a processor: what others do does not count.
    let spent = || -> u64 {
        let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
        stat.split(' ').next().unwrap().parse().unwrap()
    };
    let cost = |lines: usize| {
        let source = line.repeat(lines);
        let started = spent();
        SyntaxTree::parse(&source).unwrap();
        clash_syntax::fmt::format(&source).unwrap();
        spent() - started
    };
    let least = |lines: usize| (0..5).map(|_| cost(lines)).min().unwrap();
    let (one, eight) = (least(500), least(4_000));
    assert!(eight < one * 40, "{one} ns for one, {eight} ns for eight");
}

proptest! {
    #[test]
    fn any_text_parses_or_is_refused_and_loses_nothing(
        source in "([a-c(){}\\[\\]:,=.+'\"#\\\\ \n\t0-9]|if |for |in |def |\"\"\"|f'|\r\n|    |é){0,60}"
    ) {
        if let Ok(file) = SyntaxTree::parse(&source) {
            prop_assert_eq!(texts(&file), source);
        }
    }
}
