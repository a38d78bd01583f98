//! The counters of the protocol.

/// Declares the counters in the order of their rows.
macro_rules! counters {
    ($($variant:ident,)*) => {
        /// Counters of dropped packets, duplicate work that is answered again, retries of a queue pair, and
        /// traffic. [`QpEvent::counter`](crate::event::QpEvent::counter) says which of them an event
        /// increments.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u8)]
        #[allow(missing_docs)] // each is its own name; its meaning is in the table of the device
        pub enum Counter { $($variant),* }

        impl Counter {
            /// Number of counters.
            pub const COUNT: usize = [$(stringify!($variant)),*].len();
        }
    };
}

counters! {
    // Packets dropped before a queue pair saw them.
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
    // Packets dropped by a queue pair.
    RxOutOfSequence,
    RxDuplicateRequest,
    RxStaleResponse,
    RxUnexpectedResponse,
    RxReservedSyndrome,
    RxNoReceive,
    RxMessageDropped,
    RxReplayMissed,
    // NAKs, sent and received.
    TxNakSequence,
    TxNakInvalid,
    TxNakAccess,
    TxNakOperation,
    TxRnrNak,
    RxNakSequence,
    RxNakFatal,
    RxRnrNak,
    RxImpliedNak,
    // Retransmission.
    Timeout,
    EarlyRetransmit,
    StarvedPeer,
    RetransmittedPackets,
    // Congestion control.
    RxCnp,
    TxCnp,
    RxCongestionMarked,
    // Packets recovered from ICRC errors.
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
