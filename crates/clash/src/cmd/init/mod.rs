//! `clash init`: makes the first policy for a project. Clash prints its findings and asks for
//! the user's choices, or takes them from the command line. It compiles the policy and shows
//! it before it writes.

mod agents;
mod draft;
mod from_trace;
mod hosts;
mod learned;
mod place;
mod posture;
mod presets;
mod preview;
mod summary;
mod walkthrough;

use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use clash_policy::PolicyPlaces;
use clash_protocol::report::{CompileReport, PolicyFinding};
use clash_sandbox::disk::Disk;
use clash_syntax::draft::load_line;
use serde_json::{Value, json};

use self::draft::{MachineFacts, PolicyChoices, ToolchainRules};
use self::hosts::LearnedHosts;
use self::posture::Posture;
use self::presets::PolicyLibrary;
use self::preview::{print_changes, print_preview};
use super::policy::change::{FileChange, make_all, read};
use super::policy::edit::trusts_project;
use super::policy::import::{self, ImportedFile};
use super::{dirs_and_project, unless_closed};
use crate::dirs::Dirs;
use crate::ecosystems::{self, DetectedProject, DetectedToolchain, ECOSYSTEMS};
use crate::policy::{LoadedPolicy, PolicyFiles};
use crate::remedy::Remedy;
use crate::ui::{CommandOutput, Failure, TextTone, confirm};
use crate::{env, exit};

/// Make a policy for the toolchains of this project
///
/// Detects the project's toolchains and makes a policy for them.
///
/// At a terminal, clash asks a few questions and shows the policy, with its decisions about
/// the latest actions of your agents. It writes the policy after one yes. Without a terminal,
/// or with --quick, it takes the defaults. Clash does not overwrite an existing policy: it
/// shows the change, and can add the missing toolchains. `clash policy undo` undoes it.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Ask nothing: take the detected toolchains and the moderate posture
    #[arg(long)]
    quick: bool,
    /// The actions that happen without asking
    #[arg(long, value_enum)]
    posture: Option<Posture>,
    /// The agent to wire; every agent found if not given, no agent with `none`; may be
    /// repeated
    #[arg(long, value_name = "AGENT")]
    agent: Vec<String>,
    /// The toolchain; every detected toolchain if not given; may be repeated
    #[arg(long, value_name = "NAME")]
    ecosystem: Vec<String>,
    /// The policy to write: user or project. The project's policy, `.clash/policy.star`, is
    /// for all its users. Each user has to trust it with `clash trust`, and it names no path
    /// of this machine
    #[arg(long, value_name = "SCOPE", default_value = "user", value_parser = ["user", "project"])]
    scope: String,
    /// Let every `X_full` sandbox reach every host, instead of the hosts that clash finds
    #[arg(long, conflicts_with = "project_hosts")]
    all_hosts: bool,
    /// Also allow the hosts that only files of the project name, for example a lock file
    #[arg(long)]
    project_hosts: bool,
    /// Do not import permissions from the settings of agents
    #[arg(long)]
    no_import: bool,
    /// Make the policy from the past actions of agents: `latest`, a history, or a directory
    /// with histories. Clash prints it; with --yes it writes it and keeps the old one beside it
    #[arg(long, value_name = "HISTORY", conflicts_with_all = ["ecosystem", "posture"])]
    from_trace: Option<String>,
    /// Replace the old policy, and keep it beside the new one
    #[arg(long)]
    replace: bool,
    /// Do not ask
    #[arg(long, short)]
    yes: bool,
    /// Show the change without making it
    #[arg(long, conflicts_with = "yes")]
    dry_run: bool,
    /// Print JSON; ask nothing, and write only with --yes
    #[arg(long)]
    json: bool,
    /// The project; found from the working directory if not given
    #[arg(long, value_name = "DIR")]
    project: Option<PathBuf>,
}

/// The changes that clash proposes.
struct PolicyProposal {
    file: PathBuf,
    how: PlacementAction,
    /// The policy and the modules beside it.
    changes: Vec<FileChange>,
    policy: LoadedPolicy,
    warnings: Vec<PolicyFinding>,
}

/// The way to put the policy in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PlacementAction {
    Create,
    Merge,
    Replace,
}

impl PlacementAction {
    fn word(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Merge => "merge",
            Self::Replace => "replace",
        }
    }
}

/// The project and the findings about it.
struct InitProject {
    dirs: Dirs,
    root: PathBuf,
    places: PolicyPlaces,
    found: DetectedProject,
    library: PolicyLibrary,
}

impl Args {
    /// Looks at the project, asks or takes defaults, shows the policy, and writes it if the
    /// user agrees. Fails if nothing was written for want of a yes. `--from-trace` without
    /// `--yes` only prints a proposal. Refuses the home directory.
    pub(crate) fn run(self, out: &mut CommandOutput) -> Result<u8, Failure> {
        let (dirs, root) = dirs_and_project(self.project.clone())?;
        if let Some(history) = self.from_trace.as_ref().filter(|_| !self.yes) {
            return from_trace::run(out, &dirs, &root, history);
        }
        if self.from_trace.is_none() {
            refuse_home(&dirs, &root)?;
        }
        let at_terminal = std::io::stdin().is_terminal();
        let asks = at_terminal && !(self.quick || self.yes || self.dry_run || self.json);
        let places = dirs.places(&root, &Disk::default());
        let found = match dirs.home.starts_with(&root) {
            // The home directory is no project: its files belong to many projects.
            true => DetectedProject { complete: true, ..DetectedProject::default() },
            false => ecosystems::detect(&root),
        };
        let library = PolicyLibrary::ask()?;
        let project = InitProject { dirs, root, places, found, library };
        if !self.json {
            print_found(out, &project)?;
        }
        let mut wanted = self.collect_choices(&project)?;
        if asks {
            let given = walkthrough::GivenAnswers {
                posture: self.posture.is_some(),
                toolchains: !self.ecosystem.is_empty(),
                agents: !self.agent.is_empty(),
            };
            walkthrough::ask(out, &project, &mut wanted, given)?;
        }
        wanted.hosts = LearnedHosts::find(&project, &wanted, self.project_hosts, self.all_hosts)?;
        let proposal = self.propose(&project, &wanted)?;
        if self.json {
            if self.dry_run || !self.yes {
                let said = as_json(&project, &wanted, &proposal, false, None);
                return unless_closed(out.json(&said));
            }
            let done = self.carry_out(out, &project, &wanted, proposal, false)?;
            return Ok(if done { exit::OK } else { exit::FAILED });
        }
        if !asks {
            out.line(format!("generating policy with: {}", wanted.described()))?;
            wanted.print_hosts(out)?;
            for import in &wanted.imports {
                let file = import.file.display();
                out.line(format!(
                    "with the permissions in {file} (`--no-import` leaves them out)"
                ))?;
            }
        }
        if asks || self.dry_run {
            if asks {
                wanted.print_hosts(out)?;
            }
            print_preview(out, &project, &proposal, self.dry_run)?;
            if self.dry_run {
                return Ok(exit::OK);
            }
        }
        match self.carry_out(out, &project, &wanted, proposal, asks)? {
            true => Ok(exit::OK),
            false => Ok(exit::FAILED),
        }
    }

    /// The choices from the command line, with the findings as defaults. Imports permissions
    /// from the agents' settings, unless told otherwise or for a project's policy. Fails for
    /// an unknown toolchain or agent.
    fn collect_choices(&self, project: &InitProject) -> Result<WantedPolicy, Failure> {
        let mut ecosystems = Vec::new();
        for name in &self.ecosystem {
            let known = ecosystems::find_ecosystem(name).ok_or_else(|| unknown_ecosystem(name))?;
            let detected = project.found.ecosystems.iter().find(|it| it.ecosystem == known);
            ecosystems
                .push(detected.cloned().unwrap_or_else(|| DetectedToolchain::asked_for(known)));
        }
        if self.ecosystem.is_empty() {
            ecosystems = project.found.ecosystems.clone();
        }
        let agents = match self.agent.as_slice() {
            // With `--from-trace`, clash wires only agents that the user names.
            [] if self.from_trace.is_some() => Vec::new(),
            [] => agents::found(),
            [none] if none == "none" => Vec::new(),
            named => named.to_vec(),
        };
        if let Some(unknown) = agents.iter().find(|name| !agents::is_known(name)) {
            return Err(Failure::new(format!("no agent `{unknown}` is known"))
                .hint(format!("known are {}", agents::names().join(", "))));
        }
        // The permissions of this user's agents do not count for other users.
        let imports = match self.no_import || self.of_project() {
            true => Vec::new(),
            false => import::import_users_settings(&project.dirs, &project.root)?,
        };
        let posture = self.posture.unwrap_or(Posture::Moderate);
        let replace = self.replace;
        Ok(WantedPolicy {
            posture,
            ecosystems,
            agents,
            imports,
            replace,
            anywhere: self.of_project(),
            hosts: LearnedHosts::default(),
            learned: self.learn_from_trace(project)?,
        })
    }

    /// True if the policy is for all users of the project.
    fn of_project(&self) -> bool {
        self.scope == "project"
    }

    /// The text of a policy from the history of `--from-trace`; `None` without that option.
    fn learn_from_trace(&self, project: &InitProject) -> Result<Option<String>, Failure> {
        let learn = |what: &String| from_trace::learn(&project.dirs, &project.root, what);
        let learned = self.from_trace.as_ref().map(learn).transpose()?;
        Ok(learned.map(|learned| learned.source))
    }

    /// Writes the new texts, in memory, and compiles them. Fails if they do not compile, or
    /// if a posture is given and a policy exists that is not to be replaced.
    fn propose(
        &self,
        project: &InitProject,
        wanted: &WantedPolicy,
    ) -> Result<PolicyProposal, Failure> {
        let file = project.policy_file(wanted)?;
        let before = read(&file)?;
        if let (Some(posture), Some(_), false) = (self.posture, &before, wanted.replace) {
            // A merge adds toolchains in the posture of the existing policy.
            let posture = posture.word();
            return Err(Failure::new(format!(
                "nothing was changed: there is a policy already, {}, and its posture stays",
                file.display()
            ))
            .hint(format!(
                "`{}` shows a new policy, writes it after a yes and keeps the old one beside it",
                Remedy::InitReplace { posture: posture.to_owned() }
            )));
        }
        let toolchains = project.collect_rules(wanted)?;
        let text = |toolchains: &[ToolchainRules]| match &wanted.learned {
            Some(text) => Ok::<_, Failure>(text.clone()),
            None => Ok(draft::draft(&wanted.choices(), &project.library, toolchains)?.text()?),
        };
        let (how, text) = match &before {
            None => (PlacementAction::Create, text(&toolchains)?),
            Some(_) if wanted.replace || wanted.learned.is_some() => {
                (PlacementAction::Replace, text(&toolchains)?)
            }
            Some(before) => {
                let (before, _) = wanted.hosts.refresh(before)?;
                (PlacementAction::Merge, place::merged(&before, &toolchains)?.0)
            }
        };
        let mut policies = vec![(file.clone(), text)];
        let mut changes =
            import::plan_modules(&wanted.imports, &project.dirs, &project.root, &mut policies)?;
        for (file, text) in policies {
            changes.push(FileChange::replace(&file, text)?);
        }
        let mut files = PolicyFiles::single(&file);
        for change in &changes {
            files = files.with_text(&change.file, change.after.as_deref().unwrap_or_default());
        }
        let (policy, CompileReport { mistakes, warnings, .. }) = files.check()?;
        let Some(policy) = policy else {
            let first = mistakes.into_iter().next().map(|it| it.text).unwrap_or_default();
            return Err(Failure::new(format!(
                "nothing was written, because then the policy does not compile: {first}"
            )));
        };
        changes.retain(|change| !change.is_none());
        Ok(PolicyProposal { file, how, changes, policy, warnings })
    }

    /// True if the user agrees to the change, by an option or by an answer. A new policy
    /// needs no agreement unless clash asks questions; without a terminal, an existing policy
    /// is not changed.
    fn is_agreed(
        &self,
        out: &mut CommandOutput,
        proposal: &PolicyProposal,
        asks: bool,
    ) -> Result<bool, Failure> {
        Ok(match proposal.how {
            _ if proposal.changes.is_empty() || self.yes => true,
            _ if asks => walkthrough::may_write(out, proposal)?,
            PlacementAction::Create => true,
            PlacementAction::Merge | PlacementAction::Replace
                if !self.json && std::io::stdin().is_terminal() =>
            {
                print_changes(out, proposal)?;
                confirm("Make this change?")?
            }
            PlacementAction::Merge | PlacementAction::Replace => {
                if !self.json {
                    print_changes(out, proposal)?;
                }
                false
            }
        })
    }

    /// Makes the proposed changes, keeps a replaced policy beside the new one, and wires the
    /// agents. Returns `false`, or fails, if the user has to agree first.
    fn carry_out(
        &self,
        out: &mut CommandOutput,
        project: &InitProject,
        wanted: &WantedPolicy,
        proposal: PolicyProposal,
        asks: bool,
    ) -> Result<bool, Failure> {
        let nothing = proposal.changes.is_empty();
        let agreed = self.is_agreed(out, &proposal, asks)?;
        let kept = match (agreed, proposal.how) {
            (true, PlacementAction::Replace) if !nothing => {
                Some(place::keep(&proposal.file, &read(&proposal.file)?.unwrap_or_default())?)
            }
            _ => None,
        };
        if self.json {
            out.json(&as_json(project, wanted, &proposal, agreed, kept.as_deref()))?;
        }
        if !agreed {
            let file = proposal.file.display();
            return match (self.json, proposal.how) {
                (true, _) => Ok(false),
                (false, _) if asks => Err(Failure::new(format!("{file} was not written"))),
                (false, PlacementAction::Create) => {
                    Err(Failure::new(format!("{file} was not written")))
                }
                (false, PlacementAction::Merge | PlacementAction::Replace) => Err(Failure::new(
                    format!("nothing was changed: there is a policy already, {file}"),
                )
                .hint("`--yes` makes the change shown above; `--replace --yes` starts anew")),
            };
        }
        let file = proposal.file;
        if !nothing {
            make_all(&project.dirs, proposal.changes)?;
        }
        if !self.json {
            out.line(match (nothing, proposal.how) {
                (true, _) => format!("{} says all of this already", file.display()),
                (false, PlacementAction::Merge) => format!("changed {}", file.display()),
                (false, _) => format!("wrote {}", file.display()),
            })?;
            if let Some(kept) = &kept {
                out.line(format!("the old one is kept as {}", kept.display()))?;
            }
        }
        for agent in &wanted.agents {
            match self.json {
                true => agents::wire(agent, self.yes, asks, &mut CommandOutput::silent())?,
                false => agents::wire(agent, self.yes, asks, out)?,
            }
        }
        if !self.json {
            let (show, undo) = (Remedy::PolicyShow, Remedy::PolicyUndo);
            out.line(format!("`{show}` shows what holds, `{undo}` takes it back."))?;
            if wanted.agents.is_empty() && !agents::is_any_wired(&project.dirs) {
                let install = Remedy::Install { agent: clash_agents::DEFAULT_AGENT.to_owned() };
                out.line(format!("No agent is wired yet: `{install}` wires one."))?;
            }
            if self.of_project() && !trusts_project(&project.dirs, &project.root)? {
                let trust = Remedy::Trust;
                out.line(format!("the project's policy is not trusted: `{trust}` makes it count"))?;
            }
        }
        Ok(true)
    }
}

/// The properties of the policy to write.
struct WantedPolicy {
    posture: Posture,
    ecosystems: Vec<DetectedToolchain>,
    agents: Vec<String>,
    imports: Vec<ImportedFile>,
    replace: bool,
    /// True for the project's own policy, which must name no path of this machine.
    anywhere: bool,
    hosts: LearnedHosts,
    /// The text of a policy made from a history; `None` for one made from the findings.
    learned: Option<String>,
}

impl WantedPolicy {
    /// For example `rust, git (moderate)`.
    fn described(&self) -> String {
        let names: Vec<&str> = self.ecosystems.iter().map(|it| it.ecosystem.name).collect();
        match (&self.learned, names.as_slice()) {
            (Some(_), _) => "what agents did".to_owned(),
            (None, []) => format!("no toolchain ({})", self.posture.word()),
            (None, names) => format!("{} ({})", names.join(", "), self.posture.word()),
        }
    }

    fn choices(&self) -> PolicyChoices {
        let Self { posture, ecosystems, hosts, .. } = self;
        PolicyChoices { posture: *posture, ecosystems: ecosystems.clone(), hosts: hosts.clone() }
    }

    /// Says which hosts the toolchains reach. Says nothing of a policy from a history.
    fn print_hosts(&self, out: &mut CommandOutput) -> std::io::Result<()> {
        let names: Vec<&str> = self.ecosystems.iter().map(|it| it.ecosystem.name).collect();
        self.hosts.print(out, &names)
    }
}

impl InitProject {
    /// The path of the policy to write: the project's own, or the user's.
    fn policy_file(&self, wanted: &WantedPolicy) -> Result<PathBuf, Failure> {
        match wanted.anywhere {
            true => place::project_policy(&self.dirs, &self.root),
            false => Ok(place::user_policy(&self.dirs)),
        }
    }

    /// The rules for the wanted toolchains. Compiles their presets first, because only the
    /// compiler knows their grants. Looks at the search path and the environment for files
    /// that this machine keeps elsewhere.
    fn collect_rules(&self, wanted: &WantedPolicy) -> Result<Vec<ToolchainRules>, Failure> {
        let choices = wanted.choices();
        let loads = |it: &DetectedToolchain| {
            let name = it.ecosystem.name;
            load_line(&format!("@clash//{name}.star"), &[&format!("{name}_safe")]) + "\n"
        };
        let text: String = wanted.ecosystems.iter().map(loads).collect();
        let file = place::user_policy(&self.dirs);
        let presets = PolicyFiles::single(&file).with_text(&file, &text).compile()?;
        let path = std::env::var_os("PATH").unwrap_or_default();
        let search: Vec<PathBuf> = std::env::split_paths(&path).collect();
        let needs = |detected: &DetectedToolchain, sandbox: &str| {
            let granted = draft::sandbox(&presets, sandbox);
            granted.map_or_else(Vec::new, |granted| {
                let said = |name: &str| env::path(name);
                ecosystems::find_outside_paths(
                    detected.ecosystem,
                    &granted,
                    &self.places,
                    &said,
                    &search,
                )
            })
        };
        let has = |program: &str| search.iter().any(|dir| dir.join(program).is_file());
        let machine = MachineFacts { places: &self.places, needs: &needs, has: &has };
        let mut toolchains = draft::toolchain_rules(&choices, &self.library, &machine)?;
        if wanted.anywhere {
            toolchains.iter_mut().for_each(ToolchainRules::drop_machine_sandboxes);
        }
        Ok(toolchains)
    }
}

fn unknown_ecosystem(name: &str) -> Failure {
    let known: Vec<&str> = ECOSYSTEMS.iter().map(|it| it.name).collect();
    Failure::new(format!("no toolchain `{name}` is known"))
        .hint(format!("known are {}", known.join(", ")))
}

/// Prints the detected toolchains, and whether the search was cut short.
fn print_found(out: &mut CommandOutput, project: &InitProject) -> std::io::Result<()> {
    out.line("detecting ecosystems...")?;
    for detected in &project.found.ecosystems {
        let name = out.tone(TextTone::Strong, detected.ecosystem.name);
        out.line(format!("found: {name} ({})", detected.why()))?;
    }
    if project.found.ecosystems.is_empty() {
        out.line("found nothing that shows a toolchain")?;
    }
    if !project.found.complete {
        let entries = project.found.entries;
        out.line(format!(
            "the project is large: only the {entries} names nearest to its root were looked at"
        ))?;
    }
    Ok(())
}

/// Fails for the home directory and those above it. Agents may do nothing in a directory
/// with clash's own files, so a policy for it would only refuse.
fn refuse_home(dirs: &Dirs, root: &Path) -> Result<(), Failure> {
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    if !real(&dirs.home).starts_with(real(root)) {
        return Ok(());
    }
    let place =
        if real(&dirs.home) == real(root) { "your home" } else { "a directory around your home" };
    Err(Failure::new(format!(
        "{} is {place} and no project: agents could reach clash's own files there, so every \
         action is refused. Nothing was changed",
        root.display()
    ))
    .hint(format!("`cd` into a project and run `{}` there", Remedy::Init)))
}

/// The fields of `--json`: the findings, the choices, and the policy with its changes.
/// `written` says whether the user agreed; `kept` is the copy of the file from before.
fn as_json(
    project: &InitProject,
    wanted: &WantedPolicy,
    proposal: &PolicyProposal,
    written: bool,
    kept: Option<&Path>,
) -> Value {
    let found = |it: &DetectedToolchain| {
        let in_ci =
            it.in_ci.as_ref().map(|(file, program)| json!({"file": file, "program": program}));
        json!({"ecosystem": it.ecosystem.name, "files": it.files, "ci": in_ci})
    };
    let host = |it: &ecosystems::FetchHost| {
        let (by, allowed) = (it.origin.word(), wanted.hosts.is_allowed(it));
        json!({"ecosystem": it.ecosystem, "host": it.name, "file": it.file, "by": by, "allowed": allowed})
    };
    let change = |it: &FileChange| json!({"file": it.file, "text": it.after});
    let imports: Vec<&PathBuf> = wanted.imports.iter().map(|it| &it.file).collect();
    let warnings: Vec<&String> = proposal.warnings.iter().map(|it| &it.text).collect();
    json!({
        "project": project.root,
        "found": project.found.ecosystems.iter().map(found).collect::<Vec<_>>(),
        "complete": project.found.complete,
        "ecosystems": wanted.ecosystems.iter().map(|it| it.ecosystem.name).collect::<Vec<_>>(),
        "hosts": wanted.hosts.all().iter().map(host).collect::<Vec<_>>(),
        "posture": wanted.posture.word(),
        "agents": wanted.agents,
        "imports": imports,
        "policy": {
            "file": proposal.file,
            "action": if proposal.changes.is_empty() { "none" } else { proposal.how.word() },
            "written": written && !proposal.changes.is_empty(),
            "kept": kept,
            "changes": proposal.changes.iter().map(change).collect::<Vec<_>>(),
            "warnings": warnings,
        },
    })
}
