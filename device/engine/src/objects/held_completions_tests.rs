//! What a shuffled completion queue keeps, with every seed.

use pumice_model::shuffle::{Placement, ShuffleOptions};
use pumice_platform::clock::Random;
use pumice_platform::table::Handle;
use pumice_transport::types::{WcOpcode, WcStatus, WorkCompletion};

use super::super::completion_channel::CompletionChannel;
use super::super::completion_queue::{CompletionQueue, CqCommon, CqPushOutcome};
use super::*;

const SEEDS: u64 = 60;
/// Two polls of one call find nothing for each of so many completions, at most.
const MAX_EMPTY_POLLS: usize = 1 << PATIENCE_EXPONENTS;

fn queue(seed: u64, depth: u32, virtual_time: bool) -> (CompletionQueue, Arc<CompletionChannel>) {
    let options = ShuffleOptions { seed, placement: Placement::Any };
    let shuffle = Arc::new(Shuffle::new(options, "test", virtual_time));
    let channel = Arc::new(CompletionChannel::new().unwrap());
    let (handle, on) = (Handle { index: 1, generation: 1 }, Some(Arc::clone(&channel)));
    let common = CqCommon { shuffle: Some(shuffle), ..CqCommon::default() };
    let cq = CompletionQueue::new(handle, depth, 0, on, common, None, false).unwrap();
    (cq.decided(0, None).unwrap(), channel)
}

fn push(cq: &CompletionQueue, ordinal: u32, receives: bool, wr_id: u64) {
    let opcode = if receives { WcOpcode::Recv } else { WcOpcode::Send };
    let completion = WorkCompletion { wr_id, qp_num: ordinal, opcode, ..WorkCompletion::default() };
    assert_eq!(cq.push_of(ordinal, &completion, 0, false), CqPushOutcome::Stored);
}

fn poll(cq: &CompletionQueue, asked: usize) -> Vec<WorkCompletion> {
    let mut out = vec![WorkCompletion::default(); cq.max_returned(asked)];
    let count = cq.poll(&mut out);
    out.truncate(count);
    out
}

/// Polls until there is a completion.
fn wait(cq: &CompletionQueue) -> Vec<WorkCompletion> {
    for _ in 0..=MAX_EMPTY_POLLS {
        let found = poll(cq, 16);
        if !found.is_empty() {
            return found;
        }
    }
    panic!("completions are held for ever")
}

#[test]
fn every_completion_comes_once_and_those_of_a_work_queue_in_order() {
    let (mut overtaken, mut short) = (0, 0);
    for seed in 0..SEEDS {
        let (cq, _) = queue(seed, 1000, false);
        let mut random = Random::new(seed);
        let mut next = [0_u64; 6];
        let (mut order, mut pushed) = (Vec::new(), Vec::new());
        for _ in 0..200 {
            let queue = random.below(6) as usize;
            push(&cq, queue as u32 / 2, queue % 2 == 1, next[queue]);
            pushed.push((queue, next[queue]));
            next[queue] += 1;
            if random.below(3) == 0 {
                let there = cq.len();
                let found = poll(&cq, 16);
                short += usize::from(found.len() < there.min(16));
                order.extend(found);
            }
        }
        while !cq.is_empty() {
            order.extend(wait(&cq));
        }
        let order: Vec<(usize, u64)> = order
            .iter()
            .map(|wc| (wc.qp_num as usize * 2 + usize::from(wc.opcode.is_recv()), wc.wr_id))
            .collect();
        for (queue, &count) in next.iter().enumerate() {
            let own: Vec<u64> =
                order.iter().filter(|(of, _)| *of == queue).map(|(_, wr_id)| *wr_id).collect();
            assert_eq!(own, (0..count).collect::<Vec<_>>(), "seed {seed}");
        }
        overtaken += usize::from(order != pushed);
    }
    assert!(overtaken > 20 && short > 100, "{overtaken} seeds with another order, {short} short polls");
}

#[test]
fn an_armed_queue_holds_nothing_back_and_what_came_before_is_there_after_arming() {
    let mut early = 0;
    for seed in 0..SEEDS {
        let (cq, channel) = queue(seed, 100, false);
        cq.arm(false);
        assert!(
            channel.try_event().is_none(),
            "there was no completion that an event could tell of, seed {seed}"
        );
        push(&cq, 1, false, 0);
        assert!(channel.try_event().is_some(), "seed {seed}");
        push(&cq, 2, false, 0);
        cq.arm(false);
        let spurious = channel.try_event().is_some();
        early += usize::from(spurious);
        if spurious {
            cq.arm(false);
            assert!(channel.try_event().is_none(), "not twice in succession, seed {seed}");
        }
        assert_eq!(poll(&cq, 16).len(), 2, "seed {seed}");
        push(&cq, 1, false, 1);
        assert!(channel.try_event().is_some(), "seed {seed}");
        assert_eq!(wait(&cq).len(), 1, "seed {seed}");
    }
    assert!((5..50).contains(&early), "{early} of {SEEDS} seeds have a spurious event at the second arming");
}

#[test]
fn a_failure_brings_everything_before_it() {
    for seed in 0..SEEDS {
        let (cq, _) = queue(seed, 100, false);
        for wr_id in 0..5 {
            push(&cq, 1, wr_id % 2 == 0, wr_id);
        }
        let failed = WorkCompletion { status: WcStatus::WrFlushErr, qp_num: 1, ..WorkCompletion::default() };
        assert_eq!(cq.push_of(1, &failed, 0, false), CqPushOutcome::Stored);
        let mut count = 0;
        while !cq.is_empty() {
            let found = poll(&cq, 16);
            assert!(!found.is_empty(), "seed {seed}");
            count += found.len();
        }
        assert_eq!(count, 6);
    }
}

#[test]
fn what_is_flushed_comes_after_the_failure_that_flushed_it() {
    for seed in 0..SEEDS {
        let (cq, _) = queue(seed, 100, false);
        push(&cq, 1, false, 0);
        let failed =
            |status, opcode| WorkCompletion { status, opcode, qp_num: 1, ..WorkCompletion::default() };
        let send = failed(WcStatus::RemOpErr, WcOpcode::Send);
        let receive = failed(WcStatus::WrFlushErr, WcOpcode::Recv);
        assert_eq!(cq.push_of(1, &send, 0, false), CqPushOutcome::Stored);
        assert_eq!(cq.push_of(1, &receive, 0, false), CqPushOutcome::Stored);
        let mut statuses = Vec::new();
        while !cq.is_empty() {
            statuses.extend(poll(&cq, 16).iter().map(|wc| wc.status));
        }
        statuses.retain(|status| *status != WcStatus::Success);
        assert_eq!(statuses, [WcStatus::RemOpErr, WcStatus::WrFlushErr], "seed {seed}");
    }
}

#[test]
fn in_virtual_time_the_second_poll_of_a_call_finds_what_there_is() {
    for seed in 0..SEEDS {
        let (cq, _) = queue(seed, 100, true);
        push(&cq, 1, false, 0);
        let found = poll(&cq, 1).len() + poll(&cq, 1).len();
        assert_eq!(found, 1, "seed {seed}");
    }
}

#[test]
fn completions_of_a_destroyed_queue_pair_go_and_depth_changes() {
    for seed in 0..SEEDS {
        let (cq, _) = queue(seed, 8, false);
        for wr_id in 0..4 {
            push(&cq, 1, false, wr_id);
            push(&cq, 2, false, wr_id);
        }
        cq.remove_of(1);
        cq.resize(4).unwrap();
        cq.resize(8).unwrap();
        push(&cq, 3, false, 9);
        let mut left = Vec::new();
        while !cq.is_empty() {
            left.extend(wait(&cq).iter().map(|wc| (wc.qp_num, wc.wr_id)));
        }
        left.sort_unstable();
        assert_eq!(left, [(2, 0), (2, 1), (2, 2), (2, 3), (3, 9)], "seed {seed}");
    }
}

/// The next completion, by the calls of the extended queue: a program stays in `ibv_next_poll`.
fn next(cq: &CompletionQueue) -> Option<WorkCompletion> {
    if cq.ends_batch() {
        return None;
    }
    let mut one = [WorkCompletion::default()];
    (cq.poll(&mut one) == 1).then_some(one[0])
}

/// A program that asks again and again finds what is there, however it asks.
#[test]
fn every_way_of_polling_makes_progress() {
    let ways: [fn(&CompletionQueue) -> usize; 4] = [
        |cq| poll(cq, 16).len(),
        |cq| poll(cq, 1).len(),
        |cq| usize::from(cq.poll_stamped().is_some()),
        |cq| usize::from(next(cq).is_some()),
    ];
    let mut ended = 0;
    for (seed, way) in (0..SEEDS).flat_map(|seed| ways.iter().enumerate().map(move |way| (seed, way))) {
        for virtual_time in [false, true] {
            let (cq, _) = queue(seed, 100, virtual_time);
            let mut left = 48;
            for wr_id in 0..left {
                push(&cq, wr_id as u32 % 3, wr_id % 2 == 1, wr_id as u64);
            }
            let mut misses = 0;
            while left > 0 {
                match (way.1)(&cq) {
                    0 => misses += 1,
                    found => (left, misses) = (left - found, 0),
                }
                ended += usize::from(misses == 1);
                assert!(misses <= MAX_EMPTY_POLLS + 1, "way {} of seed {seed}: {left} are left", way.0);
            }
            assert!(cq.is_empty());
        }
    }
    assert!(ended > 0, "no batch ended before its time");
}

#[test]
fn completions_that_are_overwritten_are_forgotten() {
    for seed in 0..SEEDS {
        let (cq, _) = queue(seed, 8, false);
        let cq = cq.overwriting();
        for wr_id in 0..30 {
            let completion = WorkCompletion { wr_id, qp_num: 1, ..WorkCompletion::default() };
            assert_ne!(cq.push_of(1, &completion, 1, false), CqPushOutcome::Overrun);
        }
        let mut order = Vec::new();
        while !cq.is_empty() {
            order.extend(wait(&cq).iter().map(|one| one.wr_id));
        }
        assert_eq!(order, (22..30).collect::<Vec<_>>(), "seed {seed}");
    }
}
