//! Projects of toolchains that fewer machines have.

use super::super::Everyday;
use super::NOTHING;

pub(in super::super) const JUST: Everyday = Everyday {
    toolchain: "make",
    sandboxes: &["make_safe"],
    needs: &["just"],
    files: &[("justfile", "build:\n    echo built > out\ntest: build\n    grep built out\n")],
    steps: &[&["just", "--list"], &["just", "build"], &["just", "test"]],
    ..NOTHING
};

pub(in super::super) const PNPM: Everyday = Everyday {
    toolchain: "node",
    sandboxes: &["node_safe", "node_full"],
    needs: &["node", "pnpm"],
    files: &[
        (
            "package.json",
            r#"{"name": "app", "version": "1.0.0", "scripts": {"test": "node test.js", "build": "node -e 1"}}"#,
        ),
        ("pnpm-lock.yaml", ""),
        ("test.js", "if (require('dep') !== 42) throw new Error('no');\n"),
        ("dep/package.json", r#"{"name": "dep", "version": "1.0.0", "main": "index.js"}"#),
        ("dep/index.js", "module.exports = 42;\n"),
    ],
    nightly: &[
        &["pnpm", "add", "./dep"],
        &["pnpm", "test"],
        &["pnpm", "run", "build"],
        &["pnpm", "exec", "node", "test.js"],
        &["pnpm", "list"],
    ],
    fetching: &[
        &["pnpm", "view", "is-number", "version"],
        &["pnpm", "add", "is-number"],
        &["pnpm", "install", "--frozen-lockfile"],
        &["node", "-e", "if (!require('is-number')(1)) process.exit(1)"],
    ],
    ..NOTHING
};

pub(in super::super) const YARN: Everyday = Everyday {
    toolchain: "node",
    sandboxes: &["node_safe", "node_full"],
    needs: &["node", "yarn"],
    files: &[
        (
            "package.json",
            r#"{"name": "app", "version": "1.0.0", "scripts": {"test": "node test.js"}}"#,
        ),
        ("yarn.lock", ""),
        ("test.js", "if (require('dep') !== 42) throw new Error('no');\n"),
        ("dep/package.json", r#"{"name": "dep", "version": "1.0.0", "main": "index.js"}"#),
        ("dep/index.js", "module.exports = 42;\n"),
    ],
    nightly: &[
        &["yarn", "add", "dep@file:./dep"],
        &["yarn", "test"],
        &["yarn", "run", "test"],
        &["yarn", "install"],
    ],
    fetching: &[&["yarn", "add", "is-number"], &["yarn", "install"]],
    ..NOTHING
};

pub(in super::super) const BUN: Everyday = Everyday {
    toolchain: "node",
    sandboxes: &["node_safe", "node_full"],
    needs: &["bun"],
    files: &[
        (
            "package.json",
            r#"{"name": "app", "version": "1.0.0", "scripts": {"start": "bun main.ts"}}"#,
        ),
        ("bun.lock", ""),
        ("main.ts", "console.log(6 * 7 as number);\n"),
        (
            "main.test.ts",
            "import { test, expect } from 'bun:test';\ntest('x', () => expect(1).toBe(1));\n",
        ),
    ],
    nightly: &[
        &["bun", "main.ts"],
        &["bun", "run", "start"],
        &["bun", "test"],
        &["bun", "build", "main.ts", "--outdir", "out"],
    ],
    fetching: &[&["bun", "add", "is-number"], &["bun", "install", "--frozen-lockfile"]],
    ..NOTHING
};

pub(in super::super) const DENO: Everyday = Everyday {
    toolchain: "node",
    sandboxes: &["node_safe", "node_full"],
    needs: &["deno"],
    files: &[
        ("deno.json", r#"{"tasks": {"start": "deno run main.ts"}}"#),
        ("main.ts", "export const two: number = 2;\nconsole.log(two);\n"),
        (
            "main_test.ts",
            "import { two } from './main.ts';\nDeno.test('x', () => { if (two !== 2) throw new Error(); });\n",
        ),
    ],
    nightly: &[
        &["deno", "run", "main.ts"],
        &["deno", "task", "start"],
        &["deno", "test"],
        &["deno", "fmt", "main.ts"],
        &["deno", "lint", "main.ts"],
        &["deno", "check", "main.ts"],
    ],
    fetching: &[&["deno", "add", "npm:is-number"]],
    ..NOTHING
};

pub(in super::super) const UV: Everyday = Everyday {
    toolchain: "python",
    sandboxes: &["python_safe", "python_full"],
    needs: &["python3", "uv"],
    files: &[
        (
            "pyproject.toml",
            "[project]\nname = \"app\"\nversion = \"1\"\nrequires-python = \">=3.9\"\n",
        ),
        ("app.py", "print(6 * 7)\n"),
        ("dep/pyproject.toml", "[project]\nname = \"dep\"\nversion = \"1\"\n"),
    ],
    nightly: &[
        &["uv", "venv", ".venv"],
        &["uv", "run", "--no-project", "python", "app.py"],
        &["uv", "pip", "list"],
    ],
    fetching: &[
        &["uv", "pip", "install", "pytest"],
        &["uv", "pip", "install", "six"],
        &["uv", "add", "six"],
        &["uv", "lock"],
        &["uv", "sync"],
        &["uv", "run", "--frozen", "python", "-c", "import six"],
        &["uv", "tree", "--frozen"],
    ],
    ..NOTHING
};

pub(in super::super) const POETRY: Everyday = Everyday {
    toolchain: "python",
    sandboxes: &["python_safe", "python_full"],
    needs: &["python3", "poetry"],
    files: &[
        (
            "pyproject.toml",
            "[project]\nname = \"app\"\nversion = \"1\"\nrequires-python = \">=3.9,<4\"\n[tool.poetry]\npackage-mode = false\n",
        ),
        ("app.py", "print(6 * 7)\n"),
    ],
    nightly: &[&["poetry", "check"], &["poetry", "env", "info"]],
    fetching: &[
        &["poetry", "add", "six"],
        &["poetry", "install"],
        &["poetry", "run", "python", "app.py"],
    ],
    ..NOTHING
};

pub(in super::super) const ELIXIR: Everyday = Everyday {
    toolchain: "elixir",
    sandboxes: &["elixir_safe", "elixir_full"],
    needs: &["elixir", "mix"],
    files: &[
        (
            "mix.exs",
            "defmodule App.MixProject do\n  use Mix.Project\n  def project, do: [app: :app, version: \"0.1.0\", deps: [{:dep, path: \"dep\"}]]\nend\n",
        ),
        (
            "dep/mix.exs",
            "defmodule Dep.MixProject do\n  use Mix.Project\n  def project, do: [app: :dep, version: \"0.1.0\"]\nend\n",
        ),
        ("dep/lib/dep.ex", "defmodule Dep do\n  def two, do: 2\nend\n"),
        ("lib/app.ex", "defmodule App do\n  def four, do: 2 * Dep.two()\nend\n"),
        ("test/test_helper.exs", "ExUnit.start()\n"),
        (
            "test/app_test.exs",
            "defmodule AppTest do\n  use ExUnit.Case\n  test \"four\", do: assert App.four() == 4\nend\n",
        ),
    ],
    nightly: &[
        &["mix", "deps.get"],
        &["mix", "compile"],
        &["mix", "test"],
        &["mix", "format", "lib/app.ex"],
        &["mix", "run", "-e", "IO.puts(App.four())"],
        &["elixir", "-e", "IO.puts(1)"],
    ],
    ..NOTHING
};

pub(in super::super) const ERLANG: Everyday = Everyday {
    toolchain: "elixir",
    sandboxes: &["elixir_safe", "elixir_full"],
    needs: &["rebar3", "erl"],
    files: &[
        ("rebar.config", "{erl_opts, [debug_info]}.\n"),
        (
            "src/app.app.src",
            "{application, app, [{vsn, \"1\"}, {applications, [kernel, stdlib]}]}.\n",
        ),
        (
            "src/app.erl",
            "-module(app).\n-export([two/0]).\n-ifdef(TEST).\n-include_lib(\"eunit/include/eunit.hrl\").\ntwo_test() -> 2 = two().\n-endif.\ntwo() -> 2.\n",
        ),
    ],
    nightly: &[&["rebar3", "compile"], &["rebar3", "eunit"], &["erlc", "src/app.erl"]],
    ..NOTHING
};

pub(in super::super) const HASKELL: Everyday = Everyday {
    toolchain: "haskell",
    sandboxes: &["haskell_safe", "haskell_full"],
    needs: &["ghc", "cabal"],
    files: &[
        (
            "app.cabal",
            "cabal-version: 2.0\nname: app\nversion: 1\nbuild-type: Simple\nexecutable app\n  main-is: Main.hs\n  build-depends: base\n  default-language: Haskell2010\ntest-suite works\n  type: exitcode-stdio-1.0\n  main-is: Main.hs\n  build-depends: base\n  default-language: Haskell2010\n",
        ),
        // Whoever has used cabal before has one.
        ("../.cabal/config", ""),
        ("Main.hs", "main :: IO ()\nmain = print (6 * 7 :: Int)\n"),
    ],
    nightly: &[
        &["ghc", "-o", "main", "Main.hs"],
        &["runghc", "Main.hs"],
        &["cabal", "build"],
        &["cabal", "test"],
        &["cabal", "run", "app"],
    ],
    ..NOTHING
};

pub(in super::super) const ZIG: Everyday = Everyday {
    toolchain: "zig",
    sandboxes: &["zig_safe", "zig_full"],
    needs: &["zig"],
    files: &[
        (
            "build.zig",
            "const std = @import(\"std\");\npub fn build(b: *std.Build) void {\n    _ = b;\n}\n",
        ),
        (
            "main.zig",
            "pub fn main() void {}\ntest \"two\" {\n    if (1 + 1 != 2) return error.Wrong;\n}\n",
        ),
    ],
    nightly: &[
        &["zig", "test", "main.zig"],
        &["zig", "run", "main.zig"],
        &["zig", "build-exe", "main.zig"],
        &["zig", "fmt", "main.zig"],
    ],
    ..NOTHING
};

pub(in super::super) const TERRAFORM: Everyday = Everyday {
    toolchain: "terraform",
    sandboxes: &["terraform_safe", "terraform_full"],
    needs: &["terraform"],
    files: &[("main.tf", "output \"answer\" {\n  value = 6 * 7\n}\n")],
    nightly: &[
        &["terraform", "fmt"],
        &["terraform", "init"],
        &["terraform", "validate"],
        &["terraform", "plan"],
    ],
    asked: &["terraform apply -auto-approve", "terraform output"],
    ..NOTHING
};

pub(in super::super) const KUBERNETES: Everyday = Everyday {
    toolchain: "kubernetes",
    sandboxes: &["kubernetes_safe"],
    needs: &["kubectl"],
    files: &[
        ("kustomization.yaml", "resources: [one.yaml]\n"),
        ("one.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: one}\n"),
    ],
    nightly: &[&["kubectl", "kustomize", "."]],
    asked: &["kubectl version --client"],
    ..NOTHING
};

pub(in super::super) const BAZEL: Everyday = Everyday {
    toolchain: "bazel",
    sandboxes: &["bazel_safe", "bazel_full"],
    needs: &["bazel"],
    files: &[
        ("WORKSPACE", ""),
        ("BUILD", "genrule(name = \"x\", outs = [\"out\"], cmd = \"echo 42 > $@\")\n"),
    ],
    nightly: &[&["bazel", "build", "//:x"], &["bazel", "query", "//..."], &["bazel", "clean"]],
    ..NOTHING
};

pub(in super::super) const GITHUB: Everyday = Everyday {
    toolchain: "github",
    sandboxes: &[],
    needs: &["gh"],
    files: &[(".github/workflows/ci.yml", "on: push\n")],
    steps: &[&["gh", "version"]],
    ..NOTHING
};
