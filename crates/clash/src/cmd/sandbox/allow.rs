//! `clash sandbox allow`: adds one right to a sandbox.

use std::path::{Path, PathBuf};

use clash_policy::judge::judge;
use clash_policy::{Effect, FileUse, JudgeContext, Sandbox};
use clash_sandbox::disk::Disk;

use super::hint_for_name;
use crate::cmd::policy::change::{ChangeOptions, FileChange, carry_out, read};
use crate::dirs::Dirs;
use crate::policy::{LoadedPolicy, PolicyFiles, SESSION_POLICY};
use crate::rights::ExtraRight;
use crate::session::Session;
use crate::ui::{CommandOutput, Failure};
use crate::{env, exit};

/// Where a right is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum GrantScope {
    User,
    Project,
    /// The session's own policy.
    Session(PathBuf),
}

/// Adds a right to a sandbox: appends a line to the policy of the scope. Before it writes, it
/// compiles the new text and checks that the sandbox then has the right, and shows the change
/// with the usual question. Then makes a missing file or directory of the right. Returns the
/// exit status. Fails after a no of the user, and inside a sandbox.
pub(crate) fn allow(
    out: &mut CommandOutput,
    dirs: &Dirs,
    project: &Path,
    sandbox: &str,
    right: &ExtraRight,
    scope: &GrantScope,
    how: ChangeOptions,
) -> Result<u8, Failure> {
    refuse_inside()?;
    let policy = LoadedPolicy::load(dirs, project, None)?;
    let known = find(&policy, sandbox)?;
    if known.is_none() {
        let names = policy.sandboxes()?;
        let names: Vec<&str> = names.iter().filter_map(|it| it.name().ok()).collect();
        return Err(Failure::new(format!("there is no sandbox `{sandbox}`"))
            .hint(hint_for_name(sandbox, &names)));
    }
    let (file, files) = place(dirs, project, scope)?;
    let before = read(&file)?.unwrap_or_default();
    let line = right.policy_line(sandbox, project, &dirs.home).map_err(Failure::new)?;
    let gap = if before.is_empty() || before.ends_with('\n') { "" } else { "\n" };
    let after = format!("{before}{gap}{line}");
    let policy = files
        .with_text(&file, &after)
        .compile()
        .map_err(|error| Failure::new(format!("nothing was changed, because then {error}")))?;
    let changed = find(&policy, sandbox)?.unwrap_or_else(|| Sandbox::named(sandbox));
    check(dirs, project, &changed, right)?;
    if !carry_out(out, dirs, vec![FileChange::replace(&file, after)?], how)? {
        return Ok(exit::OK);
    }
    if let Some(made) = make_missing(right)? {
        let shown = crate::blocks::shorten(made, &dirs.home);
        out.line(format!("made `{shown}`, because a sandbox can only get files that are there"))?;
    }
    out.line(format!("now sandbox {sandbox} may {}", right.words(&dirs.home)))?;
    Ok(exit::OK)
}

/// Makes an empty file if a right to change it would otherwise have no effect. The kernel
/// knows rights to files, and not to names that do not exist.
fn make_missing(right: &ExtraRight) -> Result<Option<&Path>, Failure> {
    let ExtraRight::Change(path) = right else { return Ok(None) };
    if std::fs::symlink_metadata(path).is_ok() {
        return Ok(None);
    }
    match std::fs::File::options().write(true).create_new(true).open(path) {
        Ok(_) => Ok(Some(path)),
        Err(error) => Err(Failure::new(format!("cannot make {}: {error}", path.display()))),
    }
}

/// Fails inside a sandbox of clash: only the user gives rights.
pub(crate) fn refuse_inside() -> Result<(), Failure> {
    match env::inside_clash() {
        Some(sandbox) => Err(Failure::new(format!(
            "this runs in sandbox {sandbox}, and only the user gives rights"
        ))
        .hint("run it in a terminal of your own")),
        None => Ok(()),
    }
}

/// The sandbox that rules of the policy mean by this name.
pub(crate) fn find(policy: &LoadedPolicy, name: &str) -> Result<Option<Sandbox>, Failure> {
    for sandbox in policy.sandboxes()? {
        if sandbox.name()? == name {
            return Ok(Some(sandbox.to_sandbox()?));
        }
    }
    Ok(None)
}

/// The policy file of a scope, which may not exist yet, and the policy files to compile for
/// the preview. The project's file counts as trusted there. Reads only which files exist.
fn place(
    dirs: &Dirs,
    project: &Path,
    scope: &GrantScope,
) -> Result<(PathBuf, PolicyFiles), Failure> {
    let files = PolicyFiles::in_force(dirs, project, None);
    Ok(match scope {
        GrantScope::User => {
            let [first, _] = &dirs.user_policies;
            let present = dirs.user_policies.iter().find(|path| path.exists());
            (present.unwrap_or(first).clone(), files)
        }
        GrantScope::Project => {
            let file = dirs.project_policy(project).ok_or_else(|| {
                Failure::new("the policy in the home directory is the user's own")
            })?;
            (file, files.trusting())
        }
        GrantScope::Session(dir) => {
            let file = dir.join(SESSION_POLICY);
            let files = files.with_session(&file);
            (file, files)
        }
    })
}

/// Fails unless the sandbox now has the right, and this machine can enforce the sandbox.
fn check(
    dirs: &Dirs,
    project: &Path,
    sandbox: &Sandbox,
    right: &ExtraRight,
) -> Result<(), Failure> {
    let words = right.words(&dirs.home);
    let refused = |why: String| {
        Failure::new(format!(
            "nothing was changed: sandbox {} would still not {words}: {why}",
            sandbox.name
        ))
    };
    if let ExtraRight::Host(host) = right {
        let (name, port) = host.rsplit_once(':').unwrap_or((host, "443"));
        let (effect, _) = sandbox.net.judge(name, port.parse().unwrap_or(443));
        if effect != Effect::Allow {
            return Err(refused("another rule of the sandbox denies it".to_owned()));
        }
    }
    if let Some(path) = right.path() {
        use clash_policy::LinkResolver;
        let disk = Disk::default();
        let places = dirs.places_unseen(project, &disk);
        let cage = dirs.cage(project, &disk);
        let baseline = crate::decision::readable_in_a_room();
        let world = JudgeContext {
            places: &places,
            cwd: project,
            links: &disk,
            baseline: &baseline,
            cage: &cage,
            lent: None,
        };
        let real = disk.real(path);
        let changes = matches!(right, ExtraRight::Change(_));
        if changes && cage.iter().any(|caged| real.starts_with(caged)) {
            let why = "it steers the agent or clash itself, and no sandbox may change it";
            return Err(refused(why.to_owned()));
        }
        let file = FileUse { path: real, needs: right.caps(), caseless: false };
        let verdict = judge(sandbox, &file, &world)?;
        if verdict.effect != Effect::Allow {
            let why = match (&verdict.kept, verdict.rule.and_then(|at| sandbox.fs.get(at))) {
                (Some((entry, why)), _) => format!("`{entry}` is protected: {why}"),
                (None, Some(rule)) => {
                    format!("the rule {} at {} denies it", rule.pattern, rule.span)
                }
                (None, None) => "its default denies it".to_owned(),
            };
            return Err(refused(why));
        }
    }
    let host = dirs.host();
    let planned = super::plan_all(dirs, project, std::slice::from_ref(sandbox), &host);
    match planned.into_iter().next().map(|planned| planned.outcome) {
        Some(Err(refusal)) => {
            let failure = Failure::new(format!(
                "nothing was changed: this machine could not enforce the sandbox: {}",
                refusal.what
            ));
            Err(Failure { hint: refusal.fix, ..failure })
        }
        _ => Ok(()),
    }
}

/// The scope that a word names; any other word than `project` and `session` is the user's own
/// policy. `session` needs an id, from the option or the client's environment, of a session
/// that exists.
pub(super) fn scope_named(
    word: &str,
    session: Option<&str>,
    dirs: &Dirs,
) -> Result<GrantScope, Failure> {
    Ok(match word {
        "project" => GrantScope::Project,
        "session" => {
            let id = session.map(str::to_owned).or_else(env::client_session).ok_or_else(|| {
                Failure::new("the session is not known").hint("name it with `--session`")
            })?;
            GrantScope::Session(Session::find(dirs, &id)?.dir)
        }
        _ => GrantScope::User,
    })
}
