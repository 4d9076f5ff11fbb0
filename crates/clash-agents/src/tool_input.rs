//! A tool's input in the form that clash judges: a script, paths, hosts or fields. The name
//! of the tool and the fields of its input decide. Example: clash judges an unknown tool
//! with a `command` like a shell, and one with a `file_path` by that path.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use clash_policy::path::normalise;
use clash_policy::tool::{ToolKind, canonical, needs};
use clash_policy::{FileCaps, FileUse, HostUse, InputField, ToolInput};
use serde_json::{Map, Value};

use crate::url::{self, HostNameError};

#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    #[error("the input of {tool} has no text in `{field}`")]
    Field { tool: String, field: &'static str },
    #[error("the input of {tool} names several paths")]
    SeveralPaths { tool: String },
    #[error("one command in a call is put in its sandbox, not several: send them one by one")]
    SeveralCommands,
    #[error("{tool} starts commands where clash cannot confine them: use {instead}")]
    Elsewhere { tool: String, instead: &'static str },
    #[error(
        "{tool}: {source}: a command may be exchanging it; try again when nothing runs in the \
         background"
    )]
    Moves { tool: String, source: PathLookupError },
    #[error("{tool}: {source}")]
    Url { tool: String, source: HostNameError },
}

/// Why a path could not be resolved.
#[derive(Debug, thiserror::Error)]
pub enum PathLookupError {
    #[error("`{}` leads elsewhere at the second look", .0.display())]
    Moves(PathBuf),
    #[error("`{}` cannot be looked at: {source}", path.display())]
    Look { path: PathBuf, source: io::Error },
}

/// Resolves paths on the machine where the tool runs.
pub trait RealPaths {
    /// True if the volume of this path takes `A` and `a` for the same name.
    fn is_caseless(&self, path: &Path) -> bool;

    /// The path without links. The part that does not exist stays as it is.
    fn resolve(&self, path: &Path, caseless: bool) -> Result<PathBuf, PathLookupError>;
}

/// The directories from which a tool's paths start, and the file system they are in.
#[derive(Clone, Copy)]
pub struct CallContext<'a> {
    pub cwd: &'a Path,
    pub home: &'a Path,
    pub paths: &'a dyn RealPaths,
}

impl std::fmt::Debug for CallContext<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CallContext").field("cwd", &self.cwd).finish_non_exhaustive()
    }
}

#[cfg(test)]
impl CallContext<'static> {
    /// A directory on a machine without links, for tests.
    pub(crate) fn imagined(cwd: &'static str) -> Self {
        Self { cwd: Path::new(cwd), home: Path::new("/home/u"), paths: &NoLinkPaths }
    }
}

/// A file system without links, for text that names files of another machine.
#[derive(Clone, Copy, Debug)]
pub struct NoLinkPaths;

impl RealPaths for NoLinkPaths {
    fn is_caseless(&self, _: &Path) -> bool {
        false
    }

    fn resolve(&self, path: &Path, _: bool) -> Result<PathBuf, PathLookupError> {
        Ok(normalise(path))
    }
}

/// The tool's name in policies, and its input. A tool with a `command` is judged like a
/// shell, a tool of a server (`mcp__…`) always by its fields. A known tool without its path
/// or URL is an error.
pub fn read_tool_use(
    tool: &str,
    input: &Map<String, Value>,
    context: &CallContext<'_>,
) -> Result<(String, ToolInput), ToolError> {
    let (name, kind) = canonical(tool);
    // Policies match a tool of a server by its fields, also if one is called `command`.
    let server = tool.starts_with("mcp__");
    // A tool with a command runs it, like Bash.
    if kind == ToolKind::Shell || (input.contains_key("command") && !server) {
        let script = text(tool, input, "command")?;
        return Ok(("Bash".to_owned(), ToolInput::Script(script.to_owned())));
    }
    let input = match kind {
        _ if server => ToolInput::Fields(fields(input)),
        ToolKind::Host => ToolInput::Hosts(hosts(tool, name, input)?),
        _ => match files(tool, name, input)? {
            Some(paths) => {
                let needs = needs(name);
                let used = paths.iter().map(|path| file_use(tool, path, needs, context));
                ToolInput::Files(used.collect::<Result<_, _>>()?)
            }
            None => ToolInput::Fields(fields(input)),
        },
    };
    Ok((name.to_owned(), input))
}

/// The real path of a file tool. It is an error if the path leads to two files, because a
/// tool may or may not follow a link before `..`, or if it changes while clash looks.
pub fn file_use(
    tool: &str,
    path: &str,
    needs: FileCaps,
    context: &CallContext<'_>,
) -> Result<FileUse, ToolError> {
    let path = absolute(path, context);
    // This comes first: it opens the directory, and a process that watches the directory
    // sees that.
    let caseless = context.paths.is_caseless(&path);
    let moves = |source| ToolError::Moves { tool: tool.to_owned(), source };
    let tidied = normalise(&path);
    let real = context.paths.resolve(&path, caseless).map_err(moves)?;
    // A tool may remove `link/..` from the path without following the link.
    if tidied != path && real != context.paths.resolve(&tidied, caseless).map_err(moves)? {
        return Err(ToolError::SeveralPaths { tool: tool.to_owned() });
    }
    Ok(FileUse { path: real, needs, caseless })
}

/// The text of a field; an error if it is missing or no text.
fn text<'a>(
    tool: &str,
    input: &'a Map<String, Value>,
    field: &'static str,
) -> Result<&'a str, ToolError> {
    let text = input.get(field).and_then(Value::as_str);
    text.ok_or_else(|| ToolError::Field { tool: tool.to_owned(), field })
}

/// The hosts of a web tool: the host of a fetch, or the domains that a search is limited
/// to, which may be none. A wrong URL or domain is an error.
fn hosts(tool: &str, name: &str, input: &Map<String, Value>) -> Result<Vec<HostUse>, ToolError> {
    let wrong = |source| ToolError::Url { tool: tool.to_owned(), source };
    if name == "WebFetch" {
        return Ok(vec![host_use(text(tool, input, "url")?).map_err(wrong)?]);
    }
    let domains = input.get("allowed_domains").and_then(Value::as_array);
    let domains = domains.into_iter().flatten();
    let texts = domains.map(|domain| domain.as_str().unwrap_or_default());
    texts.map(|domain| host_use(&format!("https://{domain}")).map_err(wrong)).collect()
}

/// The host and port of an http or https URL.
pub fn host_use(url: &str) -> Result<HostUse, HostNameError> {
    let (host, port) = url::host_and_port_of_url(url)?;
    Ok(HostUse { host, port })
}

/// The host of every URL in a text. One that is no http or https URL is an error.
pub fn find_hosts(tool: &str, text: &str) -> Result<Vec<HostUse>, ToolError> {
    let wrong = |source| ToolError::Url { tool: tool.to_owned(), source };
    let starts = text.match_indices("://").map(|(at, _)| {
        let scheme = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
        let before = text.get(..at).unwrap_or_default();
        before.trim_end_matches(scheme).len()
    });
    let ends = |c: char| c.is_whitespace() || "\"'<>()[]{}|\\^`,".contains(c);
    let urls = starts.map(|start| {
        let rest = text.get(start..).unwrap_or_default();
        rest.split(ends).next().unwrap_or_default()
    });
    urls.map(|url| host_use(url).map_err(wrong)).collect()
}

/// The input as fields with dotted names, for example `opts.force`. A list is several
/// values of one field.
fn fields(input: &Map<String, Value>) -> Vec<InputField> {
    let mut found = Vec::new();
    for (name, value) in input {
        flatten(name, value, &mut found);
    }
    found
}

/// Adds a value and the values in it under dotted names.
fn flatten(name: &str, value: &Value, found: &mut Vec<InputField>) {
    let text = match value {
        Value::Object(inner) => {
            inner.iter().for_each(|(key, v)| flatten(&format!("{name}.{key}"), v, found));
            return;
        }
        Value::Array(items) => {
            items.iter().for_each(|item| flatten(name, item, found));
            return;
        }
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    match found.iter_mut().find(|field| field.name == name) {
        Some(field) => field.values.push(text),
        None => found.push(InputField { name: name.to_owned(), values: vec![text] }),
    }
}

/// The field names that tools use for the path they work on.
const PATH_FIELDS: [&str; 9] = [
    "file_path",
    "notebook_path",
    "absolute_path",
    "filePath",
    "path",
    "dir_path",
    "directory_path",
    "directory",
    "folder",
];

/// The first of them mark an unknown tool as a file tool.
const TELLING_PATH_FIELDS: usize = 4;

/// The paths of a file tool. `None`: it is not a file tool. Two different paths are an
/// error. For a search, the path is the directory before the first wildcard, or the working
/// directory.
fn files(
    tool: &str,
    name: &str,
    input: &Map<String, Value>,
) -> Result<Option<Vec<String>>, ToolError> {
    let known = canonical(name).1 != ToolKind::Other;
    let keys = PATH_FIELDS.iter().take(if known { PATH_FIELDS.len() } else { TELLING_PATH_FIELDS });
    let given: BTreeSet<&str> =
        keys.filter_map(|key| input.get(*key).and_then(Value::as_str)).collect();
    if given.len() > 1 {
        return Err(ToolError::SeveralPaths { tool: tool.to_owned() });
    }
    let base = given.first().copied();
    let missing = || ToolError::Field { tool: tool.to_owned(), field: "file_path" };
    let patterns = match name {
        "Glob" => [list(input, "pattern"), list(input, "patterns")].concat(),
        "Read" => [list(input, "paths"), list(input, "include")].concat(),
        _ => Vec::new(),
    };
    let base = match name {
        "Glob" | "Grep" | "LS" => base.or(Some(".")),
        "Read" if !patterns.is_empty() => base.or(Some(".")),
        _ => base,
    };
    match base {
        Some(base) if patterns.is_empty() => Ok(Some(vec![base.to_owned()])),
        Some(base) => {
            let below = |pattern: &String| under(base, fixed_part(pattern));
            Ok(Some(patterns.iter().map(below).collect()))
        }
        None if known => Err(missing()),
        None => Ok(None),
    }
}

/// The input of a file tool with other paths: `moved` gives the new path for an absolute
/// one; with `None` it stays. Relative patterns stay too.
pub fn replace_paths(
    input: &Map<String, Value>,
    context: &CallContext<'_>,
    moved: impl Fn(&Path) -> Option<PathBuf>,
) -> Map<String, Value> {
    let mut input = input.clone();
    let other = |text: &mut String| {
        // In a pattern, only the directories before the first wildcard are a path.
        let wild = text.find(['*', '?', '[', '{']).unwrap_or(text.len());
        let end = match text.get(..wild).and_then(|before| before.rfind('/')) {
            Some(slash) if wild < text.len() => slash,
            _ => wild,
        };
        let (given, rest) = text.split_at_checked(end).unwrap_or((text, ""));
        if let Some(path) = moved(&absolute(given, context)) {
            *text = format!("{}{rest}", path.display());
        }
    };
    for key in PATH_FIELDS.iter().chain(&["pattern", "patterns", "paths", "include"]) {
        let is_pattern = matches!(*key, "pattern" | "patterns" | "include");
        let own = |text: &&mut String| !is_pattern || text.starts_with('/');
        match input.get_mut(*key) {
            Some(Value::String(text)) => Some(text).filter(own).map(other).unwrap_or_default(),
            Some(Value::Array(items)) => {
                for item in items {
                    if let Value::String(text) = item {
                        Some(text).filter(own).map(other).unwrap_or_default();
                    }
                }
            }
            _ => {}
        }
    }
    input
}

/// One text or several. A value that is no text could be any path, so it becomes `/`.
fn list(input: &Map<String, Value>, key: &str) -> Vec<String> {
    match input.get(key) {
        Some(Value::String(text)) => vec![text.clone()],
        // A value that is not a text could be any path.
        Some(Value::Array(items)) => {
            items.iter().map(|item| item.as_str().unwrap_or("/").to_owned()).collect()
        }
        Some(Value::Null) | None => Vec::new(),
        Some(_) => vec!["/".to_owned()],
    }
}

/// The directories of a glob before its first wildcard: `../x/*.rs` searches in `../x`. `/`
/// if the pattern could lead anywhere.
fn fixed_part(pattern: &str) -> &str {
    // Behind a wildcard, `..` could lead anywhere.
    let climbs =
        pattern.split('/').any(|part| part == "..") && pattern.contains(['*', '?', '[', '{']);
    let leaps = pattern.contains('{')
        && pattern.split_once('{').is_some_and(|(_, rest)| rest.contains('/'));
    let plain_climb = pattern.trim_start_matches("../").split('/').all(|part| part != "..");
    if (climbs && !plain_climb) || leaps {
        return "/";
    }
    let wild = pattern.find(['*', '?', '[', '{']).unwrap_or(pattern.len());
    let before = pattern.get(..wild).unwrap_or_default();
    before.rfind('/').and_then(|slash| before.get(..=slash)).unwrap_or_default()
}

/// A path below `base`, unless it is absolute or in the home.
fn under(base: &str, rest: &str) -> String {
    if rest.starts_with('/') || rest.starts_with('~') {
        rest.to_owned()
    } else {
        format!("{base}/{rest}")
    }
}

/// The path from the working directory, or from the home for `~`.
fn absolute(path: &str, context: &CallContext<'_>) -> PathBuf {
    match path.strip_prefix('~') {
        Some(rest) if rest.is_empty() || rest.starts_with('/') => {
            context.home.join(rest.trim_start_matches('/'))
        }
        _ => context.cwd.join(path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// The input that clash judges, for a call in `/work/app`.
    fn input(tool: &str, input: Value) -> Result<ToolInput, ToolError> {
        let context = CallContext::imagined("/work/app");
        read_tool_use(tool, input.as_object().unwrap(), &context).map(|(_, input)| input)
    }

    /// The first path of a file tool with its capabilities.
    fn path(tool: &str, given: Value) -> String {
        match input(tool, given).unwrap() {
            ToolInput::Files(files) => format!("{} {}", files[0].path.display(), files[0].needs),
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn file_tools_name_the_resolved_path_and_what_they_need() {
        assert_eq!(path("Read", json!({"file_path": "src/../a.rs"})), "/work/app/a.rs r");
        assert_eq!(path("Write", json!({"file_path": "/x//y", "content": ""})), "/x/y wc");
        assert_eq!(path("Edit", json!({"file_path": "~/.bashrc"})), "/home/u/.bashrc rw");
        assert_eq!(
            path("NotebookEdit", json!({"notebook_path": "n.ipynb"})),
            "/work/app/n.ipynb rw"
        );
        assert_eq!(path("Glob", json!({"pattern": "**/*.rs"})), "/work/app r");
        assert_eq!(path("Glob", json!({"pattern": "../../etc/*"})), "/etc r");
        assert_eq!(path("Glob", json!({"pattern": "/home/u/.ssh/id_*"})), "/home/u/.ssh r");
        assert_eq!(path("Glob", json!({"pattern": "c*/../../h/.ssh/*"})), "/ r");
        assert_eq!(path("Glob", json!({"pattern": "{/etc,x}/*"})), "/ r");
        assert_eq!(path("Grep", json!({"pattern": "x", "path": "/var"})), "/var r");
        assert_eq!(path("glob", json!({"patterns": ["/etc/*"], "folder": "/var"})), "/etc r");
        assert_eq!(path("list_directory", json!({"dir_path": "sub"})), "/work/app/sub r");
        assert_eq!(path("LS", json!({})), "/work/app r");
        assert_eq!(path("read_file", json!({"absolute_path": "/x"})), "/x r");
        assert_eq!(path("FancyEdit", json!({"file_path": "z"})), "/work/app/z rwcd");
    }

    #[test]
    fn anything_with_a_command_is_a_script() {
        let script = ToolInput::Script("make".into());
        for tool in ["Bash", "Monitor", "Brandnew"] {
            assert_eq!(input(tool, json!({"command": "make"})).unwrap(), script, "{tool}");
        }
        assert!(input("Bash", json!({"command": 7})).is_err());
        assert!(input("Brandnew", json!({"command": ["make"]})).is_err());
        assert!(input("Edit", json!({"file_path": "a", "notebook_path": "b"})).is_err());
    }

    #[test]
    fn a_tool_of_a_server_is_matched_by_its_fields() {
        let given = json!({"command": "x", "opts": {"force": true, "n": 3}, "ids": ["a", "b"], "none": null});
        let field = |name: &str, values: &[&str]| InputField {
            name: name.into(),
            values: values.iter().map(|v| (*v).into()).collect(),
        };
        assert_eq!(
            input("mcp__db__query", given).unwrap(),
            ToolInput::Fields(vec![
                field("command", &["x"]),
                field("ids", &["a", "b"]),
                field("none", &["null"]),
                field("opts.force", &["true"]),
                field("opts.n", &["3"]),
            ])
        );
    }

    #[test]
    fn web_tools_name_the_host() {
        let host = |url: &str| input("WebFetch", json!({"url": url}));
        let docs = |port| ToolInput::Hosts(vec![HostUse { host: "docs.rs".into(), port }]);
        assert_eq!(host("https://Docs.rs/x").unwrap(), docs(443));
        assert_eq!(host("http://docs.rs:8080/x").unwrap(), docs(8080));
        let search =
            |domains: Value| input("WebSearch", json!({"query": "x", "allowed_domains": domains}));
        assert_eq!(search(json!(["docs.rs"])).unwrap(), docs(443));
        assert_eq!(search(Value::Null).unwrap(), ToolInput::Hosts(vec![]));
        assert!(search(json!([7])).is_err());
        assert!(host("https://docs.rs@evil.test/").is_err());
    }
}
