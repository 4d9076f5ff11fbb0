//! codex `*.rules`: calls of `prefix_rule`, `network_rule` and `host_executable`
//! with arguments that are written out. The strictest of all matches wins there
//! as among independent policies here. What has to be evaluated (a variable, a
//! loop, a function) is reported with its line and not guessed.

use clash_syntax::{
    CallExpression, Expression, LiteralValue, SourceStatement, StatementKind, SyntaxTree,
};

use crate::draft::{EntryOrigin, ImportDraft};
use crate::hosts::{ImportedHost, ImportedName};
use crate::sandbox::{HostRules, ImportedNet, ImportedSandbox};
use crate::tree::ImportedRule;
use crate::words::{self, CommandPattern, PatternTail, WordPattern};
use crate::{ImportError, ImportResult};
use clash_policy::Effect;

/// More words, or alternatives of one, are an attack on the reader.
const MAX_RULE_WORDS: usize = 256;

/// True if a text is Starlark and has the name of one of the functions.
pub(crate) fn recognises(content: &str) -> bool {
    let names = ["prefix_rule", "network_rule", "host_executable"];
    names.iter().any(|name| content.contains(name)) && SyntaxTree::parse(content).is_ok()
}

/// Reads a whole file. Hosts become the sandbox `imported`, which extends `project`. A text
/// that is no Starlark is an error.
pub(crate) fn read(content: &str) -> ImportResult<ImportDraft> {
    let file = SyntaxTree::parse(content).map_err(|error| ImportError::Starlark {
        line: error.line,
        message: error.problem.to_string(),
    })?;
    let mut reader = RulesReader { file: &file, draft: ImportDraft::default(), hosts: Vec::new() };
    for statement in file.statements() {
        reader.statement(statement)?;
    }
    let RulesReader { mut draft, hosts, .. } = reader;
    if !hosts.is_empty() {
        let mut sandbox = ImportedSandbox::named("imported");
        sandbox.on_project = true;
        let rules = HostRules { rules: hosts, addresses: Vec::new(), default: Effect::Deny };
        sandbox.net = ImportedNet::Hosts(rules);
        draft.default_sandbox = Some(sandbox.name.clone());
        draft.sandboxes.push(sandbox);
    }
    Ok(draft)
}

/// The rules read so far.
struct RulesReader<'f> {
    file: &'f SyntaxTree,
    draft: ImportDraft,
    hosts: Vec<(ImportedHost, Effect, EntryOrigin)>,
}

impl RulesReader<'_> {
    fn line(&self, at: usize) -> usize {
        self.file.position(at).0
    }

    /// Reads one statement. One that has to be evaluated may forbid something, so it is
    /// reported as a lost restriction.
    fn statement(&mut self, statement: &SourceStatement) -> ImportResult<()> {
        let line = self.line(statement.span.start);
        let text = self.file.text(statement.span);
        let origin = EntryOrigin::new(format!("line {line}"), join_lines(text));
        let call = match &statement.kind {
            StatementKind::Expr(expr) => match &expr.kind {
                // A text on its own is a comment.
                clash_syntax::ExpressionKind::String(_) => return Ok(()),
                _ => expr.call(),
            },
            StatementKind::Pass => return Ok(()),
            // Rules that use the name are reported on their own.
            StatementKind::Assign { .. } => {
                self.draft.left_out(&origin, None, "clash does not read assignments");
                return Ok(());
            }
            _ => None,
        };
        match call.map(|call| (call.name(), call)) {
            Some((Some("prefix_rule"), call)) => self.prefix_rule(call, &origin, line),
            Some((Some("network_rule"), call)) => self.network_rule(call, &origin),
            Some((Some("host_executable"), _)) => {
                let why = "clash matches a program by its name";
                self.draft.left_out(&origin, None, why);
                Ok(())
            }
            // It may make rules of any effect, so it counts as a deny.
            _ => {
                let why = "clash does not evaluate it: it reads only calls with plain values";
                self.draft.left_out(&origin, Some(Effect::Deny), why);
                Ok(())
            }
        }
    }

    /// The arguments in the order of `names`. `None` if one is computed, unknown or given
    /// twice.
    fn arguments(
        &self,
        call: &CallExpression,
        names: &[&str],
    ) -> Option<Vec<Option<LiteralValue>>> {
        let mut values: Vec<Option<LiteralValue>> = names.iter().map(|_| None).collect();
        let mut next = 0;
        for arg in &call.args {
            let at = match &arg.kind {
                clash_syntax::ArgumentKind::Positional => {
                    next += 1;
                    next - 1
                }
                clash_syntax::ArgumentKind::Named(name) => {
                    names.iter().position(|n| *n == name.text)?
                }
                _ => return None,
            };
            let value = self.literal(&arg.value)?;
            let slot = values.get_mut(at)?;
            if slot.is_some() {
                return None;
            }
            *slot = Some(value);
        }
        Some(values)
    }

    fn literal(&self, expr: &Expression) -> Option<LiteralValue> {
        expr.literal(self.file.source())
    }

    /// Adds a rule about commands. A wrong type, an unknown decision and a contradicting
    /// example are errors.
    fn prefix_rule(
        &mut self,
        call: &CallExpression,
        origin: &EntryOrigin,
        line: usize,
    ) -> ImportResult<()> {
        let names = ["pattern", "decision", "justification", "match", "not_match"];
        let given = self.arguments(call, &names);
        let Some([pattern, decision, reason, matching, others]) =
            given.and_then(|values| <[Option<LiteralValue>; 5]>::try_from(values).ok())
        else {
            return self.unreadable(call, origin);
        };
        let at = |expected| ImportError::Shape { at: format!("line {line}"), expected };
        let effect = match text(&decision) {
            None if decision.is_none() => Effect::Allow,
            Some("allow") => Effect::Allow,
            Some("prompt") => Effect::Ask,
            Some("forbidden") => Effect::Deny,
            _ => return Err(at("decision = \"allow\", \"prompt\" or \"forbidden\"")),
        };
        let tokens = pattern.as_ref().and_then(tokens);
        let tokens = tokens.ok_or_else(|| at("pattern = a list of words"))?;
        examples(&tokens, matching.as_ref(), true, line)?;
        examples(&tokens, others.as_ref(), false, line)?;
        let tokens = tokens.into_iter().map(WordPattern::Word).collect();
        let pattern = CommandPattern { tokens, tail: PatternTail::Prefix, unread: None };
        let keys = if effect == Effect::Allow {
            match words::allowed(&pattern) {
                Ok(keys) => keys,
                Err(why) => {
                    self.draft.left_out(origin, Some(effect), why);
                    return Ok(());
                }
            }
        } else {
            words::restricted(&pattern)
        };
        if let Some(how) = keys.differs {
            self.draft.stricter(origin, Some(effect), how);
        }
        let mut leaf = ImportedRule::noting(origin.to_string());
        leaf.reason = text(&reason).map(str::to_owned);
        self.draft.command_rule(effect, keys.path, leaf);
        Ok(())
    }

    /// Reports a rule with values that are computed. Unless its decision is written out, it
    /// counts as a deny.
    fn unreadable(&mut self, call: &CallExpression, origin: &EntryOrigin) -> ImportResult<()> {
        let decision = call.named("decision").map(|expr| expr.string());
        let effect = match decision {
            None | Some(Some("allow")) if call.positional().count() < 2 => Effect::Allow,
            Some(Some("prompt")) => Effect::Ask,
            _ => Effect::Deny,
        };
        let why = "it has values that clash does not evaluate, or unknown arguments";
        self.draft.left_out(origin, Some(effect), why);
        Ok(())
    }

    /// Adds a host. An allow has the port of its protocol, a deny or ask covers every port.
    /// A rule about a group of hosts is left out, and so is UDP.
    fn network_rule(&mut self, call: &CallExpression, origin: &EntryOrigin) -> ImportResult<()> {
        let names = ["host", "protocol", "decision", "justification"];
        let given = self.arguments(call, &names);
        let Some([host, protocol, decision, _]) =
            given.and_then(|values| <[Option<LiteralValue>; 4]>::try_from(values).ok())
        else {
            return self.unreadable(call, origin);
        };
        let shape = |expected| ImportError::Shape { at: origin.at.clone(), expected };
        let name = text(&host).ok_or_else(|| shape("host = a string"))?;
        let effect = match text(&decision) {
            Some("allow") => Effect::Allow,
            Some("prompt") => Effect::Ask,
            Some("deny" | "forbidden") => Effect::Deny,
            _ => return Err(shape("decision = \"allow\", \"prompt\", \"deny\" or \"forbidden\"")),
        };
        let port = match text(&protocol) {
            Some("https" | "https_connect") => Some(443),
            Some("http") => Some(80),
            Some("socks5_tcp") => None,
            Some("socks5_udp") => {
                if effect == Effect::Allow {
                    self.draft.left_out(origin, Some(effect), "clash lets no datagrams out");
                }
                return Ok(());
            }
            _ => return Err(shape("a protocol: http, https, socks5_tcp or socks5_udp")),
        };
        let read = ImportedHost::one(name).and_then(|host| match host.name {
            ImportedName::One(_) | ImportedName::Address(_) | ImportedName::Localhost => Ok(host),
            _ => Err("a rule names one host"),
        });
        match read {
            Ok(host) if effect == Effect::Allow => {
                let host = ImportedHost { port, ..host };
                if host.allowed(&[]).is_empty() {
                    let why = "a policy opens single ports of this machine";
                    self.draft.left_out(origin, Some(effect), why);
                } else {
                    self.hosts.push((host, effect, origin.clone()));
                }
            }
            Ok(host) => self.hosts.push((host, effect, origin.clone())),
            // Hosts that no rule names are denied, so nothing is lost.
            Err(why) if effect > Effect::Allow => self.draft.left_out(origin, None, why),
            Err(why) => self.draft.left_out(origin, Some(effect), why),
        }
        Ok(())
    }
}

/// The text on one line.
fn join_lines(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ")
}

fn text(value: &Option<LiteralValue>) -> Option<&str> {
    match value {
        Some(LiteralValue::String(text)) => Some(text),
        _ => None,
    }
}

/// The words of a pattern, each with its alternatives. `None` if one is no text, if there
/// is none, or if there are too many.
fn tokens(value: &LiteralValue) -> Option<Vec<Vec<String>>> {
    let items = items(value).filter(|items| !items.is_empty() && items.len() <= MAX_RULE_WORDS)?;
    items
        .iter()
        .map(|item| match item {
            LiteralValue::String(word) => Some(vec![word.clone()]),
            _ => strings(item).filter(|words| !words.is_empty() && words.len() <= MAX_RULE_WORDS),
        })
        .collect()
}

/// The items of a list or tuple.
fn items(value: &LiteralValue) -> Option<&[LiteralValue]> {
    match value {
        LiteralValue::List(items) | LiteralValue::Tuple(items) => Some(items),
        _ => None,
    }
}

/// The texts of a list; `None` if an item is something else.
fn strings(value: &LiteralValue) -> Option<Vec<String>> {
    let word = |item: &LiteralValue| match item {
        LiteralValue::String(text) => Some(text.clone()),
        _ => None,
    };
    items(value)?.iter().map(word).collect()
}

/// codex refuses a file whose rules contradict their own examples, and so does
/// an import. An example that is more than plain words is passed over.
fn examples(
    tokens: &[Vec<String>],
    given: Option<&LiteralValue>,
    wanted: bool,
    line: usize,
) -> ImportResult<()> {
    let given = match given {
        None | Some(LiteralValue::None) => return Ok(()),
        Some(given) => items(given).ok_or(ImportError::Shape {
            at: format!("line {line}"),
            expected: "examples as a list of commands",
        })?,
    };
    for example in given {
        let words = match example {
            LiteralValue::String(text) => {
                let pattern = words::read(text);
                let plain = pattern.tokens.into_iter().map(|token| match token {
                    WordPattern::Word(mut words) => words.pop(),
                    WordPattern::Part(_) | WordPattern::Gap => None,
                });
                let words = plain.collect::<Option<Vec<String>>>();
                words.filter(|_| pattern.unread.is_none() && !text.contains('*'))
            }
            other => strings(other),
        };
        let Some(words) = words else { continue };
        let matches = words.len() >= tokens.len()
            && tokens.iter().zip(&words).all(|(token, word)| token.contains(word));
        if matches != wanted {
            return Err(ImportError::Example { line, example: words.join(" ") });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
