//! Path patterns of other tools, and the path keys that say the same.
//!
//! The source patterns are those of gitignore: one without a slash matches at
//! any depth, and what matches a directory holds for everything in it. In keys,
//! a bare string is the path and everything below, `*` stays within a name and
//! `**` stands for any number of directories, also none.

use clash_syntax::draft::KeyDraft;

use crate::SettingsBase;

/// No user writes deeper paths.
const MAX_PATH_PARTS: usize = 64;

/// The directory that a path starts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PathRoot {
    Project,
    Home,
    Tmp,
    Slash,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PathPart {
    Name(String),
    Glob(String),
    /// `**`: any number of directories.
    AnyDepth,
}

/// The side of the rule: an allow may cover less than was written, a deny or an ask may
/// cover more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RuleSide {
    Allow,
    Restrict,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PathReach {
    /// The path and everything below it.
    Below,
    /// Only the paths below it.
    Inside,
}

/// A path pattern below a root.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ImportedPath {
    pub(crate) root: PathRoot,
    pub(crate) parts: Vec<PathPart>,
    pub(crate) reach: PathReach,
}

/// A pattern, and its difference from the written one, if any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConvertedPath {
    pub(crate) pattern: ImportedPath,
    pub(crate) differs: Option<&'static str>,
}

impl ImportedPath {
    /// A root and everything below it.
    pub(crate) fn all_of(root: PathRoot) -> Self {
        Self { root, parts: Vec::new(), reach: PathReach::Below }
    }

    /// A path and everything below it.
    pub(crate) fn below(root: PathRoot, names: &[&str]) -> Self {
        let parts = names.iter().map(|name| PathPart::Name((*name).to_owned())).collect();
        Self { root, parts, reach: PathReach::Below }
    }

    /// True if a part is a wildcard.
    pub(crate) fn is_wild(&self) -> bool {
        self.parts.iter().any(|part| !matches!(part, PathPart::Name(_)))
    }

    /// The path as text, with its variable.
    pub(crate) fn text(&self) -> String {
        let root = match self.root {
            PathRoot::Project => "$PWD",
            PathRoot::Home => "$HOME",
            PathRoot::Tmp => "$TMPDIR",
            PathRoot::Slash => "",
        };
        let mut out = root.to_owned();
        for part in &self.parts {
            out.push('/');
            out.push_str(match part {
                PathPart::Name(text) | PathPart::Glob(text) => text,
                PathPart::AnyDepth => "**",
            });
        }
        if out.is_empty() { "/".to_owned() } else { out }
    }

    /// Like `key`, but `dir/**` then excludes `dir` itself, which may be a file. A kernel
    /// rule cannot express this.
    pub(crate) fn strict_key(&self) -> KeyDraft {
        match self.reach {
            PathReach::Inside => {
                KeyDraft::glob(format!("{}/*/**", self.text().trim_end_matches('/')))
            }
            PathReach::Below => self.key(),
        }
    }

    /// The path as a key. A wildcard needs two globs: for the path and for everything below
    /// it.
    pub(crate) fn key(&self) -> KeyDraft {
        let text = self.text();
        let inside = format!("{}/**", text.trim_end_matches('/'));
        match (self.is_wild(), self.reach) {
            (false, PathReach::Below) => KeyDraft::text(text),
            (_, PathReach::Inside) => KeyDraft::glob(inside),
            (true, PathReach::Below) => {
                KeyDraft::any_of([KeyDraft::glob(text), KeyDraft::glob(inside)])
            }
        }
    }
}

const RELATIVE_BASE: &str = "the directory of the settings is not absolute";

/// The path in a permission rule: `//abs`, `~/home`, `/from-the-settings`, or relative to
/// the working directory. A negation, and as an allow a comment, are errors.
pub(crate) fn in_rule(
    text: &str,
    base: SettingsBase<'_>,
    side: RuleSide,
) -> Result<ConvertedPath, &'static str> {
    let (root, start, rest, anchored) = if let Some(rest) = text.strip_prefix("//") {
        (PathRoot::Slash, Vec::new(), rest, true)
    } else if let Some(rest) = home(text) {
        (PathRoot::Home, Vec::new(), rest, true)
    } else if let Some(rest) = text.strip_prefix('/') {
        let (root, names) = based(base).ok_or(RELATIVE_BASE)?;
        (root, names, rest, true)
    } else {
        (PathRoot::Project, Vec::new(), text.strip_prefix("./").unwrap_or(text), false)
    };
    match (rest.chars().next(), side) {
        (Some('!'), _) => return Err("it is a negation, which only takes back another rule"),
        (Some('#'), RuleSide::Allow) => return Err("it is a comment, which allows nothing"),
        _ => {}
    }
    let one_name = !anchored && !rest.trim_end_matches('/').contains('/');
    // `./x` looks bound to the directory, but is matched as `x` is: at any
    // depth. An allow takes the narrower reading.
    let any_depth = one_name && (side == RuleSide::Restrict || !text.starts_with("./"));
    build(root, start, any_depth, rest, side)
}

/// A path in the file lists of a sandbox: absolute, below the home, or relative to the
/// project (to the settings' directory outside of one). A variable that clash does not know
/// is an error.
pub(crate) fn in_list(
    text: &str,
    base: SettingsBase<'_>,
    side: RuleSide,
) -> Result<ConvertedPath, &'static str> {
    let (root, start, rest) = if let Some(rest) = text.strip_prefix('/') {
        (PathRoot::Slash, Vec::new(), rest)
    } else if let Some(rest) = home(text) {
        (PathRoot::Home, Vec::new(), rest)
    } else if let Some((root, rest)) = variable(text) {
        (root, Vec::new(), rest)
    } else if text.starts_with('$') {
        return Err("clash does not know the value of the variable");
    } else {
        let (root, names) = based(base).ok_or(RELATIVE_BASE)?;
        (root, names, text)
    };
    build(root, start, false, rest, side)
}

/// The pattern of the text `rest` below `root` and `start`. On the side of an allow, parts
/// that a key cannot express are errors; on the other side they become wider, and `differs`
/// tells how.
fn build(
    root: PathRoot,
    start: Vec<PathPart>,
    any_depth: bool,
    rest: &str,
    side: RuleSide,
) -> Result<ConvertedPath, &'static str> {
    let (names, mut reach) = reach(rest);
    let mut names: Vec<&str> =
        names.split('/').filter(|name| !name.is_empty() && *name != ".").collect();
    let (mut root, mut parts, mut differs) = (root, start, None);
    if any_depth {
        parts.push(PathPart::AnyDepth);
    }
    if let Some(at) = names.iter().rposition(|name| *name == "..") {
        if side == RuleSide::Allow {
            return Err("`..` leads out of the place that is known");
        }
        // The parent is unknown, so every path with this name is covered.
        differs =
            Some("clash does not know where `..` leads, so the rule covers this name everywhere");
        names.drain(..=at);
        root = PathRoot::Slash;
        parts = vec![PathPart::AnyDepth];
    }
    for name in names {
        let (part, exact) = part(name);
        if !exact {
            if side == RuleSide::Allow {
                return Err("a key cannot contain `[…]` or an escaped wildcard");
            }
            differs = Some("`[…]` or an escaped wildcard covers any character");
        }
        if !(part == PathPart::AnyDepth && parts.last() == Some(&PathPart::AnyDepth)) {
            parts.push(part);
        }
    }
    if parts.len() > MAX_PATH_PARTS {
        if side == RuleSide::Allow {
            return Err("the path is too deep");
        }
        parts.truncate(MAX_PATH_PARTS);
        differs = Some("the path is too deep, so the rule covers its beginning");
    }
    while parts.last() == Some(&PathPart::AnyDepth) {
        parts.pop();
        reach = PathReach::Inside;
    }
    if side == RuleSide::Restrict {
        reach = PathReach::Below;
    }
    Ok(ConvertedPath { pattern: ImportedPath { root, parts, reach }, differs })
}

/// The root of a leading `$PWD`, `$HOME` or `$TMPDIR`, and the rest.
fn variable(text: &str) -> Option<(PathRoot, &str)> {
    let known =
        [("$PWD", PathRoot::Project), ("$HOME", PathRoot::Home), ("$TMPDIR", PathRoot::Tmp)];
    known.iter().find_map(|(name, root)| {
        let rest = text.strip_prefix(name)?;
        (rest.is_empty() || rest.starts_with('/')).then_some((*root, rest))
    })
}

/// The rest behind `~`.
fn home(text: &str) -> Option<&str> {
    text.strip_prefix('~').filter(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The root and the names of the settings' directory. `None` if it is relative, or has `..`
/// or a wildcard.
fn based(base: SettingsBase<'_>) -> Option<(PathRoot, Vec<PathPart>)> {
    let (root, text) = match base {
        SettingsBase::Project => (PathRoot::Project, ""),
        SettingsBase::Home(below) => (PathRoot::Home, below),
        SettingsBase::Directory(path) => (PathRoot::Slash, path.strip_prefix('/')?),
    };
    let names = text.split('/').filter(|name| !name.is_empty() && *name != ".");
    let plain = |name: &str| name != ".." && !name.contains(['*', '?', '[', '\\']);
    let parts = names.map(|name| plain(name).then(|| PathPart::Name(name.to_owned())));
    Some((root, parts.collect::<Option<_>>()?))
}

/// Takes the part off the end that only says how far down the pattern reaches.
/// `dir/*` is every child and, a child being a directory, everything in it.
fn reach(text: &str) -> (&str, PathReach) {
    let short = ["/**/*", "/**", "/*", "/"].iter().find_map(|end| text.strip_suffix(end));
    match (short, text) {
        (Some(names), _) => (names, PathReach::Inside),
        (None, "**" | "*") => ("", PathReach::Inside),
        (None, _) => (text, PathReach::Below),
    }
}

/// One name of a path, and true if it is exactly the written one. `[…]` and an escaped
/// wildcard become `?`.
fn part(name: &str) -> (PathPart, bool) {
    if name == "**" {
        return (PathPart::AnyDepth, true);
    }
    let mut out = String::new();
    let (mut wild, mut exact) = (false, true);
    let mut rest = name;
    while let Some(c) = rest.chars().next() {
        rest = rest.get(c.len_utf8()..).unwrap_or_default();
        match c {
            '*' if out.ends_with('*') => {}
            '*' | '?' => {
                wild = true;
                out.push(c);
            }
            '[' => {
                (wild, exact) = (true, false);
                out.push('?');
                // A class that is not closed is a bracket; one that is, is
                // closed at the second character at the earliest.
                let class = rest.char_indices().skip(1).find(|(_, c)| *c == ']');
                rest = class.and_then(|(at, _)| rest.get(at + 1..)).unwrap_or(rest);
            }
            '\\' => {
                let escaped = rest.chars().next();
                rest = rest.get(escaped.map_or(0, char::len_utf8)..).unwrap_or_default();
                match escaped {
                    Some(c) if !"*?[".contains(c) => out.push(c),
                    _ => {
                        (wild, exact) = (true, false);
                        out.push('?');
                    }
                }
            }
            c => out.push(c),
        }
    }
    (if wild { PathPart::Glob(out) } else { PathPart::Name(out) }, exact)
}

/// True if a glob matches a whole name: `*` is any run of characters, `?` one.
pub(crate) fn name_matches(glob: &str, name: &str) -> bool {
    // The places in the pattern that can be reached after each character.
    let pattern: Vec<char> = glob.chars().collect();
    let open = |mut at: Vec<bool>| {
        for (index, c) in pattern.iter().enumerate() {
            if *c == '*' && at.get(index) == Some(&true) {
                at.iter_mut().skip(index + 1).take(1).for_each(|next| *next = true);
            }
        }
        at
    };
    let mut at = vec![false; pattern.len() + 1];
    at.iter_mut().take(1).for_each(|first| *first = true);
    at = open(at);
    for c in name.chars() {
        let mut next = vec![false; pattern.len() + 1];
        for (index, wanted) in pattern.iter().enumerate() {
            if at.get(index) != Some(&true) {
                continue;
            }
            let to = match wanted {
                '*' => index,
                '?' => index + 1,
                wanted if *wanted == c => index + 1,
                _ => continue,
            };
            next.iter_mut().skip(to).take(1).for_each(|place| *place = true);
        }
        at = open(next);
    }
    at.last() == Some(&true)
}

#[cfg(test)]
mod tests;
