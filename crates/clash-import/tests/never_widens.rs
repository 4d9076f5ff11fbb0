//! What the other tool decides against what the imported text says, on actions
//! made by chance. The text is read by the small evaluator below, which takes
//! the language by its specification and every open question to the side that
//! makes the test harder: an allow matches all it could, a deny only what it
//! must.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::string_slice,
    reason = "a test fails by panicking"
)]

use std::collections::BTreeSet;

use clash_import::{ImportFormat, ImportSource, SettingsBase, import_as};
use clash_oracle::{self as oracle, Dice, OracleAction, OraclePlaces};
use clash_policy::Effect;
use clash_syntax::{Expression, ExpressionKind, SyntaxTree};

const PLACES: OraclePlaces<'_> =
    OraclePlaces { project: "/home/u/proj", home: "/home/u", settings: "/home/u/proj" };

/// The text of an import, parsed.
fn imported(format: ImportFormat, text: &str) -> SyntaxTree {
    let source = ImportSource { name: "f", bytes: text.as_bytes(), base: SettingsBase::Project };
    let imported = import_as(format, &source).unwrap();
    SyntaxTree::parse(&imported.source).unwrap_or_else(|e| panic!("{e}\n{}", imported.source))
}

/// The strictest of the policies that match; nothing matching is an ask.
fn decide(file: &SyntaxTree, action: &OracleAction) -> Effect {
    let mut found = Vec::new();
    for (_, call) in file.calls().filter(|(_, call)| call.name() == Some("policy")) {
        let [name, tree] = call.positional().collect::<Vec<_>>()[..] else { panic!() };
        let effect = match name.string() {
            Some("imported denies") => Effect::Deny,
            Some("imported asks") => Effect::Ask,
            _ => Effect::Allow,
        };
        if tool(tree, action, effect == Effect::Allow) {
            found.push(effect);
        }
    }
    found.into_iter().max().unwrap_or(Effect::Ask)
}

/// The keys of a tuple, or the key itself.
fn alternatives(key: &Expression) -> Vec<&Expression> {
    match &key.kind {
        ExpressionKind::Tuple(keys, _) => keys.iter().collect(),
        _ => vec![key],
    }
}

/// The entries of a dict, one for each alternative of a key.
fn entries(tree: &Expression) -> Vec<(&Expression, &Expression)> {
    let ExpressionKind::Dict(entries, _) = &tree.kind else { panic!("not a dict") };
    let each = entries.iter().flat_map(|e| alternatives(&e.key).into_iter().map(|k| (k, &e.value)));
    each.collect()
}

/// The key's kind and text: a plain string has no kind.
fn key(expr: &Expression) -> (&str, &str) {
    match (expr.string(), expr.call()) {
        (Some(text), _) => ("", text),
        (None, Some(call)) => {
            let text = call.positional().next().and_then(|e| e.string()).unwrap_or_default();
            (call.name().unwrap(), text)
        }
        _ => panic!("not a key"),
    }
}

/// True for a call, which is an effect.
fn is_leaf(value: &Expression) -> bool {
    value.call().is_some()
}

/// Whether some path of keys matches the action. `wide` takes every doubt as a match.
fn tool(tree: &Expression, action: &OracleAction, wide: bool) -> bool {
    let name = match action {
        OracleAction::Command(_) => "Bash",
        OracleAction::Read(_) => "Read",
        OracleAction::Edit(_) => "Edit",
        OracleAction::Fetch(_) => "WebFetch",
        OracleAction::Tool(name) => name,
    };
    entries(tree).into_iter().any(|(k, value)| {
        let matches = match key(k) {
            ("", text) => text == name,
            ("glob", text) => glob(text, name),
            other => panic!("{other:?}"),
        };
        matches
            && (is_leaf(value)
                || match action {
                    OracleAction::Command(words) => {
                        command(value, words, 0, &mut BTreeSet::new(), wide)
                    }
                    OracleAction::Read(path) | OracleAction::Edit(path) => {
                        entries(value).into_iter().any(|(k, _)| path_key(key(k), path))
                    }
                    OracleAction::Fetch(host) => {
                        entries(value).into_iter().any(|(k, _)| host_key(key(k), host))
                    }
                    OracleAction::Tool(_) => panic!("nothing is below a tool"),
                })
    })
}

/// True if a glob matches a whole text of ASCII characters.
fn glob(pattern: &str, text: &str) -> bool {
    match pattern.chars().next() {
        None => text.is_empty(),
        Some('*') => (0..=text.len()).any(|at| glob(&pattern[1..], &text[at..])),
        Some(c) => {
            text.starts_with(|t| c == '?' || t == c) && glob(&pattern[c.len_utf8()..], &text[1..])
        }
    }
}

/// True if a key matches an absolute path; a plain string also matches everything below.
fn path_key((kind, text): (&str, &str), path: &str) -> bool {
    let text = text.replace("$PWD", PLACES.project).replace("$HOME", PLACES.home);
    let parts = |text: &str| -> Vec<String> {
        text.split('/').filter(|p| !p.is_empty()).map(str::to_owned).collect()
    };
    let (wanted, names) = (parts(&text), parts(path));
    match kind {
        "" => names.starts_with(&wanted),
        "glob" => deep(&wanted, &names),
        other => panic!("{other}"),
    }
}

/// True if a path glob matches these names; `**` is any number of directories.
fn deep(wanted: &[String], names: &[String]) -> bool {
    match (wanted, names) {
        ([], []) => true,
        ([last], _) if last == "**" => !names.is_empty(),
        ([first, rest @ ..], _) if first == "**" => {
            (0..=names.len()).any(|at| deep(rest, &names[at..]))
        }
        ([w, wanted @ ..], [n, names @ ..]) => glob(w, n) && deep(wanted, names),
        _ => false,
    }
}

/// True if a key matches a host; a plain string also matches its subdomains.
fn host_key((kind, text): (&str, &str), host: &str) -> bool {
    match (kind, text.strip_prefix("*.")) {
        ("exact", _) => host == text,
        ("", Some(above)) => host.ends_with(&format!(".{above}")),
        ("", None) => host == text || host.ends_with(&format!(".{text}")),
        other => panic!("{other:?}"),
    }
}

/// Whether some path of keys below `tree` matches from the word `at` on.
fn command(
    tree: &Expression,
    words: &[String],
    at: usize,
    used: &mut BTreeSet<usize>,
    wide: bool,
) -> bool {
    entries(tree).into_iter().any(|(k, value)| {
        let (kind, text) = key(k);
        if kind == "end" {
            return used.len() == words.len();
        }
        let is = |word: &str| match kind {
            "" => word == text,
            "glob" => glob(text, word),
            other => panic!("{other}"),
        };
        let mut go = |index: usize, next: usize| {
            let fresh = used.insert(index);
            let found = is_leaf(value) || command(value, words, next, used, wide);
            if fresh {
                used.remove(&index);
            }
            found
        };
        if kind.is_empty() && text.starts_with('-') {
            let found = |(_, word): &(usize, &String)| {
                *word == text || (wide && text.len() == 2 && bundles(word, text))
            };
            return words.iter().enumerate().skip(at).filter(found).any(|(i, _)| go(i, at));
        }
        // The next word behind options, each of which may take a value.
        let mut index = at;
        while let Some(word) = words.get(index) {
            if !(index > 0 && word.starts_with('-')) {
                if is(word) && go(index, index + 1) {
                    return true;
                }
                let value_of_option = index > at && words[index - 1].starts_with('-');
                if !(wide && value_of_option) {
                    return false;
                }
            }
            index += 1;
        }
        false
    })
}

/// True if a word of short options contains this one, for example `-rf` and `-f`.
fn bundles(word: &str, option: &str) -> bool {
    word.starts_with('-') && !word.starts_with("--") && word.contains(&option[1..])
}

#[test]
fn an_import_of_claude_settings_never_widens() {
    let (mut allowed, mut restricted) = (0, 0);
    for seed in 0..3000 {
        let mut dice = Dice::new(seed);
        let claude = dice.claude_lists();
        let file = imported(ImportFormat::Claude, &claude.settings());
        for _ in 0..30 {
            let action = dice.action(&PLACES);
            let (theirs, ours) = (claude.decide(&action, &PLACES), decide(&file, &action));
            allowed += usize::from(ours == Effect::Allow);
            restricted += usize::from(theirs == Some(Effect::Deny));
            // No rule of theirs, and an allow of ours: the same words in another order.
            let same = ours >= theirs.unwrap_or(Effect::Ask)
                || (theirs.is_none() && allows_respelled(&claude, &action));
            assert!(
                same,
                "{action:?}: theirs {theirs:?}, ours {ours:?}\n{claude:?}\n{}",
                file.source()
            );
        }
    }
    // A comparison in which hardly anything matches would prove nothing.
    assert!(allowed > 1000 && restricted > 1000, "{allowed} {restricted}");
}

/// Whether the lists allow the command with its options in another place.
fn allows_respelled(claude: &oracle::ClaudeLists, action: &OracleAction) -> bool {
    let OracleAction::Command(words) = action else { return false };
    let respelled = oracle::respellings(words).into_iter().map(OracleAction::Command);
    respelled.into_iter().any(|a| claude.decide(&a, &PLACES) == Some(Effect::Allow))
}

#[test]
fn an_import_of_codex_rules_never_widens() {
    let mut allowed = 0;
    for seed in 0..3000 {
        let mut dice = Dice::new(seed);
        let rules = dice.prefix_rules();
        let file = imported(ImportFormat::CodexRules, &oracle::codex_rules(&rules));
        for _ in 0..30 {
            let words = dice.words(5);
            let theirs = oracle::decide_codex(&rules, &words);
            let ours = decide(&file, &OracleAction::Command(words.clone()));
            allowed += usize::from(ours == Effect::Allow);
            let respelled = || {
                let allows: Vec<_> =
                    rules.iter().filter(|r| r.decision == Effect::Allow).cloned().collect();
                oracle::respellings(&words)
                    .iter()
                    .any(|w| oracle::decide_codex(&allows, w).is_some())
            };
            let same = ours >= theirs.unwrap_or(Effect::Ask) || (theirs.is_none() && respelled());
            assert!(same, "{words:?}: theirs {theirs:?}, ours {ours:?}\n{}", file.source());
        }
    }
    assert!(allowed > 1000, "{allowed}");
}
