//! Reads a repository's ignore files, as far as detection needs it: names, `*`, `?`, `**`,
//! a leading or inner `/`, a trailing `/`, `!`, comments. It takes character classes for
//! plain characters, so such a rule ignores less here than in git, and detection reads
//! more names.
//!
//! The crate `ignore` reads these files completely. It is not used because it adds 11
//! packages to `clash` on Linux and 1.0 MB to a static program (`ignore` 0.4.34), for a part
//! of `clash init` that may ignore less than git does.

use std::path::Path;
use std::rc::Rc;

/// The ignore files in force in a directory, the nearest first.
#[derive(Clone, Debug, Default)]
pub(super) struct IgnoreFiles {
    here: Option<Rc<IgnoreFile>>,
}

/// One ignore file, and those above it.
#[derive(Debug)]
struct IgnoreFile {
    /// The directory of the file, from the project's root.
    dir: String,
    rules: Vec<IgnoreRule>,
    above: IgnoreFiles,
}

/// One line of an ignore file.
#[derive(Debug)]
struct IgnoreRule {
    parts: Vec<String>,
    /// True if the rule starts at the directory of its file.
    anchored: bool,
    directories: bool,
    keeps: bool,
}

/// Only this much of an ignore file is read.
const MAX_IGNORE_BYTES: usize = 64 << 10;

impl IgnoreFiles {
    /// The same with the rules of a file in `dir`, a path from the project's root. A file
    /// that cannot be read adds none; of a large one only the first [`MAX_IGNORE_BYTES`]
    /// count.
    pub(super) fn and(&self, dir: &str, file: &Path) -> Self {
        let Ok(text) = std::fs::read(file) else { return self.clone() };
        let text =
            String::from_utf8_lossy(text.get(..MAX_IGNORE_BYTES).unwrap_or(&text)).into_owned();
        self.and_text(dir, &text)
    }

    fn and_text(&self, dir: &str, text: &str) -> Self {
        let rules: Vec<IgnoreRule> = text.lines().filter_map(IgnoreRule::parse).collect();
        Self { here: Some(Rc::new(IgnoreFile { dir: dir.to_owned(), rules, above: self.clone() })) }
    }

    /// True if a path from the project's root is ignored. In one file the last rule that
    /// matches decides; of several files the nearest decides.
    pub(super) fn covers(&self, path: &str, directory: bool) -> bool {
        let mut level = self.here.as_ref();
        while let Some(here) = level {
            let below = match here.dir.as_str() {
                "" => Some(path),
                dir => path.strip_prefix(dir).and_then(|rest| rest.strip_prefix('/')),
            };
            let matches =
                |rule: &&IgnoreRule| below.is_some_and(|path| rule.matches(path, directory));
            if let Some(rule) = here.rules.iter().rev().find(matches) {
                return !rule.keeps;
            }
            level = here.above.here.as_ref();
        }
        false
    }
}

impl IgnoreRule {
    /// `None` for an empty line and a comment.
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
        // Several `**` in a row mean the same as one, and take much longer to match.
        parts.dedup_by(|a, b| a == "**" && b == "**");
        (!parts.is_empty()).then_some(Self { parts, anchored, directories, keeps })
    }

    /// True if the rule is about a path, given from the directory of its file. A rule without
    /// an inner slash looks at the last name only.
    fn matches(&self, path: &str, directory: bool) -> bool {
        if self.directories && !directory {
            return false;
        }
        let names: Vec<&str> = path.split('/').collect();
        if self.anchored {
            return matches_path(&self.parts, &names);
        }
        names.last().is_some_and(|name| matches_path(&self.parts, &[name]))
    }
}

/// True if the parts of a pattern match names one by one; `**` stands for any number.
fn matches_path(parts: &[String], names: &[&str]) -> bool {
    match (parts.split_first(), names.split_first()) {
        (None, None) => true,
        (Some((part, rest)), _) if part == "**" => (0..=names.len())
            .any(|skip| names.get(skip..).is_some_and(|left| matches_path(rest, left))),
        (Some((part, rest)), Some((name, left))) => {
            matches_name(part, name) && matches_path(rest, left)
        }
        _ => false,
    }
}

/// True if a pattern with `*` and `?` matches one name.
fn matches_name(pattern: &str, name: &str) -> bool {
    // It remembers only the last `*` to go back to, so it takes at most
    // pattern length times name length steps.
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

    fn ignored(text: &str) -> IgnoreFiles {
        IgnoreFiles::default().and_text("", text)
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

    /// The meaning of `*` and `?` in the simplest form, however slow.
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
            prop_assert_eq!(matches_name(&pattern, &name), plainly(&chars(&pattern), &chars(&name)));
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
