//! RC queue pairs whose WRITEs MRC carries: each has an MRC queue pair beside it, its twin, with the same
//! number, objects and peer.

use pumice_memory::MappingCheck;
use pumice_transport::qp::AttributeMask;
use pumice_transport::types::{QpState, QpType, SendRequest};
use pumice_transport::wire::Qpn;

use super::mrc_connect::{connect, start_to_send};
use super::{Hca, HcaError, MrcAttributes};
use crate::engine::{Engine, MrcEntry};

/// The attributes of verbs that a twin takes over at RTS.
const OF_SENDER: AttributeMask = AttributeMask::TIMEOUT.union(AttributeMask::RETRY_CNT);

/// Makes the twin of a queue pair follow a change of its state. A twin that cannot be made is left out: the
/// queue pair stays RC.
pub(super) fn follow(engine: &mut Engine, qpn: Qpn, now_ns: u64) {
    let Some((_, entry)) = engine.queue_pairs.by_number(qpn) else { return };
    if entry.qp.qp_type() != QpType::Rc {
        return;
    }
    let (state, context, attributes) = (entry.qp.state(), *entry.qp.context(), entry.qp.query());
    let capacity = *entry.qp.capacity();
    match (state, engine.mrc.twin_of(qpn)) {
        (QpState::Rtr, None) => {
            let Ok(index) = engine.queue_pairs.reserve_index() else { return };
            let mut twin = MrcEntry::new(context, capacity, false);
            twin.twin_of = Some(qpn);
            twin.attributes = attributes;
            engine.mrc.insert(index.into(), twin);
            engine.listen_for_mrc();
            engine.mrc.add_twin(qpn, index.into());
            if connect(engine, index.into(), now_ns).is_err() {
                end(engine, qpn);
            }
        }
        (QpState::Rts, Some(index)) => {
            let Some(twin) = engine.mrc.at_mut(index).filter(|twin| twin.state() == QpState::Rtr) else {
                return;
            };
            if let Ok(chosen) = twin.chosen.after(&attributes, OF_SENDER, &MrcAttributes::default()) {
                twin.chosen = chosen;
            }
            twin.attributes = attributes;
            if start_to_send(engine, index, now_ns).is_err() {
                end(engine, qpn);
            }
            engine.touch(index);
        }
        (QpState::Err, Some(index)) => {
            if let Some(twin) = engine.mrc.at_mut(index) {
                twin.enter_error(None, &mut engine.resources.host(MappingCheck::Assumed));
            }
        }
        (QpState::Reset, Some(_)) => end(engine, qpn),
        _ => {}
    }
}

/// Removes the twin of a queue pair.
pub(super) fn end(engine: &mut Engine, qpn: Qpn) {
    if let Some(index) = engine.mrc.remove_twin(qpn) {
        engine.queue_pairs.release_index(index as u16);
    }
}

impl Hca {
    /// Reports whether RC queue pairs have twins of MRC.
    pub fn carries_by_mrc(&self) -> bool {
        self.settings.carries_by_mrc
    }

    /// Posts requests to the twin of an RC queue pair.
    ///
    /// # Errors
    /// As [`Hca::post_sends`]; the queue pair has no twin.
    pub fn post_by_mrc(&self, qpn: Qpn, requests: &[SendRequest<'_>]) -> Result<(), (usize, HcaError)> {
        let mut guard = self.core.lock_own().map_err(|inherited| (0, inherited.into()))?;
        let engine = &mut *guard;
        match engine.mrc.twin_of(qpn) {
            Some(index) => self.post_to_entry(engine, index, qpn, requests),
            None => Err((0, HcaError::UnknownQueuePair { qpn })),
        }
    }

    /// Reports whether an RC queue pair has a twin that can send.
    pub fn has_mrc_twin(&self, qpn: Qpn) -> bool {
        let mut engine = self.core.lock();
        let twin = engine.mrc.twin_of(qpn);
        twin.and_then(|index| engine.mrc.at_mut(index)).is_some_and(|twin| twin.state() == QpState::Rts)
    }

    /// Reports whether the twin of an RC queue pair has no request that has not completed.
    pub fn mrc_twin_is_idle(&self, qpn: Qpn) -> bool {
        let mut engine = self.core.lock();
        let twin = engine.mrc.twin_of(qpn);
        twin.and_then(|index| engine.mrc.at_mut(index)).is_none_or(|twin| twin.outstanding() == 0)
    }

    /// Lets an RC queue pair go on without its twin, which is idle: requests that were posted count for both.
    pub fn leave_mrc_twin(&self, qpn: Qpn) {
        let mut guard = self.core.lock();
        let engine = &mut *guard;
        let twin = engine.mrc.twin_of(qpn).and_then(|index| engine.mrc.at_mut(index));
        let posted = twin.map_or(0, |twin| std::mem::take(&mut twin.activity.posted_sends));
        if let Some((_, entry)) = engine.queue_pairs.by_number(qpn) {
            entry.posted_sends = entry.posted_sends.wrapping_add(posted);
        }
    }
}
