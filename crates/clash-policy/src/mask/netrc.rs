//! Masks `.netrc`: everything but its keywords and the names of machines.

use super::canvas::MaskCanvas;

/// Hides every word that is neither a keyword nor the name of a machine. The text of a
/// macro ends with an empty line.
pub(super) fn mask_netrc(canvas: &mut MaskCanvas<'_>) {
    let text = canvas.text();
    let mut at = 0;
    let mut is_machine = false;
    while at < text.len() {
        let space = text.iter().skip(at).take_while(|b| b.is_ascii_whitespace()).count();
        at += space;
        let end = at + word_length(text, at);
        let word = canvas.slice(at..end);
        match word {
            _ if is_machine => is_machine = false,
            b"machine" => is_machine = true,
            b"default" | b"login" | b"password" | b"account" => {}
            b"macdef" => {
                let body = text.get(end..).unwrap_or_default();
                let blank = body.windows(2).position(|pair| pair == b"\n\n");
                let close = blank.map_or(text.len(), |blank| end + blank);
                canvas.hide(end..close);
                at = close;
                continue;
            }
            _ => canvas.hide(at..end),
        }
        at = end;
    }
}

/// The length of the word at a place. A word may be quoted, with escapes; without its end
/// it reaches to the end of the text.
fn word_length(text: &[u8], at: usize) -> usize {
    let rest = text.get(at..).unwrap_or_default();
    if rest.first() != Some(&b'"') {
        return rest.iter().take_while(|b| !b.is_ascii_whitespace()).count();
    }
    let mut escaped = false;
    let close = rest.iter().skip(1).position(|b| {
        let closes = *b == b'"' && !escaped;
        escaped = *b == b'\\' && !escaped;
        closes
    });
    let quoted = close.map_or(rest.len(), |close| close + 2);
    let tail = rest.iter().skip(quoted).take_while(|b| !b.is_ascii_whitespace()).count();
    quoted + tail
}
