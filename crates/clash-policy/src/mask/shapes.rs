//! Secrets that a reader finds by their shape, in any syntax: passwords in addresses,
//! private keys, words after `Bearer`, and texts like the tokens of known issuers.

use std::ops::Range;

use super::canvas::MaskCanvas;
use super::names::is_reference;

/// Beginnings of the tokens of known issuers.
const TOKEN_PREFIXES: &[&str] = &[
    "npm_",
    "ghp_",
    "gho_",
    "ghs_",
    "ghu_",
    "ghr_",
    "github_pat_",
    "glpat-",
    "gldt-",
    "pypi-",
    "sk-",
    "sk_",
    "rk_",
    "xoxb-",
    "xoxp-",
    "AKIA",
    "ASIA",
    "AIza",
    "eyJ",
    "hf_",
    "dop_",
    "cio",
    "rubygems_",
    "dckr_pat_",
    "AKCp",
    "cmVmd",
];
/// A shorter text after such a beginning is a word of a language.
const MIN_TOKEN_BYTES: usize = 16;
/// From this length on, mixed letters and digits without words count as a token.
const MIN_RANDOM_BYTES: usize = 24;

/// Hides everything that has the shape of a secret.
pub(super) fn mask_shapes(canvas: &mut MaskCanvas<'_>) {
    mask_private_keys(canvas);
    mask_addresses(canvas);
    mask_userinfo_without_scheme(canvas);
    mask_schemes(canvas);
    mask_tokens(canvas);
}

/// The first place of a text at or after `from`.
fn find(text: &[u8], wanted: &[u8], from: usize) -> Option<usize> {
    let rest = text.get(from..)?;
    rest.windows(wanted.len()).position(|window| window == wanted).map(|at| from + at)
}

/// Hides the body of each private key. A key without an end is hidden to the end of the
/// text.
fn mask_private_keys(canvas: &mut MaskCanvas<'_>) {
    let text = canvas.text();
    let mut from = 0;
    while let Some(begin) = find(text, b"-----BEGIN ", from) {
        let label = begin + b"-----BEGIN ".len();
        let head = find(text, b"-----", label).map_or(text.len(), |at| at + b"-----".len());
        let end = find(text, b"-----END ", head).unwrap_or(text.len());
        if find(canvas.slice(label..head), b"PRIVATE", 0).is_some() {
            canvas.hide(head..end);
        }
        from = end.max(head);
    }
}

/// True for bytes that end an address inside a settings file.
fn ends_address(byte: u8) -> bool {
    byte.is_ascii_whitespace() || matches!(byte, b'"' | b'\'' | b'`' | b'<' | b'>')
}

/// Hides user and password of each address with a scheme, for example
/// `https://user:password@host/`.
fn mask_addresses(canvas: &mut MaskCanvas<'_>) {
    let text = canvas.text();
    let mut from = 0;
    while let Some(at) = find(text, b"://", from) {
        let start = at + 3;
        let end = text.iter().skip(start).position(|b| ends_address(*b));
        let end = end.map_or(text.len(), |length| start + length);
        let whole = canvas.slice(start..end);
        from = start;
        let host_ends = |b: &u8| matches!(b, b'/' | b'?' | b'#');
        let authority = whole.iter().position(host_ends).unwrap_or(whole.len());
        let last_at = |bytes: &[u8]| bytes.iter().rposition(|b| *b == b'@');
        let head = whole.get(..authority).unwrap_or_default();
        // A password may have a slash in it: then no port stands after the colon.
        let is_cut = || {
            let colon = head.iter().position(|b| *b == b':')?;
            let port = head.get(colon + 1..)?;
            (!port.iter().all(u8::is_ascii_digit) && !port.starts_with(b"$")).then_some(())?;
            last_at(whole)
        };
        let Some(user_end) = last_at(head).or_else(is_cut) else { continue };
        hide_userinfo(canvas, start..start + user_end);
    }
}

/// Hides the part of an address before `@`. Variables, and the users of git servers, are no
/// secrets.
fn hide_userinfo(canvas: &mut MaskCanvas<'_>, range: Range<usize>) {
    let bytes = canvas.slice(range.clone());
    let is_open = str::from_utf8(bytes)
        .is_ok_and(|text| is_reference(text) || ["git", "hg", "svn"].contains(&text));
    if !is_open {
        // The colon stays, so that the address keeps its form.
        let colon = bytes.iter().position(|b| *b == b':').unwrap_or(bytes.len());
        canvas.hide(range.start..range.start + colon);
        canvas.hide(range.start + colon + 1..range.end);
    }
}

/// Hides `user:password@` where no scheme stands before it, as in the address of a proxy.
fn mask_userinfo_without_scheme(canvas: &mut MaskCanvas<'_>) {
    let text = canvas.text();
    for (at, _) in text.iter().enumerate().filter(|(_, byte)| **byte == b'@') {
        let stops = |b: &u8| ends_address(*b) || matches!(b, b'=' | b',' | b';' | b'{' | b'[');
        let start = text.get(..at).and_then(|before| before.iter().rposition(stops));
        let start = start.map_or(0, |stop| stop + 1);
        let run = canvas.slice(start..at);
        let Some(colon) = run.iter().position(|b| *b == b':') else { continue };
        let has_password = colon > 0 && colon + 1 < run.len();
        if has_password && find(run, b"://", 0).is_none() && !run.starts_with(b"//") {
            hide_userinfo(canvas, start..at);
        }
    }
}

/// Hides the word after `Bearer` and `Basic`, as in a header.
fn mask_schemes(canvas: &mut MaskCanvas<'_>) {
    let text = canvas.text();
    for scheme in [b"bearer ".as_slice(), b"basic ".as_slice()] {
        for at in 0..text.len() {
            let found = canvas.slice(at..at + scheme.len()).eq_ignore_ascii_case(scheme);
            let before = at.checked_sub(1).and_then(|it| text.get(it));
            if !found || before.is_some_and(u8::is_ascii_alphanumeric) {
                continue;
            }
            let start = at + scheme.len();
            let end = text.iter().skip(start).position(|b| ends_address(*b));
            let end = end.map_or(text.len(), |length| start + length);
            let word = canvas.slice(start..end);
            if !str::from_utf8(word).is_ok_and(is_reference) {
                canvas.hide(start..end);
            }
        }
    }
}

/// Hides words in the shape of a token.
fn mask_tokens(canvas: &mut MaskCanvas<'_>) {
    let text = canvas.text();
    let is_part = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'+' | b'.');
    let mut at = 0;
    while at < text.len() {
        let run = text.iter().skip(at).take_while(|b| is_part(b)).count();
        if run >= MIN_TOKEN_BYTES
            && let Ok(word) = str::from_utf8(canvas.slice(at..at + run))
            && is_token(word)
        {
            canvas.hide(at..at + run);
        }
        at += run.max(1);
    }
}

/// True for a known beginning, and for a long text without words.
fn is_token(word: &str) -> bool {
    let issued = TOKEN_PREFIXES.iter().any(|prefix| {
        word.strip_prefix(prefix).is_some_and(|rest| rest.len() + 4 >= MIN_TOKEN_BYTES)
    });
    let mut parts = word.split(['.', '-']);
    let has_digit = word.bytes().any(|b| b.is_ascii_digit());
    has_digit && (issued || parts.any(|part| part.len() >= MIN_RANDOM_BYTES && has_no_words(part)))
}

/// True for letters mixed with digits, or for both cases without order.
fn has_no_words(text: &str) -> bool {
    let kind = |b: &u8| (b.is_ascii_digit(), b.is_ascii_uppercase());
    let pairs = text.as_bytes().windows(2);
    let switches = pairs.filter(|pair| matches!(pair, [a, b] if kind(a) != kind(b))).count();
    switches * 5 >= text.len()
}
