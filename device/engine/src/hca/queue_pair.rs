//! Queue pairs: create, modify, query, destroy, post, poll.

use std::net::IpAddr;

use crate::memory::MappingCheck;
use crate::objects::completion_queue::CompletionQueue;
use pumice_model::addresses::gid_table::GidTable;
use pumice_model::addresses::ports::{DevicePort, Ports};
use pumice_model::port::limits::Peer;
use pumice_model::profile::PostCall;
use pumice_platform::error::ResourceError;
use pumice_platform::table::Handle;
use pumice_transport::event::QpEvent;
use pumice_transport::host::Host;
use pumice_transport::path::Flow;
use pumice_transport::qp::{
    AttributeMask, ModifyLimits, PostError, QpAttributes, QpConfig, QueuePair, SrdOrder, may_leave_by_lane,
};
use pumice_transport::types::{
    QpCapacity, QpState, QpType, RecvRequest, SendRequest, VendorService, WorkCompletion,
};
use pumice_transport::wire::Qpn;

use super::paths::{Paths, empty_gid_entry};
use super::{Hca, HcaError, MrcAttributes, TargetRegistration, mrc_twin};
use crate::engine::{Acknowledge, QpEntry};
use crate::resources::{MappingCheckPolicy, QpSetup, TAG_REQUESTS};

/// Checks a change of state and attributes before anything of it is done.
///
/// # Errors
/// An attribute is missing, not allowed or wrong, or an entry of the GID table is empty.
fn check_transition(
    ports: &Ports,
    qp: &QueuePair,
    attributes: &QpAttributes,
    mask: AttributeMask,
    limits: &ModifyLimits,
) -> Result<(), HcaError> {
    let qpn = qp.context().qpn;
    let checked = pumice_transport::qp::transition::check(qp.qp_type(), qp.state(), attributes, mask, limits);
    checked.map_err(|error| match empty_gid_entry(ports, attributes, &error) {
        Some(empty) => HcaError::Entry { qpn, error: empty },
        None => HcaError::Modify { qpn, error },
    })?;
    Ok(())
}

/// The parameters of a new queue pair (`ibv_create_qp_ex`).
#[derive(Debug, Clone, Copy)]
pub struct QpInit {
    /// Transport service.
    pub qp_type: QpType,
    /// Protection domain; for all but XRC targets.
    pub pd: Option<Handle>,
    /// Completion queue of sends; for all but XRC targets.
    pub send_cq: Option<Handle>,
    /// Completion queue of receives; for RC, UC, UD.
    pub recv_cq: Option<Handle>,
    /// Shared receive queue, instead of a receive queue of its own.
    pub srq: Option<Handle>,
    /// XRC domain; for XRC targets and queue pairs of OFED 1.x.
    pub xrcd: Option<Handle>,
    /// The requested sizes.
    pub capacity: QpCapacity,
    /// True if all send requests make completions.
    pub signal_all: bool,
    /// The application's value for the queue pair, which asynchronous events carry.
    pub cookie: u64,
}

impl Hca {
    /// Creates a queue pair in RESET. Returns its number and the granted sizes.
    ///
    /// # Errors
    /// An object is missing or of the wrong kind, a size is out of range, no number is free. Raw packets: the
    /// process may not send any (EPERM), or there is no Ethernet (`NotSupported`).
    pub fn create_qp(&self, init: &QpInit) -> Result<(Qpn, QpCapacity), HcaError> {
        self.create_vendor_qp(init, None)
    }

    /// Creates a queue pair of a vendor's own service, with the type of that service.
    ///
    /// # Errors
    /// As [`Hca::create_qp`].
    pub fn create_vendor_qp(
        &self,
        init: &QpInit,
        own: Option<VendorService>,
    ) -> Result<(Qpn, QpCapacity), HcaError> {
        let mut engine = self.core.lock();
        let most = self.limits.max_qp;
        if engine.queue_pair_count() >= most {
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
        // Without a queue pair the sockets on the interfaces are closed.
        let attached = attached.inspect_err(|_| engine.resources.leave_ethernet(qpn))?;
        if let (true, Some(ethernet)) = (init.qp_type.is_raw(), &mut engine.resources.ethernet) {
            ethernet.put(qpn, 0);
        }
        let mut qp = QueuePair::new(QpConfig {
            context: attached.context,
            qp_type: init.qp_type,
            capacity: attached.capacity,
            signal_all: init.signal_all,
            has_srq: init.srq.is_some(),
            port_mtu_bytes: engine.resources.ports.longest_mtu().bytes(),
            congestion: self.congestion.clone(),
            adaptive_timeout: self.adaptive_timeout,
        });
        if engine.resources.matches_tags(init.srq) {
            qp.serve_device(TAG_REQUESTS);
        }
        if let Some(own) = own.or_else(|| VendorService::plain(init.qp_type)) {
            qp.set_vendor_service(own, self.srd_order_of(attached.context.ordinal));
        }
        let room = qp.make_room().map_err(|_| {
            let entries = attached.capacity.max_send_wr;
            HcaError::from(ResourceError::no_memory(format!("{entries} send requests; ask for fewer")))
        });
        let sharing = match room.and_then(|()| Ok(engine.share(&qp)?)) {
            Ok(sharing) => sharing,
            Err(error) => {
                engine.resources.detach_qp(qpn)?;
                return Err(error);
            }
        };
        engine.queue_pairs.insert(index.into(), QpEntry::new(qp, sharing));
        if init.qp_type == QpType::Ud {
            engine.prepare_datagrams();
        }
        drop(engine);
        self.publish_object_counts();
        Ok((qpn, attached.capacity))
    }

    /// Returns the order in which messages of SRD leave a queue pair: each has one of its own, the same in
    /// every run.
    fn srd_order_of(&self, ordinal: u32) -> SrdOrder {
        match self.srd_order {
            SrdOrder::Seed(seed) => SrdOrder::Seed(seed ^ u64::from(ordinal) << 32),
            order => order,
        }
    }

    /// Destroys a queue pair (an XRC target: closes it for its creator); blocks until its asynchronous events
    /// are acknowledged.
    ///
    /// # Errors
    /// Busy: attached to multicast groups, or named by flow rules. Unknown number.
    pub fn destroy_qp(&self, qpn: Qpn) -> Result<(), HcaError> {
        let account = {
            let mut engine = self.core.lock_own()?;
            if engine.mrc.by_number(qpn).is_some() {
                drop(engine);
                return self.destroy_mrc_qp(qpn);
            }
            let (index, _) = engine.queue_pairs.by_number(qpn).ok_or(HcaError::UnknownQueuePair { qpn })?;
            if engine.resources.is_target(qpn) {
                drop(engine);
                return self.close_target(TargetRegistration::of_creator(qpn));
            }
            engine.end_sharing(qpn);
            let account = engine.resources.detach_qp(qpn)?;
            mrc_twin::end(&mut engine, qpn);
            if let Some(mut entry) = engine.queue_pairs.remove(index) {
                engine.release_budget(&mut entry);
            }
            account
        };
        self.publish_object_counts();
        account.wait_all_acked();
        Ok(())
    }

    /// Returns the limits of a queue pair on a port; a port that does not exist is refused by its number.
    fn modify_limits(&self, ports: &Ports, port: Option<&DevicePort>) -> ModifyLimits {
        ModifyLimits {
            active_mtu: port.map_or_else(|| ports.longest_mtu(), DevicePort::active_mtu),
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
    /// An attribute is missing, not allowed or wrong for the transition; an address vector that leads
    /// nowhere; an unknown number.
    pub fn modify_qp(
        &self,
        qpn: Qpn,
        attributes: &QpAttributes,
        mask: AttributeMask,
    ) -> Result<(), HcaError> {
        if self.core.lock().mrc.by_number(qpn).is_some() {
            return self.modify_mrc_qp(qpn, attributes, mask, &MrcAttributes::default());
        }
        self.modify_other_qp(qpn, attributes, mask)?;
        if self.carries_by_mrc {
            let mut engine = self.core.lock();
            let now_ns = self.core.clock.now_ns();
            mrc_twin::follow(&mut engine, qpn, now_ns);
            engine.transmit(now_ns, Acknowledge::Now, MappingCheckPolicy::Datagrams);
            self.core.note_deadline(&engine, now_ns);
        }
        Ok(())
    }

    /// Changes a queue pair that is none of MRC, as [`Hca::modify_qp`] does.
    fn modify_other_qp(
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
        // Another process may have changed the queue pair.
        entry
            .with(&mut engine.resources.host(MappingCheck::Assumed), |_, _| ())
            .map_err(|why| why.error(qpn))?;
        let qp_type = entry.qp.qp_type();
        let port_num = port_after(&entry.qp, attributes, mask);
        let port = engine.resources.ports.get(port_num);
        let limits = self.modify_limits(&engine.resources.ports, port);
        let takes_path = mask.contains(AttributeMask::AV) && qp_type.is_connected();
        // The check comes first: a missing attribute is reported before an address vector is resolved.
        check_transition(&engine.resources.ports, &entry.qp, attributes, mask, &limits)?;
        if self.port_count > 1 {
            check_paths_port(&entry.qp, attributes, mask, port_num).map_err(in_entry)?;
        }
        let now_ns = self.core.clock.now_ns();
        let mut paths = Paths::new(&engine.resources.ports, &mut *engine.port, now_ns);
        let named = paths.named_by_tables(port, &entry.qp, attributes, mask);
        let (pkey, alternate) = named.map_err(in_entry)?;
        let resolved = match takes_path {
            true => Some(paths.resolved(&entry.qp, attributes, mask, limits.active_mtu).map_err(in_entry)?),
            false => None,
        };
        let replaced = paths.replaced;
        let destination = resolved.as_ref().map(|resolved| resolved.path.flow.destination);
        let modified = entry.with(&mut engine.resources.host(MappingCheck::Assumed), |qp, host| {
            qp.modify(attributes, mask, &limits, resolved, host)?;
            if let Some(pkey) = pkey {
                qp.set_pkey(pkey);
            }
            alternate.into_iter().for_each(|alternate| qp.set_alternate(alternate));
            if let Some((computed, given)) = replaced {
                host.emit(qp.context(), QpEvent::SourcePortReplaced { computed, given });
            }
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
        engine.resources.put_frames_at(qpn, qp_type, port_num);
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

    /// Returns the ordinal of a queue pair: how many this device created before it; `None`: the number is not
    /// known.
    pub fn ordinal_of(&self, qpn: Qpn) -> Option<u32> {
        self.core.lock_own().ok()?.resources.ordinal_of(qpn)
    }

    /// Returns all present attributes of a queue pair.
    ///
    /// # Errors
    /// Unknown number.
    pub fn query_qp(&self, qpn: Qpn) -> Result<QpAttributes, HcaError> {
        let mut guard = self.core.lock();
        let engine = &mut *guard;
        if let Some((_, entry)) = engine.mrc.by_number(qpn) {
            return Ok(entry.query());
        }
        let (_, entry) = engine.queue_pairs.by_number(qpn).ok_or(HcaError::UnknownQueuePair { qpn })?;
        Ok(entry
            .with(&mut engine.resources.host(MappingCheck::Assumed), |qp, _| qp.query())
            .map_err(|why| why.error(qpn))?)
    }

    /// Returns the address from which a queue pair of SRD got the newest message of another one; `None`: it
    /// got none.
    pub fn srd_source(&self, qpn: Qpn, from: Qpn) -> Option<IpAddr> {
        let mut engine = self.core.lock();
        engine.queue_pairs.by_number(qpn)?.1.qp.srd_source(from)
    }

    /// Reports whether WRITEs with immediate data that arrive at a queue pair take no receive request.
    pub fn takes_unsolicited(&self, qpn: Qpn) -> bool {
        let mut engine = self.core.lock();
        engine.queue_pairs.by_number(qpn).is_some_and(|(_, entry)| entry.qp.takes_unsolicited())
    }

    /// Resets a failed stream of a DC initiator, so that it works again. Returns false if the queue pair is
    /// not one in RTS that was created with streams.
    pub fn reset_dc_stream(&self, qpn: Qpn, stream: u16) -> bool {
        let mut engine = self.core.lock();
        let Some((_, entry)) = engine.queue_pairs.by_number(qpn) else { return false };
        let works = entry.qp.dc_streams().is_some() && entry.qp.state() == QpState::Rts;
        if works {
            entry.qp.reset_dc_stream(stream);
        }
        works
    }

    /// Makes the send queue of a queue pair stop in SQD after data that does not fit its signatures.
    pub fn stop_at_bad_signature(&self, qpn: Qpn) {
        if let Some((_, entry)) = self.core.lock().queue_pairs.by_number(qpn) {
            entry.qp.stop_at_bad_signature();
        }
    }

    /// Makes a queue pair place data out of order from now on; its messages take receives in any order.
    pub fn place_out_of_order(&self, qpn: Qpn) {
        let mut engine = self.core.lock();
        engine.resources.place_out_of_order(qpn);
        if let Some((_, entry)) = engine.queue_pairs.by_number(qpn) {
            entry.qp.place_out_of_order();
        }
    }

    /// Cancels the send requests with this identifier that have not begun, and returns their number. `None`:
    /// the queue pair's send queue is not drained in SQD.
    pub fn cancel_sends(&self, qpn: Qpn, wr_id: u64) -> Option<u32> {
        self.core.lock().queue_pairs.by_number(qpn)?.1.qp.cancel_sends(wr_id)
    }

    /// Reserves a number that no queue pair gets until it is released, for programs that tell peers of one
    /// that does not exist.
    ///
    /// # Errors
    /// All numbers are in use.
    pub fn reserve_number(&self) -> Result<Qpn, HcaError> {
        let index = self.core.lock().queue_pairs.reserve_index()?;
        Ok(Qpn::of(self.process, index))
    }

    /// Releases a reserved number. Returns false if the number is not reserved.
    pub fn release_number(&self, qpn: Qpn) -> bool {
        qpn.process() == self.process && self.core.lock().queue_pairs.release_index(qpn.index())
    }

    /// Makes a queue pair of RC or UC in RTS send from this UDP port from now on. Returns false if it is no
    /// such queue pair, or the port is not available: another socket has it, or the peer knows the queue pair
    /// by the port of RoCE, which is then the only possible one.
    pub fn set_source_port(&self, qpn: Qpn, source_port: u16) -> bool {
        let mut guard = self.core.lock();
        let engine = &mut *guard;
        let Some((_, entry)) = engine.queue_pairs.by_number(qpn) else { return false };
        let serves = matches!(entry.qp.qp_type(), QpType::Rc | QpType::Uc);
        let Some(flow) = entry.qp.flow().filter(|_| serves && entry.qp.state() == QpState::Rts) else {
            return false;
        };
        let wanted = Flow { source_port, ..*flow };
        let can_be_had = flow.source_port != flow.destination_port
            && engine.port.source_port(self.core.clock.now_ns(), &wanted) == source_port;
        if can_be_had {
            entry.qp.set_source_port(source_port);
        }
        can_be_had
    }

    /// Posts a send request and sends as much of it as may leave now.
    ///
    /// # Errors
    /// Malformed, wrong state, or the queue is full: an entry is free only once its completion, or a later
    /// one of the same queue, was polled.
    pub fn post_send(&self, qpn: Qpn, request: &SendRequest<'_>) -> Result<(), HcaError> {
        self.post_sends(qpn, std::slice::from_ref(request)).map_err(|(_, error)| error)
    }

    /// Posts send requests in order and sends them together.
    ///
    /// # Errors
    /// The position of the first request that was refused, and why; those before it are posted.
    pub fn post_sends(&self, qpn: Qpn, requests: &[SendRequest<'_>]) -> Result<(), (usize, HcaError)> {
        self.post(qpn, requests, false, false)
    }

    /// Posts the beginning of a list as [`Hca::post_sends`] does, but it may leave with the rest of the list:
    /// the caller posts that at once, and if there is none after all, posts no request.
    ///
    /// # Errors
    /// As [`Hca::post_sends`]. The requests before the refused one have been sent.
    pub fn post_begun(&self, qpn: Qpn, requests: &[SendRequest<'_>]) -> Result<(), (usize, HcaError)> {
        self.post(qpn, requests, false, true)
    }

    /// Posts send requests as [`Hca::post_sends`] does, all of them or none.
    ///
    /// # Errors
    /// The position of the first request that was refused, and why; nothing is posted.
    pub fn post_series(&self, qpn: Qpn, requests: &[SendRequest<'_>]) -> Result<(), (usize, HcaError)> {
        self.post(qpn, requests, true, false)
    }

    // With constants for `whole` and `begun`, this function is inlined into each of its callers.
    #[inline(always)]
    fn post(
        &self,
        qpn: Qpn,
        requests: &[SendRequest<'_>],
        whole: bool,
        begun: bool,
    ) -> Result<(), (usize, HcaError)> {
        let mut guard = self.core.lock_own().map_err(|inherited| (0, inherited.into()))?;
        let engine = &mut *guard;
        let Some((index, entry)) = engine.queue_pairs.by_number(qpn) else {
            return self.post_mrc_sends(engine, qpn, requests);
        };
        let depth = entry.qp.capacity().max_send_wr;
        let polled = engine.resources.cq_common.freed_send_slots.count(qpn.value());
        let call = if whole { PostCall::WrComplete } else { PostCall::PostSend };
        // A target has no send queue that could be full: the request itself is wrong.
        let has_queue = entry.qp.qp_type().has_send_queue();
        if whole && requests.len() > 1 {
            // Only the first request of a series can be refused below, when nothing of it is posted yet.
            let free = depth.saturating_sub(entry.posted_sends.wrapping_sub(polled));
            check_series(&entry.qp, requests, free)
                .map_err(|(position, error)| (position, self.refused_send(qpn, error, call)))?;
        }
        let mut outcome = Ok(());
        for (position, request) in requests.iter().enumerate() {
            // Executed requests keep their entry until they are polled.
            let posted = if has_queue && entry.posted_sends.wrapping_sub(polled) >= depth {
                Err(PostError::QueueFull { depth, all_unsignaled: entry.qp.is_unsignaled(depth) })
            } else {
                entry.qp.post_send(request, &mut engine.resources.host(MappingCheck::Assumed))
            };
            if let Err(error) = posted {
                outcome = Err((position, self.refused_send(qpn, error, call)));
                break;
            }
            entry.posted_sends = entry.posted_sends.wrapping_add(1);
        }
        if begun && outcome.is_ok() && engine.holds_beginning(index) {
            return Ok(());
        }
        let now_ns = self.core.clock.now_ns();
        let may_leave = requests.last().is_some_and(|request| may_leave_by_lane(request.opcode));
        if !may_leave || !engine.send_by_lane(index, now_ns, MappingCheckPolicy::Datagrams) {
            engine.posted(index, now_ns);
            // Requests leave first, then answers: an ACK must not delay a reply.
            engine.transmit(now_ns, Acknowledge::Now, MappingCheckPolicy::Datagrams);
        }
        self.core.note_deadline(engine, now_ns);
        outcome
    }

    /// Returns the refusal of a send request, with the errno that the imitated device's library returns.
    #[cold]
    pub fn refused_send(&self, qpn: Qpn, error: PostError, call: PostCall) -> HcaError {
        HcaError::Post { qpn, errno: self.provider.errno_of_send(&error, call), error }
    }

    /// Returns the refusal of a send request with `given` bytes of inline data, which are more than the
    /// device takes.
    #[cold]
    pub fn refused_inline(&self, qpn: Qpn, given: u64, call: PostCall) -> HcaError {
        let mut engine = self.core.lock();
        let capacity = engine.queue_pairs.by_number(qpn).map(|(_, entry)| *entry.qp.capacity());
        let allowed = capacity.map_or(self.limits.max_inline_data, |capacity| capacity.max_inline_data);
        drop(engine);
        self.refused_send(qpn, PostError::InlineTooLong { given, allowed }, call)
    }

    /// Posts a receive request to a queue pair's own receive queue.
    ///
    /// # Errors
    /// The queue pair is in RESET or uses an SRQ, the queue is full, or the request has too many elements.
    pub fn post_recv(&self, qpn: Qpn, request: &RecvRequest<'_>) -> Result<(), HcaError> {
        self.post_recvs(qpn, std::slice::from_ref(request)).map_err(|(_, error)| error)
    }

    /// Posts receive requests in order.
    ///
    /// # Errors
    /// The position of the first request that was refused, and why; those before it are posted.
    pub fn post_recvs(&self, qpn: Qpn, requests: &[RecvRequest<'_>]) -> Result<(), (usize, HcaError)> {
        let mut guard = self.core.lock_own().map_err(|inherited| (0, inherited.into()))?;
        let engine = &mut *guard;
        let Some((_, entry)) = engine.queue_pairs.by_number(qpn) else {
            return self.post_mrc_recvs(engine, qpn, requests);
        };
        if entry.qp.state() == QpState::Reset {
            let error = PostError::ReceiveInReset;
            return Err((0, HcaError::Post { qpn, error, errno: libc::EINVAL }));
        }
        let mut outcome = Ok(());
        for (position, request) in requests.iter().enumerate() {
            if let Err(error) = engine.resources.post_recv(entry.qp.context(), request) {
                let is_long = request.sges.len() > entry.qp.capacity().max_recv_sge as usize;
                let errno = engine.resources.failures.provider.errno_of_long_receive();
                let error = match error {
                    ResourceError::Invalid { what } if is_long => ResourceError::Refused { what, errno },
                    error => error,
                };
                outcome = Err((position, error.into()));
                break;
            }
        }
        entry.qp.flush_posted_receives(&mut engine.resources.host(MappingCheck::Assumed));
        outcome
    }

    /// Takes completions, oldest first, into `out`, and returns their number. An empty queue drives the
    /// engine once. In a process that was forked from the one of the device there are none.
    #[inline]
    pub fn poll_cq(&self, cq: &CompletionQueue, out: &mut [WorkCompletion]) -> usize {
        if !self.is_own() {
            return 0;
        }
        let most = cq.max_returned(out.len());
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

    /// Takes one completion as [`Hca::poll_cq`] does, with the time when it was made, in ns of
    /// [`Hca::clock`]; 0 if the queue does not stamp.
    pub fn poll_cq_stamped(&self, cq: &CompletionQueue) -> Option<(WorkCompletion, u64)> {
        if !self.is_own() {
            return None;
        }
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

/// Checks whether requests that belong together can all be posted; `free`: entries of the send queue.
///
/// # Errors
/// The position of the first one that cannot be posted, and why.
#[cold]
fn check_series(qp: &QueuePair, requests: &[SendRequest<'_>], free: u32) -> Result<(), (usize, PostError)> {
    for (position, request) in requests.iter().enumerate() {
        qp.check_send(request).map_err(|error| (position, error))?;
        if position >= free as usize {
            return Err((
                position,
                PostError::QueueFull { depth: qp.capacity().max_send_wr, all_unsignaled: false },
            ));
        }
    }
    Ok(())
}

/// Returns the port that a queue pair is on when attributes have been applied.
fn port_after(qp: &QueuePair, attributes: &QpAttributes, mask: AttributeMask) -> u8 {
    if mask.contains(AttributeMask::PORT) {
        return attributes.port_num;
    }
    // In RESET the queue pair is on no port yet, and the first one is used.
    qp.query().port_num.max(1)
}

/// Checks that the path of a connected queue pair begins at the port that the queue pair is on.
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
