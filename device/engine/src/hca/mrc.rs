//! MRC queue pairs: create, modify, query, destroy, post.

use pumice_memory::MappingCheck;
use pumice_model::profile::PostCall;
use pumice_platform::error::ResourceError;
use pumice_transport::event::QpEvent;
use pumice_transport::host::Host as _;
use pumice_transport::mrc::MrcPostError;
use pumice_transport::qp::{AttributeMask, QpAttributes};
use pumice_transport::types::{
    Cause, MrcBreach, PostError, QpCapacity, QpState, QpType, RecvRequest, SendFlags, SendRequest,
};
use pumice_transport::wire::Qpn;

use super::mrc_connect::{connect, refused, start_to_send};
use super::{ControlError, Hca, HcaError, MrcAttributes, MrcChosen, QpInit};
use crate::engine::{Acknowledge, Engine, MrcEntry};
use crate::resources::{MappingCheckPolicy, QpSetup};

/// Returns the attributes that a change of state needs; `None` if there is no such change.
fn needed(from: QpState, to: QpState) -> Option<AttributeMask> {
    let mask = match (from, to) {
        (_, QpState::Reset | QpState::Err) => AttributeMask::empty(),
        (QpState::Reset, QpState::Init) => AttributeMask::PKEY_INDEX | AttributeMask::ACCESS_FLAGS,
        (QpState::Init, QpState::Rtr) => {
            AttributeMask::AV | AttributeMask::PATH_MTU | AttributeMask::DEST_QPN | AttributeMask::RQ_PSN
        }
        (QpState::Rtr, QpState::Rts) => AttributeMask::SQ_PSN,
        (QpState::Init, QpState::Init) | (QpState::Rts, QpState::Rts) => AttributeMask::empty(),
        _ => return None,
    };
    Some(mask)
}

impl MrcEntry {
    /// Returns all present attributes of verbs.
    pub(super) fn query(&self) -> QpAttributes {
        let state = self.state() as u32;
        QpAttributes { qp_state: state, cur_qp_state: state, ..self.attributes }
    }

    /// Merges the attributes that a call sets.
    fn set(&mut self, given: &QpAttributes, mask: AttributeMask) {
        for (_, set) in SETTERS.iter().filter(|(bit, _)| mask.contains(*bit)) {
            set(&mut self.attributes, given);
        }
    }
}

/// The attributes that queue pairs remember, and how each is set.
type Setter = fn(&mut QpAttributes, &QpAttributes);
const SETTERS: [(AttributeMask, Setter); 12] = [
    (AttributeMask::ACCESS_FLAGS, |own, given| own.access = given.access),
    (AttributeMask::PKEY_INDEX, |own, given| own.pkey_index = given.pkey_index),
    (AttributeMask::PORT, |own, given| own.port_num = given.port_num),
    (AttributeMask::AV, |own, given| own.address_vector = given.address_vector),
    (AttributeMask::PATH_MTU, |own, given| own.path_mtu = given.path_mtu),
    (AttributeMask::DEST_QPN, |own, given| own.dest_qp_num = given.dest_qp_num & 0xff_ffff),
    (AttributeMask::RQ_PSN, |own, given| own.rq_psn = given.rq_psn & 0xff_ffff),
    (AttributeMask::SQ_PSN, |own, given| own.sq_psn = given.sq_psn & 0xff_ffff),
    (AttributeMask::TIMEOUT, |own, given| own.timeout = given.timeout),
    (AttributeMask::RETRY_CNT, |own, given| own.retry_cnt = given.retry_cnt),
    (AttributeMask::RNR_RETRY, |own, given| own.rnr_retry = given.rnr_retry),
    (AttributeMask::MIN_RNR_TIMER, |own, given| own.min_rnr_timer = given.min_rnr_timer),
];

impl Hca {
    /// Creates an MRC queue pair in RESET, with the objects of `init`, whose type is RC. Returns its number
    /// and the granted sizes.
    ///
    /// # Errors
    /// As [`Hca::create_qp`]; a shared receive queue is refused.
    pub fn create_mrc_qp(&self, init: &QpInit) -> Result<(Qpn, QpCapacity), HcaError> {
        let mut engine = self.core.lock();
        let most = self.settings.limits.max_qp;
        if engine.queue_pair_count() >= most {
            let table = format!("the device has all of its {most} queue pairs");
            return Err(ResourceError::no_memory(table).into());
        }
        if init.srq.is_some() {
            return Err(ResourceError::invalid("MRC queue pairs have no shared receive queue").into());
        }
        let index = engine.queue_pairs.reserve_index()?;
        engine.turns.make_room(index.into());
        let qpn = Qpn::of(self.process, index);
        let setup = QpSetup {
            qpn,
            qp_type: QpType::Rc,
            cookie: init.cookie,
            pd: init.pd,
            send_cq: init.send_cq,
            recv_cq: init.recv_cq,
            srq: None,
            xrcd: None,
            capacity: init.capacity,
        };
        let attached = engine.resources.attach_service(&setup, "MRC");
        let attached = attached.inspect_err(|_| {
            engine.queue_pairs.release_index(index);
        })?;
        let entry = MrcEntry::new(attached.context, attached.capacity, init.signal_all);
        engine.mrc.insert(index.into(), entry);
        engine.listen_for_mrc();
        drop(engine);
        self.publish_object_counts();
        Ok((qpn, attached.capacity))
    }

    /// Destroys an MRC queue pair; blocks until its asynchronous events are acknowledged.
    ///
    /// # Errors
    /// Unknown number.
    pub(super) fn destroy_mrc_qp(&self, qpn: Qpn) -> Result<(), HcaError> {
        let account = {
            let mut engine = self.core.lock_own()?;
            let (index, _) = engine.mrc.by_number(qpn).ok_or(HcaError::UnknownQueuePair { qpn })?;
            let account = engine.resources.detach_qp(qpn)?;
            engine.mrc.remove(index);
            engine.queue_pairs.release_index(qpn.index());
            account
        };
        self.publish_object_counts();
        account.wait_all_acked();
        Ok(())
    }

    /// Returns the values of the attributes of MRC.
    ///
    /// # Errors
    /// Unknown number.
    pub fn query_mrc_qp(&self, qpn: Qpn) -> Result<MrcChosen, HcaError> {
        let mut engine = self.core.lock();
        let (_, entry) = engine.mrc.by_number(qpn).ok_or(HcaError::UnknownQueuePair { qpn })?;
        Ok(entry.chosen)
    }

    /// Changes state and attributes of an MRC queue pair; on failure nothing has changed.
    ///
    /// # Errors
    /// An attribute is missing or wrong for the transition; an address vector that leads nowhere; an unknown
    /// number.
    pub fn modify_mrc_qp(
        &self,
        qpn: Qpn,
        attributes: &QpAttributes,
        mask: AttributeMask,
        set: &MrcAttributes,
    ) -> Result<(), HcaError> {
        let mut guard = self.core.lock();
        let engine = &mut *guard;
        let now_ns = self.core.clock.now_ns();
        let (index, entry) = engine.mrc.by_number(qpn).ok_or(HcaError::UnknownQueuePair { qpn })?;
        let from = entry.state();
        let to = match mask.contains(AttributeMask::STATE) {
            true => QpState::from_verbs(attributes.qp_state)
                .ok_or_else(|| refused(qpn, format!("there is no state {}", attributes.qp_state)))?,
            false => from,
        };
        let unknown = || refused(qpn, format!("no way leads from {} to {}", from.name(), to.name()));
        let missing = needed(from, to).ok_or_else(unknown)? - mask;
        if !missing.is_empty() {
            let what = format!("{} to {} needs more attributes: {missing:?}", from.name(), to.name());
            return Err(refused(qpn, what));
        }
        let chosen = entry.chosen.after(attributes, mask, set).map_err(|what| refused(qpn, what))?;
        let of_control = |error: ControlError| HcaError::Mrc { qpn, what: error.what, errno: error.errno };
        let context = entry.context;
        let control = &engine.mrc.control;
        let evs = set.ev_profile.map(|id| ("EV", id, control.online_evs(id).err()));
        let cc = set.cc_profile.map(|id| ("CC", id, control.online_cc(id).err()));
        for (kind, id, error) in [evs, cc].into_iter().flatten() {
            if let Some(error) = error {
                let event = QpEvent::RuleBroken(MrcBreach::NoProfile { kind, id });
                engine.resources.host(MappingCheck::Assumed).emit(&context, event);
                return Err(of_control(error));
            }
        }
        let Some(entry) = engine.mrc.at_mut(index) else { return Ok(()) };
        let before = (entry.attributes.clone(), entry.chosen);
        entry.set(attributes, mask);
        entry.chosen = chosen;
        let outcome = match to {
            QpState::Rtr if from != to => connect(engine, index, now_ns),
            QpState::Rts if from != to => start_to_send(engine, index, now_ns),
            QpState::Reset => {
                entry.reset();
                engine.resources.reset_qp(qpn);
                Ok(())
            }
            QpState::Err => {
                let mut host = engine.resources.host(MappingCheck::Assumed);
                entry.enter_error(Some(Cause::Modified), &mut host);
                Ok(())
            }
            QpState::Init => {
                entry.early = QpState::Init;
                Ok(())
            }
            _ => Ok(()),
        };
        if let (Err(_), Some(entry)) = (&outcome, engine.mrc.at_mut(index)) {
            (entry.attributes, entry.chosen) = before;
        }
        outcome?;
        engine.mrc.report_call(index, from, &mut engine.resources.host(MappingCheck::Assumed));
        engine.touch(index);
        engine.transmit(now_ns, Acknowledge::Now, MappingCheckPolicy::Datagrams);
        self.core.note_deadline(engine, now_ns);
        Ok(())
    }

    /// Posts requests to an MRC queue pair.
    #[cold]
    pub(super) fn post_mrc_sends(
        &self,
        engine: &mut Engine,
        qpn: Qpn,
        requests: &[SendRequest<'_>],
    ) -> Result<(), (usize, HcaError)> {
        match engine.mrc.by_number(qpn).map(|(index, _)| index) {
            Some(index) => self.post_to_entry(engine, index, qpn, requests),
            None => Err((0, HcaError::UnknownQueuePair { qpn })),
        }
    }

    /// Posts requests to the MRC queue pair with this index, of which `qpn` is the number.
    pub(super) fn post_to_entry(
        &self,
        engine: &mut Engine,
        index: u32,
        qpn: Qpn,
        requests: &[SendRequest<'_>],
    ) -> Result<(), (usize, HcaError)> {
        let Some(entry) = engine.mrc.at_mut(index) else {
            return Err((0, HcaError::UnknownQueuePair { qpn }));
        };
        let depth = entry.capacity.max_send_wr;
        let polled = engine.resources.completions.cq_common.freed_send_slots.count(qpn.value());
        let mut outcome = Ok(());
        for (position, request) in requests.iter().enumerate() {
            let full = MrcPostError::QueueFull { depth, all_unsignaled: false };
            let posted = match check_sizes(&entry.capacity, request) {
                Err(error) => Err(self.refused_send(qpn, error, PostCall::PostSend)),
                Ok(()) if entry.activity.posted_sends.wrapping_sub(polled) >= depth => {
                    Err(error_of(qpn, full))
                }
                Ok(()) => post_one(entry, request, &mut engine.resources.host(MappingCheck::Assumed))
                    .map_err(|error| error_of(qpn, error)),
            };
            if let Err(error) = posted {
                outcome = Err((position, error));
                break;
            }
            entry.activity.posted_sends = entry.activity.posted_sends.wrapping_add(1);
        }
        let now_ns = self.core.clock.now_ns();
        engine.touch(index);
        engine.transmit(now_ns, Acknowledge::Now, MappingCheckPolicy::Datagrams);
        self.core.note_deadline(engine, now_ns);
        outcome
    }

    /// Posts receive requests to an MRC queue pair.
    #[cold]
    pub(super) fn post_mrc_recvs(
        &self,
        engine: &mut Engine,
        qpn: Qpn,
        requests: &[RecvRequest<'_>],
    ) -> Result<(), (usize, HcaError)> {
        let Some((_, entry)) = engine.mrc.by_number(qpn) else {
            return Err((0, HcaError::UnknownQueuePair { qpn }));
        };
        let (context, state) = (entry.context, entry.state());
        if state == QpState::Reset {
            let error = PostError::ReceiveInReset;
            return Err((0, HcaError::Post { qpn, error, errno: libc::EINVAL }));
        }
        for (position, request) in requests.iter().enumerate() {
            engine.resources.post_recv(&context, request).map_err(|error| (position, error.into()))?;
        }
        if state == QpState::Err {
            engine.resources.host(MappingCheck::Assumed).flush_recv_queue(&context);
        }
        Ok(())
    }
}

fn error_of(qpn: Qpn, error: MrcPostError) -> HcaError {
    let errno = match error {
        MrcPostError::QueueFull { .. } => libc::ENOMEM,
        _ => libc::EINVAL,
    };
    HcaError::Mrc { qpn, what: error.to_string(), errno }
}

/// Checks the sizes of a request.
fn check_sizes(capacity: &QpCapacity, request: &SendRequest<'_>) -> Result<(), PostError> {
    if request.flags.contains(SendFlags::INLINE) {
        let (given, allowed) = (request.inline_data.len() as u64, capacity.max_inline_data);
        return if given > allowed.into() {
            Err(PostError::InlineTooLong { given, allowed })
        } else {
            Ok(())
        };
    }
    let (given, allowed) = (request.sges.len(), capacity.max_send_sge);
    if given > allowed as usize { Err(PostError::TooManySges { given, allowed }) } else { Ok(()) }
}

fn post_one<H: pumice_transport::host::Host>(
    entry: &mut MrcEntry,
    request: &SendRequest<'_>,
    host: &mut H,
) -> Result<(), MrcPostError> {
    let state = entry.state();
    let Some(qp) = &mut entry.qp else { return Err(MrcPostError::WrongState { state }) };
    if entry.signal_all && !request.flags.contains(SendFlags::SIGNALED) {
        let flags = request.flags | SendFlags::SIGNALED;
        return qp.post_send(&SendRequest { flags, ..request.clone() }, host);
    }
    qp.post_send(request, host)
}
