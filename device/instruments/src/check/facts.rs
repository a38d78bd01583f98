//! What calls say of queues.

use pumice_ground::call_stack::Stack;
use pumice_transport::qp::{AttributeMask, QpAttributes};
use pumice_transport::types::{Mtu, QpCapacity, QpState};

/// A completion queue that the program has made.
#[derive(Debug, Clone, Copy)]
pub struct CqMade {
    /// Of the program's pointer.
    pub address: u64,
    /// By which events name it.
    pub handle: u32,
    /// Completions that it has room for.
    pub depth: u32,
    /// Address of its channel; 0 if it has none.
    pub channel: u64,
}

/// A queue pair that the program has made.
#[derive(Debug, Clone, Copy)]
pub struct QpMade {
    /// Of the program's pointer.
    pub address: u64,
    /// Its number.
    pub number: u32,
    /// How many queue pairs the device had made before it.
    pub ordinal: u32,
    /// Its transport service.
    pub service: &'static str,
    /// Handle of the completion queue of send requests.
    pub send_cq: Option<u32>,
    /// Handle of the completion queue of receives of its own.
    pub recv_cq: Option<u32>,
    /// What it has room for.
    pub capacity: QpCapacity,
}

/// What the device knows about the attributes of a `ibv_modify_qp`.
#[derive(Debug, Clone, Copy)]
pub struct ModifyFacts {
    /// The call succeeded.
    pub is_done: bool,
    /// Of the port.
    pub active_mtu: Mtu,
    /// Whether the GID at `sgid_index` is an IPv4 address; `None` if there is none, or no address vector.
    pub source_is_ipv4: Option<bool>,
    /// The destination is an address of this device, or of another one of the program.
    pub peer_is_here: bool,
}

/// A call of `ibv_modify_qp`, as checks are told of it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Modified<'a> {
    pub(super) number: u32,
    /// The state that it asks for.
    pub(super) to: Option<QpState>,
    pub(super) attributes: &'a QpAttributes,
    pub(super) mask: AttributeMask,
    pub(super) facts: &'a ModifyFacts,
    /// Where it is.
    pub(super) stack: &'a Stack,
}

impl Modified<'_> {
    /// Whether an attribute is given.
    pub(super) const fn gives(&self, bit: AttributeMask) -> bool {
        self.mask.contains(bit)
    }
}
