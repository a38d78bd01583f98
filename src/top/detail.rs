//! The detail view: one queue pair with all its numbers.

use pumice_device::inspect::{CqView, QpView};
use pumice_device::platform::ordinal::Ordinal;
use pumice_transport::wire::Qpn;

use super::look::TopSnapshot;
use super::rows::RowKey;
use crate::mrc::planes;
use crate::observe::{ProcessView, QpRates, plain, quantity, round_trip};

/// Returns the text; the queue pair may no longer exist.
pub(super) fn detail(look: &TopSnapshot, key: RowKey) -> String {
    let mut processes = look.snapshot.processes.iter().zip(&look.rates);
    let process = processes.find(|(process, _)| process.key() == (key.0, key.1));
    let found = process.and_then(|(process, rates)| {
        let mut qps = process.objects.as_ref()?.qps.iter().zip(&rates.qps);
        let (qp, rates) = qps.find(|(qp, _)| qp.qpn == key.2)?;
        Some(text(process, qp, rates))
    });
    found.unwrap_or_else(|| format!("queue pair {} of process {} is gone", Qpn::new(key.2), key.0))
}

fn text(process: &ProcessView, qp: &QpView, rates: &QpRates) -> String {
    let peer = match qp.peer {
        Some(peer) => format!("{} of {}", Qpn::new(peer.qpn), peer.address),
        None => "none".to_owned(),
    };
    let waits = if qp.waits_for_receiver { ", waits: the peer had no receive request" } else { "" };
    let receives = match (qp.receives_posted, qp.srq) {
        (Some(posted), _) => format!("{posted} of {} posted", qp.recv_queue_depth),
        (None, Some(srq)) => shared(process, srq),
        (None, None) => "none".to_owned(),
    };
    let rtt = qp.rtt_ns.map_or_else(|| "not measured yet".to_owned(), round_trip);
    let lines = [
        format!(
            "{} {} of process {}, made as number {}",
            Qpn::new(qp.qpn),
            plain(&qp.service),
            process.pid,
            Ordinal(qp.ordinal)
        ),
        format!("state        {}{waits}", plain(&qp.state)),
        format!("peer         {peer}"),
        format!("medium       {}", qp.medium.as_deref().map_or_else(|| "not said".to_owned(), plain)),
        format!(
            "sends        {} posted, {} ended, {}/s; depth {}",
            qp.posted,
            qp.ended,
            quantity(rates.sends),
            qp.send_queue_depth
        ),
        format!("received     {} messages, {}/s", qp.received, quantity(rates.receives)),
        format!(
            "packets out  {}, {}/s, {}B/s",
            qp.sent_packets,
            quantity(rates.sent_packets),
            quantity(rates.sent_bytes)
        ),
        format!(
            "packets in   {}, {}/s, {}B/s",
            qp.received_packets,
            quantity(rates.received_packets),
            quantity(rates.received_bytes)
        ),
        format!(
            "in flight    {} packets, window {}, round trip {rtt}",
            qp.in_flight_packets, qp.window_packets
        ),
        format!("sent again   {} packets, {} timeouts", qp.repeated_packets, qp.timeouts),
        format!("RNR NAKs     {} sent, {} received", qp.rnr_naks_sent, qp.rnr_naks_received),
        format!(
            "other NAKs   {} sent, {} received; {} packets dropped",
            qp.naks_sent, qp.naks_received, qp.dropped
        ),
        format!("receives     {receives}"),
        format!("completions  send {}; receive {}", queue(process, qp.send_cq), queue(process, qp.recv_cq)),
        format!("last error   {}", qp.last_error.as_deref().map_or_else(|| "none".to_owned(), plain)),
    ];
    let mut text = lines.join("\n").into_bytes();
    if let Some(mrc) = &qp.mrc {
        text.push(b'\n');
        // Memory takes all that is written to it.
        let _ = planes(mrc, &mut text);
    }
    String::from_utf8_lossy(&text).into_owned()
}

fn shared(process: &ProcessView, number: u32) -> String {
    let srqs = process.objects.iter().flat_map(|objects| &objects.srqs);
    match srqs.into_iter().find(|srq| srq.number == number) {
        Some(srq) => format!("SRQ {number}: {} of {} posted, limit {}", srq.posted, srq.depth, srq.limit),
        None => format!("SRQ {number}"),
    }
}

fn queue(process: &ProcessView, number: Option<u32>) -> String {
    let Some(number) = number else { return "none".to_owned() };
    let cqs = process.objects.iter().flat_map(|objects| &objects.cqs);
    match cqs.into_iter().find(|cq| cq.number == number) {
        Some(CqView { ordinal, filled, depth, failed, armed, .. }) => {
            let state = if *failed {
                ", overran"
            } else if *armed {
                ", armed"
            } else {
                ""
            };
            let name = ordinal.map_or_else(|| number.to_string(), |ordinal| Ordinal(ordinal).to_string());
            format!("CQ {name}: {filled} of {depth}{state}")
        }
        None => format!("CQ {number}"),
    }
}

#[cfg(test)]
mod tests {
    use pumice_device::inspect::{MrcView, PathStateView, PathView};

    use super::super::rows::left_paths;
    use super::*;
    use crate::observe::tests::{process, qp};

    #[test]
    fn an_mrc_queue_pair_has_a_line_for_each_plane() {
        let path = |plane: u8, state| PathView {
            source_port: 49_152 + u16::from(plane),
            plane,
            state,
            active: true,
            sent: 100,
            lost: 7,
            congested: 0,
            answered: 0,
        };
        let paths = vec![path(0, PathStateView::Good), path(1, PathStateView::AssumedBad)];
        let mrc = MrcView { planes: 2, planes_up: 3, path_count: 2, paths, ..MrcView::default() };
        let mut multipath = qp(0x12);
        multipath.mrc = Some(Box::new(mrc));
        let shown = text(&process(17, Vec::new()), &multipath, &QpRates::default());
        let planes: Vec<&str> = shown.lines().skip_while(|line| !line.contains("PLANE")).collect();
        assert_eq!(planes.len(), 3, "{shown}");
        assert!(planes[2].trim_start().starts_with("1 ") && planes[2].contains("7.0 %"), "{shown}");
        assert_eq!(left_paths(&multipath).as_deref(), Some("1 of 2 paths are not GOOD"));
        assert!(!text(&process(17, Vec::new()), &qp(0x12), &QpRates::default()).contains("PLANE"));
    }
}
