//! Transport services as types, by which the compiler knows what a queue pair can do.

mod ability;
pub(crate) mod options;
mod service;

pub use ability::{Connected, Receiver, Reliable, Requester, XrcRequester};
pub use service::{Dci, Dct, Rc, Srd, Transport, Uc, Ud, XrcDuplex, XrcInitiator, XrcTarget};
