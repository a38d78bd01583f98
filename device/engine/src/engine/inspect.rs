//! What this process says of its objects when another process of the same user asks.

use std::net::IpAddr;

use pumice_events::inspect::{
    Cursor, List, ListenView, MAX_GROUPS, Page, PeerView, QpView, TellsWaits, Totals, Writer,
};
use pumice_faults::live::LiveOrder;
use pumice_ports::{Peer, PeerMedium};
use pumice_transport::cm::ListenScope;
use pumice_transport::qp::Figures;

use super::Engine;
use super::queue_pairs::QpEntry;
use crate::resources::NO_OBJECT;

impl Engine {
    /// From now on this tells other processes what threads wait for.
    pub(crate) fn set_waits(&mut self, tells: TellsWaits) {
        self.waits = Some(tells);
    }

    /// A page of the objects, beginning at `cursor`. `looks`: what threads wait for is to be looked at.
    #[cold]
    pub(crate) fn inspect(&mut self, cursor: Cursor, looks: bool) -> Page {
        let plan = self.change_plan(&LiveOrder::List);
        let totals = self.totals(plan.rules.len() as u32);
        let rules = if cursor == Cursor::BEGIN { plan.rules } else { Vec::new() };
        let mut writer = Writer::new(&plan.tag, &self.device_name, totals, rules);
        if cursor == Cursor::BEGIN {
            let waits = self.waits.as_ref().and_then(|tells| tells(looks));
            writer.waits(waits, self.listeners());
        }
        let next = self.write_from(cursor, &mut writer);
        writer.finish(next)
    }

    /// Where programs listen by port.
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

    fn totals(&self, rules: u32) -> Totals {
        let counts = self.resources.counts();
        Totals {
            qps: self.queue_pairs.count(),
            cqs: counts.cqs as u32,
            srqs: self.resources.srqs_from(0).count() as u32,
            regions: counts.regions_and_windows as u32,
            rules,
        }
    }

    /// Writes objects until there is no room; where the next page begins.
    fn write_from(&self, cursor: Cursor, writer: &mut Writer) -> Option<Cursor> {
        let from = |list| if cursor.list == list { cursor.from } else { 0 };
        if cursor.list <= List::Qps {
            for (index, entry) in self.queue_pairs.starting_at(from(List::Qps)) {
                if !writer.qp(self.view(entry)) {
                    return Some(Cursor { list: List::Qps, from: index });
                }
            }
        }
        if cursor.list <= List::Cqs {
            for cq in self.resources.cqs_from(from(List::Cqs)) {
                let number = cq.number;
                if !writer.cq(cq) {
                    return Some(Cursor { list: List::Cqs, from: number });
                }
            }
        }
        for srq in self.resources.srqs_from(from(List::Srqs)) {
            let number = srq.number;
            if !writer.srq(srq) {
                return Some(Cursor { list: List::Srqs, from: number });
            }
        }
        None
    }

    /// What carries packets to a peer, in words.
    fn medium_to(&self, peer: Peer) -> String {
        match self.port.medium_to(peer) {
            PeerMedium::Ring => "shared memory".to_owned(),
            PeerMedium::Udp(why) => format!("UDP: {why}"),
            PeerMedium::Simulated => "a simulated network".to_owned(),
        }
    }

    fn view(&self, entry: &QpEntry) -> QpView {
        let QpEntry { qp, traffic, .. } = entry;
        let Figures { posted, ended, received, unsignaled, .. } = qp.figures();
        let Figures { in_flight_packets, window_packets, rtt_ns, waits_for_receiver, group, .. } =
            qp.figures();
        let context = qp.context();
        let tally = self.resources.tally(context.qpn).cloned().unwrap_or_default();
        let object = |number: u32| Some(number).filter(|number| *number != NO_OBJECT);
        let own_receives = self.resources.own_receives(context.recv_queue);
        QpView {
            qpn: context.qpn.value(),
            ordinal: context.ordinal,
            service: qp.qp_type().name().to_owned(),
            state: qp.state().name().to_owned(),
            peer: qp.peer().map(|(address, qpn)| PeerView { address, qpn: qpn.value() }),
            medium: qp.peer().map(|(address, qpn)| self.medium_to(Peer { address, process: qpn.process() })),
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
        }
    }
}
