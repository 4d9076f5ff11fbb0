//! The answer of a sandbox about one path, for tools that run in the agent's own process
//! (Read, Write, …), where no kernel rule holds. The planner turns the same rules into
//! kernel state. Both use the order of this module: for each capability, the most specific
//! matching key wins. A key that is the path itself comes before a pattern, and a pattern
//! before a subtree. Of two subtrees the longer path wins, of two equal keys the stricter
//! effect.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use crate::action::FileUse;
use crate::effect::{Effect, FileCaps};
use crate::path::{LinkResolver, NoLinks, PathError, PolicyPlaces, ProtectedLink, is_below};
use crate::pattern::{path_glob_matches, path_glob_reached};
use crate::protect::{self, KeepMode, PersistencePath};
use crate::sandbox::{PathPattern, Sandbox, WriteTarget};

/// Facts about the machine and the session, collected by the binary.
#[derive(Clone, Copy, Debug)]
pub struct JudgeContext<'a> {
    pub places: &'a PolicyPlaces,
    /// The directory in which a script starts; its `cd` commands are relative to it.
    pub cwd: &'a Path,
    pub links: &'a dyn LinkResolver,
    /// Paths that every sandbox may read or execute unless a rule denies it.
    pub baseline: &'a [(&'a str, FileCaps)],
    /// Paths that no sandbox may change: files of clash and settings of agents.
    pub cage: &'a [PathBuf],
    /// The temporary directory of the session: it lies in the cage but may be changed.
    pub lent: Option<&'a Path>,
}

impl<'a> JudgeContext<'a> {
    /// A context without links, baseline and cage, with the project as working directory.
    /// Callers that know the disk replace these fields.
    pub fn without_disk(places: &'a PolicyPlaces) -> Self {
        let (cwd, links) = (&places.project, &NoLinks);
        Self { places, cwd, links, baseline: &[], cage: &[], lent: None }
    }
}

/// True if no tool may change a file: it lies in the cage and not in the lent directory, or
/// it lies in the project and steers an agent, as `.claude` does.
pub(crate) fn is_caged(file: &FileUse, context: &JudgeContext<'_>) -> bool {
    let path = folded(&file.path, file.caseless);
    context.cage.iter().any(|own| is_below(&path, &folded(own, file.caseless)))
        && !context.lent.is_some_and(|lent| is_below(&path, &folded(lent, file.caseless)))
        || steers_agent(&path, &folded(&context.places.project, file.caseless))
}

/// True if a path below the project steers an agent or clash, at any depth: a nested
/// repository has settings of its own. A worktree of the agent in `.claude/worktrees`
/// is a project again.
fn steers_agent(path: &Path, project: &Path) -> bool {
    let Ok(inside) = path.strip_prefix(project) else { return false };
    let names: Vec<&OsStr> = inside.iter().collect();
    (0..names.len())
        .any(|at| names.get(at).is_some_and(|name| protect::is_caged(name, names.get(at + 1))))
}

/// The form of a path for comparisons: lower case on a volume that does not distinguish
/// case.
fn folded(path: &Path, caseless: bool) -> Cow<'_, Path> {
    match caseless {
        true => Cow::Owned(path.to_string_lossy().to_lowercase().into()),
        false => Cow::Borrowed(path),
    }
}

/// The effect for one path, and the rule of the sandbox that decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathVerdict {
    pub effect: Effect,
    /// Index into [`Sandbox::fs`]; `None` if no rule matches: then the baseline or the
    /// default decided.
    pub rule: Option<usize>,
    /// The capability that decided.
    pub caps: FileCaps,
    /// The persistence path that decided, and the reason why it is on the list.
    pub kept: Option<(String, &'static str)>,
}

/// Judges a file for all capabilities it needs; the strictest verdict holds. An allowed
/// change of a persistence path or of a `cache()` tree becomes an ask. The cage is not
/// judged here.
pub fn judge(
    sandbox: &Sandbox,
    file: &FileUse,
    context: &JudgeContext<'_>,
) -> Result<PathVerdict, PathError> {
    let mut verdict =
        PathVerdict { effect: Effect::Allow, rule: None, caps: file.needs, kept: None };
    for mut one in each_by_rules(sandbox, file, context)? {
        if one.effect == Effect::Allow
            && let Some(entry) = kept(sandbox, one.rule, &file.path, one.caps, context)?
        {
            one.effect = Effect::Ask;
            one.kept = Some((entry.path.to_owned(), entry.why));
        }
        // A tool in the agent's process would write to the shared cache, not to the
        // cache of the project.
        let rule = one.rule.and_then(|at| sandbox.fs.get(at));
        let of_project = rule.is_some_and(|rule| rule.writes == WriteTarget::Project);
        if of_project && one.effect == Effect::Allow && one.caps.intersects(FileCaps::CHANGE) {
            one.effect = Effect::Ask;
        }
        if one.effect > verdict.effect || (verdict.rule.is_none() && one.effect == verdict.effect) {
            verdict = one;
        }
    }
    Ok(verdict)
}

/// The persistence path that a use of `path` would change, by its name or by a link with a
/// name of the list. `rule` is the rule that allows the use. `None` if the use changes
/// nothing, and in an unrestricted sandbox.
pub fn kept<'a>(
    sandbox: &'a Sandbox,
    rule: Option<usize>,
    path: &Path,
    needs: FileCaps,
    context: &JudgeContext<'_>,
) -> Result<Option<PersistencePath<'a>>, PathError> {
    let Some((root, tree)) = counts(sandbox, rule, path, needs, context)? else { return Ok(None) };
    let named = tree.strip_prefix(root).map_or(0, |inside| inside.iter().count());
    let by_name = path.strip_prefix(root).ok();
    let by_name = by_name.and_then(|below| protect::kept(&sandbox.protect, below, named, needs));
    Ok(by_name.or_else(|| under_link(sandbox, root, &tree, path, needs, context)))
}

/// The persistence path that a use of `path` would change because a link with a name of the
/// list leads there. Names on the list do not count. `rule` is the rule that allows the use:
/// a target that it grants by itself does not count either. `None` as in [`kept`].
pub fn kept_by_link<'a>(
    sandbox: &'a Sandbox,
    rule: Option<usize>,
    path: &Path,
    needs: FileCaps,
    context: &JudgeContext<'_>,
) -> Result<Option<PersistencePath<'a>>, PathError> {
    let counted = counts(sandbox, rule, path, needs, context)?;
    Ok(counted.and_then(|(root, tree)| under_link(sandbox, root, &tree, path, needs, context)))
}

/// The persistence path whose link leads to `path`. `tree` is the tree of the rule: if it
/// lies in the target of the link, the policy grants the target by itself, and the link
/// does not count.
fn under_link<'a>(
    sandbox: &'a Sandbox,
    root: &Path,
    tree: &Path,
    path: &Path,
    needs: FileCaps,
    context: &JudgeContext<'_>,
) -> Option<PersistencePath<'a>> {
    let aliases = context.links.aliases(path, root, &sandbox.protect);
    let meant = |alias: &&ProtectedLink| is_below(&alias.at, root) && !is_below(tree, &alias.to);
    aliases.iter().filter(meant).find_map(|alias| {
        let rest = path.strip_prefix(&alias.to).ok()?;
        // `join("")` would append a slash.
        let whole = rest.as_os_str().is_empty();
        let name = if whole { alias.at.clone() } else { alias.at.join(rest) };
        protect::kept(&sandbox.protect, name.strip_prefix(root).ok()?, 0, needs)
    })
}

/// True if a new link of this name would bypass the list: the name begins an entry that no
/// command may create, so the entry would lead into the target of the link.
pub fn opens_way(
    sandbox: &Sandbox,
    rule: Option<usize>,
    path: &Path,
    context: &JudgeContext<'_>,
) -> Result<bool, PathError> {
    let counted = counts(sandbox, rule, path, FileCaps::CREATE, context)?;
    let below = counted.and_then(|(root, _)| path.strip_prefix(root).ok());
    let never_made = |keep| matches!(keep, KeepMode::Always | KeepMode::OfWorktree);
    Ok(below.is_some_and(|below| protect::begins(&sandbox.protect, below, never_made)))
}

/// The directory below which the list counts for a use of `path`, and the tree of the rule.
/// The directory is the home if the rule grants all of it, and the project otherwise.
/// `path` may lie outside: it may still be the target of a link inside. `None` if the list
/// does not count, because the use changes nothing or the sandbox is unrestricted.
fn counts<'w>(
    sandbox: &Sandbox,
    rule: Option<usize>,
    path: &Path,
    needs: FileCaps,
    context: &JudgeContext<'w>,
) -> Result<Option<(&'w Path, PathBuf)>, PathError> {
    if !needs.intersects(FileCaps::CHANGE) || sandbox.unrestricted {
        return Ok(None);
    }
    let tree = match rule.and_then(|index| sandbox.fs.get(index)) {
        Some(rule) => context.links.real(&context.places.expand(rule.pattern.fixed())?),
        None => PathBuf::from("/"),
    };
    let PolicyPlaces { project, home, .. } = context.places;
    let of_home = !is_below(path, project) && is_below(path, home) && is_below(home, &tree);
    Ok(Some((if of_home { home } else { project }, tree)))
}

/// True if a rule denies or asks about a path below `to` but not about the same name below
/// `at`. A link from `at` to `to` would then show that path. True in cases of doubt.
pub fn denies_below(
    sandbox: &Sandbox,
    at: &Path,
    to: &Path,
    context: &JudgeContext<'_>,
) -> Result<bool, PathError> {
    let content = FileCaps::READ.union(FileCaps::WRITE).union(FileCaps::CREATE);
    for rule in sandbox.fs.iter().filter(|rule| rule.effect != Effect::Allow) {
        if !rule.caps.intersects(content) {
            continue;
        }
        let fixed = context.links.follow(context.places.placed(rule.pattern.fixed())?);
        if *fixed != *to && is_below(&fixed, to) {
            return Ok(true);
        }
        let Ok(second) = to.strip_prefix(&fixed) else { continue };
        let first = at.strip_prefix(&fixed).ok();
        let denies = match &rule.pattern {
            // The kernel rule for the path itself also covers the paths below it.
            PathPattern::Literal(_) | PathPattern::Subpath { .. } => false,
            PathPattern::Children(_) => second.as_os_str().is_empty(),
            PathPattern::Glob { pattern, .. } => {
                let reached = |dir: &Path| path_glob_reached(pattern, &dir.to_string_lossy());
                first.is_none_or(|first| reached(first) != reached(second))
            }
            PathPattern::Regex { regex, .. } => {
                let anywhere = [".*", "(.*/)?", "(?:.*/)?"];
                let begins = anywhere.iter().any(|begin| regex.pattern.starts_with(begin));
                first.is_none() || !begins
            }
        };
        if denies {
            return Ok(true);
        }
    }
    Ok(false)
}

/// True if all paths below the two directories are judged alike, so that a rename from
/// one to the other changes no right. False in cases of doubt.
pub fn alike_below(
    sandbox: &Sandbox,
    one: &Path,
    other: &Path,
    context: &JudgeContext<'_>,
) -> Result<bool, PathError> {
    let strictly_below = |path: &Path, dir: &Path| path != dir && is_below(path, dir);
    for rule in &sandbox.fs {
        let fixed = context.links.follow(context.places.placed(rule.pattern.fixed())?);
        if strictly_below(&fixed, one) || strictly_below(&fixed, other) {
            return Ok(false);
        }
        let [first, second] = [one, other].map(|path| path.strip_prefix(&fixed).ok());
        let alike = match (&rule.pattern, first, second) {
            (PathPattern::Literal(_), ..) | (_, None, None) => true,
            (PathPattern::Children(_), first, second) => {
                let here = |rest: Option<&Path>| rest.is_some_and(|r| r.as_os_str().is_empty());
                !here(first) && !here(second)
            }
            (_, None, _) | (_, _, None) => false,
            (PathPattern::Subpath { .. }, ..) => true,
            (PathPattern::Glob { pattern, .. }, Some(first), Some(second)) => {
                let [first, second] = [first, second].map(|rest| {
                    let reached = |dir: &Path| path_glob_reached(pattern, &dir.to_string_lossy());
                    let above = rest
                        .ancestors()
                        .filter(|dir| !dir.as_os_str().is_empty())
                        .any(|dir| reached(dir).last() == Some(&true));
                    (above, reached(rest))
                });
                first == second
            }
            // The state of a regular expression after two different prefixes is not
            // compared.
            (PathPattern::Regex { .. }, ..) => false,
        };
        if !alike {
            return Ok(false);
        }
    }
    let places = context.places;
    for root in [&places.project, &places.home] {
        match [one, other].map(|path| path.strip_prefix(root).ok()) {
            [None, None] => {}
            [Some(first), Some(second)] => {
                if !protect::alike_below(&sandbox.protect, first, second) {
                    return Ok(false);
                }
            }
            _ => return Ok(false),
        }
        if strictly_below(root, one) || strictly_below(root, other) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The verdict of the rules for each needed capability, without the list of persistence
/// paths. Without a matching rule, the baseline or the default decides. Each pattern is
/// matched once for all its capabilities.
pub fn each_by_rules(
    sandbox: &Sandbox,
    file: &FileUse,
    context: &JudgeContext<'_>,
) -> Result<Vec<PathVerdict>, PathError> {
    let needed = FileCaps::each().filter(|cap| file.needs.contains(*cap));
    // The default is farther away than any rule.
    let mut closest: Vec<(Option<(u8, usize)>, PathVerdict)> =
        needed.map(|cap| (None, by_default(sandbox, file, cap, context))).collect();
    for (index, rule) in sandbox.fs.iter().enumerate() {
        if !rule.caps.intersects(file.needs) {
            continue;
        }
        let Some(found) = closeness(&rule.pattern, file, context)? else { continue };
        if rule.writes == WriteTarget::Masked && is_lifted(sandbox, file, context)? {
            continue;
        }
        // A deny or ask also covers all paths below a matching directory. An allow
        // covers only paths that the pattern itself matches.
        if found.above && rule.effect == Effect::Allow {
            continue;
        }
        for (rank, known) in closest.iter_mut().filter(|(_, one)| rule.caps.contains(one.caps)) {
            if rank.is_none() || (Some(found.rank), rule.effect) > (*rank, known.effect) {
                *rank = Some(found.rank);
                (known.effect, known.rule) = (rule.effect, Some(index));
            }
        }
    }
    Ok(closest.into_iter().map(|(_, verdict)| verdict).collect())
}

/// True if a rule allows to read the file itself by its own path: then no mask is over it.
fn is_lifted(
    sandbox: &Sandbox,
    file: &FileUse,
    context: &JudgeContext<'_>,
) -> Result<bool, PathError> {
    for rule in &sandbox.fs {
        let (PathPattern::Subpath { path, .. } | PathPattern::Literal(path)) = &rule.pattern else {
            continue;
        };
        let gives = rule.effect == Effect::Allow && rule.caps.contains(FileCaps::READ);
        if gives && context.links.follow(context.places.placed(path)?) == file.path {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The verdict if no rule matches a path: allow in the baseline and in an unrestricted
/// sandbox, otherwise the default of the sandbox.
fn by_default(
    sandbox: &Sandbox,
    file: &FileUse,
    cap: FileCaps,
    context: &JudgeContext<'_>,
) -> PathVerdict {
    let in_baseline = context
        .baseline
        .iter()
        .any(|(base, caps)| caps.contains(cap) && is_below(&file.path, Path::new(base)));
    let effect = if in_baseline || sandbox.unrestricted { Effect::Allow } else { sandbox.default };
    PathVerdict { effect, rule: None, caps: cap, kept: None }
}

/// How a path pattern matches a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RuleCloseness {
    /// Greater is more specific: the path itself, then a pattern, then a subtree around
    /// the file. Of two subtrees, the longer path is more specific.
    pub(crate) rank: (u8, usize),
    /// The pattern matches a directory around the file and not the file.
    pub(crate) above: bool,
}

/// How a path pattern matches a file; `None` if it does not. Links in the fixed part of the
/// pattern are followed. An automaton that cannot be read matches every path.
pub(crate) fn closeness(
    pattern: &PathPattern,
    file: &FileUse,
    context: &JudgeContext<'_>,
) -> Result<Option<RuleCloseness>, PathError> {
    let fixed = context.links.follow(context.places.placed(pattern.fixed())?);
    let (fixed, path) = (folded(&fixed, file.caseless), folded(&file.path, file.caseless));
    if !is_below(&path, &fixed) {
        return Ok(None);
    }
    let Ok(rest) = path.strip_prefix(&fixed) else { return Ok(None) };
    let length = fixed.as_os_str().len();
    let here = |rank| Some(RuleCloseness { rank, above: false });
    let by_name = |text: &str, matches: &dyn Fn(&Path) -> bool| {
        let rank = (1, length + text.chars().filter(|c| !matches!(c, '*' | '?')).count());
        let above = rest.ancestors().skip(1).any(|dir| !dir.as_os_str().is_empty() && matches(dir));
        if matches(rest) { here(rank) } else { above.then_some(RuleCloseness { rank, above }) }
    };
    Ok(match pattern {
        PathPattern::Subpath { .. } if rest.as_os_str().is_empty() => here((2, length)),
        PathPattern::Subpath { .. } => here((0, length)),
        PathPattern::Literal(_) if rest.as_os_str().is_empty() => here((2, length + 1)),
        PathPattern::Literal(_) => None,
        PathPattern::Children(_) => {
            if rest.components().count() == 1 {
                here((1, length))
            } else {
                None
            }
        }
        PathPattern::Glob { pattern, .. } => {
            let pattern = if file.caseless { pattern.to_lowercase() } else { pattern.clone() };
            by_name(&pattern, &|path| path_glob_matches(&pattern, &path.to_string_lossy()))
        }
        PathPattern::Regex { regex, prefix } => by_name(&regex.pattern, &|path| {
            // Without a fixed directory, the expression matches whole paths.
            let whole = |path: &Path| if prefix == "/" { fixed.join(path) } else { path.into() };
            let is = |text: &str| regex.matches(text).unwrap_or(true);
            let folded = whole(path).to_string_lossy().into_owned();
            // An automaton distinguishes case. On a volume that does not, the likely
            // spellings are tried.
            let spelled = || {
                let parts = file.path.components().skip(fixed.components().count());
                whole(&parts.take(path.components().count()).collect::<PathBuf>())
            };
            is(&folded)
                || (file.caseless
                    && (is(&folded.to_uppercase()) || is(&spelled().to_string_lossy())))
        }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sandbox::FsRule;
    use crate::span::PolicySpan;

    fn rule(pattern: PathPattern, effect: Effect, caps: &str) -> FsRule {
        let caps = FileCaps::parse(caps).unwrap();
        FsRule { pattern, effect, caps, writes: WriteTarget::InPlace, span: PolicySpan::default() }
    }

    fn below(path: &str) -> PathPattern {
        PathPattern::Subpath { path: path.to_owned(), follow_worktrees: false }
    }

    /// The effect of the sandbox of [`with_rules`] for a path.
    fn judged(path: &str, needs: &str, caseless: bool) -> Effect {
        let file = FileUse { path: path.into(), needs: FileCaps::parse(needs).unwrap(), caseless };
        with_rules(|sandbox, context| judge(sandbox, &file, context).unwrap().effect)
    }

    /// Calls `test` with a sandbox of five rules in the project `/home/u/app`.
    fn with_rules<T>(test: impl Fn(&Sandbox, &JudgeContext<'_>) -> T) -> T {
        let sandbox = Sandbox {
            default: Effect::Ask,
            fs: vec![
                rule(below("$PWD"), Effect::Allow, "rwcdx"),
                rule(below("$PWD/secret"), Effect::Deny, "rwcdx"),
                rule(below("$PWD/secret/open"), Effect::Allow, "r"),
                rule(
                    PathPattern::Glob { prefix: "$PWD".into(), pattern: "**/.env".into() },
                    Effect::Deny,
                    "rwcdx",
                ),
                rule(PathPattern::Literal("$HOME/.gitconfig".into()), Effect::Allow, "r"),
            ],
            ..Sandbox::named("s")
        };
        let places = PolicyPlaces {
            project: "/home/u/app".into(),
            home: "/home/u".into(),
            tmp: "/tmp".into(),
            vars: vec![],
        };
        let baseline = [("/usr", FileCaps::parse("rx").unwrap())];
        let context = JudgeContext { baseline: &baseline, ..JudgeContext::without_disk(&places) };
        test(&sandbox, &context)
    }

    fn effect(path: &str, needs: &str) -> Effect {
        judged(path, needs, false)
    }

    #[test]
    fn a_denied_name_is_denied_at_any_depth_with_all_below_it() {
        assert_eq!(effect("/home/u/app/secret/open/.env", "r"), Effect::Deny);
        assert_eq!(effect("/home/u/app/.env/key", "r"), Effect::Deny);
        assert_eq!(effect("/home/u/app/x.env", "r"), Effect::Allow);
    }

    #[test]
    fn rules_ignore_case_on_volumes_that_do() {
        assert_eq!(judged("/home/u/app/SECRET/x", "r", false), Effect::Allow);
        assert_eq!(judged("/home/u/app/SECRET/x", "r", true), Effect::Deny);
        assert_eq!(judged("/home/u/APP/.Env", "r", true), Effect::Deny);
    }

    #[test]
    fn an_expression_in_capitals_holds_on_caseless_volumes() {
        use regex_automata::dfa::{StartKind, dense};
        let made = |pattern: &str| {
            let anchored = dense::Config::new().start_kind(StartKind::Anchored);
            let text = format!(r"\A(?:{pattern})\z");
            let dfa = dense::Builder::new().configure(anchored).build(&text).unwrap();
            let automaton = dfa.to_sparse().unwrap().to_bytes_native_endian();
            crate::PolicyRegex { pattern: pattern.to_owned(), automaton }
        };
        let places = PolicyPlaces::imagined();
        let context = JudgeContext::without_disk(&places);
        for pattern in ["SECRET[.]KEY", "Secret[.]key", "secret[.]key"] {
            let pattern = PathPattern::Regex { prefix: "$PWD".into(), regex: made(pattern) };
            let path = places.project.join("Secret.key");
            let file = FileUse { path, needs: FileCaps::READ, caseless: true };
            assert!(closeness(&pattern, &file, &context).unwrap().is_some(), "{pattern}");
        }
    }

    #[test]
    fn the_longest_key_wins_per_capability() {
        assert_eq!(effect("/home/u/app/src/x.rs", "rw"), Effect::Allow);
        assert_eq!(effect("/home/u/app/secret/x", "r"), Effect::Deny);
        assert_eq!(effect("/home/u/app/secret/open/x", "r"), Effect::Allow);
        assert_eq!(effect("/home/u/app/secret/open/x", "rw"), Effect::Deny);
        assert_eq!(effect("/home/u/app/deep/.env", "r"), Effect::Deny);
        assert_eq!(effect("/home/u/app/.env", "r"), Effect::Deny);
    }

    #[test]
    fn a_change_of_a_persistence_path_is_asked() {
        assert_eq!(effect("/home/u/app/.vscode/tasks.json", "c"), Effect::Ask);
        assert_eq!(effect("/home/u/app/sub/.git/hooks/pre-commit", "wc"), Effect::Ask);
        assert_eq!(effect("/home/u/app/.vscode/tasks.json", "r"), Effect::Allow);
        assert_eq!(effect("/home/u/app/secret/.vscode/x", "w"), Effect::Deny);
    }

    #[test]
    fn directories_are_alike_only_if_no_right_changes_below() {
        let alike = |one: &str, other: &str| {
            with_rules(|sandbox, context| {
                let app = Path::new("/home/u/app");
                alike_below(sandbox, &app.join(one), &app.join(other), context).unwrap()
            })
        };
        assert!(alike("a", "b") && alike("a/b", "c"));
        assert!(!alike("a", ".git") && !alike("secret", "a") && !alike("a", ".env"));
        assert!(!alike("a", "/home/u/other"));
        assert!(!alike("a", "secret/open") && !alike("secret/a", "a"));
    }

    #[test]
    fn a_link_must_not_show_a_denied_path_below_its_target() {
        let glob = |prefix: &str, pattern: &str| {
            let pattern = PathPattern::Glob { prefix: prefix.into(), pattern: pattern.into() };
            rule(pattern, Effect::Deny, "r")
        };
        let (plain, deep) = (glob("$PWD", "**/.env"), glob("$PWD", "**/conf/key"));
        let inner = glob("$PWD/conf", "*.key");
        let places = PolicyPlaces::imagined();
        let cwd = &places.project;
        let context = JudgeContext::without_disk(&places);
        let shows = |rule: &FsRule, to: &str| {
            let sandbox = Sandbox { fs: vec![rule.clone()], ..Sandbox::named("s") };
            let [at, to] = ["L", to].map(|path| cwd.join(path));
            denies_below(&sandbox, &at, &to, &context).unwrap()
        };
        assert!(!shows(&plain, "src") && !shows(&plain, "a/b"));
        assert!(shows(&deep, "a/conf") && !shows(&deep, "a"));
        assert!(shows(&inner, "conf") && !shows(&inner, "src"));
        assert!(shows(&rule(below("$PWD/a/b"), Effect::Deny, "r"), "a"));
        assert!(!shows(&rule(below("$PWD/a/b"), Effect::Allow, "r"), "a"));
    }

    #[test]
    fn the_default_holds_without_a_key_and_the_baseline_is_read() {
        assert_eq!(effect("/home/u/.ssh/id_ed25519", "r"), Effect::Ask);
        assert_eq!(effect("/home/u/app-evil/x", "r"), Effect::Ask);
        assert_eq!(effect("/usr/include/stdio.h", "r"), Effect::Allow);
        assert_eq!(effect("/usr/include/stdio.h", "w"), Effect::Ask);
        assert_eq!(effect("/home/u/.gitconfig", "r"), Effect::Allow);
        assert_eq!(effect("/home/u/.gitconfig", "w"), Effect::Ask);
    }
}
