//! Sources, a generator of programs, and the view of a program that formatting must
//! not change.

use proptest::prelude::*;

use clash_syntax::{ExpressionKind, SourceStatement, StatementKind, SyntaxTree, TokenKind};

/// The standard library of policies.
pub(crate) fn library() -> Vec<String> {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../clash-lang/std");
    let files = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let sources: Vec<String> = files
        .filter(|path| path.extension().is_some_and(|extension| extension == "star"))
        .map(|path| std::fs::read_to_string(path).unwrap())
        .collect();
    assert!(!sources.is_empty());
    sources
}

/// The policies in the articles about clash, as printed there.
pub(crate) const POSTS: &[&str] = &[
    include_str!("../../../clash-lang/tests/language/published_sandbox.star"),
    r#"load("@clash//sandboxes.star", "project")
load("@clash//rust.star", "rust_full")
load("@clash//sandboxes.star", "git_safe", "git_full")
when({"Bash": {
("cargo", "rustc", "rustup"): allow(sandbox = rust_full),
"git": allow(sandbox = git_full),
}})
"#,
];

/// One of everything.
pub(crate) const PROGRAM: &str = r#"# leading

"""Doc."""
load('@clash//std.star', "b", c = 'a')  # why
x = 1; y = 0x1F + 0o17 + 0b1 - 1.5e-3;
x += -y if not x in [1, 2] or y not in (3,) else ~x << 2 | 1 ^ 3 & 4
a, b = b, a
(c, d) = [1, 2]
e = x[1] + x[1:2] + x[::2] + x[:] + x.y.z(1, *a, k = 2, **b)
f = lambda p, q = 2, *r, **s: p // q % 3
g = [i for i in range(3) if i > 1 for j in i]
h = {k: v for k, v in d.items()}
s = 'a\x41\u0042' + r'\d"' + b"\xff" + rb'\x' + f"{x["a"]} {{}} {f'{y}'}" + """t
  "quoted" """ + '''u''' + ""

def fn(
        a,  # first
        b = 2,
        *args,
        **kwargs):
    """Doc."""
    if a: return 1
    elif b:
        pass
    # before else
    else:
        for i, j in a, b:
            continue
            break
        # end of for
    # end of def
    return
if x:
    pass
t = (
    1 +  # one
    2 \
    + 3
)
"#;

/// The tokens of a program, without what a formatter may change: line ends, indentation,
/// comments, trailing commas, the quotes of strings, and the order of the names in a `load`.
pub(crate) fn tokens(source: &str) -> Vec<String> {
    let file = SyntaxTree::parse(source).unwrap_or_else(|error| panic!("{error}\n{source}"));
    let mut singles = Vec::new();
    let mut loads = Vec::new();
    walk(file.statements(), &mut singles, &mut loads);
    let seen: Vec<_> = file.tokens().iter().filter(|token| is_seen(token.kind)).collect();
    let mut result = Vec::new();
    for (at, token) in seen.iter().enumerate() {
        let text = file.text(token.span);
        if let Some((_, symbols)) = loads.iter().find(|(span, _)| span.contains(token.span)) {
            if symbols.0 == token.span.start {
                result.extend(symbols.1.clone());
            }
            continue;
        }
        let closes = seen.get(at + 1).map(|next| (file.text(next.span), next.span.end));
        if text == ","
            && closes.is_some_and(|(c, end)| ")]}".contains(c) && !singles.contains(&end))
        {
            continue;
        }
        result.push(match token.kind {
            TokenKind::String => string(text),
            _ => text.to_owned(),
        });
    }
    result
}

/// True for tokens that the formatter may not change: not spaces, comments and line ends.
fn is_seen(kind: TokenKind) -> bool {
    use TokenKind::{Dedent, Indent, Newline};
    !kind.is_trivia() && !matches!(kind, Newline | Indent | Dedent)
}

/// The value of a string literal in debug form; other texts stay.
fn string(text: &str) -> String {
    let file = SyntaxTree::parse(text).unwrap();
    match &file.statements()[0].kind {
        StatementKind::Expr(expr) => {
            expr.string().map_or_else(|| text.to_owned(), |value| format!("{value:?}"))
        }
        _ => text.to_owned(),
    }
}

type Loads = Vec<(clash_syntax::ByteSpan, (usize, Vec<String>))>;

/// Collects the ends of one-element tuples, whose comma matters, and the names of each
/// `load()`.
fn walk(statements: &[SourceStatement], singles: &mut Vec<usize>, loads: &mut Loads) {
    for statement in statements {
        match &statement.kind {
            StatementKind::Expr(expr) | StatementKind::Return(Some(expr)) => {
                singles_in(expr, singles);
            }
            StatementKind::Assign { target, value, .. } => {
                singles_in(target, singles);
                singles_in(value, singles);
            }
            StatementKind::Load(load) => {
                let mut names: Vec<_> = load
                    .symbols
                    .iter()
                    .map(|s| format!("{:?}={:?}", s.bound(), s.name.string()))
                    .collect();
                names.sort();
                names.insert(0, format!("load {:?}", load.path()));
                loads.push((statement.span, (statement.span.start, names)));
            }
            StatementKind::Def { params, body, .. } => {
                for default in params.iter().filter_map(|p| p.default.as_ref()) {
                    singles_in(default, singles);
                }
                walk(body, singles, loads);
            }
            StatementKind::For { target, iterable, body } => {
                singles_in(target, singles);
                singles_in(iterable, singles);
                walk(body, singles, loads);
            }
            StatementKind::If(branches) => {
                for branch in branches {
                    branch.condition.iter().for_each(|c| singles_in(c, singles));
                    walk(&branch.body, singles, loads);
                }
            }
            _ => {}
        }
    }
}

/// Adds the ends of one-element tuples in an expression.
fn singles_in(expr: &clash_syntax::Expression, singles: &mut Vec<usize>) {
    if matches!(&expr.kind, ExpressionKind::Tuple(items, Some(_)) if items.len() == 1) {
        singles.push(expr.span.end);
    }
    expr.children().into_iter().for_each(|child| singles_in(child, singles));
}

/// The comments of a program, in order.
pub(crate) fn comments(source: &str) -> Vec<String> {
    let file = SyntaxTree::parse(source).expect("parses");
    let comments = file.tokens().iter().filter(|token| token.kind == TokenKind::Comment);
    comments.map(|token| file.text(token.span).trim_end().to_owned()).collect()
}

/// The words of a random expression.
fn expression() -> impl Strategy<Value = Vec<String>> {
    let leaf = prop::sample::select(vec![
        "a",
        "bb",
        "None",
        "1",
        "0x2",
        "1.5",
        "'s'",
        "\"d\"",
        "'q\"'",
        "r'\\w'",
        "b'y'",
        "f'{a}'",
        "'''t\n  t'''",
        "\"a long string to make lines overflow sooner\"",
    ])
    .prop_map(|word| vec![word.to_owned()]);
    leaf.prop_recursive(4, 40, 5, |inner| {
        let items = prop::collection::vec(inner.clone(), 0..5);
        let pair = (inner.clone(), inner.clone());
        prop_oneof![
            (items.clone(), any::<bool>()).prop_map(|(i, c)| bracketed("[", i, "]", c)),
            (items.clone(), any::<bool>()).prop_map(|(i, c)| bracketed("(", i, ")", c)),
            (prop::collection::vec(pair.clone(), 0..4), any::<bool>()).prop_map(
                |(pairs, comma)| {
                    let entries =
                        pairs.into_iter().map(|(k, v)| join([k, words(":"), v])).collect();
                    bracketed("{", entries, "}", comma)
                }
            ),
            (items, any::<bool>(), any::<bool>()).prop_map(|(items, named, comma)| {
                let args = items.into_iter().enumerate().map(|(at, item)| match named && at > 0 {
                    true => join([vec![format!("k{at}"), "=".to_owned()], item]),
                    false => item,
                });
                join([words("call"), bracketed("(", args.collect(), ")", comma)])
            }),
            (pair.clone(), prop::sample::select(vec!["+", "-", "and", "or", "==", "not in", "|"]))
                .prop_map(|((l, r), op)| join([words("("), l, words(op), r, words(")")])),
            (pair.clone(), inner.clone()).prop_map(|((a, b), c)| {
                join([words("( "), a, words("if"), b, words("else"), c, words(")")])
            }),
            pair.clone().prop_map(|(a, b)| {
                join([words("["), a, words("for x in ("), b, words(") if y ]")])
            }),
            inner.clone().prop_map(|a| join([words("x ["), a, words("]")])),
            inner.clone().prop_map(|a| join([words("x . y ( ) [ :"), a, words("]")])),
            inner.clone().prop_map(|a| join([words("( lambda p , q = 1 :"), a, words(")")])),
            inner.prop_map(|a| join([words("( not"), a, words(")")])),
        ]
    })
}

/// The tokens of a text that has a space between each two.
fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

/// The tokens of all parts in order.
fn join<const N: usize>(parts: [Vec<String>; N]) -> Vec<String> {
    parts.concat()
}

/// Items between brackets with commas; `comma` adds one behind the last.
fn bracketed(open: &str, items: Vec<Vec<String>>, close: &str, comma: bool) -> Vec<String> {
    let mut result = words(open);
    let count = items.len();
    for (at, item) in items.into_iter().enumerate() {
        result.extend(item);
        if at + 1 < count || comma {
            result.extend(words(","));
        }
    }
    result.extend(words(close));
    result
}

/// Source text of a program with spaces, line ends and comments in odd places.
pub(crate) fn program() -> impl Strategy<Value = String> {
    let statement = (expression(), 0..9u8, prop::collection::vec(any::<u8>(), 1..40));
    prop::collection::vec(statement, 1..6).prop_map(|statements| {
        let mut source = String::new();
        let mut count = 0;
        for (expr, kind, noise) in statements {
            let text = noisy(&expr, &noise, &mut count);
            source.push_str(&match kind {
                0 => format!("x = {text}\n"),
                1 => format!("\n\n\n# before\nx, y = {text}; z\n"),
                2 => format!("if {text}:  # head\n\n  pass\n  # end\nelse: y = 1;\n"),
                3 => format!("def f(a, b = {text}, *c):\n   # in\n   return b\n"),
                4 => format!("for i in {text}: pass  # after\n"),
                5 => format!("load('m', 'b', c = \"d\", \"a\")\n\n\n{text}  # last\n"),
                6 => format!("# one\n\n# two\ndef g():\n      if x:\n        y\n      # three\n  # four\n# five\n{text}\n"),
                _ => format!("{text}\n"),
            });
        }
        source
    })
}

/// The words with spaces, and inside brackets also with comments and line ends.
fn noisy(words: &[String], noise: &[u8], count: &mut usize) -> String {
    let mut text = String::new();
    let mut depth = 0;
    for (at, word) in words.iter().enumerate() {
        let byte = noise[at % noise.len()];
        if at > 0 {
            *count += 1;
            match (depth, byte % 16) {
                (0, _) => text.push(' '),
                (_, 0) => text.push_str(&format!(" # c{count} \n ")),
                (_, 1) => text.push_str(&format!("\n\n    # o{count}\n")),
                (_, 2 | 3) => text.push('\n'),
                (_, 4) => text.push_str("\r\n\n\n  "),
                _ => text.push(' '),
            }
        }
        match word.as_str() {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth -= 1,
            _ => {}
        }
        text.push_str(word);
    }
    text
}
