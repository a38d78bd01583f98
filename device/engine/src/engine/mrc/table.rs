//! The table of MRC queue pairs, with what a controller has set.

use std::collections::{BTreeMap, VecDeque};

use pumice_transport::event::QpEvent;
use pumice_transport::host::{Host, QpContext};
use pumice_transport::mrc::entropy::{DscpTable, Plane, Planes};
use pumice_transport::mrc::paths::{Ev, PathChange, PathState};
use pumice_transport::path::ROCE_PORT;
use pumice_transport::types::{QpState, WorkCompletion};
use pumice_transport::wire::Qpn;

use super::endpoint::EndpointDesk;
use super::entry::MrcEntry;
use super::profile::plane_of;
use crate::resources::Resources;
use pumice_model::mrc_profiles::{EvName, MrcControl};

/// An event for a controller: the state of an entropy value has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MrcEvEvent {
    /// The profile that has the value.
    pub profile: u64,
    /// The value.
    pub name: EvName,
    /// The new state.
    pub state: PathState,
    /// Number of events before this one that were lost.
    pub drop_count: u32,
}

/// All MRC queue pairs of a device, by index.
#[derive(Debug)]
pub(crate) struct MrcTable {
    pub(super) entries: BTreeMap<u32, Box<MrcEntry>>,
    /// Indices of the twins of RC queue pairs, by the numbers of these.
    twins: BTreeMap<Qpn, u32>,
    /// Number of planes between which the paths are divided.
    pub(crate) planes: u8,
    /// DSCPs of the traffic classes.
    pub(crate) classes: DscpTable,
    /// The settings of the controller.
    pub(crate) control: MrcControl,
    /// Events that wait for a controller, by the completion queues that report them.
    pub(crate) event_queues: BTreeMap<u32, VecDeque<MrcEvEvent>>,
    /// Number of events that found their queue full.
    lost_events: u32,
    /// Ports that the controller has not disabled.
    enabled: Planes,
    /// UDP port that packets are sent to.
    pub(crate) udp_port: u16,
    /// The device receives from [`OTHER_PORT`](pumice_transport::mrc::constants::OTHER_PORT), or has tried.
    pub(super) listens: bool,
    /// Queue pair 2, from the first context of libmrc on.
    pub(crate) endpoint: Option<Box<EndpointDesk>>,
}

impl MrcTable {
    /// Returns a table without queue pairs.
    pub(crate) fn new(planes: u8, classes: DscpTable) -> MrcTable {
        MrcTable {
            entries: BTreeMap::new(),
            twins: BTreeMap::new(),
            planes,
            classes,
            control: MrcControl::default(),
            event_queues: BTreeMap::new(),
            lost_events: 0,
            enabled: Planes::ALL,
            udp_port: ROCE_PORT,
            listens: false,
            endpoint: None,
        }
    }

    pub(crate) fn insert(&mut self, index: u32, entry: MrcEntry) {
        self.entries.insert(index, Box::new(entry));
    }

    pub(crate) fn remove(&mut self, index: u32) -> Option<Box<MrcEntry>> {
        self.entries.remove(&index)
    }

    /// Returns the queue pair with this index.
    pub(crate) fn at_mut(&mut self, index: u32) -> Option<&mut MrcEntry> {
        self.entries.get_mut(&index).map(|entry| &mut **entry)
    }

    /// Returns the queue pair with this number.
    pub(crate) fn by_number(&mut self, qpn: Qpn) -> Option<(u32, &mut MrcEntry)> {
        let index = u32::from(qpn.index());
        let is_it = |entry: &&mut MrcEntry| entry.context.qpn == qpn && entry.twin_of.is_none();
        let entry = self.at_mut(index).filter(is_it)?;
        Some((index, entry))
    }

    /// Returns the queue pair that takes packets for this number: that of the number, or the twin of an RC
    /// queue pair.
    pub(crate) fn rss_queue_pair(&mut self, qpn: Qpn) -> Option<(u32, &mut MrcEntry)> {
        match self.twins.get(&qpn).copied() {
            Some(index) => Some((index, self.at_mut(index)?)),
            None => self.by_number(qpn),
        }
    }

    /// Returns the index of the twin of an RC queue pair.
    pub(crate) fn twin_of(&self, qpn: Qpn) -> Option<u32> {
        self.twins.get(&qpn).copied()
    }

    /// Makes the queue pair with this index the twin of an RC queue pair.
    pub(crate) fn add_twin(&mut self, qpn: Qpn, index: u32) {
        self.twins.insert(qpn, index);
    }

    /// Removes the twin of an RC queue pair, and returns its index.
    pub(crate) fn remove_twin(&mut self, qpn: Qpn) -> Option<u32> {
        let index = self.twins.remove(&qpn)?;
        self.entries.remove(&index);
        Some(index)
    }

    /// Returns the queue pairs from an index on.
    pub(crate) fn starting_at(&self, index: u32) -> impl Iterator<Item = (u32, &MrcEntry)> {
        self.entries.range(index..).map(|(index, entry)| (*index, &**entry))
    }

    /// Returns the indices of all queue pairs.
    pub(crate) fn indices(&self) -> Vec<u32> {
        self.entries.keys().copied().collect()
    }

    /// Reports whether a queue pair uses a profile of entropy values.
    pub(crate) fn uses_evs(&self, id: u64) -> bool {
        self.entries.values().any(|entry| entry.chosen.ev_profile == Some(id))
    }

    /// Reports whether a queue pair uses a profile of congestion control.
    pub(crate) fn uses_cc(&self, id: u64) -> bool {
        self.entries.values().any(|entry| entry.chosen.cc_profile == Some(id))
    }

    /// Sets the state of a value for all queue pairs that use a profile.
    pub(crate) fn apply_state(&mut self, now_ns: u64, id: u64, name: EvName, state: PathState) {
        for entry in self.entries.values_mut().filter(|entry| entry.chosen.ev_profile == Some(id)) {
            entry.apply_state(now_ns, name, state);
        }
    }

    /// Returns the plane of a port of the API; `None` if there is none.
    fn plane_of_port(&self, port: u8) -> Option<Plane> {
        (1..=self.planes.max(1)).contains(&port).then(|| Plane(port - 1))
    }

    /// Reports whether a port is enabled.
    pub(crate) fn port_is_enabled(&self, port: u8) -> Option<bool> {
        Some(self.enabled.has(self.plane_of_port(port)?))
    }

    /// Enables or disables a port. Returns false if there is none.
    pub(crate) fn enable_port(&mut self, port: u8, is_enabled: bool) -> bool {
        let Some(plane) = self.plane_of_port(port) else { return false };
        let others = self.enabled.without(plane);
        self.enabled = if is_enabled { Planes(others.0 | 1 << plane.0) } else { others };
        for entry in self.entries.values_mut() {
            if let Some(qp) = &mut entry.qp {
                qp.set_local_planes(self.enabled);
            }
        }
        true
    }

    /// Returns the ports that are enabled.
    pub(crate) const fn enabled(&self) -> Planes {
        self.enabled
    }

    /// Reports that a call of the program has changed the state of a queue pair. A change to ERR was reported
    /// when it happened.
    pub(crate) fn report_call<H: Host>(&self, index: u32, from: QpState, host: &mut H) {
        if let Some(entry) = self.entries.get(&index).filter(|entry| entry.state() != QpState::Err) {
            entry.report_state(from, host);
        }
    }

    /// Records changes of paths of a queue pair, and reports them to the controller where it asked for them.
    pub(super) fn note_changes(&mut self, index: u32, resources: &mut Resources) {
        let Some(entry) = self.entries.get_mut(&index) else { return };
        let skips = entry.take_skips();
        let (id, changes) = entry.take_changes();
        let context = entry.context;
        for (ev, is_skipped) in skips {
            let state = if is_skipped { PathState::Skip } else { PathState::Good };
            emit_state(resources, &context, ev, state);
        }
        for PathChange { ev, state, drop_count, .. } in changes {
            emit_state(resources, &context, ev, state);
            let Some(entry) = self.entries.get(&index) else { return };
            let (Some(id), Some(name)) = (id, entry.name_of(ev)) else { continue };
            let Ok(record) = self.control.evs_mut(id) else { continue };
            if record.note(name, state) {
                self.report(MrcEvEvent { profile: id, name, state, drop_count }, resources);
            }
        }
    }

    fn report(&mut self, mut event: MrcEvEvent, resources: &mut Resources) {
        event.drop_count = event.drop_count.saturating_add(std::mem::take(&mut self.lost_events));
        for (cq, waiting) in &mut self.event_queues {
            if resources.push_note(*cq, WorkCompletion::default()) {
                waiting.push_back(event);
            } else {
                self.lost_events = self.lost_events.saturating_add(event.drop_count.saturating_add(1));
            }
        }
    }

    pub(crate) fn count(&self) -> u32 {
        (self.entries.len() - self.twins.len()) as u32
    }

    /// Reports whether the device takes no packets of MRC.
    pub(crate) fn is_closed(&self) -> bool {
        self.entries.is_empty() && self.endpoint.is_none()
    }

    /// Opens queue pair 2, which answers requests of peers.
    pub(crate) fn open(&mut self) {
        self.endpoint.get_or_insert_with(Box::default);
    }

    /// Returns the plane that packets from a UDP source port travel in.
    pub(crate) const fn plane_of(&self, source_port: u16) -> Plane {
        plane_of(source_port, self.planes)
    }
}

/// Emits the event of a path that has another state.
fn emit_state(resources: &mut Resources, context: &QpContext, ev: Ev, state: PathState) {
    let (source_port, plane) = (ev.entropy.source_port(), ev.plane.0);
    resources.emit(context, QpEvent::PathChanged { source_port, plane, state: state as u8 });
}
