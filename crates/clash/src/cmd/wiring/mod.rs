//! Finds out whether an agent asks clash: from its settings files, and from a trial.
//!
//! `install`, `status` and `doctor` report only facts from here.

pub(crate) mod trial;

use std::path::{Path, PathBuf};

use crate::dirs::Dirs;
use crate::remedy::Remedy;
use clash_agents::wiring::{InstallScope, WiredFile, WiringState};
use clash_agents::{Agent, WiringProblem};
use trial::{HookEntry, TrialOutcome};

/// One settings file of an agent.
#[derive(Debug)]
pub(crate) struct SettingsFile {
    pub(crate) path: PathBuf,
    pub(crate) content: SettingsContent,
}

/// The entries of clash in a settings file.
#[derive(Debug)]
pub(crate) enum SettingsContent {
    /// The file does not exist.
    Missing,
    /// Clash cannot read the file, or the agent could not.
    Broken(WiringProblem),
    /// The file has no entry of clash.
    Others,
    /// The file has entries of clash, with these problems.
    Wired { problems: Vec<WiringProblem> },
}

/// The settings files of one agent, and the hooks in them.
#[derive(Debug)]
pub(crate) struct AgentWiring {
    pub(crate) files: Vec<SettingsFile>,
    /// The hooks that judge tool calls, and the program that starts commands.
    hooks: Vec<HookEntry>,
    /// The agent's own sandbox, in which no command of clash can start.
    pub(crate) own_sandbox: Option<WiringProblem>,
}

impl AgentWiring {
    /// Reads every settings file of the agent in this scope, and finds clash's entries and
    /// their problems. A file that cannot be read or parsed counts as broken. Runs nothing,
    /// changes nothing.
    pub(crate) fn read(dirs: &Dirs, agent: &Agent, scope: &InstallScope) -> Self {
        let mut this = Self { files: Vec::new(), hooks: Vec::new(), own_sandbox: None };
        let mut hooks = Vec::new();
        let mut launcher = None;
        for WiredFile { file, edit } in (agent.files)(&dirs.for_agents(), scope) {
            let content = match super::install::read(&file) {
                Err(failure) => SettingsContent::Broken(WiringProblem {
                    what: failure.message,
                    fix: failure.hint,
                }),
                Ok(text) => match edit.state(&text) {
                    Err(error) => {
                        let what = format!("{}: {error}", file.display());
                        SettingsContent::Broken(WiringProblem {
                            what,
                            fix: error.hint().map(str::to_owned),
                        })
                    }
                    Ok(WiringState::Absent) if text.is_empty() => SettingsContent::Missing,
                    Ok(WiringState::Absent) => SettingsContent::Others,
                    Ok(WiringState::Present(found)) => {
                        hooks.extend(edit.commands(&text).unwrap_or_default());
                        launcher = launcher.or(edit.launcher(&text).unwrap_or_default());
                        let own = edit.own_sandbox(&text).ok();
                        let problem = own.and_then(|own| own.problem(agent));
                        this.own_sandbox = this.own_sandbox.take().or(problem);
                        let named = |problem: WiringProblem| WiringProblem {
                            what: format!("{}: {}", file.display(), problem.what),
                            fix: problem.fix,
                        };
                        SettingsContent::Wired { problems: found.into_iter().map(named).collect() }
                    }
                },
            };
            this.files.push(SettingsFile { path: file, content });
        }
        hooks.dedup();
        let prefix_variable = agent.extras.shell_wrapper.map(|wrapper| wrapper.prefix_variable);
        let entry = |hook| HookEntry { hook, launcher: launcher.clone(), prefix_variable };
        this.hooks = hooks.into_iter().map(entry).collect();
        this
    }

    /// True if any file has an entry of clash.
    pub(crate) fn is_wired(&self) -> bool {
        self.files.iter().any(|file| matches!(file.content, SettingsContent::Wired { .. }))
    }

    /// True if clash cannot read or understand any of the files.
    pub(crate) fn is_broken(&self) -> bool {
        self.files.iter().any(|file| matches!(file.content, SettingsContent::Broken(_)))
    }

    /// The problems of all files. If one file is wired, a file without entries of clash is a
    /// problem too.
    pub(crate) fn problems(&self, agent: &Agent) -> Vec<WiringProblem> {
        let wired = self.is_wired();
        let mut found = Vec::new();
        for SettingsFile { path, content } in &self.files {
            match content {
                SettingsContent::Broken(problem) => found.push(problem.clone()),
                SettingsContent::Wired { problems } => found.extend(problems.iter().cloned()),
                SettingsContent::Missing | SettingsContent::Others if wired => {
                    found.push(WiringProblem {
                        what: format!("{} has nothing of clash", path.display()),
                        fix: Some(Remedy::Install { agent: agent.name.to_owned() }.to_string()),
                    })
                }
                SettingsContent::Missing | SettingsContent::Others => {}
            }
        }
        found
    }

    /// Tries every hook in the settings with a harmless command, up to the first that fails.
    /// Fails if there is no hook.
    pub(crate) fn try_out(&self, dirs: &Dirs, agent: &Agent, project: &Path) -> TrialOutcome {
        let mut outcome =
            TrialOutcome::Failed("no hook in its settings judges tool calls".to_owned());
        for entry in &self.hooks {
            outcome = trial::run(dirs, agent, entry, project);
            if matches!(outcome, TrialOutcome::Failed(_)) {
                break;
            }
        }
        outcome
    }

    /// Gives every hook a text that is not a message. Fails unless each of them blocks.
    pub(crate) fn blocks_junk(&self, project: &Path) -> Result<(), String> {
        self.hooks.iter().try_for_each(|entry| trial::blocks_junk(entry, project))
    }
}
