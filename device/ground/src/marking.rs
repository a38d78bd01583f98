//! When queues tell of congestion.

/// When a queue marks the packets that join it, by the bytes in front of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EcnMarking {
    /// Always when there are more than so many bytes.
    Above(u64),
    /// As switches do for DCQCN (random early detection by the present length): no packet up to `min_bytes`,
    /// all above `max_bytes`, and between the two with a probability that grows from 0 to `most_ppm`.
    Ramp {
        /// Up to here no packet is marked.
        min_bytes: u64,
        /// Above this each packet is marked.
        max_bytes: u64,
        /// Probability at `max_bytes`, in parts per million.
        most_ppm: u32,
    },
}
