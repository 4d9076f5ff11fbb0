//! Programs that a policy has rules about, and the doors of a sandbox.
//!
//! A room of a sandbox has a door in the place of each program whose rules differ from the
//! rights of that sandbox. A rule about a pattern of names, for example `git-*`, is a rule
//! about each program whose name matches. A pattern without letters, for example `*`, says
//! nothing about a program and gives no doors. A rule about a path, for example `./gradlew` or
//! `node_modules/.bin/*`, is about programs of the project. Nothing can be mounted there, so
//! the monitor leads their callers to a door ([`RuledPrograms::door_paths`]).

use std::collections::BTreeMap;

use crate::decide::DecideError;
use crate::effect::Effect;
use crate::ir::{EdgeMatcher, EdgeRef, IrError, IrImage, NodeRef};
use crate::pattern::glob_matches;
use crate::regex;
use crate::rule::KeySubject;
use crate::sandbox::Sandbox;

/// The rules of a policy about one program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuledProgram {
    /// The strictest effect of its rules.
    pub strictest: Effect,
    /// The sandboxes that its rules name. Rules without `sandbox = …` add none.
    pub sandboxes: Vec<String>,
}

impl RuledProgram {
    const FREE: Self = Self { strictest: Effect::Allow, sandboxes: Vec::new() };

    fn add(&mut self, other: &Self) {
        self.strictest = self.strictest.max(other.strictest);
        for sandbox in &other.sandboxes {
            if !self.sandboxes.contains(sandbox) {
                self.sandboxes.push(sandbox.clone());
            }
        }
    }
}

/// The programs that a policy has rules about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuledPrograms {
    /// The programs that rules name literally.
    pub named: BTreeMap<String, RuledProgram>,
    patterns: Vec<(NamePattern, RuledProgram)>,
    /// Literal paths and patterns of paths below the working directory.
    paths: Vec<(String, RuledProgram)>,
}

/// A pattern of program names.
#[derive(Clone, Debug, PartialEq, Eq)]
struct NamePattern {
    text: String,
    /// The compiled form, if the pattern is a regular expression.
    regex: Option<Vec<u8>>,
}

impl RuledPrograms {
    /// The rules about a program of this name. `None` if there are none.
    pub fn rules_about(&self, name: &str) -> Option<RuledProgram> {
        let mut found = self.named.get(name).cloned();
        for (pattern, rules) in &self.patterns {
            if pattern.matches(name) {
                found.get_or_insert(RuledProgram::FREE).add(rules);
            }
        }
        found
    }

    /// The programs and the patterns of names and paths, as a person reads them.
    pub fn shown(self) -> impl Iterator<Item = (String, RuledProgram)> {
        let patterns = self.patterns.into_iter().map(|(pattern, rules)| (pattern.text, rules));
        self.named.into_iter().chain(patterns).chain(self.paths)
    }

    /// The paths and patterns of paths whose programs have doors in the room of a sandbox,
    /// without `./` in front.
    pub fn door_paths(&self, sandbox: &Sandbox, is_default: bool) -> Vec<String> {
        let has_door =
            |(path, rules): &&(String, RuledProgram)| needs_door(sandbox, is_default, path, rules);
        let found = self.paths.iter().filter(has_door);
        let mut found: Vec<String> =
            found.map(|(path, _)| path.trim_start_matches("./").to_owned()).collect();
        found.sort();
        found.dedup();
        found
    }

    /// True if rules about patterns of names exist.
    pub fn has_patterns(&self) -> bool {
        !self.patterns.is_empty()
    }
}

impl NamePattern {
    /// `None` for a pattern that says nothing about a program of the search path.
    fn new(edge: &EdgeRef<'_>) -> Option<Self> {
        let regex = (edge.matcher == EdgeMatcher::Regex).then(|| edge.extra().to_vec());
        let is_glob = edge.matcher == EdgeMatcher::Glob && !edge.text.contains('/');
        let names = edge.text.chars().any(char::is_alphanumeric);
        let is_pattern = names && (is_glob || regex.is_some());
        is_pattern.then(|| Self { text: edge.text.to_owned(), regex })
    }

    fn matches(&self, name: &str) -> bool {
        match &self.regex {
            Some(compiled) => regex::matches(compiled, name).unwrap_or(false),
            None => glob_matches(&self.text, name),
        }
    }
}

/// The compiler makes no deeper trees.
const MAX_TREE_DEPTH: usize = 200;

/// The programs that the rules of a policy are about, from all layers, also untrusted ones.
/// An allow and a deny both count.
pub fn ruled_programs(ir: IrImage<'_>) -> Result<RuledPrograms, DecideError> {
    let mut programs = RuledPrograms::default();
    for layer in ir.layers() {
        for group in layer?.groups()? {
            find_programs(&group?.root()?, MAX_TREE_DEPTH, &mut programs)?;
        }
    }
    Ok(programs)
}

/// Adds the programs that first words below a node name, and the patterns of first words.
fn find_programs(
    node: &NodeRef<'_>,
    depth: usize,
    programs: &mut RuledPrograms,
) -> Result<(), IrError> {
    let below = depth.checked_sub(1).ok_or(IrError::Damaged)?;
    if node.rule()?.is_some() {
        return Ok(());
    }
    for edge in node.literals()?.chain(node.patterns()?) {
        let edge = edge?;
        let next = edge.node()?;
        match (edge.subject, edge.matcher) {
            (KeySubject::Word, EdgeMatcher::Literal | EdgeMatcher::Glob)
                if is_path_below(edge.text) =>
            {
                programs.paths.push((edge.text.to_owned(), rules_below(&next, below)?));
            }
            (KeySubject::Word, EdgeMatcher::Literal) => {
                let named = programs.named.entry(edge.text.to_owned());
                named.or_insert(RuledProgram::FREE).add(&rules_below(&next, below)?);
            }
            (KeySubject::Word, _) => {
                if let Some(pattern) = NamePattern::new(&edge) {
                    programs.patterns.push((pattern, rules_below(&next, below)?));
                }
            }
            _ => find_programs(&next, below, programs)?,
        }
    }
    Ok(())
}

/// True for a path or a pattern of paths below the working directory that names something.
fn is_path_below(text: &str) -> bool {
    text.contains('/')
        && !text.starts_with(['/', '~', '$'])
        && !text.split('/').any(|part| part == "..")
        && text.chars().any(char::is_alphanumeric)
}

/// True if a path ends in one of [`RuledPrograms::door_paths`]. In patterns of words, `*` also
/// stands for slashes.
pub fn is_door_path(path: &str, patterns: &[String]) -> bool {
    let starts = path.match_indices('/').map(|(at, _)| at + 1);
    std::iter::once(0).chain(starts).filter_map(|at| path.get(at..)).any(|tail| {
        patterns.iter().any(|pattern| {
            let literal = pattern.split(['*', '?']).next().unwrap_or_default();
            tail.starts_with(literal) && glob_matches(pattern, tail)
        })
    })
}

fn rules_below(node: &NodeRef<'_>, depth: usize) -> Result<RuledProgram, IrError> {
    let mut rules = RuledProgram { strictest: node.strictest()?, ..RuledProgram::FREE };
    add_sandboxes(node, depth, &mut rules.sandboxes)?;
    Ok(rules)
}

/// Adds the sandboxes that rules below a node name, each once.
fn add_sandboxes(
    node: &NodeRef<'_>,
    depth: usize,
    sandboxes: &mut Vec<String>,
) -> Result<(), IrError> {
    let below = depth.checked_sub(1).ok_or(IrError::Damaged)?;
    if let Some(rule) = node.rule()? {
        if let Some(sandbox) = rule.sandbox()? {
            let name = sandbox.name()?;
            if !sandboxes.iter().any(|known| known == name) {
                sandboxes.push(name.to_owned());
            }
        }
        return Ok(());
    }
    for edge in node.literals()?.chain(node.patterns()?) {
        add_sandboxes(&edge?.node()?, below, sandboxes)?;
    }
    Ok(())
}

/// True if a command of this sandbox may start the program in a sandbox of its own.
pub fn opens(sandbox: &Sandbox, is_default: bool, program: &str) -> bool {
    is_default || sandbox.doors.iter().any(|door| door == program)
}

/// True if the room of a sandbox needs a door in the place of a program. A deny holds in
/// every room. A shell never needs one, whatever its rules say: the programs that it starts
/// have doors.
pub fn needs_door(sandbox: &Sandbox, is_default: bool, name: &str, program: &RuledProgram) -> bool {
    let differs = program.strictest > Effect::Allow
        || program.sandboxes.iter().any(|other| *other != sandbox.name);
    let is_denied = program.strictest == Effect::Deny;
    !clash_shell::is_shell(name) && (is_denied || differs && opens(sandbox, is_default, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_of_the_project_is_known_by_the_end_of_its_path() {
        let patterns = ["gradlew*", "node_modules/.bin/*", "bin/run"].map(str::to_owned);
        for path in ["gradlew", "sub/gradlew.sh", "web/node_modules/.bin/eslint", "bin/run"] {
            assert!(is_door_path(path, &patterns), "{path}");
        }
        for path in ["gradle", "node_modules/eslint", "bin/running", "xbin/run", ".bin/eslint"] {
            assert!(!is_door_path(path, &patterns), "{path}");
        }
    }

    #[test]
    fn a_path_outside_the_working_directory_is_no_door() {
        for path in ["./gradlew", "node_modules/.bin/*", "a/b"] {
            assert!(is_path_below(path), "{path}");
        }
        for path in ["gradlew", "/opt/x", "~/x", "$HOME/x", "../x", "a/../b", "./*", "*/*"] {
            assert!(!is_path_below(path), "{path}");
        }
    }
}
