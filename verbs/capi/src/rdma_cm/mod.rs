//! librdmacm: connections by address, over the connection manager behind queue pair 1
//! (`pumice_device::hca::Hca::cm_connect` and its neighbours).
//!
//! The layers, lowest first: [`constants`] has the numbers of rdma_cma.h; [`address`] reads and writes
//! addresses in their C forms and resolves names; [`id`] has the identifier, which is the program's end of a
//! connection, a listener or a service resolution, with its event channel and the verbs objects that it
//! makes; [`events`] translates the device's events to those of the program; [`calls`] has the functions that
//! programs call.
//!
//! The device's events become the program's when the program fetches them: only then a queue pair that
//! belongs to an identifier is brought to RTS, as in rdma-core's library, so that no thread of this library
//! changes it without the program's knowledge.
//!
//! **Invariant**: the registry ([`id::registry`]) is locked before an identifier's state, and an identifier's
//! state before the device; a program's callback is never run.

pub(crate) mod address;
pub(crate) mod calls;
pub(crate) mod constants;
pub(crate) mod events;
pub(crate) mod id;
