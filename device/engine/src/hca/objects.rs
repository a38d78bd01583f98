//! Domains, completion queues, SRQs, address handles, multicast groups, addresses.

use std::sync::Arc;

use crate::objects::completion_queue::CompletionQueue;
use crate::objects::srq::{SrqAttributes, SrqChange};
use crate::objects::tag_list::TagOperation;
use crate::resources::Resources;
use pumice_model::addresses::gid_table::GidEntry;
use pumice_model::addresses::multicast::{Attached, Detached};
use pumice_platform::error::ResourceError;
use pumice_platform::table::Handle;
use pumice_transport::path::Path;
use pumice_transport::types::{AddressVector, Gid, RecvRequest};
use pumice_transport::wire::{Qpn, source_port};

use super::{CqSetup, Hca, HcaError, SrqSetup, XrcdFile};

impl Hca {
    /// Creates a protection domain.
    ///
    /// # Errors
    /// The table is full.
    pub fn alloc_pd(&self) -> Result<Handle, HcaError> {
        let made = self.core.lock().resources.objects.alloc_pd();
        Ok(self.publish_after(made)?)
    }

    /// Destroys a protection domain.
    ///
    /// # Errors
    /// Busy: objects belong to it.
    pub fn dealloc_pd(&self, pd: Handle) -> Result<(), HcaError> {
        let destroyed = self.core.lock_own()?.resources.objects.dealloc_pd(pd);
        Ok(self.publish_after(destroyed)?)
    }

    /// Creates an XRC domain that only its handle leads to.
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
        let shared_resources = engine.port.group().and_then(|group| group.shared_resources());
        let opened = engine.resources.open_xrcd_of_file(file, shared_resources.as_ref())?;
        // Other processes may change the domain from now on, so it has to be checked.
        self.core.note_deadline(&engine, self.core.clock.now_ns());
        Ok(opened)
    }

    /// Closes an XRC domain; it is destroyed with its last open.
    ///
    /// # Errors
    /// Busy: SRQs or targets were created through this handle.
    pub fn close_xrcd(&self, xrcd: Handle) -> Result<(), HcaError> {
        Ok(self.core.lock_own()?.target_operations().close_xrcd(xrcd)?)
    }

    /// Creates a completion queue.
    ///
    /// # Errors
    /// Depth or vector out of range, the table is full.
    pub fn create_cq(&self, setup: CqSetup) -> Result<Arc<CompletionQueue>, HcaError> {
        let made = self.core.lock().resources.create_cq(setup);
        Ok(self.publish_after(made)?)
    }

    /// Changes the depth of a completion queue; its completions stay.
    ///
    /// # Errors
    /// The depth is out of range, or smaller than the number of completions in the queue.
    pub fn resize_cq(&self, cq: Handle, depth: u32) -> Result<(), HcaError> {
        if self.core.lock().resources.is_shuffled() {
            // Programs that rely on a fast device find the completions of what they have posted.
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

    /// Reports whether queue pairs or XRC SRQs use a completion queue; false if there is no such queue.
    pub fn cq_is_used(&self, cq: Handle) -> bool {
        self.core.lock().resources.cq_is_used(cq)
    }

    /// Destroys a completion queue as [`Hca::destroy_cq`] does, without the wait: the queue has left the
    /// device, and its owner waits until its events are acknowledged.
    ///
    /// # Errors
    /// As for [`Hca::destroy_cq`].
    pub fn remove_cq(&self, cq: Handle) -> Result<Arc<CompletionQueue>, HcaError> {
        let destroyed = self.core.lock_own()?.resources.destroy_cq(cq);
        Ok(self.publish_after(destroyed)?)
    }

    /// Creates a shared receive queue.
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

    /// Returns the sizes of an SRQ and its armed limit.
    ///
    /// # Errors
    /// A stale handle.
    pub fn query_srq(&self, srq: Handle) -> Result<SrqAttributes, HcaError> {
        Ok(self.core.lock().resources.query_srq(srq)?)
    }

    /// Returns the number of an XRC SRQ, as remote senders name it.
    ///
    /// # Errors
    /// A stale handle, or not an XRC SRQ.
    pub fn srq_number(&self, srq: Handle) -> Result<u32, HcaError> {
        let engine = self.core.lock();
        let xrc = engine.resources.objects.srq(srq)?.xrc();
        xrc.map(|xrc| xrc.number).ok_or_else(|| {
            HcaError::Resource(pumice_platform::error::ResourceError::invalid("the SRQ is not an XRC SRQ"))
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

    /// Reports whether an SRQ matches tags.
    pub fn matches_tags(&self, srq: Handle) -> bool {
        self.core.lock().resources.objects.matches_tags(Some(srq))
    }

    /// Executes an operation on the list of tags of an SRQ. Returns the handle of a buffer that it added.
    ///
    /// # Errors
    /// An SRQ without tags, the list is full, too many elements, a stale handle.
    pub fn change_tags(&self, srq: Handle, operation: TagOperation) -> Result<u32, HcaError> {
        Ok(self.core.lock_own()?.resources.change_tags(srq, operation)?)
    }

    /// Creates an address handle and the path that datagrams through it take.
    ///
    /// # Errors
    /// No path leads to the vector, the PD is stale, the table is full.
    pub fn create_ah(&self, pd: Handle, vector: &AddressVector) -> Result<(Handle, Arc<Path>), HcaError> {
        let mut guard = self.core.lock();
        let engine = &mut *guard;
        let Resources { objects, port, .. } = &mut engine.resources;
        let (handle, mut path) = objects.create_ah(&port.ports, pd, vector)?;
        // A datagram's path has no remote queue pair number for the computation of a port. Adapters send
        // datagrams without a flow label from the first port, too.
        path.flow.source_port = source_port::from_flow_label(path.flow_label);
        path.flow.source_port = engine.port.source_port(self.core.clock.now_ns(), &path.flow);
        Ok((handle, Arc::new(path)))
    }

    /// Returns the number that the device gives to an address handle, and to all others of its domain that
    /// lead to the same address. `None`: the domain or the handle was destroyed.
    pub fn ah_number(&self, ah: Handle) -> Option<u16> {
        self.core.lock().resources.objects.ah_number(ah)
    }

    /// Destroys an address handle; posted datagrams keep their path.
    ///
    /// # Errors
    /// A stale handle.
    pub fn destroy_ah(&self, ah: Handle) -> Result<(), HcaError> {
        Ok(self.core.lock_own()?.resources.objects.destroy_ah(ah)?)
    }

    /// Attaches a UD queue pair to a multicast group.
    ///
    /// # Errors
    /// Not UD, not a multicast GID, too many members, or the network refuses the group.
    pub fn attach_mcast(&self, qpn: Qpn, group: Gid) -> Result<(), HcaError> {
        let mut engine = self.core.lock();
        let qp_type = engine.queue_pair_type(qpn).ok_or(HcaError::UnknownQueuePair { qpn })?;
        let (group, attached) = engine.resources.port.groups.attach(group, qpn, qp_type)?;
        if attached == Attached::NewGroup
            && let Err(error) = engine.port.join(group.into())
        {
            let _ = engine.resources.port.groups.detach(group, qpn, qp_type);
            return Err(not_joined(&error).into());
        }
        Ok(())
    }

    /// Detaches a queue pair from a multicast group.
    ///
    /// # Errors
    /// The queue pair is not attached.
    pub fn detach_mcast(&self, qpn: Qpn, group: Gid) -> Result<(), HcaError> {
        let mut engine = self.core.lock_own()?;
        let qp_type = engine.queue_pair_type(qpn).ok_or(HcaError::UnknownQueuePair { qpn })?;
        let (group, detached) = engine.resources.port.groups.detach(group, qpn, qp_type)?;
        if detached == Detached::GroupEmpty {
            // The membership ends with the group; an error of a network that has forgotten it does no harm.
            let _ = engine.port.leave(group.into());
        }
        Ok(())
    }

    /// Sets whether a queue pair gets the datagrams that it sends to a group of its own; by default it does.
    ///
    /// # Errors
    /// Not UD, or no such queue pair.
    pub fn set_multicast_loopback(&self, qpn: Qpn, is_on: bool) -> Result<(), HcaError> {
        let mut engine = self.core.lock();
        let qp_type = engine.queue_pair_type(qpn).ok_or(HcaError::UnknownQueuePair { qpn })?;
        if !qp_type.joins_groups() {
            let reason = "only UD queue pairs take part in multicast";
            return Err(pumice_platform::error::ResourceError::invalid(reason).into());
        }
        engine.resources.port.groups.set_loopback(qpn, is_on);
        Ok(())
    }

    /// Adds an address to the port that it names, or removes it; raises GID_CHANGE if the table changed.
    ///
    /// # Errors
    /// The table is full; no such port exists.
    pub fn change_gid(&self, entry: GidEntry, present: bool) -> Result<bool, HcaError> {
        let mut engine = self.core.lock();
        let port_num = entry.port_num;
        let had_carrier = engine.resources.port.ports.require(port_num)?.has_carrier();
        let changed = if present {
            engine.resources.port.ports.add(entry)?
        } else {
            engine.resources.port.ports.get_mut(port_num).is_some_and(|port| port.gids.remove(entry.gid))
        };
        if changed {
            engine.resources.port.raise_gid_change(port_num, had_carrier);
        }
        Ok(changed)
    }

    /// Replaces the addresses of the ports: those that stay keep their indices, new ones get the first free.
    /// One GID_CHANGE is raised if anything changed.
    pub fn set_gids(&self, entries: Vec<GidEntry>) -> bool {
        self.core.lock().port_conditions().follow_addresses(entries, self.core.clock.now_ns())
    }
}

/// Returns the error for a port that the network does not let into a group: that of the operating system, or
/// the port's own sentence.
fn not_joined(error: &std::io::Error) -> ResourceError {
    match error.raw_os_error() {
        Some(errno) => ResourceError::Os { what: "join the multicast group", errno },
        None => ResourceError::invalid(error.to_string()),
    }
}
