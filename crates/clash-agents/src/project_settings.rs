//! Reads settings files of a project for keys that work against clash.
//!
//! A hostile repository may have written such a file. So a file that clash cannot read
//! counts as hostile: the client may read more forms than clash does. For example, clients
//! in JavaScript accept bytes that are not UTF-8, and `"\u0073hell"` is the key `shell`.

use std::io::{self, ErrorKind};
use std::path::Path;

use crate::wiring::json_edit::{JsonDocument, JsonNode, JsonSyntax};

/// The content of a file; `None` if the file does not exist.
pub(crate) fn read_if_present(file: &Path) -> io::Result<Option<Vec<u8>>> {
    match std::fs::read(file) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// A line about a settings file that has a hostile key, at any depth, or that clash cannot
/// read. `effect` tells the effect of the key. `None` if the file does not exist or is
/// empty.
pub(crate) fn hostile_key(
    file: &Path,
    effect: &str,
    is_hostile: impl Fn(&str) -> bool,
) -> Option<String> {
    let unreadable = |error: &dyn std::fmt::Display| {
        Some(format!("{}: clash cannot read it and the client may: {error}", file.display()))
    };
    let bytes = match read_if_present(file) {
        Ok(bytes) => bytes?,
        Err(error) => return unreadable(&error),
    };
    let text = String::from_utf8_lossy(&bytes);
    if text.trim().is_empty() {
        return None;
    }
    match JsonDocument::parse(&text, JsonSyntax::Jsonc) {
        Ok(document) => {
            has_key(&document.root, &is_hostile).then(|| format!("{}: {effect}", file.display()))
        }
        Err(error) => unreadable(&error),
    }
}

/// True if a key at any depth is hostile.
fn has_key(node: &JsonNode, is_hostile: &impl Fn(&str) -> bool) -> bool {
    let in_members = node
        .members()
        .iter()
        .any(|member| is_hostile(&member.key) || has_key(&member.value, is_hostile));
    in_members || node.elements().iter().any(|element| has_key(element, is_hostile))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What clash says about a settings file with these bytes, where `off` is hostile.
    fn told(bytes: &[u8]) -> Option<String> {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("settings.json");
        std::fs::write(&file, bytes).unwrap();
        hostile_key(&file, "is off", |key| key == "off")
    }

    #[test]
    fn a_key_is_found_in_every_form_that_a_client_reads() {
        for text in [
            &br#"{"off": true}"#[..],
            br#"{"o\u0066f": true}"#,
            b"{\"x\": \"\xff\", \"off\": 1}",
            b"\xef\xbb\xbf{\"off\": 1}",
            b"{ // mine\n \"x\": [{\"off\": 1,}], /* \"x\" */ }",
        ] {
            let line = told(text).unwrap_or_default();
            assert!(line.ends_with("is off"), "{}: {line}", String::from_utf8_lossy(text));
        }
        for text in [&b""[..], b" \n", b"{}", br#"{"x": "off"}"#, b"{ // \"off\": 1\n }"] {
            assert_eq!(told(text), None, "{}", String::from_utf8_lossy(text));
        }
    }

    #[test]
    fn a_file_that_clash_cannot_read_is_hostile() {
        assert!(told(b"{off: 1}").unwrap().contains("cannot read it"));
        let dir = tempfile::tempdir().unwrap();
        let told = hostile_key(dir.path(), "is off", |_| false);
        assert!(told.unwrap().contains("cannot read it"));
        assert_eq!(hostile_key(&dir.path().join("none"), "is off", |_| true), None);
    }
}
