//! Where in the program a call was made, on which object, and whether programs are checked.

pub(crate) mod call_site;
pub(crate) mod current_call;
pub(crate) mod early_uses;
pub(crate) mod own_devices;
pub(crate) mod preload;
pub(crate) mod python;
pub(crate) mod register;
pub(crate) mod stack;
pub(crate) mod stack_cache;
pub(crate) mod state;
pub(crate) mod symbols;
pub(crate) mod waits;
