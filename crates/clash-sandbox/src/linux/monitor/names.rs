//! Names that mislead the reader.
//!
//! An escape sequence in a name is a command to the terminal that lists the directory. A
//! name with reversed text direction shows another suffix than it has. A name with a letter
//! of another alphabet in the middle of a word looks like the file that it imitates. No
//! work needs such names, so a watched command cannot make them. Names entirely in another
//! script are fine, and existing names can be used.

use clash_policy::text;

/// True if a name looks different from its real content.
pub(crate) fn misleads(name: &[u8]) -> bool {
    if name.iter().any(|byte| *byte < 0x20 || *byte == 0x7f) {
        return true;
    }
    // A terminal shows invalid UTF-8 as unreadable characters, which misleads no reader.
    let Ok(name) = std::str::from_utf8(name) else { return false };
    let hidden = |c: char| text::is_hidden(c) && !text::is_part_of_writing(c);
    name.chars().any(hidden) || name.split(|c: char| !c.is_alphabetic()).any(text::mixes_lookalikes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_made_to_be_misread_are_seen() {
        for name in [
            "invoice\u{202e}gpj.sh",
            "a\u{1b}]52;c;eA==\u{7}b\nc",
            "two\nlines",
            "\u{440}ackage.json",
            "pаckage.json",
            "Μakefile",
            "package\u{200b}.json",
            "rm\u{2066}x",
            "a\u{61c}b",
            "a\u{2028}b",
            "a\u{ad}b",
            "a\u{9b}b",
            "del\u{7f}",
        ] {
            assert!(misleads(name.as_bytes()), "{name:?}");
        }
    }

    #[test]
    fn names_in_any_language_are_fine() {
        for name in [
            "package.json",
            "файл.txt",
            "отчёт-final.pdf",
            "αρχείο_v2.md",
            "资料 2024.xlsx",
            "שלום.txt",
            "naïve café.txt",
            "👨\u{200d}👩\u{200d}👧.png",
            "क्षत्रिय\u{200d}.txt",
            "heart\u{2764}\u{fe0f}.png",
            "flag\u{1f3f4}\u{e0067}\u{e0062}\u{e0073}\u{e0063}\u{e0074}\u{e007f}.png",
            "with space and 'quotes'",
            "",
        ] {
            assert!(!misleads(name.as_bytes()), "{name:?}");
        }
        assert!(!misleads(b"latin1-\xe9t\xe9"));
    }

    proptest! {
        #[test]
        fn a_name_that_can_be_printed_plainly_is_fine(name in "[ -~]{0,40}") {
            prop_assert!(!misleads(name.as_bytes()));
        }
    }
}
