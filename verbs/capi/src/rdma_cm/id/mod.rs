//! Identifiers, their event channels, and the verbs objects that they make.

pub(crate) mod acknowledgement;
pub(crate) mod binding;
pub(crate) mod channel;
pub(crate) mod identifier;
pub(crate) mod neighbours;
pub(crate) mod objects;
pub(crate) mod queue_pair;
pub(crate) mod registry;
pub(crate) mod shared;
