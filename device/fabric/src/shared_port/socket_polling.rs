//! Division of a shared port's polls between its rings and its socket.

/// Number of batches that are taken from rings in a row before the socket is polled.
const RING_BATCHES: u32 = 32;
/// Time between two polls of the socket while rings exist and nothing comes by UDP, in nanoseconds: a poll is
/// a system call, and costs as much as ten batches in a ring.
const SOCKET_INTERVAL_NS: u64 = 16_000;
/// Time after a datagram during which each poll includes the socket, in nanoseconds.
const SOCKET_BUSY_NS: u64 = 200_000;
/// State that decides when the socket is polled beside the rings.
#[derive(Debug, Default)]
pub(super) struct SocketPolling {
    /// Number of batches from rings since the last poll of the socket.
    ring_batches: u32,
    /// Time at which a poll of the socket is due although rings exist.
    due_ns: u64,
    /// Time at which something came by UDP last.
    last_datagram_ns: u64,
    /// Time at which the processes at the other ends were last checked.
    pub(super) swept_ns: u64,
}

impl SocketPolling {
    /// Counts a batch from a ring. Returns true if the socket has to be polled, too.
    pub(super) fn count_ring_batch(&mut self) -> bool {
        self.ring_batches += 1;
        let is_due = self.ring_batches >= RING_BATCHES;
        if is_due {
            self.ring_batches = 0;
        }
        is_due
    }

    /// Reports whether the next batch from a ring leads to no poll of the socket.
    #[inline]
    pub(super) const fn leaves_next_to_ring(&self) -> bool {
        self.ring_batches + 1 < RING_BATCHES
    }

    /// Reports whether the socket is polled now that all rings are empty.
    pub(super) fn is_due(&self, now_ns: u64) -> bool {
        now_ns >= self.due_ns
    }

    /// Reports whether the socket has to be polled at any time.
    #[inline]
    pub(super) fn is_busy(&self) -> bool {
        self.due_ns == 0
    }

    /// Notes that the socket was polled; `found` says whether it had something.
    pub(super) fn note_socket_poll(&mut self, now_ns: u64, found: bool) {
        self.ring_batches = 0;
        if found {
            self.last_datagram_ns = now_ns;
        }
        let is_busy =
            self.last_datagram_ns != 0 && now_ns.saturating_sub(self.last_datagram_ns) < SOCKET_BUSY_NS;
        self.due_ns = if is_busy { 0 } else { now_ns.saturating_add(SOCKET_INTERVAL_NS) };
    }

    /// Notes that the socket is readable.
    pub(super) fn woken(&mut self) {
        self.due_ns = 0;
    }
}

/// Result of polling the rings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RingPoll {
    /// A batch came; the socket need not be polled.
    Batch,
    /// A batch came, and a poll of the socket is due.
    BatchAndSocket,
    /// All rings were empty.
    Nothing,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_socket_gets_a_look_after_many_batches_after_some_time_and_while_it_is_busy() {
        let mut socket_polling = SocketPolling::default();
        assert!(socket_polling.is_due(1_000_000), "at first");
        socket_polling.note_socket_poll(1_000_000, false);
        assert!(!socket_polling.is_due(1_000_000 + SOCKET_INTERVAL_NS - 1));
        assert!(socket_polling.is_due(1_000_000 + SOCKET_INTERVAL_NS));
        let looks = (0..2 * RING_BATCHES).filter(|_| socket_polling.count_ring_batch()).count();
        assert_eq!(looks, 2);
        socket_polling.note_socket_poll(2_000_000, true);
        socket_polling.note_socket_poll(2_000_001, false);
        assert!(socket_polling.is_due(2_000_001), "something came just now");
        socket_polling.note_socket_poll(2_000_000 + SOCKET_BUSY_NS, false);
        assert!(!socket_polling.is_due(2_000_000 + SOCKET_BUSY_NS));
        socket_polling.woken();
        assert!(socket_polling.is_due(0));
    }
}
