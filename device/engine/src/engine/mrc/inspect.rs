//! The description of MRC queue pairs and profiles for another process of the same user.

use pumice_model::inspect::{
    MAX_PATHS, MrcProfileView, MrcView, PathChangeView, PathStateView, PathView, QpView,
};
use pumice_model::recording::QpSnapshot;
use pumice_transport::mrc::paths::{PathChange, PathState, PathStatus};

use super::entry::{MrcActivity, MrcEntry};
use super::table::MrcTable;
use crate::engine::inspect::{DeviceView, QpParts};
use pumice_model::mrc_profiles::{EvMode, EvRecord, FormatMode};

impl DeviceView<'_> {
    /// Visits the MRC queue pairs for a recording that begins now. The twins of RC queue pairs are these.
    pub(crate) fn visit_mrc_snapshots(&self, visit: &mut dyn FnMut(&QpSnapshot)) {
        for (_, entry) in self.mrc.starting_at(0).filter(|(_, entry)| entry.twin_of.is_none()) {
            let MrcEntry { context, .. } = entry;
            visit(&QpSnapshot {
                ordinal: context.ordinal,
                qpn: context.qpn.value(),
                send_cq: context.send_cq,
                recv_cq: context.recv_cq,
                service: "MRC",
                state: entry.state() as u8,
                connection: entry.connection,
                peer: entry.peer().map(|peer| (peer.address, entry.peer.value())),
                next: entry.qp.as_ref().map_or(0, |qp| qp.posted()),
                sends: entry.qp.as_ref().map_or(0, |qp| qp.unreported()),
                receives: self.resources.objects.own_receives(context.recv_queue).unwrap_or(0),
                send_depth: entry.capacity.max_send_wr,
                reads: 0,
            });
        }
    }

    /// Describes an MRC queue pair, or the twin of an RC queue pair.
    pub(crate) fn mrc_view(&self, entry: &MrcEntry) -> QpView {
        let MrcEntry { context, activity: MrcActivity { traffic, .. }, capacity, .. } = entry;
        let statistics = entry.qp.as_ref().map(|qp| qp.statistics()).unwrap_or_default();
        let (in_flight_packets, window_packets) = entry.qp.as_ref().map_or((0, 0), |qp| qp.flight_packets());
        let (service, state) = ("MRC", entry.state());
        let peer = entry.peer().map(|peer| (peer, entry.peer));
        QpView {
            posted: entry.activity.posted_sends.into(),
            ended: u64::from(entry.activity.posted_sends).saturating_sub(entry.outstanding() as u64),
            received: statistics.data_placed,
            repeated_packets: statistics.retransmitted,
            timeouts: statistics.timeouts,
            naks_sent: statistics.nacks_sent,
            naks_received: statistics.nacks,
            dropped: statistics.dropped,
            in_flight_packets,
            window_packets,
            rtt_ns: entry.qp.as_ref().and_then(|qp| qp.rtt_ns()),
            mrc: Some(Box::new(view(entry, self.mrc.planes))),
            ..self.common_view(&QpParts { context, traffic, capacity, service, state, peer })
        }
    }
}

fn view(entry: &MrcEntry, planes: u8) -> MrcView {
    let chosen = MrcView {
        twin_of: entry.twin_of.map(|qpn| qpn.value()),
        ev_profile: entry.chosen.ev_profile,
        cc_profile: entry.chosen.cc_profile,
        planes,
        ..MrcView::default()
    };
    let Some(qp) = &entry.qp else { return chosen };
    let statistics = qp.statistics();
    let mut view = MrcView {
        window_bytes: qp.congestion_window_bytes(),
        holes: statistics.holes,
        probed_losses: statistics.probed_losses,
        trims: statistics.trims,
        probes_sent: statistics.probes_sent,
        sacks_sent: statistics.sacks_sent,
        duplicates: statistics.duplicates,
        ..chosen
    };
    if let Some(paths) = qp.paths() {
        let all = u32::MAX.checked_shr(32 - u32::from(planes.clamp(1, 31))).unwrap_or(u32::MAX);
        view.planes_up = paths.planes().0 & all;
        view.path_count = paths.count().into();
        view.paths = paths.statuses().take(MAX_PATHS).map(|status| path_view(&status)).collect();
    }
    view.changes =
        entry.paths.history.iter().map(|change| change_view(change, entry.activity.active_ns)).collect();
    view
}

fn path_view(status: &PathStatus) -> PathView {
    PathView {
        source_port: status.ev.entropy.source_port(),
        plane: status.ev.plane.0,
        state: state_view(status.state),
        active: status.is_active,
        sent: status.sent,
        lost: status.lost,
        congested: status.congested,
        answered: status.answered,
    }
}

fn change_view(change: &PathChange, now_ns: u64) -> PathChangeView {
    PathChangeView {
        ago_ns: now_ns.saturating_sub(change.at_ns),
        source_port: change.ev.entropy.source_port(),
        plane: change.ev.plane.0,
        state: state_view(change.state),
    }
}

const fn state_view(state: PathState) -> PathStateView {
    match state {
        PathState::Good => PathStateView::Good,
        PathState::Skip => PathStateView::Skip,
        PathState::AssumedBad => PathStateView::AssumedBad,
        PathState::Denied => PathStateView::Denied,
    }
}

impl MrcTable {
    /// Describes the profiles of the controller.
    pub(crate) fn profiles(&self) -> impl Iterator<Item = MrcProfileView> {
        let of = |kind: &str, id: u64, stage: &str, mode: &str| MrcProfileView {
            kind: kind.to_owned(),
            id,
            stage: stage.to_owned(),
            mode: mode.to_owned(),
            values: [0; 3],
            queue_pairs: 0,
        };
        let formats = self.control.formats().map(move |(id, format)| {
            let mode = match format.mode {
                Some(FormatMode::Stev) => "STEV",
                Some(FormatMode::Udp) => "UDP",
                None => "",
            };
            of("format", *id, format.stage.name(), mode)
        });
        let evs = self.control.all_evs().map(move |(id, record)| {
            let mode = match record.mode {
                Some(EvMode::Auto) => "AUTO",
                Some(EvMode::Explicit) => "EXPLICIT",
                Some(EvMode::Generated) => "GENERATED",
                None => "",
            };
            let queue_pairs = self.count_of(|entry| entry.chosen.ev_profile == Some(*id));
            MrcProfileView { values: values(record), queue_pairs, ..of("EV", *id, record.stage.name(), mode) }
        });
        let ccs = self.control.ccs().map(move |(id, profile)| {
            let mode = match &profile.algorithm {
                Some(name) => name,
                None if profile.has_algorithm => "none",
                None => "",
            };
            let queue_pairs = self.count_of(|entry| entry.chosen.cc_profile == Some(*id));
            MrcProfileView { queue_pairs, ..of("CC", *id, profile.stage.name(), mode) }
        });
        evs.chain(ccs).chain(formats)
    }

    fn count_of(&self, is_one: impl Fn(&MrcEntry) -> bool) -> u32 {
        self.entries.values().filter(|entry| is_one(entry)).count() as u32
    }
}

/// Counts the values that are GOOD, ASSUMED_BAD and DENIED.
fn values(record: &EvRecord) -> [u32; 3] {
    let count = |is_it: fn(PathState) -> bool| {
        record.slots.iter().filter(|slot| slot.name.port > 0 && is_it(slot.state)).count() as u32
    };
    [
        count(|state| matches!(state, PathState::Good | PathState::Skip)),
        count(|state| state == PathState::AssumedBad),
        count(|state| state == PathState::Denied),
    ]
}
