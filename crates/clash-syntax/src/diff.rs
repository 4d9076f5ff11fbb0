//! Differences between two texts, line by line.

use std::time::Duration;

use similar::{ChangeTag, TextDiff};

/// Unchanged lines shown around a change.
const CONTEXT_LINES: usize = 3;
/// After this time the rest counts as replaced, so that two large texts with nothing in
/// common stay cheap.
const MAX_SEARCH_TIME: Duration = Duration::from_millis(300);

/// The lines that differ between two texts, counted from one.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ChangedLines {
    /// Lines of the new text that are new or different.
    pub(crate) added: Vec<usize>,
    /// Lines of the old text that are gone or different.
    pub(crate) removed: Vec<usize>,
}

/// The differences by lines, searched for at most [`MAX_SEARCH_TIME`].
fn compare<'a>(old: &'a str, new: &'a str) -> TextDiff<'a, 'a, 'a, str> {
    TextDiff::configure().timeout(MAX_SEARCH_TIME).diff_lines(old, new)
}

/// A unified diff from `old` to `new`, empty if they are equal. Both sides are called
/// `name`.
pub fn diff(old: &str, new: &str, name: &str) -> String {
    let diff = compare(old, new);
    diff.unified_diff().context_radius(CONTEXT_LINES).header(name, name).to_string()
}

/// The numbers of all lines that differ.
pub(crate) fn changed_lines(old: &str, new: &str) -> ChangedLines {
    let mut changed = ChangedLines::default();
    for change in compare(old, new).iter_all_changes() {
        match change.tag() {
            ChangeTag::Equal => {}
            ChangeTag::Insert => changed.added.extend(change.new_index().map(|line| line + 1)),
            ChangeTag::Delete => changed.removed.extend(change.old_index().map(|line| line + 1)),
        }
    }
    changed
}

#[cfg(test)]
mod tests {
    use super::{ChangedLines, changed_lines, diff};

    #[test]
    fn a_change_is_shown_with_its_surroundings() {
        let old = "a\nb\nc\nd\ne\nf\ng\nh\ni\nj\nk\nl\nm\n";
        let new = "a\nB\nc\nd\ne\nf\ng\nh\ni\nj\nk\nl\nm\nn";
        insta::assert_snapshot!(diff(old, new, "policy.star"), @r"
        --- policy.star
        +++ policy.star
        @@ -1,5 +1,5 @@
         a
        -b
        +B
         c
         d
         e
        @@ -11,3 +11,4 @@
         k
         l
         m
        +n
        \ No newline at end of file
        ");
        assert_eq!(diff(old, old, "x"), "");
        insta::assert_snapshot!(diff("", "a\n", "x"), @"
        --- x
        +++ x
        @@ -0,0 +1 @@
        +a
        ");
    }

    #[test]
    fn changed_lines_are_numbered_in_their_text() {
        let changed = changed_lines("a\nb\nc\n", "a\nx\nc\nd\n");
        assert_eq!(changed, ChangedLines { added: vec![2, 4], removed: vec![2] });
    }

    #[test]
    fn large_texts_with_nothing_in_common_stay_cheap() {
        let old: String = (0..5000).map(|n| format!("{n}\n")).collect();
        let new: String = (0..5000).map(|n| format!("x{n}\n")).collect();
        let started = std::time::Instant::now();
        assert_eq!(changed_lines(&old, &new).added.len(), 5000);
        assert!(started.elapsed() < std::time::Duration::from_secs(10));
    }
}
