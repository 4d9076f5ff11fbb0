//! Which paths a repository's ignore files leave out, as far as detection needs it:
//! names, `*`, `?`, `**`, a leading or inner `/`, a trailing `/`, `!`, comments.
//! Character classes are taken as plain characters, so a file that uses them
//! ignores less here than in git; detection then looks at a little more.

use std::path::Path;
use std::rc::Rc;

/// The ignore files in force in a directory, the nearest first.
#[derive(Clone, Debug, Default)]
pub(super) struct Ignored {
    here: Option<Rc<Level>>,
}

#[derive(Debug)]
struct Level {
    /// The directory of the file, from the project's root.
    dir: String,
    rules: Vec<Rule>,
    above: Ignored,
}

#[derive(Debug)]
struct Rule {
    parts: Vec<String>,
    /// Only from the file's own directory on.
    anchored: bool,
    directories: bool,
    keeps: bool,
}

/// As much of an ignore file is read.
const MOST_BYTES: usize = 64 << 10;

impl Ignored {
    /// With the rules of a file that lies in `dir`, a path from the project's root.
    pub(super) fn and(&self, dir: &str, file: &Path) -> Self {
        let Ok(text) = std::fs::read(file) else { return self.clone() };
        let text = String::from_utf8_lossy(text.get(..MOST_BYTES).unwrap_or(&text)).into_owned();
        self.and_text(dir, &text)
    }

    fn and_text(&self, dir: &str, text: &str) -> Self {
        let rules: Vec<Rule> = text.lines().filter_map(Rule::parse).collect();
        Self { here: Some(Rc::new(Level { dir: dir.to_owned(), rules, above: self.clone() })) }
    }

    /// Whether a path from the project's root is left out. Of one file the last
    /// rule that matches holds, and of several files the nearest.
    pub(super) fn covers(&self, path: &str, directory: bool) -> bool {
        let mut level = self.here.as_ref();
        while let Some(here) = level {
            let below = match here.dir.as_str() {
                "" => Some(path),
                dir => path.strip_prefix(dir).and_then(|rest| rest.strip_prefix('/')),
            };
            let matches = |rule: &&Rule| below.is_some_and(|path| rule.matches(path, directory));
            if let Some(rule) = here.rules.iter().rev().find(matches) {
                return !rule.keeps;
            }
            level = here.above.here.as_ref();
        }
        false
    }
}

impl Rule {
    fn parse(line: &str) -> Option<Self> {
        let line = line.trim_end();
        if line.is_empty() || line.starts_with('#') {
            return None;
        }
        let (keeps, line) = line.strip_prefix('!').map_or((false, line), |rest| (true, rest));
        let (directories, line) = line.strip_suffix('/').map_or((false, line), |rest| (true, rest));
        let anchored = line.contains('/');
        let mut parts: Vec<String> =
            line.split('/').filter(|part| !part.is_empty()).map(str::to_owned).collect();
        // Several in a row say no more than one, and cost much more.
        parts.dedup_by(|a, b| a == "**" && b == "**");
        (!parts.is_empty()).then_some(Self { parts, anchored, directories, keeps })
    }

    fn matches(&self, path: &str, directory: bool) -> bool {
        if self.directories && !directory {
            return false;
        }
        let names: Vec<&str> = path.split('/').collect();
        if self.anchored {
            return across(&self.parts, &names);
        }
        names.last().is_some_and(|name| across(&self.parts, &[name]))
    }
}

/// Whether pattern parts match names one by one; `**` stands for any number.
fn across(parts: &[String], names: &[&str]) -> bool {
    match (parts.split_first(), names.split_first()) {
        (None, None) => true,
        (Some((part, rest)), _) if part == "**" => {
            (0..=names.len()).any(|skip| names.get(skip..).is_some_and(|left| across(rest, left)))
        }
        (Some((part, rest)), Some((name, left))) => within(part, name) && across(rest, left),
        _ => false,
    }
}

/// `*` and `?` inside one name.
fn within(pattern: &str, name: &str) -> bool {
    // The usual walk with one point to go back to: linear but for that.
    let (pattern, name): (Vec<char>, Vec<char>) =
        (pattern.chars().collect(), name.chars().collect());
    let (mut p, mut n, mut back) = (0, 0, None);
    while n < name.len() {
        match pattern.get(p) {
            Some('*') => {
                back = Some((p + 1, n));
                p += 1;
            }
            Some(c) if *c == '?' || Some(c) == name.get(n) => {
                p += 1;
                n += 1;
            }
            _ => match back {
                Some((star, at)) => {
                    back = Some((star, at + 1));
                    p = star;
                    n = at + 1;
                }
                None => return false,
            },
        }
    }
    pattern.get(p..).is_some_and(|rest| rest.iter().all(|c| *c == '*'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ignored(text: &str) -> Ignored {
        Ignored::default().and_text("", text)
    }

    #[test]
    fn names_are_ignored_anywhere_and_paths_from_their_file_on() {
        let rules = ignored("# c\nbuild/\n/out\n*.log\nvendor/cache\n**/gen/*\n!keep.log\n");
        for path in ["build", "a/b/build", "out", "vendor/cache", "gen/x", "a/gen/x"] {
            assert!(rules.covers(path, true), "{path}");
        }
        for path in ["a/out", "x/vendor/cache", "src", "gen"] {
            assert!(!rules.covers(path, true), "{path}");
        }
        assert!(rules.covers("a/x.log", false) && !rules.covers("keep.log", false));
        assert!(!rules.covers("build", false), "a rule about directories");
    }

    #[test]
    fn the_nearest_file_decides() {
        let above = ignored("dist\n");
        let inner = above.and_text("web", "!dist\n/tmp\n");
        assert!(inner.covers("dist", true) && !inner.covers("web/dist", true));
        assert!(inner.covers("web/tmp", true) && !inner.covers("tmp", true));
    }

    #[test]
    fn hostile_patterns_end() {
        let stars = "*a".repeat(2_000);
        assert!(!ignored(&stars).covers(&"a".repeat(1_000), true));
        let deep = "**/".repeat(12) + "x";
        assert!(!ignored(&deep).covers(&"y/".repeat(20), true));
    }

    /// What `*` and `?` mean, without a thought for cost.
    fn plainly(pattern: &[char], name: &[char]) -> bool {
        match (pattern.split_first(), name.split_first()) {
            (None, None) => true,
            (Some(('*', rest)), _) => {
                plainly(rest, name)
                    || name.split_first().is_some_and(|(_, left)| plainly(pattern, left))
            }
            (Some((c, rest)), Some((d, left))) => (*c == '?' || c == d) && plainly(rest, left),
            _ => false,
        }
    }

    proptest! {
        #[test]
        fn a_pattern_matches_what_it_says(pattern in "[ab*?]{0,7}", name in "[abc]{0,8}") {
            let chars = |text: &str| text.chars().collect::<Vec<char>>();
            prop_assert_eq!(within(&pattern, &name), plainly(&chars(&pattern), &chars(&name)));
        }

        #[test]
        fn the_last_line_about_a_path_decides(
            above in "[a-c*/!\n#]{0,20}",
            path in "[a-c]{1,3}(/[a-c]{1,3}){0,3}",
            directory: bool,
        ) {
            let covers = |last: &str| ignored(&format!("{above}\n{last}{path}")).covers(&path, directory);
            prop_assert!(covers("/") && !covers("!/"));
        }

        #[test]
        fn any_file_and_any_path_have_an_answer(text: String, path: String, directory: bool) {
            let _ = ignored(&text).and_text(&path, &text).covers(&path, directory);
        }
    }
}
