//! The answer of a sandbox about a path or a host.

use clash_policy::judge::JudgeContext;
use clash_policy::net::{HostPattern, NetworkAccess};
use clash_policy::pattern::path_glob_matches;
use clash_policy::sandbox::{PathPattern, Sandbox, WriteTarget};
use clash_policy::{Effect, FileCaps, FileUse};

/// How a path pattern matches a file.
pub(crate) struct KeyCloseness {
    /// Greater is closer: 2 for the path itself, 1 for a pattern, 0 for a directory
    /// above it; then the length.
    pub(crate) rank: (u8, usize),
    /// Only a directory above the file matches.
    pub(crate) above: bool,
}

/// The path in lower case if the volume ignores case.
fn fold(path: &str, caseless: bool) -> String {
    if caseless { path.to_lowercase() } else { path.to_owned() }
}

/// How closely the pattern matches the file; `None` if it does not. A glob or regular
/// expression that matches a directory above the file matches too, with `above`.
pub(crate) fn close(
    pattern: &PathPattern,
    file: &FileUse,
    context: &JudgeContext<'_>,
) -> Option<KeyCloseness> {
    let fixed = context.places.expand(pattern.fixed()).unwrap();
    let base = fold(fixed.to_str().unwrap(), file.caseless);
    let path = fold(file.path.to_str().unwrap(), file.caseless);
    let inside = if path == base {
        ""
    } else if base == "/" {
        path.strip_prefix('/').unwrap()
    } else {
        path.strip_prefix(&base)?.strip_prefix('/')?
    };
    let here = |kind, length| Some(KeyCloseness { rank: (kind, length), above: false });
    // The name of the file below the fixed part, then the directories above it.
    let names: Vec<&str> = inside.split('/').collect();
    let tails = || (1..=names.len()).rev().map(|count| names[..count].join("/"));
    let by_name = |text: &str, is: &dyn Fn(&str) -> bool| {
        let plain = text.chars().filter(|c| *c != '*' && *c != '?').count();
        let found =
            tails().position(|tail| (!tail.is_empty() || tails().count() == 1) && is(&tail));
        found.map(|at| KeyCloseness { rank: (1, base.len() + plain), above: at > 0 })
    };
    match pattern {
        PathPattern::Subpath { .. } if inside.is_empty() => here(2, base.len()),
        PathPattern::Subpath { .. } => here(0, base.len()),
        PathPattern::Literal(_) if inside.is_empty() => here(2, base.len() + 1),
        PathPattern::Literal(_) => None,
        PathPattern::Children(_) if inside.is_empty() || inside.contains('/') => None,
        PathPattern::Children(_) => here(1, base.len()),
        PathPattern::Glob { pattern, .. } => {
            let pattern = fold(pattern, file.caseless);
            by_name(&pattern, &|tail| path_glob_matches(&pattern, tail))
        }
        PathPattern::Regex { prefix, regex } => by_name(&regex.pattern, &|tail| {
            let whole = if prefix == "/" { format!("/{tail}") } else { tail.to_owned() };
            let is = |text: &str| regex.matches(text).unwrap();
            if !file.caseless {
                return is(&whole);
            }
            // In every spelling: as written, or in one case.
            let end = base.trim_end_matches('/').len() + 1 + tail.len();
            let spelled = &file.path.to_str().unwrap()[..end.min(path.len())];
            let spelled = &spelled[spelled.len().saturating_sub(whole.len())..];
            is(&whole) || is(&whole.to_uppercase()) || is(spelled)
        }),
    }
}

/// The closest key for each capability, and the stricter of two equally close ones. A
/// pattern that allows a directory does not allow the paths below it. The result is the
/// strictest answer of all capabilities.
pub(crate) fn judge(
    sandbox: &Sandbox,
    file: &FileUse,
    context: &JudgeContext<'_>,
) -> (Effect, Option<u32>) {
    let mut answers = Vec::new();
    for cap in FileCaps::each().filter(|cap| file.needs.contains(*cap)) {
        let mut keys = Vec::new();
        for (at, rule) in sandbox.fs.iter().enumerate().filter(|(_, r)| r.caps.contains(cap)) {
            let close = close(&rule.pattern, file, context);
            let close = close.filter(|close| !close.above || rule.effect > Effect::Allow);
            keys.extend(close.map(|close| (close.rank, rule.effect, std::cmp::Reverse(at))));
        }
        let base = context
            .baseline
            .iter()
            .any(|(base, caps)| caps.contains(cap) && (file.path.starts_with(base)));
        answers.push(match keys.into_iter().max() {
            Some((_, effect, std::cmp::Reverse(at))) => {
                let rule = &sandbox.fs[at];
                // No tool of the agent changes a shared cache.
                let shared =
                    rule.writes == WriteTarget::Project && cap.intersects(FileCaps::CHANGE);
                (if shared { effect.max(Effect::Ask) } else { effect }, Some(rule.span.line))
            }
            None if base || sandbox.unrestricted => (Effect::Allow, None),
            None => (sandbox.default, None),
        });
    }
    let strictest = answers.iter().map(|(effect, _)| *effect).max().unwrap_or(Effect::Allow);
    let equal = || answers.iter().filter(|(effect, _)| *effect == strictest);
    // Prefers a rule to the default, because a rule has a place to show.
    let named = equal().find(|(_, rule)| rule.is_some());
    named.or(equal().next()).copied().unwrap_or((Effect::Allow, None))
}

/// The answer of the longest host rule that covers the port, or of the default, with the line
/// of the rule. Of equally long rules the strictest counts, then the last. An allow without
/// ports covers 80 and 443, and 22 for git hosts and addresses; `localhost`, and a deny or
/// ask without ports, cover every port.
pub(crate) fn host(sandbox: &Sandbox, host: &str, port: u16) -> (Effect, Option<u32>) {
    let (effect, rule) = match &sandbox.net {
        NetworkAccess::Deny => (Effect::Deny, None),
        NetworkAccess::Allow => (Effect::Allow, None),
        NetworkAccess::Ask => (Effect::Ask, None),
        NetworkAccess::Hosts { rules, default } => {
            let git = clash_policy::net::is_git_host(host);
            let covers = |ports: &[u16], effect, host: &HostPattern| match ports {
                [] if effect > Effect::Allow || *host == HostPattern::Localhost => true,
                [] if matches!(host, HostPattern::Addresses { .. }) || git => {
                    [22, 80, 443].contains(&port)
                }
                [] => [80, 443].contains(&port),
                ports => ports.contains(&port),
            };
            let length = |host: &HostPattern| match host {
                HostPattern::Addresses { bits, .. } => usize::from(*bits),
                HostPattern::Name(name) => 2 * name.len(),
                HostPattern::Exact(name) => 2 * name.len() + 1,
                HostPattern::Localhost => usize::MAX,
            };
            let matching = rules.iter().enumerate().filter(|(_, rule)| {
                rule.host.matches(host) && covers(&rule.ports, rule.effect, &rule.host)
            });
            let best = matching.max_by_key(|(at, rule)| (length(&rule.host), rule.effect, *at));
            best.map_or((*default, None), |(_, rule)| (rule.effect, Some(rule.span.line)))
        }
    };
    (if sandbox.unrestricted { Effect::Allow } else { effect }, rule)
}

/// True if the file belongs to clash, or steers an agent from inside the project.
pub(crate) fn is_caged(file: &FileUse, context: &JudgeContext<'_>) -> bool {
    let path = fold(file.path.to_str().unwrap(), file.caseless);
    let below = |base: &str| {
        let base = fold(base, file.caseless);
        path == base || path.starts_with(&format!("{base}/"))
    };
    if context.cage.iter().any(|own| below(own.to_str().unwrap())) {
        return true;
    }
    let project = context.places.project.to_str().unwrap();
    let inside = below(project).then(|| path.get(project.len()..).unwrap_or_default());
    let names: Vec<&str> = inside.unwrap_or_default().split('/').collect();
    names.iter().enumerate().any(|(at, name)| {
        let worktrees = names.get(at + 1) == Some(&"worktrees");
        matches!(*name, ".clash" | ".mcp.json" | ".codex" | ".gemini" | ".qwen" | ".factory")
            || (*name == ".claude" && !worktrees)
    })
}
