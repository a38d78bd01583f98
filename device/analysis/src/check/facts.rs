//! Facts about queues that calls provide.

use pumice_platform::call_stack::Stack;
use pumice_transport::qp::{AttributeMask, QpAttributes};
use pumice_transport::types::{Mtu, QpCapacity, QpState};

/// A completion queue that the program has made.
#[derive(Debug, Clone, Copy)]
pub struct CqMade {
    /// Address of the program's pointer.
    pub address: u64,
    /// Handle by which events name it.
    pub handle: u32,
    /// Number of completions that it has room for.
    pub depth: u32,
    /// Address of its channel; 0 if it has none.
    pub channel: u64,
}

/// A queue pair that the program has made.
#[derive(Debug, Clone, Copy)]
pub struct QpMade {
    /// Address of the program's pointer.
    pub address: u64,
    /// Queue pair number.
    pub number: u32,
    /// Number of queue pairs that the device had made before it.
    pub ordinal: u32,
    /// Name of its transport service.
    pub service: &'static str,
    /// Handle of the completion queue of send requests.
    pub send_cq: Option<u32>,
    /// Handle of the completion queue of receives of its own.
    pub recv_cq: Option<u32>,
    /// Numbers of requests and entries that it has room for.
    pub capacity: QpCapacity,
}

/// Facts of the device about the attributes of an `ibv_modify_qp`.
#[derive(Debug, Clone, Copy)]
pub struct ModifyFacts {
    /// The call succeeded.
    pub is_done: bool,
    /// Active MTU of the port.
    pub active_mtu: Mtu,
    /// The GID at `sgid_index` is an IPv4 address; `None` if there is no GID, or no address vector.
    pub source_is_ipv4: Option<bool>,
    /// The destination is an address of this device, or of another one of the program.
    pub peer_is_here: bool,
}

/// A call of `ibv_modify_qp`, as checks are notified of it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Modified<'a> {
    pub(super) number: u32,
    /// State that the call asks for.
    pub(super) to: Option<QpState>,
    pub(super) attributes: &'a QpAttributes,
    pub(super) mask: AttributeMask,
    pub(super) facts: &'a ModifyFacts,
    /// Call site.
    pub(super) stack: &'a Stack,
}

impl Modified<'_> {
    /// Reports whether the call gives an attribute.
    pub(super) const fn gives(&self, bit: AttributeMask) -> bool {
        self.mask.contains(bit)
    }
}
