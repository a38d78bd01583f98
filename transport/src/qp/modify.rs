//! `modify_qp` and `query_qp`: the state machine of the verbs.

use alloc::sync::Arc;

use super::alternate::{MIGRATED, Migration};
use super::attributes::{AttributeMask, ModifyLimits, QpAttributes};
use super::peer_port::PeerPort;
use super::requester::Requester;
use super::settings::QpSettings;
use super::statistics::QpStatistics;
use super::transition::{self, ModifyError, Step};
use super::{QpConfig, QueuePair, ReceivingSide, congestion::Notifier};
use crate::event::StateChangeActor;
use crate::host::Host;
use crate::path::Path;
use crate::types::{Access, Cause, Mtu, QpState};
use crate::wire::{Psn, Qpn};

/// An address vector that the device has resolved.
#[derive(Debug, Clone)]
pub struct ResolvedPath {
    /// Addresses and packet marks.
    pub path: Arc<Path>,
    /// Largest number of PSNs in flight at a time.
    pub window_limit_packets: u32,
    /// Largest number of response packets of one READ request: what this side's receive buffer is assumed to
    /// have room for. A longer READ is split into several requests.
    pub read_limit_packets: u32,
}

impl QpSettings {
    pub(crate) fn new(config: &QpConfig) -> QpSettings {
        QpSettings {
            context: config.context,
            qp_type: config.qp_type,
            signal_all: config.signal_all,
            has_srq: config.has_srq,
            connection: 0,
            rq_psn: Psn::new(0),
            path: None,
            destination: Qpn::new(0),
            mtu_bytes: if config.qp_type.is_datagram() { config.port_mtu_bytes } else { 256 },
            pkey: 0xffff,
            is_migrated: true,
            qkey: 0,
            access: Access::empty(),
            timeout: 0,
            retry_count: 0,
            rnr_retry: 0,
            min_rnr_timer: 0,
            max_rd_atomic: 0,
            max_dest_rd_atomic: 0,
            congestion: config.congestion.clone(),
            adaptive_timeout: config.adaptive_timeout,
            stops_at_bad_signature: false,
        }
    }
}

impl QueuePair {
    /// Changes state and attributes. A call that fails changes nothing.
    ///
    /// `resolved` is the path for the address vector in `attributes`; needed when the mask has AV. Moving to
    /// RESET drops all posted requests without completions; the device then empties the receive queue and
    /// removes this queue pair's completions.
    ///
    /// # Errors
    /// Fails if an attribute is missing, not allowed or out of range; the error names it and the transition.
    pub fn modify<H: Host>(
        &mut self,
        attributes: &QpAttributes,
        mask: AttributeMask,
        limits: &ModifyLimits,
        resolved: Option<ResolvedPath>,
        host: &mut H,
    ) -> Result<(), ModifyError> {
        //= statement:31
        //| A call that is refused changes no attribute.
        let next = transition::check(self.settings.qp_type, self.state, attributes, mask, limits)?;
        //= linux:rxe_qp.c#rxe_qp_chk_attr
        //| A queue pair that drains can only go to RESET or ERR.
        if self.draining && !matches!(next, QpState::Reset | QpState::Err) {
            let step = Step { qp_type: self.settings.qp_type, from: self.state, to: next };
            return Err(ModifyError::StillDraining { step });
        }
        let mask = transition::effective_mask(self.settings.qp_type, mask);
        let step = Step { qp_type: self.settings.qp_type, from: self.state, to: next };
        self.check_migration(step, attributes, mask)?;
        self.store(attributes, mask);
        let mut limits_of_path = None;
        if let (true, Some(resolved)) = (mask.contains(AttributeMask::AV), resolved) {
            self.settings.path = Some(self.settings.congestion.marked(resolved.path));
            self.notifier.forget_path();
            self.peer_port = PeerPort::default();
            limits_of_path = Some((resolved.window_limit_packets, resolved.read_limit_packets));
        }
        self.apply(limits_of_path);
        if mask.contains(AttributeMask::PATH_MIG_STATE) {
            self.set_migration(attributes.path_mig_state, host);
        }
        self.enter(next, mask, host);
        if mask.contains(AttributeMask::RATE_LIMIT) {
            self.requester.limit_rate(self.attributes.rate_limit);
        }
        Ok(())
    }

    /// Puts the queue pair into a partition: packets of others are dropped. The device calls it with the
    /// entry of its P_Key table whenever `pkey_index` is set.
    pub const fn set_pkey(&mut self, pkey: u16) {
        self.settings.pkey = pkey;
    }

    /// Copies the attributes that the mask names.
    fn store(&mut self, new: &QpAttributes, mask: AttributeMask) {
        let old = &mut self.attributes;
        let mut when = |flag: AttributeMask, copy: &dyn Fn(&mut QpAttributes)| {
            if mask.contains(flag) {
                copy(old);
            }
        };
        when(AttributeMask::EN_SQD_ASYNC_NOTIFY, &|a| a.en_sqd_async_notify = new.en_sqd_async_notify);
        when(AttributeMask::ACCESS_FLAGS, &|a| a.access = new.access);
        when(AttributeMask::PKEY_INDEX, &|a| a.pkey_index = new.pkey_index);
        when(AttributeMask::PORT, &|a| a.port_num = new.port_num);
        when(AttributeMask::QKEY, &|a| a.qkey = new.qkey);
        when(AttributeMask::AV, &|a| a.address_vector = new.address_vector);
        when(AttributeMask::PATH_MTU, &|a| a.path_mtu = new.path_mtu);
        when(AttributeMask::TIMEOUT, &|a| a.timeout = new.timeout);
        when(AttributeMask::RETRY_CNT, &|a| a.retry_cnt = new.retry_cnt);
        when(AttributeMask::RNR_RETRY, &|a| a.rnr_retry = new.rnr_retry);
        //= linux:rxe_qp.c#rxe_qp_from_attr
        //| Only the low 24 bits of a PSN count.
        when(AttributeMask::RQ_PSN, &|a| a.rq_psn = new.rq_psn & 0xff_ffff);
        when(AttributeMask::MAX_QP_RD_ATOMIC, &|a| a.max_rd_atomic = new.max_rd_atomic);
        when(AttributeMask::ALT_PATH, &|a| {
            a.alt_address_vector = new.alt_address_vector;
            a.alt_pkey_index = new.alt_pkey_index;
            a.alt_port_num = new.alt_port_num;
            a.alt_timeout = new.alt_timeout;
        });
        when(AttributeMask::MIN_RNR_TIMER, &|a| a.min_rnr_timer = new.min_rnr_timer);
        when(AttributeMask::SQ_PSN, &|a| a.sq_psn = new.sq_psn & 0xff_ffff);
        when(AttributeMask::MAX_DEST_RD_ATOMIC, &|a| a.max_dest_rd_atomic = new.max_dest_rd_atomic);
        when(AttributeMask::RATE_LIMIT, &|a| a.rate_limit = new.rate_limit);
        when(AttributeMask::DEST_QPN, &|a| a.dest_qp_num = new.dest_qp_num & 0xff_ffff);
    }

    /// Sets the path MTU of a datagram queue pair's port, the largest payload of its datagrams.
    pub fn set_port_mtu(&mut self, mtu: Mtu) {
        self.port_mtu_bytes = mtu.bytes();
        if self.settings.qp_type.is_datagram() {
            self.settings.mtu_bytes = self.port_mtu_bytes;
        }
    }

    /// Brings the settings in line with the attributes.
    pub(super) fn apply(&mut self, limits_of_path: Option<(u32, u32)>) {
        let attributes = &self.attributes;
        let settings = &mut self.settings;
        settings.destination = Qpn::new(attributes.dest_qp_num);
        if settings.qp_type.is_datagram() {
            settings.mtu_bytes = self.port_mtu_bytes;
        } else if let Some(mtu) = Mtu::from_verbs(attributes.path_mtu) {
            settings.mtu_bytes = mtu.bytes();
        }
        settings.is_migrated = attributes.path_mig_state == MIGRATED;
        settings.qkey = attributes.qkey;
        settings.access = Access::from_bits_truncate(attributes.access);
        settings.timeout = attributes.timeout;
        settings.retry_count = attributes.retry_cnt;
        settings.rnr_retry = attributes.rnr_retry;
        settings.min_rnr_timer = attributes.min_rnr_timer;
        settings.max_rd_atomic = attributes.max_rd_atomic;
        settings.max_dest_rd_atomic = attributes.max_dest_rd_atomic;
        if let Some((window, read)) = limits_of_path {
            self.window_limit_packets = window;
            self.requester.read_limit_packets = read;
        }
    }

    fn enter<H: Host>(&mut self, next: QpState, mask: AttributeMask, host: &mut H) {
        let previous = self.state;
        match (previous, next) {
            //= linux:rxe_qp.c#rxe_qp_reset
            //| RESET forgets all requests and makes no completions.
            (_, QpState::Reset) => {
                let QpStatistics { posted, ended, unsignaled, .. } = self.statistics();
                let numbered = self.numbered.as_ref().map_or(0, |numbered| numbered.count() as u64);
                let requests = posted.saturating_sub(ended).saturating_sub(unsignaled) + numbered;
                if requests > 0 {
                    host.log(&self.settings.context, Cause::DroppedByReset { requests });
                }
                self.reset();
            }
            (_, QpState::Err) => self.enter_error(Some(Cause::Modified), host),
            (QpState::Init, QpState::Rtr) => {
                let rq_psn = Psn::new(self.attributes.rq_psn);
                self.settings.rq_psn = rq_psn;
                match &mut self.receiver {
                    ReceivingSide::Reliable(responder) => responder.start(rq_psn),
                    ReceivingSide::Unreliable(receiver) => receiver.start(rq_psn),
                    ReceivingSide::Datagram(_) => {}
                }
                self.state = next;
            }
            (QpState::Rtr, QpState::Rts) => {
                let sq_psn = Psn::new(self.attributes.sq_psn);
                self.requester.start(&self.settings, sq_psn, self.window_limit_packets);
                if self.settings.qp_type.is_srd() && !mask.contains(AttributeMask::RNR_RETRY) {
                    // The specification does not say what an adapter does without it: here it retries for
                    // ever.
                    (self.attributes.rnr_retry, self.settings.rnr_retry) = (7, 7);
                }
                self.state = next;
            }
            (QpState::Rts, QpState::Sqd) => {
                self.state = next;
                //= linux:rxe_qp.c#rxe_qp_sqd
                //| SQD lets the messages that were started come to their end.
                self.draining = true;
                if !mask.contains(AttributeMask::EN_SQD_ASYNC_NOTIFY) {
                    self.attributes.en_sqd_async_notify = false;
                }
                self.finish_drain(host);
            }
            _ => self.state = next,
        }
        // A queue pair that fails has reported it already.
        if next != QpState::Err {
            self.emit_state(previous, StateChangeActor::Program, host);
        }
    }

    fn reset(&mut self) {
        self.state = QpState::Reset;
        self.settings.connection = self.settings.connection.wrapping_add(1);
        self.draining = false;
        let mut requester = Requester::new(self.capacity.max_send_wr, &self.settings);
        requester.queue.take_room_of(&mut self.requester.queue);
        self.requester = requester;
        self.receiver = ReceivingSide::new(self.settings.qp_type);
        if let Some(numbered) = &mut self.numbered {
            **numbered = numbered.with_same_parameters(self.capacity.max_send_wr);
        }
        self.notifier = Notifier::default();
        self.peer_port = PeerPort::default();
        self.migration = Migration::default();
        self.attributes = QpAttributes { cap: self.capacity, ..QpAttributes::default() };
        self.settings.path = None;
        self.apply(None);
    }

    /// Returns all attributes: state, the next PSNs of both directions, whether the SQ is draining.
    pub fn query(&self) -> QpAttributes {
        let mut attributes = self.attributes.clone();
        attributes.qp_state = self.state as u32;
        attributes.cur_qp_state = self.state as u32;
        //= linux:rxe_qp.c#rxe_qp_to_attr
        //| A query says whether the send queue is draining.
        attributes.sq_draining = self.draining;
        attributes.cap = self.capacity;
        // A target sends nothing, and its first PSN may have been set by another process.
        if self.state >= QpState::Rts && self.settings.qp_type.has_send_queue() {
            attributes.sq_psn = self.requester.cursor_psn().value();
        }
        if self.state >= QpState::Rtr {
            attributes.rq_psn = match &self.receiver {
                ReceivingSide::Reliable(responder) => responder.expected.value(),
                ReceivingSide::Unreliable(receiver) => receiver.expected.value(),
                ReceivingSide::Datagram(_) => attributes.rq_psn,
            };
        }
        attributes
    }

    /// Reports whether a send queue in SQD still has started messages to finish: only RESET and ERR may
    /// follow then.
    pub fn is_draining(&self) -> bool {
        self.draining
    }
}
