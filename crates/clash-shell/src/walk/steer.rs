//! Variables that decide what programs run: the shell's own, the loader's, and
//! those whose value is a command for some program.
//!
//! A list, so what it lacks is not seen; the sandbox holds all the same.

use super::super::{CommandPosition, ShellWord};
use super::{ScriptWalker, SourceText};

const STEERS: &str = "a variable is set that decides what programs run";

/// Name where code is looked for, or are run by the shell or a language.
#[rustfmt::skip]
const NAMES: &[&str] = &[
    "CDPATH", "ENV", "EXECIGNORE", "GCONV_PATH", "GIT_EXEC_PATH", "GIT_TEMPLATE_DIR", "GLOBIGNORE",
    "HOSTALIASES", "JAVA_TOOL_OPTIONS", "NODE_PATH", "PATH", "PERL5DB", "PERL5LIB", "PERL5OPT",
    "PROMPT_COMMAND", "PS0", "PS1", "PS2", "PS4", "PYTHONHOME", "PYTHONSTARTUP", "RUBYLIB",
    "RUBYOPT", "RUSTC_WORKSPACE_WRAPPER", "RUSTC_WRAPPER", "SHELLOPTS", "TEXTDOMAIN",
    "TEXTDOMAINDIR", "ZDOTDIR",
];
const STARTS: &[&str] = &["BASH", "DYLD_", "LD_", "GIT_CONFIG"];

/// Their value is a command for some program.
#[rustfmt::skip]
const COMMANDS: &[&str] = &[
    "BROWSER", "EDITOR", "GIT_ASKPASS", "GIT_EDITOR", "GIT_EXTERNAL_DIFF", "GIT_PAGER",
    "GIT_PROXY_COMMAND", "GIT_SEQUENCE_EDITOR", "GIT_SSH", "GIT_SSH_COMMAND", "LESSCLOSE",
    "LESSOPEN", "MANPAGER", "PAGER", "SSH_ASKPASS", "SYSTEMD_PAGER", "VISUAL",
];

impl ScriptWalker {
    /// Applies an assignment that stays, as far as it decides what programs run.
    pub(super) fn steering(&mut self, source: &SourceText, name: &str, value: &ShellWord) {
        let why = self.steers(source, name, value);
        self.state.steered = self.state.steered.or(why);
    }

    /// Whether giving a variable this value decides what programs run.
    pub(super) fn steers(
        &mut self,
        source: &SourceText,
        name: &str,
        value: &ShellWord,
    ) -> Option<&'static str> {
        if name == "PS4" {
            self.cannot_see(source, "it sets a text that the shell evaluates");
        }
        if name == "NODE_OPTIONS" {
            let loads = |text: &str| {
                ["-r", "require", "import", "loader", "inspect"].iter().any(|o| text.contains(o))
            };
            return value.known().is_none_or(loads).then_some(STEERS);
        }
        if NAMES.contains(&name) || STARTS.iter().any(|start| name.starts_with(start)) {
            return Some(STEERS);
        }
        if !COMMANDS.contains(&name) {
            return None;
        }
        match value {
            ShellWord::Known(text) if text.is_empty() => None,
            ShellWord::Known(text) => {
                let text = text.clone();
                let position = CommandPosition::Wrapper("environment");
                self.inside(position, |walker| {
                    walker.apart(|walker| walker.other_shell(source, &text, None, true));
                });
                None
            }
            _ => Some(STEERS),
        }
    }
}
