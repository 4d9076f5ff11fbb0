//! The standard library: `.star` files that come with the program.

/// The lowest layer of every stack: the default, and every preset by name.
pub const BUILT_IN: &str = "@clash//builtin.star";

const MODULES: &[(&str, &str)] = &[
    ("@clash//builtin.star", include_str!("../std/builtin.star")),
    ("@clash//git.star", include_str!("../std/git.star")),
    ("@clash//rust.star", include_str!("../std/rust.star")),
    ("@clash//sandboxes.star", include_str!("../std/sandboxes.star")),
];

/// Names and sources of all modules.
pub fn modules() -> impl Iterator<Item = (&'static str, &'static str)> {
    MODULES.iter().copied()
}

pub(crate) fn source(name: &str) -> Option<&'static str> {
    modules().find(|(known, _)| *known == name).map(|(_, source)| source)
}
