//! Proofs about the ring of receive requests.

use pumice_transport::host::RecvWqe;
use pumice_transport::proofs::check;
use pumice_transport::types::{RecvRequest, Sge};

use super::RecvQueue;

const STEPS: usize = 5;

/// Checks that every index is one of the ring's, and that different requests have different ones.
#[cfg_attr(kani, kani::proof)]
#[cfg_attr(kani, kani::unwind(4))]
#[cfg_attr(not(kani), test)]
fn the_indices_of_requests_differ_and_are_in_the_ring() {
    check(|from| {
        let depth = from.between(1, u32::MAX.into());
        let mut queue = RecvQueue::new(depth as u32, 1);
        queue.oldest = from.up_to(depth - 1) as u32;
        let [one, other] = [from.up_to(depth - 1), from.up_to(depth - 1)].map(|later| later as u32);
        assert!((queue.slot(one) as u64) < depth);
        assert_eq!(queue.slot(one) == queue.slot(other), one == other);
        assert_eq!(queue.slot(depth as u32), queue.slot(0));
    });
}

/// Checks that requests are taken in the order in which they were posted, each with its buffers, and that
/// there are no more of them than fit.
#[cfg_attr(kani, kani::proof)]
#[cfg_attr(kani, kani::unwind(8))]
#[cfg_attr(not(kani), test)]
fn requests_are_taken_in_the_order_of_posting() {
    check(|from| {
        let depth = from.between(1, 3) as u32;
        let mut queue = RecvQueue::new(depth, 1);
        let mut wqe = RecvWqe::default();
        let (mut posted, mut taken) = (0_u64, 0_u64);
        for _ in 0..STEPS {
            assert_eq!(queue.is_full(), posted - taken == u64::from(depth));
            if from.bool() && !queue.is_full() {
                let sge = Sge { address: posted, length: posted as u32, lkey: 7 };
                let sges = if posted % 2 == 0 { &[][..] } else { &[sge][..] };
                assert!(queue.post(&RecvRequest { wr_id: posted, sges }).is_ok());
                posted += 1;
            } else if from.bool() {
                assert_eq!(queue.take_id(), (taken < posted).then_some(taken));
                taken += u64::from(taken < posted);
            } else {
                assert_eq!(queue.take(&mut wqe), taken < posted);
                if taken < posted {
                    let length = if taken % 2 == 0 { 0 } else { taken };
                    assert_eq!((wqe.wr_id, wqe.length_bytes), (taken, length));
                    assert_eq!(wqe.sges.len() as u64, taken % 2);
                    taken += 1;
                }
            }
            assert_eq!(u64::from(queue.len()), posted - taken);
        }
    });
}

/// Checks that a queue that is short has less than half of its stock, and that a queue that was just filled
/// is not short.
#[cfg_attr(kani, kani::proof)]
#[cfg_attr(not(kani), test)]
fn a_queue_is_short_below_half_of_its_stock() {
    check(|from| {
        let mut queue = RecvQueue::new(u32::MAX, 1);
        (queue.len, queue.stock) = (from.u32(), from.u32());
        assert!(!queue.is_short() || u64::from(queue.len) * 2 < u64::from(queue.stock) + 1);
        queue.stock = queue.len;
        assert!(!queue.is_short());
        queue.clear();
        assert!(queue.is_empty() && !queue.is_short());
    });
}
