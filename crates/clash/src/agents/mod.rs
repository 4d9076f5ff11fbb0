//! One adapter per agent: its JSON to an [`clash_policy::Action`], a decision
//! to its JSON.

pub(crate) mod claude;
pub(crate) mod homes;
