//! Names of settings whose values are secret, and values that never are.

/// Parts of names whose values are secret, without case and separators.
const SECRET_PARTS: &[&str] = &[
    "accesskey",
    "apikey",
    "authident",
    "authorization",
    "authtoken",
    "bearer",
    "cookie",
    "credential",
    "encryptedpassword",
    "ghtoken",
    "httpbasic",
    "jwt",
    "oauth",
    "passphrase",
    "passwd",
    "password",
    "passwort",
    "privatekey",
    "secret",
    "token",
    "userpass",
];

/// Words of names whose values are secret: `nexus.pw`, `signingKey`, `_auth`.
const SECRET_WORDS: &[&str] = &[
    "auth",
    "cred",
    "creds",
    "headers",
    "key",
    "otp",
    "pass",
    "pat",
    "pin",
    "pw",
    "pwd",
    "sas",
    "session",
    "sig",
    "signature",
];

/// Names with such a part whose values are no secrets, without case and separators.
const HARMLESS_NAMES: &[&str] = &[
    "alwaysauth",
    "authenticate",
    "authtype",
    "cafile",
    "certfile",
    "credentialalias",
    "credentialprovider",
    "globalcredentialproviders",
    "goauth",
    "keyfile",
    "keyring",
    "keyringprovider",
    "npmalwaysauth",
    "publickeytoken",
];

/// Last words of names whose values are places of secrets, and no secrets.
const HARMLESS_ENDS: &[&str] = &["file", "path", "provider", "providers", "dir", "type"];

/// True if the value of a setting with this name counts as secret. The name may be quoted.
pub(super) fn is_secret_name(name: &[u8]) -> bool {
    let name = String::from_utf8_lossy(name);
    let words = words_of(&name);
    let joined = words.concat();
    if HARMLESS_NAMES.contains(&joined.as_str())
        || words.last().is_some_and(|last| HARMLESS_ENDS.contains(&last.as_str()))
    {
        return false;
    }
    SECRET_PARTS.iter().any(|part| joined.contains(part))
        || words.iter().any(|word| {
            SECRET_WORDS.contains(&word.as_str())
                || ["key", "pass", "pwd", "auth"].iter().any(|end| word.ends_with(end))
        })
}

/// The words of a name, in lower case: `npmAuthToken` has `npm`, `auth`, `token`.
fn words_of(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut lower = false;
    for c in name.chars() {
        let begins = !c.is_ascii_alphanumeric() || c.is_ascii_uppercase() && lower;
        if begins && words.last().is_some_and(|word| !word.is_empty()) {
            words.push(String::new());
        }
        if c.is_ascii_alphanumeric()
            && let Some(word) = words.last_mut()
        {
            word.push(c.to_ascii_lowercase());
        }
        lower = c.is_ascii_lowercase() || c.is_ascii_digit();
    }
    words.retain(|word| !word.is_empty());
    words
}

/// True for a value that is no secret under any name: a switch, nothing, or a reference to
/// variables alone.
pub(super) fn is_harmless_value(value: &[u8]) -> bool {
    const SWITCHES: &[&str] =
        &["", "true", "false", "yes", "no", "on", "off", "null", "none", "~", "always", "never"];
    let Ok(text) = str::from_utf8(value) else { return false };
    let text = text.trim();
    SWITCHES.iter().any(|switch| text.eq_ignore_ascii_case(switch)) || is_reference(text)
}

/// True for a sequence of variables: `${A}`, `$A`, `%A%`, also with colons between them. A
/// default inside a reference may be a secret, so `${A:-x}` is no reference.
pub(super) fn is_reference(text: &str) -> bool {
    let is_name = |name: &str| {
        !name.is_empty()
            && name.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_')
    };
    let one = |part: &str| {
        let braced = part.strip_prefix("${").and_then(|it| it.strip_suffix('}'));
        let plain = part.strip_prefix('$');
        let percent = part.strip_prefix('%').and_then(|it| it.strip_suffix('%'));
        braced.or(plain).or(percent).is_some_and(|name| is_name(name.trim_end_matches('?')))
    };
    !text.is_empty() && text.split(':').all(one)
}
