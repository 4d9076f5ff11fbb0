//! Commands that an agent can steer: it decides which code they run.
//!
//! A rule such as `"git fetch": allow(sandbox = git_full)` gives rights to a program: a
//! network, a token, the agent of ssh. The program is safe with these rights only if
//! the user wrote its settings. A command is *steered* when a part of it that an agent
//! can have written decides which code runs: a variable, an option, a working
//! directory, a repository. For example `GIT_DIR=x git fetch` obeys `x/config`, and
//! that file can name any program.
//!
//! [`SandboxWidening`] names the sandboxes that count. Where a sandbox reads
//! credentials, every variable outside a short list steers. Where a sandbox only adds
//! the network, the toolchain in it runs code of the project anyway. There only
//! variables and options count that replace the toolchain itself, for example `RUSTC`. Where
//! a sandbox only makes repositories, the variables count that name a program of git: in a new
//! repository it could name a program that the user's git later runs.
//!
//! The answer only informs the decision; the kernel enforces the sandbox.

mod options;

pub use options::untamed;

use std::path::{Path, PathBuf};

use crate::action::FileUse;
use crate::credentials;
use crate::decide::directory;
use crate::effect::{Effect, FileCaps};
use crate::judge::{JudgeContext, judge};
use crate::net::NetworkAccess;
use crate::path::is_below;
use crate::protect::REPOSITORY;
use crate::sandbox::Sandbox;
use clash_shell::{
    ShellCommand, ShellWord, is_steering_variable, names_program_of_git, program_name,
};

/// The rights of a sandbox that its policy's default sandbox lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SandboxWidening {
    /// New repositories with settings of their own.
    Repositories,
    Network,
    /// Keys, tokens, or a socket of a program that acts for the user.
    Credentials,
}

/// The variable with the socket of the ssh agent.
pub const SSH_AGENT_SOCKET: &str = "SSH_AUTH_SOCK";

/// The right of a sandbox that the default sandbox of its policy lacks; credentials come
/// before the network, the network before repositories. The network counts only if the
/// default sandbox has none at all. `None` if the sandbox has none of these rights more.
pub fn widening(
    sandbox: &Sandbox,
    default: &Sandbox,
    context: &JudgeContext<'_>,
) -> Option<SandboxWidening> {
    if reads_credentials(sandbox, context) && !reads_credentials(default, context) {
        return Some(SandboxWidening::Credentials);
    }
    let reaches_out = |net: &NetworkAccess| *net != NetworkAccess::Deny;
    let wider = reaches_out(&sandbox.net) && !reaches_out(&default.net);
    if wider && !default.unrestricted {
        return Some(SandboxWidening::Network);
    }
    let makes = |sandbox: &Sandbox| {
        let except = &sandbox.protect.except;
        sandbox.unrestricted
            || !sandbox.protect.standard
            || except.iter().any(|path| path == REPOSITORY)
    };
    (makes(sandbox) && !makes(default)).then_some(SandboxWidening::Repositories)
}

/// True if a command in this sandbox can read a credential or use a socket of a program
/// that acts for the user. Any allowed rule inside the place of a credential counts, and
/// any allowed path that ends in `.sock`.
pub fn reads_credentials(sandbox: &Sandbox, context: &JudgeContext<'_>) -> bool {
    let allowed = || sandbox.fs.iter().filter(|rule| rule.effect == Effect::Allow);
    let socket = |path: &str| path.ends_with(".sock");
    let lends = |name: &str| name == SSH_AGENT_SOCKET || name == "*";
    if sandbox.unrestricted
        || sandbox.default == Effect::Allow
        || sandbox.env.iter().any(|rule| rule.effect == Effect::Allow && lends(&rule.name))
        || allowed().any(|rule| socket(rule.pattern.fixed()))
    {
        return true;
    }
    let granted: Vec<PathBuf> =
        allowed().filter_map(|rule| context.places.expand(rule.pattern.fixed()).ok()).collect();
    credentials::in_home().flat_map(|name| credential_places(name, context)).any(|path| {
        let inside = |grant: &PathBuf| is_below(grant, &path) && !is_public(grant);
        if granted.iter().any(inside) {
            return true;
        }
        if !granted.iter().any(|grant| is_below(&path, grant)) {
            return false;
        }
        let file = FileUse { path, needs: FileCaps::READ, caseless: false };
        judge(sandbox, &file, context).is_ok_and(|verdict| verdict.effect == Effect::Allow)
    })
}

/// The paths of a credential: below the home, and below `$XDG_CONFIG_HOME`.
fn credential_places(name: &str, context: &JudgeContext<'_>) -> Vec<PathBuf> {
    let moved = name.strip_prefix(".config/");
    let moved =
        moved.and_then(|rest| context.places.expand(&format!("$XDG_CONFIG_HOME/{rest}")).ok());
    [Some(context.places.home.join(name)), moved].into_iter().flatten().collect()
}

/// True for files beside keys that hold no secret: `.ssh/config`, `known_hosts*`, `*.pub`.
fn is_public(path: &Path) -> bool {
    let name = path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
    name == "config" && path.parent().is_some_and(|dir| dir.ends_with(".ssh"))
        || name.starts_with("known_hosts")
        || name.ends_with(".pub")
}

const UNKNOWN_VARIABLES: &str = "variables are set that are known only when it runs";
const UNKNOWN_DIRECTORY: &str = "its directory is known only when it runs";

/// True if a door finds out whether a command is steered: it knows the directory, and takes
/// no steering variable from its caller.
pub(crate) fn is_settled_by_door(why: &str) -> bool {
    why.starts_with(UNKNOWN_VARIABLES) || why.starts_with(UNKNOWN_DIRECTORY)
}

/// Why a command is steered; `None` if it is not, or if its program is unknown. `named` are
/// the words of the rule that allows it: an option that the rule names does not steer. Only
/// git and gh are checked for their repository, and only if the sandbox reads credentials.
pub fn steered(
    command: &ShellCommand,
    widening: SandboxWidening,
    named: &[String],
    context: &JudgeContext<'_>,
) -> Option<String> {
    let program = command.words.first().and_then(ShellWord::known).and_then(program_name)?;
    if let Some(name) = steering_variable(command, widening) {
        return Some(name);
    }
    if widening == SandboxWidening::Repositories {
        return None;
    }
    if let Some(option) = options::steering_option(program, &command.words, named) {
        return Some(option);
    }
    match (program, widening) {
        ("git" | "gh", SandboxWidening::Credentials) => {
            steering_repository(program, command, named, context)
        }
        _ => None,
    }
}

/// Why a variable in front of the command steers it. The analysis of the script has already
/// left out harmless variables. In a sandbox that reads credentials, every other exported
/// variable steers.
fn steering_variable(command: &ShellCommand, widening: SandboxWidening) -> Option<String> {
    let steers = |name: &str, exported: bool| {
        name == "*"
            || match widening {
                SandboxWidening::Repositories => names_program_of_git(name),
                SandboxWidening::Network => is_steering_variable(name),
                SandboxWidening::Credentials => exported || is_steering_variable(name),
            }
    };
    let found = command.environment.iter().find(|it| steers(&it.name, it.exported))?;
    Some(match found.name.as_str() {
        "*" => UNKNOWN_VARIABLES.to_owned(),
        name => format!("the variable {name} is set in front of it"),
    })
}

/// Why the repository that git or gh finds in its directory steers it. A directory that is
/// known only at run time steers too, unless the rule names `-C`.
fn steering_repository(
    program: &str,
    command: &ShellCommand,
    named: &[String],
    context: &JudgeContext<'_>,
) -> Option<String> {
    let unknown = || Some(UNKNOWN_DIRECTORY.to_owned());
    let Some(mut dir) = directory(&command.cwd, context) else { return unknown() };
    let mut subcommand = "";
    if program == "git" {
        let mut words = command.words.iter().skip(1);
        while let Some(word) = words.next() {
            match word.known() {
                Some("-C") if named.iter().any(|key| key == "-C") => return None,
                Some("-C") => match words.next() {
                    Some(ShellWord::Known(to)) => dir = dir.join(to),
                    Some(ShellWord::Home(rest)) => {
                        dir = context.places.home.join(rest.trim_start_matches('/'));
                    }
                    _ => return unknown(),
                },
                Some("-c" | "--namespace" | "--attr-source") => {
                    words.next();
                }
                Some(option) if option.starts_with('-') => {}
                Some(found) => {
                    subcommand = found;
                    break;
                }
                None => break,
            }
        }
    }
    context.links.git_is_steered(&dir, &context.places.project, subcommand)
}

#[cfg(test)]
mod tests;
