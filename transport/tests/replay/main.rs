//! Captures of two rdma_rxe played again, with one of the two replaced by a queue pair of ours, in virtual
//! time: every packet that we send must be the one that rdma_rxe sent in our place, in every field that is
//! not a number of the device itself (queue pair numbers; credits in acknowledgements). Where ours differ on
//! purpose, the test says how.

#[path = "../capture/mod.rs"]
mod capture;
#[path = "../ladder/kit/mod.rs"]
mod kit;
mod requester;
mod responder;
mod tape;

use kit::literal::{NAK_INVALID, NAK_OPERATION};
use pumice_transport::types::{Access, WcStatus};
use requester::{Attributes, asks_as_rxe};
use responder::{Before, answer, answers_as_rxe, answers_through_faults};
use tape::Tape;

/// What the program that was captured had in B's memory for READs.
fn pattern_of_reads(index: usize) -> u8 {
    (index * 3 + 1) as u8
}

/// 0x1122334455667788 at 64.
fn word_of_atomics(index: usize) -> u8 {
    let word = 0x1122_3344_5566_7788u64.to_ne_bytes();
    index.checked_sub(64).and_then(|at| word.get(at)).copied().unwrap_or(0)
}

const KERNELS: [&str; 2] = ["6.1", "6.12"];

fn reads() -> Before {
    Before { memory: pattern_of_reads, ..Before::default() }
}

fn atomics() -> Before {
    Before { memory: word_of_atomics, ..Before::default() }
}

#[test]
fn we_answer_as_rdma_rxe() {
    for kernel in KERNELS {
        for (scenario, before, answers) in [
            ("rc-send", Before::default(), 13),
            ("rc-write", Before::default(), 10),
            ("rc-write-tclass", Before::default(), 10),
            ("rc-read", reads(), 25),
            ("rc-atomic", atomics(), 4),
            ("rc-rnr", Before::default(), 0),
            ("rc-rnr-exhausted", Before::default(), 3),
            ("rc-nak-access-write", Before::default(), 1),
            ("rc-nak-access-read", Before::default(), 1),
            ("rc-psn-wrap", Before::default(), 7),
            ("rc-burst", Before::default(), 32),
            ("uc-send-write", Before::default(), 0),
            ("ud-send", Before::default(), 0),
        ] {
            let compared = answers_as_rxe(&format!("{kernel}/{scenario}"), &before);
            assert!(answers == 0 || compared == answers, "{kernel}/{scenario}: {compared} answers");
        }
    }
}

#[test]
fn we_answer_over_ipv6_and_to_what_6_12_brought_as_rdma_rxe() {
    for (scenario, before) in [
        ("ipv6-rc-send", Before::default()),
        ("ipv6-rc-write", Before::default()),
        ("ipv6-rc-write-tclass", Before::default()),
        ("ipv6-rc-read", reads()),
        ("ipv6-rc-atomic", atomics()),
        ("ipv6-ud-send", Before::default()),
        ("rc-atomic-write", Before::default()),
        (
            "rc-flush",
            Before { access: kit::rung::ALL_REMOTE - Access::FLUSH_PERSISTENT, ..Before::default() },
        ),
    ] {
        answers_as_rxe(&format!("6.12/{scenario}"), &before);
    }
}

#[test]
fn a_window_is_invalidated_as_by_rdma_rxe() {
    for (kernel, window) in [("6.1", window_of("6.1")), ("6.12", window_of("6.12"))] {
        answers_as_rxe(
            &format!("{kernel}/rc-send-inv"),
            &Before { window: Some(window), ..Before::default() },
        );
    }
}

/// The window's key is that of the first WRITE.
fn window_of(kernel: &str) -> u32 {
    let tape = Tape::read(&format!("{kernel}/rc-send-inv"));
    tape.shots[0].literal.reth.expect("a WRITE").1
}

#[test]
fn a_send_that_does_not_fit_is_refused_as_invalid() {
    // rdma_rxe blames itself (NAK 0x63); the receiver did nothing wrong, and hardware says 0x61.
    for kernel in KERNELS {
        let tape = Tape::read(&format!("{kernel}/rc-nak-invalid-len"));
        let answered = answer(&tape, &Before { receive_bytes: 10, ..Before::default() });
        let theirs = tape.sent(false);
        assert_eq!(theirs[0].aeth.map(|(syndrome, _)| syndrome), Some(NAK_OPERATION));
        let mut expected = theirs;
        expected[0].aeth = Some((NAK_INVALID, 0));
        assert_eq!(answered.answers, expected);
        assert_eq!(answered.received()[0].status, WcStatus::LocLenErr);
    }
}

#[test]
fn flush_without_the_right_is_refused() {
    let tape = Tape::read("6.12/rc-flush-noaccess");
    let rights = kit::rung::ALL_REMOTE - Access::FLUSH_GLOBAL - Access::FLUSH_PERSISTENT;
    let answered = answer(&tape, &Before { access: rights, ..Before::default() });
    assert_eq!(answered.answers, tape.sent(false));
}

#[test]
fn faults_of_the_network_are_answered_as_by_rdma_rxe() {
    for kernel in KERNELS {
        for scenario in ["rc-loss", "rc-reorder", "rc-duplicate"] {
            answers_through_faults(&format!("{kernel}/{scenario}"));
        }
    }
}

#[test]
fn we_ask_as_rdma_rxe() {
    let usual = Attributes::default;
    for kernel in KERNELS {
        for (scenario, attributes, packets) in [
            ("rc-send", usual(), 20),
            ("rc-write", usual(), 16),
            ("rc-write-tclass", usual(), 16),
            ("rc-read", usual(), 14),
            ("rc-atomic", usual(), 4),
            ("rc-send-inv", usual(), 3),
            ("rc-rnr", usual(), 0),
            ("rc-rnr-exhausted", Attributes { rnr_retry: 2, ..usual() }, 3),
            ("rc-nak-access-write", usual(), 1),
            ("rc-nak-access-read", usual(), 1),
            ("rc-nak-invalid-len", usual(), 1),
            ("rc-retry-exhausted", Attributes { timeout: 12, retry_cnt: 3, ..usual() }, 4),
            ("rc-psn-wrap", usual(), 9),
            ("rc-burst", usual(), 32),
            ("uc-send-write", usual(), 0),
            ("ud-send", usual(), 7),
        ] {
            let compared = asks_as_rxe(&format!("{kernel}/{scenario}"), &attributes);
            assert!(packets == 0 || compared == packets, "{kernel}/{scenario}: {compared} packets");
        }
    }
    for scenario in [
        "ipv6-rc-send",
        "ipv6-rc-write",
        "ipv6-rc-read",
        "ipv6-rc-atomic",
        "ipv6-ud-send",
        "rc-atomic-write",
        "rc-flush",
        "rc-flush-noaccess",
    ] {
        asks_as_rxe(&format!("6.12/{scenario}"), &usual());
    }
}
