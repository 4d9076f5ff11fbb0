//! The commands that the words of a script name. A question or a yes about one of them holds
//! for the same command at a door.

use std::path::Path;

use clash_policy::Effect;
use clash_policy::decide::Decision;
use clash_shell::{CommandPosition, ShellWord, program_name};

/// The commands that a script itself names.
#[derive(Clone, Debug, Default)]
pub(super) struct NamedCommands {
    pub(super) all: Vec<Vec<ShellWord>>,
    /// Those about which the policy asked, and the user said yes.
    pub(super) answered: Vec<Vec<ShellWord>>,
    /// Those that the policy does not allow, and the user allows this once.
    pub(super) permitted: Vec<Vec<ShellWord>>,
}

impl NamedCommands {
    /// The commands of a script, and among them those about which the policy asks.
    pub(super) fn of_script(script: &str, decision: &Decision, is_permitted: bool) -> Self {
        let commands = clash_shell::find_commands(script);
        let all = commands.iter().map(|command| command.words.clone()).collect();
        let with = |is: &dyn Fn(Effect) -> bool| -> Vec<Vec<ShellWord>> {
            let mut chosen = Vec::new();
            // The last command that has words, and the last that is not behind a runner of
            // packages.
            let (mut named, mut runner) = (None, None);
            for (part, command) in decision.parts.iter().zip(&commands) {
                let is_packaged = command.position.contains(&CommandPosition::Package);
                if !command.words.is_empty() {
                    named = Some(command);
                    runner = if is_packaged { runner } else { Some(command) };
                }
                if !is(part.effect) {
                    continue;
                }
                // A part without words is hidden in the command before it, which the user saw:
                // the alias in `git config alias.x '!y'`. A program of a package is answered
                // together with its runner.
                let shown = named.filter(|named| named.span == command.span);
                let runner = runner.filter(|runner| is_packaged && runner.span == command.span);
                chosen.extend(shown.into_iter().chain(runner).map(|it| it.words.clone()));
            }
            chosen
        };
        let answered = with(&|effect| effect == Effect::Ask);
        let permitted = with(&|effect| is_permitted && effect > Effect::Allow);
        Self { all, answered, permitted }
    }

    /// True if the words can come from one of these commands.
    pub(super) fn include(commands: &[Vec<ShellWord>], words: &[String], home: &Path) -> bool {
        commands.iter().any(|command| {
            let (Some((program, script)), Some((name, words))) =
                (command.split_first(), words.split_first())
            else {
                return false;
            };
            let is_same = program
                .known()
                .is_some_and(|program| program == name || program_name(program) == Some(name));
            is_same && is_expansion(script, words, home)
        })
    }
}

/// True if the shell can have made these words from the words of a script, one of each. A
/// word that only the shell knows is no option: the user has not seen it.
fn is_expansion(script: &[ShellWord], words: &[String], home: &Path) -> bool {
    let is_same = |(script, word): (&ShellWord, &String)| match script {
        ShellWord::Known(text) => word == text,
        ShellWord::Home(below) => word.strip_prefix(&*home.to_string_lossy()) == Some(below),
        ShellWord::Partial(start) if !start.is_empty() => word.starts_with(start.as_str()),
        ShellWord::Partial(_) | ShellWord::Unknown => !word.starts_with('-'),
    };
    script.len() == words.len() && script.iter().zip(words).all(is_same)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_holds_for_the_words_that_the_user_saw() {
        let answered = |script: &str, words: &[&str]| {
            let command = clash_shell::find_commands(script).pop().unwrap();
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            NamedCommands::include(&[command.words], &words, Path::new("/home/u"))
        };
        assert!(answered("git push origin main", &["git", "push", "origin", "main"]));
        assert!(answered("/usr/bin/git push \"$X\"", &["git", "push", "origin"]));
        assert!(answered("git push ~/x", &["git", "push", "/home/u/x"]));
        assert!(!answered("git push \"$X\"", &["git", "push", "--force"]));
        assert!(!answered("git push $X", &["git", "push", "origin", "main"]));
        assert!(!answered("git push", &["git", "push", "origin"]));
        assert!(!answered("git push ls", &["git", "push", "/bin/ls"]));
    }
}
