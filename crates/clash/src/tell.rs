//! The texts that clash gives to a model: at the start of a session the rights that it
//! has, and after a command the accesses that its sandbox blocked.
//!
//! A model without these texts tries, fails, and looks for a way around. So a text names
//! the sandbox, the blocked path and the next step. The sandbox's own rules tell whether
//! it was the reason: an error message about a path that it grants is not clash's.

use std::path::{Path, PathBuf};

use clash_policy::ir::IrError;
use clash_policy::judge::judge;
use clash_policy::rule::OnViolation;
use clash_policy::{
    Effect, FileCaps, FileUse, FsRule, JudgeContext, NetworkAccess, Sandbox, WriteTarget,
};
use clash_sandbox::disk::Disk;

use crate::dirs::Dirs;
use crate::policy::LoadedPolicy;
use crate::say::brief;
use clash_agents::{Agent, QuestionSupport};

/// Tells the model the rights of this session: the default effect, the default sandbox, /tmp,
/// and a problem with the agent's own sandbox.
pub(crate) fn at_start(
    policy: &LoadedPolicy,
    agent: &Agent,
    tmp: &Path,
) -> Result<String, IrError> {
    let mut default = None;
    let mut sandbox = None;
    for layer in policy.ir().layers() {
        let layer = layer?;
        if let (None, Some(rule)) = (default, layer.default()?) {
            default = Some(rule.effect()?);
        }
        if let (None, Some(named)) = (&sandbox, layer.default_sandbox()?) {
            sandbox = Some(named.to_sandbox()?);
        }
    }
    let rest = match (default.unwrap_or(Effect::Ask), agent.abilities.asks) {
        (Effect::Allow, _) => "is allowed",
        (Effect::Deny, _) => "is refused",
        (Effect::Ask, QuestionSupport::No) => "is refused, because this agent cannot ask the user",
        (Effect::Ask, _) => "needs the user's approval",
    };
    let mut text = format!(
        "clash confines this session: every command runs in a sandbox that the user's policy \
         chooses and the operating system enforces; file and web tools are judged by the same \
         policy. An action that no rule mentions {rest}."
    );
    if let Some(sandbox) = sandbox.filter(|sandbox| !sandbox.unrestricted) {
        text.push_str(&format!(" {}", described(&sandbox)));
    }
    text.push_str(&format!(
        " /tmp is a directory of this session; to edit a file in it with a file tool, use its path \
         in {}.",
        tmp.display()
    ));
    text.push_str(
        " A refusal names its rule and is final for this session: do not look for another way to \
         the same end, tell the user what you need and why.",
    );
    // Only the settings are read: no hook learns the agent's command line.
    if let Some(problem) =
        Dirs::from_env().ok().and_then(|dirs| agent.own_sandbox(&dirs.for_agents()))
    {
        let fix = problem.fix.unwrap_or_default();
        text.push_str(&format!(" {}; if commands fail, tell the user: {fix}.", problem.what));
    }
    Ok(text)
}

/// One sentence about a sandbox: the first places that it may change, and its network.
fn described(sandbox: &Sandbox) -> String {
    let writable = sandbox
        .fs
        .iter()
        .filter(|rule| rule.effect == Effect::Allow && rule.caps.contains(FileCaps::WRITE));
    let mut writable: Vec<String> = writable.map(|rule| rule.pattern.to_string()).collect();
    if writable.len() > MAX_LISTED {
        let more = writable.len() - MAX_LISTED;
        writable.truncate(MAX_LISTED);
        writable.push(format!("{more} more places"));
    }
    let writes = match writable.as_slice() {
        [] => "may change no file".to_owned(),
        some => format!("may change only {}", some.join(", ")),
    };
    format!(
        "Commands normally run in sandbox {}: it {writes}; {}.",
        sandbox.name,
        net(&sandbox.net)
    )
}

/// A text for the model lists this many paths or hosts.
const MAX_LISTED: usize = 6;

/// The network of a sandbox in words.
fn net(net: &NetworkAccess) -> String {
    match net {
        NetworkAccess::Deny => "it has no network".to_owned(),
        NetworkAccess::Allow => "it has network".to_owned(),
        NetworkAccess::Ask => "every new host needs the user's approval".to_owned(),
        NetworkAccess::Hosts { rules, .. } => {
            let granted = rules.iter().filter(|rule| rule.effect == Effect::Allow);
            let mut names: Vec<String> = granted.map(|rule| rule.host.to_string()).collect();
            names.dedup();
            names.truncate(MAX_LISTED);
            format!("it reaches only {}", names.join(", "))
        }
    }
}

/// True if the output has an error message that a sandbox can cause.
pub(crate) fn is_suspicious(output: &str) -> bool {
    REFUSALS.iter().chain(&NETWORK).chain(&[QUOTA]).any(|said| output.contains(said))
}

/// The project, working directory and sandbox of a command that ended.
pub(crate) struct EndedCommand<'a> {
    pub(crate) dirs: &'a Dirs,
    pub(crate) project: &'a Path,
    pub(crate) cwd: &'a Path,
    pub(crate) sandbox: &'a Sandbox,
}

/// Tells the model what the sandbox blocked, as far as the last lines of the command's output
/// show it, and the next step. `None` if they show nothing.
pub(crate) fn after_command(
    place: &EndedCommand<'_>,
    output: &str,
    on: Option<OnViolation>,
) -> Option<String> {
    let Sandbox { name, unrestricted, .. } = place.sandbox;
    if *unrestricted {
        return None;
    }
    let what = output.lines().rev().take(MAX_OUTPUT_LINES).find_map(|line| {
        blocked_path(place, line)
            .or_else(|| blocked_link(line))
            .or_else(|| blocked_network(place.sandbox, line))
            .or_else(|| blocked_files(place.sandbox, line))
    })?;
    let then = match on.unwrap_or(OnViolation::Smart) {
        OnViolation::Stop => {
            "Stop here and do not try another way: tell the user what was blocked and why you need it."
        }
        OnViolation::Workaround => {
            "The command itself is right: go on in a way that needs fewer rights, and do not try \
             to get around the sandbox."
        }
        OnViolation::Smart => {
            "Do not try to get around it: if the task can be done without this access, do that; \
             otherwise stop, and tell the user what was blocked and why you need it."
        }
    };
    Some(format!(
        "clash: sandbox {name} blocked this: {what}. {then} \
         (`clash sandbox show {name}` lists what it grants; only the user can change that.)"
    ))
}

/// Only the last lines are read: an error message is at the end of the output.
const MAX_OUTPUT_LINES: usize = 200;

const REFUSALS: [&str; 4] = [
    "Permission denied",
    "Operation not permitted",
    "Read-only file system",
    "No such file or directory",
];

/// The message of programs that create more files than the sandbox's limit.
const QUOTA: &str = "Disk quota exceeded";

/// The sentence about the limit on new names, if the line is the error for it.
fn blocked_files(sandbox: &Sandbox, line: &str) -> Option<String> {
    let most = sandbox.limits.most_files().filter(|_| line.contains(QUOTA))?;
    Some(format!("a command may create {most} files and directories, and it has created them all"))
}

/// The sentence about a path in an error message that the sandbox blocks. `None` if the line
/// is no such message, or if the sandbox grants the access.
fn blocked_path(place: &EndedCommand<'_>, line: &str) -> Option<String> {
    let (refusal, before) = REFUSALS.iter().find_map(|refusal| {
        let (before, _) = line.split_once(refusal)?;
        Some((*refusal, before))
    })?;
    let path = place.cwd.join(last_path(before)?);
    let hidden = refusal == "No such file or directory";
    // A file that does not exist was not hidden.
    if hidden && std::fs::symlink_metadata(&path).is_err() {
        return None;
    }
    let shown = brief(&path.to_string_lossy());
    if !granted(place, &path, FileCaps::READ)? {
        return Some(format!("`{shown}` is out of its reach"));
    }
    let change = FileCaps::WRITE.union(FileCaps::CREATE).union(FileCaps::DELETE);
    (!hidden && !granted(place, &path, change)?).then(|| match filled_by(place, &path) {
        Some(fetch) => format!(
            "`{shown}` is in a cache that all projects share: it may be read there, not \
             changed; the user fills it with `{fetch}` in a terminal"
        ),
        None => format!("`{shown}` may be read there, not changed{}", instead(&path)),
    })
}

/// Git leaves such a link out of the work tree and goes on, so that `commit -a` would
/// delete it.
fn blocked_link(line: &str) -> Option<String> {
    let (before, _) = line.split_once("Permission denied")?;
    let by_git = before.contains("unable to create symlink ");
    if !by_git && !before.contains("create symbolic link ") {
        return None;
    }
    let path = last_path(before)?;
    let shown = brief(&path.to_string_lossy());
    let mut what = format!("the link `{shown}` would lead out of the files that it may read");
    if by_git {
        what.push_str(&format!(
            "; git has left `{shown}` out, and `git commit -a` would delete it for good: name the \
             files to commit, and the user makes the link with `git checkout -- {shown}` in a \
             terminal"
        ));
    }
    Some(what)
}

/// The advice for a tool that overwrites a protected file which it created itself.
fn instead(path: &Path) -> &'static str {
    let name = path.file_name().map(|name| name.to_string_lossy().to_ascii_lowercase());
    match name {
        Some(name) if name == "activate" || name.starts_with("activate.") => {
            ": create the whole environment again, with the option `--clear`"
        }
        _ => "",
    }
}

/// The command with which the user fills a shared cache. The module of the library whose
/// rule names the cache determines it.
fn filled_by(place: &EndedCommand<'_>, path: &Path) -> Option<&'static str> {
    use clash_policy::LinkResolver;
    let disk = Disk::default();
    let places = place.dirs.places(place.project, &disk);
    let path = disk.real(path);
    let is_around = |rule: &&FsRule| {
        let dir = places.expand(rule.pattern.fixed()).map(|dir| disk.real(&dir));
        rule.writes == WriteTarget::Project && dir.is_ok_and(|dir| path.starts_with(dir))
    };
    let module = &place.sandbox.fs.iter().find(is_around)?.span.file;
    let module = module.strip_prefix("@clash//")?.strip_suffix(".star")?;
    FETCHES.iter().find(|(name, _)| *name == module).map(|(_, command)| *command)
}

const FETCHES: [(&str, &str); 11] = [
    ("bazel", "bazel fetch //..."),
    ("dotnet", "dotnet restore"),
    ("elixir", "mix deps.get"),
    ("go", "go mod download"),
    ("haskell", "cabal build --only-download"),
    ("java", "mvn dependency:go-offline"),
    ("node", "npm ci --ignore-scripts"),
    ("php", "composer install --no-scripts --no-plugins"),
    ("ruby", "bundle cache"),
    ("rust", "cargo fetch"),
    ("terraform", "terraform init"),
];

/// True if the sandbox grants these rights on the path. `None` if the judge fails.
fn granted(place: &EndedCommand<'_>, path: &Path, needs: FileCaps) -> Option<bool> {
    use clash_policy::LinkResolver;
    let disk = Disk::default();
    let places = place.dirs.places_unseen(place.project, &disk);
    let baseline = crate::decision::readable_in_a_room();
    let cage = place.dirs.cage(place.project, &disk);
    let world = JudgeContext {
        places: &places,
        cwd: place.cwd,
        links: &disk,
        baseline: &baseline,
        cage: &cage,
        lent: None,
    };
    let path = disk.real(path);
    let caged = needs.contains(FileCaps::WRITE) && cage.iter().any(|caged| path.starts_with(caged));
    let file = FileUse { path, needs, caseless: false };
    let verdict = judge(place.sandbox, &file, &world).ok()?;
    Some(verdict.effect == Effect::Allow && !caged)
}

/// The path at the end of an error message, for example `cat: /x/y: ` or
/// `cannot open '/x/y': `.
fn last_path(before: &str) -> Option<PathBuf> {
    let text = before.trim_end_matches([' ', ':']);
    let quotes = [('\'', '\''), ('"', '"'), ('‘', '’'), ('`', '\'')];
    let inside = quotes.iter().find_map(|(open, close)| {
        let inner = text.strip_suffix(*close)?;
        inner.rsplit_once(*open).map(|(_, path)| path)
    });
    let path = inside.or_else(|| text.rsplit([' ', '(']).next())?.trim();
    let is_path = !path.is_empty() && !path.ends_with(':') && path.len() < 4096;
    is_path.then(|| PathBuf::from(path))
}

const NETWORK: [&str; 8] = [
    "Could not resolve host",
    "could not resolve host",
    "Temporary failure in name resolution",
    "Name or service not known",
    "Network is unreachable",
    "network is unreachable",
    "getaddrinfo ENOTFOUND",
    "getaddrinfo EAI_AGAIN",
];

/// The sentence about the network, if the line is an error of it and the sandbox limits it.
fn blocked_network(sandbox: &Sandbox, line: &str) -> Option<String> {
    if sandbox.net == NetworkAccess::Allow || !NETWORK.iter().any(|said| line.contains(said)) {
        return None;
    }
    Some(net(&sandbox.net))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_of_an_error_message_is_found() {
        let path = |text: &str| last_path(text).map(|path| path.display().to_string());
        assert_eq!(path("cat: /x/y: ").as_deref(), Some("/x/y"));
        assert_eq!(path("cp: cannot create regular file '/x y/z': ").as_deref(), Some("/x y/z"));
        assert_eq!(path("/bin/bash: line 1: out.txt: ").as_deref(), Some("out.txt"));
        assert_eq!(path("error: could not open ‘a b’: ").as_deref(), Some("a b"));
        assert_eq!(path(""), None);
    }

    #[test]
    fn a_link_that_git_leaves_out_is_told_with_its_remedy() {
        let told = blocked_link("error: unable to create symlink conf/out: Permission denied");
        let told = told.unwrap();
        assert!(told.starts_with("the link `conf/out` would lead out"), "{told}");
        assert!(told.contains("`git commit -a` would delete it"), "{told}");
        assert!(told.contains("`git checkout -- conf/out` in a terminal"), "{told}");
        let told = blocked_link("ln: failed to create symbolic link 'L': Permission denied");
        assert!(told.is_some_and(|told| told.ends_with("may read")));
        assert_eq!(blocked_link("ln: failed to create symbolic link 'L': File exists"), None);
        assert_eq!(blocked_link("cat: x: Permission denied"), None);
    }

    #[test]
    fn a_sandbox_with_network_is_not_blamed() {
        let mut sandbox = Sandbox::named("s");
        let line = "curl: (6) Could not resolve host: docs.rs";
        assert_eq!(blocked_network(&sandbox, line).as_deref(), Some("it has no network"));
        sandbox.net = NetworkAccess::Allow;
        assert_eq!(blocked_network(&sandbox, line), None);
    }
}
