//! The description of this process's objects for another process of the same user.

use std::net::IpAddr;

use pumice_model::fates::live::FaultCommand;
use pumice_model::inspect::{
    CopyView, InspectCursor, InspectPage, List, ListenView, MAX_GROUPS, ObjectTotals, PageWriter, PeerView,
    QpView, WaitReporter,
};
use pumice_model::port::copies::CopyReport;
use pumice_model::port::limits::{Peer, PeerMedium};
use pumice_transport::cm::ListenScope;
use pumice_transport::qp::QpStatistics;

use super::Engine;
use super::queue_pairs::QpEntry;
use crate::resources::NO_OBJECT;

impl Engine {
    /// Sets the function that tells other processes what threads wait for.
    pub(crate) fn set_waits(&mut self, tells: WaitReporter) {
        self.waits = Some(tells);
    }

    /// Returns a page of the objects, beginning at `cursor`. `looks`: whether to determine what threads wait
    /// for.
    #[cold]
    pub(crate) fn inspect(&mut self, cursor: InspectCursor, looks: bool) -> InspectPage {
        let plan = self.change_plan(&FaultCommand::List);
        let totals = self.totals(plan.rules.len() as u32);
        let rules = if cursor == InspectCursor::BEGIN { plan.rules } else { Vec::new() };
        let mut writer = PageWriter::new(&plan.tag, &self.device_name, totals, rules);
        if cursor == InspectCursor::BEGIN {
            let waits = self.waits.as_ref().and_then(|tells| tells(looks));
            writer.waits(waits, self.listeners());
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
            qps: self.queue_pair_count(),
            cqs: counts.cqs as u32,
            srqs: self.resources.srqs_from(0).count() as u32,
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
            for cq in self.resources.cqs_from(from(List::Cqs)) {
                let number = cq.number;
                if !writer.cq(cq) {
                    return Some(InspectCursor { list: List::Cqs, from: number });
                }
            }
        }
        for srq in self.resources.srqs_from(from(List::Srqs)) {
            let number = srq.number;
            if !writer.srq(srq) {
                return Some(InspectCursor { list: List::Srqs, from: number });
            }
        }
        None
    }

    /// Returns the medium that carries packets to a peer, in words.
    pub(super) fn medium_to(&self, peer: Peer) -> String {
        match self.port.medium_to(peer) {
            PeerMedium::Ring => "shared memory".to_owned(),
            PeerMedium::Udp(why) => format!("UDP: {why}"),
            PeerMedium::Simulated => "a simulated network".to_owned(),
        }
    }

    /// Returns how long messages are copied to a peer, if they go through shared memory.
    pub(super) fn copies_to(&self, peer: Peer) -> Option<CopyView> {
        let CopyReport { way, reason, cached_bytes_per_s, streaming_bytes_per_s } =
            self.port.copies_to(peer)?;
        let (way, reason) = (way.name().to_owned(), reason.why().to_owned());
        Some(CopyView { way, reason, cached_bytes_per_s, streaming_bytes_per_s })
    }

    fn view(&self, entry: &QpEntry) -> QpView {
        let QpEntry { qp, traffic, .. } = entry;
        let QpStatistics { posted, ended, received, unsignaled, .. } = qp.statistics();
        let QpStatistics { in_flight_packets, window_packets, rtt_ns, waits_for_receiver, group, .. } =
            qp.statistics();
        let context = qp.context();
        let tally = self.resources.tally(context.qpn).cloned().unwrap_or_default();
        let object = |number: u32| Some(number).filter(|number| *number != NO_OBJECT);
        let own_receives = self.resources.own_receives(context.recv_queue);
        let peer = qp.peer().map(|(address, qpn)| Peer { address, process: qpn.process() });
        QpView {
            qpn: context.qpn.value(),
            ordinal: context.ordinal,
            service: qp.qp_type().name().to_owned(),
            state: qp.state().name().to_owned(),
            peer: qp.peer().map(|(address, qpn)| PeerView { address, qpn: qpn.value() }),
            medium: peer.map(|peer| self.medium_to(peer)),
            copy: peer.and_then(|peer| self.copies_to(peer)),
            posted,
            ended,
            unsignaled,
            received,
            sent_packets: traffic.sent_packets,
            sent_bytes: traffic.sent_bytes,
            received_packets: traffic.received_packets,
            received_bytes: traffic.received_bytes,
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
            send_queue_depth: qp.capacity().max_send_wr,
            receives_posted: own_receives,
            recv_queue_depth: qp.capacity().max_recv_wr,
            send_cq: object(context.send_cq),
            recv_cq: object(context.recv_cq),
            srq: object(context.recv_queue).filter(|_| own_receives.is_none()),
            group,
            groups: self.resources.groups.groups_of(context.qpn).take(MAX_GROUPS).map(IpAddr::from).collect(),
            last_error: tally.last_error.as_ref().map(ToString::to_string),
            mrc: None,
        }
    }
}
