//! The standard library: `.star` files that are part of the program, and native modules,
//! which export builders.

use starlark::environment::{FrozenModule, Globals, GlobalsBuilder, LibraryExtension};
use starlark::values::FreezeResult;

use crate::builders;
use crate::older::match_tree_names;

/// The lowest layer of every stack: the default, and the presets by their names.
pub const BUILT_IN: &str = "@clash//default.star";

const LIBRARY_SOURCES: &[(&str, &str)] = &[
    ("@clash//agent.star", include_str!("../std/agent.star")),
    ("@clash//bazel.star", include_str!("../std/bazel.star")),
    ("@clash//builtin.star", include_str!("../std/builtin.star")),
    ("@clash//c.star", include_str!("../std/c.star")),
    ("@clash//databases.star", include_str!("../std/databases.star")),
    ("@clash//default.star", include_str!("../std/default.star")),
    ("@clash//docker.star", include_str!("../std/docker.star")),
    ("@clash//dotnet.star", include_str!("../std/dotnet.star")),
    ("@clash//elixir.star", include_str!("../std/elixir.star")),
    ("@clash//files.star", include_str!("../std/files.star")),
    ("@clash//git.star", include_str!("../std/git.star")),
    ("@clash//github.star", include_str!("../std/github.star")),
    ("@clash//go.star", include_str!("../std/go.star")),
    ("@clash//haskell.star", include_str!("../std/haskell.star")),
    ("@clash//java.star", include_str!("../std/java.star")),
    ("@clash//kubernetes.star", include_str!("../std/kubernetes.star")),
    ("@clash//make.star", include_str!("../std/make.star")),
    ("@clash//nix.star", include_str!("../std/nix.star")),
    ("@clash//node.star", include_str!("../std/node.star")),
    ("@clash//php.star", include_str!("../std/php.star")),
    ("@clash//python.star", include_str!("../std/python.star")),
    ("@clash//removal.star", include_str!("../std/removal.star")),
    ("@clash//ruby.star", include_str!("../std/ruby.star")),
    ("@clash//rust.star", include_str!("../std/rust.star")),
    ("@clash//sandboxes.star", include_str!("../std/sandboxes.star")),
    ("@clash//swift.star", include_str!("../std/swift.star")),
    ("@clash//terraform.star", include_str!("../std/terraform.star")),
    ("@clash//toolchain.star", include_str!("../std/toolchain.star")),
    ("@clash//zig.star", include_str!("../std/zig.star")),
];

/// Native modules, each with its description.
pub(crate) const NATIVE_MODULES: &[(&str, &str)] = &[
    ("@clash//std.star", "Every name that is available without load()."),
    ("@clash//match_tree.star", "The conditions of older policies, besides every other name."),
    ("@clash//claude_compat.star", "The permissions of Claude Code's own settings."),
];

/// The names and sources of the modules that are not native.
pub fn modules() -> impl Iterator<Item = (&'static str, &'static str)> {
    LIBRARY_SOURCES.iter().copied()
}

/// The names of all modules that can be loaded.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    modules().map(|(name, _)| name).chain(NATIVE_MODULES.iter().map(|(name, _)| *name))
}

/// The source of a library module; `None` for a native module or an unknown name.
pub(crate) fn source(name: &str) -> Option<&'static str> {
    modules().find(|(known, _)| *known == name).map(|(_, source)| source)
}

/// The names that a policy can use without `load()`.
pub(crate) fn globals() -> Globals {
    GlobalsBuilder::extended_by(&[LibraryExtension::StructType]).with(builders::names).build()
}

/// A native module; `None` if there is none of this name.
pub(crate) fn native(name: &str) -> Option<FreezeResult<FrozenModule>> {
    let (name, doc) = NATIVE_MODULES.iter().find(|(known, _)| *known == name)?;
    let mut builder = GlobalsBuilder::new().with(builders::names);
    if *name == "@clash//match_tree.star" {
        builder = builder.with(match_tree_names);
    }
    builder.set_docstring(doc);
    Some(FrozenModule::from_globals(&builder.build()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_builder_can_also_be_loaded() {
        let std = native("@clash//std.star").unwrap().unwrap();
        let standard = Globals::extended_by(&[LibraryExtension::StructType]);
        let standard: Vec<String> = standard.names().map(|name| name.as_str().to_owned()).collect();
        let mut count = 0;
        for name in globals().names().map(|name| name.as_str().to_owned()) {
            if !standard.contains(&name) {
                assert!(std.get(&name).is_ok(), "{name}");
                count += 1;
            }
        }
        assert!(count >= 40, "{count}");
    }
}
