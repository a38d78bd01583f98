use super::*;

const BATCH: u32 = 12 << 10;
/// Number of data bytes of the ring.
const RING: u64 = 1 << 20;

/// A pair of processes in virtual time: the producer writes whenever there is room, the consumer takes one
/// batch after the other.
struct Pair {
    choice: CopyChoice,
    now_ns: u64,
    written: u64,
    taken: u64,
    /// Batches in the ring with their ways, and when the consumer has taken the first of them.
    waiting: std::collections::VecDeque<CopyWay>,
    taken_at_ns: u64,
    /// Time that a batch takes the producer and the consumer, in ns: cached, streaming.
    costs: [[u64; 2]; 2],
    used: [u64; 2],
    /// Time that the machine takes away at certain batches: each this-many-th one, and how long in ns.
    noise: (u64, u64),
}

impl Pair {
    fn new(costs: [[u64; 2]; 2]) -> Pair {
        Pair {
            choice: CopyChoice::new(CopyMode::Auto, None),
            now_ns: 5,
            written: 0,
            taken: 0,
            waiting: std::collections::VecDeque::new(),
            taken_at_ns: 0,
            costs,
            used: [0; 2],
            noise: (u64::MAX, 0),
        }
    }

    /// Lets the consumer work until now.
    fn consume(&mut self) {
        while let Some(way) = self.waiting.front() {
            let [_, cost_ns] = self.costs[index(*way)];
            if self.taken_at_ns + cost_ns > self.now_ns {
                return;
            }
            self.taken_at_ns += cost_ns;
            self.taken += u64::from(BATCH);
            self.waiting.pop_front();
        }
        self.taken_at_ns = self.now_ns;
    }

    /// Sends batches of a long message.
    fn send(&mut self, batches: u64) {
        for number in 0..batches {
            self.consume();
            while self.written - self.taken + u64::from(BATCH) > RING {
                self.choice.note_full();
                self.now_ns += 1000;
                self.consume();
            }
            if number % self.noise.0 == self.noise.0 - 1 {
                self.now_ns += self.noise.1;
            }
            // Turns of some batches.
            let turn_ns = self.now_ns / 100_000;
            let way = self.choice.way_of(turn_ns, BATCH);
            let [cost_ns, _] = self.costs[index(way.unwrap_or_default())];
            let begun_ns = self.now_ns;
            self.now_ns += cost_ns;
            if way.is_some() {
                let is_timed = self.choice.is_timed();
                let put = TimedPut {
                    begun_ns,
                    ended_ns: self.now_ns,
                    length_bytes: BATCH,
                    written_bytes: self.written,
                    taken_bytes: self.taken,
                };
                if is_timed { self.choice.note_timed(put) } else { self.choice.note(BATCH) }
            }
            self.written += u64::from(BATCH);
            self.waiting.push_back(way.unwrap_or_default());
            self.used[index(way.unwrap_or_default())] += 1;
        }
    }

    fn is(&self, way: CopyWay, reason: CopyReason) -> bool {
        let report = self.choice.report();
        (report.way, report.reason) == (way, reason)
    }
}

/// Enough for a whole trial with a slow consumer: twelve windows, and what is in the ring before each.
const TRIAL: u64 = 6 * 2 * (RING / BATCH as u64) + 100;
/// Batches of a GiB.
const GIB: u64 = (1 << 30) / BATCH as u64 + 1;

#[test]
fn the_faster_way_stays() {
    // The consumer gets lines of another core's cache slowly.
    let mut apart = Pair::new([[3000, 6000], [800, 900]]);
    assert!(apart.is(CopyWay::Cached, CopyReason::Untried));
    apart.send(60);
    assert!(apart.choice.report().reason == CopyReason::Trying, "{:?}", apart.choice);
    apart.send(TRIAL);
    assert!(apart.is(CopyWay::Streaming, CopyReason::Measured), "{:?}", apart.choice);
    let report = apart.choice.report();
    let is_near = |rate: Option<u64>, wanted: u64| rate.unwrap().abs_diff(wanted) < wanted / 10;
    assert!(is_near(report.cached_bytes_per_s, u64::from(BATCH) * 1_000_000 / 6), "{report:?}");
    assert!(is_near(report.streaming_bytes_per_s, u64::from(BATCH) * 10_000_000 / 9), "{report:?}");

    // Cores with a cache in common.
    let mut near = Pair::new([[500, 400], [900, 900]]);
    near.send(TRIAL);
    assert!(near.is(CopyWay::Cached, CopyReason::Measured), "{:?}", near.choice);
}

#[test]
fn a_way_that_is_a_little_faster_does_not_win() {
    let mut pair = Pair::new([[500, 1000], [500, 930]]);
    pair.send(TRIAL);
    assert!(pair.is(CopyWay::Cached, CopyReason::Measured), "{:?}", pair.choice);
}

#[test]
fn work_of_others_does_not_decide() {
    // Now and then a core is taken away for longer than a window takes.
    for every in [40, 150, 333] {
        let mut pair = Pair::new([[900, 900], [700, 700]]);
        pair.noise = (every, 4_000_000);
        pair.send(TRIAL);
        assert!(pair.is(CopyWay::Streaming, CopyReason::Measured), "every {every}: {:?}", pair.choice);
    }
}

#[test]
fn a_review_follows_cores_that_move_and_costs_little() {
    let mut pair = Pair::new([[3000, 6000], [800, 900]]);
    pair.send(TRIAL);
    assert!(pair.is(CopyWay::Streaming, CopyReason::Measured));
    let before = pair.used;
    pair.send(GIB);
    assert!(pair.is(CopyWay::Streaming, CopyReason::Measured), "{:?}", pair.choice);
    pair.send(TRIAL);
    let tried = pair.used[0] - before[0];
    assert!((1..=2 * RING / u64::from(BATCH) + 10).contains(&tried), "{tried} batches in the slow way");
    // The hypervisor has put both on cores with a cache in common.
    pair.costs = [[300, 300], [900, 900]];
    pair.send(GIB + TRIAL);
    assert!(pair.is(CopyWay::Cached, CopyReason::Measured), "{:?}", pair.choice);
}

#[test]
fn one_strange_window_of_a_review_changes_nothing() {
    let mut pair = Pair::new([[3000, 6000], [800, 900]]);
    pair.send(TRIAL);
    // The usual way is slow in its window of the review only.
    while !pair.choice.is_timed() {
        pair.send(1);
    }
    pair.costs = [[3000, 6000], [20_000, 20_000]];
    pair.send(RING / u64::from(BATCH) + 2);
    pair.costs = [[3000, 6000], [800, 900]];
    pair.send(2 * TRIAL);
    assert!(pair.is(CopyWay::Streaming, CopyReason::Measured), "{:?}", pair.choice);
}

#[test]
fn short_messages_are_copied_in_the_ordinary_way_and_not_measured() {
    let mut choice = CopyChoice::new(CopyMode::Streaming, None);
    for turn_ns in 0..1000 {
        assert_eq!(choice.way_of(turn_ns, 60 << 10), None, "64 KiB in a turn");
        assert_eq!(choice.way_of(turn_ns, LEAST_BATCH_BYTES - 1), None, "short");
    }
    assert_eq!(choice.way_of(1000, 60 << 10), None);
    assert_eq!(choice.way_of(1000, 8 << 10), Some(CopyWay::Streaming), "more than that");
    assert_eq!(choice.way_of(1001, LEAST_BATCH_BYTES - 1), None, "short");
    assert_eq!(choice.way_of(1001, LEAST_BATCH_BYTES), Some(CopyWay::Streaming), "what comes next");
    let more = (1..100).take_while(|turn| choice.way_of(1001 + turn, 60 << 10).is_some()).count();
    assert!((15..20).contains(&more), "{more}: until a MiB of short messages has followed");
    choice.note_full();
    assert_eq!(choice.way_of(2000, 60 << 10), Some(CopyWay::Streaming), "the ring was full");
}

#[test]
fn what_is_set_or_alone_is_never_timed() {
    for (mode, only, way, reason) in [
        (CopyMode::Cached, None, CopyWay::Cached, CopyReason::Set),
        (CopyMode::Streaming, None, CopyWay::Streaming, CopyReason::Set),
        (CopyMode::Streaming, Some(CopyReason::World), CopyWay::Streaming, CopyReason::Set),
        (CopyMode::Auto, Some(CopyReason::World), CopyWay::Cached, CopyReason::World),
        (CopyMode::Auto, Some(CopyReason::OnlyWay), CopyWay::Cached, CopyReason::OnlyWay),
        (CopyMode::Streaming, Some(CopyReason::OnlyWay), CopyWay::Cached, CopyReason::OnlyWay),
    ] {
        let mut pair = Pair::new([[3000, 6000], [800, 900]]);
        pair.choice = CopyChoice::new(mode, only);
        assert!(!pair.choice.is_timed() && pair.is(way, reason), "{mode:?} {only:?}");
        pair.send(TRIAL);
        assert!(!pair.choice.is_timed() && pair.is(way, reason), "{mode:?} {only:?}");
        assert_eq!(pair.used[index(way.other())].min(6), if way == CopyWay::Cached { 0 } else { 5 });
    }
}

#[test]
fn no_times_make_a_trial_endless() {
    // Clocks that stand still, go back or jump, and a consumer that says what it likes.
    for seed in 1_u64..50 {
        let mut choice = CopyChoice::new(CopyMode::Auto, None);
        let mut random = seed;
        let mut draw = move || {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random
        };
        let mut written = 0;
        for _ in 0..TRIAL {
            let put = TimedPut {
                begun_ns: draw() >> (draw() % 64),
                ended_ns: draw() >> (draw() % 64),
                length_bytes: BATCH,
                written_bytes: written,
                // At most the ring is filled.
                taken_bytes: written.saturating_sub(draw() % RING),
            };
            written += u64::from(BATCH);
            choice.note_timed(put);
        }
        assert!(!choice.is_timed(), "seed {seed}: {choice:?}");
    }
}
