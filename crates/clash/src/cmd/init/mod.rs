//! `clash init`: from nothing to a policy that knows the project.

mod generate;
mod posture;
mod presets;
