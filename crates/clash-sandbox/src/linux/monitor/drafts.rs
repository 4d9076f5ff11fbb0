//! Activation scripts that a program writes again, for example a second `python3 -m venv`.
//!
//! No command changes an activation script, because the user's shell runs it later. But
//! `venv` writes the same text again. So it gets a *draft*: a file without a name. The
//! script itself is never written. If the draft has the text of the script, nothing is
//! lost. Otherwise the next `chmod` of the script fails, as `venv` calls it. A command that
//! ends with status 0 nevertheless fails at its end ([`LaunchError::KeptScript`]).
//!
//! Only programs that open with `O_CLOEXEC` get a draft. A shell's redirection, `cp` and
//! `tee` do not, so they see the refusal at once.
//!
//! [`LaunchError::KeptScript`]: crate::launch::LaunchError::KeptScript

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use clash_policy::FileCaps;
use clash_policy::protect::KeepMode;
use rustix::fs::{CWD, FileType, Mode, OFlags, Stat, openat};

use super::act::{MonitorWorker, identity, itself};
use super::open::OpenRequest;
use super::place::real;

/// Drafts of one command. Beyond this number the monitor refuses.
const MAX_DRAFTS: usize = 64;
/// Activation scripts are far smaller.
const MAX_SCRIPT_BYTES: usize = 1 << 20;

/// The drafts of one command. The launcher looks at them when the command has ended.
#[derive(Clone, Debug, Default)]
pub(crate) struct ScriptDrafts(Arc<Mutex<Vec<ScriptDraft>>>);

#[derive(Debug)]
struct ScriptDraft {
    path: PathBuf,
    inode: (u64, u64),
    script: File,
    draft: File,
    /// The command has seen the refusal.
    refused: bool,
}

impl ScriptDraft {
    /// True if the draft has another text than the script, or if the script cannot be read.
    fn differs(&self) -> bool {
        let [script, draft] = [&self.script, &self.draft].map(text_of);
        script.is_none() || script != draft
    }
}

impl ScriptDrafts {
    /// A script that the command wanted to change without seeing the refusal.
    pub(crate) fn unseen(&self) -> Option<PathBuf> {
        let drafts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let unseen = |draft: &&ScriptDraft| !draft.refused && draft.differs();
        drafts.iter().find(unseen).map(|draft| draft.path.clone())
    }

    /// True if every draft of a script has the script's own text. The caller refuses the
    /// call otherwise.
    fn agree(&self, inode: (u64, u64)) -> bool {
        let mut drafts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut agree = true;
        for draft in drafts.iter_mut().filter(|draft| draft.inode == inode) {
            draft.refused |= draft.differs();
            agree &= !draft.refused;
        }
        agree
    }

    /// Keeps a draft. False if there are [`MAX_DRAFTS`] already.
    fn add(&self, draft: ScriptDraft) -> bool {
        let mut drafts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = drafts.len() < MAX_DRAFTS;
        if fits {
            drafts.push(draft);
        }
        fits
    }
}

impl MonitorWorker {
    /// A draft for a program that opens an activation script to write all of it: a file
    /// without a name in the script's directory, noted with the script. `None` for every
    /// other open, for a large script, and if no draft can be made.
    pub(super) fn draft_of_script(
        &self,
        path: &Path,
        object: &OwnedFd,
        meta: &Stat,
        request: &OpenRequest,
    ) -> Option<OwnedFd> {
        let small = usize::try_from(meta.st_size).is_ok_and(|size| size <= MAX_SCRIPT_BYTES);
        if !request.writes_anew()
            || FileType::from_raw_mode(meta.st_mode) != FileType::RegularFile
            || !small
            || !self.is_script(path)
        {
            return None;
        }
        let again = |file: &OwnedFd| {
            let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
            openat(&self.shared.held, itself(file), flags, Mode::empty()).ok().map(File::from)
        };
        // With `O_EXCL` the kernel gives the file no name later.
        let flags = OFlags::WRONLY | OFlags::TMPFILE | OFlags::EXCL | OFlags::CLOEXEC;
        let made = openat(CWD, path.parent()?, flags, Mode::from_raw_mode(0o600)).ok()?;
        let draft = ScriptDraft {
            path: path.to_path_buf(),
            inode: identity(meta),
            script: again(object)?,
            draft: again(&made)?,
            refused: false,
        };
        self.drafts.add(draft).then_some(made)
    }

    /// True if a change of mode leaves an activation script as it is.
    pub(super) fn leaves_script(&self, object: &OwnedFd, meta: &Stat, mode: u32) -> bool {
        let path = real(&self.shared.held, object).ok().flatten();
        meta.st_mode & 0o7777 == mode
            && path.is_some_and(|path| self.is_script(&path))
            && self.drafts.agree(identity(meta))
    }

    /// True if the rules permit to write the path, and the list of persistence paths keeps it
    /// only with its directory.
    fn is_script(&self, path: &Path) -> bool {
        let rights = &self.watch.rights;
        rights.permits(path, FileCaps::WRITE)
            && rights.kept(path, FileCaps::WRITE, &self.links) == Some(KeepMode::WithDirectory)
    }
}

/// The content of a small file.
fn text_of(file: &File) -> Option<Vec<u8>> {
    let mut text = vec![0; MAX_SCRIPT_BYTES + 1];
    let mut length = 0;
    loop {
        let rest = text.get_mut(length..).filter(|rest| !rest.is_empty())?;
        match file.read_at(rest, length as u64) {
            Ok(0) => break,
            Ok(read) => length += read,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => return None,
        }
    }
    text.truncate(length);
    Some(text)
}
