//! Decides an action by the policy: for the hook, the launcher and `clash explain`.

use std::path::{Path, PathBuf};

use clash_policy::decide::{DecideError, Decision, SandboxJudgement};
use clash_policy::{Action, Effect, FileCaps, FileUse, JudgeContext, PolicyPlaces, ToolInput};
use clash_sandbox::disk::Disk;
use clash_sandbox::repository;

use crate::dirs::Dirs;
use crate::in_force::{NotedLinks, PlantedPathError, PolicySandboxes};
use crate::policy::{LoadedPolicy, PolicyError};
use crate::temporary::TmpNames;

#[derive(Debug, thiserror::Error)]
pub(crate) enum DecisionError {
    #[error(transparent)]
    Policy(#[from] PolicyError),
    #[error(transparent)]
    Decide(#[from] DecideError),
    #[error(transparent)]
    Planted(#[from] PlantedPathError),
}

/// The project, session and working directory of an action.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DecisionContext<'a> {
    pub(crate) project: &'a Path,
    /// The directory of the session's own state.
    pub(crate) session: Option<&'a Path>,
    pub(crate) cwd: &'a Path,
}

impl<'a> DecisionContext<'a> {
    /// The root of a project, outside any session.
    pub(crate) fn outside_sessions(project: &'a Path) -> Self {
        Self { project, session: None, cwd: project }
    }
}

/// Decides an action by the policy in force.
pub(crate) fn decide(
    dirs: &Dirs,
    scene: DecisionContext<'_>,
    action: &Action,
) -> Result<Decision, DecisionError> {
    decide_by(&LoadedPolicy::load(dirs, scene.project, scene.session)?, dirs, scene, action)
}

/// Decides an action by a policy that is already loaded. Fails if a planted link on a path of
/// the policy makes the decision less strict.
pub(crate) fn decide_by(
    policy: &LoadedPolicy,
    dirs: &Dirs,
    scene: DecisionContext<'_>,
    action: &Action,
) -> Result<Decision, DecisionError> {
    let disk = Disk::default();
    let places = dirs.places_unseen(scene.project, &disk);
    let (cage, baseline) = match baseline(&action.input) {
        Some(baseline) => (dirs.cage(scene.project, &disk), baseline),
        None => (Vec::new(), Vec::new()),
    };
    let lent = dirs.session_tmp.as_ref().map(|_| places.tmp.as_path());
    let names = lent.map(|session| TmpNames { dirs, project: &places.project, session });
    // A script runs in a room, where /tmp is the directory of the session.
    let names = names.filter(|_| matches!(action.input, ToolInput::Script(_)));
    let noted = NotedLinks::new(&disk, names);
    let world = JudgeContext {
        places: &places,
        cwd: scene.cwd,
        links: &noted,
        baseline: &baseline,
        cage: &cage,
        lent,
    };
    let mut decision = clash_policy::decide(policy.ir(), action, &world)?;
    if let ToolInput::Files(files) = &action.input {
        ask_about_repositories(&mut decision, files, &places.project);
    }
    if decision.effect == Effect::Deny {
        return Ok(decision);
    }
    // The same decision once more, without the paths that lead through a planted link.
    let in_force = PolicySandboxes { dirs, project: scene.project, session: scene.session };
    let Some((closed, planted)) = noted.without_planted(&places, &in_force) else {
        return Ok(decision);
    };
    let without =
        clash_policy::decide(policy.ir(), action, &JudgeContext { links: &closed, ..world })?;
    if without.effect > decision.effect { Err(planted.into()) } else { Ok(decision) }
}

/// Turns an allow into an ask for a file tool that completes or changes a directory that git
/// takes for a repository: git would then obey the settings in it.
fn ask_about_repositories(decision: &mut Decision, files: &[FileUse], project: &Path) {
    let span = decision.sandbox.as_ref().map(|sandbox| sandbox.span.clone()).unwrap_or_default();
    for (part, file) in decision.parts.iter_mut().zip(files) {
        let changes = file.needs.intersects(FileCaps::CHANGE);
        if part.effect == Effect::Allow
            && changes
            && repository::completes_bare_repository(&file.path, project)
        {
            let rule = "protect: git takes the directory for a repository".to_owned();
            part.effect = Effect::Ask;
            part.judged = Some(SandboxJudgement {
                effect: Effect::Ask,
                caps: file.needs,
                rule: Some((rule, span.clone())),
                credential: None,
            });
            decision.effect = decision.effect.max(Effect::Ask);
        }
    }
}

/// The paths of one project, resolved once for many decisions.
#[derive(Debug)]
pub(crate) struct ProjectJudge {
    disk: Disk,
    places: PolicyPlaces,
    cage: Vec<PathBuf>,
}

impl ProjectJudge {
    /// Resolves the places and the cage of the project.
    pub(crate) fn new(dirs: &Dirs, project: &Path) -> Self {
        let disk = Disk::default();
        let (places, cage) = (dirs.places(project, &disk), dirs.cage(project, &disk));
        Self { disk, places, cage }
    }

    /// As [`decide_by`], but outside sessions, without the checks for planted links and for
    /// repositories.
    pub(crate) fn decide(
        &self,
        policy: &LoadedPolicy,
        cwd: &Path,
        action: &Action,
    ) -> Result<Decision, DecisionError> {
        let baseline = baseline(&action.input).unwrap_or_default();
        let Self { disk, places, cage } = self;
        let world =
            JudgeContext { places, cwd, links: disk, baseline: &baseline, cage, lent: None };
        Ok(clash_policy::decide(policy.ir(), action, &world)?)
    }
}

/// The paths that every sandbox may read, for actions whose files are judged here: those of
/// tools, and of scripts with redirections. `None` for others: the kernel confines commands.
fn baseline(input: &ToolInput) -> Option<Vec<(&'static str, FileCaps)>> {
    match input {
        ToolInput::Files(_) => Some(readable_by_tools()),
        ToolInput::Script(script) if script.contains(['<', '>']) => Some(readable_in_a_room()),
        ToolInput::Script(_) | ToolInput::Hosts(_) | ToolInput::Fields(_) => None,
    }
}

/// The system baseline as the kernel grants it.
pub(crate) fn readable_in_a_room() -> Vec<(&'static str, FileCaps)> {
    clash_sandbox::baseline::BASELINE_ENTRIES.iter().map(|entry| (entry.path, entry.caps)).collect()
}

/// The system baseline for tools that run in the agent's own process. It is without /proc,
/// where the kernel shows the agent more than a sandboxed process (for example the memory of
/// other processes), and without /dev.
pub(crate) fn readable_by_tools() -> Vec<(&'static str, FileCaps)> {
    let kept = |path: &str| !path.starts_with("/proc") && !path.starts_with("/dev");
    let entries = clash_sandbox::baseline::BASELINE_ENTRIES.iter().filter(|entry| kept(entry.path));
    entries.map(|entry| (entry.path, entry.caps)).collect()
}
