//! Builds the draft of a project's policy from the user's choices.

use std::path::{Path, PathBuf};

use clash_policy::{Effect, PolicyPlaces, Sandbox};
use clash_syntax::draft::{
    EffectDraft, FileEffect, FileRuleDraft, KeyDraft, LibraryRules, NetDraft, NetRules,
    PolicyDraft, RuleBody, RuleDraft, RuleGroup, SandboxBase, SandboxDraft, SettingsDraft,
};

use super::hosts::LearnedHosts;
use super::posture::Posture;
use super::presets::{LibraryError, PolicyLibrary};
use crate::ecosystems::{self, DetectedToolchain, OutsidePath, PathUse};
use crate::remedy::Remedy;

/// The user's choices, and the findings of `clash init`.
#[derive(Debug)]
pub(crate) struct PolicyChoices {
    pub(crate) posture: Posture,
    pub(crate) ecosystems: Vec<DetectedToolchain>,
    pub(crate) hosts: LearnedHosts,
}

/// A toolchain's rules, and the sandboxes made for this machine.
#[derive(Debug)]
pub(crate) struct ToolchainRules {
    pub(crate) name: &'static str,
    pub(crate) group: RuleGroup,
    pub(crate) sandboxes: Vec<SandboxDraft>,
}

impl ToolchainRules {
    /// Removes the sandboxes made for this machine. Rules that name one get the library's
    /// sandbox that it extends.
    pub(super) fn drop_machine_sandboxes(&mut self) {
        for own in std::mem::take(&mut self.sandboxes) {
            if let SandboxBase::Extends(base) = &own.base {
                for rule in &mut self.group.rules {
                    change_sandbox(rule, &own.name, base);
                }
            }
        }
    }
}

/// Facts about this machine.
pub(crate) struct MachineFacts<'a> {
    pub(crate) places: &'a PolicyPlaces,
    /// The paths that a toolchain needs beyond the sandbox of this name.
    pub(crate) needs: &'a dyn Fn(&DetectedToolchain, &str) -> Vec<OutsidePath>,
    /// True if a program is on the search path.
    pub(crate) has: &'a dyn Fn(&str) -> bool,
}

/// The rules for each chosen toolchain, changed for the posture. If this machine keeps a
/// toolchain's files elsewhere, its rules get sandboxes that extend the library's.
pub(crate) fn toolchain_rules(
    choices: &PolicyChoices,
    library: &PolicyLibrary,
    MachineFacts { places, needs, has }: &MachineFacts<'_>,
) -> Result<Vec<ToolchainRules>, LibraryError> {
    let mut all = Vec::new();
    for detected in &choices.ecosystems {
        let ecosystem = detected.ecosystem;
        let mut rules = library.rules(ecosystem.name)?;
        // The permissive posture allows commands that no rule names, so a program
        // without its rules could do everything unasked.
        if choices.posture != Posture::Permissive {
            rules = rules_in_use(rules, &detected.files, has);
        }
        let mut rules = choices.posture.applied(rules, Some(ecosystem));
        let elsewhere = needs(detected, &format!("{}_safe", ecosystem.name));
        let mut sandboxes = Vec::new();
        let hosts = choices.hosts.list_of(ecosystem.name);
        for kind in ["safe", "full"] {
            let net = hosts.clone().filter(|_| kind == "full");
            if elsewhere.is_empty() && net.is_none() {
                continue;
            }
            let base = format!("{}_{kind}", ecosystem.name);
            let here = format!("{base}_here");
            let changed =
                rules.iter_mut().map(|rule| change_sandbox(rule, &base, &here)).sum::<usize>();
            if changed > 0 {
                let net =
                    net.map(|list| NetDraft { comment: Vec::new(), rules: NetRules::Listed(list) });
                let own = machine_sandbox(&base, &here, &elsewhere, places);
                sandboxes.push(SandboxDraft { net, ..own });
            }
        }
        let mut comment = vec![format!("{} ({})", ecosystem.name, detected.why())];
        comment.extend(choices.hosts.comment_of(ecosystem.name));
        let group = RuleGroup { comment, rules };
        all.push(ToolchainRules { name: ecosystem.name, group, sandboxes });
    }
    Ok(all)
}

/// Leaves out the rules with subcommands of programs that neither the machine nor the
/// project has. For example, a project uses one of five package managers. A command
/// without a rule asks. If no rule with subcommands remains, all rules stay.
fn rules_in_use(
    rules: Vec<RuleDraft>,
    files: &[PathBuf],
    has: &dyn Fn(&str) -> bool,
) -> Vec<RuleDraft> {
    let used = |program: &String| has(program) || ecosystems::is_shown(program, files);
    let kept = |rule: &&RuleDraft| match (&rule.key, &rule.body) {
        (KeyDraft::Words(words), RuleBody::Below(_)) => words.iter().any(used),
        _ => true,
    };
    let is_long = |rule: &RuleDraft| matches!(rule.body, RuleBody::Below(_));
    let left: Vec<RuleDraft> = rules.iter().filter(kept).cloned().collect();
    if rules.iter().any(is_long) && !left.iter().any(is_long) { rules } else { left }
}

/// Gives the rules in sandbox `from` the sandbox `to`. Returns how many changed.
fn change_sandbox(rule: &mut RuleDraft, from: &str, to: &str) -> usize {
    match &mut rule.body {
        RuleBody::Effect(effect) if effect.sandbox.as_deref() == Some(from) => {
            effect.sandbox = Some(to.to_owned());
            1
        }
        RuleBody::Effect(_) => 0,
        RuleBody::Below(rules) => rules.iter_mut().map(|rule| change_sandbox(rule, from, to)).sum(),
    }
}

/// A library sandbox extended by the paths that this machine keeps elsewhere: programs
/// read-only, caches with a copy for the project.
fn machine_sandbox(
    base: &str,
    here: &str,
    elsewhere: &[OutsidePath],
    places: &PolicyPlaces,
) -> SandboxDraft {
    let rule = |OutsidePath { path, use_, .. }: &OutsidePath| FileRuleDraft {
        comment: Vec::new(),
        key: KeyDraft::text(policy_path(path, places)),
        effect: match use_ {
            PathUse::Programs => FileEffect::ReadOnly,
            // Other projects may build there as well.
            PathUse::Cache => FileEffect::Cache,
        },
    };
    let why = |it: &OutsidePath| format!("{}: {}", policy_path(&it.path, places), it.why);
    SandboxDraft {
        comment: elsewhere.iter().map(why).collect(),
        doc: match elsewhere {
            [] => format!("{base} with the hosts of this machine."),
            _ => format!("{base} and what this machine keeps elsewhere."),
        },
        fs: elsewhere.iter().map(rule).collect(),
        ..SandboxDraft::new(here, SandboxBase::Extends(base.to_owned()))
    }
}

/// A path in the form of a policy. With `$HOME` it is right for other users too.
fn policy_path(path: &Path, places: &PolicyPlaces) -> String {
    match path.strip_prefix(&places.home) {
        Ok(below) => format!("$HOME/{}", below.display()),
        Err(_) => path.display().to_string(),
    }
}

fn allow_in(sandbox: Option<&str>) -> RuleBody {
    RuleBody::Effect(EffectDraft::new(Effect::Allow, sandbox))
}

fn group(comment: &str, rules: Vec<RuleDraft>) -> RuleGroup {
    RuleGroup { comment: vec![comment.to_owned()], rules }
}

/// The whole policy: settings, rules about commands and tools, sandboxes and expectations.
pub(crate) fn draft(
    choices: &PolicyChoices,
    library: &PolicyLibrary,
    toolchains: &[ToolchainRules],
) -> Result<PolicyDraft, LibraryError> {
    let posture = choices.posture;
    let mut commands = Vec::new();
    let mut library_rules = Vec::new();
    // The permissive posture allows every command in the project, so these rules would
    // change nothing.
    if posture != Posture::Permissive {
        let docs = Remedy::PolicyDocs { name: Some("files".to_owned()) };
        let comment =
            format!("Programs for files, interpreters and compilers, in the project: `{docs}`.");
        library_rules.push(LibraryRules { comment: vec![comment], module: "files" });
        let removal = posture.applied(library.rules("removal")?, None);
        commands.push(group("Removing whole directories.", removal));
    }
    commands.extend(toolchains.iter().map(|toolchain| toolchain.group.clone()));
    let (about, fetching) = match choices.hosts.are_held() {
        true => (
            "The session's own servers; other hosts when you say so.",
            EffectDraft::new(Effect::Allow, Some("asked_web")),
        ),
        false => ("The network, when you say so.", EffectDraft::new(Effect::Ask, Some("online"))),
    };
    let fetching = RuleDraft::new(&["curl", "wget"], RuleBody::Effect(fetching));
    commands.push(group(about, vec![fetching]));
    let about = "The agent's own tools: files of the project; others are asked about.";
    let mut tools = vec![group(about, tool_rules(posture))];
    if posture == Posture::Permissive {
        let rest = RuleDraft { comment: vec![], key: KeyDraft::Rest, body: allow_in(None) };
        commands.push(group("Everything else, in the project without network.", vec![rest]));
        let web = RuleDraft::new(&["WebFetch", "WebSearch"], allow_in(None));
        tools.push(RuleGroup { comment: vec![], rules: vec![web] });
    }
    let comment = match posture {
        Posture::Permissive => "Tools that no rule names are asked about.",
        _ => "What no rule names is asked about, and runs in the project without network.",
    };
    Ok(PolicyDraft {
        head: head(choices),
        settings: Some(SettingsDraft {
            comment: vec![comment.to_owned()],
            default: Effect::Ask,
            sandbox: Some("project".to_owned()),
        }),
        sandboxes: toolchains.iter().flat_map(|it| it.sandboxes.clone()).collect(),
        library_rules,
        commands,
        tools,
        expectations: expectations(posture, toolchains),
        ..PolicyDraft::default()
    })
}

/// The rules for the agent's file tools. The strict posture asks before it reads files
/// that may hold secrets.
fn tool_rules(posture: Posture) -> Vec<RuleDraft> {
    let changing =
        RuleDraft::new(&["Edit", "MultiEdit", "NotebookEdit", "Write"], allow_in(Some("project")));
    if posture != Posture::Strict {
        let looking = RuleDraft::new(&["Glob", "Grep", "LS", "Read"], allow_in(Some("project")));
        return vec![looking, changing];
    }
    let ask = EffectDraft {
        reason: Some("may hold secrets".into()),
        ..EffectDraft::new(Effect::Ask, Some("project"))
    };
    let secret = |pattern: &str| RuleDraft {
        comment: vec![],
        key: KeyDraft::glob(pattern),
        body: RuleBody::Effect(ask.clone()),
    };
    let rest = RuleDraft { comment: vec![], key: KeyDraft::Rest, body: allow_in(Some("project")) };
    let below = vec![secret("$PWD/**/.env"), secret("$PWD/**/.env.*"), rest];
    vec![
        RuleDraft::new(&["Read"], RuleBody::Below(below)),
        RuleDraft::new(&["Glob", "Grep", "LS"], allow_in(Some("project"))),
        changing,
    ]
}

/// Commands that the policy must ask about. The compiler checks them.
fn expectations(posture: Posture, toolchains: &[ToolchainRules]) -> Vec<(Effect, String)> {
    let has = |name: &str| toolchains.iter().any(|toolchain| toolchain.name == name);
    [
        ("git", "git push --force"),
        ("git", "git push origin main"),
        ("rust", "cargo publish"),
        ("node", "npm publish"),
        ("docker", "docker run x"),
    ]
    .into_iter()
    .filter(|(name, _)| has(name))
    .filter(|(_, command)| posture != Posture::Permissive || *command != "git push origin main")
    .map(|(_, command)| (Effect::Ask, command.to_owned()))
    .collect()
}

/// The comment at the top of the policy.
fn head(choices: &PolicyChoices) -> Vec<String> {
    vec![
        format!(
            "What coding agents may do, by `{}` ({}). It is yours to change.",
            Remedy::Init,
            choices.posture.word()
        ),
        "Each command runs in the sandbox named here: X_safe without network, X_full with it."
            .to_owned(),
        format!(
            "`{}` shows what one grants, `{}` what is decided.",
            Remedy::SandboxShow { sandbox: "project".to_owned() },
            Remedy::Explain,
        ),
    ]
}

/// The sandbox of this name in a compiled policy; `None` if there is none or it cannot be
/// read.
pub(crate) fn sandbox(policy: &crate::policy::LoadedPolicy, name: &str) -> Option<Sandbox> {
    let sandboxes = policy.sandboxes().ok()?;
    sandboxes.into_iter().find(|it| it.name().is_ok_and(|it| it == name))?.to_sandbox().ok()
}
