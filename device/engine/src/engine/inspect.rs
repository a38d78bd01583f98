//! The description of this process's objects for another process of the same user.

use std::net::IpAddr;

use pumice_fabric::gsi::Gsi;
use pumice_model::inspect::{
    CopyView, InspectCursor, InspectPage, List, ListenView, MAX_GROUPS, ObjectTotals, PageWriter, PeerView,
    QpView, RuleStatus, WaitsView,
};
use pumice_model::port::Port;
use pumice_model::port::batch::{CopyReport, Peer, PeerMedium};
use pumice_model::recording::{Existing, QpSnapshot, RegionSnapshot};
use pumice_transport::cm::ListenScope;
use pumice_transport::host::QpContext;
use pumice_transport::qp::QpStatistics;
use pumice_transport::types::{QpCapacity, QpState};
use pumice_transport::wire::Qpn;

use super::mrc::MrcTable;
use super::queue_pairs::{QpEntry, QpTraffic, QueuePairs};
use crate::resources::{NO_OBJECT, Resources};

/// The parts of a device that are described for other processes and recordings.
pub(super) struct DeviceView<'a> {
    pub(super) resources: &'a Resources,
    pub(super) queue_pairs: &'a QueuePairs,
    pub(super) mrc: &'a MrcTable,
    pub(super) gsi: &'a Gsi,
    pub(super) port: &'a dyn Port,
}

impl DeviceView<'_> {
    /// Returns a page of the objects, beginning at `cursor`, with the tag of the process and the rules of
    /// its plan. `waits` tells what threads wait for.
    pub(super) fn page(
        &self,
        cursor: InspectCursor,
        (tag, rules): (&str, Vec<RuleStatus>),
        device_name: &str,
        waits: impl FnOnce() -> Option<WaitsView>,
    ) -> InspectPage {
        let totals = self.totals(rules.len() as u32);
        let rules = if cursor == InspectCursor::BEGIN { rules } else { Vec::new() };
        let mut writer = PageWriter::new(tag, device_name, totals, rules);
        if cursor == InspectCursor::BEGIN {
            writer.waits(waits(), self.listeners());
            writer.profiles(self.mrc.profiles());
        }
        let next = self.write_from(cursor, &mut writer);
        writer.finish(next)
    }

    /// Returns the listeners of the connection manager, by port.
    fn listeners(&self) -> impl Iterator<Item = ListenView> {
        self.gsi.listening().map(|(entry, unread)| ListenView {
            address: match entry.scope {
                ListenScope::At(gid) => Some(IpAddr::from(gid)),
                _ => None,
            },
            port: entry.service_id.0 as u16,
            unread: u32::try_from(unread).unwrap_or(u32::MAX),
        })
    }

    fn totals(&self, rules: u32) -> ObjectTotals {
        let counts = self.resources.counts();
        ObjectTotals {
            qps: self.queue_pairs.count() + self.mrc.count(),
            cqs: counts.cqs as u32,
            srqs: self.resources.objects.srqs_from(0).count() as u32,
            regions: counts.regions_and_windows as u32,
            rules,
        }
    }

    /// Writes objects until there is no room, and returns where the next page begins.
    fn write_from(&self, cursor: InspectCursor, writer: &mut PageWriter) -> Option<InspectCursor> {
        let from = |list| if cursor.list == list { cursor.from } else { 0 };
        if cursor.list <= List::Qps {
            let first = from(List::Qps);
            let mut others = self.mrc.starting_at(first).peekable();
            for (index, entry) in self.queue_pairs.starting_at(first) {
                while let Some((index, other)) = others.next_if(|(other, _)| *other < index) {
                    if !writer.qp(self.mrc_view(other)) {
                        return Some(InspectCursor { list: List::Qps, from: index });
                    }
                }
                if !writer.qp(self.view(entry)) {
                    return Some(InspectCursor { list: List::Qps, from: index });
                }
            }
            for (index, other) in others {
                if !writer.qp(self.mrc_view(other)) {
                    return Some(InspectCursor { list: List::Qps, from: index });
                }
            }
        }
        if cursor.list <= List::Cqs {
            for cq in self.resources.objects.cqs_from(from(List::Cqs)) {
                let number = cq.number;
                if !writer.cq(cq) {
                    return Some(InspectCursor { list: List::Cqs, from: number });
                }
            }
        }
        for srq in self.resources.objects.srqs_from(from(List::Srqs)) {
            let number = srq.number;
            if !writer.srq(srq) {
                return Some(InspectCursor { list: List::Srqs, from: number });
            }
        }
        None
    }

    /// Returns the medium that carries packets to a peer, in words.
    fn medium_to(&self, peer: Peer) -> String {
        match self.port.medium_to(peer) {
            PeerMedium::Ring => "shared memory".to_owned(),
            PeerMedium::Udp(why) => format!("UDP: {why}"),
            PeerMedium::Simulated => "a simulated network".to_owned(),
        }
    }

    /// Returns how long messages are copied to a peer, if they go through shared memory.
    fn copies_to(&self, peer: Peer) -> Option<CopyView> {
        let CopyReport { way, reason, cached_bytes_per_s, streaming_bytes_per_s } =
            self.port.copies_to(peer)?;
        let (way, reason) = (way.name().to_owned(), reason.why().to_owned());
        Some(CopyView { way, reason, cached_bytes_per_s, streaming_bytes_per_s })
    }

    /// Describes a queue pair of the protocol's own services.
    fn view(&self, entry: &QpEntry) -> QpView {
        let QpEntry { qp, traffic, .. } = entry;
        let QpStatistics { posted, ended, received, unsignaled, .. } = qp.statistics();
        let QpStatistics { in_flight_packets, window_packets, rtt_ns, waits_for_receiver, group, .. } =
            qp.statistics();
        let context = qp.context();
        let tally = self.resources.objects.tally(context.qpn).cloned().unwrap_or_default();
        let common = self.common_view(&QpParts {
            context,
            traffic,
            capacity: qp.capacity(),
            service: qp.qp_type().name(),
            state: qp.state(),
            peer: qp.peer().map(|(address, qpn)| (Peer { address, process: qpn.process() }, qpn)),
        });
        let has_own = common.receives_posted.is_some();
        QpView {
            posted,
            ended,
            unsignaled,
            received,
            repeated_packets: tally.repeated_packets,
            timeouts: tally.timeouts,
            rnr_naks_sent: tally.rnr_naks_sent,
            rnr_naks_received: tally.rnr_naks_received,
            naks_sent: tally.naks_sent,
            naks_received: tally.naks_received,
            dropped: tally.dropped,
            in_flight_packets,
            window_packets,
            rtt_ns,
            waits_for_receiver,
            srq: object(context.recv_queue).filter(|_| !has_own),
            group,
            groups: self
                .resources
                .port
                .groups
                .groups_of(context.qpn)
                .take(MAX_GROUPS)
                .map(IpAddr::from)
                .collect(),
            ..common
        }
    }

    /// Describes what queue pairs of all services have: names, peer, medium, packets, sizes, queues, and the
    /// newest error.
    pub(super) fn common_view(&self, parts: &QpParts<'_>) -> QpView {
        let QpParts { context, traffic, capacity, service, state, peer } = *parts;
        let last_error =
            self.resources.objects.tally(context.qpn).and_then(|tally| tally.last_error.as_ref());
        QpView {
            qpn: context.qpn.value(),
            ordinal: context.ordinal,
            service: service.to_owned(),
            state: state.name().to_owned(),
            peer: peer.map(|(peer, qpn)| PeerView { address: peer.address, qpn: qpn.value() }),
            medium: peer.map(|(peer, _)| self.medium_to(peer)),
            copy: peer.and_then(|(peer, _)| self.copies_to(peer)),
            sent_packets: traffic.sent_packets,
            sent_bytes: traffic.sent_bytes,
            received_packets: traffic.received_packets,
            received_bytes: traffic.received_bytes,
            send_queue_depth: capacity.max_send_wr,
            receives_posted: self.resources.objects.own_receives(context.recv_queue),
            recv_queue_depth: capacity.max_recv_wr,
            send_cq: object(context.send_cq),
            recv_cq: object(context.recv_cq),
            last_error: last_error.map(ToString::to_string),
            ..QpView::default()
        }
    }
}

/// The parts of a queue pair that those of all services have.
pub(super) struct QpParts<'a> {
    pub(super) context: &'a QpContext,
    pub(super) traffic: &'a QpTraffic,
    pub(super) capacity: &'a QpCapacity,
    pub(super) service: &'a str,
    pub(super) state: QpState,
    pub(super) peer: Option<(Peer, Qpn)>,
}

/// Returns the number of an object; `None` if there is none.
fn object(number: u32) -> Option<u32> {
    Some(number).filter(|number| *number != NO_OBJECT)
}

impl Existing for DeviceView<'_> {
    fn queue_pairs(&self, visit: &mut dyn FnMut(&QpSnapshot)) {
        for (_, QpEntry { qp, .. }) in self.queue_pairs.starting_at(0) {
            let context = qp.context();
            visit(&QpSnapshot {
                ordinal: context.ordinal,
                qpn: context.qpn.value(),
                send_cq: context.send_cq,
                recv_cq: context.recv_cq,
                service: qp.qp_type().name(),
                state: qp.state() as u8,
                connection: qp.connection(),
                peer: qp.peer().map(|(address, qpn)| (address, qpn.value())),
                next: qp.statistics().posted,
                sends: qp.unreported_sends(),
                receives: self.resources.objects.own_receives(context.recv_queue).unwrap_or(0),
                send_depth: qp.capacity().max_send_wr,
                reads: qp.max_rd_atomic(),
            });
        }
        self.visit_mrc_snapshots(visit);
    }

    fn regions(&self, visit: &mut dyn FnMut(&RegionSnapshot)) {
        self.resources.objects.for_each_region(visit);
    }

    fn completion_queues(&self, visit: &mut dyn FnMut(u32, u32)) {
        self.resources.objects.for_each_cq(visit);
    }
}
