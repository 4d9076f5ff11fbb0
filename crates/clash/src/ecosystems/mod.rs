//! The toolchains clash knows, and the files by which a project shows that it uses one. A
//! module of the library with the same name (`@clash//rust.star`) has its sandboxes and
//! the rules for its programs.
//!
//! This module only reads, and only a bounded number of names and bytes. It runs no
//! program, and it believes nothing of the project beyond "this file exists".

mod address;
mod ci;
mod defaults;
mod detect;
mod elsewhere;
mod hosts;
mod ignore;

pub(crate) use detect::{DetectedProject, DetectedToolchain, detect};
pub(crate) use elsewhere::{OutsidePath, PathUse, find_outside_paths};
pub(crate) use hosts::{FetchHost, HostOrigin, find_hosts};

/// A toolchain.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Ecosystem {
    /// Its module in the library, without `@clash//` and `.star`. The module defines
    /// rules of this name and the sandboxes `<name>_safe` and `<name>_full`.
    pub(crate) name: &'static str,
    /// Files and directories that show it; one `*` stands for anything.
    markers: &'static [&'static str],
    /// Programs that show it in the scripts of a CI service.
    pub(crate) programs: &'static [&'static str],
    /// True if a build fetches missing dependencies: without the network it fails after a
    /// dependency was added.
    pub(crate) builds_fetch: bool,
}

/// A toolchain whose builds need no network once its dependencies are installed.
const fn toolchain(
    name: &'static str,
    markers: &'static [&'static str],
    programs: &'static [&'static str],
) -> Ecosystem {
    Ecosystem { name, markers, programs, builds_fetch: false }
}

/// A toolchain whose builds fetch missing dependencies themselves.
const fn fetching(
    name: &'static str,
    markers: &'static [&'static str],
    programs: &'static [&'static str],
) -> Ecosystem {
    Ecosystem { name, markers, programs, builds_fetch: true }
}

/// The toolchains, in the order in which `clash init` lists them.
pub(crate) const ECOSYSTEMS: &[Ecosystem] = &[
    fetching(
        "rust",
        &["Cargo.toml", "Cargo.lock", "rust-toolchain", "rust-toolchain.toml"],
        &["cargo", "rustc", "rustup"],
    ),
    fetching("go", &["go.mod", "go.work"], &["go", "gofmt", "golangci-lint"]),
    toolchain(
        "python",
        &[
            "pyproject.toml",
            "requirements*.txt",
            "setup.py",
            "setup.cfg",
            "Pipfile",
            "uv.lock",
            "poetry.lock",
            "environment.yml",
            "tox.ini",
            ".python-version",
        ],
        &["python", "python3", "pip", "pip3", "uv", "uvx", "poetry", "pytest", "tox", "ruff"],
    ),
    toolchain(
        "node",
        &[
            "package.json",
            "package-lock.json",
            "pnpm-lock.yaml",
            "yarn.lock",
            "bun.lock",
            "bun.lockb",
            "deno.json",
            "deno.jsonc",
            "deno.lock",
            ".nvmrc",
        ],
        &["node", "npm", "npx", "yarn", "pnpm", "bun", "deno"],
    ),
    toolchain(
        "ruby",
        &["Gemfile", "Gemfile.lock", "*.gemspec", ".ruby-version"],
        &["ruby", "bundle", "gem", "rake", "rspec"],
    ),
    fetching(
        "java",
        &[
            "pom.xml",
            "build.gradle",
            "build.gradle.kts",
            "settings.gradle",
            "settings.gradle.kts",
            "build.sbt",
            "mvnw",
            "gradlew",
        ],
        &["java", "javac", "mvn", "mvnw", "gradle", "gradlew", "sbt"],
    ),
    fetching(
        "dotnet",
        &["*.csproj", "*.fsproj", "*.vbproj", "*.sln", "*.slnx", "global.json"],
        &["dotnet", "msbuild", "nuget"],
    ),
    fetching("swift", &["Package.swift"], &["swift", "swiftc", "xcodebuild"]),
    toolchain("php", &["composer.json", "composer.lock"], &["php", "composer", "phpunit"]),
    toolchain("elixir", &["mix.exs", "rebar.config"], &["mix", "elixir", "rebar3"]),
    fetching("haskell", &["*.cabal", "stack.yaml", "cabal.project"], &["cabal", "stack", "ghc"]),
    fetching("zig", &["build.zig", "build.zig.zon"], &["zig"]),
    toolchain(
        "c",
        &[
            "CMakeLists.txt",
            "meson.build",
            "configure.ac",
            "configure",
            "conanfile.*",
            "vcpkg.json",
            "*.c",
            "*.cc",
            "*.cpp",
        ],
        &["gcc", "g++", "clang", "clang++", "cc", "conan", "vcpkg"],
    ),
    toolchain(
        "make",
        &[
            "Makefile",
            "GNUmakefile",
            "makefile",
            "CMakeLists.txt",
            "meson.build",
            "justfile",
            "Justfile",
            "Taskfile.y*ml",
        ],
        &["make", "cmake", "ctest", "ninja", "meson", "just", "task"],
    ),
    fetching("bazel", &["MODULE.bazel", "WORKSPACE", "WORKSPACE.bazel"], &["bazel", "bazelisk"]),
    fetching("nix", &["flake.nix", "shell.nix", "default.nix"], &["nix", "nix-build", "nix-shell"]),
    toolchain(
        "docker",
        &[
            "Dockerfile",
            "*.Dockerfile",
            "Containerfile",
            "compose*.y*ml",
            "docker-compose*.y*ml",
            ".devcontainer",
        ],
        &["docker", "docker-compose", "podman", "buildah"],
    ),
    toolchain(
        "kubernetes",
        &["Chart.yaml", "kustomization.yaml", "skaffold.yaml", "helmfile.yaml"],
        &["kubectl", "helm", "kustomize", "skaffold"],
    ),
    toolchain("terraform", &["*.tf", ".terraform.lock.hcl"], &["terraform", "tofu", "terragrunt"]),
    toolchain(
        "databases",
        &["*.sqlite", "*.sqlite3", "schema.prisma", "dbt_project.yml"],
        &["sqlite3", "psql", "mysql", "redis-cli", "mongosh"],
    ),
    toolchain("git", &[".git", ".gitmodules"], &["git"]),
    toolchain("github", &[".github"], &["gh"]),
];

/// A toolchain by its name.
pub(crate) fn find_ecosystem(name: &str) -> Option<&'static Ecosystem> {
    ECOSYSTEMS.iter().find(|ecosystem| ecosystem.name == name)
}

/// Files that show which of several programs for the same job a project uses, for example
/// `yarn.lock` for yarn.
const SHOWS: &[(&str, &str)] = &[
    ("bun", "bun.lock*"),
    ("bundle", "Gemfile"),
    ("deno", "deno.*"),
    ("gradle", "*.gradle*"),
    ("gradlew", "gradlew"),
    ("mvn", "pom.xml"),
    ("mvnw", "mvnw"),
    ("npm", "package-lock.json"),
    ("pipenv", "Pipfile"),
    ("pnpm", "pnpm-lock.yaml"),
    ("poetry", "poetry.lock"),
    ("sbt", "build.sbt"),
    ("stack", "stack.yaml"),
    ("uv", "uv.lock"),
    ("yarn", "yarn.lock"),
];

/// True if one of the project's files shows this program.
pub(crate) fn is_shown(program: &str, files: &[std::path::PathBuf]) -> bool {
    let marks = |pattern: &str| {
        let names = files.iter().filter_map(|file| file.file_name()?.to_str());
        names.into_iter().any(|name| matches_wildcard(pattern, name))
    };
    SHOWS.iter().any(|(shown, pattern)| *shown == program && marks(pattern))
}

impl Ecosystem {
    /// True if a file of this name shows the toolchain.
    fn is_marked_by(&self, name: &str) -> bool {
        self.markers.iter().any(|marker| matches_wildcard(marker, name))
    }
}

/// True if a name matches a pattern, in which `*` stands for any text, also none.
fn matches_wildcard(pattern: &str, name: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(name) = name.strip_prefix(start) else { return false };
    // From the shortest text for `*` to the longest.
    let mut ends = name.char_indices().map(|(at, _)| at).chain([name.len()]);
    ends.any(|at| name.get(at..).is_some_and(|tail| matches_wildcard(rest, tail)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marker_is_a_name_or_a_pattern() {
        assert!(
            matches_wildcard("Cargo.toml", "Cargo.toml")
                && !matches_wildcard("Cargo.toml", "Cargo.tomlx")
        );
        assert!(matches_wildcard("requirements*.txt", "requirements-dev.txt"));
        assert!(matches_wildcard("requirements*.txt", "requirements.txt"));
        assert!(
            matches_wildcard("compose*.y*ml", "compose.prod.yaml")
                && matches_wildcard("*.tf", "a.b.tf")
        );
        assert!(!matches_wildcard("*.tf", "a.tfvars") && !matches_wildcard("*.c", "c"));
    }

    #[test]
    fn a_lock_file_shows_its_package_manager() {
        let files = ["web/pnpm-lock.yaml".into(), "web/package.json".into()];
        assert!(is_shown("pnpm", &files) && !is_shown("yarn", &files) && !is_shown("npm", &files));
    }

    #[test]
    fn names_are_unique_and_every_toolchain_can_be_found() {
        for (at, ecosystem) in ECOSYSTEMS.iter().enumerate() {
            assert!(ECOSYSTEMS.iter().skip(at + 1).all(|other| other.name != ecosystem.name));
            assert!(!ecosystem.markers.is_empty() && !ecosystem.programs.is_empty());
            assert_eq!(find_ecosystem(ecosystem.name), Some(ecosystem));
        }
        assert_eq!(find_ecosystem("cobol"), None);
    }
}
