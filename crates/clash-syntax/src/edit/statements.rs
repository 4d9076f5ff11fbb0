//! Whole statements: a sandbox that a new rule needs, and expectations that a new rule
//! contradicts.

use super::{EditError, EditedSource, SourceLines, SyntaxTree, TextSplices};
use super::{binds, finish, load, take_statement};
use crate::draft::{SandboxBase, SandboxDraft, library_module};

/// Defines a sandbox in front of the first rules. Loads its base from the library if the
/// policy does not bind it. Changes nothing if the policy binds the name already.
pub fn define(source: &str, sandbox: &SandboxDraft) -> Result<EditedSource, EditError> {
    let file = SyntaxTree::parse(source).map_err(EditError::Policy)?;
    let place = SourceLines { file: &file };
    let mut out = TextSplices::default();
    if !binds(file.statements(), &sandbox.name) {
        if let SandboxBase::Extends(base) = &sandbox.base {
            load::bind(&place, std::slice::from_ref(base), &mut out)?;
        }
        let is_rules = |name: &str| matches!(name, "when" | "policy");
        let first = file.calls().find(|(_, call)| call.callee.name().is_some_and(is_rules));
        let text = sandbox.source();
        match first {
            Some((statement, _)) => {
                out.insert(place.comments_above(statement.span.start), format!("{text}\n"));
            }
            None => out.insert(source.len(), format!("\n{text}")),
        }
    }
    finish(source, out)
}

/// True if a rule of this policy can name a sandbox: the policy binds the name, or the
/// library has it.
pub fn names_sandbox(source: &str, name: &str) -> bool {
    let file = SyntaxTree::parse(source);
    library_module(name).is_some() || file.is_ok_and(|file| binds(file.statements(), name))
}

/// Removes the expectations of a question, `expect(ask, "…")`, about commands that begin
/// with these words. Other expectations stay, also those of a denial.
pub fn without_questions(source: &str, words: &[String]) -> Result<EditedSource, EditError> {
    let file = SyntaxTree::parse(source).map_err(EditError::Policy)?;
    let place = SourceLines { file: &file };
    let mut out = TextSplices::default();
    for (statement, call) in file.calls() {
        let mut args = call.positional();
        let is_question = call.callee.name() == Some("expect")
            && args.next().and_then(|effect| effect.name()) == Some("ask");
        let command = args.next().and_then(|command| command.string());
        let begins = |command: &str| {
            let mut given = command.split_whitespace();
            words.iter().all(|word| given.next() == Some(word.as_str()))
        };
        if is_question && command.is_some_and(begins) {
            take_statement(&place, statement, &mut out);
        }
    }
    finish(source, out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draft::{NetDraft, NetRules};

    const POLICY: &str = "\
settings(default = ask())

# Rules.
when({\"Bash\": {\"git\": ask()}})

expect(ask, \"git push --force\")
expect(deny, \"git push -f\")
expect(ask, \"gitk push\")
";

    #[test]
    fn a_sandbox_is_defined_before_the_rules() {
        let mut sandbox = SandboxDraft::new("near", SandboxBase::Extends("project".to_owned()));
        let rules = NetRules::Localhost(vec![80]);
        sandbox.net = Some(NetDraft { comment: Vec::new(), rules });
        let text = define(POLICY, &sandbox).unwrap().source;
        let at = |part: &str| text.find(part).unwrap();
        assert!(at("load(\"@clash//sandboxes.star\", \"project\")") < at("near = sandbox("));
        assert!(at("net = localhost(ports = [80])") < at("# Rules."), "{text}");
        assert_eq!(define(&text, &sandbox).unwrap().source, text);
    }

    #[test]
    fn only_questions_about_the_command_go() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let text = without_questions(POLICY, &words("git push")).unwrap().source;
        assert!(!text.contains("git push --force"), "{text}");
        assert!(text.contains("expect(deny, \"git push -f\")"), "{text}");
        assert!(text.contains("expect(ask, \"gitk push\")"), "{text}");
        let other = without_questions(POLICY, &words("git push origin")).unwrap();
        assert_eq!(other.source, POLICY);
    }
}
