//! A group of requests that are posted together.

/// Requests to post together.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Post {
    pub(crate) qp: usize,
    /// Number of the first message.
    pub(crate) first: u64,
    pub(crate) count: u64,
    pub(crate) buffers: BufferSelection,
    /// Interval of messages that carry their number as immediate data; 0 for none.
    pub(crate) imm_every: u64,
    /// Number of requests that the last one's completion accounts for; `None` without a completion.
    pub(crate) retires: Option<u32>,
}

impl Post {
    pub(super) fn wr_id(&self) -> u64 {
        (self.qp as u64) << 32 | u64::from(self.retires.unwrap_or(0))
    }

    /// Returns queue pair and number of requests that a completion accounts for.
    pub(crate) fn of_completion(wr_id: u64) -> (usize, u32) {
        ((wr_id >> 32) as usize, wr_id as u32)
    }
}

/// Buffers that messages use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BufferSelection {
    /// All buffers in turn, by message number.
    All,
    /// The queue pair's own buffers, by the number of requests that it posted.
    OfQueuePair,
}
