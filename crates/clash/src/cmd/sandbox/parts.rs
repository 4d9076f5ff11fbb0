//! The processes of `clash sandbox test` besides the one that was called: a
//! *launcher* enters the sandbox as any command would; in it clash itself, let in
//! by a grant to the launcher, *tries*; and one outside, which outlives whatever
//! happens to the others, *tidies* up.

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use clap::Subcommand;
use clash_policy::Caps;
use clash_sandbox::launch;
use clash_sandbox::plan::{Grant, Why};

use super::act::{Act, perform_all};
use super::{Simulate, find, plan, sandboxes, unless_closed};
use crate::dirs::Dirs;
use crate::policy::LoadedPolicy;
use crate::ui::Failure;
use crate::{env, exit};

#[derive(Debug, Subcommand)]
pub(super) enum Part {
    /// Enter the sandbox and try there
    Launch {
        name: String,
        #[command(flatten)]
        simulate: Simulate,
    },
    /// Try what standard input says
    Try,
    /// Remove what standard input names, once it ends
    Tidy,
}

impl Part {
    pub(super) fn run(self, dirs: &Dirs, project: &Path) -> Result<u8, Failure> {
        match self {
            Self::Launch { name, simulate } => Err(enter(dirs, project, &name, &simulate)),
            Self::Try => unless_closed(perform_all()),
            Self::Tidy => tidy(),
        }
    }
}

/// Another process of this program, in a directory that nobody removes.
fn part(name: &str) -> Result<Command, Failure> {
    let mut command = Command::new(std::env::current_exe()?);
    command.current_dir("/").args(["sandbox", "part", name]);
    Ok(command)
}

/// Has everything tried in a sandbox. Each answer is what the system said, or
/// nothing if it worked.
pub(super) fn ask(
    project: &Path,
    sandbox: &str,
    simulate: &Simulate,
    acts: &[&Act],
) -> Result<Vec<Option<String>>, Failure> {
    let mut launcher = part("launch")?;
    launcher.arg(sandbox).arg("--project").arg(project).env(SECRET_VARIABLE, "secret");
    for host in &simulate.simulate {
        launcher.args(["--simulate", host]);
    }
    launcher.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = launcher.spawn()?;
    let mut asked = String::new();
    for act in acts {
        asked.push_str(&serde_json::to_string(act)?);
        asked.push('\n');
    }
    if let Some(mut stdin) = child.stdin.take() {
        // A launcher that failed reads nothing; its own words say why.
        let _ = stdin.write_all(asked.as_bytes());
    }
    let output = child.wait_with_output()?;
    let answers: Vec<Option<String>> = String::from_utf8_lossy(&output.stdout)
        .lines()
        .map(serde_json::from_str)
        .collect::<Result<_, _>>()
        .unwrap_or_default();
    if output.status.success() && answers.len() == acts.len() {
        return Ok(answers);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said.trim().trim_start_matches("clash: ");
    let message = format!("nothing could be tried in the sandbox ({}): {said}", output.status);
    Err(Failure { status: exit::NO_SANDBOX, ..Failure::new(message) })
}

/// Looks like a secret, and is none: the launcher has it, the sandbox should not.
pub(super) const SECRET_VARIABLE: &str = "CLASH_TEST_TOKEN";

/// Becomes clash again, inside the sandbox.
fn enter(dirs: &Dirs, project: &Path, name: &str, simulate: &Simulate) -> Failure {
    let launch = || -> Result<std::convert::Infallible, Failure> {
        let known = sandboxes(&LoadedPolicy::load(dirs, project, None)?)?;
        let sandbox = find(&known, name)?;
        let own = std::env::current_exe()?;
        let caps = Caps::READ.union(Caps::EXECUTE);
        let extra = [Grant { path: own.clone(), caps, why: Why::Launcher }];
        let (plan, _) = plan::make(dirs, project, sandbox, &simulate.host(dirs)?, &extra)
            .map_err(|refusal| plan::refused(sandbox, refusal))?;
        let (env, _) = clash_sandbox::environment::scrub(env::all(), &sandbox.env);
        let args = ["sandbox", "part", "try"].map(Into::into).to_vec();
        let command = launch::Command { program: own.into(), args, env, cwd: Some("/".into()) };
        Err(Failure::from(launch::run(&plan, &command, launch::Ahead::default())))
    };
    match launch() {
        Ok(never) => match never {},
        Err(failure) => Failure { status: exit::NO_SANDBOX, ..failure },
    }
}

/// How everything begins that is made for trials: hidden, and nobody else's.
pub(super) const SCRATCH: &str = ".clash-test-";

fn is_scratch(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(SCRATCH))
}

/// Who removes what is left in the end, also if this process does not live to see
/// it.
#[derive(Debug)]
pub(super) struct Tidier(Child);

impl Tidier {
    pub(super) fn start() -> Result<Self, Failure> {
        let mut tidier = part("tidy")?;
        // A key pressed at the terminal is not for it.
        Ok(Self(tidier.process_group(0).stdin(Stdio::piped()).spawn()?))
    }

    /// Has whatever will be found there removed.
    pub(super) fn leave(&mut self, path: &Path) -> Result<(), Failure> {
        let to = self.0.stdin.as_mut();
        let to = to.ok_or_else(|| Failure::new("there is nobody to tidy up"))?;
        Ok(writeln!(to, "{}", serde_json::to_string(path)?)?)
    }
}

impl Drop for Tidier {
    fn drop(&mut self) {
        if let Some(mut stdin) = self.0.stdin.take() {
            let _ = writeln!(stdin, "{DONE}");
        }
        let _ = self.0.wait();
    }
}

/// The last line of who names what is to be removed, if it came to its end.
const DONE: &str = "done";

/// Waits until nobody can name anything any more, and removes what was named. If
/// the one who named it was killed, a trial may still be going on.
fn tidy() -> Result<u8, Failure> {
    let mut named = String::new();
    io::stdin().read_to_string(&mut named)?;
    let paths: Vec<PathBuf> =
        named.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let rounds = if named.lines().last() == Some(DONE) { 1 } else { ROUNDS };
    for round in 0..rounds {
        if round > 0 {
            std::thread::sleep(Duration::from_millis(100));
        }
        for path in paths.iter().filter(|path| is_scratch(path)) {
            let _ = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
        }
    }
    Ok(exit::OK)
}

const ROUNDS: usize = 50;
