//! The structures that C programs see, with the field names of verbs.h.
//!
//! Sizes and offsets are those of rdma-core 65; `layout.tsv` lists them and every build asserts them.
//! Enumerations are integers: a C program can put any number into them.

mod attributes;
mod connection;
mod flow;
#[cfg(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64"))]
mod layout;
mod mrc;
mod objects;
mod operation;
pub(crate) mod plain;
mod vendors;
mod work;

pub(crate) use attributes::*;
pub(crate) use connection::*;
pub(crate) use flow::*;
pub(crate) use mrc::*;
pub(crate) use objects::*;
pub(crate) use operation::*;
pub(crate) use vendors::*;
pub(crate) use work::*;
