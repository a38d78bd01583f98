//! librdmacm: connections by address, over the connection manager behind queue pair 1
//! (`pumice_device::hca::Hca::cm_connect` and its neighbours).
//!
//! An identifier ([`id`]) is the program's end of a connection, a listener or a question; a channel
//! ([`channel`]) is where it hears of it. The device's events become the program's when the program
//! fetches them ([`translation`]): only then a queue pair that belongs to an identifier is brought to RTS, as in
//! rdma-core's library, so that no thread of this library touches it behind the program's back.
//!
//! **Invariant**: the [`registry`] is locked before an identifier's state, and an identifier's state
//! before the device; a program's callback is never run.

pub(crate) mod acknowledgement;
pub(crate) mod address;
pub(crate) mod address_info;
pub(crate) mod bind;
pub(crate) mod channel;
pub(crate) mod connect;
pub(crate) mod endpoint;
pub(crate) mod event;
pub(crate) mod exit;
pub(crate) mod id;
pub(crate) mod infiniband;
pub(crate) mod multicast;
pub(crate) mod option;
pub(crate) mod path_option;
pub(crate) mod queue_pair;
pub(crate) mod registry;
pub(crate) mod resolve;
pub(crate) mod resolve_info;
pub(crate) mod shared;
pub(crate) mod shared_receive_queue;
pub(crate) mod translation;
pub(crate) mod user_event;

use pumice_device::gsi::ConnectionError;

use crate::ground::errno::Errno;
use crate::ground::log::explain;

impl From<ConnectionError> for Errno {
    #[cold]
    fn from(error: ConnectionError) -> Errno {
        explain(|| error.to_string());
        Errno(error.errno())
    }
}
