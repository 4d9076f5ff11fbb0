//! A new project for each toolchain. After `clash init --quick` the generated policy decides
//! its everyday commands, and each runs in its sandbox. A command that is refused or fails
//! is a false block.
//!
//! Commands that fetch or take long run with `CLASH_NIGHTLY=1`. A toolchain that is not
//! installed is skipped with a `SKIPPED` line.

use std::collections::BTreeSet;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

mod projects;

use crate::support::{Machine, Ran, Who, clash, is_root, skipped};

const SECRET: &str = "secret-key-material";

/// Everyday work with one toolchain.
struct Everyday {
    toolchain: &'static str,
    /// Sandboxes in which nothing of the user's may be reached.
    sandboxes: &'static [&'static str],
    needs: &'static [&'static str],
    files: &'static [(&'static str, &'static str)],
    /// A script that runs outside, not as root, while the agent works. It listens at
    /// PORT.
    service: Option<&'static str>,
    steps: &'static [&'static [&'static str]],
    /// Steps that take long.
    nightly: &'static [&'static [&'static str]],
    /// Scripts that the policy asks about; the test answers yes.
    asked: &'static [&'static str],
    /// Steps that fetch; skipped where the first of them fails without clash as well.
    fetching: &'static [&'static [&'static str]],
}

/// A service that ends with its test, and the port it listens at.
struct Running(Child, u16);

impl Running {
    /// Starts the service on a free port, and waits until it listens.
    fn of(script: &str, mut shell: Command) -> Self {
        let free = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let script = script.replace("PORT", &port.to_string());
        shell.args(["-c", &script]).stdout(Stdio::null()).stderr(Stdio::null());
        let running = Self(shell.spawn().unwrap(), port);
        for _ in 0..1200 {
            if TcpStream::connect(("127.0.0.1", port)).is_ok() {
                return running;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        panic!("nobody listens: {script}");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A test for each project, and the list of them.
macro_rules! toolchains {
    ($($name:ident: $project:ident),* $(,)?) => {
        $(
            #[test]
            fn $name() {
                everyday(&projects::$project);
            }
        )*

        const ALL: &[&Everyday] = &[$(&projects::$project),*];
    };
}

toolchains! {
    git: GIT,
    c_and_make: C_AND_MAKE,
    cmake: CMAKE,
    node: NODE,
    python: PYTHON,
    java: JAVA,
    maven: MAVEN,
    sqlite: SQLITE,
    postgres: POSTGRES,
    redis: REDIS,
    go: GO,
    ruby: RUBY,
    ruby_style: RUBY_STYLE,
    php: PHP,
    php_style: PHP_STYLE,
    rust: RUST,
    cpp: CPP,
    just: JUST,
    pnpm: PNPM,
    yarn: YARN,
    bun: BUN,
    deno: DENO,
    uv: UV,
    poetry: POETRY,
    elixir: ELIXIR,
    erlang: ERLANG,
    haskell: HASKELL,
    zig: ZIG,
    terraform: TERRAFORM,
    kubernetes: KUBERNETES,
    bazel: BAZEL,
    github: GITHUB,
}

/// Runs the everyday work as a plain user if the toolchain is installed for all, else as this
/// one; nightly as both. Prints a skip if the toolchain is missing.
fn everyday(it: &Everyday) {
    let nightly = std::env::var_os("CLASH_NIGHTLY").is_some();
    if !nightly && it.steps.is_empty() {
        return skipped(&format!(
            "{} in its sandboxes, without CLASH_NIGHTLY=1",
            it.needs.join(", ")
        ));
    }
    match toolchain_path(it) {
        Err(missing) => {
            skipped(&format!("{} in its sandboxes: there is no {missing}", it.toolchain))
        }
        Ok((Who::Nobody, search)) if nightly && it.service.is_none() => {
            everyday_of(it, Who::Nobody, &search, nightly);
            everyday_of(it, Who::Me, &search, nightly);
        }
        Ok((who, search)) => everyday_of(it, who, &search, nightly),
    }
}

/// A machine with the toolchain's project, and with a secret in each file of credentials.
fn project_with_secrets(it: &Everyday, who: Who) -> Machine {
    let m = Machine::new(who);
    for (name, text) in it.files {
        m.write(Path::new("app").join(name), text);
    }
    m.write(".ssh/id_ed25519", SECRET);
    m.write(".npmrc", &format!("//registry.test/:_authToken={SECRET}\n"));
    m.write(".cargo/credentials.toml", SECRET);
    let server = format!("<server><id>corp</id><password>{SECRET}</password></server>");
    m.write(".m2/settings.xml", &format!("<settings><servers>{server}</servers></settings>"));
    m.write("other/file", SECRET);
    m.write(".config/pypoetry/auth.toml", SECRET);
    m
}

/// Makes the project with secrets around it, runs `clash init --quick`, and runs the steps as
/// the policy decides them; those of `nightly`, `asked` and `fetching` only if `nightly`.
/// Checks that no step shows a secret and that the sandboxes reach none.
fn everyday_of(it: &Everyday, who: Who, search: &str, nightly: bool) {
    let m = project_with_secrets(it, who);
    if it.toolchain == "git" {
        Ran::of(m.command("git").args(["init", "-q"])).succeeds();
    }
    let equipped = |mut command: Command| {
        // Settings for mirrors and certificates, which every user needs.
        for name in [
            "CARGO_HTTP_CAINFO",
            "GOPROXY",
            "NODE_EXTRA_CA_CERTS",
            "PIP_CERT",
            "REQUESTS_CA_BUNDLE",
            "SSL_CERT_FILE",
        ] {
            command.envs(std::env::var_os(name).map(|value| (name, value)));
        }
        let rustup = std::env::home_dir().map(|home| home.join(".rustup"));
        command.envs(rustup.filter(|_| it.toolchain == "rust").map(|dir| ("RUSTUP_HOME", dir)));
        command.env("PATH", search).env("BUNDLE_PATH", "vendor/bundle");
        command
    };
    let service = it.service.filter(|_| nightly);
    let service = service.map(|script| Running::of(script, equipped(m.command("sh"))));
    let run = |args: &[&str]| Ran::of(equipped(m.command(clash())).args(args));
    run(&["init", "--quick", "--agent", "none"])
        .succeeds()
        .says(&format!("found: {}", it.toolchain));
    let fine = |step: &str, ran: Ran| {
        assert_eq!(ran.code, Some(0), "{who:?}: {step}: {ran:?}\n{}", explained(&m, step));
        assert!(!ran.stdout.contains(SECRET) && !ran.stderr.contains(SECRET), "{step}: {ran:?}");
    };
    let step = |step: &[&str]| fine(&step.join(" "), run(&[&["exec", "--"], step].concat()));
    it.steps.iter().for_each(|it| step(it));
    if nightly {
        it.nightly.iter().for_each(|it| step(it));
        for script in it.asked {
            let port = service.as_ref().map_or(0, |Running(_, port)| *port);
            let script = &script.replace("PORT", &port.to_string());
            let answer = m.bash(script).is("ask", "");
            let command = answer.updated.as_ref().and_then(|input| input["command"].as_str());
            let mut shell = equipped(m.command("sh"));
            shell.env("CLAUDE_CODE_SESSION_ID", "test-session").arg("-c").arg(command.unwrap());
            fine(script, Ran::of(&mut shell));
        }
        let bare = |step: &[&str]| {
            let (program, args) = step.split_first().unwrap();
            Ran::of(equipped(m.command(program)).args(args)).code == Some(0)
        };
        match it.fetching.first() {
            // It fetches the files again, or finds them in the cache.
            Some(first) if !bare(first) => {
                skipped(&format!(
                    "{} fetching: `{}` fails here without clash",
                    it.toolchain,
                    first.join(" ")
                ));
            }
            _ => it.fetching.iter().for_each(|it| step(it)),
        }
    }
    for sandbox in it.sandboxes {
        let reach = "cat ~/.ssh/id_ed25519 ~/.npmrc ~/.cargo/credentials.toml ~/.m2/settings.xml ~/.config/pypoetry/auth.toml ~/other/file; ls ~/other";
        let ran = run(&["sandbox", "exec", sandbox, "--", "sh", "-c", reach]);
        assert!(!ran.stdout.contains(SECRET) && !ran.stdout.contains("file"), "{sandbox}: {ran:?}");
        for outside in ["~/other/new", "~/.bashrc", "~/.cargo/bin/x", "~/.config/clash/policy.star"]
        {
            run(&["sandbox", "exec", sandbox, "--", "sh", "-c", &format!("echo x > {outside}")])
                .fails();
        }
    }
}

/// What `clash explain` says about a step, for the message of a failure.
fn explained(m: &Machine, step: &str) -> String {
    m.clash(["explain", "bash", step]).stdout
}

/// The user who can run the toolchain, and the search path that finds it: a plain user if it
/// is installed for all users. The error is the name of a missing program.
fn toolchain_path(it: &Everyday) -> Result<(Who, String), &'static str> {
    let system = "/usr/local/bin:/usr/bin:/bin";
    let lies = |program: &str, search: &str| {
        std::env::split_paths(search).any(|dir| dir.join(program).is_file())
    };
    if it.needs.iter().all(|program| lies(program, system)) {
        let who = if is_root() { Who::Nobody } else { Who::Me };
        return Ok((who, system.to_owned()));
    }
    let own = match it.toolchain {
        "rust" => rust_toolchain().unwrap_or_default(),
        _ => PathBuf::new(),
    };
    let search = format!("{}:{system}", own.display());
    match it.needs.iter().find(|program| !lies(program, &search)) {
        Some(missing) => Err(missing),
        None => Ok((Who::Me, search)),
    }
}

/// The directory of the programs of the default `rustc`. `None` without one.
fn rust_toolchain() -> Option<PathBuf> {
    let output = Command::new("rustc").args(["--print", "sysroot"]).output().ok()?;
    Some(Path::new(String::from_utf8_lossy(&output.stdout).trim()).join("bin"))
}

#[test]
fn the_documentation_says_which_toolchains_are_run_here() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/ecosystems.md");
    let text = std::fs::read_to_string(path).unwrap();
    let (_, table) = text.split_once("| toolchain | shown by | |\n").unwrap();
    let documented: Vec<&str> = table
        .lines()
        .take_while(|line| line.starts_with('|'))
        .filter_map(|line| Some(line.strip_prefix("| `")?.split_once('`')?.0))
        .collect();
    assert!(documented.len() > 20, "{documented:?}");
    let mut run = String::new();
    let mut rest = Vec::new();
    for name in documented {
        let of_it = ALL.iter().filter(|it| it.toolchain == name);
        let programs: BTreeSet<&str> = of_it.flat_map(|it| it.needs.iter().copied()).collect();
        if programs.is_empty() {
            rest.push(name);
        } else {
            let programs: Vec<&str> = programs.into_iter().collect();
            run.push_str(&format!("- `{name}`: {}\n", programs.join(", ")));
        }
    }
    let expected = format!("{run}- by reading only: {}\n", rest.join(", "));
    assert!(text.contains(&expected), "docs/ecosystems.md should say:\n{expected}");
}
