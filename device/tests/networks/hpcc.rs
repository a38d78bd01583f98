//! The star of HPCC's simulation (alibaba-edu/High-Precision-Congestion-Control, `simulation/run.py` and
//! `mix`): hosts with 100 Gbit/s and 1 us, flows of 200 MB from two and from three of them to one, and
//! DCQCN as it sets it there.

use pumice_device::port::{EcnMarking, SwitchLink, SwitchQueues, Topology};
use pumice_transport::qp::{Congestion, DcqcnParameters, NotificationParameters};
use pumice_transport::types::Mtu;

use crate::ns3::{Marks, total_gbit};
use crate::transfers::{End, Start, incast};

const FLOW_BYTES: u32 = 200_000_000;
/// What packets of 1000 bytes with 48 bytes of headers carry of 100 Gbit/s.
const TOTAL_GBIT: f64 = 100.0 * 1000.0 / 1048.0;
const KMIN_BYTES: u64 = 400_000;
const KMAX_BYTES: u64 = 1_600_000;

fn star(senders: u16, seed: u64) -> Start {
    let parameters = DcqcnParameters {
        line_rate: 100_000,
        rpg_ai_rate: 20,
        rpg_hai_rate: 200,
        rpg_min_rate: 1_000,
        // It has no byte counter.
        rpg_byte_reset: i32::MAX as u32,
        dce_tcp_g: 1020,
        initial_alpha_value: 1024,
        max_burst_bytes: 0,
        ..DcqcnParameters::CONNECTX
    };
    let notification =
        NotificationParameters { min_time_between_cnps: 4, ..NotificationParameters::default() };
    let ecn = EcnMarking::Ramp { min_bytes: KMIN_BYTES, max_bytes: KMAX_BYTES, most_ppm: 200_000 };
    let queues = SwitchQueues { queue_bytes: 32_000_000, buffer_bytes: None, ecn: Some(ecn), pause: None };
    let link = SwitchLink { rate_mbps: 100_000, delay_ns: 1_000 };
    Start {
        topology: Topology { seed, queues, ..Topology::star(1 + senders, link) },
        congestion: Congestion::dcqcn(parameters, notification),
        mtu: Mtu::Mtu1024,
        queue_pairs: 1,
        transfers: incast(senders, FLOW_BYTES),
    }
}

/// Asserts that two figures differ by a tenth at most.
fn assert_near(what: &str, figure: f64, published: f64) {
    assert!((figure / published - 1.0).abs() <= 0.1, "{what}: {figure} beside {published}");
}

fn check(senders: u16, end: &End) {
    let bits = f64::from(senders) * f64::from(FLOW_BYTES) * 8.0;
    let total = bits / (end.last_us() * 1e3);
    let mean_queue = end.looks.iter().sum::<u64>() / end.looks.len() as u64;
    let ends: Vec<String> = end.ends_ns.iter().map(|ns| format!("{:.2}", *ns as f64 / 1e6)).collect();
    eprintln!(
        "{senders} to 1: {total:.2} Gbit/s of {TOTAL_GBIT:.2}, flows end after {} ms of {:.2}; queue \
         {} kB on average, {} kB at most; {} marks, {} CNPs",
        ends.join(", "),
        bits / TOTAL_GBIT / 1e6,
        mean_queue / 1000,
        end.longest_queue_bytes() / 1000,
        end.stats.marked,
        end.cnps
    );
    assert_near("total", total, TOTAL_GBIT);
    // Marks are a matter of chance: four seeds.
    let by_rules = |marks| {
        let of_seed = |seed| total_gbit(usize::from(senders), FLOW_BYTES.into(), marks, seed);
        (1..=4).map(of_seed).sum::<f64>() / 4.0
    };
    let [leaving, joining] = [Marks::Leaving, Marks::Joining].map(by_rules);
    eprintln!(
        "{senders} to 1: by the rules of the source {leaving:.2} Gbit/s, {joining:.2} with marks as here"
    );
    assert_near("total by the rules of the source", total, leaving);
    assert_near("total by these rules and with marks as here", total, joining);
    for ns in &end.ends_ns {
        assert_near("end", *ns as f64, bits / TOTAL_GBIT);
    }
    assert_eq!((end.stats.queue_drops, end.stats.pauses, end.sent_again), (0, 0, 0));
    assert!(end.cnps > 0 && end.longest_queue_bytes() < KMAX_BYTES, "{:?}", end.stats);
    assert!(mean_queue < KMIN_BYTES, "{mean_queue}");
}

#[test]
fn two_flows_share_a_link_by_dcqcn() {
    check(2, &star(2, 1).run());
}

#[test]
fn three_flows_share_a_link_by_dcqcn() {
    check(3, &star(3, 1).run());
}
