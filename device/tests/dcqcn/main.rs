//! DCQCN from end to end, in virtual time: shares, queues, losses, and how many CNPs there are.
//!
//! Parameters and marking are those of the paper (Zhu et al., SIGCOMM 2015), on links of 40 Gbit/s.

#[path = "../kit/mod.rs"]
mod kit;
mod scenario;

use pumice_device::port::SwitchPauses;
use pumice_transport::qp::{Congestion, DcqcnParameters, NotificationParameters};
use scenario::{Outcome, Scenario};

const MS: u64 = 1_000_000;
/// The interval between CNPs.
const INTERVAL_NS: u64 = 50_000;
/// A packet of the path MTU on the link.
const PACKET_BYTES: f64 = 1086.0;

/// What holds in each run: no loss, and CNPs by the rule.
fn check_rules(outcome: &Outcome) {
    let stats = outcome.stats;
    assert_eq!((stats.queue_drops, stats.receive_drops, stats.pauses, outcome.sent_again), (0, 0, 0, 0));
    let marked: usize = outcome.marks.iter().map(Vec::len).sum();
    assert_eq!(marked as u64, outcome.marks_counted);
    assert!(outcome.marks_counted > 0 && outcome.marks_counted <= stats.marked);
    assert_eq!(outcome.cnps_sent, outcome.cnps_by_rule(INTERVAL_NS), "one per interval and queue pair");
    // The last ones may still be on their way.
    assert!(outcome.cnps_sent - outcome.cnps_handled <= outcome.marks.len() as u64, "{outcome:?}");
}

/// Shares differ from their mean by a tenth at most.
fn check_fairness(shares: &[u64]) {
    let mean = shares.iter().sum::<u64>() / shares.len() as u64;
    for share in shares {
        assert!(share.abs_diff(mean) * 10 <= mean, "{shares:?}");
    }
}

#[test]
fn a_second_flow_gets_half_of_the_link() {
    for seed in [1, 2] {
        let mut scenario = Scenario { seed, ..Scenario::paper(2, 40_000, 60 * MS) };
        scenario.begins_ns[1] = 5 * MS;
        let outcome = scenario.run();
        check_rules(&outcome);
        assert!(outcome.samples[3].mbps[0] > 39_000 && outcome.samples[3].mbps[1] == 0, "alone");
        let shares = outcome.shares(30 * MS);
        check_fairness(&shares);
        assert!(shares.iter().sum::<u64>() > 36_000, "{shares:?}");
    }
}

#[test]
fn three_and_eight_senders_share_a_link_without_loss() {
    for (senders, seed, most_queue_bytes) in [(3, 1, 1_000_000), (8, 1, 3_000_000)] {
        let outcome = Scenario { seed, ..Scenario::paper(senders, 40_000, 80 * MS) }.run();
        check_rules(&outcome);
        let shares = outcome.shares(20 * MS);
        check_fairness(&shares);
        assert!(shares.iter().sum::<u64>() > 36_000, "{shares:?}");
        assert!(outcome.most_queue_bytes < most_queue_bytes, "{}", outcome.most_queue_bytes);
        // The queue of the beginning is gone.
        let late = outcome.samples.iter().filter(|sample| sample.at_ns > 20 * MS);
        assert!(late.map(|sample| sample.queue_bytes).max().unwrap() < 400_000);
    }
}

#[test]
fn a_run_is_a_function_of_its_seed() {
    let of = |seed| Scenario { seed, ..Scenario::paper(3, 10_000, 10 * MS) }.run().digest;
    assert_eq!(of(1), of(1));
    assert_ne!(of(1), of(2));
}

#[test]
fn without_congestion_control_the_queue_is_long_or_the_senders_are_paused() {
    let plain = |pause: Option<SwitchPauses>| {
        let mut scenario = Scenario::paper(3, 10_000, 5 * MS);
        scenario.congestion = Congestion::default();
        scenario.queues.ecn = None;
        scenario.queues.pause = pause;
        scenario.run()
    };
    let rated = Scenario::paper(3, 10_000, 5 * MS).run();
    let free = plain(None);
    assert!(
        free.most_queue_bytes > 3 * rated.most_queue_bytes,
        "{} {}",
        free.most_queue_bytes,
        rated.most_queue_bytes
    );
    let paused = plain(Some(SwitchPauses { xoff_bytes: 50_000, xon_bytes: 40_000 }));
    assert!(paused.stats.pauses > 10 && paused.stats.queue_drops == 0, "{:?}", paused.stats);
    assert!(paused.most_queue_bytes < 3 * 70_000, "{}", paused.most_queue_bytes);
}

#[test]
fn the_interval_between_cnps_decides_how_many_there_are() {
    let mut scenario = Scenario::paper(2, 10_000, 10 * MS);
    let Congestion { algorithm, .. } = scenario.congestion;
    let notification = NotificationParameters { min_time_between_cnps: 4, cnp_dscp: 48 };
    scenario.congestion = Congestion { algorithm, notification };
    let outcome = scenario.run();
    assert_eq!(outcome.cnps_sent, outcome.cnps_by_rule(4_000));
    assert_ne!(outcome.cnps_by_rule(4_000), outcome.cnps_by_rule(INTERVAL_NS));
}

/// The queue in front of the receiver in the fixed point of Zhu et al., "ECN or Delay" (CoNEXT 2016), in
/// bytes: that at which the share of packets which are marked is p = cbrt(R_AI N^2 / (tau C^2) (1/B + N /
/// (T C))^2). Rates are in packets.
fn fixed_point_bytes(senders: usize, rate_mbps: u32) -> f64 {
    let of_rate = |mbps: u32| f64::from(mbps) * 1e6 / 8.0 / PACKET_BYTES;
    let of_us = |us: u32| f64::from(us) / 1e6;
    let DcqcnParameters { rpg_ai_rate, rpg_time_reset, rpg_byte_reset, .. } = DcqcnParameters::PAPER;
    let (flows, line) = (senders as f64, of_rate(rate_mbps));
    let recovers = PACKET_BYTES / f64::from(rpg_byte_reset) + flows / (of_us(rpg_time_reset) * line);
    let grows = of_rate(rpg_ai_rate) * (flows / line).powi(2) / (INTERVAL_NS as f64 / 1e9);
    let share = (grows * recovers.powi(2)).cbrt();
    // Kmin, Kmax and Pmax of the paper.
    5_000.0 + share / 0.01 * 195_000.0
}

#[test]
fn the_queue_settles_at_the_fixed_point_of_the_fluid_model() {
    for senders in [2, 3, 4] {
        let scenario = Scenario { sample_ns: 50_000, ..Scenario::paper(senders, 40_000, 50 * MS) };
        let outcome = scenario.run();
        let late: Vec<u64> = outcome
            .samples
            .iter()
            .filter(|sample| sample.at_ns > 20 * MS)
            .map(|sample| sample.queue_bytes)
            .collect();
        let mean = late.iter().sum::<u64>() as f64 / late.len() as f64;
        let expected = fixed_point_bytes(senders, 40_000);
        eprintln!("{senders} flows: {:.1} kB, the fixed point is {:.1} kB", mean / 1e3, expected / 1e3);
        assert!((mean / expected - 1.0).abs() <= 0.1, "{mean} {expected}");
    }
}
