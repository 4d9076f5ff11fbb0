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
    /// Steps that need the network or take long.
    nightly: &'static [&'static [&'static str]],
}

#[test]
fn git() {
    everyday(&Everyday {
        toolchain: "git",
        sandboxes: &["git_safe"],
        needs: &["git"],
        files: &[("a.txt", "one\n"), (".git/placeholder", "")],
        steps: &[
            &["git", "init", "-q"],
            &["git", "config", "user.name", "a"],
            &["git", "status", "--porcelain"],
        ],
        nightly: &[],
    });
}

#[test]
fn git_in_a_repository() {
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
        nightly: &[
            &["npm", "install", "is-number"],
            &["node", "-e", "if (!require('is-number')(1)) process.exit(1)"],
            &["npm", "install", "--save-dev", "prettier"],
            &["npx", "prettier", "--write", "test.js"],
            &["npm", "ci"],
            &["npm", "outdated"],
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
        nightly: &[
            &["python3", "-m", "venv", ".venv"],
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
        nightly: &[&["mvn", "-q", "-B", "package"], &["mvn", "-q", "-B", "-o", "test"]],
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
    });
}

#[test]
fn go() {
    everyday(&Everyday {
        toolchain: "go",
        sandboxes: &["go_safe", "go_full"],
        needs: &["go", "gofmt"],
        files: &[
            ("go.mod", "module example.test/app\n\ngo 1.18\n"),
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
            &["go", "get", "github.com/pkg/errors@v0.9.1"],
            &["go", "mod", "download"],
            &["go", "mod", "tidy"],
        ],
    });
}

#[test]
fn ruby() {
    everyday(&Everyday {
        toolchain: "ruby",
        sandboxes: &["ruby_safe", "ruby_full"],
        needs: &["ruby", "bundle"],
        files: &[
            ("Gemfile", "source \"https://rubygems.org\"\n"),
            ("main.rb", "puts 6 * 7\n"),
            ("Rakefile", "task(:default) { ruby \"main.rb\" }\n"),
        ],
        steps: &[&["ruby", "main.rb"]],
        nightly: &[
            &["bundle", "add", "rake"],
            &["bundle", "install"],
            &["bundle", "exec", "rake"],
            &["gem", "list"],
        ],
    });
}

#[test]
fn php() {
    everyday(&Everyday {
        toolchain: "php",
        sandboxes: &["php_safe", "php_full"],
        needs: &["php", "composer"],
        files: &[
            ("composer.json", "{\"name\": \"a/app\"}\n"),
            (
                "main.php",
                "<?php require 'vendor/autoload.php'; echo interface_exists('Psr\\\\Log\\\\LoggerInterface') ? 'ok' : exit(1);\n",
            ),
        ],
        steps: &[&["php", "-r", "echo 1;"]],
        nightly: &[
            &["composer", "require", "--no-interaction", "psr/log"],
            &["composer", "dump-autoload"],
            &["php", "main.php"],
        ],
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
            &["cargo", "add", "itoa"],
            &["cargo", "build"],
            &["cargo", "run"],
            &["cargo", "fmt"],
            &["cargo", "clippy"],
            &["cargo", "update"],
            &["cargo", "tree"],
            &["cargo", "doc", "--no-deps"],
        ],
    });
}

fn everyday(it: &Everyday) {
    let nightly = std::env::var_os("CLASH_NIGHTLY").is_some();
    let steps: Vec<&&[&str]> =
        it.steps.iter().chain(if nightly { it.nightly } else { &[] }).collect();
    if !nightly && !it.nightly.is_empty() && it.steps.is_empty() {
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
        let _ = std::fs::remove_dir_all(m.project().join(".git/placeholder"));
        Ran::of(m.command("git").args(["init", "-q"])).succeeds();
    }
    let run = |args: &[&str]| {
        let mut command = m.command(clash());
        // What a company's mirror or certificate needs to be known to everybody.
        for name in [
            "SSL_CERT_FILE",
            "NODE_EXTRA_CA_CERTS",
            "PIP_CERT",
            "GOPROXY",
            "CARGO_HTTP_CAINFO",
            "RUSTUP_HOME",
        ] {
            command.envs(std::env::var_os(name).map(|value| (name, value)));
        }
        let rustup = std::env::home_dir().map(|home| home.join(".rustup"));
        if it.toolchain == "rust"
            && let Some(rustup) = rustup
        {
            command.env("RUSTUP_HOME", rustup);
        }
        command.env("PATH", &search).env("BUNDLE_PATH", "vendor/bundle").args(args);
        Ran::of(&mut command)
    };
    run(&["init", "--quick", "--agent", "none"])
        .succeeds()
        .says(&format!("found: {}", it.toolchain));
    for step in steps {
        let ran = run(&[&["exec", "--"], *step].concat());
        assert_eq!(ran.code, Some(0), "{step:?}: {ran:?}\n{}", decided(&m, step));
        assert!(!ran.stdout.contains(SECRET) && !ran.stderr.contains(SECRET), "{step:?}: {ran:?}");
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
