//! Policies from texts, and the decisions of a layer.

use std::io;
use std::path::Path;

use clash_lang::{BUILT_IN, CompileError, SourceReader, compile};
use clash_policy::decide::DecisionCause;
use clash_policy::path::PolicyPlaces;
use clash_policy::rule::{Layer, LayerKind};
use clash_policy::{
    Action, Effect, FileCaps, FileUse, HostUse, JudgeContext, ToolInput, decide, ir, tool,
};

/// The policy file of most tests.
pub(crate) const POLICY_FILE: &str = "/p/policy.star";

/// The sandbox of the article that introduced presets for toolchains, as printed there.
pub(crate) const PUBLISHED_SANDBOX: &str = concat!("\n", include_str!("published_sandbox.star"));

/// Files by their names, for `load()`.
#[derive(Default)]
pub(crate) struct SourceTexts(pub(crate) Vec<(&'static str, String)>);

impl SourceTexts {
    /// Only the policy file.
    pub(crate) fn policy(text: &str) -> Self {
        Self(vec![(POLICY_FILE, text.to_owned())])
    }
}

impl SourceReader for SourceTexts {
    fn read(&self, path: &Path) -> io::Result<String> {
        let found = self.0.iter().find(|(name, _)| Path::new(name) == path);
        found.map(|(_, text)| text.clone()).ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

/// The layer of a policy text.
pub(crate) fn layer(policy: &str) -> Result<Layer, CompileError> {
    layer_of(&SourceTexts::policy(policy))
}

/// The layer of the policy file that a reader gives.
pub(crate) fn layer_of(files: &dyn SourceReader) -> Result<Layer, CompileError> {
    compile(POLICY_FILE, LayerKind::User, true, files).map(|compiled| compiled.layer)
}

/// The error of a policy that does not compile.
pub(crate) fn mistake(policy: &str) -> String {
    layer(policy).unwrap_err().to_string()
}

/// The source of a module of the library.
pub(crate) fn library_source(name: &str) -> &'static str {
    let name = format!("@clash//{name}.star");
    clash_lang::modules().find(|(known, _)| *known == name).unwrap().1
}

/// An imagined machine.
pub(crate) fn world(places: &PolicyPlaces) -> JudgeContext<'_> {
    JudgeContext::without_disk(places)
}

/// The effect, sandbox and cause of a layer's decision about `git push`,
/// `plan: git push`, `Read $PWD/x`, `fetch https://x.test` or the name of another tool.
pub(crate) fn on(layer: &Layer, action: &str) -> (Effect, String, String) {
    let (mode, action) = action
        .split_once(": ")
        .filter(|(mode, _)| mode.chars().all(char::is_alphanumeric))
        .unwrap_or(("default", action));
    let (first, rest) = action.split_once(' ').unwrap_or((action, ""));
    let is_tool = first.starts_with(char::is_uppercase) || first.starts_with("mcp__");
    let (tool, input) = match first {
        "fetch" => {
            let host = rest.split("://").last().unwrap_or(rest);
            let host = host.split('/').next().unwrap_or(host).to_owned();
            ("WebFetch", ToolInput::Hosts(vec![HostUse { host, port: 443 }]))
        }
        _ if is_tool && rest.is_empty() => {
            (tool::canonical(first).0, ToolInput::Fields(Vec::new()))
        }
        _ if is_tool => (tool::canonical(first).0, file(tool::canonical(first).0, rest)),
        _ => ("Bash", ToolInput::Script(action.to_owned())),
    };
    let (agent, tool, mode) = ("claude".to_owned(), tool.to_owned(), mode.to_owned());
    decision(layer, &Action { agent, tool, mode, input })
}

/// The use of a path by a file tool in the imagined directories.
fn file(tool: &str, path: &str) -> ToolInput {
    let path = PolicyPlaces::imagined().expand(path).unwrap();
    let needs = match tool {
        "Read" | "Glob" | "Grep" | "LS" => FileCaps::READ,
        "Write" => FileCaps::WRITE.union(FileCaps::CREATE),
        _ => FileCaps::READ.union(FileCaps::WRITE),
    };
    ToolInput::Files(vec![FileUse { path, needs, caseless: false }])
}

/// The effect, sandbox and cause of a layer's decision.
pub(crate) fn decision(layer: &Layer, action: &Action) -> (Effect, String, String) {
    let none = SourceTexts::default();
    let built_in = compile(BUILT_IN, LayerKind::BuiltIn, true, &none).unwrap();
    let bytes = ir::encode(&[layer.clone(), built_in.layer], &[], 0);
    let places = PolicyPlaces::imagined();
    let decision = decide(ir::IrImage::open(&bytes, 0).unwrap(), action, &world(&places)).unwrap();
    let cause = match &decision.decisive().unwrap().cause {
        DecisionCause::Rule { span, trail, .. } => {
            format!("{} {span}", trail.join(" > "))
        }
        other => format!("{other:?}"),
    };
    (decision.effect, decision.sandbox.map(|s| s.name).unwrap_or_default(), cause)
}
