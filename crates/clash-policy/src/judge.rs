//! What a sandbox says about one path, for tools of the agent's own process
//! (Read, Write, …) where no process of ours runs and so no kernel rule holds.
//! The planner turns the same rules into kernel state; both read this module's
//! order: the longest matching key wins, per capability.

use std::path::Path;

use crate::effect::{Caps, Effect};
use crate::path::{Links, PathError, Places, is_below};
use crate::pattern::glob_matches;
use crate::sandbox::{PathPattern, Sandbox};

/// What the judge needs to know of the machine, gathered by the binary.
#[derive(Clone, Copy, Debug)]
pub struct World<'a> {
    pub places: &'a Places,
    pub links: &'a dyn Links,
    /// Paths every sandbox may read or execute unless denied.
    pub baseline: &'a [(&'a str, Caps)],
    /// Paths no sandbox may change: clash's own and the agents' settings.
    pub cage: &'a [std::path::PathBuf],
}

/// Whether a path below the project steers an agent or clash, at any depth: a
/// nested repository has settings of its own. A worktree that the agent keeps
/// below `.claude` is a project again.
pub fn steers_agent(path: &Path, project: &Path) -> bool {
    let Ok(inside) = path.strip_prefix(project) else { return false };
    let mut names = inside.components().map(|part| part.as_os_str()).peekable();
    while let Some(name) = names.next() {
        let own = name == ".clash" || name == ".mcp.json";
        let settings = name == ".claude" && names.peek().is_none_or(|next| *next != "worktrees");
        if own || settings {
            return true;
        }
    }
    false
}

/// What holds for one path, and by which rule of the sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    pub effect: Effect,
    /// Index into [`Sandbox::fs`]; `None` when the default or the baseline decided.
    pub rule: Option<usize>,
    /// The capability that decided.
    pub caps: Caps,
}

/// Judges a real path (symlinks resolved) for all capabilities it `needs`.
pub fn judge(
    sandbox: &Sandbox,
    path: &Path,
    needs: Caps,
    world: &World<'_>,
) -> Result<Verdict, PathError> {
    let mut verdict = Verdict { effect: Effect::Allow, rule: None, caps: needs };
    for cap in Caps::each().filter(|cap| needs.contains(*cap)) {
        let one = judge_one(sandbox, path, cap, world)?;
        if one.effect > verdict.effect || (verdict.rule.is_none() && one.effect == verdict.effect) {
            verdict = one;
        }
    }
    Ok(verdict)
}

fn judge_one(
    sandbox: &Sandbox,
    path: &Path,
    cap: Caps,
    world: &World<'_>,
) -> Result<Verdict, PathError> {
    let mut best: Option<(usize, usize)> = None;
    for (index, rule) in sandbox.fs.iter().enumerate().filter(|(_, r)| r.caps.contains(cap)) {
        let length = match_length(&rule.pattern, path, world)?;
        let stricter_tie =
            |at: usize| sandbox.fs.get(at).is_some_and(|other| rule.effect > other.effect);
        match (length, best) {
            (Some(length), None) => best = Some((length, index)),
            (Some(length), Some((known, at)))
                if length > known || (length == known && stricter_tie(at)) =>
            {
                best = Some((length, index));
            }
            _ => {}
        }
    }
    if let Some((_, index)) = best {
        let effect = sandbox.fs.get(index).map_or(Effect::Deny, |rule| rule.effect);
        return Ok(Verdict { effect, rule: Some(index), caps: cap });
    }
    let in_baseline = world
        .baseline
        .iter()
        .any(|(base, caps)| caps.contains(cap) && is_below(path, Path::new(base)));
    let effect = if in_baseline { Effect::Allow } else { sandbox.default };
    Ok(Verdict { effect, rule: None, caps: cap })
}

/// How specific a match is: the length of the fixed part, with a wildcard
/// below it counting a little more than the bare subtree. `None`: no match.
fn match_length(
    pattern: &PathPattern,
    path: &Path,
    world: &World<'_>,
) -> Result<Option<usize>, PathError> {
    let fixed = world.links.real(&world.places.expand(pattern.fixed())?);
    let length = fixed.as_os_str().len() * 2;
    let matches = match pattern {
        PathPattern::Subpath { .. } => is_below(path, &fixed),
        PathPattern::Literal(_) => path == fixed,
        PathPattern::Children(_) => path.parent() == Some(fixed.as_path()),
        PathPattern::Glob { pattern, .. } => {
            path.strip_prefix(&fixed).is_ok_and(|rest| any_depth(pattern, &rest.to_string_lossy()))
        }
    };
    let extra = usize::from(!matches!(pattern, PathPattern::Subpath { .. }));
    Ok(matches.then_some(length + extra))
}

/// `**/x` matches `x` at any depth, also directly below the prefix.
fn any_depth(pattern: &str, rest: &str) -> bool {
    glob_matches(pattern, rest)
        || pattern.strip_prefix("**/").is_some_and(|tail| glob_matches(tail, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::NoLinks;
    use crate::sandbox::{FsRule, Net};
    use crate::span::Span;

    fn rule(pattern: PathPattern, effect: Effect, caps: &str) -> FsRule {
        FsRule { pattern, effect, caps: Caps::parse(caps).unwrap(), span: Span::default() }
    }

    fn below(path: &str) -> PathPattern {
        PathPattern::Subpath { path: path.to_owned(), follow_worktrees: false }
    }

    fn effect(path: &str, needs: &str) -> Effect {
        let sandbox = Sandbox {
            name: "s".into(),
            default: Effect::Ask,
            net: Net::Deny,
            doc: String::new(),
            span: Span::default(),
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
        };
        let places = Places {
            project: "/home/u/app".into(),
            home: "/home/u".into(),
            tmp: "/tmp".into(),
            vars: vec![],
        };
        let baseline = [("/usr", Caps::parse("rx").unwrap())];
        let world = World { places: &places, links: &NoLinks, baseline: &baseline, cage: &[] };
        judge(&sandbox, Path::new(path), Caps::parse(needs).unwrap(), &world).unwrap().effect
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
    fn outside_every_key_the_default_holds_and_the_baseline_is_readable() {
        assert_eq!(effect("/home/u/.ssh/id_ed25519", "r"), Effect::Ask);
        assert_eq!(effect("/home/u/app-evil/x", "r"), Effect::Ask);
        assert_eq!(effect("/usr/include/stdio.h", "r"), Effect::Allow);
        assert_eq!(effect("/usr/include/stdio.h", "w"), Effect::Ask);
        assert_eq!(effect("/home/u/.gitconfig", "r"), Effect::Allow);
        assert_eq!(effect("/home/u/.gitconfig", "w"), Effect::Ask);
    }
}
