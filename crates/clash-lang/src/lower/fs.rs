//! The file rules of a sandbox, from dicts of paths and effects.

use clash_policy::mask::{MaskSyntax, known_names};
use clash_policy::{Effect, FileCaps, FsRule, PathPattern, PolicySpan, WriteTarget};
use starlark::values::Value;
use starlark::values::dict::DictRef;
use starlark::values::list::ListRef;

use super::net::tree_entry;
use super::{alternatives, dict_entries, effect, loose_effect};
use crate::draft::SandboxDraft;
use crate::language_error::{LanguageError, LanguageResult};
use crate::older::PathValue;
use crate::value::{EffectValue, KeyValue};
use clash_policy::nearest::nearest;

/// The `fs` of a sandbox: a dict of paths and effects, or the older list.
pub(crate) fn fs_rules(value: Value<'_>, place: &PolicySpan) -> LanguageResult<Vec<FsRule>> {
    if let Some(list) = ListRef::from_value(value) {
        return older_list(list);
    }
    let mut rules = Vec::new();
    for (key, then) in dict_entries(value, "a dict of paths and effects")? {
        entry(key, then, "", place, &mut rules)?;
    }
    Ok(rules)
}

/// The older form: a list of paths, each with its effect. Another item is an error.
fn older_list(list: &ListRef<'_>) -> LanguageResult<Vec<FsRule>> {
    let mut rules = Vec::new();
    for item in list.iter() {
        let path = PathValue::from_value(item).ok_or_else(|| {
            LanguageError::new(format!("`{}` is no path with an effect", item.to_str()))
                .hint("a list holds cwd().allow(), home().child(\".cargo\").allow() and the like; otherwise write fs = {path: effect}")
                .near(item.to_str())
        })?;
        rules.extend(path.fs_rules()?);
    }
    Ok(rules)
}

/// The older form of a sandbox: files, hosts and the default in one dict. A string that
/// does not begin like a path is an error.
pub(crate) fn sandbox_tree(
    value: Value<'_>,
    place: &PolicySpan,
    draft: &mut SandboxDraft,
) -> LanguageResult<()> {
    for (key, then) in dict_entries(value, "a dict of paths, hosts and effects")? {
        if matches!(KeyValue::from_value(key), Some(KeyValue::Default)) {
            draft.sandbox.default = sandbox_default(then, place)?;
            draft.said.default = true;
        } else if let Some(text) =
            key.unpack_str().filter(|text| !text.starts_with(['/', '$', '~']))
        {
            return Err(LanguageError::new(format!("`{text}` is a plain string and no path"))
                .hint(format!("a host is domain(\"{text}\"), a path path(\"$PWD/{text}\")"))
                .near(text));
        } else if !tree_entry(key, then, place, draft)? {
            entry(key, then, "", place, &mut draft.sandbox.fs)?;
        }
    }
    Ok(())
}

/// The `default` of a sandbox, also as a string. Capabilities, `cow()` and `cache()` are
/// errors.
pub(crate) fn sandbox_default(value: Value<'_>, place: &PolicySpan) -> LanguageResult<Effect> {
    let effect = loose_effect(value, place)?;
    if effect.writes != WriteTarget::InPlace || effect.caps.is_some() {
        return Err(LanguageError::new("the default of a sandbox is allow(), ask() or deny()")
            .at(&effect.span)
            .hint("for single capabilities name a path: fs = {\"/\": allow(\"r\")}"));
    }
    Ok(effect.effect)
}

/// Adds the rules of one key below `base`. Inner dicts extend the base; an effect without
/// capabilities means all five. A sandbox at a rule, and `cache()` at a pattern, are
/// errors.
fn entry(
    key: Value<'_>,
    then: Value<'_>,
    base: &str,
    place: &PolicySpan,
    rules: &mut Vec<FsRule>,
) -> LanguageResult<()> {
    for key in alternatives(key)? {
        if DictRef::from_value(then).is_some() {
            let inner = join(base, directory(key)?)?;
            for (key, then) in dict_entries(then, "a dict of paths and effects")? {
                entry(key, then, &inner, place, rules)?;
            }
            continue;
        }
        let EffectValue { effect, writes, caps, sandbox, span, .. } = effect(then, place)?;
        if sandbox.is_some() {
            return Err(LanguageError::new("a file rule has no sandbox of its own").at(&span));
        }
        let caps = caps.unwrap_or(FileCaps::ALL);
        let pattern = path_pattern(key, base)?;
        let plain = matches!(&pattern, PathPattern::Subpath { follow_worktrees: false, .. });
        if writes == WriteTarget::Project && !plain {
            return Err(LanguageError::new("cache() is for a whole directory")
                .at(&span)
                .hint("write the directory as a plain path: \"$HOME/.cache/x\": cache()"));
        }
        let pattern = match writes {
            WriteTarget::Masked => masked_file(pattern, &span)?,
            _ => pattern,
        };
        rules.push(FsRule { pattern, effect, caps, writes, span });
    }
    Ok(())
}

/// The pattern of one file that clash can mask. A name that it does not know is an error:
/// only the name tells which texts are secrets.
fn masked_file(pattern: PathPattern, span: &PolicySpan) -> LanguageResult<PathPattern> {
    let (PathPattern::Subpath { path, follow_worktrees: false } | PathPattern::Literal(path)) =
        pattern
    else {
        return Err(LanguageError::new("masked() is for a single file")
            .at(span)
            .hint("write the file as a plain path: \"$HOME/.npmrc\": masked()"));
    };
    if MaskSyntax::of_path(&path).is_none() {
        let known: Vec<&str> = known_names().collect();
        return Err(LanguageError::new(format!("clash cannot mask `{path}`"))
            .at(span)
            .hint(format!("it can mask {}", known.join(", ")))
            .near(path));
    }
    Ok(PathPattern::Literal(path))
}

/// The path of a key that has a dict of further paths as its value. Only a plain path can.
fn directory(key: Value<'_>) -> LanguageResult<&str> {
    match (key.unpack_str(), KeyValue::from_value(key)) {
        (Some(path), _) => Ok(path),
        (_, Some(KeyValue::Subpath { path, follow_worktrees: false })) => Ok(path),
        _ => Err(LanguageError::new(format!("`{}` cannot have paths below it", key.to_str()))
            .hint("only a plain path can: \"$HOME\": {…}")
            .near(key.to_str())),
    }
}

/// A path below `base`, or an absolute path if `base` is empty. `..`, an unknown variable,
/// a relative path without a base and an absolute one below a base are errors.
pub(crate) fn join(base: &str, path: &str) -> LanguageResult<String> {
    let rooted = path.starts_with(['/', '$', '~']);
    if path.split('/').any(|part| part == "..") {
        return Err(LanguageError::new(format!("`{path}` climbs with `..`"))
            .hint("write the path without `..`")
            .near(path));
    }
    let joined = match (base.is_empty(), rooted) {
        (true, true) if path.trim_end_matches('/').is_empty() => "/".to_owned(),
        (true, true) => path.trim_end_matches('/').to_owned(),
        (false, false) => {
            format!("{}/{}", base.trim_end_matches('/'), path.trim_end_matches('/'))
        }
        (true, false) => {
            return Err(LanguageError::new(format!("`{path}` is a relative path"))
                .hint(format!("start it with $PWD, $HOME, $TMPDIR or /: \"$PWD/{path}\""))
                .near(path));
        }
        (false, true) => {
            return Err(LanguageError::new(format!(
                "`{path}` is absolute, but it is written below `{base}`"
            ))
            .near(path));
        }
    };
    check_variable(&joined)?;
    Ok(joined)
}

/// Fails if the path starts with a variable that clash does not know, for example
/// `$FOO/bar`, or if no slash follows the variable, as in `$HOME.x`.
fn check_variable(path: &str) -> LanguageResult<()> {
    let Some(named) = path.strip_prefix('$') else { return Ok(()) };
    let end = named.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(named.len());
    let (name, rest) = named.split_at_checked(end).unwrap_or((named, ""));
    let known: Vec<&str> = clash_policy::path::variables().collect();
    if !known.contains(&name) {
        let mistake =
            LanguageError::new(format!("`${name}` is no variable of a policy")).near(path);
        return Err(match nearest(name, known.iter().copied()) {
            Some(near) => mistake.hint(format!("did you mean `${near}`?")),
            None => mistake.hint(format!("known are ${}", known.join(", $"))),
        });
    }
    if !rest.is_empty() && !rest.starts_with('/') {
        return Err(LanguageError::new(format!("`${name}` is followed by `{rest}`"))
            .hint("a slash comes after a variable")
            .near(path));
    }
    Ok(())
}

/// The pattern of a path key, in a sandbox or below a file tool. Another key is an error.
pub(super) fn path_pattern(key: Value<'_>, base: &str) -> LanguageResult<PathPattern> {
    if let Some(path) = key.unpack_str() {
        return string_pattern(path, base);
    }
    match KeyValue::from_value(key) {
        Some(KeyValue::Subpath { path, follow_worktrees }) => Ok(PathPattern::Subpath {
            path: join(base, path)?,
            follow_worktrees: *follow_worktrees,
        }),
        Some(KeyValue::Literal(path)) => Ok(PathPattern::Literal(join(base, path)?)),
        Some(KeyValue::Glob { pattern, follow_worktrees }) => {
            glob_pattern(pattern, base, *follow_worktrees)
        }
        Some(KeyValue::Regex(pattern)) => {
            let regex = crate::regex::compile(pattern)?;
            let prefix = if base.is_empty() { "/".to_owned() } else { base.to_owned() };
            Ok(PathPattern::Regex { prefix, regex })
        }
        _ => Err(LanguageError::new(format!("`{}` cannot be a path key", key.to_str()))
            .hint("path keys are strings, subpath(), literal(), glob() and regex()")
            .near(key.to_str())),
    }
}

/// A plain string means the path and everything below it. A wildcard in it is an error.
pub(super) fn string_pattern(path: &str, base: &str) -> LanguageResult<PathPattern> {
    if path.contains(['*', '?']) {
        return Err(LanguageError::new(format!(
            "`{path}` contains a wildcard but is a plain string"
        ))
        .hint(format!("write glob(\"{path}\"), or literal(\"{path}\")"))
        .near(path));
    }
    Ok(PathPattern::Subpath { path: join(base, path)?, follow_worktrees: false })
}

/// `x/**` becomes the subtree and `x/*` the children. Any other glob stays a pattern below
/// the last directory without a wildcard; for it `follow_worktrees` is an error.
fn glob_pattern(pattern: &str, base: &str, follow_worktrees: bool) -> LanguageResult<PathPattern> {
    check_possible(pattern)?;
    let subtree = |path: String| Ok(PathPattern::Subpath { path, follow_worktrees });
    match pattern {
        "**" | "**/*" if !base.is_empty() => return subtree(base.to_owned()),
        "*" if !base.is_empty() => return Ok(PathPattern::Children(base.to_owned())),
        "*/**" | "**" | "/**" if base.is_empty() => return subtree("/".to_owned()),
        _ => {}
    }
    let wild = |text: &str| text.contains(['*', '?']);
    let pattern =
        pattern.strip_suffix("/**/*").map_or(pattern.to_owned(), |dir| format!("{dir}/**"));
    match pattern.rsplit_once('/') {
        Some((dir, "**")) if !wild(dir) => return subtree(join(base, dir)?),
        Some((dir, "*")) if !wild(dir) => return Ok(PathPattern::Children(join(base, dir)?)),
        _ if !wild(&pattern) => return Ok(PathPattern::Literal(join(base, &pattern)?)),
        _ => {}
    }
    if follow_worktrees {
        return Err(LanguageError::new(format!(
            "`{pattern}` is a pattern, and only a directory can have worktrees"
        ))
        .near(pattern));
    }
    let mut fixed: Vec<&str> = Vec::new();
    let mut rest = pattern.as_str();
    while let Some((first, tail)) = rest.split_once('/')
        && !wild(first)
    {
        fixed.push(first);
        rest = tail;
    }
    let prefix = match (fixed.as_slice(), base.is_empty()) {
        ([], false) => base.to_owned(),
        // A pattern of names alone, for example `**/.env`, matches in every directory.
        ([], true) if rest.starts_with("**/") => "/".to_owned(),
        ([""], true) => "/".to_owned(),
        _ => join(base, &fixed.join("/"))?,
    };
    Ok(PathPattern::Glob { prefix, pattern: rest.to_owned() })
}

/// Fails for a glob that no path can match, for example `a//b`, and for brackets.
fn check_possible(pattern: &str) -> LanguageResult<()> {
    let wrong = |why: &str| {
        Err(LanguageError::new(format!("`{pattern}` can match no path: {why}")).near(pattern))
    };
    let inner = pattern.strip_prefix('/').unwrap_or(pattern);
    let inner = inner.strip_suffix('/').unwrap_or(inner);
    if inner.is_empty() {
        return wrong("it is empty");
    }
    for part in inner.split('/') {
        match part {
            "" => return wrong("it contains an empty name"),
            "." | ".." => return wrong("it contains `.` or `..`"),
            "**" => {}
            _ if part.contains("**") => {
                return wrong("`**` stands alone between slashes; within a name use `*`");
            }
            _ => {}
        }
    }
    if pattern.contains(['[', '{']) {
        return Err(LanguageError::new(format!(
            "`{pattern}` contains brackets, which have no meaning in a glob"
        ))
        .hint("write a tuple of globs, or regex()")
        .near(pattern));
    }
    Ok(())
}
