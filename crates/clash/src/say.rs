//! Puts a decision into words: one sentence for the agent or the user. `clash explain`
//! prints the same facts at length.

use clash_policy::decide::{Decision, DecisionCause, DecisionPart, SandboxJudgement, SandboxMix};
use clash_policy::rule::LayerKind;
use clash_policy::text::is_hidden;
use clash_policy::tool::{ToolKind, canonical};
use clash_policy::{Action, Effect, FileCaps, PolicySpan};
use clash_shell::command_line;

use crate::remedy::{PolicyScope, Remedy};

/// The reason of a decision in one line. It names the rule, so that the user knows what to
/// change.
pub(crate) fn reason(decision: &Decision) -> String {
    decision.decisive().map_or_else(|| "nothing was decided".to_owned(), describe_part)
}

/// One part of a decision: what it is about, the effect, and the rule or other cause.
fn describe_part(part: &DecisionPart) -> String {
    let what = brief(&part.what);
    let verb = match part.effect {
        Effect::Allow => "is allowed",
        Effect::Ask => "needs your approval",
        Effect::Deny => "is denied",
    };
    let by_sandbox =
        part.judged.as_ref().filter(|it| it.effect == part.effect && part.effect > Effect::Allow);
    if let Some(judged) = by_sandbox {
        let sandbox = part.sandbox.as_deref().unwrap_or("the sandbox");
        if let Some(secret) = judged.credential {
            return format!("`{what}` {verb}: it holds {secret}, and no rule names it");
        }
        return match &judged.rule {
            Some((pattern, span)) => {
                format!("`{what}` {verb} (rule {pattern} of sandbox {sandbox} at {span})")
            }
            None if judged.caps.is_empty() => {
                format!("`{what}` {verb}: sandbox {sandbox} does not reach it")
            }
            None => format!(
                "`{what}` {verb}: sandbox {sandbox} does not grant {} there",
                words(judged.caps)
            ),
        };
    }
    let mut text = match &part.cause {
        DecisionCause::Rule { span, reason, untrusted, doubtful, .. } => {
            let mut text = format!("`{what}` {verb} (rule at {span})");
            if let Some(reason) = reason {
                text.push_str(&format!(": {reason}"));
            }
            if *untrusted {
                text.push_str(" (the project's policy is not trusted, so its allow counts as ask)");
            }
            if *doubtful {
                text.push_str(" (it may match: the exact words are known only when it runs)");
            }
            text
        }
        DecisionCause::Default { span, reason, .. } => {
            let place = default_place(part.effect, span);
            let mut text = format!("`{what}` {verb}: no rule matches it, the default is {place}");
            if let Some(reason) = reason {
                text.push_str(&format!(": {reason}"));
            }
            text
        }
        DecisionCause::Inert => format!("`{what}` needs no rule of its own"),
        DecisionCause::Opened => format!("`{what}` {verb}"),
        DecisionCause::Cage => format!(
            "`{what}` {verb}: it steers the agent or clash itself, which no sandbox may change"
        ),
    };
    if let Some(hosts) = part.shown_hosts() {
        text.push_str(&format!(": it reaches {hosts}"));
    }
    if let Some(why) = &part.steered {
        text.push_str(&format!(" (an agent can steer it to run other code: {why})"));
    }
    if let Some(why) = part.opaque {
        text.push_str(&format!(" (it cannot be looked into: {why})"));
    }
    text
}

/// The default effect with its line, unless it is the built-in one.
fn default_place(effect: Effect, span: &PolicySpan) -> String {
    if span.file.starts_with('@') { effect.to_string() } else { format!("{effect} ({span})") }
}

/// File rights in words, in the order of `rwcdx`, for example `read, write`.
pub(crate) fn words(caps: FileCaps) -> String {
    let names = [
        (FileCaps::READ, "read"),
        (FileCaps::WRITE, "write"),
        (FileCaps::CREATE, "create"),
        (FileCaps::DELETE, "delete"),
        (FileCaps::EXECUTE, "execute"),
    ];
    let said: Vec<&str> =
        names.iter().filter(|(cap, _)| caps.contains(*cap)).map(|(_, n)| *n).collect();
    said.join(", ")
}

/// The refusal of a script whose commands belong in different sandboxes, where no doors can
/// be.
pub(crate) fn no_doors(mix: &SandboxMix, why: &str) -> String {
    let ((first, first_box), (second, second_box)) = (&mix.first, &mix.second);
    format!(
        "`{}` belongs in sandbox {first_box} and `{}` in {second_box}, and one script cannot run both \
         here ({why}): run them as separate commands",
        brief(first),
        brief(second)
    )
}

/// The next step that the user can take after a refusal or a question: one command.
pub(crate) fn way_on(decision: &Decision, action: &Action) -> Option<String> {
    let part = decision.decisive().filter(|_| decision.effect > Effect::Allow)?;
    let by_sandbox = part.judged.as_ref().filter(|judged| judged.effect == part.effect);
    let command = match (&part.cause, by_sandbox) {
        (DecisionCause::Rule { untrusted: true, .. }, _) => {
            return Some(format!("the user trusts the project's policy with: {}", Remedy::Trust));
        }
        (
            DecisionCause::Rule { layer: LayerKind::Managed | LayerKind::Session, .. }
            | DecisionCause::Cage,
            _,
        ) => return None,
        (_, Some(judged)) => sandbox_command(part, judged, action)?,
        // A rule allows the command, and only its host is asked about.
        _ if part.sandbox.is_some() && part.asked_host().is_some() => host_command(part)?,
        // No rule of the user lifts a rule of the project.
        (DecisionCause::Rule { layer: LayerKind::Project, .. }, _) => {
            policy_command(part, action, PolicyScope::Project)?
        }
        _ => policy_command(part, action, PolicyScope::User)?,
    };
    Some(format!("the user allows it with: {command}"))
}

/// The command that gives the sandbox of a file tool the right to its path.
fn sandbox_command(
    part: &DecisionPart,
    judged: &SandboxJudgement,
    action: &Action,
) -> Option<Remedy> {
    let sandbox = part.sandbox.clone()?;
    if judged.caps.is_empty() {
        return policy_command(part, action, PolicyScope::User);
    }
    let changes = judged.caps.intersects(FileCaps::CHANGE);
    let right = if changes { "rw" } else { "r" };
    Some(Remedy::SandboxAllow { sandbox, right, what: without_operator(&part.what).to_owned() })
}

/// The path of a redirection such as `2>> f`; any other text as it is.
fn without_operator(what: &str) -> &str {
    let text = what.trim_start_matches(|c: char| c.is_ascii_digit() || c == '&');
    let path = text.trim_start_matches(['<', '>', '|', '&']);
    if path.len() < text.len() { path.trim_start() } else { what }
}

/// The command that lets the sandbox of a command reach the first host that is asked about.
fn host_command(part: &DecisionPart) -> Option<Remedy> {
    let (sandbox, what) = (part.sandbox.clone()?, part.asked_host()?);
    Some(Remedy::SandboxAllow { sandbox, right: "host", what })
}

/// The command that adds a rule for the action.
fn policy_command(part: &DecisionPart, action: &Action, scope: PolicyScope) -> Option<Remedy> {
    let (tool, kind) = canonical(&action.tool);
    let tool = tool.to_owned();
    Some(match kind {
        ToolKind::Shell => {
            if is_unnameable(part) {
                return Some(Remedy::AllowLast);
            }
            let words = words_to_allow(part, &part.what)?;
            Remedy::PolicyAllow { words: command_line(&words), sandbox: None, scope }
        }
        ToolKind::File | ToolKind::Host => {
            Remedy::PolicyAllowTool { tool, what: Some(part.what.clone()), scope }
        }
        ToolKind::Other => Remedy::PolicyAllowTool { tool, what: None, scope },
    })
}

/// True if no rule about the words of the command would allow it: the words are not certain,
/// or an agent can steer the program.
fn is_unnameable(part: &DecisionPart) -> bool {
    let doubtful = matches!(part.cause, DecisionCause::Rule { doubtful: true, .. });
    part.steered.is_some() || part.opaque.is_some() || doubtful
}

/// The words of a rule that allows the command: its program and subcommand, or the words of
/// the rule that decided if they say more, for example `rm -r`.
fn words_to_allow(part: &DecisionPart, line: &str) -> Option<Vec<String>> {
    let (ruled, plain) = (ruled_words(part), rule_words(line));
    let count = |words: &Option<Vec<String>>| words.as_ref().map_or(0, Vec::len);
    if count(&ruled) >= count(&plain) { ruled } else { plain }
}

/// The words of the rule that decided, for example `rm -r`. `None` for a default and for a
/// rule with patterns.
fn ruled_words(part: &DecisionPart) -> Option<Vec<String>> {
    let DecisionCause::Rule { trail, .. } = &part.cause else { return None };
    let words = trail.get(1..).filter(|words| !words.is_empty())?;
    let plain =
        |word: &String| word.chars().all(|c| c.is_ascii_alphanumeric() || "-_.+:".contains(c));
    words.iter().all(plain).then(|| words.to_vec())
}

/// The command that changes the rule behind a decision about a command line, in this
/// sandbox. `None` if the words are not certain.
pub(crate) fn rule_remedy(
    part: &DecisionPart,
    line: &str,
    sandbox: Option<String>,
) -> Option<Remedy> {
    let words = words_to_allow(part, line).filter(|_| !is_unnameable(part))?;
    Some(Remedy::PolicyAllow { words: command_line(&words), sandbox, scope: PolicyScope::User })
}

/// The command that adds a rule about a command line, in this sandbox. `None` if a rule
/// cannot name it.
pub(crate) fn command_remedy(line: &str, sandbox: Option<String>) -> Option<Remedy> {
    let words = command_line(&rule_words(line)?);
    Some(Remedy::PolicyAllow { words, sandbox, scope: PolicyScope::User })
}

/// The words by which a rule names a command: the program and its subcommand.
fn rule_words(command: &str) -> Option<Vec<String>> {
    let commands = clash_shell::find_commands(command);
    let words = &commands.first()?.words;
    let plain = |word: &str| {
        !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || "-_.+".contains(c))
    };
    let program = words.first()?.known().and_then(clash_shell::program_name)?;
    let mut rule = vec![program.to_owned()];
    let second = words.get(1).and_then(|word| word.known());
    let is_subcommand = |word: &&str| {
        plain(word) && word.starts_with(|c: char| c.is_ascii_alphabetic()) && !word.contains('.')
    };
    rule.extend(second.filter(is_subcommand).map(str::to_owned));
    plain(program).then_some(rule)
}

/// The text on one line of at most 120 characters, with nothing in it that could steer a
/// terminal.
pub(crate) fn brief(text: &str) -> String {
    const MAX_BRIEF_CHARS: usize = 120;
    let line = one_line(text);
    match line.char_indices().nth(MAX_BRIEF_CHARS) {
        Some((end, _)) => format!("{}…", line.get(..end).unwrap_or_default()),
        None => line,
    }
}

/// The whole text on one line, with nothing in it that could steer a terminal: for
/// messages of clash, whose remedy stands at their end.
pub(crate) fn one_line(text: &str) -> String {
    let plain = |c: char| if is_hidden(c) { ' ' } else { c };
    text.trim().chars().map(plain).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_of_a_redirection_has_no_operator() {
        for (what, path) in [
            ("> ~/f", "~/f"),
            ("2>> a b", "a b"),
            ("&>x", "x"),
            ("<> x", "x"),
            ("2", "2"),
            ("~/a>b", "~/a>b"),
        ] {
            assert_eq!(without_operator(what), path);
        }
    }

    #[test]
    fn what_is_shown_cannot_steer_a_terminal() {
        assert_eq!(brief("ls\u{1b}[2J\n\u{202e}x"), "ls [2J  x");
        assert_eq!(brief("a\u{61c}\u{e0041}b"), "a  b");
        assert_eq!(brief(&"x".repeat(200)).chars().count(), 121);
    }
}
