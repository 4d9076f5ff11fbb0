use super::*;
use proptest::prelude::*;

const FORMATS: [ImportFormat; 4] =
    [ImportFormat::Claude, ImportFormat::Srt, ImportFormat::CodexRules, ImportFormat::CodexConfig];

/// The policy that becomes of a file, or the error as text.
pub(crate) fn text_of(format: ImportFormat, content: &str) -> String {
    let source =
        ImportSource { name: "file", bytes: content.as_bytes(), base: SettingsBase::Project };
    match import_as(format, &source) {
        Ok(imported) => imported.source,
        Err(error) => format!("error: {error}"),
    }
}

#[test]
fn a_format_is_known_by_its_content() {
    let known = |name: &str, text: &str| detect(name, text.as_bytes());
    assert_eq!(known("x", r#"{"permissions": {}}"#), Some(ImportFormat::Claude));
    assert_eq!(known("x", r#"{"network": {}, "filesystem": {}}"#), Some(ImportFormat::Srt));
    assert_eq!(known("x", "prefix_rule(pattern = [\"ls\"])"), Some(ImportFormat::CodexRules));
    assert_eq!(known("x", "sandbox_mode = \"read-only\""), Some(ImportFormat::CodexConfig));
    assert_eq!(known("/a/settings.json", "{}"), Some(ImportFormat::Claude));
    assert_eq!(known("/a/empty.rules", ""), Some(ImportFormat::CodexRules));
    assert_eq!(known("x", "{}"), None);
    assert_eq!(known("x", "[1, 2]"), None);
    assert_eq!(known("policy.star", "when({})"), None);
}

#[test]
fn a_text_of_no_known_format_is_an_error() {
    let error = |bytes: &[u8]| {
        let source = ImportSource { name: "x", bytes, base: SettingsBase::Project };
        import(&source).unwrap_err().to_string()
    };
    assert_eq!(error(b"hello"), "`x` has no format that clash can import");
    assert_eq!(error(b"{\"permissions\": \xff}"), "the file is not UTF-8 text");
    assert_eq!(error(&vec![b' '; MAX_SETTINGS_BYTES + 1]), "the file is larger than 1048576 bytes");
}

#[test]
fn restrictions_that_are_missing_come_first() {
    let text = r#"{"permissions": {"allow": ["Bash($X)"], "deny": ["what?"]}}"#;
    let source = ImportSource { name: "x", bytes: text.as_bytes(), base: SettingsBase::Project };
    let imported = import(&source).unwrap();
    let effects: Vec<_> = imported.not_expressed.iter().map(|entry| entry.effect).collect();
    assert_eq!(effects, [Some(Effect::Deny), Some(Effect::Allow)]);
    assert!(imported.not_expressed[0].restricts());
    let head = imported.source.lines().nth(2).unwrap();
    assert!(head.contains("NOT ENFORCED"), "{head}");
}

/// Text made of what could break out of a literal, a comment or a line.
fn hostile() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just("\"".to_owned()),
        Just("\n".to_owned()),
        Just("\\".to_owned()),
        Just("\"\"\"".to_owned()),
        Just("\0".to_owned()),
        Just("\r".to_owned()),
        Just("#".to_owned()),
        Just("..".to_owned()),
        Just("/".to_owned()),
        Just("*".to_owned()),
        Just(" ".to_owned()),
        Just("-x".to_owned()),
        Just("[".to_owned()),
        Just("$PWD".to_owned()),
        Just("~".to_owned()),
        Just("')".to_owned()),
        Just(":*".to_owned()),
        Just("})\nallow()".to_owned()),
        Just("\u{2028}".to_owned()),
        "[a-z]{1,4}",
        ".{0,3}",
    ];
    proptest::collection::vec(piece, 0..6).prop_map(|pieces| pieces.concat())
}

/// Settings of Claude Code with these texts in every place.
fn settings(texts: &[String]) -> String {
    let rules = |tool: &str| -> Vec<String> {
        texts.iter().map(|text| format!("{tool}({text})")).collect()
    };
    let all: Vec<String> =
        ["Bash", "Read", "Edit", "WebFetch", "Task"].iter().flat_map(|t| rules(t)).collect();
    let hosts: Vec<String> = texts.iter().map(|text| format!("domain:{text}")).collect();
    serde_json::json!({
        "permissions": {"deny": all, "ask": texts, "allow": all, "defaultMode": texts.first()},
        "sandbox": {
            "enabled": texts.len().is_multiple_of(2),
            "excludedCommands": texts,
            "filesystem": {"allowWrite": texts, "denyRead": texts, "denyWrite": [texts.last()], "allowRead": texts},
            "network": {"allowedDomains": hosts, "deniedDomains": texts, "deniedResolvedAddresses": texts},
            "credentials": {"envVars": [{"name": texts.first(), "mode": "deny"}]},
        },
    })
    .to_string()
}

proptest! {
    #[test]
    fn any_entries_become_a_policy_that_parses(texts in proptest::collection::vec(hostile(), 1..5)) {
        let content = settings(&texts);
        let text = text_of(ImportFormat::Claude, &content);
        prop_assert_eq!(&text, &text_of(ImportFormat::Claude, &content));
        let file = clash_syntax::SyntaxTree::parse(&text).map_err(|e| TestCaseError::fail(format!("{e}\n{text}")))?;
        // Nothing but the calls an import makes, whatever the entries say.
        for (_, call) in file.calls() {
            prop_assert!(matches!(call.name(), Some("settings" | "policy" | "everywhere")), "{}", text);
        }
        let calls = file.calls().filter(|(_, call)| call.name() == Some("policy")).count();
        prop_assert!(calls <= 3);
    }

    #[test]
    fn no_bytes_make_an_import_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        for format in FORMATS {
            let _ = import_as(format, &ImportSource { name: "x", bytes: &bytes, base: SettingsBase::Project });
        }
    }

    #[test]
    fn no_rules_file_makes_its_import_panic(words in proptest::collection::vec(hostile(), 0..4)) {
        let content = format!("prefix_rule(pattern = {words:?}, decision = \"forbidden\")\n");
        let text = text_of(ImportFormat::CodexRules, &content);
        if !text.starts_with("error") {
            prop_assert!(clash_syntax::SyntaxTree::parse(&text).is_ok(), "{}", text);
        }
    }
}
