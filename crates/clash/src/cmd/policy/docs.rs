//! `clash policy docs`: the builders of the language and the modules of the library.

use std::io;

use clash_protocol::report::{BuilderDoc, LanguageDocs, ModuleDoc, SandboxDoc};
use clash_protocol::request::CompilerRequest;

use crate::cmd::unless_closed;
use crate::compiler::{CompilerAnswer, CompilerError, ask_compiler};
use crate::remedy::Remedy;
use crate::ui::{CommandOutput, Failure, TextTone};

/// Show the documentation of the language and its library
///
/// Without a name, lists every builder and module in one line. With the name of a builder, a
/// module or a sandbox, shows its whole documentation.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    name: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Args {
    /// Asks the compiler for the documentation, and prints it.
    pub(crate) fn run(self, out: &mut CommandOutput) -> Result<u8, Failure> {
        let named = self.name.is_some();
        let docs: LanguageDocs = match ask_compiler(&CompilerRequest::Docs { name: self.name })? {
            CompilerAnswer::Product(json) => serde_json::from_slice(&json)?,
            CompilerAnswer::UnknownName { message, nearest } => {
                let hint = match nearest {
                    Some(name) => format!("did you mean `{name}`?"),
                    None => format!("`{}` lists everything", Remedy::PolicyDocs { name: None }),
                };
                return Err(Failure::new(message).hint(hint));
            }
            CompilerAnswer::Image { .. } | CompilerAnswer::Mistakes(_) => {
                return Err(CompilerError::WrongAnswer.into());
            }
        };
        unless_closed(if self.json {
            out.json(&serde_json::to_value(&docs)?)
        } else if named {
            print_at_length(out, &docs)
        } else {
            print_in_short(out, &docs)
        })
    }
}

/// Prints one line for each builder, module and sandbox: the first line of its text.
fn print_in_short(
    out: &mut CommandOutput,
    LanguageDocs { builders, modules }: &LanguageDocs,
) -> io::Result<()> {
    let first = |doc: &str| doc.lines().next().unwrap_or_default().to_owned();
    let names =
        builders.iter().map(|it| it.name.len()).chain(modules.iter().map(|it| it.name.len()));
    let width = names.max().unwrap_or(0);
    for BuilderDoc { name, doc, .. } in builders {
        out.line(format!("{name:<width$}  {}", first(doc)).trim_end())?;
    }
    out.line("")?;
    for ModuleDoc { name, doc, sandboxes, .. } in modules {
        out.line(format!("{name:<width$}  {}", first(doc)).trim_end())?;
        for SandboxDoc { name, doc, .. } in sandboxes {
            out.line(format!("  {name:<0$}  {1}", width.saturating_sub(2), first(doc)))?;
        }
    }
    Ok(())
}

/// Prints each builder with its signature, and each module with its sandboxes and their
/// grants.
fn print_at_length(
    out: &mut CommandOutput,
    LanguageDocs { builders, modules }: &LanguageDocs,
) -> io::Result<()> {
    for BuilderDoc { signature, doc, .. } in builders {
        out.line(out.tone(TextTone::Strong, signature))?;
        print_indented(out, doc, "  ")?;
    }
    for ModuleDoc { name, doc, sandboxes, exports } in modules {
        out.line(out.tone(TextTone::Strong, name))?;
        print_indented(out, doc, "  ")?;
        out.line(format!("  gives {}", exports.join(", ")))?;
        for SandboxDoc { name, doc, grants } in sandboxes {
            out.line("")?;
            out.line(format!("  sandbox {}", out.tone(TextTone::Strong, name)))?;
            print_indented(out, doc, "    ")?;
            print_indented(out, &grants.join("\n"), "      ")?;
        }
    }
    Ok(())
}

fn print_indented(out: &mut CommandOutput, text: &str, indent: &str) -> io::Result<()> {
    text.lines().try_for_each(|line| out.line(format!("{indent}{line}").trim_end()))
}
