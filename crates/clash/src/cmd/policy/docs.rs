//! `clash policy docs`: the language's builders and the library's modules.

use std::io;
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

use crate::cmd::unless_closed;
use crate::policy::{PolicyError, compiler};
use crate::ui::{Failure, Out, Tone};

/// Without a name, everything in one line each; with the name of a builder, a module
/// or a sandbox, all about it.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    name: Option<String>,
    /// Everything as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Deserialize, Serialize)]
struct Docs {
    builders: Vec<Builder>,
    modules: Vec<Module>,
}

#[derive(Deserialize, Serialize)]
struct Builder {
    name: String,
    signature: String,
    doc: String,
}

#[derive(Deserialize, Serialize)]
struct Module {
    name: String,
    doc: String,
    sandboxes: Vec<Sandbox>,
    exports: Vec<String>,
}

#[derive(Deserialize, Serialize)]
struct Sandbox {
    name: String,
    doc: String,
    grants: Vec<String>,
}

#[derive(Deserialize)]
struct Unknown {
    message: String,
    nearest: Option<String>,
}

impl Args {
    pub(crate) fn run(self, out: &mut Out) -> Result<u8, Failure> {
        let compiler = compiler();
        let mut command = Command::new(&compiler);
        command.arg("--docs").args(&self.name).env_clear().stdin(Stdio::null());
        let output = command
            .output()
            .map_err(|source| PolicyError::NoCompiler { path: compiler, source })?;
        if !output.status.success() {
            let Unknown { message, nearest } = serde_json::from_slice(&output.stderr)?;
            let hint = match nearest {
                Some(name) => format!("did you mean `{name}`?"),
                None => "`clash policy docs` lists everything".to_owned(),
            };
            return Err(Failure::new(message).hint(hint));
        }
        let docs: Docs = serde_json::from_slice(&output.stdout)?;
        unless_closed(if self.json {
            out.json(&serde_json::to_value(&docs)?)
        } else if self.name.is_some() {
            at_length(out, &docs)
        } else {
            in_short(out, &docs)
        })
    }
}

fn in_short(out: &mut Out, Docs { builders, modules }: &Docs) -> io::Result<()> {
    let first = |doc: &str| doc.lines().next().unwrap_or_default().to_owned();
    let names =
        builders.iter().map(|it| it.name.len()).chain(modules.iter().map(|it| it.name.len()));
    let width = names.max().unwrap_or(0);
    for Builder { name, doc, .. } in builders {
        out.line(format!("{name:<width$}  {}", first(doc)).trim_end())?;
    }
    out.line("")?;
    for Module { name, doc, sandboxes, .. } in modules {
        out.line(format!("{name:<width$}  {}", first(doc)).trim_end())?;
        for Sandbox { name, doc, .. } in sandboxes {
            out.line(format!("  {name:<0$}  {1}", width.saturating_sub(2), first(doc)))?;
        }
    }
    Ok(())
}

fn at_length(out: &mut Out, Docs { builders, modules }: &Docs) -> io::Result<()> {
    for Builder { signature, doc, .. } in builders {
        out.line(out.tone(Tone::Strong, signature))?;
        indented(out, doc, "  ")?;
    }
    for Module { name, doc, sandboxes, exports } in modules {
        out.line(out.tone(Tone::Strong, name))?;
        indented(out, doc, "  ")?;
        out.line(format!("  gives {}", exports.join(", ")))?;
        for Sandbox { name, doc, grants } in sandboxes {
            out.line("")?;
            out.line(format!("  sandbox {}", out.tone(Tone::Strong, name)))?;
            indented(out, doc, "    ")?;
            indented(out, &grants.join("\n"), "      ")?;
        }
    }
    Ok(())
}

fn indented(out: &mut Out, text: &str, indent: &str) -> io::Result<()> {
    text.lines().try_for_each(|line| out.line(format!("{indent}{line}").trim_end()))
}
