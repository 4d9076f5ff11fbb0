//! A policy made of evidence: every word of it from the tables of
//! [`crate::known`], every number from the histories, and nothing else.

use std::collections::BTreeMap;
use std::fmt::Write;

use clash_policy::Effect;

use crate::evidence::{Evidence, Times};
use crate::known::{DOCUMENTATION, ROWS, Room, Row};
use crate::time::day;

/// A rule with what it is based on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// `Bash`, or the tools it is about.
    pub tools: Vec<&'static str>,
    /// The key below: alternatives, of a place or of a program's name; empty for
    /// everything.
    pub keys: Vec<&'static str>,
    /// Below a program: its subcommands.
    pub second: Vec<&'static str>,
    pub third: Vec<&'static str>,
    pub effect: Effect,
    pub room: Room,
    pub why: &'static str,
    pub unless: &'static [&'static str],
    pub times: Times,
    /// Words of the table that were seen together.
    pub example: String,
}

const GUARDED: &str = "with this option it destroys or runs something";

const LOOKING: &[&str] = &["Read", "Glob", "Grep", "LS"];
const CHANGING: &[&str] = &["Write", "Edit", "MultiEdit", "NotebookEdit"];

/// The rules that evidence selects.
pub fn rules(evidence: &Evidence) -> Vec<Rule> {
    let mut rules: Vec<Rule> = Vec::new();
    for ((at, words), times) in &evidence.commands {
        let Some(row) = ROWS.get(*at) else { continue };
        add_command(&mut rules, row, words, *times);
    }
    let file = |tools: &[&'static str], keys, effect, why, times| Rule {
        tools: tools.to_vec(),
        keys,
        second: Vec::new(),
        third: Vec::new(),
        effect,
        room: if effect == Effect::Deny { Room::Default } else { Room::Project },
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
            rules.push(Rule { room: Room::Default, ..rule });
        }
    }
    rules
}

/// One rule for all words of a row that share its program, or for all programs
/// of a row that is about nothing else.
fn add_command(rules: &mut Vec<Rule>, row: &'static Row, words: &[&'static str], times: Times) {
    let mut words_left = words.iter().copied();
    let Some(program) = words_left.next() else { return };
    let (second, third) = (words_left.next(), words_left.next());
    let same = |rule: &&mut Rule| {
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
            rules.push(Rule {
                tools: vec!["Bash"],
                keys: Vec::new(),
                second: Vec::new(),
                third: Vec::new(),
                effect: row.effect,
                room: row.room,
                why: row.why,
                unless: row.unless,
                times: Times::default(),
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
    // The example is what was seen last.
    if rule.example.is_empty() || times.last > rule.times.last {
        rule.example = words.join(" ");
    }
    rule.times.add(times);
}

/// The whole policy, in the one layout.
pub fn write(evidence: &Evidence) -> Result<String, clash_syntax::SyntaxError> {
    let rules = rules(evidence);
    let mut out = head(evidence);
    loads(&mut out, &rules);
    out.push_str("settings(default = ask(), default_sandbox = project)\n\nwhen({\n");
    bash(&mut out, &rules);
    files(&mut out, &rules);
    hosts(&mut out, &rules);
    out.push_str("})\n");
    clash_syntax::fmt::format(&out)
}

fn head(evidence: &Evidence) -> String {
    let mut out = String::new();
    let agents: Vec<&str> = evidence.agents.keys().copied().collect();
    let span = match (evidence.first, evidence.last) {
        (Some(first), Some(last)) if day(first) != day(last) => {
            format!(", {} to {}", day(first), day(last))
        }
        (_, Some(last)) => format!(", {}", day(last)),
        _ => String::new(),
    };
    let by = if agents.is_empty() { String::new() } else { format!(" of {}", agents.join(", ")) };
    let _ = writeln!(out, "# Learned from {}{by}{span}.", counted(evidence.actions, "action"));
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
        let _ = writeln!(out, "# Not used, and so asked about: {}.", rest.join(", "));
    }
    out.push('\n');
    out
}

fn counted(count: u64, one: &str) -> String {
    if count == 1 { format!("1 {one}") } else { format!("{count} {one}s") }
}

fn loads(out: &mut String, rules: &[Rule]) {
    let mut wanted: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    wanted.insert("sandboxes", vec!["project".to_owned()]);
    for rule in rules {
        if let Room::Safe(module) | Room::Full(module) = rule.room {
            let names = wanted.entry(module).or_default();
            let name = room(rule.room);
            if !names.contains(&name) {
                names.push(name);
            }
        }
    }
    for (module, mut names) in wanted {
        names.sort();
        let names: Vec<String> = names.iter().map(|name| format!("\"{name}\"")).collect();
        let _ = writeln!(out, "load(\"@clash//{module}.star\", {})", names.join(", "));
    }
    out.push('\n');
}

fn room(room: Room) -> String {
    match room {
        Room::Project | Room::Default => "project".to_owned(),
        Room::Safe(module) => format!("{module}_safe"),
        Room::Full(module) => format!("{module}_full"),
    }
}

fn effect(effect: Effect, rule: &Rule) -> String {
    let mut given = Vec::new();
    if effect != Effect::Deny && rule.room != Room::Default {
        given.push(format!("sandbox = {}", room(rule.room)));
    }
    if effect != Effect::Allow {
        let why = if rule.why.is_empty() { GUARDED } else { rule.why };
        given.push(format!("reason = \"{why}\""));
    }
    format!("{}({})", effect.word(), given.join(", "))
}

fn key(words: &[&str]) -> String {
    match words {
        [one] => format!("\"{one}\""),
        several => {
            let several: Vec<String> = several.iter().map(|word| format!("\"{word}\"")).collect();
            format!("({})", several.join(", "))
        }
    }
}

/// What a rule is based on, as a comment.
fn because(rule: &Rule) -> String {
    let mut text = format!("# seen {}", counted(rule.times.times, "time"));
    if let Some(last) = rule.times.last {
        let _ = write!(text, ", last on {}", day(last));
    }
    if !rule.example.is_empty() {
        let _ = write!(text, ", for example `{}`", rule.example);
    }
    text
}

fn leaf(rule: &Rule) -> String {
    if rule.unless.is_empty() {
        return effect(rule.effect, rule);
    }
    let (asked, allowed) = (effect(Effect::Ask, rule), effect(rule.effect, rule));
    format!("{{{}: {asked}, glob(\"**\"): {allowed}}}", key(rule.unless))
}

fn bash(out: &mut String, rules: &[Rule]) {
    let rules: Vec<&Rule> = rules.iter().filter(|rule| rule.tools == ["Bash"]).collect();
    if rules.is_empty() {
        return;
    }
    out.push_str("\"Bash\": {\n");
    for rule in rules.iter().filter(|rule| rule.second.is_empty() && !has_own(&rules, rule)) {
        let _ = writeln!(out, "{}\n{}: {},", because(rule), key(&rule.keys), leaf(rule));
    }
    let mut programs: Vec<&str> = Vec::new();
    for rule in rules.iter().filter(|rule| !rule.second.is_empty() || has_own(&rules, rule)) {
        for program in &rule.keys {
            if !programs.contains(program) {
                programs.push(program);
            }
        }
    }
    for program in programs {
        let _ = writeln!(out, "\"{program}\": {{");
        let of_program = rules.iter().filter(|rule| rule.keys.contains(&program));
        let (deeper, flat): (Vec<&&Rule>, Vec<&&Rule>) =
            of_program.partition(|rule| !rule.third.is_empty());
        let any = flat.iter().any(|rule| rule.second.is_empty());
        let rooms: Vec<Room> = flat.iter().map(|rule| rule.room).collect();
        for rule in flat {
            let key =
                if rule.second.is_empty() { "glob(\"**\")".to_owned() } else { key(&rule.second) };
            let _ = writeln!(out, "{}\n{key}: {},", because(rule), leaf(rule));
        }
        for rule in deeper {
            let (second, third) = (key(&rule.second), key(&rule.third));
            let _ = writeln!(out, "{second}: {{\n{}\n{third}: {},\n}},", because(rule), leaf(rule));
        }
        // In the sandbox of the rest, or a script with both would fit in none.
        let room = rooms.into_iter().find(|room| matches!(room, Room::Safe(_)));
        if let Some(room) = room.filter(|_| !any) {
            let _ = writeln!(
                out,
                "# anything else\nglob(\"**\"): ask(sandbox = {}),",
                self::room(room)
            );
        }
        out.push_str("},\n");
    }
    out.push_str("},\n");
}

/// Whether one of a rule's programs has rules about its subcommands too.
fn has_own(rules: &[&Rule], rule: &Rule) -> bool {
    rules.iter().any(|other| {
        !other.second.is_empty() && other.keys.iter().any(|program| rule.keys.contains(program))
    })
}

/// Tools that look and tools that change, each with the places they stay out of.
fn files(out: &mut String, rules: &[Rule]) {
    for tools in [LOOKING, CHANGING] {
        let about = |rule: &&Rule| tools.iter().all(|tool| rule.tools.contains(tool));
        let (denied, allowed): (Vec<&Rule>, Vec<&Rule>) =
            rules.iter().filter(about).partition(|rule| !rule.keys.is_empty());
        match (denied.as_slice(), allowed.first()) {
            ([], None) => {}
            ([], Some(rule)) => {
                let _ = writeln!(out, "{}\n{}: {},", because(rule), key(tools), leaf(rule));
            }
            (denied, allowed) => {
                let _ = writeln!(out, "{}: {{", key(tools));
                for rule in denied.iter().copied().chain(allowed.copied()) {
                    let key = if rule.keys.is_empty() {
                        "glob(\"**\")".to_owned()
                    } else {
                        key(&rule.keys)
                    };
                    let _ = writeln!(out, "{}\n{key}: {},", because(rule), leaf(rule));
                }
                out.push_str("},\n");
            }
        }
    }
}

fn hosts(out: &mut String, rules: &[Rule]) {
    let rules: Vec<&Rule> = rules.iter().filter(|rule| rule.tools == ["WebFetch"]).collect();
    if rules.is_empty() {
        return;
    }
    out.push_str("\"WebFetch\": {\n");
    for rule in rules {
        let _ = writeln!(out, "{}\nexact({}): {},", because(rule), key(&rule.keys), leaf(rule));
    }
    out.push_str("},\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Outcome;
    use crate::evidence::Scene;
    use clash_policy::{Action, FileUse, HostUse, Input};
    use proptest::prelude::*;
    use std::path::Path;

    fn learned(actions: &[Action]) -> String {
        let mut evidence = Evidence::default();
        for action in actions {
            let scene = Scene {
                when: Some(1_794_801_180_506),
                agent: "claude",
                project: Path::new("/work/app"),
                cwd: Path::new("/work/app"),
                home: Path::new("/home/u"),
            };
            evidence.note(action, Outcome::Ran, &scene);
        }
        write(&evidence).unwrap()
    }

    fn bash(script: &str) -> Action {
        Action::script("claude", "", script)
    }

    #[test]
    fn every_rule_says_what_it_is_based_on() {
        let read = FileUse {
            path: "/work/app/a".into(),
            needs: clash_policy::Caps::READ,
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
            Action { tool: "Read".into(), input: Input::Files(vec![read]), ..bash("") },
            Action { tool: "WebFetch".into(), input: Input::Hosts(vec![fetch]), ..bash("") },
        ]);
        insta::assert_snapshot!(policy, @r##"
        # Learned from 8 actions of claude, 2026-11-16.
        # Not used, and so asked about: 1 of programs clash knows nothing about.

        load("@clash//git.star", "git_full", "git_safe")
        load("@clash//rust.star", "rust_safe")
        load("@clash//sandboxes.star", "project")

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
                glob("**"): allow(sandbox = project),
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
            let file = FileUse { path: format!("/work/app/{token}").into(), needs: clash_policy::Caps::ALL, caseless: false };
            let policy = learned(&[
                bash(&script),
                bash("ls"),
                Action { tool: "WebFetch".into(), input: Input::Hosts(vec![host]), ..bash("") },
                Action { tool: "Write".into(), input: Input::Files(vec![file]), ..bash("") },
                Action { tool: format!("mcp__{tool}__{token}"), input: Input::Fields(Vec::new()), ..bash("") },
            ]);
            prop_assert!(!policy.to_lowercase().contains(&token.to_lowercase()), "{}", policy);
            prop_assert!(!policy.contains('\u{1b}'), "a control character");
            prop_assert_eq!(clash_syntax::fmt::format(&policy).unwrap(), policy);
        }

        #[test]
        fn any_script_can_be_learned_from(script in any::<String>()) {
            let _ = learned(&[bash(&script), bash("ls")]);
        }
    }
}
