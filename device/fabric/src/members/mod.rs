//! The processes that share an address: indices, records, whether they run, and errors.

pub(crate) mod error;
pub(crate) mod holders;
pub(crate) mod member;
pub(crate) mod member_index;
pub(crate) mod process;
pub(crate) mod progress;
pub(crate) mod record;
