//! Sandboxes that open credentials, that deny paths they do not grant, or that no rule
//! uses.

use std::path::Path;

use clash_policy::judge::judge;
use clash_policy::path::{PolicyPlaces, is_below};
use clash_policy::rule::Layer;

use clash_policy::{Effect, FileCaps, FileUse, FsRule, JudgeContext, Sandbox, WriteTarget};

use super::own;
use crate::diagnostic::PolicyWarning;

/// Files with keys, tokens, cookies or typed commands, below the home directory: the name in
/// the warning, and a file that the lint imagines there.
const CREDENTIAL_FILES: &[(&str, &str)] = &[
    (".ssh", ".ssh/id_ed25519"),
    (".gnupg", ".gnupg/private-keys-v1.d/key"),
    (".aws", ".aws/credentials"),
    (".azure", ".azure/msal_token_cache.json"),
    (".config/gcloud", ".config/gcloud/credentials.db"),
    (".config/gh", ".config/gh/hosts.yml"),
    (".config/op", ".config/op/config"),
    (".config/rclone", ".config/rclone/rclone.conf"),
    (".kube", ".kube/config"),
    (".docker", ".docker/config.json"),
    (".netrc", ".netrc"),
    (".git-credentials", ".git-credentials"),
    (".npmrc", ".npmrc"),
    (".pypirc", ".pypirc"),
    (".cargo/credentials.toml", ".cargo/credentials.toml"),
    (".gem/credentials", ".gem/credentials"),
    (".m2/settings.xml", ".m2/settings.xml"),
    (".terraform.d", ".terraform.d/credentials.tfrc.json"),
    (".pgpass", ".pgpass"),
    (".vault-token", ".vault-token"),
    (".password-store", ".password-store/key.gpg"),
    (".local/share/keyrings", ".local/share/keyrings/login.keyring"),
    ("Library/Keychains", "Library/Keychains/login.keychain-db"),
    (".mozilla", ".mozilla/firefox/profile/cookies.sqlite"),
    (".config/google-chrome", ".config/google-chrome/Default/Cookies"),
    (".config/chromium", ".config/chromium/Default/Cookies"),
    (".claude/.credentials.json", ".claude/.credentials.json"),
    (".codex/auth.json", ".codex/auth.json"),
    (".gemini/oauth_creds.json", ".gemini/oauth_creds.json"),
    (".bash_history", ".bash_history"),
    (".zsh_history", ".zsh_history"),
];

/// The warnings about sandboxes in the user's files. Only those of the policy file itself
/// are checked for use.
pub(super) fn warnings(layer: &Layer, used: &[String]) -> Vec<PolicyWarning> {
    let places = PolicyPlaces::imagined();
    let mut found = Vec::new();
    for sandbox in layer.sandboxes.iter().filter(|sandbox| own(&sandbox.span)) {
        found.extend(open_default(sandbox));
        let mut complete = sandbox.clone();
        complete.fs.extend(layer.settings.everywhere.iter().cloned());
        found.extend(credentials(&complete, &places));
        found.extend(redundant(sandbox, &places));
        if sandbox.span.file == layer.origin && !used.contains(&sandbox.name) {
            let message = format!("sandbox `{}` is never used", sandbox.name);
            let hint = format!("name it in a rule: allow(sandbox = {})", sandbox.name);
            found.push(PolicyWarning::new("unused-sandbox", message, &sandbox.span).hint(hint));
        }
    }
    found
}

/// A warning if the default of the sandbox is `allow`; not for `unrestricted`.
fn open_default(sandbox: &Sandbox) -> Option<PolicyWarning> {
    let open = sandbox.default == Effect::Allow && !sandbox.unrestricted;
    open.then(|| {
        let message = format!("sandbox `{}` allows every path that no key names", sandbox.name);
        PolicyWarning::new("open-sandbox", message, &sandbox.span)
            .hint("default = deny() or ask(), and a key for each path that is needed")
    })
}

/// One warning for each rule in a file of the user that allows reading one of
/// [`CREDENTIAL_FILES`]. Rules of the library get none.
fn credentials(sandbox: &Sandbox, places: &PolicyPlaces) -> Vec<PolicyWarning> {
    let world = JudgeContext::without_disk(places);
    let mut opened: Vec<(usize, Vec<&str>)> = Vec::new();
    for (name, file) in CREDENTIAL_FILES {
        let path = places.home.join(file);
        let file = FileUse { path, needs: FileCaps::READ, caseless: false };
        let Ok(verdict) = judge(sandbox, &file, &world) else { continue };
        let Some(rule) = verdict.rule.filter(|_| verdict.effect == Effect::Allow) else { continue };
        match opened.iter_mut().find(|(known, _)| *known == rule) {
            Some((_, names)) => names.push(name),
            None => opened.push((rule, vec![name])),
        }
    }
    let with_rule = |(at, names): (usize, Vec<&'static str>)| Some((sandbox.fs.get(at)?, names));
    let own_rule = |(rule, _): &(&FsRule, Vec<&str>)| own(&rule.span);
    opened
        .into_iter()
        .filter_map(with_rule)
        .filter(own_rule)
        .map(|(rule, names)| opens(rule, &names))
        .collect()
}

/// The warning about a rule that opens these credential files; it names at most three.
fn opens(rule: &FsRule, names: &[&str]) -> PolicyWarning {
    let shown: Vec<String> = names.iter().take(3).map(|name| format!("`~/{name}`")).collect();
    let more = match names.len().saturating_sub(shown.len()) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let message = format!("`{}` opens {}{more}", rule.pattern, shown.join(", "));
    let first = names.first().copied().unwrap_or_default();
    PolicyWarning::new("credentials", message, &rule.span)
        .hint(format!("grant a narrower path, or add \"$HOME/{first}\": deny()"))
}

/// Denies without effect, because the sandbox allows nothing at their paths. Only below
/// the home directory: elsewhere the baseline makes system files readable, so a deny
/// has an effect.
fn redundant(sandbox: &Sandbox, places: &PolicyPlaces) -> Vec<PolicyWarning> {
    if sandbox.default != Effect::Deny {
        return Vec::new();
    }
    let fixed = |rule: &FsRule| places.expand(rule.pattern.fixed()).ok();
    let near = |a: &Path, b: &Path| is_below(a, b) || is_below(b, a);
    let needless = |deny: &&FsRule| {
        let Some(path) = fixed(deny).filter(|path| is_below(path, &places.home)) else {
            return false;
        };
        let mut others = sandbox
            .fs
            .iter()
            .filter(|other| other.effect != Effect::Deny && other.caps.intersects(deny.caps));
        !others.any(|other| fixed(other).is_none_or(|other| near(&path, &other)))
    };
    // A masked file is denied in the policy, and shown as a copy.
    let is_deny = |rule: &&FsRule| {
        rule.effect == Effect::Deny && rule.writes != WriteTarget::Masked && own(&rule.span)
    };
    let denies = sandbox.fs.iter().filter(is_deny);
    denies
        .filter(needless)
        .map(|deny| {
            let message = format!(
                "this deny can never matter: sandbox `{}` allows nothing at `{}`",
                sandbox.name, deny.pattern
            );
            PolicyWarning::new("redundant-deny", message, &deny.span)
                .hint("the default of the sandbox denies it already")
        })
        .collect()
}
