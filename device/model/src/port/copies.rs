//! The ways in which long batches are copied into a ring, and what is known about them.

/// The way in which long messages are copied into rings of shared memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CopyMode {
    /// The faster one, which the first messages above 64 KiB to each process find out.
    #[default]
    Auto,
    /// By ordinary stores, through the cache.
    Cached,
    /// By non-temporal stores, past the cache.
    Streaming,
}

impl CopyMode {
    /// Parses `auto`, `cached` or `streaming`.
    ///
    /// # Errors
    /// The value is none of them.
    pub fn parse(value: &str) -> Result<CopyMode, &'static str> {
        [CopyMode::Auto, CopyMode::Cached, CopyMode::Streaming]
            .into_iter()
            .find(|mode| mode.name() == value)
            .ok_or("it is auto, cached or streaming")
    }

    /// Returns the value of the setting.
    pub const fn name(self) -> &'static str {
        match self {
            CopyMode::Auto => "auto",
            CopyMode::Cached => "cached",
            CopyMode::Streaming => "streaming",
        }
    }
}

/// The way in which a producer writes long batches into a ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CopyWay {
    /// Ordinary stores: the bytes stay in the cache of the producer's core, from which the consumer gets
    /// them.
    #[default]
    Cached,
    /// Non-temporal stores: the bytes leave the producer's core at once, and the consumer gets them from
    /// memory.
    Streaming,
}

impl CopyWay {
    /// Returns the value of PUMICE_COPY that chooses the way.
    pub const fn name(self) -> &'static str {
        match self {
            CopyWay::Cached => CopyMode::Cached.name(),
            CopyWay::Streaming => CopyMode::Streaming.name(),
        }
    }

    /// Returns the other way.
    #[must_use]
    pub const fn other(self) -> CopyWay {
        match self {
            CopyWay::Cached => CopyWay::Streaming,
            CopyWay::Streaming => CopyWay::Cached,
        }
    }
}

/// The reason why a way is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyReason {
    /// The user has set it.
    Set,
    /// The processor has no other.
    OnlyWay,
    /// The process is in a world, where times measure no copies.
    World,
    /// The sender has sent nothing above 64 KiB yet.
    Untried,
    /// Both ways are being tried.
    Trying,
    /// The way was the faster one when both were tried.
    Measured,
}

impl CopyReason {
    /// Returns the reason in words.
    pub const fn why(self) -> &'static str {
        match self {
            CopyReason::Set => "PUMICE_COPY says so",
            CopyReason::OnlyWay => "this processor has no other",
            CopyReason::World => "worlds do not measure copies",
            CopyReason::Untried => "nothing above 64 KiB was sent yet",
            CopyReason::Trying => "both ways are being measured",
            CopyReason::Measured => "it was the faster one",
        }
    }
}

/// The facts about the copies of long batches to a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopyReport {
    /// The way of the next long batch.
    pub way: CopyWay,
    /// The reason for it.
    pub reason: CopyReason,
    /// Measured rate of ordinary stores, in bytes per second.
    pub cached_bytes_per_s: Option<u64>,
    /// Measured rate of non-temporal stores, in bytes per second.
    pub streaming_bytes_per_s: Option<u64>,
}
