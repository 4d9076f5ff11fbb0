//! Commands that run on another machine or in a container, and programs that
//! run the code of the project.

use super::Word;
use super::walk::Lookup;
use super::wrappers::{Inner, Taken, Through, base_name, option};

fn elsewhere(by: &'static str, words: &[Word]) -> Option<Through> {
    let words = words.to_vec();
    let inner = vec![Inner::Command { words, lookup: Lookup::Programs }];
    Some(Through { elsewhere: true, inner, ..Through::new(by) })
}

/// `ssh [options] host command…`. Options that run something here hide it.
pub(super) fn ssh(args: &[Word]) -> Option<Through> {
    let mut through = Through::new("ssh");
    let mut args = args;
    loop {
        match option(args, "1246AaCfGgKkMNnqsTtVvXxYy", "BbcDEeFIiJLlmOopPQRSWw", &[], &[]) {
            Taken::Operand => break,
            Taken::Option(count, found) => {
                for (name, value) in found {
                    let text = value.as_ref().and_then(Word::known).unwrap_or("ProxyCommand");
                    let lower = text.to_ascii_lowercase();
                    let local = [
                        "proxycommand",
                        "localcommand",
                        "knownhostscommand",
                        "match",
                        "include",
                        "pkcs11provider",
                        "securitykeyprovider",
                        "xauthlocation",
                        "proxyusefdpass",
                    ];
                    if (name == "o" && local.iter().any(|option| lower.contains(option)))
                        || name == "F"
                        || name == "I"
                    {
                        through = through.hidden("ssh runs a program here");
                    }
                }
                args = args.get(count..).unwrap_or_default();
            }
            Taken::Unknown => return Some(through.hidden("ssh may run a program here")),
        }
    }
    let command = args.get(1..).unwrap_or_default();
    if command.is_empty() {
        return (!through.inner.is_empty()).then_some(through);
    }
    if !through.inner.is_empty() {
        return Some(through);
    }
    elsewhere("ssh", command)
}

/// `docker run image command…`, `docker exec container command…`.
pub(super) fn container(args: &[Word]) -> Option<Through> {
    let at = args.iter().position(|word| matches!(word.known(), Some("run" | "exec")))?;
    let mut rest = args.get(at + 1..)?;
    loop {
        let long = [
            "rm",
            "interactive",
            "tty",
            "detach",
            "init",
            "privileged",
            "read-only",
            "no-healthcheck",
        ];
        let valued = [
            "name",
            "volume",
            "env",
            "publish",
            "workdir",
            "user",
            "network",
            "entrypoint",
            "mount",
            "env-file",
            "platform",
            "memory",
            "cpus",
            "label",
            "hostname",
            "add-host",
            "restart",
            "pull",
        ];
        match option(rest, "itdP", "vepwulmhc", &long, &valued) {
            Taken::Operand => break,
            Taken::Option(count, _) => rest = rest.get(count..)?,
            Taken::Unknown => return None,
        }
    }
    let command = rest.get(1..)?;
    if command.is_empty() { None } else { elsewhere("docker", command) }
}

/// `kubectl exec pod -- command…`.
pub(super) fn kubectl(args: &[Word]) -> Option<Through> {
    args.iter().position(|word| word.known() == Some("exec"))?;
    let at = args.iter().position(|word| word.known() == Some("--"))?;
    let command = args.get(at + 1..)?;
    if command.is_empty() { None } else { elsewhere("kubectl", command) }
}

/// Whether a command runs code that is in the project or fetched for it.
pub(super) fn runs_project_code(words: &[Word]) -> bool {
    let Some(program) = words.first().and_then(Word::known).map(base_name) else { return false };
    let has = |subcommands: &[&str]| {
        let mut rest = words.iter().skip(1).filter_map(Word::known);
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
