//! Guarantees about the order in which data becomes visible at the target of WRITEs: one table, for shuffled
//! schedules, for checks, and for the page that programmers read.

use alloc::format;
use alloc::string::String;

/// Order in which the device at the target stores the data of a WRITE. A later variant guarantees less.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StoreOrder {
    /// Data is stored from the first byte to the last, and one WRITE after the other, as ConnectX adapters
    /// do.
    InOrder,
    /// The bytes of a WRITE are stored in any order, as the specification allows.
    AsSpecified,
    /// The queue pair places data out of order (`MLX5DV_QP_CREATE_OOO_DP`).
    OutOfOrder,
    /// The region was registered with `IBV_ACCESS_RELAXED_ORDERING`.
    Relaxed,
}

/// An observation that shows that the data of a WRITE is in memory, or a use that needs it there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StoreEvidence {
    /// The program at the target polled the completion of a receive: of a SEND or WRITE_WITH_IMM that came
    /// after the WRITE, or of the WRITE itself.
    ReceiveCompletion,
    /// A program saw in memory what a later atomic or ATOMIC WRITE changed.
    AtomicInMemory,
    /// The answer of a later READ, atomic or FLUSH arrived, and the program at the target was then notified
    /// in any way.
    Answer,
    /// The program at the target was notified in any other way after the WRITE had completed, for example
    /// through a socket.
    OtherWay,
    /// A program saw bytes of a later WRITE in memory, such as a flag.
    LaterBytes,
    /// A program saw bytes of the same WRITE in memory, such as the last one.
    OwnBytes,
    /// A later READ or atomic uses the bytes of the WRITE.
    Use,
    /// A later WRITE replaces the bytes of the WRITE, and its data has to remain.
    Replacement,
}

/// Order between the WRITE and the evidence at their sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SenderOrder {
    /// True if both are on the same queue pair.
    pub same_queue_pair: bool,
    /// True if the WRITE had completed when the request that brings the evidence was posted: the sender had
    /// polled its completion, or that of a later request of its queue pair.
    pub after_completion: bool,
}

/// A guarantee: the data of a WRITE that a kind of evidence shows to be in memory.
#[derive(Debug, Clone, Copy)]
pub struct StoreGuarantee {
    /// Kind of evidence.
    pub evidence: StoreEvidence,
    /// Description of the evidence for a sentence, beginning with "the" or "a".
    pub words: &'static str,
    /// Weakest order of stores with which the data is there if the evidence comes on the queue pair of the
    /// WRITE; `None` if it never is.
    pub same_queue_pair: Option<StoreOrder>,
    /// Weakest order of stores with which the data is there if the evidence comes from a request posted after
    /// the WRITE had completed, on any queue pair; `None` if it never is.
    pub after_completion: Option<StoreOrder>,
    /// Source of the guarantee.
    pub source: &'static str,
}

use StoreOrder::{AsSpecified, InOrder, OutOfOrder, Relaxed};

/// All guarantees. Evidence that comes on another queue pair before the WRITE has completed shows nothing.
//= ibta-1.5#9.5
//| A WRITE's data is there when its immediate or a later SEND completes, or when a later atomic is executed.
pub const STORE_GUARANTEES: &[StoreGuarantee] = &[
    StoreGuarantee {
        evidence: StoreEvidence::ReceiveCompletion,
        words: "the completion of a receive (SEND, WRITE_WITH_IMM) was polled",
        same_queue_pair: Some(Relaxed),
        after_completion: Some(OutOfOrder),
        source: "InfiniBand 9.5; ibv_reg_mr(3)",
    },
    StoreGuarantee {
        evidence: StoreEvidence::AtomicInMemory,
        words: "the change by an atomic or ATOMIC WRITE was seen in memory",
        same_queue_pair: Some(Relaxed),
        after_completion: Some(OutOfOrder),
        source: "InfiniBand 9.5; ibv_reg_mr(3)",
    },
    StoreGuarantee {
        evidence: StoreEvidence::Answer,
        words: "the answer of a READ, atomic or FLUSH came, and then anything told of it",
        same_queue_pair: Some(Relaxed),
        after_completion: Some(OutOfOrder),
        source: "mlx5dv_create_qp(3): they are executed after all messages before them",
    },
    StoreGuarantee {
        evidence: StoreEvidence::OtherWay,
        words: "anything else told of the WRITE's completion (a socket, shared memory)",
        same_queue_pair: None,
        after_completion: Some(OutOfOrder),
        source: "adapters write in the order of PCIe unless the region is relaxed",
    },
    StoreGuarantee {
        evidence: StoreEvidence::LaterBytes,
        words: "bytes of a later WRITE were seen in memory (a flag)",
        same_queue_pair: Some(InOrder),
        after_completion: Some(OutOfOrder),
        source: "InfiniBand 9.5; mlx5dv_create_qp(3)",
    },
    StoreGuarantee {
        evidence: StoreEvidence::OwnBytes,
        words: "other bytes of the same WRITE were seen in memory (the last one)",
        same_queue_pair: Some(InOrder),
        after_completion: None,
        source: "InfiniBand 9.5; ibv_query_qp_data_in_order(3)",
    },
    StoreGuarantee {
        evidence: StoreEvidence::Use,
        words: "a later READ or atomic uses the same bytes",
        same_queue_pair: Some(Relaxed),
        after_completion: Some(Relaxed),
        source: "InfiniBand 10.8.3.3; the acknowledgement of a WRITE says that the adapter sees its data",
    },
    StoreGuarantee {
        evidence: StoreEvidence::Replacement,
        words: "a later WRITE replaces the same bytes, and stays",
        same_queue_pair: Some(AsSpecified),
        after_completion: Some(Relaxed),
        source: "InfiniBand 10.8.3.3; ibv_reg_mr(3): back-to-back writes leave an unknown state",
    },
];

impl StoreOrder {
    /// Returns the order of a WRITE's stores, from the device, its queue pair, and its region.
    pub const fn of(places_in_order: bool, out_of_order: bool, relaxed: bool) -> StoreOrder {
        match (relaxed, out_of_order, places_in_order) {
            (true, _, _) => Relaxed,
            (false, true, _) => OutOfOrder,
            (false, false, true) => InOrder,
            (false, false, false) => AsSpecified,
        }
    }

    /// Reports whether the data of a WRITE is in memory, as seen by a program or request, when this evidence
    /// of it comes.
    pub fn guarantees(self, evidence: StoreEvidence, following: SenderOrder) -> bool {
        let up_to = |order: Option<StoreOrder>| order.is_some_and(|order| self <= order);
        STORE_GUARANTEES.iter().filter(|row| row.evidence == evidence).any(|row| {
            following.same_queue_pair && up_to(row.same_queue_pair)
                || following.after_completion && up_to(row.after_completion)
        })
    }

    /// Reports whether the stores of a WRITE may be done after its acknowledgement has left.
    pub fn outlives_acknowledgement(self) -> bool {
        let following = SenderOrder { same_queue_pair: false, after_completion: true };
        !self.guarantees(StoreEvidence::OtherWay, following)
    }

    /// Reports whether a later WRITE of the same queue pair may be stored before this one.
    pub fn lets_writes_pass(self) -> bool {
        !self.guarantees(
            StoreEvidence::Replacement,
            SenderOrder { same_queue_pair: true, after_completion: false },
        )
    }
}

/// Returns the table of [`STORE_GUARANTEES`] in Markdown, for the documentation.
pub fn guarantees_as_markdown() -> String {
    let up_to = |order: Option<StoreOrder>| match order {
        None => "never",
        Some(InOrder) => "only if the adapter stores in order",
        Some(AsSpecified) => "yes, unless OOO_DP or relaxed",
        Some(OutOfOrder) => "yes, unless relaxed",
        Some(Relaxed) => "always",
    };
    let mut table = String::from(
        "| The data is there when … | on the WRITE's queue pair | on any, posted after the WRITE's \
         completion was polled |\n|---|---|---|\n",
    );
    for row in STORE_GUARANTEES {
        let (same, after) = (up_to(row.same_queue_pair), up_to(row.after_completion));
        table += &format!("| {} | {same} | {after} |\n", row.words);
    }
    table
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    const ORDERS: [StoreOrder; 4] = [InOrder, AsSpecified, OutOfOrder, Relaxed];
    const EVIDENCE: [StoreEvidence; 8] = [
        StoreEvidence::ReceiveCompletion,
        StoreEvidence::AtomicInMemory,
        StoreEvidence::Answer,
        StoreEvidence::OtherWay,
        StoreEvidence::LaterBytes,
        StoreEvidence::OwnBytes,
        StoreEvidence::Use,
        StoreEvidence::Replacement,
    ];
    const SAME: SenderOrder = SenderOrder { same_queue_pair: true, after_completion: false };
    const AFTER: SenderOrder = SenderOrder { same_queue_pair: false, after_completion: true };
    const BOTH: SenderOrder = SenderOrder { same_queue_pair: true, after_completion: true };
    const NEITHER: SenderOrder = SenderOrder { same_queue_pair: false, after_completion: false };

    #[test]
    fn each_evidence_has_one_row() {
        let rows: Vec<StoreEvidence> = STORE_GUARANTEES.iter().map(|row| row.evidence).collect();
        assert_eq!(rows, EVIDENCE);
        assert!(STORE_GUARANTEES.iter().all(|row| !row.source.is_empty()));
    }

    /// Checks all cases: a letter for each order of stores, `y` if the data is there.
    #[test]
    fn what_is_promised_of_each_order_by_each_evidence() {
        for (evidence, same, after) in [
            (StoreEvidence::ReceiveCompletion, "yyyy", "yyy-"),
            (StoreEvidence::AtomicInMemory, "yyyy", "yyy-"),
            (StoreEvidence::Answer, "yyyy", "yyy-"),
            (StoreEvidence::OtherWay, "----", "yyy-"),
            (StoreEvidence::LaterBytes, "y---", "yyy-"),
            (StoreEvidence::OwnBytes, "y---", "----"),
            (StoreEvidence::Use, "yyyy", "yyyy"),
            (StoreEvidence::Replacement, "yy--", "yyyy"),
        ] {
            for (index, order) in ORDERS.into_iter().enumerate() {
                let (same, after) = (same.as_bytes()[index] == b'y', after.as_bytes()[index] == b'y');
                assert_eq!(order.guarantees(evidence, SAME), same, "{order:?} {evidence:?}");
                assert_eq!(order.guarantees(evidence, AFTER), after, "{order:?} {evidence:?}");
                assert_eq!(order.guarantees(evidence, BOTH), same || after, "{order:?} {evidence:?}");
                assert!(!order.guarantees(evidence, NEITHER), "{order:?} {evidence:?}");
            }
        }
    }

    #[test]
    fn an_order_that_is_less_promises_nothing_more() {
        for pair in ORDERS.windows(2) {
            for evidence in EVIDENCE {
                for following in [SAME, AFTER, BOTH] {
                    assert!(
                        pair[0].guarantees(evidence, following) || !pair[1].guarantees(evidence, following)
                    );
                }
            }
        }
    }

    #[test]
    fn a_store_is_as_weak_as_the_weakest_of_device_queue_pair_and_region() {
        for (in_order, out_of_order, relaxed, order) in [
            (true, false, false, InOrder),
            (false, false, false, AsSpecified),
            (true, true, false, OutOfOrder),
            (false, true, false, OutOfOrder),
            (true, false, true, Relaxed),
            (true, true, true, Relaxed),
        ] {
            assert_eq!(StoreOrder::of(in_order, out_of_order, relaxed), order);
        }
        assert_eq!(ORDERS.map(StoreOrder::outlives_acknowledgement), [false, false, false, true]);
        assert_eq!(ORDERS.map(StoreOrder::lets_writes_pass), [false, false, true, true]);
    }
}
