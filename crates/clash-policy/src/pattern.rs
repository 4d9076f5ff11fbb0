//! Matching of text against the patterns of a policy. Nothing is compiled during a hook
//! call.

/// True if a glob matches the whole text: `*` stands for any run of characters and `?` for
/// one. Linear in the text for each star, without recursion.
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

/// True if a glob matches a whole path: `*` and `?` stay within one name, `**` stands for
/// any number of names, also none. Both sides are relative; the pattern has no doubled
/// slash.
pub fn path_glob_matches(pattern: &str, path: &str) -> bool {
    path_glob_reached(pattern, path).last() == Some(&true)
}

/// For every prefix of the pattern: true if the path matches it. Two paths with the
/// same result match the same continuations.
pub fn path_glob_reached(pattern: &str, path: &str) -> Vec<bool> {
    let pattern: Vec<&str> = pattern.split('/').collect();
    let mut reached = vec![false; pattern.len() + 1];
    reach(&pattern, &mut reached, 0);
    for name in path.split('/').filter(|name| !name.is_empty()) {
        let mut next = vec![false; reached.len()];
        for (at, part) in pattern.iter().enumerate() {
            match (reached.get(at), *part) {
                (Some(true), "**") => reach(&pattern, &mut next, at),
                (Some(true), part) if glob_matches(part, name) => {
                    reach(&pattern, &mut next, at + 1)
                }
                _ => {}
            }
        }
        reached = next;
    }
    reached
}

/// Marks an index of the pattern, and the indexes behind it that need no further name.
fn reach(pattern: &[&str], reached: &mut [bool], mut at: usize) {
    loop {
        if let Some(place) = reached.get_mut(at) {
            *place = true;
        }
        if pattern.get(at) != Some(&"**") {
            return;
        }
        at += 1;
    }
}

/// True if a name of a policy covers a host. A bare name is that domain and its subdomains;
/// `*.name` only the subdomains. Both sides are lower case and without a trailing dot.
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
    fn a_star_is_any_run_and_a_question_mark_one_character() {
        assert!(glob_matches("te*t", "test") && glob_matches("te*t", "tet"));
        assert!(glob_matches("**", "") && glob_matches("a?c", "abc"));
        assert!(!glob_matches("te*t", "tests") && !glob_matches("a?c", "ac"));
    }

    #[test]
    fn in_a_path_one_star_stays_within_a_name() {
        assert!(path_glob_matches("*.rs", "a.rs") && !path_glob_matches("*.rs", "src/a.rs"));
        for path in [".env", "a/.env", "a/b/.env"] {
            assert!(path_glob_matches("**/.env", path), "{path}");
        }
        assert!(
            !path_glob_matches("**/.env", "a/.env/b") && !path_glob_matches("**/.env", "x.env")
        );
        assert!(path_glob_matches("a/**/z", "a/z") && path_glob_matches("a/**/z", "a/b/c/z"));
        assert!(path_glob_matches("a/**", "a") && path_glob_matches("a/**", "a/b/c"));
        assert!(!path_glob_matches("a/*", "a") && !path_glob_matches("a/*/c", "a/b/b/c"));
    }

    #[test]
    fn a_name_covers_its_subdomains_and_no_other_suffix() {
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
            /// The obvious matcher: tries every length for a star.
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
