//! Queue pairs: create, query, destroy, and what a queue pair alone has.

use std::net::IpAddr;

use pumice_platform::error::ResourceError;
use pumice_platform::table::Handle;
use pumice_transport::path::Flow;
use pumice_transport::qp::{QpAttributes, QpConfig, QueuePair, SrdOrder};
use pumice_transport::types::{QpCapacity, QpState, QpType, VendorService};
use pumice_transport::wire::Qpn;

use super::{Hca, HcaError, TargetRegistration, mrc_twin};
use crate::engine::QpEntry;
use crate::resources::{QpSetup, TAG_REQUESTS};
use pumice_memory::MappingCheck;

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
        let most = self.settings.limits.max_qp;
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
            port_mtu_bytes: engine.resources.port.ports.longest_mtu().bytes(),
            congestion: self.settings.congestion.clone(),
            adaptive_timeout: self.settings.adaptive_timeout,
        });
        if engine.resources.objects.matches_tags(init.srq) {
            qp.serve_device(TAG_REQUESTS);
        }
        if let Some(own) = own.or_else(|| VendorService::plain(init.qp_type)) {
            qp.set_vendor_service(own, self.srd_order_of(attached.context.ordinal));
        }
        let room = qp.make_room().map_err(|_| {
            let entries = attached.capacity.max_send_wr;
            HcaError::from(ResourceError::no_memory(format!("{entries} send requests; ask for fewer")))
        });
        let sharing = match room.and_then(|()| Ok(engine.target_operations().share(&qp)?)) {
            Ok(sharing) => sharing,
            Err(error) => {
                engine.resources.detach_qp(qpn)?;
                return Err(error);
            }
        };
        engine.turns.make_room(index.into());
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
        match self.settings.srd_order {
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
            engine.target_operations().end_sharing(qpn);
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
}
