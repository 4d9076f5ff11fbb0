//! The meaning of `masked()` on this host: a copy of a settings file without its secrets.
//!
//! The rule itself denies the file, in every part of a plan. The planner reads the file once
//! and masks it ([`clash_policy::mask`]). The command sees the copy in the file's place: as
//! a mount in a room, and as the answer of the monitor to an `open` for reading. A later
//! change of the file does not reach the command. No copy is on a disk.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clash_policy::mask::{MAX_MASKED_BYTES, MaskError, MaskSyntax, mask};
use clash_policy::{Effect, FileCaps, FsRule, WriteTarget};
use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, fstat, openat2};

use super::rules::{FoundPath, ResolvedRule};
use crate::facts::{Facility, HostFacts, RoomSupport};
use crate::plan::report::{PlanReport, ReportLine};
use crate::plan::rights::SandboxRights;

/// The masked copies of a plan, by the real paths of their files.
pub type MaskedFiles = BTreeMap<PathBuf, Arc<[u8]>>;

/// The reason why a file has no masked copy.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MaskedFileError {
    #[error("it cannot be read: {0}")]
    Io(#[from] io::Error),
    #[error("it is no regular file")]
    Irregular,
    #[error(transparent)]
    Text(#[from] MaskError),
}

/// True if commands see a copy of this rule's file.
pub(crate) fn is_masked(rule: &FsRule) -> bool {
    rule.writes == WriteTarget::Masked
}

/// True if the plan has masked copies, which need a room or the monitor. On a host without
/// either the files stay denied.
pub(super) fn need_mechanism(rules: &[ResolvedRule<'_>], host: &HostFacts) -> bool {
    let can = !matches!(host.rooms, RoomSupport::Impossible { .. })
        || !matches!(host.notify, Facility::Missing { .. });
    can && rules.iter().any(|rule| is_masked(rule.rule) && rule.found == FoundPath::Other)
}

/// The copies of all masked files of a sandbox. A file that cannot be masked has none, and
/// neither has a file that another rule denies by the same path or more closely.
pub(super) fn read_masked_files(
    rules: &[ResolvedRule<'_>],
    rights: &SandboxRights,
    report: &mut PlanReport,
) -> MaskedFiles {
    let mut files = MaskedFiles::new();
    for rule in rules.iter().filter(|rule| is_masked(rule.rule)) {
        if rule.found != FoundPath::Other || files.contains_key(&rule.real) {
            continue;
        }
        if !is_decided_by_masks(rules, rights, &rule.real) {
            report.say(|| {
                ReportLine::new(rule.text(), ReportLine::NOTHING, "another rule denies the file")
            });
            continue;
        }
        let syntax = MaskSyntax::of_path(rule.rule.pattern.fixed());
        match syntax.map(|syntax| copy_without_secrets(&rule.real, syntax)) {
            Some(Ok(text)) => {
                let why = "a copy in which tokens and passwords are replaced; the file is denied";
                report.say(|| ReportLine::new(rule.text(), "copy", why));
                files.insert(rule.real.clone(), text.into());
            }
            Some(Err(error)) => {
                let why = format!("no copy of the file, which is denied: {error}");
                report.say(|| ReportLine::new(rule.text(), ReportLine::NOTHING, why));
            }
            None => {}
        }
    }
    files
}

/// True if the rule that decides about reading a path is a mask, and no other rule with this
/// path denies it.
fn is_decided_by_masks(rules: &[ResolvedRule<'_>], rights: &SandboxRights, path: &Path) -> bool {
    let denies = |rule: &&ResolvedRule<'_>| {
        rule.real == path
            && rule.rule.effect != Effect::Allow
            && !is_masked(rule.rule)
            && rule.rule.caps.contains(FileCaps::READ)
    };
    let decides = rights.deciding_rule(path, FileCaps::READ);
    decides.is_some_and(is_masked) && !rules.iter().any(|rule| denies(&rule))
}

/// The masked text of the regular file at a path without links.
pub(crate) fn copy_without_secrets(
    path: &Path,
    syntax: MaskSyntax,
) -> Result<Vec<u8>, MaskedFileError> {
    // A fifo in the file's place must not make the launcher wait.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let ways = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let file = openat2(CWD, path, flags, Mode::empty(), ways).map_err(io::Error::from)?;
    let meta = fstat(&file).map_err(io::Error::from)?;
    if FileType::from_raw_mode(meta.st_mode) != FileType::RegularFile {
        return Err(MaskedFileError::Irregular);
    }
    let mut text = Vec::new();
    let most = u64::try_from(MAX_MASKED_BYTES).unwrap_or(u64::MAX);
    io::Read::read_to_end(&mut io::Read::take(std::fs::File::from(file), most + 1), &mut text)?;
    Ok(mask(syntax, &text)?)
}
