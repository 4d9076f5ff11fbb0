//! The temporary directory: the session's, or one of the command's own.
//!
//! A room shows the session's directory as /tmp, and at its own path as well. So a path
//! that the agent's file tools use names the same file in a command.

use std::path::{Path, PathBuf};

use clash_policy::path::{LinkResolver, is_below};
use clash_policy::{Effect, FileCaps, FsRule};

use super::{PlanRequest, ScratchPlan, WatchPlan};
use crate::plan::report::{PlanReport, ReportLine};
use crate::plan::rights::SandboxRights;
use crate::plan::room::{MountStep, RoomPlan};

/// True if the sandbox may write temporary files and there is no session for them.
pub(super) fn wants_own_tmp(request: &PlanRequest<'_>) -> bool {
    let writes = |rule: &&FsRule| {
        rule.effect == Effect::Allow
            && rule.caps.intersects(FileCaps::CHANGE)
            && request.is_about_own_tmp(rule)
    };
    request.sandbox.fs.iter().any(|rule| writes(&rule))
}

/// Reports each rule about `$TMPDIR` of a command without a session. The planner does not
/// resolve these rules.
pub(super) fn report_own_tmp(
    request: &PlanRequest<'_>,
    room: Option<&RoomPlan>,
    watch: Option<&WatchPlan>,
    scratch: Option<&ScratchPlan>,
    report: &mut PlanReport,
) {
    let mut rules =
        request.sandbox.fs.iter().filter(|rule| request.is_about_own_tmp(rule)).peekable();
    if rules.peek().is_none() {
        return;
    }
    let tmp = request.disk.real(request.temporary.host);
    let in_room = room.is_some_and(|room| room.own().contains(&tmp));
    let (mechanism, why) = match (room, watch) {
        _ if in_room || scratch.is_some() => {
            ("own directory", "outside a session the command has a temporary directory of its own")
        }
        (None, None) => (
            ReportLine::NOTHING,
            "the command may change nothing, so it gets no temporary directory of its own",
        ),
        _ => (ReportLine::NOTHING, "the command gets no temporary directory of its own"),
    };
    for rule in rules {
        let FsRule { pattern, effect, caps, span, .. } = rule;
        let text = format!("{effect} {caps} {pattern} ({span})");
        report.say(|| ReportLine::new(text, mechanism, why));
    }
}

/// Repeats each rule about the session's directory for every other path at which the room
/// shows it, for example /tmp. Also notes these names in the rights. Changes nothing without
/// a session.
pub(super) fn repeat_tmp_rules(
    mut rights: SandboxRights,
    request: &PlanRequest<'_>,
    room: &RoomPlan,
) -> SandboxRights {
    let Some(session) = request.temporary.session else { return rights };
    if room.steps.iter().any(|step| matches!(step, MountStep::Show { .. })) {
        let names = ["/tmp", "/var/tmp"].map(PathBuf::from);
        rights.tmp_names = names.into_iter().chain([request.temporary.host.into()]).collect();
    }
    let mut repeated = Vec::new();
    for step in &room.steps {
        let MountStep::Show { at, .. } = step else { continue };
        for rule in &rights.sandbox.fs {
            let fixed = Path::new(rule.pattern.fixed());
            if !is_below(fixed, session) {
                continue;
            }
            let below = fixed.strip_prefix(session).unwrap_or(Path::new(""));
            let here = if below.as_os_str().is_empty() { at.clone() } else { at.join(below) };
            if let Some(text) = here.to_str() {
                repeated.push(FsRule { pattern: rule.pattern.at(text), ..rule.clone() });
            }
        }
    }
    rights.sandbox.fs.extend(repeated);
    rights
}
