//! Removes possible secrets from a text before clash shows it.
//!
//! No text of a history reaches a policy; this is for examples on a terminal. It removes
//! too much rather than too little: known shapes of tokens, values of options and
//! variables with names like `token`, credentials in URLs, and long random strings.

/// Stands in place of a removed text.
pub const REDACTED: &str = "[secret]";

/// Prefixes by which issuers make their tokens recognisable.
const TOKEN_PREFIXES: &[&str] = &[
    "sk-",
    "sk_live_",
    "sk_test_",
    "rk_live_",
    "rk_test_",
    "pk_live_",
    "whsec_",
    "ghp_",
    "gho_",
    "ghu_",
    "ghs_",
    "ghr_",
    "github_pat_",
    "glpat-",
    "gldt-",
    "glrt-",
    "xoxb-",
    "xoxa-",
    "xoxp-",
    "xoxr-",
    "xoxs-",
    "xapp-",
    "AKIA",
    "ASIA",
    "AROA",
    "AIza",
    "ya29.",
    "eyJ",
    "npm_",
    "pypi-",
    "dop_v1_",
    "hf_",
    "SG.",
    "shpat_",
    "shpss_",
    "lin_api_",
    "sq0atp-",
    "sq0csp-",
    "EAACEdEose0cBA",
    "key-",
    "dckr_pat_",
    "tfp_",
    "atlasv1.",
    "hvs.",
    "hvb.",
    "s.",
    "pat_",
    "figd_",
    "fo1_",
    "nfp_",
    "rnd_",
    "secret_",
    "ntn_",
    "glsa_",
    "dapi",
    "sntrys_",
    "PMAK-",
    "rdme_",
    "sbp_",
    "vercel_",
    "CCIPAT_",
    "age-secret-key-1",
    "AGE-SECRET-KEY-1",
    "xkeysib-",
    "tskey-",
    "cfut_",
    "v1.0-",
];

/// Parts of names whose values are certainly secrets.
pub(crate) const SECRET_NAMES: &[&str] = &[
    "password",
    "passwd",
    "passphrase",
    "secret",
    "token",
    "apikey",
    "api-key",
    "api_key",
    "access-key",
    "access_key",
    "private-key",
    "private_key",
    "credential",
    "authorization",
    "bearer",
];

/// Parts of names whose values may be secrets. Only [`redact`] looks for them.
const DOUBTFUL_NAMES: &[&str] = &["pwd", "auth", "cookie", "session", "signature", "otp", "pin"];

/// The text without possible secrets; white space stays. Also hides the word behind an option
/// such as `--token`, and behind `Bearer`.
pub fn redact(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut hide_next = false;
    for (word, gap) in words(text) {
        if hide_next && !word.is_empty() {
            // `Authorization: Bearer xyz`: the scheme is no secret, the next word is.
            let scheme = ["bearer", "basic", "token"].contains(&bare(word).to_lowercase().as_str());
            out.push_str(if scheme { word } else { REDACTED });
            hide_next = scheme || asks_for_secret(word);
        } else {
            hide_next = asks_for_secret(word);
            out.push_str(&redact_word(word));
        }
        out.push_str(gap);
    }
    out
}

/// Words and the white space behind each.
fn words(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
        let (word, behind) = rest.split_at(end);
        let gap = behind.find(|c: char| !c.is_whitespace()).unwrap_or(behind.len());
        let (gap, next) = behind.split_at(gap);
        rest = next;
        Some((word, gap))
    })
}

/// The word without signs at its ends.
fn bare(word: &str) -> &str {
    word.trim_matches(|c: char| !c.is_alphanumeric())
}

/// True if the next word is the value of a secret: `--token X`,
/// `-p X`, `-u user:X`, `Authorization: X`.
fn asks_for_secret(word: &str) -> bool {
    let option = word.starts_with('-') && !word.contains('=');
    let header = word.ends_with(':');
    let short = matches!(word, "-p" | "-u" | "-U" | "--user" | "-H" | "--header" | "-b");
    short || ((option || header) && named_like_secret(word))
}

/// True if a name has a part such as `token`, in any case.
fn named_like_secret(name: &str) -> bool {
    let name = name.to_lowercase();
    SECRET_NAMES.iter().chain(DOUBTFUL_NAMES).any(|part| name.contains(part))
        || name.ends_with("_key")
        || name.ends_with("-key")
        || bare(&name) == "key"
}

/// One word without possible secrets: values with a telling name, parts of a URL, and
/// tokens.
fn redact_word(word: &str) -> String {
    // `NAME=value`, `--name=value`, `"name":"value"`
    for separator in ['=', ':'] {
        if let Some((name, value)) = word.split_once(separator)
            && !value.is_empty()
            && !value.starts_with("//")
            && named_like_secret(name)
        {
            return format!("{name}{separator}{REDACTED}");
        }
    }
    if let Some((scheme, rest)) = word.split_once("://") {
        return url(scheme, rest);
    }
    let mut out = String::new();
    let mut token = String::new();
    for c in word.chars() {
        if c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '+' | '/' | '=' | '~' | '%') {
            token.push(c);
            continue;
        }
        out.push_str(if is_secret(&token) { REDACTED } else { &token });
        token.clear();
        out.push(c);
    }
    out.push_str(if is_secret(&token) { REDACTED } else { &token });
    out
}

/// The address without user, password, query and random parts.
fn url(scheme: &str, rest: &str) -> String {
    let (before, tail) = match rest.find(['?', '#']) {
        Some(at) => (rest.get(..at).unwrap_or_default(), "?…"),
        None => (rest, ""),
    };
    // A password may have a slash in it.
    let (user, before) = match before.rsplit_once('@') {
        Some((_, before)) => (format!("{REDACTED}@"), before),
        None => (String::new(), before),
    };
    let (host, path) = before.split_once('/').unwrap_or((before, ""));
    let hidden = |part: &str| if is_secret(part) { REDACTED.to_owned() } else { part.to_owned() };
    let host: Vec<String> = host.split('.').map(hidden).collect();
    let mut out = format!("{scheme}://{user}{}", host.join("."));
    if before.contains('/') {
        let path: Vec<String> = path.split('/').map(hidden).collect();
        out.push('/');
        out.push_str(&path.join("/"));
    }
    out.push_str(tail);
    out
}

/// True if a string has the shape of a token: a known prefix, a long part without words, or
/// many digits.
pub fn is_secret(text: &str) -> bool {
    if has_token_prefix(text) {
        return true;
    }
    text.split(['/', '=', ':', '.']).any(|part| part.len() >= 20 && has_no_words(part))
        || (text.len() >= 32 && text.bytes().all(|b| b.is_ascii_hexdigit()))
        || (text.len() >= 12 && text.bytes().all(|b| b.is_ascii_digit()))
}

/// True for a text that begins like the tokens of a known issuer.
pub(crate) fn has_token_prefix(text: &str) -> bool {
    let known = |prefix: &str| {
        text.strip_prefix(prefix).is_some_and(|rest| rest.len() >= 8 && has_no_words(rest))
    };
    TOKEN_PREFIXES.iter().any(|prefix| known(prefix))
}

/// True for a text in which no word of a language can be.
pub(crate) fn looks_random(text: &str) -> bool {
    has_no_words(text)
}

/// True for letters mixed with digits, or for both cases without order. No word of a
/// language looks so.
fn has_no_words(text: &str) -> bool {
    let digits = text.bytes().filter(u8::is_ascii_digit).count();
    let letters = text.bytes().filter(u8::is_ascii_alphabetic).count();
    let switches = text.as_bytes().windows(2).filter(|pair| {
        matches!(pair, [a, b] if (a.is_ascii_lowercase() && b.is_ascii_uppercase())
            || (a.is_ascii_digit() != b.is_ascii_digit()
                && a.is_ascii_alphanumeric() && b.is_ascii_alphanumeric()))
    });
    let switches = switches.count();
    (digits > 0 && letters > 0 && switches * 8 >= text.len()) || switches * 6 >= text.len().max(12)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Made up, each in the shape its issuer gives it. Put together here so that
    /// no scanner takes this file for a leak.
    fn secrets() -> Vec<String> {
        let body = "a8F3kQ9zL2mX7vB4nR6tY1wC5sD0";
        let mut all: Vec<String> = [
            "sk-",
            "sk-ant-api03-",
            "sk_live_",
            "ghp_",
            "gho_",
            "github_pat_11",
            "glpat-",
            "xoxb-",
            "AKIA",
            "AIza",
            "ya29.",
            "npm_",
            "pypi-",
            "dop_v1_",
            "hf_",
            "SG.",
            "shpat_",
            "lin_api_",
            "hvs.",
            "dckr_pat_",
            "rk_live_",
            "tskey-auth-",
            "glsa_",
        ]
        .iter()
        .map(|prefix| format!("{prefix}{body}"))
        .collect();
        all.push(format!("eyJ{body}.eyJ{body}.{body}"));
        all.push("d41d8cd98f00b204e9800998ecf8427e".to_owned());
        all.push("4f8a1c9e2b7d6053e1a4c8f9b2d7e6a0c3f5b8d1".to_owned());
        all.push("wJalrXUtnFEMI/K7MDENG/bPxRfiCYzzEXAMPLEKEY".to_owned());
        all.push("123456789012345678".to_owned());
        all
    }

    #[test]
    fn tokens_are_found_wherever_they_stand() {
        for secret in secrets() {
            for text in [
                format!("curl -H 'Authorization: Bearer {secret}' https://x.test"),
                format!("TOKEN={secret} make"),
                format!("export API_KEY=\"{secret}\""),
                format!("gh auth login --with-token {secret}"),
                format!("cmd --password={secret}"),
                format!("git clone https://user:{secret}@host.test/x.git"),
                format!("git clone https://{secret}@host.test/x.git"),
                format!("curl https://host.test/{secret}/x"),
                format!("curl 'https://host.test/?key={secret}'"),
                format!("echo {secret}"),
                format!("echo '{{\"secret\":\"{secret}\"}}'"),
                format!("mysql -u root -p {secret}"),
            ] {
                assert!(!redact(&text).contains(&secret), "{text}\n{}", redact(&text));
            }
        }
    }

    #[test]
    fn values_named_like_secrets_are_taken_whatever_their_shape() {
        for text in ["PGPASSWORD=hunter psql", "tool --token hunter", "login --password=hunter"] {
            assert!(!redact(text).contains("hunter"), "{}", redact(text));
        }
    }

    #[test]
    fn ordinary_commands_stay_as_they_are() {
        for text in [
            "cargo test --workspace 2>&1 | tail -20",
            "git commit -m 'Say why, not what'",
            "grep -rn TODO crates/clash-policy/src/shell/read/heredoc.rs",
            "npm run build:production -- --verbose",
            "cd /work/app && ls -la",
            "kubectl get pods --namespace staging",
        ] {
            assert_eq!(redact(text), text);
        }
    }

    proptest! {
        #[test]
        fn redacting_any_text_never_panics(text in any::<String>()) {
            let _ = redact(&text);
        }

        #[test]
        fn random_tokens_are_redacted(token in "[A-Za-z0-9]{24,64}", before in "[a-z ]{0,12}") {
            // The shape of a random string is random too: only such as have it.
            prop_assume!(is_secret(&token));
            let shown = redact(&format!("{before} {token}"));
            prop_assert!(!shown.contains(&token));
        }
    }
}
