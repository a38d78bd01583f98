//! Domains, completion queues, SRQs, address handles, multicast groups, addresses.

use std::sync::Arc;

use pumice_ground::error::ResourceError;
use pumice_ground::table::Handle;
use pumice_objects::completion_queue::CompletionQueue;
use pumice_objects::srq::{SrqAttributes, SrqChange};
use pumice_profile::addresses::gid_table::GidEntry;
use pumice_profile::addresses::multicast::{Attached, Detached};
use pumice_transport::path::Path;
use pumice_transport::types::{AddressVector, Gid, RecvRequest};
use pumice_transport::wire::{Qpn, source_port};

use super::{CqSetup, Hca, HcaError, SrqSetup, XrcdFile};

impl Hca {
    /// Makes a protection domain.
    ///
    /// # Errors
    /// The table is full.
    pub fn alloc_pd(&self) -> Result<Handle, HcaError> {
        let made = self.core.lock().resources.alloc_pd();
        Ok(self.noted(made)?)
    }

    /// Destroys a protection domain.
    ///
    /// # Errors
    /// Busy: something belongs to it.
    pub fn dealloc_pd(&self, pd: Handle) -> Result<(), HcaError> {
        let destroyed = self.core.lock_own()?.resources.dealloc_pd(pd);
        Ok(self.noted(destroyed)?)
    }

    /// Makes an XRC domain that only its handle leads to.
    ///
    /// # Errors
    /// The table is full.
    pub fn open_xrcd(&self) -> Result<Handle, HcaError> {
        Ok(self.core.lock().resources.open_xrcd()?)
    }

    /// Opens the XRC domain of a file: all processes of this user that open it through the same file get the
    /// same domain.
    ///
    /// # Errors
    /// EAGAIN: no process has it open and `create` is not set. Invalid: one has it open and `exclusive` is
    /// set. EBADF: the descriptor is none. The table is full.
    pub fn open_xrcd_of_file(&self, file: &XrcdFile<'_>) -> Result<Handle, HcaError> {
        let mut engine = self.core.lock();
        let commons = engine.port.group().and_then(|group| group.commons());
        let opened = engine.resources.open_xrcd_of_file(file, commons.as_ref())?;
        // From now on others may do something here that has to be looked at.
        self.core.note_deadline(&engine, self.core.clock.now_ns());
        Ok(opened)
    }

    /// Closes an XRC domain; it dies with its last open.
    ///
    /// # Errors
    /// Busy: SRQs or targets were made through this handle.
    pub fn close_xrcd(&self, xrcd: Handle) -> Result<(), HcaError> {
        Ok(self.core.lock_own()?.close_xrcd(xrcd)?)
    }

    /// Makes a completion queue.
    ///
    /// # Errors
    /// Depth or vector out of range, the table is full.
    pub fn create_cq(&self, setup: CqSetup) -> Result<Arc<CompletionQueue>, HcaError> {
        let made = self.core.lock().resources.create_cq(setup);
        Ok(self.noted(made)?)
    }

    /// Changes the depth of a completion queue; what it holds stays.
    ///
    /// # Errors
    /// Out of range, or smaller than what it holds.
    pub fn resize_cq(&self, cq: Handle, depth: u32) -> Result<(), HcaError> {
        if self.core.lock().resources.is_shuffled() {
            // Programs that count on a fast device find the completions of what they have posted.
            self.core.drive_held();
        }
        Ok(self.core.lock().resources.resize_cq(cq, depth)?)
    }

    /// Destroys a completion queue; blocks until all events taken for it are acknowledged.
    ///
    /// # Errors
    /// Busy: queue pairs or XRC SRQs use it.
    pub fn destroy_cq(&self, cq: Handle) -> Result<(), HcaError> {
        self.remove_cq(cq)?.wait_all_acked();
        Ok(())
    }

    /// The same without the wait: the queue has left the device, and its owner waits until its events are
    /// acknowledged.
    ///
    /// # Errors
    /// As for [`Hca::destroy_cq`].
    pub fn remove_cq(&self, cq: Handle) -> Result<Arc<CompletionQueue>, HcaError> {
        let destroyed = self.core.lock_own()?.resources.destroy_cq(cq);
        Ok(self.noted(destroyed)?)
    }

    /// Makes a shared receive queue.
    ///
    /// # Errors
    /// Sizes out of range, stale handles, the table is full.
    pub fn create_srq(&self, setup: &SrqSetup) -> Result<Handle, HcaError> {
        Ok(self.core.lock().resources.create_srq(setup)?)
    }

    /// Resizes an SRQ or arms its limit.
    ///
    /// # Errors
    /// Out of range; nothing changed.
    pub fn modify_srq(&self, srq: Handle, change: SrqChange) -> Result<(), HcaError> {
        Ok(self.core.lock().resources.modify_srq(srq, change)?)
    }

    /// Sizes of an SRQ and its armed limit.
    ///
    /// # Errors
    /// A stale handle.
    pub fn query_srq(&self, srq: Handle) -> Result<SrqAttributes, HcaError> {
        Ok(self.core.lock().resources.query_srq(srq)?)
    }

    /// Number of an XRC SRQ, as remote senders name it.
    ///
    /// # Errors
    /// A stale handle, or not an XRC SRQ.
    pub fn srq_number(&self, srq: Handle) -> Result<u32, HcaError> {
        let engine = self.core.lock();
        let xrc = engine.resources.srq(srq)?.xrc();
        xrc.map(|xrc| xrc.number).ok_or_else(|| {
            HcaError::Resource(pumice_ground::error::ResourceError::invalid("the SRQ is not an XRC SRQ"))
        })
    }

    /// Destroys an SRQ; blocks until its events are acknowledged.
    ///
    /// # Errors
    /// Busy: queue pairs use it.
    pub fn destroy_srq(&self, srq: Handle) -> Result<(), HcaError> {
        let account = self.core.lock_own()?.resources.destroy_srq(srq)?;
        account.wait_all_acked();
        Ok(())
    }

    /// Posts a receive request to an SRQ.
    ///
    /// # Errors
    /// Full, too many elements, a stale handle.
    pub fn post_srq_recv(&self, srq: Handle, request: &RecvRequest<'_>) -> Result<(), HcaError> {
        Ok(self.core.lock_own()?.resources.post_srq_recv(srq, request)?)
    }

    /// Makes an address handle and the path that datagrams through it take.
    ///
    /// # Errors
    /// The vector leads nowhere, the PD is stale, the table is full.
    pub fn create_ah(&self, pd: Handle, vector: &AddressVector) -> Result<(Handle, Arc<Path>), HcaError> {
        let mut guard = self.core.lock();
        let engine = &mut *guard;
        let (handle, mut path) = engine.resources.create_ah(pd, vector)?;
        // Datagrams have no second number; adapters send those without a label from the first port, too.
        path.flow.source_port = source_port::from_flow_label(path.flow_label);
        path.flow.source_port = engine.port.source_port(self.core.clock.now_ns(), &path.flow);
        Ok((handle, Arc::new(path)))
    }

    /// What the device calls an address handle, and all others of its domain that lead to its address.
    /// `None`: the domain or the handle was destroyed.
    pub fn ah_number(&self, ah: Handle) -> Option<u16> {
        self.core.lock().resources.ah_number(ah)
    }

    /// Destroys an address handle; posted datagrams keep their path.
    ///
    /// # Errors
    /// A stale handle.
    pub fn destroy_ah(&self, ah: Handle) -> Result<(), HcaError> {
        Ok(self.core.lock_own()?.resources.destroy_ah(ah)?)
    }

    /// Attaches a UD queue pair to a multicast group.
    ///
    /// # Errors
    /// Not UD, not a multicast GID, too many members, or the network refuses the group.
    pub fn attach_mcast(&self, qpn: Qpn, group: Gid) -> Result<(), HcaError> {
        let mut engine = self.core.lock();
        let qp_type = engine.queue_pair_type(qpn).ok_or(HcaError::UnknownQueuePair { qpn })?;
        let (group, attached) = engine.resources.groups.attach(group, qpn, qp_type)?;
        if attached == Attached::NewGroup
            && let Err(error) = engine.port.join(group.into())
        {
            let _ = engine.resources.groups.detach(group, qpn, qp_type);
            return Err(not_joined(&error).into());
        }
        Ok(())
    }

    /// Detaches a queue pair from a multicast group.
    ///
    /// # Errors
    /// It is not attached.
    pub fn detach_mcast(&self, qpn: Qpn, group: Gid) -> Result<(), HcaError> {
        let mut engine = self.core.lock_own()?;
        let qp_type = engine.queue_pair_type(qpn).ok_or(HcaError::UnknownQueuePair { qpn })?;
        let (group, detached) = engine.resources.groups.detach(group, qpn, qp_type)?;
        if detached == Detached::GroupEmpty {
            // The membership goes with the group; a network that forgot it already does no harm.
            let _ = engine.port.leave(group.into());
        }
        Ok(())
    }

    /// Says whether a queue pair gets the datagrams that it sends to a group of its own; it does unless told.
    ///
    /// # Errors
    /// Not UD, or no such queue pair.
    pub fn hear_own_mcast(&self, qpn: Qpn, hears: bool) -> Result<(), HcaError> {
        let mut engine = self.core.lock();
        let qp_type = engine.queue_pair_type(qpn).ok_or(HcaError::UnknownQueuePair { qpn })?;
        if !qp_type.joins_groups() {
            let reason = "only UD queue pairs take part in multicast";
            return Err(pumice_ground::error::ResourceError::invalid(reason).into());
        }
        engine.resources.groups.hear_itself(qpn, hears);
        Ok(())
    }

    /// Adds an address to the port that it names, or takes it away; raises GID_CHANGE if the table changed.
    ///
    /// # Errors
    /// The table is full; there is no such port.
    pub fn change_gid(&self, entry: GidEntry, present: bool) -> Result<bool, HcaError> {
        let mut engine = self.core.lock();
        let port_num = entry.port_num;
        let had_carrier = engine.resources.ports.require(port_num)?.has_carrier();
        let changed = if present {
            engine.resources.ports.add(entry)?
        } else {
            engine.resources.ports.get_mut(port_num).is_some_and(|port| port.gids.remove(entry.gid))
        };
        if changed {
            engine.resources.raise_gid_change(port_num, had_carrier);
        }
        Ok(changed)
    }

    /// Makes the addresses of the ports these: those that stay keep their indices, new ones get the first
    /// free.
    /// One GID_CHANGE if anything changed.
    pub fn set_gids(&self, entries: Vec<GidEntry>) -> bool {
        self.core.lock().follow_addresses(entries, self.core.clock.now_ns())
    }
}

/// Why the network does not let a port into a group: what the operating system says, or the port's own
/// sentence.
fn not_joined(error: &std::io::Error) -> ResourceError {
    match error.raw_os_error() {
        Some(errno) => ResourceError::Os { what: "join the multicast group", errno },
        None => ResourceError::invalid(error.to_string()),
    }
}
