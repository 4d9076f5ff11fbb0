//! A small unified diff of lines, for showing a change before it is made.

use std::fmt::Write;

/// Lines of context around a change.
const CONTEXT: usize = 3;
/// Beyond this many differing lines the middle is shown as replaced whole, so
/// that the search stays cheap.
const MAX_DISTANCE: usize = 500;

/// One line of the comparison, by its number in each text, from one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Line {
    Same(usize, usize),
    Removed(usize),
    Added(usize),
}

/// A unified diff from `old` to `new`; empty if they are equal. Both sides are
/// called `name`.
pub fn diff(old: &str, new: &str, name: &str) -> String {
    let lines = compare(old, new);
    let (old, new) = (split(old), split(new));
    let changed = |line: &Line| !matches!(line, Line::Same(..));
    let mut out = String::new();
    let mut at = 0;
    while let Some(first) = lines.iter().skip(at).position(changed).map(|n| at + n) {
        if out.is_empty() {
            let _ = writeln!(out, "--- {name}\n+++ {name}");
        }
        let mut last = first;
        while let Some(next) = lines.iter().skip(last + 1).position(changed) {
            if next > 2 * CONTEXT {
                break;
            }
            last += 1 + next;
        }
        let from = first.saturating_sub(CONTEXT).max(at);
        let to = (last + 1 + CONTEXT).min(lines.len());
        hunk(lines.get(from..to).unwrap_or_default(), &old, &new, &mut out);
        at = to;
    }
    out
}

fn hunk(lines: &[Line], old: &[&str], new: &[&str], out: &mut String) {
    let olds = lines.iter().filter_map(|line| match line {
        Line::Same(old, _) | Line::Removed(old) => Some(*old),
        Line::Added(_) => None,
    });
    let news = lines.iter().filter_map(|line| match line {
        Line::Same(_, new) | Line::Added(new) => Some(*new),
        Line::Removed(_) => None,
    });
    let range = |numbers: Vec<usize>| match numbers.as_slice() {
        [] => "0,0".to_owned(),
        [only] => only.to_string(),
        [first, ..] => format!("{first},{}", numbers.len()),
    };
    let _ = writeln!(out, "@@ -{} +{} @@", range(olds.collect()), range(news.collect()));
    for line in lines {
        let (sign, texts, number) = match line {
            Line::Same(number, _) => (' ', old, number),
            Line::Removed(number) => ('-', old, number),
            Line::Added(number) => ('+', new, number),
        };
        let text = texts.get(number - 1).copied().unwrap_or_default();
        let _ = writeln!(out, "{sign}{}", text.trim_end_matches(['\n', '\r']));
        if !text.ends_with('\n') {
            let _ = writeln!(out, "\\ No newline at end of file");
        }
    }
}

fn split(text: &str) -> Vec<&str> {
    text.split_inclusive('\n').collect()
}

/// Every line of both texts once, in order.
pub(crate) fn compare(old: &str, new: &str) -> Vec<Line> {
    let (old, new) = (split(old), split(new));
    let before = old.iter().zip(&new).take_while(|(a, b)| a == b).count();
    let room = old.len().min(new.len()) - before;
    let after =
        old.iter().rev().zip(new.iter().rev()).take(room).take_while(|(a, b)| a == b).count();
    let middle = |lines: &[&'_ str]| before..lines.len() - after;
    let (from, to) = (middle(&old), middle(&new));
    let mut lines: Vec<Line> = (1..=before).map(|n| Line::Same(n, n)).collect();
    let a = old.get(from.clone()).unwrap_or_default();
    let b = new.get(to.clone()).unwrap_or_default();
    lines.extend(myers(a, b).into_iter().map(|line| match line {
        Line::Same(x, y) => Line::Same(x + before, y + before),
        Line::Removed(x) => Line::Removed(x + before),
        Line::Added(y) => Line::Added(y + before),
    }));
    lines.extend((1..=after).map(|n| Line::Same(from.end + n, to.end + n)));
    lines
}

/// The shortest edit script (Myers), as far as it is cheap to find.
fn myers(a: &[&str], b: &[&str]) -> Vec<Line> {
    let replaced = || {
        let removed = (1..=a.len()).map(Line::Removed);
        removed.chain((1..=b.len()).map(Line::Added)).collect()
    };
    let limit = (a.len() + b.len()).min(MAX_DISTANCE);
    // `furthest[k]` is how far into `a` diagonal `k - limit` reaches.
    let mut furthest = vec![0usize; 2 * limit + 3];
    let middle = limit + 1;
    let mut history = Vec::new();
    let reach = |furthest: &[usize], k: usize| furthest.get(k).copied().unwrap_or(0);
    for distance in 0..=limit {
        history.push(furthest.clone());
        for k in (middle - distance..=middle + distance).step_by(2) {
            let down = goes_down(&furthest, k, middle, distance);
            let mut x = if down { reach(&furthest, k + 1) } else { reach(&furthest, k - 1) + 1 };
            while let Some(y) = (x + middle).checked_sub(k)
                && let (Some(left), Some(right)) = (a.get(x), b.get(y))
                && left == right
            {
                x += 1;
            }
            if let Some(place) = furthest.get_mut(k) {
                *place = x;
            }
            if x >= a.len() && x + middle >= b.len() + k {
                return trace(&history, a.len(), b.len(), middle);
            }
        }
    }
    replaced()
}

/// Whether the best way to a diagonal is by taking a line of the new text.
fn goes_down(furthest: &[usize], k: usize, middle: usize, distance: usize) -> bool {
    let at = |k: usize| furthest.get(k).copied().unwrap_or(0);
    k == middle - distance || k != middle + distance && at(k - 1) < at(k + 1)
}

fn trace(history: &[Vec<usize>], x: usize, y: usize, middle: usize) -> Vec<Line> {
    let (mut x, mut y) = (x, y);
    let mut lines = Vec::new();
    for (distance, furthest) in history.iter().enumerate().rev() {
        let k = x + middle - y;
        let down = goes_down(furthest, k, middle, distance);
        let from = if down { k + 1 } else { k - 1 };
        let start = if distance == 0 { 0 } else { furthest.get(from).copied().unwrap_or(0) };
        let after = if distance == 0 { 0 } else { start + usize::from(!down) };
        while x > after && y > 0 {
            lines.push(Line::Same(x, y));
            (x, y) = (x - 1, y - 1);
        }
        if distance > 0 {
            if down {
                lines.push(Line::Added(y));
                y -= 1;
            } else {
                lines.push(Line::Removed(x));
                x -= 1;
            }
        }
    }
    lines.reverse();
    lines
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Line, compare, diff, split};

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
    fn texts_with_nothing_in_common_stay_cheap() {
        let old: String = (0..5000).map(|n| format!("{n}\n")).collect();
        let new: String = (0..5000).map(|n| format!("x{n}\n")).collect();
        assert_eq!(compare(&old, &new).len(), 10_000);
    }

    fn rebuilt(lines: &[Line], old: &str, new: &str) -> (String, String) {
        let (a, b) = (split(old), split(new));
        let mut left = String::new();
        let mut right = String::new();
        for line in lines {
            match line {
                Line::Same(x, y) => {
                    assert_eq!(a[x - 1], b[y - 1]);
                    left.push_str(a[x - 1]);
                    right.push_str(b[y - 1]);
                }
                Line::Removed(x) => left.push_str(a[x - 1]),
                Line::Added(y) => right.push_str(b[y - 1]),
            }
        }
        (left, right)
    }

    proptest! {
        #[test]
        fn both_texts_can_be_read_back(old in "([abc]\n){0,12}[ab]?", new in "([abc]\n){0,12}[ab]?") {
            let lines = compare(&old, &new);
            prop_assert_eq!(rebuilt(&lines, &old, &new), (old.clone(), new.clone()));
            let longest = longest_common(&split(&old), &split(&new));
            let same = lines.iter().filter(|line| matches!(line, Line::Same(..))).count();
            prop_assert_eq!(same, longest);
        }
    }

    fn longest_common(a: &[&str], b: &[&str]) -> usize {
        match (a, b) {
            ([x, a @ ..], [y, b @ ..]) if x == y => 1 + longest_common(a, b),
            ([_, rest @ ..], [..]) if !b.is_empty() => {
                longest_common(rest, b).max(longest_common(a, &b[1..]))
            }
            _ => 0,
        }
    }
}
