use super::*;

fn path(keys: &CommandKeys) -> String {
    let words: Vec<String> = keys.path.iter().map(|key| key.source("")).collect();
    words.join(" > ") + if keys.differs.is_some() { "  (differs)" } else { "" }
}

fn allow(text: &str) -> String {
    allowed(&read(text)).map_or_else(|why| format!("left out: {why}"), |keys| path(&keys))
}

fn deny(text: &str) -> String {
    path(&restricted(&read(text)))
}

#[test]
fn an_allow_and_a_deny_of_a_prefix_are_the_same_words() {
    for text in ["git push:*", "git push *"] {
        assert_eq!(allow(text), r#""git" > "push""#);
        assert_eq!(deny(text), r#""git" > "push""#);
    }
    assert_eq!(allow("ls*"), r#"glob("ls*")"#);
    assert_eq!(deny("ls*"), r#"glob("ls*")"#);
    assert_eq!(allow("npm run test*"), r#""npm" > "run" > glob("test*")"#);
    assert_eq!(allow("*"), "");
    assert_eq!(deny("*"), "");
}

#[test]
fn an_exact_allow_ends_and_an_exact_deny_goes_on() {
    assert_eq!(allow("npm run test"), r#""npm" > "run" > "test" > end()"#);
    assert_eq!(deny("npm run test"), r#""npm" > "run" > "test"  (differs)"#);
    assert_eq!(allow("npm test --silent"), r#""npm" > "test" > "--silent" > end()"#);
}

#[test]
fn a_middle_star_is_one_word_in_an_allow_and_all_in_a_deny() {
    assert_eq!(allow("git * main"), r#""git" > glob("?*") > "main" > end()  (differs)"#);
    assert_eq!(deny("git * main"), r#""git"  (differs)"#);
    assert_eq!(allow("npm run te*t"), r#""npm" > "run" > glob("te*t") > end()  (differs)"#);
    assert_eq!(deny("npm run te*t"), r#""npm" > "run" > glob("te*")  (differs)"#);
}

#[test]
fn a_deny_behind_a_gap_keeps_to_the_option_if_there_is_one() {
    assert_eq!(deny("git push * --force"), r#""git" > "push" > "--force"  (differs)"#);
    assert_eq!(deny("* --no-verify *"), r#"glob("?*") > "--no-verify"  (differs)"#);
    assert_eq!(deny("git push *--force*"), r#""git" > "push"  (differs)"#);
    assert_eq!(deny("*sudo*"), "  (differs)");
}

#[test]
fn words_behind_an_option_may_be_its_value() {
    assert!(allow("python -m pytest:*").starts_with("left out"));
    assert_eq!(deny("rm -rf /"), r#""rm" > "-rf"  (differs)"#);
    assert_eq!(deny("git push --force origin main"), r#""git" > "push" > "--force"  (differs)"#);
}

#[test]
fn quoting_makes_one_word() {
    assert_eq!(allow(r#"echo "a b":*"#), r#""echo" > regex("a b")"#);
    assert_eq!(allow(r"echo 'it''s' x:*"), r#""echo" > "its" > "x""#);
    assert_eq!(allow(r#"echo "unclosed:*"#).split(':').next(), Some("left out"));
    assert_eq!(allow(r"echo a\ b:*"), r#""echo" > regex("a b")"#);
    assert_eq!(allow(r#"echo "a.b[c]":*"#), r#""echo" > regex("a\\.b\\[c\\]")"#);
}

#[test]
fn syntax_of_the_shell_is_no_word() {
    for text in [
        "echo $HOME",
        "cd x && make:*",
        "cat < f",
        "a; b",
        "ls ~/x",
        "(ls)",
        "ls ?",
        "FOO=1 make:*",
    ] {
        assert!(allow(text).starts_with("left out"), "{text}: {}", allow(text));
    }
    assert_eq!(deny("cat < f"), r#""cat"  (differs)"#);
    assert_eq!(deny("FOO=1 rm:*"), r#""rm"  (differs)"#);
    assert_eq!(deny("$EVIL:*"), "  (differs)");
}

#[test]
fn a_program_by_its_path_is_denied_by_its_name_too() {
    assert_eq!(deny("/usr/bin/curl:*"), r#"("/usr/bin/curl", "curl")"#);
    assert_eq!(allow("./gradlew:*"), r#""./gradlew""#);
    assert_eq!(deny("./scripts/d*"), "  (differs)");
}

#[test]
fn a_pattern_of_a_thousand_words_is_cut() {
    let text = "a ".repeat(1000) + ":*";
    assert!(allow(&text).starts_with("left out"));
    assert_eq!(restricted(&read(&text)).path.len(), MAX_PATTERN_WORDS);
}
