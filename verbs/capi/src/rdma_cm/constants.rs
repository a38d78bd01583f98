//! Constants of verbs.h and rdma_cma.h that several files need, and errno values of the connection manager's
//! errors.

use std::ffi::{CStr, c_int};

use pumice_device::gsi::ConnectionError;

use crate::log::log_warning;
use crate::platform::Errno;

/// Values of `IBV_QPT_*`.
pub(crate) const QPT_RC: u32 = 2;
pub(crate) const QPT_UC: u32 = 3;
pub(crate) const QPT_UD: u32 = 4;
pub(crate) const QPT_XRC_SEND: u32 = 9;
pub(crate) const QPT_XRC_RECV: u32 = 10;

/// Values of `RDMA_PS_*`.
pub(crate) const PS_IPOIB: u32 = 2;
pub(crate) const PS_TCP: u32 = 0x106;
pub(crate) const PS_UDP: u32 = 0x111;

/// Values of `RDMA_CM_EVENT_*`.
pub(crate) const ADDR_RESOLVED: u32 = 0;
pub(crate) const ADDR_ERROR: u32 = 1;
pub(crate) const ROUTE_RESOLVED: u32 = 2;
const ROUTE_ERROR: u32 = 3;
pub(crate) const CONNECT_REQUEST: u32 = 4;
pub(crate) const CONNECT_RESPONSE: u32 = 5;
pub(crate) const CONNECT_ERROR: u32 = 6;
pub(crate) const UNREACHABLE: u32 = 7;
pub(crate) const REJECTED: u32 = 8;
pub(crate) const ESTABLISHED: u32 = 9;
pub(crate) const DISCONNECTED: u32 = 10;
pub(crate) const DEVICE_REMOVAL: u32 = 11;
pub(crate) const MULTICAST_JOIN: u32 = 12;
pub(crate) const MULTICAST_ERROR: u32 = 13;
pub(crate) const ADDR_CHANGE: u32 = 14;
pub(crate) const TIMEWAIT_EXIT: u32 = 15;
pub(crate) const ADDRINFO_RESOLVED: u32 = 16;
pub(crate) const ADDRINFO_ERROR: u32 = 17;
pub(crate) const USER: u32 = 18;
/// Number of kinds of events.
pub(crate) const EVENT_KINDS: usize = 19;

/// Reports whether an event says that its identifier is not connected, and will not be.
pub(crate) const fn is_failure_event(event: u32) -> bool {
    matches!(event, ADDR_ERROR | ROUTE_ERROR | CONNECT_ERROR | UNREACHABLE | REJECTED)
}

/// Level `RDMA_OPTION_ID` of `rdma_set_option`, and its options.
pub(crate) const LEVEL_ID: c_int = 0;
pub(crate) const TYPE_OF_SERVICE: c_int = 0;
pub(crate) const REUSE_ADDRESS: c_int = 1;
pub(crate) const ONE_FAMILY: c_int = 2;
pub(crate) const ACK_TIMEOUT: c_int = 3;

/// Flags `RAI_*`.
pub(crate) const RAI_PASSIVE: c_int = 1;
pub(crate) const RAI_NUMERICHOST: c_int = 2;
pub(crate) const RAI_FAMILY: c_int = 8;
pub(crate) const RAI_SA: c_int = 16;
pub(crate) const RAI_DNS: c_int = 32;

/// Value of `RDMA_MAX_RESP_RES` and `RDMA_MAX_INIT_DEPTH`, which ask for the maximum.
pub(crate) const AS_MUCH_AS_THERE_IS: u8 = 0xff;
/// Q_Key of all datagram queue pairs of librdmacm.
//= linux:cma.c#cma_set_default_qkey
//| The Q_Key of datagrams is RDMA_UDP_QKEY, unless another one is chosen.
pub(crate) const DATAGRAM_Q_KEY: u32 = 0x0123_4567;
/// Hop limit of packets to peers and groups, as Linux uses it for routed packets.
pub(crate) const HOP_LIMIT: u8 = 64;

/// Returns the name of a `RDMA_CM_EVENT_*`.
pub(crate) fn event_name(event: c_int) -> &'static CStr {
    const NAMES: [&CStr; EVENT_KINDS] = [
        c"RDMA_CM_EVENT_ADDR_RESOLVED",
        c"RDMA_CM_EVENT_ADDR_ERROR",
        c"RDMA_CM_EVENT_ROUTE_RESOLVED",
        c"RDMA_CM_EVENT_ROUTE_ERROR",
        c"RDMA_CM_EVENT_CONNECT_REQUEST",
        c"RDMA_CM_EVENT_CONNECT_RESPONSE",
        c"RDMA_CM_EVENT_CONNECT_ERROR",
        c"RDMA_CM_EVENT_UNREACHABLE",
        c"RDMA_CM_EVENT_REJECTED",
        c"RDMA_CM_EVENT_ESTABLISHED",
        c"RDMA_CM_EVENT_DISCONNECTED",
        c"RDMA_CM_EVENT_DEVICE_REMOVAL",
        c"RDMA_CM_EVENT_MULTICAST_JOIN",
        c"RDMA_CM_EVENT_MULTICAST_ERROR",
        c"RDMA_CM_EVENT_ADDR_CHANGE",
        c"RDMA_CM_EVENT_TIMEWAIT_EXIT",
        c"RDMA_CM_EVENT_ADDRINFO_RESOLVED",
        c"RDMA_CM_EVENT_ADDRINFO_ERROR",
        c"RDMA_CM_EVENT_USER",
    ];
    let name = usize::try_from(event).ok().and_then(|index| NAMES.get(index));
    name.copied().unwrap_or(c"UNKNOWN EVENT")
}

impl From<ConnectionError> for Errno {
    #[cold]
    fn from(error: ConnectionError) -> Errno {
        log_warning(|| error.to_string());
        Errno(error.errno())
    }
}
