//! A refused access, as facts. The sentences for the user, the model and the trace are made
//! from it, so that all of them say the same.

use std::path::Path;

use clash_policy::protect;
use clash_policy::{Effect, FileCaps, FsRule, NetworkAccess, Sandbox, WriteTarget};

use crate::remedy::Remedy;
use crate::trace::{BlockEvidence, BlockKind, BlockedAccess, RefusingPart, TraceRecord};

/// A refused access.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BlockFacts {
    pub(crate) kind: BlockKind,
    /// The path, with `~` for the home, or the host, command or limit.
    pub(crate) what: String,
    /// The rights that are missing, in words, for example `read`.
    pub(crate) needs: String,
    pub(crate) sandbox: String,
    /// The rule that refuses it, or the sandbox, as `file:line`.
    pub(crate) rule: String,
    /// Why it is refused, after the subject and the verb, for example
    /// `no rule of the sandbox grants it`.
    pub(crate) why: String,
    /// The nearest rights that the sandbox does grant.
    pub(crate) nearby: String,
    /// The command with which the user grants it; `None` if no command can.
    pub(crate) grant: Option<String>,
    /// The command with which the agent asks for it, without the command itself.
    pub(crate) request: Option<String>,
    /// True if a rule of the sandbox denies it. No request can lift that.
    pub(crate) is_by_rule: bool,
}

impl BlockFacts {
    /// The event in one sentence: the same before and after it happens.
    pub(crate) fn sentence(&self) -> String {
        let Self { what, needs, sandbox, rule, why, .. } = self;
        match self.kind {
            BlockKind::Host => format!("sandbox {sandbox} does not reach `{what}`: {why} ({rule})"),
            BlockKind::Command => format!("`{what}` is denied: {why} ({rule})"),
            BlockKind::Limit => format!("sandbox {sandbox} stopped at a limit: {why} ({rule})"),
            BlockKind::Link => format!("sandbox {sandbox} does not make the link `{what}`: {why}"),
            _ => format!("sandbox {sandbox} does not {needs} `{what}`: {why} ({rule})"),
        }
    }

    /// The facts of a record, as far as the trace has them.
    pub(crate) fn of_record(record: &TraceRecord, sandbox: &Sandbox) -> Option<Self> {
        let block = record.block.as_ref()?;
        let needs = block.needs.clone().unwrap_or_default();
        let rule = record.rule.clone().unwrap_or_default();
        let sentence = record.reason.clone().unwrap_or_default();
        // The sentence of the record is `…: why (rule)`.
        let why = sentence.rsplit_once(": ").map_or(sentence.as_str(), |(_, why)| why);
        let why = why.strip_suffix(&format!(" ({rule})")).unwrap_or(why).to_owned();
        let changes = needs == "change";
        let option = if changes { "--write" } else { "--read" };
        let is_file = matches!(block.kind, BlockKind::File | BlockKind::Persistence);
        let request = block.grant.as_ref().filter(|_| is_file);
        let request =
            request.map(|_| Remedy::Request { option, what: block.what.clone() }.to_string());
        Some(Self {
            kind: block.kind,
            what: block.what.clone(),
            nearby: if is_file { nearby(sandbox, changes) } else { String::new() },
            needs,
            sandbox: record.sandbox.clone().unwrap_or_default(),
            rule,
            why,
            grant: block.grant.clone(),
            request,
            is_by_rule: false,
        })
    }

    /// A record of the trace about this block.
    pub(crate) fn record(
        &self,
        record: TraceRecord,
        by: RefusingPart,
        known: BlockEvidence,
    ) -> TraceRecord {
        let needs = Some(self.needs.clone()).filter(|needs| !needs.is_empty());
        TraceRecord {
            sandbox: Some(self.sandbox.clone()),
            rule: Some(self.rule.clone()),
            reason: Some(self.sentence()),
            block: Some(BlockedAccess {
                kind: self.kind,
                what: self.what.clone(),
                needs,
                by,
                known,
                program: None,
                grant: self.grant.clone(),
            }),
            ..record
        }
    }
}

/// The facts about a file that a sandbox blocks: whether a protection, a deny rule or the
/// lack of a grant is the cause, and the commands that would grant or request it. No such
/// command for a file that only the user may change.
pub(crate) fn file_block(
    sandbox: &Sandbox,
    path: &Path,
    needs: FileCaps,
    project: &Path,
    home: &Path,
) -> BlockFacts {
    let changes = needs.intersects(FileCaps::CHANGE);
    let shown = shorten(path, home);
    let below = path.strip_prefix(project).ok();
    let kept = below.filter(|_| changes).and_then(|below| {
        [FileCaps::WRITE, FileCaps::CREATE, FileCaps::DELETE]
            .into_iter()
            .find_map(|caps| protect::kept(&sandbox.protect, below, 0, caps))
    });
    let is_file_right = needs.intersects(FileCaps::EXECUTE) && !changes;
    let (verb, letters) = match (changes, is_file_right) {
        (true, _) => ("change", "rw"),
        (false, true) => ("execute", "rx"),
        (false, false) => ("read", "r"),
    };
    let name = &sandbox.name;
    let option = if changes { "--write" } else { "--read" };
    let mut facts = BlockFacts {
        kind: BlockKind::File,
        what: shown.clone(),
        needs: verb.to_owned(),
        sandbox: name.clone(),
        rule: sandbox.span.to_string(),
        why: "none of its rules grants it".to_owned(),
        nearby: nearby(sandbox, changes),
        grant: Some(
            Remedy::SandboxAllow { sandbox: name.clone(), right: letters, what: shown.clone() }
                .to_string(),
        ),
        request: Some(Remedy::Request { option, what: shown }.to_string()),
        is_by_rule: false,
    };
    if let Some(kept) = kept {
        facts.kind = BlockKind::Persistence;
        facts.why = format!("{}, and no command may change it", kept.why);
        if kept.caged {
            facts.why = format!("{}, and only you may change it", kept.why);
            facts.grant = None;
            facts.request = None;
        }
    } else if let Some(rule) = denying_rule(sandbox, path, needs, project, home) {
        facts.rule = rule.span.to_string();
        facts.why = format!("the rule {} denies it", rule.pattern);
        facts.is_by_rule = true;
        facts.request = None;
    }
    facts
}

/// The block of a file whose secrets a command needed: it saw a masked copy, and the server
/// asked for a password.
pub(crate) fn mask_block(sandbox: &Sandbox, rule: &FsRule, path: &Path, home: &Path) -> BlockFacts {
    let what = shorten(path, home);
    let grant =
        Remedy::SandboxAllow { sandbox: sandbox.name.clone(), right: "r", what: what.clone() };
    BlockFacts {
        kind: BlockKind::File,
        needs: "read".to_owned(),
        sandbox: sandbox.name.clone(),
        rule: rule.span.to_string(),
        why: "commands read a copy without tokens and passwords, and a server asked for them"
            .to_owned(),
        nearby: String::new(),
        grant: Some(grant.to_string()),
        request: Some(Remedy::Request { option: "--read", what: what.clone() }.to_string()),
        is_by_rule: false,
        what,
    }
}

/// The rule of the sandbox that denies a path by its pattern.
fn denying_rule<'a>(
    sandbox: &'a Sandbox,
    path: &Path,
    needs: FileCaps,
    project: &Path,
    home: &Path,
) -> Option<&'a FsRule> {
    let expand = |text: &str| {
        text.replace("$PWD", &project.to_string_lossy()).replace("$HOME", &home.to_string_lossy())
    };
    let denies = sandbox.fs.iter().filter(|rule| {
        rule.effect == Effect::Deny
            && rule.writes != WriteTarget::Masked
            && rule.caps.intersects(needs)
            && path.starts_with(expand(rule.pattern.fixed()))
    });
    denies.max_by_key(|rule| rule.pattern.fixed().len())
}

/// The first four paths that the sandbox's rules let commands read or change, for a message.
fn nearby(sandbox: &Sandbox, changes: bool) -> String {
    const MAX_SHOWN: usize = 4;
    let right = if changes { FileCaps::WRITE } else { FileCaps::READ };
    let granted =
        sandbox.fs.iter().filter(|rule| rule.effect == Effect::Allow && rule.caps.contains(right));
    let mut shown: Vec<String> = granted.map(|rule| rule.pattern.to_string()).collect();
    shown.dedup();
    let more = shown.len().saturating_sub(MAX_SHOWN);
    shown.truncate(MAX_SHOWN);
    let verb = if changes { "change" } else { "read" };
    match (shown.is_empty(), more) {
        (true, _) => format!("it may {verb} nothing of yours"),
        (false, 0) => format!("it may {verb} {}", shown.join(", ")),
        (false, more) => format!("it may {verb} {} and {more} more", shown.join(", ")),
    }
}

/// The facts about a host that a sandbox blocks, with up to six hosts that it reaches. An
/// empty host stands for the whole network, which has no command to grant it.
pub(crate) fn host_block(sandbox: &Sandbox, host: &str) -> BlockFacts {
    let name = &sandbox.name;
    let (why, nearby) = match &sandbox.net {
        NetworkAccess::Deny => ("it has no network", String::new()),
        NetworkAccess::Ask => ("every new host needs your approval", String::new()),
        NetworkAccess::Allow => ("another rule refuses it", String::new()),
        NetworkAccess::Hosts { rules, .. } => {
            let granted = rules.iter().filter(|rule| rule.effect == Effect::Allow);
            let mut names: Vec<String> = granted.map(|rule| rule.host.to_string()).collect();
            names.dedup();
            names.truncate(6);
            ("none of its rules grants it", format!("it reaches {}", names.join(", ")))
        }
    };
    let known = !host.is_empty();
    let what = || host.to_owned();
    let grant = || Remedy::SandboxAllow { sandbox: name.clone(), right: "host", what: what() };
    let request = || Remedy::Request { option: "--host", what: what() };
    BlockFacts {
        kind: BlockKind::Host,
        what: if known { host.to_owned() } else { "the network".to_owned() },
        needs: String::new(),
        sandbox: name.clone(),
        rule: sandbox.span.to_string(),
        why: why.to_owned(),
        nearby,
        grant: known.then(|| grant().to_string()),
        request: known.then(|| request().to_string()),
        is_by_rule: false,
    }
}

/// The path with `~` for the home.
pub(crate) fn shorten(path: &Path, home: &Path) -> String {
    match path.strip_prefix(home) {
        Ok(below) if below.as_os_str().is_empty() => "~".to_owned(),
        Ok(below) => format!("~/{}", below.display()),
        Err(_) => path.display().to_string(),
    }
}
