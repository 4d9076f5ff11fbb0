//! The sandboxes of the standard library, and the modules to load them from.

use super::string_literal;

/// The sandboxes that each library module offers. A test compares the table with the
/// library.
const LIBRARY_SANDBOXES: &[(&str, &[&str])] = &[
    (
        "@clash//sandboxes.star",
        &[
            "asked_web",
            "git_full",
            "git_safe",
            "online",
            "project",
            "readonly",
            "unrestricted",
            "workspace",
        ],
    ),
    ("@clash//agent.star", &["agent"]),
    ("@clash//builtin.star", &["clashbox"]),
    ("@clash//bazel.star", &["bazel_full", "bazel_safe"]),
    ("@clash//c.star", &["c_full", "c_safe"]),
    ("@clash//databases.star", &["databases_full", "databases_safe"]),
    ("@clash//docker.star", &["docker_engine", "docker_full", "docker_safe"]),
    ("@clash//dotnet.star", &["dotnet_full", "dotnet_global", "dotnet_safe"]),
    ("@clash//elixir.star", &["elixir_full", "elixir_global", "elixir_safe"]),
    ("@clash//git.star", &["git_checkout_safe", "git_hooks", "git_rebase_safe"]),
    ("@clash//github.star", &["github_full", "github_safe"]),
    ("@clash//go.star", &["go_full", "go_global", "go_safe"]),
    ("@clash//haskell.star", &["haskell_full", "haskell_global", "haskell_safe"]),
    ("@clash//java.star", &["java_full", "java_safe"]),
    ("@clash//kubernetes.star", &["kubernetes_full", "kubernetes_safe"]),
    ("@clash//make.star", &["make_full", "make_safe"]),
    ("@clash//nix.star", &["nix_full", "nix_safe"]),
    ("@clash//node.star", &["node_full", "node_global", "node_safe"]),
    ("@clash//php.star", &["php_full", "php_safe"]),
    ("@clash//python.star", &["python_full", "python_global", "python_safe"]),
    ("@clash//ruby.star", &["ruby_full", "ruby_global", "ruby_safe"]),
    ("@clash//rust.star", &["rust_full", "rust_global", "rust_safe"]),
    ("@clash//swift.star", &["swift_full", "swift_safe"]),
    ("@clash//terraform.star", &["terraform_full", "terraform_safe"]),
    ("@clash//zig.star", &["zig_full", "zig_safe"]),
];

/// The module of the standard library that offers a sandbox, for example
/// `@clash//rust.star` for `rust_full`.
pub fn library_module(sandbox: &str) -> Option<&'static str> {
    LIBRARY_SANDBOXES.iter().find(|(_, names)| names.contains(&sandbox)).map(|(module, _)| *module)
}

/// `load("@clash//rust.star", "rust_full")`
pub fn load_line(module: &str, names: &[&str]) -> String {
    let names: Vec<String> = names.iter().map(|name| string_literal(name)).collect();
    format!("load({}, {})", string_literal(module), names.join(", "))
}
