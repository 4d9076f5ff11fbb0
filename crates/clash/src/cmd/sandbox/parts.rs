//! The other processes of `clash sandbox test`. The *launcher* enters the sandbox as any
//! command does. It then becomes clash again, by a grant for clash's own program, and
//! performs the trials. The *tidier* stays outside and removes all files of the test, even
//! if the others are killed.

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use clap::Subcommand;
use clash_policy::FileCaps;
use clash_sandbox::launch;
use clash_sandbox::plan::{GrantReason, PathGrant};

use super::act::{TrialAct, perform_all};
use super::{SimulatedHost, find, plan, sandboxes, unless_closed};
use crate::dirs::Dirs;
use crate::policy::LoadedPolicy;
use crate::ui::Failure;
use crate::{env, exit};

/// The hidden commands `clash sandbox part …`.
#[derive(Debug, Subcommand)]
pub(super) enum TestProcess {
    /// Enter the sandbox and perform the trials
    Launch {
        name: String,
        #[command(flatten)]
        simulate: SimulatedHost,
    },
    /// Perform the acts on standard input
    Try,
    /// Remove the paths on standard input, once it ends
    Tidy,
}

impl TestProcess {
    pub(super) fn run(self, dirs: &Dirs, project: &Path) -> Result<u8, Failure> {
        match self {
            Self::Launch { name, simulate } => Err(enter(dirs, project, &name, &simulate)),
            Self::Try => unless_closed(perform_all()),
            Self::Tidy => remove_named_paths(),
        }
    }
}

/// Another process of this program. Its working directory is `/`, which the test does not
/// remove.
fn part_command(name: &str) -> Result<Command, Failure> {
    let mut command = Command::new(std::env::current_exe()?);
    command.current_dir("/").args(["sandbox", "part", name]);
    Ok(command)
}

/// Performs acts in a sandbox, by a launcher process. Each answer is the error of the system,
/// or `None` if the act succeeded. Fails with status 125 if the launcher does not answer
/// every act.
pub(super) fn perform_in_sandbox(
    project: &Path,
    sandbox: &str,
    simulate: &SimulatedHost,
    acts: &[&TrialAct],
) -> Result<Vec<Option<String>>, Failure> {
    let mut launcher = part_command("launch")?;
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
        // A launcher that failed reads nothing; its message on standard error says why.
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
    let message = format!("no trial could run in the sandbox ({}): {said}", output.status);
    Err(Failure { status: exit::NO_SANDBOX, ..Failure::new(message) })
}

/// A variable whose name looks like a secret. The launcher has it; the sandbox should not.
pub(super) const SECRET_VARIABLE: &str = "CLASH_TEST_TOKEN";

/// Plans the sandbox and becomes clash again inside it, as `clash sandbox part try` in `/`.
/// Records nothing, and makes no doors. Returns only on failure.
fn enter(dirs: &Dirs, project: &Path, name: &str, simulate: &SimulatedHost) -> Failure {
    let launch = || -> Result<std::convert::Infallible, Failure> {
        let known = sandboxes(&LoadedPolicy::load(dirs, project, None)?)?;
        let sandbox = find(&known, name)?;
        let own = std::env::current_exe()?;
        let caps = FileCaps::READ.union(FileCaps::EXECUTE);
        let extra = [PathGrant { path: own.clone(), caps, why: GrantReason::Launcher }];
        let (plan, _) = plan::plan_sandbox(dirs, project, sandbox, &simulate.host(dirs)?, &extra)
            .map_err(|refusal| plan::refusal_failure(sandbox, refusal))?;
        let (env, _) = clash_sandbox::environment::scrub(env::all(), &sandbox.env);
        let args = ["sandbox", "part", "try"].map(Into::into).to_vec();
        let command = launch::LaunchCommand {
            program: own.into(),
            args,
            env,
            cwd: Some("/".into()),
            ..launch::LaunchCommand::default()
        };
        Err(Failure::from(launch::run(&plan, &command, launch::LaunchHelper::default())))
    };
    match launch() {
        Ok(never) => match never {},
        Err(failure) => Failure { status: exit::NO_SANDBOX, ..failure },
    }
}

/// The start of the name of every file and directory that the test makes.
pub(super) const SCRATCH: &str = ".clash-test-";

/// True for a path whose name begins as those of the test.
fn is_scratch(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(SCRATCH))
}

/// The process that removes the files of the test, also if this process is killed.
#[derive(Debug)]
pub(super) struct ScratchRemover(Child);

impl ScratchRemover {
    /// Starts the tidier.
    pub(super) fn start() -> Result<Self, Failure> {
        let mut tidier = part_command("tidy")?;
        // In a process group of its own: Ctrl-C at the terminal does not end it.
        Ok(Self(tidier.process_group(0).stdin(Stdio::piped()).spawn()?))
    }

    /// Tells the tidier a path to remove at the end. Call it before the path exists.
    pub(super) fn leave(&mut self, path: &Path) -> Result<(), Failure> {
        let to = self.0.stdin.as_mut();
        let to = to.ok_or_else(|| Failure::new("the process that removes the files has ended"))?;
        Ok(writeln!(to, "{}", serde_json::to_string(path)?)?)
    }
}

impl Drop for ScratchRemover {
    fn drop(&mut self) {
        if let Some(mut stdin) = self.0.stdin.take() {
            let _ = writeln!(stdin, "{DONE}");
        }
        let _ = self.0.wait();
    }
}

/// The last line of a test that came to its end.
const DONE: &str = "done";

/// Waits for the end of standard input and removes the named paths that are the test's own.
/// If the test was killed, a trial may still run: then it removes them again for five
/// seconds.
fn remove_named_paths() -> Result<u8, Failure> {
    let mut named = String::new();
    io::stdin().read_to_string(&mut named)?;
    let paths: Vec<PathBuf> =
        named.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let rounds = if named.lines().last() == Some(DONE) { 1 } else { ROUNDS_AFTER_KILL };
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

/// The tidier of a test that was killed removes this often, every 100 ms.
const ROUNDS_AFTER_KILL: usize = 50;
