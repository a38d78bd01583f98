//! Queue pairs: create, modify, query, destroy, post, poll.

use pumice_transport::qp::{
    AlternatePath, AttributeMask, ModifyLimits, PostError, QpAttributes, QpConfig, QueuePair, ResolvedPath,
};
use pumice_transport::types::{Mtu, QpCapacity, QpState, QpType, RecvRequest, SendRequest, WorkCompletion};
use pumice_transport::wire::Qpn;

use super::{Hca, HcaError, TargetRegistration};
use crate::addresses::gid_table::GidTable;
use crate::addresses::pkey_table::PkeyTable;
use crate::addresses::ports::{DevicePort, Ports};
use crate::engine::{Acknowledge, QpEntry, read_limit_packets, window_limit_packets};
use crate::ground::error::ResourceError;
use crate::ground::table::Handle;
use crate::memory::MappingCheck;
use crate::objects::address_handle;
use crate::objects::completion_queue::CompletionQueue;
use crate::port::{Peer, Port};
use crate::resources::{MappingCheckPolicy, QpSetup};

/// What to make a queue pair of (`ibv_create_qp_ex`).
#[derive(Debug, Clone, Copy)]
pub struct QpInit {
    /// Transport service.
    pub qp_type: QpType,
    /// Protection domain; all but XRC targets.
    pub pd: Option<Handle>,
    /// Completion queue of sends; all but XRC targets.
    pub send_cq: Option<Handle>,
    /// Completion queue of receives; RC, UC, UD.
    pub recv_cq: Option<Handle>,
    /// Shared receive queue, instead of a receive queue of its own.
    pub srq: Option<Handle>,
    /// XRC domain; XRC targets and queue pairs of OFED 1.x.
    pub xrcd: Option<Handle>,
    /// Sizes asked for.
    pub capacity: QpCapacity,
    /// All send requests make completions.
    pub signal_all: bool,
    /// What the application calls it: comes back in asynchronous events.
    pub cookie: u64,
}

impl Hca {
    /// Makes a queue pair in RESET; its number and the sizes granted.
    ///
    /// # Errors
    /// An object is missing or of the wrong kind, a size is out of range, no number is free. Raw packets: the
    /// process may not send any (EPERM), or there is no Ethernet (`NotSupported`).
    pub fn create_qp(&self, init: &QpInit) -> Result<(Qpn, QpCapacity), HcaError> {
        let mut engine = self.core.lock();
        let most = self.limits.max_qp;
        if engine.queue_pairs.count() >= most {
            let table = format!("the device has all of its {most} queue pairs");
            return Err(ResourceError::no_memory(table).into());
        }
        let index = engine.queue_pairs.free_index()?;
        let qpn = Qpn::of(self.process, index);
        if init.qp_type.is_raw() {
            self.join_ethernet(&mut engine)?;
        }
        let attached = engine.resources.attach_qp(&QpSetup {
            qpn,
            qp_type: init.qp_type,
            cookie: init.cookie,
            pd: init.pd,
            send_cq: init.send_cq,
            recv_cq: init.recv_cq,
            srq: init.srq,
            xrcd: init.xrcd,
            capacity: init.capacity,
        });
        // With no queue pair there is no way to the interfaces.
        let attached = attached.inspect_err(|_| engine.resources.leave_ethernet(qpn))?;
        if let (true, Some(ethernet)) = (init.qp_type.is_raw(), &mut engine.resources.ethernet) {
            ethernet.put(qpn, 0);
        }
        let qp = QueuePair::new(QpConfig {
            context: attached.context,
            qp_type: init.qp_type,
            capacity: attached.capacity,
            signal_all: init.signal_all,
            has_srq: init.srq.is_some(),
            port_mtu_bytes: self.active_mtu.bytes(),
            congestion: self.congestion.clone(),
        });
        let sharing = match engine.share(&qp) {
            Ok(sharing) => sharing,
            Err(error) => {
                engine.resources.detach_qp(qpn)?;
                return Err(error.into());
            }
        };
        engine.queue_pairs.insert(index.into(), QpEntry::new(qp, sharing));
        Ok((qpn, attached.capacity))
    }

    /// Destroys a queue pair (an XRC target: closes it for its creator); blocks until its asynchronous events
    /// are acknowledged.
    ///
    /// # Errors
    /// Busy: attached to multicast groups, or named by flow rules. Unknown number.
    pub fn destroy_qp(&self, qpn: Qpn) -> Result<(), HcaError> {
        let account = {
            let mut engine = self.core.lock();
            let (index, _) = engine.queue_pairs.by_number(qpn).ok_or(HcaError::UnknownQueuePair { qpn })?;
            if engine.resources.is_target(qpn) {
                drop(engine);
                return self.close_target(TargetRegistration::of_creator(qpn));
            }
            engine.unshare(qpn);
            let account = engine.resources.detach_qp(qpn)?;
            if let Some(mut entry) = engine.queue_pairs.remove(index) {
                engine.release_budget(&mut entry);
            }
            account
        };
        account.wait_all_acked();
        Ok(())
    }

    /// The limits of a queue pair that is on a port; one that is not there is refused by its number.
    fn modify_limits(&self, port: Option<&DevicePort>) -> ModifyLimits {
        ModifyLimits {
            active_mtu: port.map_or(self.active_mtu, DevicePort::active_mtu),
            max_rd_atomic_initiator: self.limits.max_init_rd_atomic,
            max_rd_atomic_target: self.limits.max_rd_atomic,
            pkey_table_len: port.map_or(1, |port| port.pkeys.len()),
            gid_table_len: GidTable::LEN,
            port_count: self.port_count,
            privileged_qkey: true,
        }
    }

    /// Changes state and attributes of a queue pair; on failure nothing has changed.
    ///
    /// # Errors
    /// Which attribute is missing, not allowed or wrong, and for which transition; an address
    /// vector that leads nowhere; an unknown number.
    pub fn modify_qp(
        &self,
        qpn: Qpn,
        attributes: &QpAttributes,
        mask: AttributeMask,
    ) -> Result<(), HcaError> {
        let mut guard = self.core.lock();
        let engine = &mut *guard;
        let unknown = HcaError::UnknownQueuePair { qpn };
        let in_entry = |error| HcaError::Entry { qpn, error };
        let (index, entry) = engine.queue_pairs.by_number(qpn).ok_or(unknown)?;
        // As another process may have left it.
        entry
            .with(&mut engine.resources.host(MappingCheck::Assumed), |_, _| ())
            .map_err(|why| why.error(qpn))?;
        let qp_type = entry.qp.qp_type();
        let port_num = port_after(&entry.qp, attributes, mask);
        let port = engine.resources.ports.get(port_num);
        let limits = self.modify_limits(port);
        let takes_path = mask.contains(AttributeMask::AV) && qp_type.is_connected();
        // Checked first: a missing attribute is said before an address vector is looked at.
        pumice_transport::qp::transition::check(qp_type, entry.qp.state(), attributes, mask, &limits)
            .map_err(|error| HcaError::Modify { qpn, error })?;
        if self.port_count > 1 {
            check_paths_port(&entry.qp, attributes, mask, port_num).map_err(in_entry)?;
        }
        let named = named_by_tables(&engine.resources.ports, port, attributes, mask);
        let (pkey, alternate) = named.map_err(in_entry)?;
        let resolved = match takes_path {
            true => {
                let (ports, port) = (&engine.resources.ports, &mut *engine.port);
                let path = resolved(ports, port, &entry.qp, attributes, mask, limits.active_mtu);
                Some(path.map_err(in_entry)?)
            }
            false => None,
        };
        let destination = resolved.as_ref().map(|resolved| resolved.path.flow.destination);
        let modified = entry.with(&mut engine.resources.host(MappingCheck::Assumed), |qp, host| {
            qp.modify(attributes, mask, &limits, resolved, host)?;
            if let Some(pkey) = pkey {
                qp.set_pkey(pkey);
            }
            alternate.into_iter().for_each(|alternate| qp.set_alternate(alternate));
            Ok(())
        });
        modified.map_err(|why| why.error(qpn))?.map_err(|error| HcaError::Modify { qpn, error })?;
        let state = entry.qp.state();
        if self.port_count > 1 && mask.contains(AttributeMask::PORT) {
            if qp_type.is_datagram() {
                entry.takes_at = port_num;
                entry.qp.set_port_mtu(limits.active_mtu);
            }
            engine.resources.put_at_port(qpn, port_num);
        }
        if let (true, Some(ethernet)) = (qp_type.is_raw(), &mut engine.resources.ethernet) {
            ethernet.put(qpn, port_num);
        }
        if state == QpState::Reset {
            entry.posted_sends = 0;
            engine.resources.reset_qp(qpn);
        }
        let process = Qpn::new(entry.qp.query().dest_qp_num).process();
        let peer = destination.map(|address| Peer { address, process });
        engine.set_peer(index, peer, state == QpState::Reset);
        engine.touch(index);
        let now_ns = self.core.clock.now_ns();
        engine.transmit(now_ns, Acknowledge::Now, MappingCheckPolicy::Datagrams);
        self.core.note_deadline(engine, now_ns);
        Ok(())
    }

    /// How many queue pairs this device made before it; `None`: the number is not known.
    pub fn ordinal_of(&self, qpn: Qpn) -> Option<u32> {
        self.core.lock().resources.ordinal_of(qpn)
    }

    /// All attributes of a queue pair now.
    ///
    /// # Errors
    /// Unknown number.
    pub fn query_qp(&self, qpn: Qpn) -> Result<QpAttributes, HcaError> {
        let mut guard = self.core.lock();
        let engine = &mut *guard;
        let (_, entry) = engine.queue_pairs.by_number(qpn).ok_or(HcaError::UnknownQueuePair { qpn })?;
        Ok(entry
            .with(&mut engine.resources.host(MappingCheck::Assumed), |qp, _| qp.query())
            .map_err(|why| why.error(qpn))?)
    }

    /// Posts a send request and sends as much of it as may leave now.
    ///
    /// # Errors
    /// Malformed, wrong state, or the queue is full: an entry is free only once its completion, or a
    /// later one of the same queue, was polled.
    pub fn post_send(&self, qpn: Qpn, request: &SendRequest<'_>) -> Result<(), HcaError> {
        self.post_sends(qpn, std::slice::from_ref(request)).map_err(|(_, error)| error)
    }

    /// Posts send requests in order and sends them together.
    ///
    /// # Errors
    /// The position of the first request that was refused, and why; those before it are posted.
    pub fn post_sends(&self, qpn: Qpn, requests: &[SendRequest<'_>]) -> Result<(), (usize, HcaError)> {
        let mut guard = self.core.lock();
        let engine = &mut *guard;
        let Some((index, entry)) = engine.queue_pairs.by_number(qpn) else {
            return Err((0, HcaError::UnknownQueuePair { qpn }));
        };
        let depth = entry.qp.capacity().max_send_wr;
        let polled = engine.resources.cq_common.polled_sends.count(qpn.value());
        // A target has no send queue that could be full: the request itself is wrong.
        let has_queue = entry.qp.qp_type() != QpType::XrcTarget;
        let mut outcome = Ok(());
        for (position, request) in requests.iter().enumerate() {
            // Executed requests keep their entry until they are polled.
            let posted = if has_queue && entry.posted_sends.wrapping_sub(polled) >= depth {
                Err(PostError::QueueFull { depth })
            } else {
                entry.qp.post_send(request, &mut engine.resources.host(MappingCheck::Assumed))
            };
            if let Err(error) = posted {
                outcome = Err((position, HcaError::Post { qpn, error }));
                break;
            }
            entry.posted_sends = entry.posted_sends.wrapping_add(1);
        }
        let now_ns = self.core.clock.now_ns();
        engine.posted(index, now_ns);
        // Requests first, then what is owed to peers: an ACK must not delay a reply.
        engine.transmit(now_ns, Acknowledge::Now, MappingCheckPolicy::Datagrams);
        self.core.note_deadline(engine, now_ns);
        outcome
    }

    /// Posts a receive request to a queue pair's own receive queue.
    ///
    /// # Errors
    /// RESET, an SRQ in its place, full, too many elements.
    pub fn post_recv(&self, qpn: Qpn, request: &RecvRequest<'_>) -> Result<(), HcaError> {
        self.post_recvs(qpn, std::slice::from_ref(request)).map_err(|(_, error)| error)
    }

    /// Posts receive requests in order.
    ///
    /// # Errors
    /// The position of the first request that was refused, and why; those before it are posted.
    pub fn post_recvs(&self, qpn: Qpn, requests: &[RecvRequest<'_>]) -> Result<(), (usize, HcaError)> {
        let mut guard = self.core.lock();
        let engine = &mut *guard;
        let Some((_, entry)) = engine.queue_pairs.by_number(qpn) else {
            return Err((0, HcaError::UnknownQueuePair { qpn }));
        };
        if entry.qp.state() == QpState::Reset {
            let error = PostError::WrongState { state: QpState::Reset };
            return Err((0, HcaError::Post { qpn, error }));
        }
        let mut outcome = Ok(());
        for (position, request) in requests.iter().enumerate() {
            if let Err(error) = engine.resources.post_recv(entry.qp.context(), request) {
                outcome = Err((position, error.into()));
                break;
            }
        }
        entry.qp.flush_posted_receives(&mut engine.resources.host(MappingCheck::Assumed));
        outcome
    }

    /// Takes completions, oldest first, into `out`: how many. An empty queue drives the engine once.
    #[inline]
    pub fn poll_cq(&self, cq: &CompletionQueue, out: &mut [WorkCompletion]) -> usize {
        let most = cq.most_of(out.len());
        let out = out.get_mut(..most).unwrap_or_default();
        let count = cq.poll(out);
        if count > 0 || out.is_empty() {
            return count;
        }
        let progress = self.core.poll(cq.handle().index);
        let count = cq.poll(out);
        if count == 0 && !progress {
            self.core.idle();
        }
        count
    }

    /// As [`Hca::poll_cq`], for one completion and when it was made, in ns of [`Hca::clock`]; 0 if the
    /// queue does not stamp.
    pub fn poll_cq_stamped(&self, cq: &CompletionQueue) -> Option<(WorkCompletion, u64)> {
        if let Some(stamped) = cq.poll_stamped() {
            return Some(stamped);
        }
        let progress = self.core.poll(cq.handle().index);
        let stamped = cq.poll_stamped();
        if stamped.is_none() && !progress {
            self.core.idle();
        }
        stamped
    }
}

/// The port that a queue pair is on when attributes have been applied.
fn port_after(qp: &QueuePair, attributes: &QpAttributes, mask: AttributeMask) -> u8 {
    if mask.contains(AttributeMask::PORT) {
        return attributes.port_num;
    }
    // In RESET it is on none yet: the first stands for it.
    qp.query().port_num.max(1)
}

/// The path of a connected queue pair begins at the port that the queue pair is on.
fn check_paths_port(
    qp: &QueuePair,
    attributes: &QpAttributes,
    mask: AttributeMask,
    port_num: u8,
) -> Result<(), ResourceError> {
    let path_port = if mask.contains(AttributeMask::AV) {
        attributes.address_vector.port_num
    } else if mask.contains(AttributeMask::PORT) && qp.state() >= QpState::Rtr {
        qp.query().address_vector.port_num
    } else {
        return Ok(());
    };
    if path_port == port_num || !qp.qp_type().is_connected() {
        return Ok(());
    }
    Err(ResourceError::invalid(format!(
        "ah_attr.port_num is {path_port}, and the queue pair is on port {port_num}: give both the same"
    )))
}

/// The path that attributes have for a connected queue pair, with what its way takes.
fn resolved(
    ports: &Ports,
    port: &mut dyn Port,
    qp: &QueuePair,
    attributes: &QpAttributes,
    mask: AttributeMask,
    active_mtu: Mtu,
) -> Result<ResolvedPath, ResourceError> {
    let path = address_handle::resolve(&attributes.address_vector, ports)?;
    let mtu_bytes = match Mtu::from_verbs(attributes.path_mtu) {
        Some(mtu) if mask.contains(AttributeMask::PATH_MTU) => mtu.bytes(),
        _ => active_mtu.bytes(),
    };
    let number = match mask.contains(AttributeMask::DEST_QPN) {
        true => attributes.dest_qp_num,
        false => qp.query().dest_qp_num,
    };
    let address = path.flow.destination;
    let limits = port.limits(Peer { address, process: Qpn::new(number).process() });
    Ok(ResolvedPath {
        path: std::sync::Arc::new(path),
        window_limit_packets: window_limit_packets(&limits),
        read_limit_packets: read_limit_packets(&limits, mtu_bytes),
    })
}

/// The partition and the alternate path that attributes name by places of the tables of a port.
fn named_by_tables(
    ports: &Ports,
    port: Option<&DevicePort>,
    attributes: &QpAttributes,
    mask: AttributeMask,
) -> Result<(Option<u16>, Option<AlternatePath>), ResourceError> {
    let has = |bit| mask.contains(bit);
    let key = |port: Option<&DevicePort>, index| match port {
        Some(port) => partition(&port.pkeys, index).map(Some),
        None => Ok(None),
    };
    let pkey = if has(AttributeMask::PKEY_INDEX) { key(port, attributes.pkey_index)? } else { None };
    let alternate = || {
        let path = address_handle::resolve(&attributes.alt_address_vector, ports)?;
        let pkeys = &ports.require(attributes.alt_port_num)?.pkeys;
        Ok(AlternatePath {
            path: std::sync::Arc::new(path),
            pkey: partition(pkeys, attributes.alt_pkey_index)?,
        })
    };
    let alternate = has(AttributeMask::ALT_PATH).then(alternate).transpose()?;
    Ok((pkey, alternate))
}

/// The key at an index; an empty place is no partition.
fn partition(pkeys: &PkeyTable, index: u16) -> Result<u16, ResourceError> {
    match pkeys.pkey(index.into())? {
        0 => {
            Err(ResourceError::invalid(format!("P_Key index {index} is empty; index 0 has the default key")))
        }
        pkey => Ok(pkey),
    }
}
