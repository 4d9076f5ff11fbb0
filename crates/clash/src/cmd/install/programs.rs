//! The copies of clash that agents call.

use std::fs;
use std::io;
use std::path::Path;

use super::{cannot_write, remove_if_there};
use crate::compiler::REINSTALL_HINT;
use crate::dirs::{Dirs, create_private};
use crate::ui::Failure;

/// The programs that agents call. They are beside the running one.
const PROGRAMS: [&str; 3] = ["clash", "clash-compile", "clash-door"];

/// Copies clash, its compiler and the door program to a directory that no sandbox can change,
/// and links the shell launchers to it. For example, a build that may write cargo's `bin`
/// directory must not replace the program that confines it. A shell prefix is one path
/// without arguments, so it is clash under another name.
pub(super) fn place_programs(dirs: &Dirs) -> Result<(), Failure> {
    let own = std::env::current_exe()?;
    let link = dirs.for_agents().shell_launcher();
    let dir = link.parent().unwrap_or(&dirs.state);
    make_dir(dirs, dir).map_err(|error| cannot_write(dir, &error))?;
    for name in PROGRAMS {
        let (from, to) = (own.with_file_name(name), dirs.installed(name));
        if (from == to && to.exists()) || same_content(&from, &to) {
            continue;
        }
        let temp = to.with_extension(std::process::id().to_string());
        fs::copy(&from, &temp).map_err(|error| {
            Failure::new(format!("cannot copy {} to {}: {error}", from.display(), temp.display()))
                .hint(REINSTALL_HINT)
        })?;
        fs::rename(&temp, &to)?;
    }
    for link in [link, dirs.for_agents().agents_shell()] {
        if !fs::read_link(&link).is_ok_and(|target| target == Path::new("clash")) {
            let temp = link.with_extension(std::process::id().to_string());
            std::os::unix::fs::symlink("clash", &temp)?;
            fs::rename(&temp, &link)?;
        }
    }
    Ok(())
}

/// Makes a directory. All users can read the one for the whole machine.
fn make_dir(dirs: &Dirs, dir: &Path) -> io::Result<()> {
    let for_everybody = Dirs::from_env().is_ok_and(|own| own.state != dirs.state);
    if for_everybody { fs::create_dir_all(dir) } else { create_private(dir) }
}

/// True if all installed copies equal the programs beside the running one.
pub(in crate::cmd) fn is_current(dirs: &Dirs) -> bool {
    let own = std::env::current_exe().unwrap_or_default();
    PROGRAMS.iter().all(|name| {
        let (from, to) = (own.with_file_name(name), dirs.installed(name));
        from == to || same_content(&from, &to)
    })
}

/// True if both files can be read and have the same bytes.
fn same_content(a: &Path, b: &Path) -> bool {
    let length = |path| fs::metadata(path).map(|meta| meta.len()).ok();
    length(a).is_some() && length(a) == length(b) && fs::read(a).ok() == fs::read(b).ok()
}

/// Removes the installed programs and links. Sessions that still run with the old settings
/// then fail closed.
pub(super) fn remove_programs(dirs: &Dirs) -> Result<(), Failure> {
    for name in PROGRAMS.into_iter().chain(["clash-sh", "clash-shell"]) {
        remove_if_there(&dirs.installed(name))?;
    }
    Ok(())
}
