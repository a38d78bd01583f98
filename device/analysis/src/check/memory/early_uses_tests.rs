//! Results of READs and atomics, told of accesses as the processor's breakpoints tell of them.

use std::cell::{Cell, RefCell};

use pumice_model::event::Event;
use pumice_platform::outside::data_watch::WatchedWord;
use pumice_transport::types::{SendOpcode, WcOpcode, WcStatus};

use super::super::Watchpoints;
use super::tests::{KEY, LINE, MEMORY, ONLY, Rung, at, context, range, sge, write};

thread_local! {
    /// What is watched: the names of watches, and their first words.
    static WATCHED: RefCell<Vec<(u64, u64)>> = const { RefCell::new(Vec::new()) };
    /// Watches that were begun.
    static BEGUN: Cell<u64> = const { Cell::new(0) };
    /// Accesses that nothing has taken: their watches and words, and where they were.
    static ACCESSES: RefCell<Vec<(u64, usize, u64)>> = const { RefCell::new(Vec::new()) };
}

/// As many as a thread of an x86-64 watches.
fn begin(words: &[WatchedWord]) -> Option<u64> {
    let first = words.first()?.address - MEMORY;
    WATCHED.with_borrow_mut(|watched| {
        let watch = (watched.len() < 2).then(|| BEGUN.replace(BEGUN.get() + 1))?;
        watched.push((watch, first));
        Some(watch)
    })
}

fn end(watch: u64) {
    WATCHED.with_borrow_mut(|watched| watched.retain(|(one, _)| *one != watch));
    ACCESSES.with_borrow_mut(|accesses| accesses.retain(|(one, _, _)| *one != watch));
}

fn take(addresses: &mut Vec<u64>) -> Option<(u64, usize)> {
    let (watch, word, line) = ACCESSES.with_borrow_mut(Vec::pop)?;
    end(watch);
    *addresses = vec![line];
    Some((watch, word))
}

/// The offsets of what is watched.
fn watched() -> Vec<u64> {
    WATCHED.with_borrow(|watched| watched.iter().map(|(_, first)| *first).collect())
}

/// The program looks at the result that begins at an offset, at the present line.
fn looks(offset: u64, word: usize) {
    let watch = WATCHED.with_borrow(|watched| watched.iter().find(|(_, first)| *first == offset).copied());
    if let Some((watch, _)) = watch {
        ACCESSES.with_borrow_mut(|accesses| accesses.push((watch, word, LINE.get())));
    }
}

fn rung(service: &'static str) -> Rung {
    let mut rung = Rung::of(service);
    rung.0.set_watchpoints(Watchpoints { begin, end, take });
    rung
}

impl Rung {
    fn reads(&mut self, message: u64, offset: u64, length: u32) {
        self.send(message, SendOpcode::RdmaRead, true, &[sge(offset, length)]);
    }

    fn read_completes(&mut self, wr_id: u64) {
        self.completes(WcOpcode::RdmaRead, WcStatus::Success, wr_id, 1);
    }
}

#[test]
fn a_result_that_is_used_before_its_completion_is_polled_is_found_where_that_is() {
    let mut rung = rung("RC");
    at(10);
    rung.reads(0, 0, 0x100);
    at(11);
    looks(0, 1);
    assert_eq!(rung.found(), [], "it is told with the next event, or from time to time");
    let _ = rung.0.settle(false);
    assert_eq!(rung.found(), [("read-result-early", 11, 1)]);
    let numbers = rung.numbers();
    assert!(
        numbers.contains("at the end of the 256 bytes that a READ or an atomic of queue pair 0"),
        "{numbers}"
    );
    assert_eq!(rung.0.findings().all()[0].related[0].call_site.addresses(), [10]);
    at(12);
    rung.read_completes(0);
    rung.send(1, SendOpcode::FetchAdd, true, &[sge(0x200, 8)]);
    rung.completes(WcOpcode::FetchAdd, WcStatus::Success, 1, 1);
    at(13);
    looks(0x200, 0);
    rung.polls_send();
    let found = rung.found();
    assert_eq!(found.last(), Some(&("read-result-early", 13, 1)), "it is complete, and was not polled");
    assert!(rung.numbers().contains("at the beginning of the 8 bytes"), "{}", rung.numbers());
}

#[test]
fn a_watch_ends_when_the_program_polls_and_when_the_request_is_over_otherwise() {
    let mut rung = rung("RC");
    rung.reads(0, 0, 8);
    assert_eq!(watched(), [0]);
    rung.read_completes(0);
    assert_eq!(watched(), [0], "the program does not know");
    rung.polls_send();
    assert!(watched().is_empty(), "{:?}", watched());
    // The completion of a later request tells of those before it.
    rung.send(1, SendOpcode::RdmaRead, false, &[sge(8, 8)]);
    rung.send(2, SendOpcode::Send, true, &[sge(0x400, 8)]);
    rung.completes(WcOpcode::Send, WcStatus::Success, 2, 2);
    assert_eq!(watched(), [8]);
    rung.polls_send();
    assert!(watched().is_empty(), "{:?}", watched());
    // A request that is flushed stores nothing.
    rung.reads(3, 16, 8);
    rung.completes(WcOpcode::RdmaRead, WcStatus::WrFlushErr, 3, 1);
    assert!(watched().is_empty(), "{:?}", watched());
    rung.reads(4, 24, 8);
    rung.reads(5, 32, 8);
    rung.reads(6, 40, 8);
    assert_eq!(watched(), [24, 32], "there is no room for the third");
    rung.device(&Event::QpDestroyed { qp: &context() });
    assert!(watched().is_empty(), "{:?}", watched());
    assert_eq!(rung.found(), []);
}

#[test]
fn memory_that_is_given_back_is_not_watched_on() {
    let mut rung = rung("RC");
    rung.reads(0, 0, 8);
    let user = rung.0.user_of(MEMORY, 8).unwrap();
    rung.0.memory_freed(user, "free");
    assert!(watched().is_empty(), "{:?}", watched());
    rung.reads(1, 0x100, 8);
    rung.device(&Event::RegionDeregistered { lkey: KEY, rkey: KEY });
    assert!(watched().is_empty(), "{:?}", watched());
    let kinds: Vec<&str> = rung.found().into_iter().map(|(kind, _, _)| kind).collect();
    assert_eq!(kinds, ["freed-while-in-use", "deregistered-while-in-use"]);
}

#[test]
fn where_the_peer_may_have_told_the_program_nothing_is_watched_on() {
    let mut rung = rung("RC");
    rung.receive(9, &[sge(0x800, 8)]);
    rung.reads(0, 0, 8);
    rung.receives(9, 8);
    assert_eq!(watched(), [0]);
    rung.polls(9);
    assert!(watched().is_empty(), "{:?}", watched());
    rung.reads(1, 8, 8);
    rung.stores(range(0x900, 8), true);
    assert!(watched().is_empty(), "{:?}", watched());
}

#[test]
fn results_that_come_in_another_order_than_that_of_the_posts_and_payload_are_not_watched() {
    let mut srd = rung("SRD");
    srd.reads(0, 0, 8);
    assert!(watched().is_empty(), "{:?}", watched());
    let mut rung = rung("XRC_SEND");
    rung.send(0, SendOpcode::RdmaWrite, true, &[sge(0, 8)]);
    rung.receive(1, &[sge(64, 8)]);
    assert!(watched().is_empty(), "{:?}", watched());
    rung.reads(1, 128, 8);
    assert_eq!(watched(), [128]);
    rung.0.forked();
    assert_eq!(watched(), [128], "the watch is the parent's");
}

#[test]
fn a_message_that_another_one_replaces_in_its_buffer_is_found_if_the_program_looks_at_it() {
    for looks_at_it in [true, false] {
        let mut rung = rung("RC");
        for wr_id in [70, 71] {
            at(wr_id);
            rung.receive(wr_id, &[sge(0, 64)]);
        }
        for wr_id in [70, 71] {
            rung.comes(ONLY);
            write(3);
            rung.receives(wr_id, 8);
        }
        rung.polls(70);
        assert_eq!(rung.found(), [], "it may not care for what came");
        at(80);
        if looks_at_it {
            looks(0, 0);
        }
        at(81);
        rung.receive(72, &[sge(0, 64)]);
        assert_eq!(rung.found(), [("buffers-overlap", 71, 1)][..usize::from(looks_at_it)]);
        assert!(watched().is_empty(), "{:?}", watched());
    }
}

#[test]
fn a_datagram_is_read_at_the_wrong_place_if_only_its_header_is_looked_at() {
    for (header, payload, found) in [(true, false, 1), (true, true, 0), (false, true, 0), (false, false, 0)] {
        let mut rung = rung("UD");
        rung.receive(1, &[sge(0, 64)]);
        rung.receives(1, 48);
        rung.polls(1);
        assert_eq!(watched(), [0, 40]);
        at(90);
        [(header, 0), (payload, 40)].iter().filter(|(is, _)| *is).for_each(|(_, offset)| looks(*offset, 0));
        at(91);
        rung.receive(2, &[sge(0, 64)]);
        assert_eq!(rung.found(), [("header-read-as-payload", 90, 1)][..found]);
        assert!(watched().is_empty(), "{:?}", watched());
    }
}
