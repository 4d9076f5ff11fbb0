//! `expect()`: decisions that a policy states about itself. Each compilation checks
//! them with the built-in layer below and with imagined directories, so the result
//! depends on the policy alone.

use clash_policy::decide::{Decision, DecisionCause};
use clash_policy::ir::{self, IrImage};
use clash_policy::rule::{Layer, add_to_every_sandbox};
use clash_policy::tool;
use clash_policy::{
    Action, Effect, FileCaps, FileUse, HostUse, InputField, JudgeContext, PolicyPlaces, PolicySpan,
    ToolInput, decide,
};
use starlark::values::Value;
use starlark::values::dict::DictRef;
use starlark::values::list::ListRef;

use crate::diagnostic::PolicyWarning;
use crate::language_error::{LanguageError, LanguageResult};

/// A call of `expect()`: the action, and the effect and perhaps the sandbox that it should
/// have.
#[derive(Debug)]
pub(crate) struct Expectation {
    pub(crate) effect: Effect,
    pub(crate) sandbox: Option<String>,
    pub(crate) action: Action,
    pub(crate) span: PolicySpan,
}

/// The arguments of `expect()` that describe the action.
pub(crate) struct ExpectArgs<'v> {
    pub(crate) script: Option<&'v str>,
    pub(crate) tool: Option<&'v str>,
    pub(crate) path: Option<&'v str>,
    pub(crate) url: Option<&'v str>,
    pub(crate) input: Option<Value<'v>>,
    pub(crate) mode: &'v str,
    pub(crate) agent: &'v str,
}

impl ExpectArgs<'_> {
    /// The action that the arguments describe. It is an error if they describe none or more
    /// than one. Without a `tool` a command is for `Bash`, a path for `Read`, a URL for
    /// `WebFetch`.
    pub(crate) fn action(&self) -> LanguageResult<Action> {
        let input = match (self.script, self.path, self.url, self.input) {
            (Some(script), None, None, None) => ToolInput::Script(script.to_owned()),
            (None, Some(path), None, None) => self.file(path)?,
            (None, None, Some(url), None) => ToolInput::Hosts(vec![host(url)]),
            (None, None, None, Some(input)) => ToolInput::Fields(fields(input)?),
            (None, None, None, None) if self.tool.is_some() => ToolInput::Fields(Vec::new()),
            _ => {
                return Err(LanguageError::new("expect() needs exactly one action")
                    .hint("give a command, or a tool with its path, url or input"));
            }
        };
        let fallback = match &input {
            ToolInput::Script(_) => "Bash",
            ToolInput::Files(_) => "Read",
            ToolInput::Hosts(_) => "WebFetch",
            ToolInput::Fields(_) => "",
        };
        let (tool, _) = tool::canonical(self.tool.unwrap_or(fallback));
        if tool.is_empty() {
            return Err(LanguageError::new("expect() with an input needs the name of the tool"));
        }
        let (agent, mode) = (self.agent.to_owned(), self.mode.to_owned());
        Ok(Action { agent, tool: tool.to_owned(), mode, input })
    }

    /// The use of a path by the tool. A relative path is in `$PWD`. A tool that neither
    /// only reads nor is `Write` reads and writes.
    fn file(&self, path: &str) -> LanguageResult<ToolInput> {
        let places = PolicyPlaces::imagined();
        let path = if path.starts_with(['/', '$', '~']) {
            places.expand(path)
        } else {
            places.expand(&format!("$PWD/{path}"))
        };
        let path = path.map_err(|error| LanguageError::new(error.to_string()))?;
        let needs = match tool::canonical(self.tool.unwrap_or("Read")).0 {
            "Read" | "Glob" | "Grep" | "LS" => FileCaps::READ,
            "Write" => FileCaps::WRITE.union(FileCaps::CREATE),
            _ => FileCaps::READ.union(FileCaps::WRITE),
        };
        Ok(ToolInput::Files(vec![FileUse { path, needs, caseless: false }]))
    }
}

/// The host of a URL, which may lack the scheme. The port follows from the scheme; one in
/// the URL is ignored.
fn host(url: &str) -> HostUse {
    let (scheme, rest) = url.split_once("://").unwrap_or(("https", url));
    let host = rest.split(['/', '?', '#', ':']).next().unwrap_or(rest).to_ascii_lowercase();
    HostUse { host, port: if scheme == "http" { 80 } else { 443 } }
}

/// The fields of a dict, those of inner dicts as `outer.inner`.
fn fields(value: Value<'_>) -> LanguageResult<Vec<InputField>> {
    let mut fields = Vec::new();
    flatten("", value, &mut fields)?;
    Ok(fields)
}

/// Adds the values below `name`. A list adds each of its values to the same field. A key
/// that is no string, and a value without a name, are errors.
fn flatten(name: &str, value: Value<'_>, fields: &mut Vec<InputField>) -> LanguageResult<()> {
    if let Some(dict) = DictRef::from_value(value) {
        for (key, value) in dict.iter() {
            let key = key.unpack_str().ok_or_else(|| {
                LanguageError::new(format!("`{}` is no name of a field", key.to_str()))
            })?;
            let name = if name.is_empty() { key.to_owned() } else { format!("{name}.{key}") };
            flatten(&name, value, fields)?;
        }
        return Ok(());
    }
    if name.is_empty() {
        return Err(LanguageError::new(format!(
            "input is a dict of fields, found {}",
            value.get_type()
        )));
    }
    if let Some(list) = ListRef::from_value(value) {
        return list.iter().try_for_each(|item| flatten(name, item, fields));
    }
    let text = match value.unpack_bool() {
        Some(on) => on.to_string(),
        None => value.to_str(),
    };
    match fields.iter_mut().find(|field| field.name == name) {
        Some(field) => field.values.push(text),
        None => fields.push(InputField { name: name.to_owned(), values: vec![text] }),
    }
    Ok(())
}

/// Checks the expectations of a layer. A decision stricter than expected is a warning
/// only: an expectation never forbids a stricter policy.
pub(crate) fn check(
    expectations: &[Expectation],
    layer: &Layer,
    built_in: Option<&Layer>,
) -> LanguageResult<Vec<PolicyWarning>> {
    let mut stricter = Vec::new();
    // Expectations are about the policy as it decides once the user trusts it.
    let layer = Layer { trusted: true, ..layer.clone() };
    let mut layers: Vec<Layer> = [layer].into_iter().chain(built_in.cloned()).collect();
    add_to_every_sandbox(&mut layers);
    let image = ir::encode(&layers, &[], 0);
    let places = PolicyPlaces::imagined();
    let world = JudgeContext::without_disk(&places);
    for expected in expectations {
        let opened =
            IrImage::open(&image, 0).map_err(|error| LanguageError::new(error.to_string()))?;
        let decision = decide(opened, &expected.action, &world)
            .map_err(|error| LanguageError::new(error.to_string()).at(&expected.span))?;
        if decision.effect > expected.effect {
            let what = format!("expected {}, but it is {}", expected.effect, decision.effect);
            let warning = PolicyWarning::new("stricter-than-expected", what, &expected.span);
            stricter.push(warning.hint(why(&decision)));
        } else {
            compare(expected, &decision)?;
        }
    }
    Ok(stricter)
}

/// Fails if the effect differs, or the sandbox if one is expected.
fn compare(expected: &Expectation, decision: &Decision) -> LanguageResult<()> {
    let failed =
        |what: String| Err(LanguageError::new(what).hint(why(decision)).at(&expected.span));
    if decision.effect != expected.effect {
        return failed(format!("expected {}, but it is {}", expected.effect, decision.effect));
    }
    let sandbox = decision.sandbox.as_ref().map(|sandbox| sandbox.name.as_str());
    match &expected.sandbox {
        Some(name) if sandbox != Some(name) => {
            failed(format!("expected sandbox {name}, but it is {}", sandbox.unwrap_or("none")))
        }
        _ => Ok(()),
    }
}

/// What decided, as a hint for the message: a file rule, a rule of the tree, or the
/// default. Empty if no part decided.
fn why(decision: &Decision) -> String {
    let Some(part) = decision.decisive() else { return String::new() };
    if let Some(judged) = part.judged.as_ref().filter(|judged| judged.effect == part.effect)
        && let Some((pattern, span)) = &judged.rule
    {
        return format!("{pattern} at {span} decides");
    }
    match &part.cause {
        DecisionCause::Rule { span, trail, doubtful, .. } => {
            let may = if *doubtful { ", which may match," } else { "" };
            format!("the rule {} at {span}{may} decides", trail.join(" > "))
        }
        DecisionCause::Default { span, .. } => format!("no rule matches; the default is at {span}"),
        DecisionCause::Inert => "it needs no rule of its own".to_owned(),
        DecisionCause::Opened => "the shell opens it".to_owned(),
        DecisionCause::Cage => "it is out of reach of every sandbox".to_owned(),
    }
}
