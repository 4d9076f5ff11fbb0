//! `{a,b}` in a plain word: the shell expands it first of all.

use super::super::ShellWord;

/// The words that a text with braces expands to; `None` if that is not certain, or more
/// than 64 words.
pub(super) fn braces(text: &str) -> Option<Vec<ShellWord>> {
    const MAX_BRACE_WORDS: usize = 64;
    if text.contains(['*', '?', '[', '~', '\\']) || text.contains("..") {
        return None;
    }
    if !text.contains(',') {
        // `{}` and `{x}` are text.
        return Some(vec![ShellWord::Known(text.to_owned())]);
    }
    let mut depth = 0i32;
    for b in text.bytes() {
        match b {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            _ => {}
        }
        if !(0..=8).contains(&depth) {
            return None;
        }
    }
    if depth != 0 || text.bytes().filter(|b| *b == b'{').count() > 16 {
        return None;
    }
    let words = alternatives(text)?;
    if words.len() > MAX_BRACE_WORDS {
        return None;
    }
    Some(words.into_iter().filter(|w| !w.is_empty()).map(ShellWord::Known).collect())
}

/// Every reading of a balanced text. `None` beyond a hundred, and for braces without a
/// comma.
fn alternatives(text: &str) -> Option<Vec<String>> {
    let Some(open) = text.find('{') else { return Some(vec![text.to_owned()]) };
    let mut depth = 0usize;
    let mut cuts = vec![open];
    let mut close = None;
    for (at, b) in text.bytes().enumerate().skip(open) {
        match b {
            b'{' => depth += 1,
            b'}' => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    close = Some(at);
                    break;
                }
            }
            b',' if depth == 1 => cuts.push(at),
            _ => {}
        }
    }
    let close = close?;
    // Braces without a comma are text, with special rules for the characters around
    // them.
    if cuts.len() < 2 {
        return None;
    }
    cuts.push(close);
    let tails = alternatives(text.get(close + 1..)?)?;
    let mut all = Vec::new();
    for pair in cuts.windows(2) {
        let &[from, to] = pair else { return None };
        for middle in alternatives(text.get(from + 1..to)?)? {
            for tail in &tails {
                all.push(format!("{}{middle}{tail}", text.get(..open)?));
                if all.len() > 100 {
                    return None;
                }
            }
        }
    }
    Some(all)
}
