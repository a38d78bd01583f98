//! Queue pairs: post, modify, query.

mod builder;
mod connect;
mod datagram;
mod numbered;
pub(crate) mod request;
pub(crate) mod window;

use std::fmt;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pumice_calls::Call;
use pumice_device::hca::Hca;
use pumice_transport::qp::{AttributeMask, QpAttributes};
use pumice_transport::types::{Access, Gid, Mtu, OwnService, QpCapacity, QpState, QpType, RecvRequest};
use pumice_transport::wire::Qpn;

use crate::device::Device;
use crate::device::calls::CallOn;
use crate::ground::error::{ListError, Result, VerbsError};
use crate::objects::completion::CompletionQueue;
use crate::objects::domain::{ProtectionDomain, XrcDomain};
use crate::objects::receive::SharedReceiveQueue;
use crate::transport::{Receiver, Transport};

pub use builder::QueuePairBuilder;
pub use connect::Endpoint;
pub use numbered::{DcAddress, DcEndpoint};
use request::{SendList, SendRequest};

const QUERY: CallOn = CallOn::new(Call::ibv_query_qp);
pub(crate) const MODIFY: CallOn = CallOn::new(Call::ibv_modify_qp);
const POST_SEND: CallOn = CallOn::new(Call::ibv_post_send);
const POST_RECV: CallOn = CallOn::new(Call::ibv_post_recv);

/// A queue pair of transport `T`. Cheap to clone; destroyed with its last clone. Made by
/// `QueuePair::builder`, ready for receives to be posted.
pub struct QueuePair<T>(Arc<QpInner>, PhantomData<T>);

/// What a queue pair tells its peer, or derives its attributes from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Local {
    pub(crate) gid: Gid,
    pub(crate) gid_index: u32,
    pub(crate) psn: u32,
    pub(crate) mtu: Mtu,
    pub(crate) access: Access,
}

/// What a queue pair uses: held so that it cannot be destroyed before.
#[derive(Debug, Default)]
pub(crate) struct Uses {
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
    pub(crate) local: Local,
    /// The service of its own that it is of, and what it was made with.
    pub(crate) own: Option<OwnService>,
    /// Multicast groups it is attached to.
    pub(crate) groups: Mutex<Vec<Gid>>,
    /// Dropped after the queue pair is destroyed.
    pub(crate) _uses: Uses,
    pub(crate) device: Device,
}

impl<T: Transport> QueuePair<T> {
    pub(crate) fn from_inner(inner: QpInner) -> QueuePair<T> {
        QueuePair(Arc::new(inner), PhantomData)
    }

    pub(crate) fn local(&self) -> &Local {
        &self.0.local
    }

    pub(crate) fn inner(&self) -> &QpInner {
        &self.0
    }

    /// Its number.
    pub fn qpn(&self) -> Qpn {
        self.0.qpn
    }

    /// Sizes of its queues, as granted.
    pub fn capacity(&self) -> QpCapacity {
        self.0.capacity
    }

    /// The device it is of.
    pub fn device(&self) -> &Device {
        &self.0.device
    }

    /// State now.
    ///
    /// # Errors
    /// `Refused`: the queue pair was destroyed through [`Device::hca`].
    pub fn state(&self) -> Result<QpState> {
        self.call(QUERY, || self.current_state())
    }

    /// As [`QueuePair::state`], inside of a call.
    pub(crate) fn current_state(&self) -> Result<QpState> {
        Ok(QpState::from_verbs(self.attributes()?.qp_state).unwrap_or(QpState::Err))
    }

    /// All attributes now.
    ///
    /// # Errors
    /// As [`QueuePair::state`].
    pub fn query(&self) -> Result<QpAttributes> {
        self.call(QUERY, || self.attributes())
    }

    /// As [`QueuePair::query`], inside of a call.
    fn attributes(&self) -> Result<QpAttributes> {
        self.0.hca.query_qp(self.0.qpn).map_err(VerbsError::refused("queue pair"))
    }

    /// Changes state and attributes, with all freedom of `ibv_modify_qp`; on failure nothing has changed.
    ///
    /// # Errors
    /// `Refused`: which attribute is missing, not allowed or wrong, and for which transition.
    pub fn modify(&self, attributes: &QpAttributes, mask: AttributeMask) -> Result<()> {
        self.call(MODIFY, || self.change(attributes, mask))
    }

    /// A call on this queue pair, past the gate.
    pub(crate) fn call<R>(&self, call: CallOn, run: impl FnOnce() -> Result<R>) -> Result<R> {
        self.0.device.call(call.on(self.0.qpn), run)
    }

    /// As [`QueuePair::modify`], inside of a call.
    pub(crate) fn change(&self, attributes: &QpAttributes, mask: AttributeMask) -> Result<()> {
        let done = self.0.hca.modify_qp(self.0.qpn, attributes, mask);
        if let Some(check) = self.0.device.check() {
            check.qp_modified(&self.0.hca, self.0.qpn, attributes, mask, done.is_ok());
        }
        done.map_err(VerbsError::refused("queue pair"))
    }

    /// Back to where the builder left it: requests are forgotten without completions, receives can be
    /// posted, and it can be connected or activated again.
    ///
    /// # Errors
    /// As [`QueuePair::state`].
    pub fn reset(&self) -> Result<()> {
        self.call(MODIFY, || {
            self.move_to(QpState::Reset)?;
            self.initialise()
        })
    }

    /// Gives up: everything posted completes with `WR_FLUSH_ERR`, and nothing is accepted from the peer.
    ///
    /// # Errors
    /// `Refused`: the queue pair is in RESET.
    pub fn fail(&self) -> Result<()> {
        self.call(MODIFY, || self.give_up())
    }

    /// As [`QueuePair::fail`], inside of a call.
    pub(crate) fn give_up(&self) -> Result<()> {
        self.move_to(QpState::Err)
    }

    fn move_to(&self, state: QpState) -> Result<()> {
        let attributes = QpAttributes { qp_state: state as u32, ..QpAttributes::default() };
        self.change(&attributes, AttributeMask::STATE)
    }

    /// RESET to INIT.
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
    /// full: there is room again once its completion, or a later one of the queue, was polled. `Request`: it
    /// contradicts itself. Nothing was posted.
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
    /// The position of the first that was refused, and why (as [`QueuePair::post_send`]); those before it are
    /// posted.
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
    /// The position of the first that was refused, and why; those before it are posted.
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
            // A forked child's copy.
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
