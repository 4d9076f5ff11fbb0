//! The arguments `env`, `limits`, `lifetime`, `doors` and `protect` of a sandbox.

use clash_policy::{Effect, EnvRule, PolicySpan, ProcessLifetime, ResourceLimits};
use starlark::values::Value;
use starlark::values::list::ListRef;

use super::{alternatives, dict_entries, effect};
use crate::language_error::{LanguageError, LanguageResult};
use crate::value::KeyValue;
use clash_policy::nearest::nearest;

/// The rules for variables: names with `*` and `?`, or `default()` for all. `ask()` is an
/// error.
pub(crate) fn env(value: Value<'_>, place: &PolicySpan) -> LanguageResult<Vec<EnvRule>> {
    let mut rules = Vec::new();
    for (key, then) in dict_entries(value, "a dict of variables and effects")? {
        let effect = effect(then, place)?;
        if effect.effect == Effect::Ask {
            return Err(LanguageError::new("clash cannot ask about a variable")
                .at(&effect.span)
                .hint("use allow() or deny()"));
        }
        for key in alternatives(key)? {
            let name = match (key.unpack_str(), KeyValue::from_value(key)) {
                (Some(name), _) => name.to_owned(),
                (_, Some(KeyValue::Glob { pattern, .. })) => pattern.clone(),
                (_, Some(KeyValue::Default)) => "*".to_owned(),
                _ => {
                    return Err(LanguageError::new(format!("`{}` is no variable", key.to_str()))
                        .hint("write its name, with * for any part of it: \"AWS_*\""));
                }
            };
            let usable = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '*' | '?');
            if name.is_empty() || !name.chars().all(usable) {
                return Err(
                    LanguageError::new(format!("`{name}` is no name of a variable")).near(name)
                );
            }
            rules.push(EnvRule { name, effect: effect.effect, span: effect.span.clone() });
        }
    }
    Ok(rules)
}

/// The limits of a dict. A limit of zero or below and an unknown limit are errors.
pub(crate) fn limits(value: Value<'_>) -> LanguageResult<ResourceLimits> {
    let mut limits = ResourceLimits::default();
    for (key, then) in dict_entries(value, "a dict of limits")? {
        let name = key.unpack_str().unwrap_or_default();
        let place = match name {
            "memory" => &mut limits.memory_bytes,
            "processes" => &mut limits.processes,
            "cpu" => &mut limits.cpu_seconds,
            "wall" => &mut limits.wall_seconds,
            "file_size" => &mut limits.file_size_bytes,
            "files" => &mut limits.files,
            _ => return Err(unknown_limit(&key.to_str())),
        };
        let amount = match (then.unpack_i32(), then.unpack_str()) {
            (Some(number), _) => u64::try_from(number).ok().filter(|number| *number > 0),
            // The only limit that a sandbox has by default.
            (None, Some("unlimited")) if name == "files" => Some(ResourceLimits::UNLIMITED),
            (None, Some(text)) => amount(name, text),
            (None, None) => None,
        };
        *place = Some(amount.ok_or_else(|| {
            let hint = match name {
                "memory" | "file_size" => "a size is \"512M\", \"4G\" or a number of bytes",
                "processes" => "a number of processes is 500",
                "files" => "a number of files is 200000; \"unlimited\" lifts the standard limit",
                _ => "a time is \"30s\", \"10m\", \"2h\" or a number of seconds",
            };
            let text = then.to_str();
            LanguageError::new(format!("`{text}` is no limit for {name}")).hint(hint).near(text)
        })?);
    }
    Ok(limits)
}

/// The names of programs; a path or an empty name is an error.
pub(crate) fn door_names(names: Vec<String>) -> LanguageResult<Vec<String>> {
    let is_path = |name: &&String| name.is_empty() || name.contains('/');
    match names.iter().find(is_path) {
        None => Ok(names),
        Some(path) => Err(LanguageError::new(format!("`{path}` is not the name of a program"))
            .hint("write the name alone, for example \"git\"")),
    }
}

/// `"action"` or `"detached"`; anything else is an error.
pub(crate) fn lifetime(value: Value<'_>) -> LanguageResult<ProcessLifetime> {
    let said = value.unpack_str().unwrap_or_default();
    ProcessLifetime::ALL.into_iter().find(|known| known.word() == said).ok_or_else(|| {
        let text = value.to_str();
        LanguageError::new(format!("`{text}` is no lifetime"))
            .hint("a lifetime is \"action\" or \"detached\"")
            .near(text)
    })
}

/// The lifetime that `detach` means. It must not contradict the older `lifetime`.
pub(crate) fn detach(
    detach: bool,
    said: Option<ProcessLifetime>,
) -> LanguageResult<ProcessLifetime> {
    let meant = if detach { ProcessLifetime::Detached } else { ProcessLifetime::Action };
    match said {
        Some(other) if other != meant => {
            let word = other.word();
            Err(LanguageError::new(format!("`detach` contradicts `lifetime = \"{word}\"`"))
                .hint("write `detach` alone"))
        }
        _ => Ok(meant),
    }
}

/// The error for a limit of another name, with the nearest name or all names.
fn unknown_limit(name: &str) -> LanguageError {
    let known = ResourceLimits::default().named().map(|(name, _)| name);
    let mistake = LanguageError::new(format!("there is no limit `{name}`")).near(name);
    match nearest(name, known) {
        Some(near) => mistake.hint(format!("did you mean `{near}`?")),
        None => mistake.hint(format!("limits are {}", known.join(", "))),
    }
}

/// An amount with its unit, for example `4G` for memory or `10m` for a time; `None` for
/// zero, an unknown unit or a number that is too large.
fn amount(limit: &str, text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at_checked(digits)?;
    let unit: u64 = match (limit, unit) {
        (_, "") => 1,
        ("memory" | "file_size", "K" | "k") => 1 << 10,
        ("memory" | "file_size", "M") => 1 << 20,
        ("memory" | "file_size", "G") => 1 << 30,
        ("memory" | "file_size", "T") => 1 << 40,
        ("cpu" | "wall", "s") => 1,
        ("cpu" | "wall", "m") => 60,
        ("cpu" | "wall", "h") => 3600,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(unit).filter(|amount| *amount > 0)
}

/// The paths of `protect` and `unprotect`, relative to a writable tree. Other paths are
/// errors.
pub(crate) fn relative_paths(value: Value<'_>, argument: &str) -> LanguageResult<Vec<String>> {
    let list = ListRef::from_value(value).ok_or_else(|| {
        LanguageError::new(format!("{argument} takes a list of paths, found `{}`", value.to_str()))
            .hint(format!("{argument} = [\".husky\", \"scripts/deploy.sh\"]"))
    })?;
    list.iter()
        .map(|item| {
            let text = item.unpack_str().unwrap_or_default();
            let inside = !text.is_empty()
                && !text.starts_with(['/', '$', '~'])
                && text.split('/').all(|part| !part.is_empty() && part != "." && part != "..");
            inside.then(|| text.to_owned()).ok_or_else(|| {
                LanguageError::new(format!("`{}` is no path inside a project", item.to_str()))
                    .hint("write it relative to the tree it is in: \".husky\"")
                    .near(item.to_str())
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times_have_their_units() {
        assert_eq!(amount("memory", "4G"), Some(4 << 30));
        assert_eq!(amount("cpu", "10m"), Some(600));
        assert_eq!(amount("processes", "500"), Some(500));
        for (limit, text) in [
            ("memory", "4m"),
            ("memory", "G"),
            ("cpu", "10G"),
            ("wall", "-1"),
            ("processes", "5k"),
            ("memory", "99999999999G"),
            ("memory", "0"),
            ("cpu", "é"),
        ] {
            assert_eq!(amount(limit, text), None, "{limit} {text}");
        }
    }
}
