//! The projects of the toolchain tests: their files and everyday commands. Commands that
//! need the network are in `fetching`.

mod rarer;

pub(super) use rarer::*;

use super::Everyday;

const NOTHING: Everyday = Everyday {
    toolchain: "",
    sandboxes: &[],
    needs: &[],
    files: &[],
    service: None,
    steps: &[],
    nightly: &[],
    asked: &[],
    fetching: &[],
};

pub(super) const GIT: Everyday = Everyday {
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
    ..NOTHING
};

pub(super) const C_AND_MAKE: Everyday = Everyday {
    toolchain: "make",
    sandboxes: &["make_safe", "make_full", "c_safe", "c_full"],
    needs: &["make", "cc"],
    files: &[
        ("main.c", "#include <stdio.h>\nint main(void) { puts(\"works\"); return 0; }\n"),
        ("Makefile", "app: main.c\n\tcc -o app main.c\ntest: app\n\t./app | grep works\n"),
    ],
    steps: &[&["make"], &["make", "test"], &["cc", "-Wall", "-c", "main.c"], &["ls", "-l"]],
    ..NOTHING
};

pub(super) const CMAKE: Everyday = Everyday {
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
    ..NOTHING
};

pub(super) const NODE: Everyday = Everyday {
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
    fetching: &[
        &["npm", "install", "is-number"],
        &["node", "-e", "if (!require('is-number')(1)) process.exit(1)"],
        &["npm", "install", "--save-dev", "prettier"],
        &["npx", "prettier", "--write", "test.js"],
        &["npm", "ci"],
    ],
    ..NOTHING
};

pub(super) const PYTHON: Everyday = Everyday {
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
        &["python3", "-m", "venv", "--without-pip", ".venv"],
        &["python3", "-m", "venv", "--without-pip", "--clear", ".venv"],
        &[".venv/bin/python", "-m", "compileall", "-q", "app.py"],
    ],
    nightly: &[
        &["python3", "-m", "venv", "venv"],
        // Writes the protected activation scripts again, with the same text.
        &["python3", "-m", "venv", "venv"],
        &["python3", "-m", "venv", "--clear", "venv"],
    ],
    fetching: &[
        &["venv/bin/pip", "install", "-q", "pytest"],
        &["venv/bin/pytest", "-q"],
        &["venv/bin/pip", "install", "-q", "ruff"],
        &["venv/bin/ruff", "format", "app.py"],
        &["venv/bin/python", "-m", "pip", "list"],
    ],
    ..NOTHING
};

pub(super) const JAVA: Everyday = Everyday {
    toolchain: "java",
    sandboxes: &["java_safe", "java_full"],
    needs: &["java", "javac"],
    files: &[
        ("settings.gradle", ""),
        (
            "Main.java",
            "class Main { public static void main(String[] a) { System.out.println(1); } }\n",
        ),
    ],
    steps: &[&["javac", "Main.java"], &["java", "Main"], &["jar", "cf", "app.jar", "Main.class"]],
    ..NOTHING
};

/// Uses the repository of Debian's packages of Maven plugins. Java reads the home from the
/// user database, where the user `nobody` has none.
pub(super) const MAVEN: Everyday = Everyday {
    toolchain: "java",
    sandboxes: &["java_safe", "java_full"],
    needs: &["mvn"],
    files: &[
        (
            "pom.xml",
            "<project xmlns=\"http://maven.apache.org/POM/4.0.0\"><modelVersion>4.0.0</modelVersion>
            <groupId>a</groupId><artifactId>b</artifactId><version>1</version>
            <properties><maven.compiler.source>8</maven.compiler.source><maven.compiler.target>8</maven.compiler.target></properties>
            <repositories><repository><id>central</id><url>file:///usr/share/maven-repo</url></repository></repositories>
            <pluginRepositories><pluginRepository><id>central</id><url>file:///usr/share/maven-repo</url></pluginRepository></pluginRepositories>
            <dependencies><dependency><groupId>junit</groupId><artifactId>junit</artifactId><version>4.x</version><scope>test</scope></dependency></dependencies>
            </project>\n",
        ),
        ("src/main/java/App.java", "public class App { public int one() { return 1; } }\n"),
        (
            "src/test/java/AppTest.java",
            "import org.junit.*;\npublic class AppTest { @Test public void one() { Assert.assertEquals(1, new App().one()); } }\n",
        ),
    ],
    fetching: &[
        &["mvn", "-q", "-B", "-Dmaven.repo.local=../.m2/repository", "package"],
        &["mvn", "-q", "-B", "-o", "-Dmaven.repo.local=../.m2/repository", "test"],
    ],
    ..NOTHING
};

pub(super) const SQLITE: Everyday = Everyday {
    toolchain: "databases",
    sandboxes: &["databases_safe", "databases_full"],
    needs: &["sqlite3"],
    files: &[("app.sqlite", "")],
    steps: &[
        &["sqlite3", "app.sqlite", "create table t (x); insert into t values (1);"],
        &["sqlite3", "app.sqlite", ".dump"],
    ],
    ..NOTHING
};

pub(super) const POSTGRES: Everyday = Everyday {
    toolchain: "databases",
    sandboxes: &["databases_full"],
    needs: &["psql", "initdb", "postgres"],
    files: &[("app.sqlite", ""), ("new.sql", "create table t (x int);\n")],
    service: Some(
        "initdb -D data -A trust -U postgres && exec postgres -D data -k $PWD -p PORT -c listen_addresses=127.0.0.1",
    ),
    asked: &[
        "createdb -h 127.0.0.1 -p PORT -U postgres app",
        "psql -h 127.0.0.1 -p PORT -U postgres -v ON_ERROR_STOP=1 -f new.sql app",
        "psql -h 127.0.0.1 -p PORT -U postgres -c 'insert into t values (6 * 7)' app",
        "pg_dump -h 127.0.0.1 -p PORT -U postgres app",
        "dropdb -h 127.0.0.1 -p PORT -U postgres app",
    ],
    ..NOTHING
};

pub(super) const REDIS: Everyday = Everyday {
    toolchain: "databases",
    sandboxes: &["databases_full"],
    needs: &["redis-cli", "redis-server"],
    files: &[("app.sqlite", "")],
    service: Some("exec redis-server --bind 127.0.0.1 --port PORT --save ''"),
    asked: &["redis-cli -e -p PORT set answer 42", "redis-cli -e -p PORT get answer"],
    ..NOTHING
};

pub(super) const GO: Everyday = Everyday {
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
    ..NOTHING
};

pub(super) const RUBY: Everyday = Everyday {
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
    ..NOTHING
};

pub(super) const RUBY_STYLE: Everyday = Everyday {
    toolchain: "ruby",
    needs: &["ruby", "rubocop"],
    files: &[
        ("Gemfile", ""),
        ("sum.rb", "def sum(a,b)\n  a+b\nend\n"),
        (
            "sum_test.rb",
            "require 'minitest/autorun'\nrequire_relative 'sum'\nclass SumTest < Minitest::Test\n  def test_sum\n    assert_equal 3, sum(1, 2)\n  end\nend\n",
        ),
    ],
    nightly: &[
        &["rubocop", "--only", "Layout", "--autocorrect", "sum.rb"],
        &["ruby", "sum_test.rb"],
    ],
    ..NOTHING
};

pub(super) const PHP_STYLE: Everyday = Everyday {
    toolchain: "php",
    needs: &["php", "phpcbf", "phpunit"],
    files: &[
        ("composer.json", "{}\n"),
        ("Sum.php", "<?php\n\nfunction sum(int $a, int $b): int\n{\n    return $a + $b;\n}\n"),
        (
            "SumTest.php",
            "<?php\nrequire __DIR__ . '/Sum.php';\nclass SumTest extends PHPUnit\\Framework\\TestCase\n{\n    public function testSum(): void\n    {\n        $this->assertSame(3, sum(1, 2));\n    }\n}\n",
        ),
    ],
    nightly: &[
        // Ends with 1 where it has changed something.
        &["phpcbf", "--standard=PSR12", "Sum.php"],
        &["phpcs", "--standard=PSR12", "Sum.php"],
        &["phpunit", "SumTest.php"],
    ],
    ..NOTHING
};

pub(super) const PHP: Everyday = Everyday {
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
    ..NOTHING
};

pub(super) const RUST: Everyday = Everyday {
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
    ..NOTHING
};

pub(super) const CPP: Everyday = Everyday {
    toolchain: "c",
    sandboxes: &["c_safe", "c_full", "make_safe"],
    needs: &["meson", "ninja", "g++", "clang-format", "ccache"],
    files: &[
        ("meson.build", "project('app', 'cpp')\ntest('app', executable('app', 'main.cpp'))\n"),
        ("main.cpp", "#include <vector>\nint main() { return std::vector<int>{}.size(); }\n"),
        ("Makefile", "all:\n\tccache g++ -c main.cpp\n"),
    ],
    nightly: &[
        &["g++", "-Wall", "-o", "app", "main.cpp"],
        &["clang-format", "-i", "main.cpp"],
        &["ccache", "g++", "-c", "main.cpp"],
        &["make"],
        &["meson", "setup", "build"],
        &["ninja", "-C", "build"],
        &["meson", "test", "-C", "build"],
    ],
    ..NOTHING
};
