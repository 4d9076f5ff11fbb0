//! Rules that may or may not apply: the shell decides some words only when it runs.

use super::*;

/// The shell decides if the rule of the session matches. If it does not, the deny of
/// the user holds.
#[test]
fn a_rule_that_may_not_apply_lifts_nothing() {
    let bash = |kind, words: &[&str], effect| {
        layer(kind, bash_tree(vec![leaf(KeySubject::Word, words, effect, None)]))
    };
    let session = || bash(LayerKind::Session, &["make"], Effect::Ask);
    let user = bash(LayerKind::User, &["**"], Effect::Deny);
    let effect = |layers: &[Layer], script: &str| {
        run(layers, &Action::script("claude", "default", script)).effect
    };
    let layers = [session(), user, built_in()];
    assert_eq!(effect(&layers, "make"), Effect::Ask);
    assert_eq!(effect(&layers, "$X"), Effect::Deny);
    let mut denying = built_in();
    denying.settings.default = Some(rule(Effect::Deny, None));
    assert_eq!(effect(&[session(), denying], "$X"), Effect::Deny);
}

#[test]
fn bundled_and_abbreviated_options_match_partial_words() {
    let push = vec![
        leaf(KeySubject::Option, &["-f", "--force-with-lease"], Effect::Deny, None),
        leaf(KeySubject::Word, &["**"], Effect::Allow, None),
    ];
    let layers = user(bash_tree(vec![tree(
        KeySubject::Word,
        &["git"],
        vec![tree(KeySubject::Word, &["push"], push)],
    )]));
    assert_eq!(bash(&layers, r#"git push "-u$X""#).0, Effect::Deny);
    assert_eq!(bash(&layers, r#"git push "--force-w=$X""#).0, Effect::Deny);
    assert_eq!(bash(&layers, r#"git push "--force-w$X""#).0, Effect::Deny);
    assert_eq!(bash(&layers, r#"git push "--dry$X""#).0, Effect::Allow);
}

/// Each option may or may not take the word behind it, so there are too many readings
/// to try.
#[test]
fn a_command_with_very_many_readings_is_refused_in_time() {
    let mut below = leaf(KeySubject::Word, &["z*"], Effect::Deny, None);
    for _ in 0..12 {
        below = tree(KeySubject::Word, &["?*"], vec![below]);
    }
    let layers = user(bash_tree(vec![below]));
    let bytes = encode(&layers, &[], 0);
    let script = format!("x{}", " -o v".repeat(30));
    let places = PolicyPlaces::imagined();
    let context = JudgeContext::without_disk(&places);
    let action = Action::script("claude", "default", &script);
    let decided = decide(IrImage::open(&bytes, 0).unwrap(), &action, &context);
    assert_eq!(decided.err(), Some(DecideError::TooManyReadings));
}

/// Behind more options than the look-ahead, any word may come next.
#[test]
fn no_number_of_options_hides_a_word() {
    let push = || {
        vec![tree(
            KeySubject::Word,
            &["push"],
            vec![leaf(KeySubject::Word, &["x"], Effect::Deny, None)],
        )]
    };
    let layers = user(bash_tree(vec![tree(KeySubject::Word, &["tool"], push())]));
    for options in [1, 20, 31, 32, 33, 34, 100] {
        let script = format!("tool{} push x", " -o v".repeat(options));
        assert_eq!(bash(&layers, &script).0, Effect::Deny, "{options}");
    }
}

/// The unknown word may be an option, and then the word behind it is the next key.
#[test]
fn an_unknown_quoted_word_may_be_an_option() {
    let push = vec![tree(
        KeySubject::Word,
        &["push"],
        vec![leaf(KeySubject::Word, &["x"], Effect::Deny, None)],
    )];
    let layers = user(bash_tree(vec![tree(KeySubject::Word, &["git"], push)]));
    assert_eq!(bash(&layers, r#"git "$X" push x"#).0, Effect::Deny);
    assert_eq!(bash(&layers, r#"git "--no$X" push x"#).0, Effect::Deny);
}

/// An unknown word behind an option may be its value.
#[test]
fn the_word_behind_an_options_value_counts() {
    let below = vec![
        leaf(KeySubject::Word, &["delete"], Effect::Deny, None),
        leaf(KeySubject::Word, &["**"], Effect::Allow, None),
    ];
    let layers = user(bash_tree(vec![tree(KeySubject::Word, &["tool"], below)]));
    for value in [r#""p$X" delete"#, r#""p$X" *"#, "~/x delete", r#""$X" delete"#] {
        let script = format!("tool --opt {value}");
        assert_eq!(bash(&layers, &script).0, Effect::Deny, "{script}");
    }
    assert_eq!(bash(&layers, r#"tool "p$X" delete"#).0, Effect::Allow);
}

/// An unknown word may become many words, and the command may end with them.
#[test]
fn a_command_may_end_behind_an_unknown_word() {
    let end = vec![
        tree(KeySubject::Word, &["b"], vec![leaf(KeySubject::End, &[""], Effect::Deny, None)]),
        leaf(KeySubject::Word, &["**"], Effect::Allow, None),
    ];
    let layers = user(bash_tree(vec![tree(KeySubject::Word, &["tool"], end)]));
    assert_eq!(bash(&layers, "$X --opt b").0, Effect::Deny);
    assert_eq!(bash(&layers, "tool b c").0, Effect::Allow);
}
