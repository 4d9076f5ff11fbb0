use super::*;
use crate::SettingsBase;
use crate::paths::{RuleSide, in_list};

fn path(text: &str) -> ImportedPath {
    in_list(text, SettingsBase::Project, RuleSide::Restrict).unwrap().pattern
}

/// The write rules that come of these lists, one per line.
fn resolved(allow: &[&str], deny: &[&str]) -> String {
    let mut rights = PathRights::default();
    for text in allow {
        rights.allow(path(text), EntryOrigin::new("a", *text));
    }
    for text in deny {
        rights.deny(path(text), true, EntryOrigin::new("d", *text));
    }
    let (rules, lost) = rights.resolve().unwrap();
    let rules = rules.iter().map(|(p, e, _)| format!("{} {}", e.word(), p.text()));
    let lost = lost.iter().map(|origin| format!("lost {}", origin.what));
    rules.chain(lost).collect::<Vec<_>>().join(", ")
}

#[test]
fn a_deny_inside_an_allow_is_longer_anyway() {
    assert_eq!(resolved(&["/a"], &["/a/b"]), "allow /a, deny /a/b");
}

#[test]
fn an_allow_inside_a_deny_goes() {
    assert_eq!(resolved(&["/a/b"], &["/a"]), "deny /a, lost /a/b");
    assert_eq!(resolved(&["."], &["~"]), "deny $HOME, lost .");
    assert_eq!(
        resolved(&["/p/secrets/x"], &["/p/**/secrets"]),
        "deny /p/**/secrets, lost /p/secrets/x"
    );
}

#[test]
fn a_deny_with_a_wildcard_is_repeated_below_a_longer_allow() {
    assert_eq!(
        resolved(&["./src"], &["**/.env"]),
        "allow $PWD/src, deny $PWD/src/**/.env, deny $PWD/**/.env"
    );
    assert_eq!(
        resolved(&["."], &["~/**/.env"]),
        "allow $PWD, deny $PWD/**/.env, deny $HOME/**/.env"
    );
    assert_eq!(resolved(&["/a/xy"], &["/a/x*/k"]), "allow /a/xy, deny /a/xy/k, deny /a/x*/k");
    assert_eq!(resolved(&["/a/yy"], &["/a/x*/k"]), "allow /a/yy, deny /a/x*/k");
}

#[test]
fn an_allow_with_a_wildcard_that_meets_a_deny_goes() {
    assert_eq!(resolved(&["/a/*/b"], &["/a/**/k"]), "deny /a/**/k, lost /a/*/b");
}

#[test]
fn thousands_of_lists_across_one_another_are_refused() {
    let mut rights = PathRights::default();
    for at in 0..200 {
        rights.allow(path(&format!("/a{at}")), EntryOrigin::new("a", ""));
        rights.deny(path(&format!("/**/k{at}")), true, EntryOrigin::new("d", ""));
    }
    assert!(matches!(rights.resolve(), Err(ImportError::TooMany { .. })));
}
