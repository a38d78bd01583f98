//! Wire formats: every header as a checked view and a plain value.

mod psn;
mod qpn;

pub use psn::Psn;
pub use qpn::Qpn;
