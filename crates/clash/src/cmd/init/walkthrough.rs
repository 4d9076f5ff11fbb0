//! The questions of `clash init` at a terminal. An empty line takes the default of a
//! question. Clash changes nothing before the answer to the last one.

use std::io;

use super::posture::Posture;
use super::preview::print_changes;
use super::{InitProject, PolicyProposal, WantedPolicy, agents, unknown_ecosystem};
use crate::ecosystems::{self, DetectedToolchain};
use crate::ui::{CommandOutput, Failure, TextTone, prompt};

/// The choices on the command line. Clash does not ask about them.
pub(super) struct GivenAnswers {
    pub(super) posture: bool,
    pub(super) toolchains: bool,
    pub(super) agents: bool,
}

/// Asks about the choices that the command line does not give, and puts the answers into
/// `wanted`. A policy from a history has no posture and no toolchains.
pub(super) fn ask(
    out: &mut CommandOutput,
    project: &InitProject,
    wanted: &mut WantedPolicy,
    given: GivenAnswers,
) -> Result<(), Failure> {
    if wanted.learned.is_none() {
        if !given.posture {
            ask_posture(out, wanted)?;
        }
        if !given.toolchains {
            ask_toolchains(project, wanted)?;
        }
    }
    if !given.agents {
        ask_agents(wanted)?;
    }
    ask_imports(out, wanted)?;
    ask_merge_or_replace(project, wanted)
}

/// Explains the postures and asks for one, by number or by the start of its name.
fn ask_posture(out: &mut CommandOutput, wanted: &mut WantedPolicy) -> Result<(), Failure> {
    out.line("\nHow much should happen without asking you?")?;
    for (number, posture) in (1..).zip(Posture::ALL) {
        out.line(format!("  {number}  {}", out.tone(TextTone::Strong, posture.word())))?;
        for (verb, what) in posture.explained() {
            out.line(format!("       {verb:<7} {what}"))?;
        }
    }
    wanted.posture = choose("Posture", wanted.posture.word(), |answer| {
        let numbered = (1..).zip(Posture::ALL).find(|(number, _)| answer == number.to_string());
        let begins = |posture: &Posture| posture.word().starts_with(&answer.to_lowercase());
        let named = Posture::ALL.into_iter().find(begins);
        numbered.map(|(_, posture)| posture).or(named).ok_or_else(|| "1, 2 or 3".to_owned())
    })?;
    Ok(())
}

/// Asks for the names of toolchains; `none` for none.
fn ask_toolchains(project: &InitProject, wanted: &mut WantedPolicy) -> Result<(), Failure> {
    let names: Vec<&str> = wanted.ecosystems.iter().map(|it| it.ecosystem.name).collect();
    let default = if names.is_empty() { "none".to_owned() } else { names.join(" ") };
    wanted.ecosystems = choose("\nToolchains", &default, |answer| {
        let words = answer.split([' ', ',']).filter(|word| !word.is_empty() && *word != "none");
        let each = |name: &str| {
            let known = ecosystems::find_ecosystem(name).ok_or_else(|| {
                let Failure { message, hint, .. } = unknown_ecosystem(name);
                format!("{message}; {}", hint.unwrap_or_default())
            })?;
            let found = project.found.ecosystems.iter().find(|it| it.ecosystem == known);
            Ok(found.cloned().unwrap_or_else(|| DetectedToolchain::asked_for(known)))
        };
        words.map(each).collect::<Result<Vec<_>, String>>()
    })?;
    Ok(())
}

/// Asks for the names of agents to wire; `none` for none.
fn ask_agents(wanted: &mut WantedPolicy) -> Result<(), Failure> {
    let known = agents::names();
    let found = agents::found();
    let default =
        if wanted.agents.is_empty() { "none".to_owned() } else { wanted.agents.join(" ") };
    let what = if found.is_empty() {
        format!(
            "\nNo agent was found on this machine (known are {}). Agents to wire",
            known.join(", ")
        )
    } else {
        "\nAgents to put clash in front of".to_owned()
    };
    wanted.agents = choose(&what, &default, |answer| {
        let words = answer.split([' ', ',']).filter(|word| !word.is_empty() && *word != "none");
        let each = |name: &str| match agents::is_known(name) {
            true => Ok(name.to_owned()),
            false => Err(format!("no agent `{name}` is known; known are {}", known.join(", "))),
        };
        words.map(each).collect::<Result<Vec<_>, String>>()
    })?;
    Ok(())
}

/// Shows the imported permissions and asks whether to take them over (default: yes); drops
/// them after a no. Asks nothing if there are none.
fn ask_imports(out: &mut CommandOutput, wanted: &mut WantedPolicy) -> Result<(), Failure> {
    if wanted.imports.is_empty() {
        return Ok(());
    }
    out.line("")?;
    for import in &wanted.imports {
        let left = import.imported.not_expressed.len();
        let note = if left == 0 {
            String::new()
        } else {
            format!(" ({left} entries cannot be said here)")
        };
        out.line(format!("permissions of {}{note}", import.file.display()))?;
        for rule in rules_in_words(&import.imported.source) {
            out.line(format!("  {rule}"))?;
        }
    }
    let yes = choose("Take them over?", "yes", yes_or_no)?;
    if !yes {
        wanted.imports.clear();
    }
    Ok(())
}

/// The rules of an imported policy, one a line with the keys around it, for example
/// `Bash npm test: allow(sandbox = node_full)`; the first few of them.
fn rules_in_words(source: &str) -> Vec<String> {
    const MAX_SHOWN_LINES: usize = 12;
    let mut around: Vec<String> = Vec::new();
    let mut all: Vec<String> = Vec::new();
    for line in source.lines().map(str::trim).filter(|line| !line.starts_with('#')) {
        if let Some(key) = line.strip_suffix('{') {
            let key = key.trim_end_matches([' ', ':']);
            let is_call = ["when(", "policy("].iter().any(|call| key.starts_with(call));
            around.push(if is_call { String::new() } else { without_quotes(key) });
        } else if line.starts_with('}') {
            around.pop();
        } else if let Some((key, effect)) = line.split_once(": ").filter(|_| !around.is_empty()) {
            let keys =
                around.iter().cloned().chain([without_quotes(key)]).filter(|key| !key.is_empty());
            let keys = keys.collect::<Vec<_>>().join(" ");
            all.push(format!("{keys}: {}", effect.trim_end_matches(',')));
        }
    }
    let more = all.len().saturating_sub(MAX_SHOWN_LINES);
    all.truncate(MAX_SHOWN_LINES);
    if more > 0 {
        all.push(format!("and {more} more"));
    }
    all
}

/// A key without the quotes of its words.
fn without_quotes(key: &str) -> String {
    key.replace('"', "")
}

/// If there is a policy already, asks whether to merge or to replace it. Does not ask with
/// `--replace` or for a learned policy.
fn ask_merge_or_replace(project: &InitProject, wanted: &mut WantedPolicy) -> Result<(), Failure> {
    let file = project.policy_file(wanted)?;
    if !file.exists() || wanted.replace || wanted.learned.is_some() {
        return Ok(());
    }
    let what = format!(
        "\nThere is a policy already, {}.\nMerge what it says nothing about, or replace it (it is kept beside)?",
        file.display()
    );
    wanted.replace = choose(&what, "merge", |answer| match answer {
        "merge" | "m" => Ok(false),
        "replace" | "r" => Ok(true),
        _ => Err("merge or replace".to_owned()),
    })?;
    Ok(())
}

/// Asks the last question, with no as the default. The answer `view` shows the new text and
/// asks again.
pub(super) fn may_write(
    out: &mut CommandOutput,
    proposal: &PolicyProposal,
) -> Result<bool, Failure> {
    let lines = proposal.changes.iter().filter_map(|change| change.after.as_ref());
    let lines: usize = lines.map(|text| text.lines().count()).sum();
    let question =
        format!("\nWrite {}? yes, no, or view to read its {lines} lines", proposal.file.display());
    loop {
        let answer = choose(&question, "no", |answer| match answer {
            "v" | "view" => Ok(None),
            answer => yes_or_no(answer).map(Some).map_err(|_| "yes, no or view".to_owned()),
        })?;
        match answer {
            Some(agreed) => return Ok(agreed),
            None => print_changes(out, proposal)?,
        }
    }
}

/// Understands y, yes, n and no, in any case.
fn yes_or_no(answer: &str) -> Result<bool, String> {
    match answer.to_lowercase().as_str() {
        "y" | "yes" => Ok(true),
        "n" | "no" => Ok(false),
        _ => Err("yes or no".to_owned()),
    }
}

/// Asks until clash understands the answer. An empty line is the default. Fails at the end of
/// the input.
fn choose<T>(
    what: &str,
    default: &str,
    read: impl Fn(&str) -> Result<T, String>,
) -> Result<T, Failure> {
    loop {
        prompt(&format!("{what} [{default}]: "));
        let mut answer = String::new();
        if io::stdin().read_line(&mut answer)? == 0 {
            return Err(Failure::new("nothing was changed: the questions were not answered"));
        }
        let answer = answer.trim();
        match read(if answer.is_empty() { default } else { answer }) {
            Ok(value) => return Ok(value),
            Err(problem) => {
                prompt(&format!("{problem}\n"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn imported_rules_are_shown_with_the_keys_around_them() {
        let source = "settings(default = ask())\n\npolicy(\"imported denies\", {\n    \"Bash\": {\n        \"npm\": {\n            \"test\": allow(sandbox = node_full),\n        },\n        # A comment: not a rule\n        \"sudo\": deny(),\n    },\n    \"Read\": {glob(\"**\"): ask()},\n})\n";
        assert_eq!(
            rules_in_words(source),
            [
                "Bash npm test: allow(sandbox = node_full)",
                "Bash sudo: deny()",
                "Read: {glob(\"**\"): ask()}",
            ]
        );
    }
}
