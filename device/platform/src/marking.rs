//! The congestion marking of queues.

/// The rule by which a queue marks the packets that join it, by the bytes in front of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EcnMarking {
    /// Every packet is marked when there are more than this many bytes.
    Above(u64),
    /// Packets are marked as by switches for DCQCN (random early detection by the present length): no packet
    /// up to `min_bytes`, all above `max_bytes`, and between the two with a probability that grows from 0 to
    /// `most_ppm`.
    Ramp {
        /// Number of bytes up to which no packet is marked.
        min_bytes: u64,
        /// Number of bytes above which each packet is marked.
        max_bytes: u64,
        /// Probability at `max_bytes`, in parts per million.
        most_ppm: u32,
    },
}
