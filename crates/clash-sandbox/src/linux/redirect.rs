//! Leads tools to the project's own caches by environment variables, where nothing can be
//! mounted.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use clash_policy::mask::MaskSyntax;
use clash_policy::{Effect, FileCaps, FsRule, PathPattern, PolicySpan, WriteTarget};

use crate::launch::command::LaunchCommand;
use crate::plan::cache::CacheRedirect;
use crate::plan::masks::copy_without_secrets;
use crate::plan::sight::TreeVisibility;
use crate::plan::{GrantReason, PathGrant, SandboxPlan};

/// The plan and the command with the cache directories added. A directory that cannot be
/// made is left out; the tool then finds the shared cache, which is read-only.
pub(crate) fn add_redirects(
    plan: &SandboxPlan,
    command: &LaunchCommand,
) -> (SandboxPlan, LaunchCommand) {
    let (mut plan, mut command) = (plan.clone(), command.clone());
    for redirect in std::mem::take(&mut plan.redirects) {
        let is_readable = |file: &Path| {
            plan.watch.as_ref().is_some_and(|it| it.rights.permits(file, FileCaps::READ))
        };
        if !make_directory(&redirect, &is_readable) {
            continue;
        }
        let grant = PathGrant {
            path: redirect.to.clone(),
            caps: FileCaps::ALL,
            why: GrantReason::Launcher,
        };
        if let Some(watch) = &mut plan.watch {
            watch.rights.given.push(grant.clone());
            // Packages contain names that are protected elsewhere below the home.
            watch.rights.sandbox.fs.extend(allow_rule(&redirect));
            if let Some(sight) = &mut watch.sight {
                sight.set_tree(&redirect.to, TreeVisibility::Writable);
            }
        }
        plan.grants.push(grant);
        set_variable(&mut command, &redirect);
    }
    (plan, command)
}

/// A rule that allows everything in the directory; `None` if its path is not UTF-8.
fn allow_rule(redirect: &CacheRedirect) -> Option<FsRule> {
    let path = redirect.to.to_str()?.to_owned();
    Some(FsRule {
        pattern: PathPattern::Subpath { path, follow_worktrees: false },
        effect: Effect::Allow,
        caps: FileCaps::ALL,
        writes: WriteTarget::InPlace,
        span: PolicySpan::default(),
    })
}

/// Makes the directory and copies the carried files anew, without their secrets unless the
/// command may read the file itself. Returns false if the directory cannot be made; a file
/// that cannot be copied is left out.
fn make_directory(redirect: &CacheRedirect, is_readable: &dyn Fn(&Path) -> bool) -> bool {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(&redirect.to);
    for file in &redirect.carried {
        let Some(copy) = file.file_name().map(|name| redirect.to.join(name)) else { continue };
        let _ = fs::remove_file(&copy);
        let text = match MaskSyntax::of_path(&known_path(redirect, file)) {
            Some(syntax) if !is_readable(file) => copy_without_secrets(file, syntax).ok(),
            _ => fs::read(file).ok(),
        };
        let _ = text.map(|text| write_new_file(&copy, &text));
    }
    made.is_ok()
}

/// The path of a carried file as a policy writes it: `$CARGO_HOME/config.toml`.
fn known_path(redirect: &CacheRedirect, file: &Path) -> String {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    format!("${}/{name}", redirect.variable)
}

/// Writes a file that must not exist: a link, which another command of the project may have
/// put there, is not followed.
fn write_new_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    File::options().write(true).create_new(true).open(path)?.write_all(bytes)
}

/// Sets the variable to the directory. A variable with options, such as `MAVEN_OPTS`, keeps
/// its earlier content before them.
fn set_variable(
    command: &mut LaunchCommand,
    CacheRedirect { variable, option, to, .. }: &CacheRedirect,
) {
    let before = command.env.iter().position(|(name, _)| name == variable);
    let before = before.map(|at| command.env.swap_remove(at).1);
    let mut value = before.filter(|_| !option.is_empty()).unwrap_or_default();
    if !value.is_empty() {
        value.push(" ");
    }
    value.push(option);
    value.push(to);
    command.env.push((OsString::from(variable), value));
}
