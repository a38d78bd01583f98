//! An MRC queue pair and what the engine stores about it.

use std::collections::VecDeque;
use std::net::IpAddr;

use pumice_model::inspect::MAX_PATH_CHANGES;
use pumice_model::port::batch::Peer;
use pumice_transport::event::{QpEvent, StateChangeActor, Topic};
use pumice_transport::host::{Host, QpContext};
use pumice_transport::mrc::constants::{
    DEFAULT_EXP_CNT, DEFAULT_LINEAR_CNT, DEFAULT_MAX_WIMM, DEFAULT_MPR, DEFAULT_TIMEOUT, EXP_FOR_EVER,
    MAX_LINEAR_CNT, MAX_TIMEOUT,
};
use pumice_transport::mrc::entropy::DscpTable;
use pumice_transport::mrc::paths::{Ev, PathChange, PathState};
use pumice_transport::mrc::{MrcProgress, MrcQueuePair};
use pumice_transport::path::Path;
use pumice_transport::qp::{AttributeMask, QpAttributes};
use pumice_transport::types::{Cause, QpCapacity, QpState};
use pumice_transport::wire::Qpn;

use super::network::{MrcOutlet, MrcWays};
use crate::engine::batch::BatchSink;
use crate::engine::queue_pairs::QpTraffic;
use pumice_model::mrc_profiles::EvName;

/// The attributes of MRC that a call sets (`struct mrc_qp_attr` and its mask). `None` leaves a value as it
/// is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MrcAttributes {
    /// Window of the peer as responder, in units of 128 PSNs.
    pub mpr: Option<u8>,
    /// Window that this side grants, in units of 128 PSNs.
    pub mpr_dest: Option<u8>,
    /// WRITEs with immediate that this side may have in flight.
    pub max_wimm: Option<u16>,
    /// WRITEs with immediate that the peer may have in flight.
    pub max_wimm_dest: Option<u16>,
    /// Exponent of the local ACK timeout.
    pub timeout: Option<u8>,
    /// Numbers of linear and of exponential retries.
    pub retries: Option<(u8, u8)>,
    /// Profile of entropy values.
    pub ev_profile: Option<u64>,
    /// Profile of congestion control.
    pub cc_profile: Option<u64>,
    /// Bits of `enum mrc_qp_cap`.
    pub cap: Option<u32>,
}

/// The values that the attributes of MRC have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MrcChosen {
    /// Window of the peer as responder, in units of 128 PSNs.
    pub mpr: u8,
    /// Window that this side grants, in units of 128 PSNs.
    pub mpr_dest: u8,
    /// WRITEs with immediate that this side may have in flight.
    pub max_wimm: u16,
    /// WRITEs with immediate that the peer may have in flight.
    pub max_wimm_dest: u16,
    /// Exponent of the local ACK timeout.
    pub timeout: u8,
    /// Number of linear retries.
    pub linear_cnt: u8,
    /// Number of exponential retries.
    pub exp_cnt: u8,
    /// Profile of entropy values; `None` for the device's own choice.
    pub ev_profile: Option<u64>,
    /// Profile of congestion control; `None` for none.
    pub cc_profile: Option<u64>,
    /// Bits of `enum mrc_qp_cap`.
    pub cap: u32,
}

impl MrcChosen {
    /// Bit of `cap`: the peer answers no trimmed packets.
    pub const NO_TRIM_NACK_DEST: u32 = 1;
    /// Bit of `cap`: the responder may change the window.
    pub const DYNAMIC_MPR: u32 = 2;
    /// All bits of `cap`.
    pub const CAPS: u32 = 7;
    /// Largest window in units.
    pub const MOST_MPR: u8 = 32;
    /// Largest number of WRITEs with immediate in flight.
    pub const MOST_WIMM: u16 = 1024;

    const DEFAULT: MrcChosen = MrcChosen {
        mpr: DEFAULT_MPR,
        mpr_dest: DEFAULT_MPR,
        max_wimm: DEFAULT_MAX_WIMM,
        max_wimm_dest: DEFAULT_MAX_WIMM,
        timeout: DEFAULT_TIMEOUT,
        linear_cnt: DEFAULT_LINEAR_CNT,
        exp_cnt: DEFAULT_EXP_CNT,
        ev_profile: None,
        cc_profile: None,
        cap: 0,
    };

    /// Returns the values after a call. `attributes` are those of verbs with this mask: its timeout, whose
    /// unit is four times as long, and its retry count serve where MRC's own are not given.
    ///
    /// # Errors
    /// The name of a value that is out of its range, and its limits.
    pub fn after(
        self,
        attributes: &QpAttributes,
        mask: AttributeMask,
        set: &MrcAttributes,
    ) -> Result<MrcChosen, String> {
        let within = |name: &str, value: u32, least: u32, most: u32| match value {
            fits if (least..=most).contains(&fits) => Ok(fits),
            _ => Err(format!("{name} is {value}, and may be {least} to {most}")),
        };
        let mut new = self;
        if mask.contains(AttributeMask::TIMEOUT) {
            // 0 waits for ever in verbs; the longest timeout is the nearest to it.
            let longer = (attributes.timeout & 31).saturating_add(2).min(MAX_TIMEOUT);
            new.timeout = if attributes.timeout == 0 { MAX_TIMEOUT } else { longer };
        }
        if mask.contains(AttributeMask::RETRY_CNT) {
            new.linear_cnt = attributes.retry_cnt.min(MAX_LINEAR_CNT);
        }
        let units = u32::from(MrcChosen::MOST_MPR);
        let wimm = u32::from(MrcChosen::MOST_WIMM);
        if let Some(mpr) = set.mpr {
            new.mpr = within("mpr", mpr.into(), 1, units)? as u8;
        }
        if let Some(mpr) = set.mpr_dest {
            new.mpr_dest = within("mpr_dest", mpr.into(), 1, units)? as u8;
        }
        if let Some(count) = set.max_wimm {
            new.max_wimm = within("max_wimm", count.into(), 1, wimm)? as u16;
        }
        if let Some(count) = set.max_wimm_dest {
            new.max_wimm_dest = within("max_wimm_dest", count.into(), 1, wimm)? as u16;
        }
        if let Some(timeout) = set.timeout {
            new.timeout = within("timeout", timeout.into(), 0, MAX_TIMEOUT.into())? as u8;
        }
        if let Some((linear_cnt, exp_cnt)) = set.retries {
            new.linear_cnt = within("retry.linear_cnt", linear_cnt.into(), 0, MAX_LINEAR_CNT.into())? as u8;
            new.exp_cnt = within("retry.exp_cnt", exp_cnt.into(), 0, EXP_FOR_EVER.into())? as u8;
        }
        if let Some(cap) = set.cap {
            new.cap = match cap & !MrcChosen::CAPS {
                0 => cap,
                unknown => return Err(format!("cap has the unknown bits {unknown:#x}")),
            };
        }
        new.ev_profile = set.ev_profile.or(new.ev_profile);
        new.cc_profile = set.cc_profile.or(new.cc_profile);
        Ok(new)
    }
}

/// An MRC queue pair.
#[derive(Debug)]
pub(crate) struct MrcEntry {
    pub(crate) context: QpContext,
    pub(crate) capacity: QpCapacity,
    pub(crate) signal_all: bool,
    /// The RC queue pair whose WRITEs it carries.
    pub(crate) twin_of: Option<Qpn>,
    /// Number of resets before.
    pub(crate) connection: u32,
    /// The attributes of verbs, as far as they were set.
    pub(crate) attributes: QpAttributes,
    pub(crate) chosen: MrcChosen,
    /// State before the protocol exists: RESET, INIT or ERR.
    pub(crate) early: QpState,
    /// The protocol, from RTR on.
    pub(crate) qp: Option<Box<MrcQueuePair>>,
    pub(crate) paths: MrcEntryPaths,
    pub(crate) peer: Qpn,
    pub(crate) activity: MrcActivity,
}

/// The paths of an MRC queue pair, and their names.
#[derive(Debug, Default)]
pub(crate) struct MrcEntryPaths {
    /// The paths, from RTR on.
    pub(crate) ways: Option<MrcWays>,
    /// The entropy values as packets carry them, and their names in the profile.
    pub(crate) names: Vec<(Ev, EvName)>,
    /// The newest changes of paths, the oldest first.
    pub(super) history: VecDeque<PathChange>,
}

/// The packets and requests of an MRC queue pair so far.
#[derive(Debug, Default)]
pub(crate) struct MrcActivity {
    pub(crate) traffic: QpTraffic,
    /// Time at which it was last given a packet, a turn or a timeout.
    pub(super) active_ns: u64,
    /// Number of control packets sent, for fault plans.
    controls: u64,
    /// Number of requests posted, to be compared with those polled.
    pub(crate) posted_sends: u32,
}

impl MrcEntry {
    /// Returns a queue pair in RESET.
    pub(crate) fn new(context: QpContext, capacity: QpCapacity, signal_all: bool) -> MrcEntry {
        MrcEntry {
            context,
            capacity,
            signal_all,
            twin_of: None,
            connection: 0,
            attributes: QpAttributes { cap: capacity, ..QpAttributes::default() },
            chosen: MrcChosen::DEFAULT,
            early: QpState::Reset,
            qp: None,
            paths: MrcEntryPaths::default(),
            peer: Qpn::new(0),
            activity: MrcActivity::default(),
        }
    }

    /// Connects the queue pair: `qp` is in RTR, and packets to `peer` take paths like `base`.
    pub(crate) fn connect(&mut self, qp: MrcQueuePair, base: Path, classes: DscpTable, peer: Qpn) {
        self.qp = Some(Box::new(qp));
        self.paths.ways = Some(MrcWays::new(base, classes));
        self.peer = peer;
    }

    /// Returns the queue pair to RESET: connection and attributes are forgotten.
    pub(crate) fn reset(&mut self) {
        let connection = self.connection.wrapping_add(1);
        *self = MrcEntry { connection, ..MrcEntry::new(self.context, self.capacity, self.signal_all) };
    }

    /// Reports whether the queue pair is connected to a peer at this address.
    pub(crate) fn is_towards(&self, peer: IpAddr) -> bool {
        self.paths.ways.as_ref().is_some_and(|ways| ways.base().flow.destination == peer)
    }

    /// Returns the peer, from RTR on.
    pub(crate) fn peer(&self) -> Option<Peer> {
        let ways = self.paths.ways.as_ref()?;
        Some(Peer { address: ways.base().flow.destination, process: self.peer.process() })
    }

    /// Returns the name that a value has in the profile.
    pub(crate) fn name_of(&self, ev: Ev) -> Option<EvName> {
        self.paths.names.iter().find(|(wire, _)| *wire == ev).map(|(_, name)| *name)
    }

    /// Sets the state of a value of the profile.
    pub(crate) fn apply_state(&mut self, now_ns: u64, name: EvName, state: PathState) {
        let Some(paths) = self.qp.as_mut().and_then(|qp| qp.paths_mut()) else { return };
        for (wire, _) in self.paths.names.iter().filter(|(_, other)| *other == name) {
            paths.set_state(now_ns, wire.entropy, state);
        }
    }

    /// Takes the paths that are skipped from now on (true), or no longer, since the last call.
    pub(crate) fn take_skips(&mut self) -> Vec<(Ev, bool)> {
        let paths = self.qp.as_mut().and_then(|qp| qp.paths_mut());
        paths.map_or_else(Vec::new, |paths| std::iter::from_fn(|| paths.poll_skip()).collect())
    }

    /// Takes the changes of paths since the last call, with the profile that they are of.
    pub(crate) fn take_changes(&mut self) -> (Option<u64>, Vec<PathChange>) {
        let paths = self.qp.as_mut().and_then(|qp| qp.paths_mut());
        let changes: Vec<PathChange> =
            paths.map_or_else(Vec::new, |paths| std::iter::from_fn(|| paths.poll_change()).collect());
        self.paths.history.extend(&changes);
        let surplus = self.paths.history.len().saturating_sub(MAX_PATH_CHANGES);
        self.paths.history.drain(..surplus);
        (self.chosen.ev_profile, changes)
    }

    pub(crate) fn state(&self) -> QpState {
        self.qp.as_ref().map_or(self.early, |qp| qp.state())
    }

    /// Returns the number of requests that have not completed.
    pub(crate) fn outstanding(&self) -> usize {
        self.qp.as_ref().map_or(0, |qp| qp.outstanding())
    }

    pub(crate) fn deadline_ns(&self) -> Option<u64> {
        self.qp.as_ref().and_then(|qp| qp.deadline_ns())
    }

    pub(crate) fn wants_to_send(&self) -> bool {
        self.qp.as_ref().is_some_and(|qp| qp.wants_to_send())
    }

    /// Reports the change from a state to the present one, by the program.
    pub(crate) fn report_state<H: Host>(&self, from: QpState, host: &mut H) {
        let by = StateChangeActor::Program;
        if let Some(qp) = &self.qp {
            return qp.report_state(from, by, host);
        }
        let (to, connection, requests) = (self.early, self.connection, self.capacity.max_send_wr);
        if from != to && host.listens(Topic::States) {
            let event = QpEvent::StateChanged { from, to, by, connection, peer: None, requests, reads: 0 };
            host.emit(&self.context, event);
        }
    }

    /// Moves the queue pair to ERR: everything that was posted completes as flushed. `cause` is logged.
    pub(crate) fn enter_error<H: Host>(&mut self, cause: Option<Cause>, host: &mut H) {
        match &mut self.qp {
            Some(qp) => qp.to_error(cause, host),
            None => {
                let from = std::mem::replace(&mut self.early, QpState::Err);
                self.report_state(from, host);
                host.flush_recv_queue(&self.context);
            }
        }
    }

    /// Sends what may be sent, within the quota of the sink.
    pub(crate) fn transmit<H: Host>(
        &mut self,
        now_ns: u64,
        host: &mut H,
        sink: &mut BatchSink<'_>,
    ) -> MrcProgress {
        let (Some(qp), Some(ways)) = (&mut self.qp, &mut self.paths.ways) else { return MrcProgress::Idle };
        self.activity.active_ns = now_ns;
        let (peer, controls) = (self.peer, &mut self.activity.controls);
        let mut outlet = MrcOutlet { sink, ways, peer, path: None, controls };
        let progress = qp.transmit(now_ns, host, &mut outlet);
        self.activity.traffic.sent(sink.sealed_packets, sink.sealed_bytes);
        progress
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_of_verbs_serve_where_those_of_mrc_are_not_given() {
        let verbs = QpAttributes { timeout: 14, retry_cnt: 3, ..QpAttributes::default() };
        let mask = AttributeMask::TIMEOUT | AttributeMask::RETRY_CNT;
        let plain = MrcChosen::DEFAULT.after(&verbs, mask, &MrcAttributes::default()).unwrap();
        assert_eq!((plain.timeout, plain.linear_cnt, plain.exp_cnt), (16, 3, DEFAULT_EXP_CNT));
        let own = MrcAttributes { timeout: Some(8), retries: Some((7, 25)), ..MrcAttributes::default() };
        let both = MrcChosen::DEFAULT.after(&verbs, mask, &own).unwrap();
        assert_eq!((both.timeout, both.linear_cnt, both.exp_cnt), (8, 7, 25));
        let forever = QpAttributes::default();
        assert_eq!(plain.after(&forever, mask, &MrcAttributes::default()).unwrap().timeout, MAX_TIMEOUT);
    }

    #[test]
    fn values_out_of_range_are_named() {
        let refused = |set: MrcAttributes| {
            MrcChosen::DEFAULT.after(&QpAttributes::default(), AttributeMask::empty(), &set).unwrap_err()
        };
        let none = MrcAttributes::default();
        assert!(refused(MrcAttributes { mpr: Some(0), ..none }).contains("mpr is 0"));
        assert!(refused(MrcAttributes { mpr_dest: Some(33), ..none }).contains("1 to 32"));
        assert!(refused(MrcAttributes { timeout: Some(25), ..none }).contains("timeout is 25"));
        assert!(refused(MrcAttributes { retries: Some((8, 0)), ..none }).contains("linear_cnt is 8"));
        assert!(refused(MrcAttributes { cap: Some(8), ..none }).contains("0x8"));
    }
}
