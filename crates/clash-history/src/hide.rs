//! Removes secrets from a text that clash keeps.
//!
//! [`redact`](crate::secret::redact) is for examples on a terminal and removes too much
//! rather than too little. A trace has to stay useful: a digest, a path or `mkdir -p dir`
//! must survive. So this module removes only values whose name says that they are secret,
//! passwords in addresses, private keys, and texts in the shape of a token.

use crate::secret::{REDACTED, SECRET_NAMES, has_token_prefix, looks_random};

/// The text without secrets. `None` if it has none.
pub fn hide_secrets(text: &str) -> Option<String> {
    let mut found = false;
    let mut out = String::new();
    let mut rest = text;
    let mut hides_next = false;
    while !rest.is_empty() {
        if rest.starts_with(KEY_BEGIN) {
            found = true;
            out.push_str(REDACTED);
            // A key without an end is hidden to the end of the text.
            rest = rest
                .find(KEY_END)
                .and_then(|at| rest.get(at + KEY_END.len()..))
                .map_or("", |after| after.split_once("-----").map_or("", |(_, after)| after));
            continue;
        }
        let space = rest.find(|c: char| !c.is_whitespace()).unwrap_or(rest.len());
        let (gap, after) = rest.split_at(space);
        out.push_str(gap);
        if after.starts_with(KEY_BEGIN) {
            rest = after;
            continue;
        }
        let end = after.find(char::is_whitespace).unwrap_or(after.len());
        // A quote or a bracket may stand before a key.
        let end = after.find(KEY_BEGIN).map_or(end, |key| key.min(end));
        let (word, after) = after.split_at(end);
        rest = after;
        match shown(word, hides_next) {
            Some(other) => {
                found = true;
                out.push_str(&other);
            }
            None => out.push_str(word),
        }
        let is_scheme = hides_next && is_scheme(word);
        hides_next = is_scheme || names_next(word);
    }
    found.then_some(out)
}

const KEY_BEGIN: &str = "-----BEGIN ";
const KEY_END: &str = "-----END ";

/// The word without its secret; `None` if it stays as it is. A variable such as `$TOKEN` is
/// no secret.
fn shown(word: &str, is_value: bool) -> Option<String> {
    let bare = bare(word);
    if bare.is_empty() {
        return None;
    }
    let is_reference = bare.starts_with('$') || word.contains("$(") || bare == REDACTED;
    if is_value && !is_reference && !word.starts_with('-') && !is_scheme(word) {
        return Some(word.replace(bare, REDACTED));
    }
    if let Some((name, value)) = word.split_once(['=', ':'])
        && is_secret_name(name)
        && !value.starts_with("//")
    {
        let inner = self::bare(value);
        let is_kept = inner.is_empty() || inner.starts_with('$') || inner == REDACTED;
        return (!is_kept).then(|| {
            let (before, _) = word.split_at(name.len() + 1);
            format!("{before}{}", value.replacen(inner, REDACTED, 1))
        });
    }
    if let Some((scheme, address)) = word.split_once("://") {
        let host_end = address.find(['/', '?', '#']).unwrap_or(address.len());
        if let Some((user, _)) = address.get(..host_end).and_then(|it| it.rsplit_once('@'))
            && let Some((name, password)) = user.split_once(':')
            && !password.is_empty()
            && !password.starts_with('$')
        {
            let after = address.get(user.len()..).unwrap_or_default();
            return Some(format!("{scheme}://{name}:{REDACTED}{after}"));
        }
    }
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '+' | '/');
    let mut out = String::new();
    let mut found = false;
    for part in word.split_inclusive(|c| !is_part(c)) {
        let token = part.trim_end_matches(|c| !is_part(c));
        if is_token(token) {
            found = true;
            out.push_str(REDACTED);
            out.push_str(part.get(token.len()..).unwrap_or_default());
        } else {
            out.push_str(part);
        }
    }
    found.then_some(out)
}

/// A prefix that an issuer gives its tokens, or a long random text that is no digest and no
/// path.
fn is_token(text: &str) -> bool {
    const MIN_RANDOM: usize = 32;
    let has = |is: fn(&u8) -> bool| text.bytes().any(|byte| is(&byte));
    let mixed =
        has(u8::is_ascii_uppercase) && has(u8::is_ascii_lowercase) && has(u8::is_ascii_digit);
    has_token_prefix(text)
        || (text.len() >= MIN_RANDOM
            && mixed
            && !text.contains('.')
            && text.split('/').any(|part| part.len() >= MIN_RANDOM / 2 && looks_random(part)))
}

/// True for a word between `Authorization:` and its secret.
fn is_scheme(word: &str) -> bool {
    ["bearer", "basic", "token"].contains(&bare(word).to_ascii_lowercase().as_str())
}

/// True if the next word is a secret: `--token X`, `Authorization: X`, `Bearer X`.
fn names_next(word: &str) -> bool {
    let is_option = word.starts_with("--") && !word.contains('=');
    let is_header = word.ends_with(':');
    let is_bearer = bare(word).eq_ignore_ascii_case("bearer");
    is_bearer || ((is_option || is_header) && is_secret_name(word))
}

/// True if a name has a part such as `token`. Names of files and counts, such as
/// `max-tokens`, are none.
fn is_secret_name(name: &str) -> bool {
    // `tokens` and `--max-tokens` are numbers of something else.
    let name = bare(name).to_ascii_lowercase();
    // A path or an address before the colon is no name.
    let is_name = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    is_name
        && !name.ends_with("tokens")
        && !name.ends_with("file")
        && !name.ends_with("path")
        && SECRET_NAMES.iter().any(|part| name.contains(part))
}

/// The word without quotes, brackets and dashes around it.
fn bare(word: &str) -> &str {
    word.trim_matches(|c: char| {
        matches!(c, '"' | '\'' | ',' | ';' | '{' | '}' | '-' | ':' | '(' | ')')
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn secrets_are_hidden_by_their_name() {
        for (text, shown) in [
            ("PGPASSWORD=hunter2 psql", "PGPASSWORD=[secret] psql"),
            ("export API_KEY=\"hunter2\"; make", "export API_KEY=\"[secret]\"; make"),
            ("tool --token hunter2 -v", "tool --token [secret] -v"),
            ("tool --password=hunter2", "tool --password=[secret]"),
            (
                "curl -H 'Authorization: Bearer hunter2' x",
                "curl -H 'Authorization: Bearer [secret]' x",
            ),
            ("curl -H 'Authorization: hunter2' x", "curl -H 'Authorization: [secret]' x"),
            (r#"echo '{"client_secret":"hunter2"}'"#, r#"echo '{"client_secret":"[secret]"}'"#),
            ("git clone https://me:hunter2@h.test/x", "git clone https://me:[secret]@h.test/x"),
            (
                "a\n-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY-----\nb",
                "a\n[secret]\nb",
            ),
        ] {
            assert_eq!(hide_secrets(text).as_deref(), Some(shown), "{text}");
        }
    }

    #[test]
    fn secrets_are_hidden_by_their_shape() {
        let body = "a8F3kQ9zL2mX7vB4nR6tY1wC5sD0";
        for prefix in ["ghp_", "sk-ant-api03-", "xoxb-", "AKIA", "glpat-", "npm_"] {
            let text = format!("echo '{prefix}{body}' >x");
            assert_eq!(hide_secrets(&text).as_deref(), Some("echo '[secret]' >x"), "{text}");
        }
        let text = "aws configure set x wJalrXUtnFEMI/K7MDENG/bPxRfiCYzzEXAMPLEKEY1";
        assert!(hide_secrets(text).is_some_and(|shown| !shown.contains("wJalr")));
    }

    #[test]
    fn other_texts_stay() {
        for text in [
            "mkdir -p dir && cp -u a b",
            "git show 4f8a1c9e2b7d6053e1a4c8f9b2d7e6a0c3f5b8d1",
            "cat src/token.rs",
            "TOKEN=$TOKEN make",
            "gh auth token",
            "llm --max-tokens 100",
            "kubectl get secret -n staging",
            "cargo test auth_token_is_checked -- --nocapture",
            "docker run sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
            "ls node_modules/.pnpm/@babel+core@7.24.0/node_modules",
            "ssh-keygen -f ~/.ssh/id_ed25519",
        ] {
            assert_eq!(hide_secrets(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn hiding_is_done_once(text in any::<String>()) {
            if let Some(shown) = hide_secrets(&text) {
                prop_assert_eq!(hide_secrets(&shown), None);
            }
        }
    }
}
