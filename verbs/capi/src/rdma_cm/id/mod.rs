//! Identifiers, their event channels, and the verbs objects that they make.

pub(crate) mod acknowledgement;
pub(crate) mod binding;
pub(crate) mod channel;
pub(crate) mod fields;
pub(crate) mod identifier;
pub(crate) mod memberships;
pub(crate) mod neighbours;
pub(crate) mod objects;
pub(crate) mod ports;
pub(crate) mod queue_pair;
pub(crate) mod registry;
pub(crate) mod removal;
pub(crate) mod shared;
pub(crate) mod xrc_domain;
