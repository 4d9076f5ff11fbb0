//! The protocol between `clash` and the policy compiler `clash-compile`.
//!
//! `clash` starts `clash-compile --protocol=VERSION`, writes one
//! [`request::CompilerRequest`] as JSON to its standard input and closes it. The
//! compiler writes [`report::CompilerEvent`]s as JSON to standard error, one on each
//! line, and the product to standard output: a compiled image, or JSON. For example,
//! a compilation without mistakes writes `started`, an `evaluating` for each place and
//! `compiled`, then the image.
//!
//! Both programs are built from one version of clash. Each `started` event names the
//! version of its compiler, so that `clash` recognises the compiler of another one.

pub mod report;
pub mod request;
pub mod stamp;
pub mod trust;

mod path_text;

/// Raise this number with every change of a type in this crate that a message contains.
pub const PROTOCOL_VERSION: u32 = 2;

/// The version of clash that this code was built from, for example `0.1.0`.
pub const CLASH_VERSION: &str = env!("CARGO_PKG_VERSION");

/// The only argument of `clash-compile`, for example `--protocol=2`.
#[must_use]
pub fn protocol_argument() -> String {
    format!("--protocol={PROTOCOL_VERSION}")
}
