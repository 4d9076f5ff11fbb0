//! Comparing text with the patterns of a policy, by hand: no pattern is
//! compiled while a hook waits.

/// `*` stands for any run of characters and `?` for one. Linear in the text
/// for each star, without recursion.
pub fn glob_matches(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) =
        (pattern.chars().collect(), text.chars().collect());
    let (mut p, mut t) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some('*') => {
                retry = Some((p + 1, t));
                p += 1;
            }
            Some(c) if *c == '?' || Some(c) == text.get(t) => {
                p += 1;
                t += 1;
            }
            _ => match retry {
                Some((after_star, from)) => {
                    retry = Some((after_star, from + 1));
                    (p, t) = (after_star, from + 1);
                }
                None => return false,
            },
        }
    }
    pattern.get(p..).is_some_and(|rest| rest.iter().all(|c| *c == '*'))
}

/// A bare name is that domain and its subdomains; `*.name` only the subdomains.
/// Both sides are lower case and without a trailing dot.
pub fn host_matches(pattern: &str, host: &str) -> bool {
    let below = |domain: &str| {
        host.strip_suffix(domain).is_some_and(|front| front.len() > 1 && front.ends_with('.'))
    };
    match pattern.strip_prefix("*.") {
        Some(domain) => below(domain),
        None => host == pattern || below(pattern),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn stars_and_question_marks() {
        assert!(glob_matches("te*t", "test") && glob_matches("te*t", "tet"));
        assert!(glob_matches("**", "") && glob_matches("a?c", "abc"));
        assert!(!glob_matches("te*t", "tests") && !glob_matches("a?c", "ac"));
    }

    #[test]
    fn a_name_covers_its_subdomains_and_nothing_that_merely_ends_alike() {
        assert!(host_matches("github.com", "github.com"));
        assert!(host_matches("github.com", "api.github.com"));
        assert!(!host_matches("github.com", "evilgithub.com"));
        assert!(!host_matches("*.github.com", "github.com"));
        assert!(host_matches("*.github.com", "api.github.com"));
        assert!(!host_matches("github.com", ".github.com"));
    }

    proptest! {
        #[test]
        fn a_star_alone_matches_everything(text in ".{0,40}") {
            prop_assert!(glob_matches("*", &text));
        }

        #[test]
        fn text_without_wildcards_matches_only_itself(a in "[a-z/]{0,8}", b in "[a-z/]{0,8}") {
            prop_assert_eq!(glob_matches(&a, &b), a == b);
        }

        #[test]
        fn agrees_with_an_obvious_matcher(pattern in "[ab*?]{0,8}", text in "[ab]{0,8}") {
            fn slow(p: &[u8], t: &[u8]) -> bool {
                match p.split_first() {
                    None => t.is_empty(),
                    Some((b'*', rest)) => (0..=t.len()).any(|n| slow(rest, &t[n..])),
                    Some((b'?', rest)) => !t.is_empty() && slow(rest, &t[1..]),
                    Some((c, rest)) => t.first() == Some(c) && slow(rest, &t[1..]),
                }
            }
            prop_assert_eq!(glob_matches(&pattern, &text), slow(pattern.as_bytes(), text.as_bytes()));
        }
    }
}
