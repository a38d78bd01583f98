//! Builders of queue pairs.

use std::marker::PhantomData;
use std::sync::{Arc, Mutex};

use pumice_calls::Call;
use pumice_device::check::QpMade;
use pumice_device::hca::QpInit;
use pumice_transport::types::{Access, QpCapacity, VendorService};

use super::{LocalEndpoint, QpInner, QueuePair, UsedObjects};
use crate::device::Device;
use crate::device::calls::gated_call;
use crate::error::{Result, VerbsError};
use crate::objects::completion::CompletionQueue;
use crate::objects::receive::SharedReceiveQueue;
use crate::objects::{ProtectionDomain, XrcDomain};
use crate::transport::{Connected, Dct, Receiver, Transport, XrcDuplex, XrcInitiator, XrcTarget};

/// A builder of queue pairs. Defaults: 128 requests each way of up to 4 slices each, 64 bytes inline, GID
/// index 0, all rights for peers.
#[derive(Debug)]
#[must_use = "call `build`"]
pub struct QueuePairBuilder<T> {
    device: Device,
    uses: UsedObjects,
    capacity: QpCapacity,
    signal_all: bool,
    gid_index: u32,
    psn: Option<u32>,
    access: Access,
    cookie: u64,
    own: Option<VendorService>,
    transport: PhantomData<T>,
}

impl<T: Receiver> QueuePair<T> {
    /// Returns a builder of a queue pair that reports sends and receives to these completion queues, which
    /// may be the same.
    pub fn builder(
        domain: &ProtectionDomain,
        send_cq: &CompletionQueue,
        recv_cq: &CompletionQueue,
    ) -> QueuePairBuilder<T> {
        QueuePairBuilder::new(
            domain.device(),
            UsedObjects {
                domain: Some(domain.clone()),
                send_cq: Some(send_cq.clone()),
                recv_cq: Some(recv_cq.clone()),
                ..UsedObjects::default()
            },
        )
    }
}

impl QueuePair<XrcInitiator> {
    /// Returns a builder of a queue pair that sends to shared receive queues of an XRC domain elsewhere.
    pub fn builder(domain: &ProtectionDomain, send_cq: &CompletionQueue) -> QueuePairBuilder<XrcInitiator> {
        let (domain, send_cq) = (domain.clone(), send_cq.clone());
        let device = domain.device().clone();
        QueuePairBuilder::new(
            &device,
            UsedObjects { domain: Some(domain), send_cq: Some(send_cq), ..UsedObjects::default() },
        )
    }
}

impl QueuePair<XrcDuplex> {
    /// Returns a builder of a queue pair that sends to shared receive queues of the peer's XRC domain, and
    /// receives for those of `xrc_domain`.
    pub fn builder(
        domain: &ProtectionDomain,
        xrc_domain: &XrcDomain,
        send_cq: &CompletionQueue,
    ) -> QueuePairBuilder<XrcDuplex> {
        let device = domain.device().clone();
        QueuePairBuilder::new(
            &device,
            UsedObjects {
                domain: Some(domain.clone()),
                send_cq: Some(send_cq.clone()),
                xrc_domain: Some(xrc_domain.clone()),
                ..UsedObjects::default()
            },
        )
    }
}

impl QueuePair<XrcTarget> {
    /// Returns a builder of a queue pair that receives for the shared receive queues of an XRC domain.
    pub fn builder(domain: &XrcDomain) -> QueuePairBuilder<XrcTarget> {
        let uses = UsedObjects { xrc_domain: Some(domain.clone()), ..UsedObjects::default() };
        QueuePairBuilder::new(domain.device(), uses)
    }
}

impl<T: Transport> QueuePairBuilder<T> {
    pub(super) fn new(device: &Device, uses: UsedObjects) -> QueuePairBuilder<T> {
        QueuePairBuilder {
            device: device.clone(),
            uses,
            capacity: QpCapacity {
                max_send_wr: 128,
                max_recv_wr: 128,
                max_send_sge: 4,
                max_recv_sge: 4,
                max_inline_data: 64,
            },
            signal_all: false,
            gid_index: 0,
            psn: None,
            access: Access::REMOTE_WRITE
                | Access::REMOTE_READ
                | Access::REMOTE_ATOMIC
                | Access::FLUSH_GLOBAL
                | Access::FLUSH_PERSISTENT,
            cookie: 0,
            own: None,
            transport: PhantomData,
        }
    }

    /// Sets the additional properties of queue pairs of the service.
    pub(super) fn own(mut self, own: VendorService) -> Self {
        self.own = Some(own);
        self
    }

    /// Sets the number of requests of the send queue: posted, and neither completed nor made free by a later
    /// completion.
    pub fn send_depth(mut self, requests: u32) -> Self {
        self.capacity.max_send_wr = requests;
        self
    }

    /// Sets the maximum number of slices of a send request.
    pub fn send_sges(mut self, slices: u32) -> Self {
        self.capacity.max_send_sge = slices;
        self
    }

    /// Sets the maximum number of bytes of inline data of a send request.
    pub fn inline_bytes(mut self, bytes: u32) -> Self {
        self.capacity.max_inline_data = bytes;
        self
    }

    /// Makes a completion for every send request.
    pub fn signal_all(mut self, signal_all: bool) -> Self {
        self.signal_all = signal_all;
        self
    }

    /// Sets the local address, by its index in [`Device::gids`].
    pub fn gid_index(mut self, index: u32) -> Self {
        self.gid_index = index;
        self
    }

    /// Sets the first PSN to send, 24 bits; by default an unpredictable one.
    pub fn psn(mut self, psn: u32) -> Self {
        self.psn = Some(psn & 0xff_ffff);
        self
    }

    /// Sets the cookie that names the queue pair in asynchronous events.
    pub fn cookie(mut self, cookie: u64) -> Self {
        self.cookie = cookie;
        self
    }

    /// Creates the queue pair, in INIT: receives can be posted.
    ///
    /// # Errors
    /// `Refused`: a size is out of range, an object belongs to another device, or the device has as many
    /// queue pairs as it can. `Invalid`: the GID index has no address.
    pub fn build(self) -> Result<QueuePair<T>> {
        let device = self.device.clone();
        gated_call(&device, Call::ibv_create_qp, || self.make())
    }

    fn make(self) -> Result<QueuePair<T>> {
        let uses = &self.uses;
        let foreign = [&uses.send_cq, &uses.recv_cq]
            .into_iter()
            .flatten()
            .map(CompletionQueue::device)
            .chain(uses.srq.as_ref().map(SharedReceiveQueue::device))
            .any(|device| !device.is_same(&self.device));
        if foreign {
            return Err(VerbsError::foreign("queue pair", "completion or shared receive queue"));
        }
        let gids = self.device.gids();
        let entry = gids.into_iter().find(|(index, _)| *index == self.gid_index);
        let (_, entry) = entry.ok_or_else(|| VerbsError::Invalid {
            object: "queue pair",
            attribute: "gid_index",
            problem: format!("{} has no address", self.gid_index),
            remedy: "choose one that Device::gids lists",
        })?;
        let init = QpInit {
            qp_type: T::TYPE,
            pd: uses.domain.as_ref().map(ProtectionDomain::handle),
            send_cq: uses.send_cq.as_ref().map(CompletionQueue::handle),
            recv_cq: uses.recv_cq.as_ref().map(CompletionQueue::handle),
            srq: uses.srq.as_ref().map(SharedReceiveQueue::handle),
            xrcd: uses.xrc_domain.as_ref().map(XrcDomain::handle),
            capacity: self.capacity,
            signal_all: self.signal_all,
            cookie: self.cookie,
        };
        let hca = Arc::clone(self.device.shared_hca());
        let (qpn, capacity) =
            hca.create_vendor_qp(&init, self.own).map_err(VerbsError::refused("queue pair"))?;
        if let Some(check) = self.device.check() {
            check.qp_made(QpMade {
                address: 0,
                number: qpn.value(),
                ordinal: hca.ordinal_of(qpn).unwrap_or_default(),
                service: T::TYPE.name(),
                send_cq: init.send_cq.map(|cq| cq.index),
                recv_cq: init.recv_cq.filter(|_| init.srq.is_none()).map(|cq| cq.index),
                capacity,
            });
        }
        let local = LocalEndpoint {
            gid: entry.gid,
            gid_index: self.gid_index,
            psn: self.psn.unwrap_or_else(|| self.device.first_psn(qpn)),
            mtu: entry.mtu.min(self.device.active_mtu()),
            access: self.access,
        };
        let (own, groups, _used_objects, device) = (self.own, Mutex::default(), self.uses, self.device);
        let made =
            QueuePair::from_inner(QpInner { hca, qpn, capacity, local, own, groups, _used_objects, device });
        made.initialise()?;
        Ok(made)
    }
}

impl<T: Receiver> QueuePairBuilder<T> {
    /// Sets the number of requests of the receive queue.
    pub fn recv_depth(mut self, requests: u32) -> Self {
        self.capacity.max_recv_wr = requests;
        self
    }

    /// Sets the maximum number of slices of a receive request.
    pub fn recv_sges(mut self, slices: u32) -> Self {
        self.capacity.max_recv_sge = slices;
        self
    }

    /// Takes receives from a shared queue instead of one of its own.
    pub fn shared_receive_queue(mut self, srq: &SharedReceiveQueue) -> Self {
        self.uses.srq = Some(srq.clone());
        self
    }
}

impl QueuePairBuilder<Dct> {
    /// Sets the rights of the peer, as for connected queue pairs.
    pub fn access(mut self, access: Access) -> Self {
        self.access = access;
        self
    }
}

impl<T: Connected> QueuePairBuilder<T> {
    /// Sets the operations that the peer may request: `REMOTE_WRITE`, `REMOTE_READ`, `REMOTE_ATOMIC`,
    /// `FLUSH_*`. The memory must grant them as well.
    pub fn access(mut self, access: Access) -> Self {
        self.access = access;
        self
    }
}
