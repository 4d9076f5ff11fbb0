//! The presets of the library.

use clash_policy::judge::judge;
use clash_policy::protect;
use clash_policy::rule::{Layer, LayerKind};
use clash_policy::{Effect, FileCaps, FileUse, NetworkAccess, PolicyPlaces, Sandbox, WriteTarget};

use clash_lang::compile;

use crate::support::{SourceTexts, library_source, world};

/// The toolchains. Each has a module, rules and two sandboxes with its name.
const TOOLCHAINS: &[&str] = &[
    "bazel",
    "c",
    "databases",
    "docker",
    "dotnet",
    "elixir",
    "git",
    "github",
    "go",
    "haskell",
    "java",
    "kubernetes",
    "make",
    "nix",
    "node",
    "php",
    "python",
    "ruby",
    "rust",
    "swift",
    "terraform",
    "zig",
];

/// A library module as a user's layer.
fn layer(module: &str) -> Layer {
    compile(&format!("@clash//{module}.star"), LayerKind::User, true, &SourceTexts::default())
        .unwrap()
        .layer
}

/// True if the sandbox allows this use of a path; an ask counts as no.
fn may(sandbox: &Sandbox, path: &str, needs: FileCaps) -> bool {
    let places = PolicyPlaces::imagined();
    let path = places.expand(path).unwrap();
    judge(sandbox, &FileUse { path, needs, caseless: false }, &world(&places)).unwrap().effect
        == Effect::Allow
}

#[test]
fn every_toolchain_has_a_safe_and_a_full_sandbox() {
    for name in TOOLCHAINS {
        let layer = layer(name);
        for (kind, net) in [("safe", NetworkAccess::Deny), ("full", NetworkAccess::Allow)] {
            let sandbox = layer.sandboxes.iter().find(|s| s.name == format!("{name}_{kind}"));
            let sandbox = sandbox.unwrap_or_else(|| panic!("{name}_{kind}"));
            assert_eq!(sandbox.net, net, "{}", sandbox.name);
            assert_ne!(sandbox.default, Effect::Allow, "{}", sandbox.name);
            assert!(sandbox.protect.standard, "{}", sandbox.name);
            assert!(may(sandbox, "$PWD/src/main", FileCaps::READ), "{}", sandbox.name);
        }
        let module = library_source(name);
        assert!(module.contains(&format!("\n{name} = {{\n    \"Bash\": {{\n")), "{name}");
    }
}

#[test]
fn no_toolchain_can_change_programs_of_the_user() {
    for sandbox in TOOLCHAINS.iter().flat_map(|name| layer(name).sandboxes) {
        for path in [
            "$CARGO_HOME/bin/cargo",
            "$CARGO_HOME/config.toml",
            "$CARGO_HOME/env",
            "$RUSTUP_HOME/toolchains/stable/bin/rustc",
            "$GOPATH/bin/dlv",
            "$HOME/sdk/go1.25/bin/go",
            "$HOME/.local/bin/tool",
            "$HOME/.local/lib/python3.13/site-packages/x.pth",
            "$HOME/miniconda3/bin/python",
            "$PYENV_ROOT/shims/python",
            "$XDG_DATA_HOME/uv/python/cpython/bin/python",
            "$XDG_DATA_HOME/pipx/venvs/x/bin/x",
            "$NVM_DIR/versions/node/v20/bin/node",
            "$NVM_DIR/nvm.sh",
            "$FNM_DIR/node-versions/v20/installation/bin/node",
            "$VOLTA_HOME/bin/node",
            "$PNPM_HOME/pnpm",
            "$BUN_INSTALL/bin/bun",
            "$HOME/.deno/bin/deno",
            "$HOME/.npm-global/bin/x",
            "$GEM_HOME/bin/rake",
            "$RBENV_ROOT/shims/ruby",
            "$HOME/.rvm/bin/rvm",
            "$SDKMAN_DIR/candidates/java/current/bin/java",
            "$JAVA_HOME/bin/java",
            "$GRADLE_USER_HOME/init.gradle",
            "$HOME/.m2/settings.xml",
            "$DOTNET_ROOT/dotnet",
            "$HOME/.dotnet/tools/x",
            "$MIX_HOME/archives/hex/ebin/x.beam",
            "$HOME/.cabal/bin/x",
            "$HOME/.ghcup/bin/ghc",
            "$STACK_ROOT/programs/x/ghc/bin/ghc",
            "$COMPOSER_HOME/vendor/bin/x",
            "$ASDF_DATA_DIR/shims/node",
            "$MISE_DATA_DIR/shims/node",
            "$HOME/.docker/cli-plugins/docker-compose",
            "$HOME/.gitconfig",
            "$HOME/.config/git/config",
            "$HOME/.bashrc",
            "$HOME/.profile",
            "/nix/store/x/bin/x",
        ] {
            for needs in [FileCaps::WRITE, FileCaps::CREATE, FileCaps::DELETE] {
                let asked = is_asked_only(&sandbox.name);
                assert!(asked || !may(&sandbox, path, needs), "{} {path} {needs}", sandbox.name);
            }
        }
    }
}

#[test]
fn no_build_changes_packages_of_other_projects() {
    for (name, path) in [
        ("rust", "$CARGO_HOME/registry/src/x/lib.rs"),
        ("go", "$GOMODCACHE/x@v1/x.go"),
        ("python", "$PIP_CACHE_DIR/wheels/x"),
        ("node", "$NPM_CONFIG_CACHE/_cacache/x"),
        ("ruby", "$GEM_HOME/gems/x/lib/x.rb"),
        ("php", "$COMPOSER_CACHE_DIR/files/x.zip"),
        ("elixir", "$HEX_HOME/packages/x.tar"),
        ("haskell", "$HOME/.cabal/packages/x"),
        ("terraform", "$TF_PLUGIN_CACHE_DIR/x"),
    ] {
        let layer = layer(name);
        for kind in ["safe", "full"] {
            let find = |s: &&Sandbox| s.name == format!("{name}_{kind}");
            let sandbox = layer.sandboxes.iter().find(find).unwrap();
            assert!(may(sandbox, path, FileCaps::READ), "{}", sandbox.name);
            assert!(!may(sandbox, path, FileCaps::WRITE), "{} {path}", sandbox.name);
        }
    }
}

#[test]
fn only_tools_that_need_credentials_read_them() {
    const OPENED: &[(&str, &str)] = &[
        ("git_full", "$HOME/.config/gh/hosts.yml"),
        ("github_full", "$HOME/.config/gh/hosts.yml"),
        ("kubernetes_full", "$HOME/.kube/config"),
    ];
    for sandbox in TOOLCHAINS.iter().flat_map(|name| layer(name).sandboxes) {
        for path in [
            "$HOME/.ssh/id_ed25519",
            "$HOME/.gnupg/private-keys-v1.d/k",
            "$HOME/.aws/credentials",
            "$HOME/.azure/token",
            "$HOME/.config/gcloud/credentials.db",
            "$HOME/.config/gh/hosts.yml",
            "$HOME/.kube/config",
            "$HOME/.docker/config.json",
            "$HOME/.netrc",
            "$HOME/.git-credentials",
            "$HOME/.npmrc",
            "$HOME/.yarnrc.yml",
            "$HOME/.pypirc",
            "$CARGO_HOME/credentials.toml",
            "$CARGO_HOME/credentials",
            "$GEM_HOME/credentials",
            "$HOME/.bundle/config",
            "$HOME/.m2/settings.xml",
            "$GRADLE_USER_HOME/gradle.properties",
            "$HOME/.nuget/NuGet/NuGet.Config",
            "$HEX_HOME/hex.config",
            "$COMPOSER_HOME/auth.json",
            "$HOME/.terraform.d/credentials.tfrc.json",
            "$HOME/.pgpass",
            "$HOME/.my.cnf",
            "$HOME/.psql_history",
            "$HOME/.bash_history",
            "$HOME/.claude/.credentials.json",
            "$HOME/other-project/src/main",
            "/var/run/docker.sock",
        ] {
            let meant = OPENED.contains(&(sandbox.name.as_str(), path));
            assert_eq!(may(&sandbox, path, FileCaps::READ), meant, "{} {path}", sandbox.name);
        }
    }
}

#[test]
fn only_docker_engine_opens_the_container_sockets() {
    let socket = |s: &Sandbox| may(s, "/run/docker.sock", FileCaps::WRITE);
    for sandbox in TOOLCHAINS.iter().flat_map(|name| layer(name).sandboxes) {
        assert_eq!(socket(&sandbox), sandbox.name == "docker_engine", "{}", sandbox.name);
    }
    let docker = library_source("docker");
    assert!(!docker.contains("allow(sandbox = docker_engine"));
}

/// Sandboxes that change programs of all projects, or hooks.
fn is_asked_only(sandbox: &str) -> bool {
    sandbox.ends_with("_global") || sandbox == "git_hooks"
}

#[test]
fn wide_sandboxes_are_only_asked_for() {
    let mut seen = 0;
    for module in TOOLCHAINS {
        let source = library_source(module);
        for sandbox in layer(module).sandboxes.iter().filter(|it| is_asked_only(&it.name)) {
            seen += 1;
            assert!(!source.contains(&format!("allow(sandbox = {}", sandbox.name)), "{module}");
            assert!(source.contains(&format!("sandbox = {}", sandbox.name)), "{}", sandbox.name);
        }
    }
    assert!(seen >= 8, "{seen}");
}

/// A yes helps only in a sandbox that can do what the reason says.
#[test]
fn asked_sandboxes_can_do_what_their_reason_says() {
    for module in TOOLCHAINS {
        let source = library_source(module).replace("\n", " ");
        let layer = layer(module);
        for asked in source.split("ask(").skip(1) {
            let asked = asked.split(')').next().unwrap_or_default();
            let Some(name) = asked.split("sandbox = ").nth(1) else { continue };
            let name = name.split(',').next().unwrap_or_default().trim();
            let sandbox = layer.sandboxes.iter().find(|it| it.name == name).unwrap();
            let outside = sandbox.fs.iter().any(|rule| {
                let path = rule.pattern.fixed();
                rule.effect == Effect::Allow
                    && rule.writes != WriteTarget::Project
                    && rule.caps.intersects(FileCaps::CHANGE)
                    && path != "$PWD"
                    && path != "$TMPDIR"
            });
            if asked.contains("for all projects") {
                assert!(outside, "{module}: {name} changes nothing for all projects");
            }
            if asked.contains("in your name") {
                assert!(sandbox.net == NetworkAccess::Allow, "{module}: {name} reaches no one");
            }
            if asked.contains("hooks") {
                assert!(sandbox.protect.except.iter().any(|it| it == ".git/hooks"), "{name}");
            }
        }
    }
}

/// Places outside the project that a preset may change, each with the reason why no
/// program outside the sandbox obeys them.
const CHANGED: &[(&str, &str)] = &[
    ("$PWD", "the project: what steers programs outside is protected in it"),
    ("$TMPDIR", "temporary files"),
    ("/run/mysqld", "sockets: the server behind them decides"),
    ("/run/postgresql", "sockets"),
    ("/run/redis", "sockets"),
    ("/run/containerd/containerd.sock", "a socket, asked about each time"),
    ("/run/docker.sock", "a socket, asked about each time"),
    ("/run/podman/podman.sock", "a socket, asked about each time"),
    ("/nix/var/nix/daemon-socket", "a socket: the daemon builds and checks by itself"),
];

#[test]
fn no_preset_writes_shared_places() {
    let modules = TOOLCHAINS.iter().chain(["agent", "sandboxes"].iter());
    for sandbox in modules.flat_map(|name| layer(name).sandboxes) {
        // This preset exists to open the home directory.
        if sandbox.unrestricted || sandbox.name == "workspace" {
            continue;
        }
        for rule in &sandbox.fs {
            let changes = rule.effect == Effect::Allow && rule.caps.intersects(FileCaps::CHANGE);
            let known = CHANGED.iter().any(|(path, _)| *path == rule.pattern.fixed());
            let own = rule.writes == WriteTarget::Project || is_asked_only(&sandbox.name);
            assert!(!changes || known || own, "{}: {}", sandbox.name, rule.pattern);
        }
    }
}

#[test]
fn a_home_workspace_keeps_programs_of_other_projects() {
    let layer = layer("sandboxes");
    let workspace = layer.sandboxes.iter().find(|s| s.name == "workspace").unwrap();
    for path in [
        "$CARGO_HOME/registry/src/x/build.rs",
        "$NPM_CONFIG_CACHE/_npx/x/tool",
        "$XDG_CACHE_HOME/pre-commit/x/hook",
        "$GOMODCACHE/x/x.go",
        "$HOME/.m2/repository/x.jar",
    ] {
        assert!(!may(workspace, path, FileCaps::WRITE), "{path}");
        assert!(may(workspace, path, FileCaps::READ), "{path}");
    }
}

/// `git switch` writes the instructions and pipelines of the other branch. The list of
/// the module must follow the one list of persistence paths.
#[test]
fn git_may_write_all_files_that_branches_carry() {
    let listed = |path: &str| protect::STANDARD.iter().any(|entry| entry.path == path);
    let layer = layer("git");
    for name in ["git_checkout_safe", "git_rebase_safe", "git_full"] {
        let sandbox = layer.sandboxes.iter().find(|sandbox| sandbox.name == name).unwrap();
        for path in protect::carried_by_branches() {
            assert!(sandbox.protect.except.iter().any(|it| it == path), "{name}: {path}");
        }
        for path in &sandbox.protect.except {
            assert!(listed(path), "{name}: {path} is on no list");
        }
    }
}
