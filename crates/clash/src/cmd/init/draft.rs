//! The policy of a project as a draft: what was chosen, put together.

use std::path::{Path, PathBuf};

use clash_policy::{Effect, Places, Sandbox};

use super::generate::{Draft, Group, Key, Leaf, OwnSandbox, Rule, Settings, Taken, Then};
use super::posture::Posture;
use super::presets::{Library, LibraryError};
use crate::ecosystems::{self, Detected, Elsewhere, Host, Use};

/// What a policy is made of.
#[derive(Debug)]
pub(crate) struct Choices {
    pub(crate) posture: Posture,
    pub(crate) ecosystems: Vec<Detected>,
    pub(crate) hosts: Vec<Host>,
}

/// A toolchain's rules and the sandboxes made for this machine.
#[derive(Debug)]
pub(crate) struct Toolchain {
    pub(crate) name: &'static str,
    pub(crate) group: Group,
    pub(crate) sandboxes: Vec<OwnSandbox>,
}

impl Toolchain {
    /// Without what is about this machine: the library's own sandboxes instead.
    pub(super) fn anywhere(&mut self) {
        for own in std::mem::take(&mut self.sandboxes) {
            for base in &own.loads {
                for rule in &mut self.group.rules {
                    renamed(rule, &own.name, base);
                }
            }
        }
    }
}

/// What this machine has.
pub(crate) struct Machine<'a> {
    pub(crate) places: &'a Places,
    /// What a toolchain needs besides its sandbox of this name.
    pub(crate) needs: &'a dyn Fn(&Detected, &str) -> Vec<Elsewhere>,
    /// Whether a program is there.
    pub(crate) has: &'a dyn Fn(&str) -> bool,
}

/// The rules of what was chosen, toolchain by toolchain.
pub(crate) fn toolchains(
    choices: &Choices,
    library: &Library,
    Machine { places, needs, has }: &Machine<'_>,
) -> Result<Vec<Toolchain>, LibraryError> {
    let mut all = Vec::new();
    for detected in &choices.ecosystems {
        let ecosystem = detected.ecosystem;
        let mut rules = library.rules(ecosystem.name)?;
        // Where the rest is let through, leaving a program out would let through all
        // of what it does.
        if choices.posture != Posture::Permissive {
            rules = in_use(rules, &detected.files, has);
        }
        let mut rules = choices.posture.applied(rules, Some(ecosystem));
        let elsewhere = needs(detected, &format!("{}_safe", ecosystem.name));
        let mut sandboxes = Vec::new();
        if !elsewhere.is_empty() {
            for kind in ["safe", "full"] {
                let base = format!("{}_{kind}", ecosystem.name);
                let here = format!("{base}_here");
                let renamed =
                    rules.iter_mut().map(|rule| renamed(rule, &base, &here)).sum::<usize>();
                if renamed > 0 {
                    sandboxes.push(own(&base, &here, &elsewhere, places));
                }
            }
        }
        let mut comment = vec![format!("{} ({})", ecosystem.name, detected.why())];
        let hosts = choices.hosts.iter().filter(|host| host.ecosystem == ecosystem.name);
        let hosts: Vec<&str> = hosts.map(|host| host.name.as_str()).collect();
        if !hosts.is_empty() {
            comment.push(format!("its files name {}", hosts.join(", ")));
        }
        all.push(Toolchain { name: ecosystem.name, group: Group { comment, rules }, sandboxes });
    }
    Ok(all)
}

/// Without the long rules of programs that neither the machine nor the project
/// shows: of five package managers a project uses one. What is left out is asked
/// about. If nothing is left, nothing is left out.
fn in_use(rules: Vec<Rule>, files: &[PathBuf], has: &dyn Fn(&str) -> bool) -> Vec<Rule> {
    let used = |program: &String| has(program) || ecosystems::is_shown(program, files);
    let kept = |rule: &&Rule| match (&rule.key, &rule.then) {
        (Key::Words(words), Then::Below(_)) => words.iter().any(used),
        _ => true,
    };
    let is_long = |rule: &Rule| matches!(rule.then, Then::Below(_));
    let left: Vec<Rule> = rules.iter().filter(kept).cloned().collect();
    if rules.iter().any(is_long) && !left.iter().any(is_long) { rules } else { left }
}

/// Gives rules another sandbox, and says how many had it.
fn renamed(rule: &mut Rule, from: &str, to: &str) -> usize {
    match &mut rule.then {
        Then::Leaf(leaf) if leaf.sandbox.as_deref() == Some(from) => {
            leaf.sandbox = Some(to.to_owned());
            1
        }
        Then::Leaf(_) => 0,
        Then::Below(rules) => rules.iter_mut().map(|rule| renamed(rule, from, to)).sum(),
    }
}

/// A sandbox of the library with what this machine keeps elsewhere.
fn own(base: &str, here: &str, elsewhere: &[Elsewhere], places: &Places) -> OwnSandbox {
    let paths: String = elsewhere
        .iter()
        .map(|Elsewhere { path, use_, .. }| {
            let effect = match use_ {
                Use::Programs => "allow(RO)",
                // Other projects may build there as well.
                Use::Cache => "cache()",
            };
            format!("{}: {effect},", clash_syntax::edit::RuleKey::str(shown(path, places)))
        })
        .collect();
    let why = |it: &Elsewhere| format!("{}: {}", shown(&it.path, places), it.why);
    OwnSandbox {
        comment: elsewhere.iter().map(why).collect(),
        name: here.to_owned(),
        source: format!(
            "{here} = sandbox(\n    name = \"{here}\",\n    doc = \"{base} and what this machine keeps elsewhere.\",\n    extends = {base},\n    fs = {{{paths}}},\n)"
        ),
        loads: vec![base.to_owned()],
    }
}

/// A path as a policy that other machines may see should write it.
fn shown(path: &Path, places: &Places) -> String {
    match path.strip_prefix(&places.home) {
        Ok(below) => format!("$HOME/{}", below.display()),
        Err(_) => path.display().to_string(),
    }
}

/// The whole policy.
pub(crate) fn draft(
    choices: &Choices,
    library: &Library,
    toolchains: &[Toolchain],
) -> Result<Draft, LibraryError> {
    let posture = choices.posture;
    let allow = |sandbox| Then::Leaf(Leaf::new(Effect::Allow, sandbox));
    let group = |comment: &str, rules| Group { comment: vec![comment.to_owned()], rules };
    let mut commands = Vec::new();
    let mut taken = Vec::new();
    // Where everything runs in the project unasked, nothing is said about some of it.
    if posture != Posture::Permissive {
        let comment = "Programs that look at files or change them, in the project: \
                       `clash policy docs files`.";
        taken.push(Taken { comment: vec![comment.to_owned()], module: "files" });
        let removal = posture.applied(library.rules("removal")?, None);
        commands.push(group("Removing whole directories.", removal));
    }
    commands.extend(toolchains.iter().map(|toolchain| toolchain.group.clone()));
    let online = Then::Leaf(Leaf::new(Effect::Ask, Some("online")));
    commands
        .push(group("The network, when you say so.", vec![Rule::new(&["curl", "wget"], online)]));
    let mut tools = Vec::new();
    let looking = ["Glob", "Grep", "LS", "Read"];
    let changing = ["Edit", "MultiEdit", "NotebookEdit", "Write"];
    let mut rules = vec![
        Rule::new(&looking, allow(Some("project"))),
        Rule::new(&changing, allow(Some("project"))),
    ];
    if posture == Posture::Strict {
        let secret = Leaf {
            reason: Some("may hold secrets".into()),
            ..Leaf::new(Effect::Ask, Some("project"))
        };
        let secret = |pattern: &str| Rule {
            comment: vec![],
            key: Key::Globs(vec![pattern.into()]),
            then: Then::Leaf(secret.clone()),
        };
        let rest = Rule { comment: vec![], key: Key::Rest, then: allow(Some("project")) };
        let below = vec![secret("$PWD/**/.env"), secret("$PWD/**/.env.*"), rest];
        rules = vec![
            Rule::new(&["Read"], Then::Below(below)),
            Rule::new(&["Glob", "Grep", "LS"], allow(Some("project"))),
            Rule::new(&changing, allow(Some("project"))),
        ];
    }
    tools
        .push(group("The agent's own tools: files of the project; others are asked about.", rules));
    if posture == Posture::Permissive {
        let rest = Rule { comment: vec![], key: Key::Rest, then: allow(None) };
        commands.push(group("Everything else, in the project without network.", vec![rest]));
        tools.push(Group {
            comment: vec![],
            rules: vec![Rule::new(&["WebFetch", "WebSearch"], allow(None))],
        });
    }
    let has = |name: &str| toolchains.iter().any(|toolchain| toolchain.name == name);
    let mut expectations = Vec::new();
    let mut expect = |command: &str| expectations.push((Effect::Ask, command.to_owned()));
    if has("git") {
        expect("git push --force");
    }
    if has("git") && posture != Posture::Permissive {
        expect("git push origin main");
    }
    for (name, command) in
        [("rust", "cargo publish"), ("node", "npm publish"), ("docker", "docker run x")]
    {
        if has(name) {
            expect(command);
        }
    }
    Ok(Draft {
        head: head(choices),
        settings: Some(Settings {
            comment: vec![match posture {
                Posture::Permissive => "Tools that no rule names are asked about.".to_owned(),
                _ => "What no rule names is asked about, and runs in the project without network."
                    .to_owned(),
            }],
            default: Effect::Ask,
            sandbox: "project".to_owned(),
        }),
        sandboxes: toolchains.iter().flat_map(|it| it.sandboxes.clone()).collect(),
        taken,
        commands,
        tools,
        expectations,
    })
}

fn head(choices: &Choices) -> Vec<String> {
    vec![
        format!("What coding agents may do, by `clash init` ({}). It is yours to change.", choices.posture.word()),
        "Each command runs in the sandbox named here: X_safe without network, X_full with it.".to_owned(),
        "`clash policy docs NAME` says what one grants, `clash explain bash \"…\"` what is decided.".to_owned(),
    ]
}

/// The sandbox of this name in a compiled policy.
pub(crate) fn sandbox(policy: &crate::policy::Policy, name: &str) -> Option<Sandbox> {
    let sandboxes = policy.sandboxes().ok()?;
    sandboxes.into_iter().find(|it| it.name().is_ok_and(|it| it == name))?.to_sandbox().ok()
}
