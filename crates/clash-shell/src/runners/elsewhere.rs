//! Commands that run on another machine or in a container, and programs that
//! run the code of the project.

use super::super::ShellWord;
use super::options::{OptionTable, TakenOptions};
use super::{InnerCommand, RunnerCommands, base_name};

/// A command on another machine; `None` without words.
fn elsewhere(by: &'static str, words: &[ShellWord]) -> Option<RunnerCommands> {
    let inner = vec![InnerCommand::program(words)];
    (!words.is_empty()).then_some(RunnerCommands {
        elsewhere: true,
        inner,
        ..RunnerCommands::new(by)
    })
}

/// `ssh [options] host command…`; `None` without a command. Options that run a program on
/// this machine, and unknown options, hide the command.
pub(super) fn ssh(args: &[ShellWord]) -> Option<RunnerCommands> {
    const OPTIONS: OptionTable = OptionTable {
        flags: "1246AaCfGgKkMNnqsTtVvXxYy",
        valued: "BbcDEeFIiJLlmOopPQRSWw",
        long: &[],
        long_valued: &[],
    };
    let mut here = false;
    let mut args = args;
    loop {
        match OPTIONS.take(args) {
            TakenOptions::Operand => break,
            TakenOptions::Options(found, rest) => {
                here |= found.iter().any(|(name, value)| match name.as_str() {
                    "o" => value.as_ref().and_then(ShellWord::known).is_none_or(setting_runs),
                    name => matches!(name, "F" | "I"),
                });
                args = rest;
            }
            TakenOptions::Unknown => {
                return Some(RunnerCommands::new("ssh").hidden("ssh may run a program here"));
            }
        }
    }
    if here {
        return Some(RunnerCommands::new("ssh").hidden("ssh runs a program here"));
    }
    elsewhere("ssh", args.get(1..).unwrap_or_default())
}

/// True if a setting of ssh names a program or a file with settings.
fn setting_runs(setting: &str) -> bool {
    #[rustfmt::skip]
    const RUN: &[&str] = &[
        "proxycommand", "localcommand", "knownhostscommand", "match", "include", "pkcs11provider",
        "securitykeyprovider", "xauthlocation", "proxyusefdpass",
    ];
    let setting = setting.to_ascii_lowercase();
    RUN.iter().any(|name| setting.contains(name))
}

/// `docker run image command…`, `docker exec container command…`. `None` for other
/// subcommands, without a command, and if an option is unknown.
pub(super) fn container(args: &[ShellWord]) -> Option<RunnerCommands> {
    #[rustfmt::skip]
    const OPTIONS: OptionTable = OptionTable {
        flags: "itdP",
        valued: "vepwulmhc",
        long: &[
            "rm", "interactive", "tty", "detach", "init", "privileged", "read-only",
            "no-healthcheck",
        ],
        long_valued: &[
            "name", "volume", "env", "publish", "workdir", "user", "network", "entrypoint", "mount",
            "env-file", "platform", "memory", "cpus", "label", "hostname", "add-host", "restart",
            "pull",
        ],
    };
    let at = args.iter().position(|word| matches!(word.known(), Some("run" | "exec")))?;
    let mut rest = args.get(at + 1..)?;
    loop {
        match OPTIONS.take(rest) {
            TakenOptions::Operand => break,
            TakenOptions::Options(_, after) => rest = after,
            TakenOptions::Unknown => return None,
        }
    }
    elsewhere("docker", rest.get(1..)?)
}

/// `kubectl exec pod -- command…`. `None` without `--`.
pub(super) fn kubectl(args: &[ShellWord]) -> Option<RunnerCommands> {
    args.iter().position(|word| word.known() == Some("exec"))?;
    let at = args.iter().position(|word| word.known() == Some("--"))?;
    elsewhere("kubectl", args.get(at + 1..)?)
}

/// True if a command runs code of the project or of its dependencies, for example `make` or
/// `npm run`. A subcommand counts anywhere among the words, so this may be true too often.
/// False if the program is unknown.
pub(in super::super) fn runs_project_code(words: &[ShellWord]) -> bool {
    let Some(program) = words.first().and_then(ShellWord::known).map(base_name) else {
        return false;
    };
    let has = |subcommands: &[&str]| {
        let mut rest = words.iter().skip(1).filter_map(ShellWord::known);
        rest.any(|word| subcommands.contains(&word))
    };
    match program {
        "make" | "gmake" | "ninja" | "just" | "task" | "rake" | "npx" | "bunx" | "uvx"
        | "pytest" | "tox" | "nox" | "gradle" | "gradlew" | "mvn" | "mvnw" | "sbt" | "bazel"
        | "cmake" | "jest" | "vitest" | "phpunit" | "composer" => true,
        "npm" | "pnpm" | "yarn" | "bun" => has(&[
            "run",
            "run-script",
            "test",
            "t",
            "start",
            "exec",
            "x",
            "dlx",
            "install",
            "i",
            "ci",
            "build",
            "dev",
        ]),
        "cargo" => has(&[
            "run", "r", "test", "t", "build", "b", "bench", "check", "c", "clippy", "doc",
            "install",
        ]),
        "go" => has(&["run", "test", "generate"]),
        "pipx" | "uv" | "poetry" | "pipenv" | "hatch" | "rye" => has(&["run"]),
        "bundle" => has(&["exec"]),
        "dotnet" => has(&["run", "test", "build"]),
        "deno" => has(&["run", "test", "task"]),
        _ => false,
    }
}
