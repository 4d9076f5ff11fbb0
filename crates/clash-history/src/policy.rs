//! The rules that evidence selects. Every word of them comes from the tables of
//! [`crate::known`], and every number from the histories. `clash init` turns them into a
//! draft of a policy.

use clash_policy::Effect;

use crate::evidence::{HistoryEvidence, SeenTimes};
use crate::known::{DOCUMENTATION, KNOWN_ROWS, KnownRow, KnownSandbox};

/// A rule, and the evidence for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LearnedRule {
    /// `Bash`, or the tools it is about.
    pub tools: Vec<&'static str>,
    /// The key below: alternatives, of a place or of a program's name; empty for
    /// everything.
    pub keys: Vec<&'static str>,
    /// Below a program: its subcommands.
    pub second: Vec<&'static str>,
    pub third: Vec<&'static str>,
    pub effect: Effect,
    pub room: KnownSandbox,
    pub why: &'static str,
    pub unless: &'static [&'static str],
    pub times: SeenTimes,
    /// Words of the table that were seen together.
    pub example: String,
}

pub const LOOKING: &[&str] = &["Read", "Glob", "Grep", "LS"];
pub const CHANGING: &[&str] = &["Write", "Edit", "MultiEdit", "NotebookEdit"];

/// The rules that evidence selects: for commands, a deny for each place of credentials that
/// was used, an allow for reading and one for changing files of the project, and one for
/// each host with documentation.
pub fn rules(evidence: &HistoryEvidence) -> Vec<LearnedRule> {
    let mut rules: Vec<LearnedRule> = Vec::new();
    for ((at, words), times) in &evidence.commands {
        let Some(row) = KNOWN_ROWS.get(*at) else { continue };
        add_command(&mut rules, row, words, *times);
    }
    let file = |tools: &[&'static str], keys, effect, why, times| LearnedRule {
        tools: tools.to_vec(),
        keys,
        second: Vec::new(),
        third: Vec::new(),
        effect,
        room: if effect == Effect::Deny { KnownSandbox::Default } else { KnownSandbox::Project },
        why,
        unless: &[],
        times,
        example: String::new(),
    };
    for (place, times) in &evidence.credentials {
        let tools: Vec<&str> = LOOKING.iter().chain(CHANGING).copied().collect();
        rules.push(file(&tools, vec![*place], Effect::Deny, "holds credentials", *times));
    }
    for (tools, times) in [(LOOKING, evidence.reads), (CHANGING, evidence.writes)] {
        if times.times > 0 {
            rules.push(file(tools, Vec::new(), Effect::Allow, "", times));
        }
    }
    for (host, times) in &evidence.documentation {
        let known = DOCUMENTATION.iter().find(|known| *known == host);
        if let Some(host) = known {
            let rule = file(&["WebFetch"], vec![*host], Effect::Allow, "", *times);
            rules.push(LearnedRule { room: KnownSandbox::Default, ..rule });
        }
    }
    rules
}

/// Adds evidence to its rule: one rule for all second words of a program, or for all
/// programs without a second word, whose rows agree in effect, sandbox, reason and options.
/// The example is the last command.
fn add_command(
    rules: &mut Vec<LearnedRule>,
    row: &'static KnownRow,
    words: &[&'static str],
    times: SeenTimes,
) {
    let mut words_left = words.iter().copied();
    let Some(program) = words_left.next() else { return };
    let (second, third) = (words_left.next(), words_left.next());
    let same = |rule: &&mut LearnedRule| {
        rule.tools == ["Bash"]
            && (rule.effect, rule.room, rule.why, rule.unless)
                == (row.effect, row.room, row.why, row.unless)
            && rule.second.is_empty() == second.is_none()
            && rule.third.is_empty() == third.is_none()
            && (second.is_none() || rule.keys == [program])
            && (third.is_none() || second.is_some_and(|it| rule.second == [it]))
    };
    let rule = match rules.iter_mut().find(same) {
        Some(rule) => rule,
        None => {
            rules.push(LearnedRule {
                tools: vec!["Bash"],
                keys: Vec::new(),
                second: Vec::new(),
                third: Vec::new(),
                effect: row.effect,
                room: row.room,
                why: row.why,
                unless: row.unless,
                times: SeenTimes::default(),
                example: String::new(),
            });
            match rules.last_mut() {
                Some(rule) => rule,
                None => return,
            }
        }
    };
    for (list, word) in
        [(&mut rule.keys, Some(program)), (&mut rule.second, second), (&mut rule.third, third)]
    {
        if let Some(word) = word.filter(|word| !list.contains(word)) {
            list.push(word);
        }
    }
    // The example is the last command.
    if rule.example.is_empty() || times.last > rule.times.last {
        rule.example = words.join(" ");
    }
    rule.times.add(times);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CallOutcome;
    use crate::evidence::ActionScene;
    use clash_policy::{Action, FileUse, HostUse, ToolInput};
    use proptest::prelude::*;
    use std::path::Path;

    /// The rules learned from scripts that ran, one fetch and one read.
    fn learned(scripts: &[String]) -> Vec<LearnedRule> {
        let mut evidence = HistoryEvidence::default();
        let scene = ActionScene {
            when: Some(1_794_801_180_506),
            agent: "claude",
            project: Path::new("/work/app"),
            cwd: Path::new("/work/app"),
            home: Path::new("/home/u"),
        };
        for script in scripts {
            evidence.note(&Action::script("claude", "", script), CallOutcome::Ran, &scene);
        }
        let host = HostUse { host: "docs.rs".into(), port: 443 };
        let needs = clash_policy::FileCaps::READ;
        let file = FileUse { path: "/work/app/a".into(), needs, caseless: false };
        for (tool, input) in
            [("WebFetch", ToolInput::Hosts(vec![host])), ("Read", ToolInput::Files(vec![file]))]
        {
            let action = Action { tool: tool.into(), input, ..Action::script("claude", "", "") };
            evidence.note(&action, CallOutcome::Ran, &scene);
        }
        rules(&evidence)
    }

    /// What runs any code it is given.
    const RUNNERS: &[&str] = &[
        "awk",
        "bash",
        "bunx",
        "busybox",
        "dash",
        "elixir",
        "env",
        "erl",
        "expect",
        "fish",
        "gawk",
        "ghci",
        "irb",
        "java",
        "julia",
        "ksh",
        "lua",
        "mawk",
        "node",
        "npx",
        "osascript",
        "parallel",
        "perl",
        "php",
        "pwsh",
        "pypy3",
        "python",
        "python3",
        "python3.12",
        "rake",
        "ruby",
        "runghc",
        "scala",
        "sed",
        "sh",
        "ssh",
        "sudo",
        "tclsh",
        "tsx",
        "uvx",
        "vim",
        "watch",
        "xargs",
        "zsh",
    ];

    /// A call of a program of [`RUNNERS`], with something before and after it.
    fn script() -> impl Strategy<Value = String> {
        let runner = prop::sample::select(RUNNERS);
        let before = prop::sample::select(vec![
            "",
            "env A=1 ",
            "timeout 5 ",
            "nice -n 3 ",
            "sudo ",
            "nohup ",
            "/usr/bin/",
            "A=b ",
            "ls | ",
            "cd x && ",
            "! ",
            "time ",
            "exec ",
            "command ",
        ]);
        let after = prop::sample::select(vec![
            "",
            " x.py",
            " -c 'ls'",
            " -e 1",
            " -m pytest",
            " <<< ls",
            " test",
            " run build",
            " --version",
            " | tail -3",
            " && cargo test",
            " > out",
        ]);
        (before, runner, after)
            .prop_map(|(before, runner, after)| format!("{before}{runner}{after}"))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]
        #[test]
        fn nothing_that_runs_any_code_is_ever_allowed(
            scripts in prop::collection::vec(script(), 1..12),
        ) {
            for rule in learned(&scripts) {
                let runs = rule.keys.iter().any(|key| RUNNERS.contains(key));
                prop_assert!(rule.effect > Effect::Allow || !runs, "{:?}", rule);
            }
        }

        #[test]
        fn any_history_can_be_learned_from(scripts in prop::collection::vec(any::<String>(), 0..6)) {
            let _ = learned(&scripts);
        }
    }
}
