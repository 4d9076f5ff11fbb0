//! What `cache()` means on this host.

use clash_policy::{Caps, Sandbox, Writes};

use super::Request;
use crate::cache::{self, Redirect, is_cache};
use crate::host::{Host, Rooms};
use crate::report::{Line, Report};

/// The sandbox of a host that can mount nothing. The shared caches are read-only, and
/// variables lead the tools to the project's own. `None` if rooms mount the caches.
pub(super) fn without_mounts(
    request: &Request<'_>,
    host: &Host,
    report: &mut Report,
) -> Option<(Sandbox, Vec<Redirect>)> {
    let rooms = !matches!(host.rooms, Rooms::Impossible { .. });
    if !cache::has_caches(request.sandbox) || rooms && request.caches.is_some() {
        return None;
    }
    let mut sandbox = request.sandbox.clone();
    let mut redirects: Vec<Redirect> = Vec::new();
    for rule in sandbox.fs.iter_mut().filter(|rule| is_cache(rule)) {
        let own = request
            .caches
            .and_then(|own| cache::redirect(rule, request.sandbox, request.places, own));
        report.say(|| said(rule, own.as_ref()));
        rule.caps = rule.caps.intersect(Caps::READ.union(Caps::EXECUTE));
        rule.writes = Writes::InPlace;
        redirects.extend(own.filter(|own| !redirects.contains(own)));
    }
    Some((sandbox, redirects))
}

fn said(rule: &clash_policy::FsRule, own: Option<&Redirect>) -> Line {
    let text = format!("cache {} ({})", rule.pattern, rule.span);
    match own {
        Some(Redirect { variable, to, .. }) => Line::new(
            text,
            "landlock + variable",
            format!("the shared cache is read-only; {variable} names {}", to.display()),
        ),
        None => Line::new(
            text,
            "landlock",
            "the shared cache is read-only: a variable names no other place to this tool, or \
             nothing was fetched for this project yet",
        ),
    }
}
