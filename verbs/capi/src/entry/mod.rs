//! What crosses the boundary to C: arguments, results, objects, requests.

pub(crate) mod arguments;
pub(crate) mod handles;
pub(crate) mod outcome;
pub(crate) mod refusals;
pub(crate) mod requests;
pub(crate) mod unsupported;
