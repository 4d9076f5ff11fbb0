//! The draft of a policy from a history: its rules, each with its evidence.

use clash_history::day;
use clash_history::evidence::{HistoryEvidence, SeenTimes};
use clash_history::known::KnownSandbox;
use clash_history::policy::{self, CHANGING, LOOKING, LearnedRule};
use clash_policy::Effect;

use clash_syntax::draft::{
    EffectDraft, KeyDraft, PolicyDraft, RuleBody, RuleDraft, RuleGroup, SettingsDraft,
};

/// The reason of an ask for an option, where the row of known commands gives none.
const GUARDED: &str = "with this option it destroys or runs something";

/// A policy with one rule for each kind of action seen. Everything else asks.
pub(super) fn draft(evidence: &HistoryEvidence) -> PolicyDraft {
    let seen = policy::rules(evidence);
    let group = |rules: Vec<RuleDraft>| match rules.is_empty() {
        true => Vec::new(),
        false => vec![RuleGroup { comment: Vec::new(), rules }],
    };
    PolicyDraft {
        head: head(evidence),
        settings: Some(SettingsDraft {
            comment: Vec::new(),
            default: Effect::Ask,
            sandbox: Some("project".to_owned()),
        }),
        commands: group(commands(&seen)),
        tools: group(files(&seen).into_iter().chain(pages(&seen)).collect()),
        ..PolicyDraft::default()
    }
}

/// The comment at the top: the number of actions, the agents and days, and the actions that
/// were not used.
fn head(evidence: &HistoryEvidence) -> Vec<String> {
    let agents: Vec<&str> = evidence.agents.keys().copied().collect();
    let span = match (evidence.first, evidence.last) {
        (Some(first), Some(last)) if day(first) != day(last) => {
            format!(", {} to {}", day(first), day(last))
        }
        (_, Some(last)) => format!(", {}", day(last)),
        _ => String::new(),
    };
    let by = if agents.is_empty() { String::new() } else { format!(" of {}", agents.join(", ")) };
    let mut lines =
        vec![format!("Learned from {}{by}{span}.", count_of(evidence.actions, "action"))];
    let left = evidence.left;
    let rest: Vec<String> = [
        (left.not_run, "that did not run"),
        (left.unknown_programs, "of programs clash knows nothing about"),
        (left.opaque, "that cannot be looked into"),
        (left.elsewhere, "on files outside the project"),
        (left.other_hosts, "to hosts that serve more than documentation"),
        (left.other_tools, "of other tools"),
    ]
    .into_iter()
    .filter(|(count, _)| *count > 0)
    .map(|(count, what)| format!("{count} {what}"))
    .collect();
    if !rest.is_empty() {
        lines.push(format!("Not used, and so asked about: {}.", rest.join(", ")));
    }
    lines
}

fn count_of(count: u64, one: &str) -> String {
    if count == 1 { format!("1 {one}") } else { format!("{count} {one}s") }
}

/// The evidence for a rule, as a comment.
fn because(SeenTimes { times, last }: SeenTimes, example: &str) -> Vec<String> {
    let last = last.map_or_else(String::new, |last| format!(", last on {}", day(last)));
    let example = match example {
        "" => String::new(),
        example => format!(", for example `{example}`"),
    };
    vec![format!("seen {}{last}{example}", count_of(times, "time"))]
}

fn words(words: &[&str]) -> KeyDraft {
    KeyDraft::Words(words.iter().map(|word| (*word).to_owned()).collect())
}

/// A rule under a key, with its evidence.
fn rule(seen: &LearnedRule, key: KeyDraft) -> RuleDraft {
    RuleDraft { comment: because(seen.times, &seen.example), key, body: body(seen) }
}

/// The effect of a rule. If some options are dangerous, these ask.
fn body(seen: &LearnedRule) -> RuleBody {
    let given = RuleBody::Effect(effect_of(seen, seen.effect));
    if seen.unless.is_empty() {
        return given;
    }
    let asked = RuleBody::Effect(effect_of(seen, Effect::Ask));
    let bare = |key, body| RuleDraft { comment: Vec::new(), key, body };
    RuleBody::Below(vec![bare(words(seen.unless), asked), bare(KeyDraft::Rest, given)])
}

/// The effect with its sandbox and, unless it is an allow, a reason.
fn effect_of(seen: &LearnedRule, effect: Effect) -> EffectDraft {
    let sandbox = match seen.room {
        _ if effect == Effect::Deny => None,
        KnownSandbox::Default => None,
        KnownSandbox::Project => Some("project".to_owned()),
        KnownSandbox::Safe(module) => Some(format!("{module}_safe")),
        KnownSandbox::Full(module) => Some(format!("{module}_full")),
    };
    let why = if seen.why.is_empty() { GUARDED } else { seen.why };
    EffectDraft { effect, sandbox, reason: (effect != Effect::Allow).then(|| why.to_owned()) }
}

/// The rules about commands: first those about whole programs, then those about subcommands.
fn commands(seen: &[LearnedRule]) -> Vec<RuleDraft> {
    let seen: Vec<&LearnedRule> = seen.iter().filter(|rule| rule.tools == ["Bash"]).collect();
    let has_own = |rule: &LearnedRule| {
        seen.iter().any(|other| {
            !other.second.is_empty() && other.keys.iter().any(|it| rule.keys.contains(it))
        })
    };
    let (whole, parted): (Vec<&LearnedRule>, Vec<&LearnedRule>) =
        seen.iter().partition(|rule| rule.second.is_empty() && !has_own(rule));
    let mut programs: Vec<&str> = Vec::new();
    for program in parted.iter().flat_map(|rule| &rule.keys) {
        if !programs.contains(program) {
            programs.push(program);
        }
    }
    let whole = whole.into_iter().map(|seen| rule(seen, words(&seen.keys)));
    let parted = programs.into_iter().map(|program| {
        let of_it: Vec<&LearnedRule> =
            parted.iter().copied().filter(|rule| rule.keys.contains(&program)).collect();
        RuleDraft::new(&[program], RuleBody::Below(subcommands(&of_it)))
    });
    whole.chain(parted).collect()
}

/// The rules below one program. If its commands run in a safe sandbox and no rule is about
/// the whole program, every other subcommand asks, in the same sandbox.
fn subcommands(seen: &[&LearnedRule]) -> Vec<RuleDraft> {
    let (flat, deeper): (Vec<&LearnedRule>, Vec<&LearnedRule>) =
        seen.iter().partition(|rule| rule.third.is_empty());
    let mut rules: Vec<RuleDraft> = Vec::new();
    for seen in &flat {
        let key = if seen.second.is_empty() { KeyDraft::Rest } else { words(&seen.second) };
        rules.push(rule(seen, key));
    }
    for seen in deeper {
        let below = RuleBody::Below(vec![rule(seen, words(&seen.third))]);
        rules.push(RuleDraft { comment: Vec::new(), key: words(&seen.second), body: below });
    }
    // The same sandbox, because one script may have commands of both.
    let any = flat.iter().any(|seen| seen.second.is_empty());
    let safe = flat.iter().find(|seen| matches!(seen.room, KnownSandbox::Safe(_)));
    if let Some(seen) = safe.filter(|_| !any) {
        let asked = EffectDraft { reason: None, ..effect_of(seen, Effect::Ask) };
        let comment = vec!["anything else".to_owned()];
        rules.push(RuleDraft { comment, key: KeyDraft::Rest, body: RuleBody::Effect(asked) });
    }
    rules
}

/// The rules for reading tools and for changing tools, each with the places that have rules
/// of their own.
fn files(seen: &[LearnedRule]) -> Vec<RuleDraft> {
    let mut rules = Vec::new();
    for tools in [LOOKING, CHANGING] {
        let about = |rule: &&LearnedRule| tools.iter().all(|tool| rule.tools.contains(tool));
        let (places, all): (Vec<&LearnedRule>, Vec<&LearnedRule>) =
            seen.iter().filter(about).partition(|rule| !rule.keys.is_empty());
        match (places.as_slice(), all.first()) {
            ([], None) => {}
            ([], Some(all)) => rules.push(rule(all, words(tools))),
            (places, all) => {
                let places = places.iter().map(|seen| rule(seen, words(&seen.keys)));
                let all = all.map(|seen| rule(seen, KeyDraft::Rest));
                rules.push(RuleDraft::new(tools, RuleBody::Below(places.chain(all).collect())));
            }
        }
    }
    rules
}

/// The rule about web pages: one entry for each host seen; `None` if there is none.
fn pages(seen: &[LearnedRule]) -> Option<RuleDraft> {
    let hosts: Vec<RuleDraft> = seen
        .iter()
        .filter(|rule| rule.tools == ["WebFetch"])
        .map(|seen| {
            rule(seen, KeyDraft::any_of(seen.keys.iter().map(|host| KeyDraft::exact(*host))))
        })
        .collect();
    (!hosts.is_empty()).then(|| RuleDraft::new(&["WebFetch"], RuleBody::Below(hosts)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::init::presets::tests::library;
    use clash_history::CallOutcome;
    use clash_history::evidence::ActionScene;
    use clash_history::known::KNOWN_ROWS;
    use clash_policy::{Action, FileUse, HostUse, ToolInput};
    use proptest::prelude::*;
    use std::path::Path;

    fn learned(actions: &[Action]) -> String {
        let mut evidence = HistoryEvidence::default();
        for action in actions {
            let scene = ActionScene {
                when: Some(1_794_801_180_506),
                agent: "claude",
                project: Path::new("/work/app"),
                cwd: Path::new("/work/app"),
                home: Path::new("/home/u"),
            };
            evidence.note(action, CallOutcome::Ran, &scene);
        }
        draft(&evidence).text().unwrap()
    }

    fn bash(script: &str) -> Action {
        Action::script("claude", "", script)
    }

    #[test]
    fn every_rule_says_what_it_is_based_on() {
        let read = FileUse {
            path: "/work/app/a".into(),
            needs: clash_policy::FileCaps::READ,
            caseless: false,
        };
        let fetch = HostUse { host: "docs.rs".into(), port: 443 };
        let policy = learned(&[
            bash("cargo build && cargo test"),
            bash("git status; git push origin main"),
            bash("ls; cat x; python3 x.py"),
            bash("gh auth token"),
            bash("cat ~/.ssh/id_ed25519"),
            bash("hunter2 --now"),
            Action { tool: "Read".into(), input: ToolInput::Files(vec![read]), ..bash("") },
            Action { tool: "WebFetch".into(), input: ToolInput::Hosts(vec![fetch]), ..bash("") },
        ]);
        insta::assert_snapshot!(policy, @r##"
        # Learned from 8 actions of claude, 2026-11-16.
        # Not used, and so asked about: 1 of programs clash knows nothing about.

        load("@clash//rust.star", "rust_safe")
        load("@clash//sandboxes.star", "git_full", "git_safe", "project")

        settings(default = ask(), default_sandbox = project)

        when({
            "Bash": {
                # seen 2 times, last on 2026-11-16, for example `cat`
                ("cat", "ls"): allow(sandbox = project),
                # seen 1 time, last on 2026-11-16, for example `python3`
                "python3": ask(sandbox = project, reason = "runs any code it is given"),
                "git": {
                    # seen 1 time, last on 2026-11-16, for example `git status`
                    "status": allow(sandbox = git_safe),
                    # seen 1 time, last on 2026-11-16, for example `git push`
                    "push": ask(sandbox = git_full, reason = "cannot be taken back once it is out"),
                    # anything else
                    glob("**"): ask(sandbox = git_safe),
                },
                "cargo": {
                    # seen 2 times, last on 2026-11-16, for example `cargo build`
                    ("build", "test"): allow(sandbox = rust_safe),
                    # anything else
                    glob("**"): ask(sandbox = rust_safe),
                },
                "gh": {
                    "auth": {
                        # seen 1 time, last on 2026-11-16, for example `gh auth token`
                        "token": deny(reason = "shows credentials"),
                    },
                },
            },
            ("Read", "Glob", "Grep", "LS"): {
                # seen 1 time, last on 2026-11-16
                "$HOME/.ssh": deny(reason = "holds credentials"),
                # seen 1 time, last on 2026-11-16
                default(): allow(sandbox = project),
            },
            ("Write", "Edit", "MultiEdit", "NotebookEdit"): {
                # seen 1 time, last on 2026-11-16
                "$HOME/.ssh": deny(reason = "holds credentials"),
            },
            "WebFetch": {
                # seen 1 time, last on 2026-11-16
                exact("docs.rs"): allow(),
            },
        })
        "##);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]
        #[test]
        fn nothing_anybody_typed_is_in_the_policy(
            token in "[A-Z][A-Za-z0-9]{11,24}",
            script in prop::sample::select(vec![
                "@", "@ x", "git @", "git commit -m @", "cargo build --features @", "TOKEN=@ make",
                "npm run @", "cat @", "cat ~/.ssh/@", "python3 -c '@'", "bash -c '@'", "@() { ls; }; @",
                "gh auth token @", "kubectl get secret @", "ls \u{1b}]0;@", "make '\n\"@\n'", "ls > @",
                "curl https://@.test/", "xargs @ < x", "$(@)", "git push https://u:@@x.test", "'ls\"): allow(), (\"@'",
            ]),
            tool in "[A-Za-z_\"#]{1,12}",
        ) {
            let script = script.replace('@', &token);
            let host = HostUse { host: format!("{token}.docs.rs").to_lowercase(), port: 443 };
            let file = FileUse { path: format!("/work/app/{token}").into(), needs: clash_policy::FileCaps::ALL, caseless: false };
            let policy = learned(&[
                bash(&script),
                bash("ls"),
                Action { tool: "WebFetch".into(), input: ToolInput::Hosts(vec![host]), ..bash("") },
                Action { tool: "Write".into(), input: ToolInput::Files(vec![file]), ..bash("") },
                Action { tool: format!("mcp__{tool}__{token}"), input: ToolInput::Fields(Vec::new()), ..bash("") },
            ]);
            prop_assert!(!policy.to_lowercase().contains(&token.to_lowercase()), "{}", policy);
            prop_assert!(!policy.contains('\u{1b}'), "a control character");
            prop_assert_eq!(clash_syntax::fmt::format(&policy).unwrap(), policy);
        }
    }

    /// The effect of the library's rules for a command.
    fn library_says(rules: &[RuleDraft], words: &[&str]) -> Option<EffectDraft> {
        let (word, rest) = words.split_first().map_or(("", words), |(word, rest)| (*word, rest));
        let named = rules.iter().find(|rule| match &rule.key {
            KeyDraft::Words(words) => words.iter().any(|it| it == word),
            _ => false,
        });
        let found = named.or_else(|| rules.iter().find(|rule| rule.key == KeyDraft::Rest))?;
        match &found.body {
            RuleBody::Effect(leaf) => Some(leaf.clone()),
            RuleBody::Below(rules) => library_says(rules, rest),
        }
    }

    #[test]
    fn what_is_learned_allows_nothing_the_library_asks_about() {
        let library = library();
        for row in KNOWN_ROWS.iter().filter(|row| row.effect == Effect::Allow) {
            let KnownSandbox::Safe(module) = row.room else { continue };
            let rules = library.rules(module).unwrap();
            for program in row.programs {
                let seconds = if row.second.is_empty() { &[""][..] } else { row.second };
                for second in seconds {
                    let Some(said) = library_says(&rules, &[program, second]) else {
                        continue;
                    };
                    assert_eq!(said.effect, Effect::Allow, "{program} {second}: {said:?}");
                }
            }
        }
    }
}
