//! Whether an agent asks clash: what its settings say, and what a trial shows.
//!
//! `install`, `status` and `doctor` say what stands here and nothing else.

pub(crate) mod trial;

use std::path::{Path, PathBuf};

use crate::agents::wiring::{Scope, State, Wired};
use crate::agents::{Agent, Problem};
use crate::dirs::Dirs;
use trial::{Entry, Outcome};

/// One settings file of an agent.
#[derive(Debug)]
pub(crate) struct SettingsFile {
    pub(crate) path: PathBuf,
    pub(crate) content: Content,
}

#[derive(Debug)]
pub(crate) enum Content {
    /// There is no such file.
    Missing,
    /// It cannot be read, or is not what the agent reads.
    Broken(Problem),
    /// Nothing in it is clash's.
    Others,
    /// It has entries of clash, with these problems.
    Wired { problems: Vec<Problem> },
}

/// The files of one agent, and what they say together.
#[derive(Debug)]
pub(crate) struct Wiring {
    pub(crate) files: Vec<SettingsFile>,
    /// The hooks that judge tool calls, and the program that starts commands.
    hooks: Vec<Entry>,
    /// The agent's own sandbox, in which no command of clash can start.
    pub(crate) own_sandbox: Option<Problem>,
}

impl Wiring {
    pub(crate) fn look(dirs: &Dirs, agent: &Agent, scope: &Scope) -> Self {
        let mut this = Self { files: Vec::new(), hooks: Vec::new(), own_sandbox: None };
        let mut hooks = Vec::new();
        let mut launcher = None;
        for Wired { file, edit } in (agent.files)(&dirs.for_agents(), scope) {
            let content = match super::install::read(&file) {
                Err(failure) => {
                    Content::Broken(Problem { what: failure.message, fix: failure.hint })
                }
                Ok(text) => match edit.state(&text) {
                    Err(error) => {
                        let what = format!("{}: {error}", file.display());
                        Content::Broken(Problem { what, fix: error.hint().map(str::to_owned) })
                    }
                    Ok(State::Absent) if text.is_empty() => Content::Missing,
                    Ok(State::Absent) => Content::Others,
                    Ok(State::Present(found)) => {
                        hooks.extend(edit.commands(&text).unwrap_or_default());
                        launcher = launcher.or(edit.launcher(&text).unwrap_or_default());
                        let own = edit.own_sandbox(&text).ok();
                        this.own_sandbox = own.and_then(|own| own.problem(agent));
                        let named = |problem: Problem| Problem {
                            what: format!("{}: {}", file.display(), problem.what),
                            fix: problem.fix,
                        };
                        Content::Wired { problems: found.into_iter().map(named).collect() }
                    }
                },
            };
            this.files.push(SettingsFile { path: file, content });
        }
        hooks.dedup();
        let entry = |hook| Entry { hook, launcher: launcher.clone() };
        this.hooks = hooks.into_iter().map(entry).collect();
        this
    }

    /// True if any file has an entry of clash.
    pub(crate) fn is_wired(&self) -> bool {
        self.files.iter().any(|file| matches!(file.content, Content::Wired { .. }))
    }

    pub(crate) fn is_broken(&self) -> bool {
        self.files.iter().any(|file| matches!(file.content, Content::Broken(_)))
    }

    /// Everything that is wrong with the files.
    pub(crate) fn problems(&self, agent: &Agent) -> Vec<Problem> {
        let wired = self.is_wired();
        let mut found = Vec::new();
        for SettingsFile { path, content } in &self.files {
            match content {
                Content::Broken(problem) => found.push(problem.clone()),
                Content::Wired { problems } => found.extend(problems.iter().cloned()),
                Content::Missing | Content::Others if wired => found.push(Problem {
                    what: format!("{} has nothing of clash", path.display()),
                    fix: Some(format!("clash install --agent {}", agent.name)),
                }),
                Content::Missing | Content::Others => {}
            }
        }
        found
    }

    /// Tries every hook in the settings; the first that fails counts.
    pub(crate) fn try_out(&self, dirs: &Dirs, agent: &Agent, project: &Path) -> Outcome {
        let mut outcome = Outcome::Failed("no hook in its settings judges tool calls".to_owned());
        for entry in &self.hooks {
            outcome = trial::run(dirs, agent, entry, project);
            if matches!(outcome, Outcome::Failed(_)) {
                break;
            }
        }
        outcome
    }

    /// Gives every hook something that is no message.
    pub(crate) fn blocks_junk(&self, project: &Path) -> Result<(), String> {
        self.hooks.iter().try_for_each(|entry| trial::blocks_junk(entry, project))
    }
}
