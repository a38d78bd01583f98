//! A queue of posted receive requests.

use pumice_platform::error::ResourceError;
use pumice_platform::table;
use pumice_transport::host::RecvWqe;
use pumice_transport::types::{RecvRequest, Sge};

/// A ring of receive requests: the receive queue of one queue pair, or the basis of a shared receive queue.
/// Buffer lists are in one flat vector that grows with the number of posted requests. Posting allocates
/// nothing after [`RecvQueue::make_room`].
#[derive(Debug)]
pub struct RecvQueue {
    requests: Vec<PostedReceive>,
    /// Buffers: `max_sge` elements for each slot of the ring.
    sges: Vec<Sge>,
    depth: u32,
    max_sge: u32,
    /// Slot of the oldest request.
    oldest: u32,
    len: u32,
    /// Number of requests that were posted when the application posted last.
    stock: u32,
}

/// Number of requests from which on a queue is not short of them: two batches of the shortest messages.
const PLENTY: u32 = 256;

#[derive(Debug, Clone, Copy, Default)]
struct PostedReceive {
    wr_id: u64,
    sge_count: u32,
}

impl RecvQueue {
    /// Creates an empty queue for `depth` requests of at most `max_sge` elements; both may be 0.
    pub const fn new(depth: u32, max_sge: u32) -> RecvQueue {
        RecvQueue { requests: Vec::new(), sges: Vec::new(), depth, max_sge, oldest: 0, len: 0, stock: 0 }
    }

    /// Allocates memory for as many requests as the depth.
    ///
    /// # Errors
    /// Fails with `NoMemory` if the memory cannot be allocated.
    pub fn make_room(&mut self) -> Result<(), ResourceError> {
        let depth = self.depth as usize;
        table::make_room(&mut self.requests, depth, "receive requests")?;
        let elements = depth.saturating_mul(self.max_sge as usize);
        table::make_room(&mut self.sges, elements, "scatter/gather elements of receive requests")
    }

    /// Returns the number of requests posted and not taken.
    pub const fn len(&self) -> u32 {
        self.len
    }

    /// Reports whether nothing is posted.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Reports whether the queue takes no further request.
    const fn is_full(&self) -> bool {
        self.len >= self.depth
    }

    /// Reports whether little is left of the requests that the application last provided.
    pub const fn is_short(&self) -> bool {
        self.len < self.stock / 2 + self.stock % 2 && self.len < PLENTY
    }

    /// Returns the number of requests that fit.
    pub const fn depth(&self) -> u32 {
        self.depth
    }

    /// Returns the largest number of elements of one request.
    pub const fn max_sge(&self) -> u32 {
        self.max_sge
    }

    /// Posts a request.
    ///
    /// # Errors
    /// Fails with `Invalid` for too many elements, and with `NoMemory` if the queue is full.
    pub fn post(&mut self, request: &RecvRequest<'_>) -> Result<(), ResourceError> {
        //= linux:rxe_verbs.c#post_one_recv
        //| A receive request has at most as many buffers as its queue was made for.
        if request.sges.len() > self.max_sge as usize {
            return Err(ResourceError::invalid(format!(
                "the receive request has {} scatter/gather elements; the queue was made for {}",
                request.sges.len(),
                self.max_sge
            )));
        }
        //= linux:rxe_verbs.c#post_one_recv
        //| A full receive queue refuses the request.
        if self.is_full() {
            return Err(ResourceError::no_memory(format!(
                "the receive queue holds all of its {} requests",
                self.depth
            )));
        }
        if self.len == 0 {
            // Start again at the front: a shallow use of a deep queue stays in the cache.
            self.oldest = 0;
        }
        let slot = self.slot(self.len);
        let first = slot * self.max_sge as usize;
        if slot >= self.requests.len() {
            self.requests.resize(slot + 1, PostedReceive::default());
            self.sges.resize(first + self.max_sge as usize, Sge::default());
        }
        if let Some(entry) = self.requests.get_mut(slot) {
            *entry = PostedReceive { wr_id: request.wr_id, sge_count: request.sges.len() as u32 };
        }
        if let Some(sges) = self.sges.get_mut(first..first + request.sges.len()) {
            sges.copy_from_slice(request.sges);
        }
        self.len += 1;
        self.stock = self.len;
        Ok(())
    }

    /// Takes the oldest request: `wr_id`, `sges` and `length_bytes` of `into` become its own. Returns false
    /// if nothing is posted.
    pub fn take(&mut self, into: &mut RecvWqe) -> bool {
        if self.len == 0 {
            return false;
        }
        let slot = self.slot(0);
        let request = self.requests.get(slot).copied().unwrap_or_default();
        let first = slot * self.max_sge as usize;
        let sges = self.sges.get(first..first + request.sge_count as usize).unwrap_or_default();
        into.wr_id = request.wr_id;
        into.sges.clear();
        into.sges.extend_from_slice(sges);
        into.length_bytes = sges.iter().map(|sge| u64::from(sge.length)).sum();
        self.drop_oldest();
        true
    }

    /// Exchanges the request that is this far behind the oldest one with it.
    pub fn bring_forward(&mut self, index: u32) {
        if index >= self.len {
            return;
        }
        let (oldest, other) = (self.slot(0), self.slot(index));
        self.requests.swap(oldest, other);
        let most = self.max_sge as usize;
        for element in 0..most {
            self.sges.swap(oldest * most + element, other * most + element);
        }
    }

    /// Takes only the identity of the oldest request, which is flushed.
    pub fn take_id(&mut self) -> Option<u64> {
        if self.len == 0 {
            return None;
        }
        let wr_id = self.requests.get(self.slot(0)).map_or(0, |request| request.wr_id);
        self.drop_oldest();
        Some(wr_id)
    }

    /// Removes all requests.
    pub const fn clear(&mut self) {
        self.oldest = 0;
        self.len = 0;
        self.stock = 0;
    }

    /// Changes the depth; what is posted stays, in order.
    ///
    /// # Errors
    /// Fails with `Invalid` if more requests than that are posted, and with `NoMemory`.
    pub fn resize(&mut self, depth: u32) -> Result<(), ResourceError> {
        if depth < self.len {
            return Err(ResourceError::invalid(format!(
                "depth {depth} of the receive queue is less than the {} requests posted to it",
                self.len
            )));
        }
        let mut moved = RecvQueue::new(depth, self.max_sge);
        moved.make_room()?;
        let mut wqe = RecvWqe::default();
        while self.take(&mut wqe) {
            moved.post(&RecvRequest { wr_id: wqe.wr_id, sges: &wqe.sges })?;
        }
        *self = moved;
        Ok(())
    }

    /// Returns the slot in the ring of the request `later` requests after the oldest; `later` is at most
    /// `depth`, and `depth` is not 0 where this is called.
    const fn slot(&self, later: u32) -> usize {
        let slot = self.oldest as u64 + later as u64;
        let depth = self.depth as u64;
        (if slot >= depth { slot - depth } else { slot }) as usize
    }

    const fn drop_oldest(&mut self) {
        self.oldest = self.slot(1) as u32;
        self.len -= 1;
    }
}

#[cfg(any(test, kani))]
#[path = "recv_queue_proofs.rs"]
mod proofs;

#[cfg(test)]
mod tests {
    use super::*;

    fn sge(number: u32) -> Sge {
        Sge { address: u64::from(number) << 12, length: number, lkey: number << 8 }
    }

    fn post(queue: &mut RecvQueue, wr_id: u64, sges: &[Sge]) -> Result<(), ResourceError> {
        queue.post(&RecvRequest { wr_id, sges })
    }

    #[test]
    fn less_than_half_of_what_was_there_is_short_unless_it_is_plenty() {
        let mut queue = RecvQueue::new(2 * PLENTY + 4, 1);
        let mut wqe = RecvWqe::default();
        assert!(!queue.is_short(), "nothing was asked for");
        post(&mut queue, 1, &[]).unwrap();
        assert!(!queue.is_short() && queue.take(&mut wqe) && queue.is_short());
        for wr_id in 0..u64::from(queue.depth()) {
            post(&mut queue, wr_id, &[]).unwrap();
        }
        while queue.len() > PLENTY {
            assert!(!queue.is_short() && queue.take(&mut wqe));
        }
        assert!(queue.take(&mut wqe) && queue.is_short());
        post(&mut queue, 1, &[]).unwrap();
        assert!(!queue.is_short(), "a receiver is at it");
    }

    #[test]
    fn a_request_that_is_brought_forward_is_taken_first() {
        let mut queue = RecvQueue::new(3, 2);
        let sges = [Sge { address: 1, length: 10, lkey: 7 }, Sge { address: 2, length: 20, lkey: 7 }];
        for wr_id in 0..3 {
            queue.post(&RecvRequest { wr_id, sges: &sges[..wr_id as usize] }).unwrap();
        }
        queue.bring_forward(2);
        queue.bring_forward(3);
        let mut taken = RecvWqe::default();
        let mut all = Vec::new();
        while queue.take(&mut taken) {
            all.push((taken.wr_id, taken.length_bytes));
        }
        assert_eq!(all, [(2, 30), (1, 10), (0, 0)]);
    }

    #[test]
    fn requests_are_taken_in_order_across_the_end_of_the_ring() {
        let mut queue = RecvQueue::new(3, 2);
        let mut wqe = RecvWqe::default();
        let mut next = 0_u64;
        let mut expected = 0_u64;
        for round in 0..20_u32 {
            for _ in 0..(1 + round % 3) {
                let sges = [sge(next as u32), sge(next as u32 + 1)];
                match post(&mut queue, next, &sges[..(next % 3) as usize]) {
                    Ok(()) => next += 1,
                    Err(error) => assert_eq!((error.errno(), queue.len()), (libc::ENOMEM, 3)),
                }
            }
            for _ in 0..=(round % 2) {
                if queue.take(&mut wqe) {
                    let sges = [sge(expected as u32), sge(expected as u32 + 1)];
                    let sges = &sges[..(expected % 3) as usize];
                    assert_eq!((wqe.wr_id, &wqe.sges[..]), (expected, sges));
                    assert_eq!(wqe.length_bytes, sges.iter().map(|sge| u64::from(sge.length)).sum::<u64>());
                    expected += 1;
                }
            }
        }
        assert_eq!(next - expected, u64::from(queue.len()));
        assert!(expected > 15);
    }

    #[test]
    fn posting_checks_elements_and_room() {
        let mut queue = RecvQueue::new(1, 1);
        assert_eq!(post(&mut queue, 1, &[sge(1), sge(2)]).unwrap_err().errno(), libc::EINVAL);
        post(&mut queue, 1, &[sge(1)]).unwrap();
        assert_eq!(post(&mut queue, 2, &[]).unwrap_err().errno(), libc::ENOMEM);
        assert_eq!(post(&mut RecvQueue::new(0, 0), 2, &[]).unwrap_err().errno(), libc::ENOMEM);
        assert_eq!(queue.take_id(), Some(1));
        assert_eq!(queue.take_id(), None);
        assert!(!queue.take(&mut RecvWqe::default()));
    }

    #[test]
    fn steady_use_allocates_no_more() {
        let mut queue = RecvQueue::new(1000, 4);
        let mut wqe = RecvWqe::default();
        for wr_id in 0..5000 {
            post(&mut queue, wr_id, &[sge(1); 4]).unwrap();
            assert!(queue.take(&mut wqe));
        }
        assert_eq!((queue.requests.len(), queue.sges.len()), (1, 4));
    }

    #[test]
    fn resizing_keeps_what_is_posted() {
        let mut queue = RecvQueue::new(4, 1);
        for wr_id in 0..4 {
            post(&mut queue, wr_id, &[sge(wr_id as u32)]).unwrap();
        }
        assert_eq!(queue.take_id(), Some(0));
        post(&mut queue, 4, &[sge(4)]).unwrap();
        assert_eq!(queue.resize(3).unwrap_err().errno(), libc::EINVAL);
        queue.resize(8).unwrap();
        for wr_id in 5..9 {
            post(&mut queue, wr_id, &[sge(wr_id as u32)]).unwrap();
        }
        assert_eq!(post(&mut queue, 9, &[]).unwrap_err().errno(), libc::ENOMEM);
        let mut wqe = RecvWqe::default();
        for expected in 1..9 {
            assert!(queue.take(&mut wqe));
            assert_eq!((wqe.wr_id, wqe.sges[0]), (expected, sge(expected as u32)));
        }
    }
}
