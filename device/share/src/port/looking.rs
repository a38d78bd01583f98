//! How a shared port divides its looks between rings and its socket.

/// Batches that are taken from rings in a row before the socket gets a look.
const RING_BATCHES: u32 = 32;
/// Time between two looks at the socket while rings are there and nothing comes by UDP: a look is a system
/// call, and costs as much as ten batches in a ring.
const SOCKET_INTERVAL_NS: u64 = 16_000;
/// How long after a datagram each look goes to the socket as well.
const SOCKET_BUSY_NS: u64 = 200_000;
/// When the socket is looked at beside the rings.
#[derive(Debug, Default)]
pub(super) struct Looking {
    /// Batches from rings since the last look at the socket.
    ring_batches: u32,
    /// When a look at the socket is due though there are rings.
    due_ns: u64,
    /// When something came by UDP last.
    came_ns: u64,
    /// When the processes at the other ends were looked at last.
    pub(super) swept_ns: u64,
}

impl Looking {
    /// A ring had a batch. True: the socket gets a look, too.
    pub(super) fn took_from_ring(&mut self) -> bool {
        self.ring_batches += 1;
        let is_due = self.ring_batches >= RING_BATCHES;
        if is_due {
            self.ring_batches = 0;
        }
        is_due
    }

    /// Whether the socket is looked at now that all rings are empty.
    pub(super) fn is_due(&self, now_ns: u64) -> bool {
        now_ns >= self.due_ns
    }

    /// Whether the socket wants a look whatever time it is.
    #[inline]
    pub(super) fn is_busy(&self) -> bool {
        self.due_ns == 0
    }

    /// The socket was looked at; whether there was something.
    pub(super) fn looked(&mut self, now_ns: u64, found: bool) {
        self.ring_batches = 0;
        if found {
            self.came_ns = now_ns;
        }
        let is_busy = self.came_ns != 0 && now_ns.saturating_sub(self.came_ns) < SOCKET_BUSY_NS;
        self.due_ns = if is_busy { 0 } else { now_ns.saturating_add(SOCKET_INTERVAL_NS) };
    }

    /// The socket is readable.
    pub(super) fn woken(&mut self) {
        self.due_ns = 0;
    }
}

/// What a look at the rings brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RingLook {
    /// A batch: enough for now.
    Batch,
    /// A batch, and the socket is due.
    BatchAndSocket,
    /// Nothing.
    Nothing,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_socket_gets_a_look_after_many_batches_after_some_time_and_while_it_is_busy() {
        let mut looking = Looking::default();
        assert!(looking.is_due(1_000_000), "at first");
        looking.looked(1_000_000, false);
        assert!(!looking.is_due(1_000_000 + SOCKET_INTERVAL_NS - 1));
        assert!(looking.is_due(1_000_000 + SOCKET_INTERVAL_NS));
        let looks = (0..2 * RING_BATCHES).filter(|_| looking.took_from_ring()).count();
        assert_eq!(looks, 2);
        looking.looked(2_000_000, true);
        looking.looked(2_000_001, false);
        assert!(looking.is_due(2_000_001), "something came just now");
        looking.looked(2_000_000 + SOCKET_BUSY_NS, false);
        assert!(!looking.is_due(2_000_000 + SOCKET_BUSY_NS));
        looking.woken();
        assert!(looking.is_due(0));
    }
}
