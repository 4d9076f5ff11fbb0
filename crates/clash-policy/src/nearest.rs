//! Suggestions for misspelt words.

/// The known word with the smallest distance, upper and lower case alike: `Bahs` gives
/// `Bash`. `None` if more than a third of its letters would change, or more than one of a
/// short word.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let distance = |other: &&str| {
        let (word, other) = (word.to_lowercase(), other.to_lowercase());
        // Swapped letters are the most common mistake.
        if word != other && sorted(&word) == sorted(&other) { 1 } else { edits(&word, &other) }
    };
    let best = known.into_iter().min_by_key(distance)?;
    (distance(&best) <= best.chars().count().max(3) / 3).then_some(best)
}

/// The letters of a word in order.
fn sorted(word: &str) -> Vec<char> {
    let mut letters: Vec<char> = word.chars().collect();
    letters.sort_unstable();
    letters
}

/// The number of letters to insert, remove or replace.
fn edits(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        let mut next = vec![left];
        for (to, above) in b.iter().zip(row.iter().skip(1)) {
            left = (diagonal + usize::from(from != *to)).min(left + 1).min(above + 1);
            diagonal = *above;
            next.push(left);
        }
        row = next;
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_similar_words_are_suggested() {
        assert_eq!(nearest("Bahs", ["Bash", "Read"]), Some("Bash"));
        assert_eq!(nearest("bash", ["Bash", "Read"]), Some("Bash"));
        assert_eq!(nearest("acceptEdit", ["plan", "acceptEdits"]), Some("acceptEdits"));
        assert_eq!(nearest("zebra", ["Bash", "Read"]), None);
        assert_eq!((edits("", "abc"), edits("kitten", "sitting")), (3, 3));
    }
}
