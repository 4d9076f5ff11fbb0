//! Variables that decide which programs run: variables of the shell and of the loader,
//! and variables whose value is a command.
//!
//! The list may lack some. The sandbox holds for those too.

use super::super::{CommandPosition, ShellWord};
use super::{ScriptWalker, SourceText};

const STEERS: &str = "a variable is set that decides what programs run";

/// Search paths for code, and code that the shell or a language runs at its start.
#[rustfmt::skip]
const STEERING_NAMES: &[&str] = &[
    "CDPATH", "ENV", "EXECIGNORE", "GCONV_PATH", "GIT_EXEC_PATH", "GIT_TEMPLATE_DIR", "GLOBIGNORE",
    "HOSTALIASES", "JAVA_TOOL_OPTIONS", "NODE_PATH", "PATH", "PERL5DB", "PERL5LIB", "PERL5OPT",
    "PROMPT_COMMAND", "PS0", "PS1", "PS2", "PS4", "PYTHONHOME", "PYTHONSTARTUP", "RUBYLIB",
    "RUBYOPT", "RUSTC_WORKSPACE_WRAPPER", "RUSTC_WRAPPER", "SHELLOPTS", "TEXTDOMAIN",
    "TEXTDOMAINDIR", "ZDOTDIR",
];
const STEERING_PREFIXES: &[&str] = &["BASH", "DYLD_", "LD_", "GIT_CONFIG"];

/// Variables whose value is a command.
#[rustfmt::skip]
const COMMAND_VARIABLES: &[&str] = &[
    "BROWSER", "EDITOR", "GIT_ASKPASS", "GIT_EDITOR", "GIT_EXTERNAL_DIFF", "GIT_PAGER",
    "GIT_PROXY_COMMAND", "GIT_SEQUENCE_EDITOR", "GIT_SSH", "GIT_SSH_COMMAND", "LESSCLOSE",
    "LESSOPEN", "MANPAGER", "PAGER", "SSH_ASKPASS", "SYSTEMD_PAGER", "VISUAL",
];

impl ScriptWalker {
    /// Applies a lasting assignment to a variable that decides which programs run: every
    /// later program is opaque.
    pub(super) fn steering(&mut self, source: &SourceText, name: &str, value: &ShellWord) {
        let why = self.steers(source, name, value);
        self.state.steered = self.state.steered.or(why);
    }

    /// The reason if a variable with this value decides which programs run; programs are
    /// opaque then. A known command in a variable such as `EDITOR` gives no reason: it is
    /// walked, and its commands are in the list. `PS4` also adds an opaque command.
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
        if STEERING_NAMES.contains(&name)
            || STEERING_PREFIXES.iter().any(|start| name.starts_with(start))
        {
            return Some(STEERS);
        }
        if !COMMAND_VARIABLES.contains(&name) {
            return None;
        }
        match value {
            ShellWord::Known(text) if text.is_empty() => None,
            ShellWord::Known(text) => {
                let text = text.clone();
                let position = CommandPosition::Wrapper("environment");
                self.inside(position, |walker| {
                    walker.apart(|walker| walker.walk_in_other_shell(source, &text, None, true));
                });
                None
            }
            _ => Some(STEERS),
        }
    }
}
