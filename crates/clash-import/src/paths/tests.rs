use super::*;

const USER: SettingsBase<'_> = SettingsBase::Home(".claude");

/// The converted path of a permission rule, as [`shown`].
fn rule(text: &str, base: SettingsBase<'_>, side: RuleSide) -> String {
    shown(in_rule(text, base, side))
}

/// The key of a converted path, marked if it differs from the original; or why it was left
/// out.
fn shown(converted: Result<ConvertedPath, &'static str>) -> String {
    match converted {
        Err(why) => format!("left out: {why}"),
        Ok(it) => {
            it.pattern.key().source("") + if it.differs.is_some() { "  (differs)" } else { "" }
        }
    }
}

#[test]
fn the_start_of_a_path_says_where_it_begins() {
    let project = |text| rule(text, SettingsBase::Project, RuleSide::Allow);
    assert_eq!(project("//etc/hosts"), r#""/etc/hosts""#);
    assert_eq!(project("~/.ssh"), r#""$HOME/.ssh""#);
    assert_eq!(project("/src/main.rs"), r#""$PWD/src/main.rs""#);
    assert_eq!(project("src/main.rs"), r#""$PWD/src/main.rs""#);
    assert_eq!(rule("/src", USER, RuleSide::Allow), r#""$HOME/.claude/src""#);
    assert_eq!(
        rule("/x", SettingsBase::Directory("/etc/claude-code"), RuleSide::Allow),
        r#""/etc/claude-code/x""#
    );
    assert!(
        rule("/x", SettingsBase::Directory("relative"), RuleSide::Restrict).starts_with("left out")
    );
}

#[test]
fn a_name_alone_matches_at_any_depth() {
    let both = r#"(glob("$PWD/**/*.env"), glob("$PWD/**/*.env/**"))"#;
    assert_eq!(rule("*.env", SettingsBase::Project, RuleSide::Allow), both);
    assert_eq!(rule("*.env", SettingsBase::Project, RuleSide::Restrict), both);
    assert_eq!(rule("**/*.env", SettingsBase::Project, RuleSide::Restrict), both);
}

#[test]
fn a_dot_before_a_name_is_read_to_the_safe_side() {
    let deny = r#"(glob("$PWD/**/.env"), glob("$PWD/**/.env/**"))"#;
    assert_eq!(rule("./.env", SettingsBase::Project, RuleSide::Restrict), deny);
    assert_eq!(rule("./.env", SettingsBase::Project, RuleSide::Allow), r#""$PWD/.env""#);
}

#[test]
fn a_pattern_of_contents_leaves_the_directory_out_of_an_allow() {
    for text in ["src/**", "./src/**", "src/*", "src/**/*"] {
        assert_eq!(
            rule(text, SettingsBase::Project, RuleSide::Allow),
            r#"glob("$PWD/src/**")"#,
            "{text}"
        );
        assert_eq!(
            rule(text, SettingsBase::Project, RuleSide::Restrict),
            r#""$PWD/src""#,
            "{text}"
        );
    }
    assert_eq!(rule("**", SettingsBase::Project, RuleSide::Allow), r#"glob("$PWD/**")"#);
    assert_eq!(rule("**", SettingsBase::Project, RuleSide::Restrict), r#""$PWD""#);
    assert_eq!(rule("//**", SettingsBase::Project, RuleSide::Allow), r#"glob("/**")"#);
    assert_eq!(rule("//**", SettingsBase::Project, RuleSide::Restrict), r#""/""#);
    assert_eq!(rule("~/**", SettingsBase::Project, RuleSide::Restrict), r#""$HOME""#);
}

#[test]
fn a_parent_is_unknown_and_so_covered_everywhere() {
    let deny = r#"(glob("/**/secrets"), glob("/**/secrets/**"))  (differs)"#;
    assert_eq!(rule("../secrets/**", SettingsBase::Project, RuleSide::Restrict), deny);
    assert_eq!(rule("../**", SettingsBase::Project, RuleSide::Restrict), r#""/"  (differs)"#);
    assert!(rule("../x", SettingsBase::Project, RuleSide::Allow).starts_with("left out"));
    assert!(rule("//a/../b", SettingsBase::Project, RuleSide::Allow).starts_with("left out"));
}

#[test]
fn a_class_without_a_glob_widens_a_deny_and_drops_an_allow() {
    assert!(rule("k[0-9].pem", SettingsBase::Project, RuleSide::Allow).starts_with("left out"));
    let deny = rule("k[0-9].pem", SettingsBase::Project, RuleSide::Restrict);
    assert_eq!(deny, r#"(glob("$PWD/**/k?.pem"), glob("$PWD/**/k?.pem/**"))  (differs)"#);
    assert!(rule(r"a\*b", SettingsBase::Project, RuleSide::Restrict).contains("a?b"));
    assert_eq!(rule(r"a\ b/c", SettingsBase::Project, RuleSide::Allow), r#""$PWD/a b/c""#);
    assert!(rule("a[", SettingsBase::Project, RuleSide::Restrict).contains("a?"));
    assert!(rule("!keep", SettingsBase::Project, RuleSide::Restrict).starts_with("left out"));
}

#[test]
fn lists_of_a_sandbox_have_ordinary_paths() {
    let list = |text| shown(in_list(text, SettingsBase::Project, RuleSide::Allow));
    assert_eq!(list("/tmp/build"), r#""/tmp/build""#);
    assert_eq!(list("//tmp/build"), r#""/tmp/build""#);
    assert_eq!(list("."), r#""$PWD""#);
    assert_eq!(list(".env"), r#""$PWD/.env""#);
    assert_eq!(list("~"), r#""$HOME""#);
    assert_eq!(list("$TMPDIR/x"), r#""$TMPDIR/x""#);
    assert!(list("$SECRET/x").starts_with("left out"));
    assert_eq!(shown(in_list("cache", USER, RuleSide::Allow)), r#""$HOME/.claude/cache""#);
}

#[test]
fn a_glob_is_compared_with_a_name() {
    assert!(name_matches("*.env", ".env") && name_matches("a?c*", "abcd"));
    assert!(name_matches("*", "") && name_matches("a*b*c", "axxbxc"));
    assert!(!name_matches("*.env", "env") && !name_matches("a?c", "ac") && !name_matches("", "a"));
}
