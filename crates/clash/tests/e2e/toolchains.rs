//! A fresh project of each toolchain: `clash init --quick`, then the everyday
//! commands as an agent would send them, each decided by the generated policy and
//! run in the sandbox it names. One that is refused or fails is a false block.
//!
//! What fetches from a registry or takes long runs with `CLASH_NIGHTLY=1`. A
//! toolchain that is not installed is skipped, loudly.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{Machine, Ran, Who, clash, is_root, skipped};

const SECRET: &str = "secret-key-material";

/// Everyday work with one toolchain.
struct Everyday {
    toolchain: &'static str,
    /// Sandboxes in which nothing of the user's may be reached.
    sandboxes: &'static [&'static str],
    needs: &'static [&'static str],
    files: &'static [(&'static str, &'static str)],
    steps: &'static [&'static [&'static str]],
    /// Steps that take long.
    nightly: &'static [&'static [&'static str]],
    /// Steps that fetch; skipped where the first of them fails without clash as well.
    fetching: &'static [&'static [&'static str]],
}

#[test]
fn git() {
    everyday(&Everyday {
        toolchain: "git",
        sandboxes: &["git_safe"],
        needs: &["git"],
        files: &[("a.txt", "one\n")],
        steps: &[
            &["git", "status", "--porcelain"],
            &["git", "add", "-A"],
            &["git", "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "first"],
            &["git", "checkout", "-qb", "topic"],
            &["git", "diff", "HEAD", "--stat"],
            &["git", "log", "--oneline"],
            &["git", "branch", "--list"],
            &["git", "remote", "-v"],
        ],
        nightly: &[],
        fetching: &[],
    });
}

#[test]
fn c_and_make() {
    everyday(&Everyday {
        toolchain: "make",
        sandboxes: &["make_safe", "make_full", "c_safe", "c_full"],
        needs: &["make", "cc"],
        files: &[
            ("main.c", "#include <stdio.h>\nint main(void) { puts(\"works\"); return 0; }\n"),
            ("Makefile", "app: main.c\n\tcc -o app main.c\ntest: app\n\t./app | grep works\n"),
        ],
        steps: &[&["make"], &["make", "test"], &["cc", "-Wall", "-c", "main.c"], &["ls", "-l"]],
        nightly: &[],
        fetching: &[],
    });
}

#[test]
fn cmake() {
    everyday(&Everyday {
        toolchain: "c",
        sandboxes: &["make_safe"],
        needs: &["cmake", "make", "cc"],
        files: &[
            ("main.c", "int main(void) { return 0; }\n"),
            (
                "CMakeLists.txt",
                "cmake_minimum_required(VERSION 3.20)\nproject(app C)\nadd_executable(app main.c)\nenable_testing()\nadd_test(app app)\n",
            ),
        ],
        steps: &[
            &["cmake", "-B", "build"],
            &["cmake", "--build", "build"],
            &["ctest", "--test-dir", "build"],
        ],
        nightly: &[],
        fetching: &[],
    });
}

#[test]
fn node() {
    everyday(&Everyday {
        toolchain: "node",
        sandboxes: &["node_safe", "node_full"],
        needs: &["node", "npm"],
        files: &[
            (
                "package.json",
                r#"{"name": "app", "version": "1.0.0", "scripts": {"test": "node test.js", "build": "node -e \"require('fs').writeFileSync('out.js', '')\""}}"#,
            ),
            ("test.js", "if (require('dep') !== 42) throw new Error('no');\n"),
            ("dep/package.json", r#"{"name": "dep", "version": "1.0.0", "main": "index.js"}"#),
            ("dep/index.js", "module.exports = 42;\n"),
        ],
        steps: &[
            &["npm", "install", "--no-audit", "--no-fund", "./dep"],
            &["npm", "test"],
            &["npm", "run", "build"],
            &["node", "test.js"],
        ],
        nightly: &[],
        fetching: &[
            &["npm", "install", "is-number"],
            &["node", "-e", "if (!require('is-number')(1)) process.exit(1)"],
            &["npm", "install", "--save-dev", "prettier"],
            &["npx", "prettier", "--write", "test.js"],
            &["npm", "ci"],
        ],
    });
}

#[test]
fn python() {
    everyday(&Everyday {
        toolchain: "python",
        sandboxes: &["python_safe", "python_full"],
        needs: &["python3"],
        files: &[
            ("pyproject.toml", "[project]\nname = \"app\"\nversion = \"1\"\n"),
            ("app.py", "def double(n):\n    return 2 * n\n"),
            (
                "test_app.py",
                "import unittest, multiprocessing, app\nclass T(unittest.TestCase):\n    def test(self):\n        with multiprocessing.Pool(2) as pool:\n            self.assertEqual(pool.map(app.double, [1, 2]), [2, 4])\n    def test_plain(self):\n        assert app.double(1) == 2\n",
            ),
        ],
        steps: &[
            &["python3", "-m", "unittest", "-q"],
            &["python3", "-c", "import app, ssl, sqlite3; print(app.double(2))"],
            &["python3", "-m", "venv", "--without-pip", ".venv"],
            &[".venv/bin/python", "-m", "compileall", "-q", "app.py"],
        ],
        nightly: &[&["python3", "-m", "venv", "--clear", ".venv"]],
        fetching: &[
            &[".venv/bin/pip", "install", "-q", "pytest"],
            &[".venv/bin/pytest", "-q"],
            &[".venv/bin/pip", "install", "-q", "ruff"],
            &[".venv/bin/ruff", "format", "app.py"],
            &[".venv/bin/python", "-m", "pip", "list"],
        ],
    });
}

#[test]
fn java() {
    everyday(&Everyday {
        toolchain: "java",
        sandboxes: &["java_safe", "java_full"],
        needs: &["java", "javac"],
        files: &[
            (
                "Main.java",
                "class Main { public static void main(String[] a) { System.out.println(1); } }\n",
            ),
            (
                "pom.xml",
                "<project xmlns=\"http://maven.apache.org/POM/4.0.0\"><modelVersion>4.0.0</modelVersion><groupId>a</groupId><artifactId>b</artifactId><version>1</version><properties><maven.compiler.source>17</maven.compiler.source><maven.compiler.target>17</maven.compiler.target></properties></project>\n",
            ),
            ("src/main/java/App.java", "public class App { int one() { return 1; } }\n"),
        ],
        steps: &[
            &["javac", "Main.java"],
            &["java", "Main"],
            &["jar", "cf", "app.jar", "Main.class"],
        ],
        nightly: &[],
        fetching: &[&["mvn", "-q", "-B", "package"], &["mvn", "-q", "-B", "-o", "test"]],
    });
}

#[test]
fn sqlite() {
    everyday(&Everyday {
        toolchain: "databases",
        sandboxes: &["databases_safe", "databases_full"],
        needs: &["sqlite3"],
        files: &[("app.sqlite", "")],
        steps: &[
            &["sqlite3", "app.sqlite", "create table t (x); insert into t values (1);"],
            &["sqlite3", "app.sqlite", ".dump"],
        ],
        nightly: &[],
        fetching: &[],
    });
}

#[test]
fn go() {
    everyday(&Everyday {
        toolchain: "go",
        sandboxes: &["go_safe", "go_full"],
        needs: &["go", "gofmt"],
        files: &[
            ("go.mod", "module example.test/app\n\ngo 1.18\n\nreplace example.test/dep => ./dep\n"),
            ("dep/go.mod", "module example.test/dep\n\ngo 1.18\n"),
            ("dep/dep.go", "package dep\n\nfunc Two() int { return 2 }\n"),
            (
                "main.go",
                "package main\n\nimport \"fmt\"\n\nfunc Double(n int) int { return 2 * n }\n\nfunc main() { fmt.Println(Double(2)) }\n",
            ),
            (
                "main_test.go",
                "package main\n\nimport \"testing\"\n\nfunc TestDouble(t *testing.T) {\n\tif Double(1) != 2 {\n\t\tt.Fail()\n\t}\n}\n",
            ),
        ],
        steps: &[],
        nightly: &[
            &["go", "build", "./..."],
            &["go", "test", "./..."],
            &["go", "vet", "./..."],
            &["go", "run", "."],
            &["gofmt", "-w", "main.go"],
            &["go", "mod", "edit", "-require=example.test/dep@v0.0.0"],
            &["go", "build", "./..."],
            &["go", "mod", "tidy"],
        ],
        fetching: &[],
    });
}

#[test]
fn ruby() {
    everyday(&Everyday {
        toolchain: "ruby",
        sandboxes: &["ruby_safe", "ruby_full"],
        needs: &["ruby", "bundle"],
        files: &[
            ("Gemfile", "gem \"dep\", path: \"dep\"\n"),
            (
                "dep/dep.gemspec",
                "Gem::Specification.new { |s| s.name = 'dep'; s.version = '1'; s.summary = 'x'; s.authors = ['a']; s.files = ['lib/dep.rb'] }\n",
            ),
            ("dep/lib/dep.rb", "TWO = 2\n"),
            ("main.rb", "require 'dep'; exit 1 unless TWO == 2\n"),
        ],
        steps: &[&["ruby", "-e", "puts 6 * 7"]],
        nightly: &[
            &["bundle", "install"],
            &["bundle", "exec", "ruby", "main.rb"],
            &["bundle", "list"],
            &["gem", "list"],
            &["gem", "build", "-C", "dep", "dep.gemspec"],
        ],
        fetching: &[],
    });
}

#[test]
fn php() {
    everyday(&Everyday {
        toolchain: "php",
        sandboxes: &["php_safe", "php_full"],
        needs: &["php", "composer"],
        files: &[
            (
                "composer.json",
                "{\"name\": \"a/app\", \"repositories\": [{\"type\": \"path\", \"url\": \"./dep\"}, {\"packagist\": false}]}\n",
            ),
            (
                "dep/composer.json",
                "{\"name\": \"a/dep\", \"version\": \"1.0.0\", \"autoload\": {\"files\": [\"dep.php\"]}}\n",
            ),
            ("dep/dep.php", "<?php function two() { return 2; }\n"),
            ("main.php", "<?php require 'vendor/autoload.php'; exit(two() === 2 ? 0 : 1);\n"),
        ],
        steps: &[&["php", "-r", "echo 1;"]],
        nightly: &[
            &["composer", "require", "--no-interaction", "a/dep"],
            &["composer", "dump-autoload"],
            &["php", "main.php"],
        ],
        fetching: &[],
    });
}

#[test]
fn rust() {
    everyday(&Everyday {
        toolchain: "rust",
        sandboxes: &["rust_safe", "rust_full"],
        needs: &["cargo"],
        files: &[
            ("Cargo.toml", "[package]\nname = \"app\"\nversion = \"0.1.0\"\nedition = \"2021\"\n"),
            (
                "src/main.rs",
                "fn main() { println!(\"{}\", 6 * 7); }\n#[test]\nfn works() { assert_eq!(6 * 7, 42); }\n",
            ),
        ],
        steps: &[],
        nightly: &[
            &["cargo", "build"],
            &["cargo", "test"],
            &["cargo", "run"],
            &["cargo", "fmt"],
            &["cargo", "clippy"],
            &["cargo", "doc", "--no-deps"],
        ],
        fetching: &[
            &["cargo", "add", "itoa"],
            &["cargo", "build"],
            &["cargo", "update"],
            &["cargo", "tree"],
        ],
    });
}

fn everyday(it: &Everyday) {
    let nightly = std::env::var_os("CLASH_NIGHTLY").is_some();
    if !nightly && it.steps.is_empty() {
        return skipped(&format!("{} in its sandboxes, without CLASH_NIGHTLY=1", it.toolchain));
    }
    let (who, search) = match toolchain_path(it) {
        Ok(found) => found,
        Err(missing) => {
            return skipped(&format!("{} in its sandboxes: there is no {missing}", it.toolchain));
        }
    };
    let m = Machine::new(who);
    for (name, text) in it.files {
        m.write(Path::new("app").join(name), text);
    }
    m.write(".ssh/id_ed25519", SECRET);
    m.write(".npmrc", &format!("//registry.test/:_authToken={SECRET}\n"));
    m.write(".cargo/credentials.toml", SECRET);
    m.write(".m2/settings.xml", &format!("<settings><!-- {SECRET} --></settings>"));
    m.write("other/file", SECRET);
    if it.toolchain == "git" {
        Ran::of(m.command("git").args(["init", "-q"])).succeeds();
    }
    let equipped = |mut command: Command| {
        // What a company's mirror or certificate needs to be known to everybody.
        for name in
            ["SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS", "PIP_CERT", "GOPROXY", "CARGO_HTTP_CAINFO"]
        {
            command.envs(std::env::var_os(name).map(|value| (name, value)));
        }
        let rustup = std::env::home_dir().map(|home| home.join(".rustup"));
        command.envs(rustup.filter(|_| it.toolchain == "rust").map(|dir| ("RUSTUP_HOME", dir)));
        command.env("PATH", &search).env("BUNDLE_PATH", "vendor/bundle");
        command
    };
    let run = |args: &[&str]| Ran::of(equipped(m.command(clash())).args(args));
    run(&["init", "--quick", "--agent", "none"])
        .succeeds()
        .says(&format!("found: {}", it.toolchain));
    let step = |step: &[&str]| {
        let ran = run(&[&["exec", "--"], step].concat());
        assert_eq!(ran.code, Some(0), "{step:?}: {ran:?}\n{}", decided(&m, step));
        assert!(!ran.stdout.contains(SECRET) && !ran.stderr.contains(SECRET), "{step:?}: {ran:?}");
    };
    it.steps.iter().for_each(|it| step(it));
    if nightly {
        it.nightly.iter().for_each(|it| step(it));
        let bare = |step: &[&str]| {
            let (program, args) = step.split_first().unwrap();
            Ran::of(equipped(m.command(program)).args(args)).code == Some(0)
        };
        match it.fetching.first() {
            // What it fetched is fetched again, or found.
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
        let reach = "cat ~/.ssh/id_ed25519 ~/.npmrc ~/.cargo/credentials.toml ~/.m2/settings.xml ~/other/file; ls ~/other";
        let ran = run(&["sandbox", "exec", sandbox, "--", "sh", "-c", reach]);
        assert!(!ran.stdout.contains(SECRET) && !ran.stdout.contains("file"), "{sandbox}: {ran:?}");
        for outside in ["~/other/new", "~/.bashrc", "~/.cargo/bin/x", "~/.config/clash/policy.star"]
        {
            run(&["sandbox", "exec", sandbox, "--", "sh", "-c", &format!("echo x > {outside}")])
                .fails();
        }
    }
}

fn decided(m: &Machine, step: &[&str]) -> String {
    m.clash(["explain", "bash", &step.join(" ")]).stdout
}

/// Who can run the toolchain, and the search path that finds it: a plain user if
/// it is installed for everybody.
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

/// The toolchain that built these tests.
fn rust_toolchain() -> Option<PathBuf> {
    let output = Command::new("rustc").args(["--print", "sysroot"]).output().ok()?;
    Some(Path::new(String::from_utf8_lossy(&output.stdout).trim()).join("bin"))
}
