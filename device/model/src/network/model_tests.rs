use super::*;

const MICROSECOND_A_KILOBYTE: LinkDirection =
    LinkDirection { rate_bits_per_second: Some(8_000_000_000), ..LinkDirection::NONE };

#[test]
fn packets_leave_one_after_the_other_at_the_rate() {
    let direction = LinkDirection { queue_bytes: Some(2_500), ..MICROSECOND_A_KILOBYTE };
    let mut queue = LinkQueue::default();
    let mut send = |now| {
        queue.send(&direction, now, 1_000, true).map(|passage| (passage.departs_at_ns, passage.backlog_bytes))
    };
    assert_eq!(send(100), Ok((1_100, 0)));
    assert_eq!(send(100), Ok((2_100, 1_000)));
    assert_eq!(send(100), Err(QueueFull), "2000 + 1000 bytes exceed the queue");
    assert_eq!(send(600), Ok((3_100, 1_500)));
    assert_eq!(send(10_000), Ok((11_000, 0)), "an idle link saves nothing up");
}

#[test]
fn a_packet_arrives_a_delay_after_it_has_left() {
    let direction = LinkDirection { delay_ns: 5_000, ..MICROSECOND_A_KILOBYTE };
    let mut queue = LinkQueue::default();
    let passages = [0, 0, 9_000].map(|now_ns| queue.take(&direction, now_ns, 1_500, true));
    let times = passages.map(|passage| (passage.departs_at_ns, passage.arrives_at_ns));
    assert_eq!(times, [(1_500, 6_500), (3_000, 8_000), (10_500, 15_500)]);
    // Without a rate there is no queue, however long its bound says it is.
    let direction =
        LinkDirection { rate_bits_per_second: None, queue_bytes: Some(10), ecn: None, ..direction };
    let mut queue = LinkQueue::default();
    let passages = [0, 0, 7].map(|now_ns| queue.send(&direction, now_ns, 1_500, true).unwrap());
    let times = passages.map(|passage| (passage.departs_at_ns, passage.arrives_at_ns, passage.backlog_bytes));
    assert_eq!(times, [(0, 5_000, 0), (0, 5_000, 0), (7, 5_007, 0)]);
}

#[test]
fn jitter_is_the_same_in_each_run_stays_in_its_bounds_and_reorders_nothing() {
    let direction = LinkDirection { delay_ns: 1_000, jitter_ns: 100, seed: 7, ..LinkDirection::NONE };
    let arrivals = |direction: &LinkDirection, step_ns: u64| -> Vec<u64> {
        let mut queue = LinkQueue::default();
        (0..1_000).map(|n| queue.take(direction, n * step_ns, 100, true).arrives_at_ns).collect()
    };
    let apart = arrivals(&direction, 200);
    assert_eq!(apart, arrivals(&direction, 200));
    assert_ne!(apart, arrivals(&LinkDirection { seed: 8, ..direction }, 200));
    let jitters: Vec<u64> = (0..).zip(&apart).map(|(n, at_ns): (u64, _)| at_ns - n * 200 - 1_000).collect();
    assert_eq!((jitters.iter().min(), jitters.iter().max()), (Some(&0), Some(&100)));
    let mean = jitters.iter().sum::<u64>() / 1_000;
    assert!((45..=55).contains(&mean), "{mean}");
    assert!(arrivals(&direction, 1).is_sorted());
}

#[test]
fn only_capable_packets_are_marked_and_only_above_the_threshold() {
    let direction = LinkDirection { ecn: Some(EcnMarking::Above(2_000)), ..MICROSECOND_A_KILOBYTE };
    let mut queue = LinkQueue::default();
    let marked: Vec<bool> =
        [true, true, true, true, false, true].map(|c| queue.take(&direction, 0, 1_000, c).is_marked).into();
    assert_eq!(marked, [false, false, false, true, false, true], "the third has exactly 2000 in front of it");
    assert!(!queue.take(&direction, 4_000, 1_000, true).is_marked, "2000 are left");
}

#[test]
fn a_ramp_marks_a_growing_share() {
    let ecn = EcnMarking::Ramp { min_bytes: 1_000, max_bytes: 5_000, most_ppm: 400_000 };
    let direction = LinkDirection { ecn: Some(ecn), seed: 3, ..MICROSECOND_A_KILOBYTE };
    let share = |backlog_bytes| (0..10_000).filter(|n| direction.marks(backlog_bytes, *n)).count();
    assert_eq!([share(0), share(1_000), share(5_001)], [0, 0, 10_000]);
    for (backlog_bytes, expected) in [(2_000, 1_000), (3_000, 2_000), (5_000, 4_000_usize)] {
        let share = share(backlog_bytes);
        assert!(share.abs_diff(expected) < 150, "{backlog_bytes}: {share}");
    }
    let equal = EcnMarking::Ramp { min_bytes: 1_000, max_bytes: 1_000, most_ppm: 10 };
    let direction = LinkDirection { ecn: Some(equal), ..direction };
    assert!(!direction.marks(1_000, 0) && direction.marks(1_001, 0));
}

#[test]
fn a_queue_says_when_it_has_drained() {
    let mut queue = LinkQueue::default();
    for _ in 0..4 {
        queue.take(&MICROSECOND_A_KILOBYTE, 500, 1_000, false);
    }
    assert_eq!(queue.backlog_bytes(&MICROSECOND_A_KILOBYTE, 1_500), 3_000);
    assert_eq!(queue.drained_to_ns(&MICROSECOND_A_KILOBYTE, 3_000), 1_500);
    assert_eq!(queue.drained_to_ns(&MICROSECOND_A_KILOBYTE, 0), 4_500);
    assert_eq!(queue.backlog_bytes(&MICROSECOND_A_KILOBYTE, 9_000), 0);
}

#[test]
fn numbers_at_their_ends_do_not_wrap() {
    let direction =
        LinkDirection { rate_bits_per_second: Some(0), delay_ns: u64::MAX, ..LinkDirection::NONE };
    let mut queue = LinkQueue::default();
    let passage = queue.take(&direction, u64::MAX, u64::MAX, true);
    assert_eq!((passage.departs_at_ns, passage.arrives_at_ns), (u64::MAX, u64::MAX));
}
