//! Queue pairs: post, modify, query.

mod builder;
mod connect;
mod datagram;
mod numbered_datagram;
pub(crate) mod request;

use std::fmt;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pumice_calls::Call;
use pumice_device::hca::Hca;
use pumice_transport::qp::{AttributeMask, QpAttributes};
use pumice_transport::types::{Access, Gid, Mtu, QpCapacity, QpState, QpType, RecvRequest, VendorService};
use pumice_transport::wire::Qpn;

use crate::device::Device;
use crate::device::calls::CallContext;
use crate::error::{ListError, Result, VerbsError};
use crate::objects::completion::CompletionQueue;
use crate::objects::receive::SharedReceiveQueue;
use crate::objects::{ProtectionDomain, XrcDomain};
use crate::transport::{Receiver, Transport};

pub use builder::QueuePairBuilder;
pub use connect::Endpoint;
pub use numbered_datagram::{DcAddress, DcEndpoint};
use request::{SendList, SendRequest};

const QUERY: CallContext = CallContext::new(Call::ibv_query_qp);
pub(crate) const MODIFY: CallContext = CallContext::new(Call::ibv_modify_qp);
const POST_SEND: CallContext = CallContext::new(Call::ibv_post_send);
const POST_RECV: CallContext = CallContext::new(Call::ibv_post_recv);

/// A queue pair of transport `T`. Cheap to clone; destroyed with its last clone. Built by
/// `QueuePair::builder`, ready for receives to be posted.
pub struct QueuePair<T>(Arc<QpInner>, PhantomData<T>);

/// The local properties that a queue pair sends to its peer, or derives its attributes from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LocalEndpoint {
    pub(crate) gid: Gid,
    pub(crate) gid_index: u32,
    pub(crate) psn: u32,
    pub(crate) mtu: Mtu,
    pub(crate) access: Access,
}

/// The objects that a queue pair uses, held so that they are not destroyed before it.
#[derive(Debug, Default)]
pub(crate) struct UsedObjects {
    pub(crate) domain: Option<ProtectionDomain>,
    pub(crate) send_cq: Option<CompletionQueue>,
    pub(crate) recv_cq: Option<CompletionQueue>,
    pub(crate) srq: Option<SharedReceiveQueue>,
    pub(crate) xrc_domain: Option<XrcDomain>,
}

pub(crate) struct QpInner {
    pub(crate) hca: Arc<Hca>,
    pub(crate) qpn: Qpn,
    pub(crate) capacity: QpCapacity,
    pub(crate) local: LocalEndpoint,
    /// Additional properties of its service, if it has any.
    pub(crate) own: Option<VendorService>,
    /// Multicast groups that it is attached to.
    pub(crate) groups: Mutex<Vec<Gid>>,
    /// Objects in use; dropped after the queue pair is destroyed.
    pub(crate) _used_objects: UsedObjects,
    pub(crate) device: Device,
}

impl<T: Transport> QueuePair<T> {
    pub(crate) fn from_inner(inner: QpInner) -> QueuePair<T> {
        QueuePair(Arc::new(inner), PhantomData)
    }

    pub(crate) fn local(&self) -> &LocalEndpoint {
        &self.0.local
    }

    pub(crate) fn inner(&self) -> &QpInner {
        &self.0
    }

    /// Returns its number.
    pub fn qpn(&self) -> Qpn {
        self.0.qpn
    }

    /// Returns the sizes of its queues, as granted.
    pub fn capacity(&self) -> QpCapacity {
        self.0.capacity
    }

    /// Returns the device of the queue pair.
    pub fn device(&self) -> &Device {
        &self.0.device
    }

    /// Returns the present state.
    ///
    /// # Errors
    /// `Refused`: the queue pair was destroyed through [`Device::hca`].
    pub fn state(&self) -> Result<QpState> {
        self.call(QUERY, || self.current_state())
    }

    /// Returns the present state as [`QueuePair::state`] does, inside of a call.
    pub(crate) fn current_state(&self) -> Result<QpState> {
        Ok(QpState::from_verbs(self.attributes()?.qp_state).unwrap_or(QpState::Err))
    }

    /// Returns all present attributes.
    ///
    /// # Errors
    /// The errors of [`QueuePair::state`].
    pub fn query(&self) -> Result<QpAttributes> {
        self.call(QUERY, || self.attributes())
    }

    /// Returns all present attributes as [`QueuePair::query`] does, inside of a call.
    fn attributes(&self) -> Result<QpAttributes> {
        self.0.hca.query_qp(self.0.qpn).map_err(VerbsError::refused("queue pair"))
    }

    /// Changes state and attributes, with all freedom of `ibv_modify_qp`; on failure nothing has changed.
    ///
    /// # Errors
    /// `Refused`: an attribute, which the error names, is missing, not allowed or wrong for the transition.
    pub fn modify(&self, attributes: &QpAttributes, mask: AttributeMask) -> Result<()> {
        let to = mask.contains(AttributeMask::STATE).then_some(attributes.qp_state);
        let to = to.and_then(QpState::from_verbs);
        self.call(MODIFY.to_state(to), || self.change(attributes, mask))
    }

    /// Makes a call on this queue pair after the gate has admitted it.
    pub(crate) fn call<R>(&self, call: CallContext, run: impl FnOnce() -> Result<R>) -> Result<R> {
        self.0.device.call(call.on(self.0.qpn), run)
    }

    /// Changes state and attributes as [`QueuePair::modify`] does, inside of a call.
    pub(crate) fn change(&self, attributes: &QpAttributes, mask: AttributeMask) -> Result<()> {
        let done = self.0.hca.modify_qp(self.0.qpn, attributes, mask);
        if let Some(check) = self.0.device.check() {
            check.qp_modified(&self.0.hca, self.0.qpn, attributes, mask, done.is_ok());
        }
        done.map_err(VerbsError::refused("queue pair"))
    }

    /// Returns the queue pair to the state in which the builder left it: requests are dropped without
    /// completions, receives can be posted, and it can be connected or activated again.
    ///
    /// # Errors
    /// The errors of [`QueuePair::state`].
    pub fn reset(&self) -> Result<()> {
        self.call(MODIFY, || {
            self.move_to(QpState::Reset)?;
            self.initialise()
        })
    }

    /// Moves the queue pair to ERR: everything posted completes with `WR_FLUSH_ERR`, and nothing is accepted
    /// from the peer.
    ///
    /// # Errors
    /// `Refused`: the queue pair is in RESET.
    pub fn fail(&self) -> Result<()> {
        self.call(MODIFY, || self.move_to_error())
    }

    /// Moves the queue pair to ERR as [`QueuePair::fail`] does, inside of a call.
    pub(crate) fn move_to_error(&self) -> Result<()> {
        self.move_to(QpState::Err)
    }

    fn move_to(&self, state: QpState) -> Result<()> {
        let attributes = QpAttributes { qp_state: state as u32, ..QpAttributes::default() };
        self.change(&attributes, AttributeMask::STATE)
    }

    /// Moves the queue pair from RESET to INIT.
    pub(crate) fn initialise(&self) -> Result<()> {
        let attributes = QpAttributes {
            qp_state: QpState::Init as u32,
            port_num: 1,
            access: self.0.local.access.bits(),
            ..QpAttributes::default()
        };
        let own = match T::TYPE {
            QpType::Dci => AttributeMask::empty(),
            QpType::Dct => AttributeMask::ACCESS_FLAGS,
            qp_type if qp_type.is_datagram() => AttributeMask::QKEY,
            _ => AttributeMask::ACCESS_FLAGS,
        };
        self.change(&attributes, AttributeMask::STATE | AttributeMask::PKEY_INDEX | AttributeMask::PORT | own)
    }

    /// Posts a request and sends as much of it as may leave now.
    ///
    /// # Errors
    /// `Refused`: wrong state, a list or inline data longer than the queue was made for, or the queue is
    /// full: there is room again once its completion, or a later one of the queue, was polled. `Request`: the
    /// request contradicts itself. Nothing was posted.
    #[inline]
    pub fn post_send(&self, request: &SendRequest<'_, T>) -> Result<()> {
        let (hca, qpn) = (&self.0.hca, self.0.qpn);
        self.0.device.data_call(hca, POST_SEND.on(qpn), || {
            hca.post_send(qpn, request.as_raw()?).map_err(VerbsError::refused("queue pair"))
        })
    }

    /// Posts requests in order, in one call to the device, which sends them together.
    ///
    /// # Errors
    /// The position of the first request that was refused, and the reason (as for [`QueuePair::post_send`]);
    /// those before it are posted.
    #[inline]
    pub fn post_sends(&self, requests: &SendList<'_, T>) -> std::result::Result<(), ListError> {
        let (hca, qpn) = (&self.0.hca, self.0.qpn);
        self.0.device.data_call(hca, POST_SEND.on(qpn), || {
            hca.post_sends(qpn, requests.as_raw()).map_err(|(position, error)| ListError {
                position,
                error: VerbsError::Refused { object: "queue pair", error },
            })
        })
    }
}

impl<T: Receiver> QueuePair<T> {
    /// Posts a receive request.
    ///
    /// # Errors
    /// `Refused`: full, too many slices, RESET, or receives come from a shared queue.
    #[inline]
    pub fn post_recv(&self, request: &RecvRequest<'_>) -> Result<()> {
        let (hca, qpn) = (&self.0.hca, self.0.qpn);
        self.0.device.data_call(hca, POST_RECV.on(qpn), || {
            hca.post_recv(qpn, request).map_err(VerbsError::refused("queue pair"))
        })
    }

    /// Posts receive requests in order.
    ///
    /// # Errors
    /// The position of the first request that was refused, and the reason; those before it are posted.
    pub fn post_recvs(&self, requests: &[RecvRequest<'_>]) -> std::result::Result<(), ListError> {
        let (hca, qpn) = (&self.0.hca, self.0.qpn);
        self.0.device.data_call(hca, POST_RECV.on(qpn), || {
            requests.iter().enumerate().try_for_each(|(position, request)| {
                let posted = hca.post_recv(qpn, request).map_err(VerbsError::refused("queue pair"));
                posted.map_err(|error| ListError { position, error })
            })
        })
    }
}

impl<T> Clone for QueuePair<T> {
    fn clone(&self) -> Self {
        QueuePair(Arc::clone(&self.0), PhantomData)
    }
}

impl<T: Transport> fmt::Debug for QueuePair<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} QP {} of {}", T::TYPE.name(), self.0.qpn, self.0.device.name())
    }
}

impl QpInner {
    pub(crate) fn groups(&self) -> MutexGuard<'_, Vec<Gid>> {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for QpInner {
    fn drop(&mut self) {
        if !self.hca.is_own() {
            // The copy of a forked child.
            return;
        }
        let groups = std::mem::take(&mut *self.groups());
        for group in groups {
            let _ = self.hca.detach_mcast(self.qpn, group);
        }
        let _ = self.hca.destroy_qp(self.qpn);
        if let Some(check) = self.device.check() {
            check.qp_destroyed(self.qpn);
        }
    }
}
