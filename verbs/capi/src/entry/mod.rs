//! What crosses the boundary to C: arguments, results, objects, requests.

pub(crate) mod arguments;
pub(crate) mod handles;
pub(crate) mod outcome;
pub(crate) mod requests;
pub(crate) mod unlogged;
pub(crate) mod unsupported;
pub(crate) mod vendor_calls;
