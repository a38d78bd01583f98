//! What programs hold, one file per object.

pub(crate) mod async_event;
pub(crate) mod capture;
pub(crate) mod command_file;
pub(crate) mod context;
pub(crate) mod device;
pub(crate) mod local_identifier;
