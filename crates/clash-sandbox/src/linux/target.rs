//! The program and the arguments of `execve`.

use std::ffi::{CString, OsStr, OsString};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::Arc;

use super::sys::{self, CStringArray};
use crate::launch::command::LaunchCommand;
use crate::launch::error::LaunchError;

/// The files to try, the arguments and the environment. All memory is allocated at
/// construction, so that afterwards only `execve` itself can fail.
#[derive(Debug)]
pub(crate) struct ExecTarget {
    program: OsString,
    candidates: Vec<CString>,
    file: Option<Arc<OwnedFd>>,
    args: CStringArray,
    env: CStringArray,
}

impl ExecTarget {
    /// The program with its arguments and environment as C strings. Behind a door, argument 0
    /// is the name under which the door was started. Fails if a text contains a NUL byte.
    pub(crate) fn new(command: &LaunchCommand) -> Result<Self, LaunchError> {
        let name = command.door.as_ref().map_or(&command.program, |door| &door.name);
        let args = std::iter::once(name).chain(&command.args);
        let args = args.map(|arg| c_string(arg.clone())).collect::<Result<_, _>>()?;
        let env = command.env.iter().map(|(name, value)| {
            let mut pair = OsString::with_capacity(name.len() + value.len() + 1);
            pair.push(name);
            pair.push("=");
            pair.push(value);
            c_string(pair)
        });
        Ok(Self {
            program: command.program.clone(),
            candidates: candidates(command)?,
            file: command.file.clone(),
            args: CStringArray::new(args),
            env: CStringArray::new(env.collect::<Result<_, _>>()?),
        })
    }

    /// Becomes the command; returns only on failure. An open file is executed as it is.
    /// Otherwise tries each candidate as `execvp` does: a missing one is skipped, and one
    /// that may not be executed is reported if no other works.
    pub(crate) fn execute(&self) -> LaunchError {
        let mut refused = None;
        if let Some(file) = &self.file {
            let mut source = sys::execute_file(file.as_fd(), &self.args, &self.env);
            // The interpreter of a script opens the file by its descriptor.
            if source.raw_os_error() == Some(libc::ENOENT) {
                sys::keep_across_exec(file.as_raw_fd());
                source = sys::execute_file(file.as_fd(), &self.args, &self.env);
            }
            return LaunchError::NotExecutable { program: self.program.clone(), source };
        }
        for candidate in &self.candidates {
            let error = sys::execve(candidate, &self.args, &self.env);
            match error.raw_os_error() {
                Some(libc::ENOENT | libc::ENOTDIR) => {}
                Some(libc::EACCES) => refused = refused.or(Some(error)),
                _ => {
                    return LaunchError::NotExecutable {
                        program: self.program.clone(),
                        source: error,
                    };
                }
            }
        }
        let program = self.program.clone();
        match refused {
            Some(source) => LaunchError::NotExecutable { program, source },
            None => LaunchError::NotFound { program },
        }
    }
}

fn c_string(text: OsString) -> Result<CString, LaunchError> {
    CString::new(text.into_vec())
        .map_err(|error| LaunchError::NulByte(OsString::from_vec(error.into_vec())))
}

/// The search path of glibc without `PATH`.
const DEFAULT_PATH: &str = "/bin:/usr/bin";

/// The files to try: the program itself if its name has a slash, else one in each directory
/// of the command's own `PATH`. None for an empty name.
fn candidates(command: &LaunchCommand) -> Result<Vec<CString>, LaunchError> {
    let program = &command.program;
    if program.is_empty() {
        return Ok(Vec::new());
    }
    if program.as_bytes().contains(&b'/') {
        return Ok(vec![c_string(program.clone())?]);
    }
    let path =
        command.env.iter().find(|(name, _)| name == "PATH").map(|(_, value)| value.as_os_str());
    let path = path.unwrap_or(OsStr::new(DEFAULT_PATH));
    path.as_bytes()
        .split(|byte| *byte == b':')
        .map(|dir| {
            let mut file =
                OsString::from_vec(if dir.is_empty() { vec![b'.'] } else { dir.to_vec() });
            file.push("/");
            file.push(program);
            c_string(file)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(program: &str, path: Option<&str>) -> Vec<String> {
        let env = path.map(|p| ("PATH".into(), p.into())).into_iter().collect();
        let command = LaunchCommand { program: program.into(), env, ..LaunchCommand::default() };
        let found = candidates(&command).unwrap();
        found.into_iter().map(|c| c.into_string().unwrap()).collect()
    }

    #[test]
    fn the_search_uses_the_commands_own_path() {
        assert_eq!(files("ls", Some("/a:/b")), ["/a/ls", "/b/ls"]);
        assert_eq!(files("ls", None), ["/bin/ls", "/usr/bin/ls"]);
        assert_eq!(files("./ls", Some("/a")), ["./ls"]);
        assert_eq!(files("ls", Some("/a:")), ["/a/ls", "./ls"]);
        assert!(files("", Some("/a")).is_empty());
    }

    #[test]
    fn a_nul_byte_is_named() {
        let command = LaunchCommand { program: "a\0b".into(), ..LaunchCommand::default() };
        assert!(matches!(candidates(&command), Err(LaunchError::NulByte(_))));
    }
}
