//! Proofs about paths: their states follow the table for all reports.

use alloc::vec::Vec;

use super::{Ev, EvProfile, PathReport, PathSet, PathState};
use crate::mrc::constants::{BAD_PROBE_INTERVAL_NS, PROBES_TO_GOOD};
use crate::mrc::entropy::{Entropy, Plane, Planes};
use crate::proofs::{check, check_all};

fn set(active: u16, backup: u16, planes: u8, min_active: u16) -> PathSet {
    let count = active + backup;
    let evs = (0..count).map(|index| Ev {
        entropy: Entropy(u32::from(index) * 3),
        plane: Plane((index % u16::from(planes)) as u8),
    });
    let profile = EvProfile { evs: evs.collect(), active_count: active, min_active };
    PathSet::new(&profile, 5)
}

/// Checks the state that follows from each state and each report.
#[cfg_attr(not(kani), test)]
fn states_follow_the_table() {
    use PathReport::{AlwaysSkip, Congested, Lost};
    use PathState::{AssumedBad, Denied, Good, Skip};
    check_all(|from| {
        let state = from.one_of(&[Good, Skip, AssumedBad, Denied]);
        let report = from.one_of(&[Congested, AlwaysSkip, Lost]);
        let mut set = set(8, 0, 1, 1);
        match state {
            Good => {}
            Skip => set.report_path(0, 3, Congested),
            AssumedBad => set.report_path(0, 3, Lost),
            Denied => assert!(set.set_state(0, Entropy(9), Denied)),
        }
        assert_eq!(set.state(3), Some(state));
        set.report_path(0, 3, report);
        let expected = match (state, report) {
            (Denied, _) => Denied,
            (AssumedBad, _) | (_, Lost | AlwaysSkip) => AssumedBad,
            (_, Congested) => Skip,
        };
        assert_eq!(set.state(3), Some(expected));
    });
}

/// Checks that a skipped path is back after one pass of the set, and not before.
#[cfg_attr(not(kani), test)]
fn a_skipped_path_is_back_after_one_pass() {
    check_all(|from| {
        let mut set = set(8, 0, 1, 1);
        (0..from.up_to(20)).for_each(|_| assert!(set.choose(None).is_some()));
        set.report_path(0, 3, PathReport::Congested);
        let chosen: Vec<u16> = (0..8).map(|_| set.choose(None).unwrap()).collect();
        assert!(!chosen.contains(&3));
        // The order of the next round may place the path last.
        assert!((0..16).any(|_| set.choose(None) == Some(3)));
        assert_eq!(set.state(3), Some(PathState::Good));
    });
}

/// Checks for all sequences of losses and denials that the required number of paths stays usable, that the
/// active set keeps its size and its share of each plane without duplicates, and that a chosen path lies on a
/// plane that is up.
#[cfg_attr(not(kani), test)]
fn enough_paths_stay_usable() {
    check(|from| {
        let mut set = set(12, 6, 3, 4);
        let mut denied = 0;
        for _ in 0..60 {
            let path = from.up_to(17) as u16;
            match from.up_to(9) {
                0 => set.set_local_planes(Planes(from.up_to(7) as u32)),
                1 => set.set_remote_planes(Planes(from.up_to(7) as u32)),
                2 if denied == 0 => {
                    denied += u16::from(set.set_state(0, Entropy(u32::from(path) * 3), PathState::Denied))
                }
                3 => set.probe_answered(0, path, from.bool()),
                4 => drop(set.due_probe(from.up_to(1 << 40), from.up_to(1 << 30))),
                5 => set.report_path(0, path, PathReport::Congested),
                6 | 7 => set.report_path(0, path, PathReport::Lost),
                _ => {
                    let avoid = from.bool().then_some(path);
                    let Some(chosen) = set.choose(avoid) else {
                        assert!(set.planes().0 & 7 == 0 || denied > 0);
                        continue;
                    };
                    assert!(set.planes().has(set.ev(chosen).unwrap().plane) && set.is_active(chosen));
                    assert_ne!(set.state(chosen), Some(PathState::Denied));
                }
            }
            let usable =
                (0..18).filter(|path| matches!(set.state(*path), Some(PathState::Good | PathState::Skip)));
            assert!(usable.count() >= 4 - usize::from(denied));
            for plane in 0..3 {
                let of_plane = (0..18).filter(|path| set.is_active(*path) && path % 3 == plane);
                assert_eq!(of_plane.count(), 4);
            }
        }
    });
}

/// Checks that a bad path is tested once in a period, which doubles while tests are not answered, and becomes
/// good after consecutive answers.
#[cfg_attr(not(kani), test)]
fn a_bad_path_is_good_after_answers_in_a_row() {
    check_all(|from| {
        let mut set = set(8, 2, 1, 1);
        set.report_path(0, 3, PathReport::Lost);
        assert!(!set.is_active(3) && set.poll_change().unwrap().state == PathState::AssumedBad);
        let (mut now_ns, mut in_a_row, mut wait_ns) = (0, 0, BAD_PROBE_INTERVAL_NS);
        let mut was_answered = true;
        for _ in 0..6 {
            let due_ns = set.probe_deadline_ns().unwrap();
            assert_eq!(due_ns, now_ns + wait_ns);
            assert_eq!(set.due_probe(due_ns - 1, 0), None);
            now_ns = due_ns;
            assert_eq!((set.due_probe(now_ns, 0), set.due_probe(now_ns, 0)), (Some(3), None));
            let doubled_ns = if was_answered { BAD_PROBE_INTERVAL_NS } else { wait_ns * 2 };
            let is_answered = from.bool();
            wait_ns = if is_answered { BAD_PROBE_INTERVAL_NS } else { doubled_ns };
            was_answered = is_answered;
            in_a_row = if is_answered { in_a_row + 1 } else { 0 };
            if is_answered {
                set.probe_answered(now_ns, 3, false);
                // A duplicate of the answer does not count.
                set.probe_answered(now_ns, 3, false);
            }
            let is_good = in_a_row >= PROBES_TO_GOOD;
            assert_eq!(set.state(3) == Some(PathState::Good), is_good);
            if is_good {
                assert_eq!(set.probe_deadline_ns(), None);
                return;
            }
        }
    });
}

/// Checks that a state set by a controller takes precedence over packet reports, and that a replaced value is
/// gone.
#[cfg_attr(not(kani), test)]
fn a_controller_decides() {
    use PathState::{AssumedBad, Denied, Good, Skip};
    check_all(|from| {
        let mut set = set(8, 2, 1, 8);
        let (before, after) =
            (from.one_of(&[Good, AssumedBad, Denied]), from.one_of(&[Good, AssumedBad, Denied]));
        assert!(set.set_state(0, Entropy(9), before) && set.set_state(0, Entropy(9), after));
        assert_eq!((set.state(3), set.probe_deadline_ns().is_some()), (Some(after), after == AssumedBad));
        set.report_path(0, 3, PathReport::Lost);
        assert_eq!(set.state(3) == Some(Denied), after == Denied);
        assert!(!set.set_state(0, Entropy(9), Skip) && !set.set_state(0, Entropy(10), Good));
        let new = Ev { entropy: Entropy(1000), plane: Plane(0) };
        assert!(set.replace_ev(Entropy(9), new) && !set.replace_ev(Entropy(9), new));
        assert_eq!((set.find(Entropy(9)), set.find(Entropy(1000))), (None, Some(3)));
        assert_eq!((set.ev(3), set.state(3), set.probe_deadline_ns()), (Some(new), Some(Good), None));
    });
}
