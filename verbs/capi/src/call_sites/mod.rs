//! Where in the program a call was made, on which object, and whether programs are checked.

pub(crate) mod current_call;
pub(crate) mod preload;
pub(crate) mod python;
pub(crate) mod stack;
pub(crate) mod state;
