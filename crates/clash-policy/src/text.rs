//! Characters that deceive the reader of a text: invisible characters, characters
//! that change the direction of text, and letters that look like other letters.
//!
//! Agents, projects and commands choose file names, scripts and policy texts. A person
//! reads them before saying yes, so hidden characters must not hide a part of them. For
//! example the tag characters U+E0020–U+E007F spell a whole sentence that no terminal
//! shows. This module has the only sets of such characters in the workspace.

/// True for characters with no shape of their own: control characters, the
/// `Default_Ignorable_Code_Point` set of Unicode, line separators, and annotation marks.
/// Use it for text that a person reads before a decision.
pub fn is_hidden(c: char) -> bool {
    c.is_control()
        || is_default_ignorable(c)
        || matches!(c, '\u{2028}' | '\u{2029}' | '\u{fff9}'..='\u{fffb}')
}

/// The property `Default_Ignorable_Code_Point` of Unicode 16. Programs show nothing for
/// these characters, and file systems without case (ext4 with `casefold`) drop them from
/// names before they compare.
pub fn is_default_ignorable(c: char) -> bool {
    is_direction_override(c)
        || matches!(
            c,
            '\u{ad}'
                | '\u{34f}'
                | '\u{61c}'
                | '\u{115f}'..='\u{1160}'
                | '\u{17b4}'..='\u{17b5}'
                | '\u{180b}'..='\u{180f}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2060}'..='\u{206f}'
                | '\u{3164}'
                | '\u{fe00}'..='\u{fe0f}'
                | '\u{feff}'
                | '\u{ffa0}'
                | '\u{fff0}'..='\u{fff8}'
                | '\u{1bca0}'..='\u{1bca3}'
                | '\u{1d173}'..='\u{1d17a}'
                | '\u{e0000}'..='\u{e0fff}'
        )
}

/// True for characters that start or end a run of reordered text. Use it for the output
/// of programs, which may contain every other invisible character.
pub fn is_direction_override(c: char) -> bool {
    matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// True for hidden characters that scripts and emoji need: joiners, variation selectors,
/// the two fillers of Hangul inside syllables (not U+3164 and U+FFA0, which stand alone),
/// two Khmer vowels, and the tags of flags such as the flag of Scotland. File names may
/// contain them.
pub fn is_part_of_writing(c: char) -> bool {
    matches!(
        c,
        '\u{34f}'
            | '\u{115f}'..='\u{1160}'
            | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180d}'
            | '\u{180f}'
            | '\u{200c}'..='\u{200d}'
            | '\u{fe00}'..='\u{fe0f}'
            | '\u{e0020}'..='\u{e007f}'
            | '\u{e0100}'..='\u{e01ef}'
    )
}

/// True for a word with Latin letters and also Greek or Cyrillic letters that look like
/// Latin ones, for example `pаypal` with a Cyrillic `а`.
pub fn mixes_lookalikes(word: &str) -> bool {
    const LOOKALIKES: &str = "АВЕКМНОРСТХЅІЈасеорхуѕіјԁԛԝΑΒΕΖΗΙΚΜΝΟΡΤΥΧοναιρ";
    word.chars().any(|c| c.is_ascii_alphabetic()) && word.chars().any(|c| LOOKALIKES.contains(c))
}

/// The text with every hidden character as an escape such as `\u{202e}`. Newlines and
/// tabs stay, so a whole file can be shown.
pub fn escape_hidden(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' | '\t' => out.push(c),
            c if is_hidden(c) => out.extend(c.escape_unicode()),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn known_ways_to_hide_text_are_in_the_set() {
        for c in [
            '\0',
            '\u{1b}',
            '\u{7f}',
            '\u{9b}',
            '\u{ad}',
            '\u{61c}',
            '\u{180e}',
            '\u{200b}',
            '\u{200e}',
            '\u{2028}',
            '\u{202e}',
            '\u{2060}',
            '\u{2066}',
            '\u{3164}',
            '\u{fe0f}',
            '\u{feff}',
            '\u{fff9}',
            '\u{e0001}',
            '\u{e0041}',
            '\u{e007f}',
        ] {
            assert!(is_hidden(c), "{}", c.escape_unicode());
        }
        for c in ['a', ' ', 'é', '资', 'ß', '\u{a0}', '👨', '…', '"'] {
            assert!(!is_hidden(c), "{c}");
        }
    }

    #[test]
    fn only_default_ignorables_are_part_of_writing() {
        for c in ('\0'..=char::MAX).filter(|c| is_part_of_writing(*c)) {
            assert!(is_default_ignorable(c) && !is_direction_override(c), "{}", c.escape_unicode());
        }
    }

    #[test]
    fn a_word_of_two_alphabets_is_a_lookalike() {
        for word in ["p\u{430}ckage", "\u{39c}akefile", "\u{440}ackage"] {
            assert!(mixes_lookalikes(word), "{word}");
        }
        for word in ["package", "файл", "αρχείο", "naïve", ""] {
            assert!(!mixes_lookalikes(word), "{word}");
        }
    }

    proptest! {
        #[test]
        fn escaped_text_has_no_hidden_character(text in any::<String>()) {
            let escaped = escape_hidden(&text);
            prop_assert!(!escaped.chars().any(|c| is_hidden(c) && c != '\n' && c != '\t'));
        }

        #[test]
        fn visible_text_is_not_changed(text in "[ -~\\n\\t]{0,40}") {
            prop_assert_eq!(escape_hidden(&text), text);
        }
    }
}
