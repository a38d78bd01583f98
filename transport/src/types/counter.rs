//! What is counted.

/// Reasons for which a packet is dropped, duplicated work is answered again, or a QP retries:
/// one counter each. Which one an event counts, [`QpEvent::counter`](crate::event::QpEvent::counter) says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
#[allow(missing_docs)] // each is its own name; its meaning is in the table of the device
pub enum Counter {
    // Dropped before a QP saw it.
    RxTooShort,
    RxBadVersion,
    RxBadOpcode,
    RxBadPad,
    RxBadLength,
    RxBadIcrc,
    RxUnknownQpn,
    RxWrongService,
    RxWrongState,
    RxBadPkey,
    RxBadQkey,
    RxWrongAddress,
    RxWrongPort,
    RxUnknownGroup,
    RxTruncated,
    // Dropped by a QP.
    RxOutOfSequence,
    RxDuplicateRequest,
    RxStaleResponse,
    RxUnexpectedResponse,
    RxReservedSyndrome,
    RxNoReceive,
    RxMessageDropped,
    RxReplayMissed,
    // Answers.
    TxNakSequence,
    TxNakInvalid,
    TxNakAccess,
    TxNakOperation,
    TxRnrNak,
    RxNakSequence,
    RxNakFatal,
    RxRnrNak,
    RxImpliedNak,
    // Recovery.
    Timeout,
    EarlyRetransmit,
    StarvedPeer,
    RetransmittedPackets,
    // Congestion.
    RxCnp,
    TxCnp,
    RxCongestionMarked,
    // ICRC.
    RxIcrcRecovered,
    // Traffic.
    TxPackets,
    RxPackets,
    TxBytes,
    RxBytes,
    TxBatches,
    RxBatches,
    TxDropped,
    // The device's link.
    LinkQueued,
    LinkDropped,
    LinkMarked,
    LinkBusy,
}

impl Counter {
    /// Number of counters.
    pub const COUNT: usize = Counter::LinkBusy as usize + 1;
}
