//! Asynchronous events.

/// Declares the asynchronous events, a row each: the number and the name of `IBV_EVENT_*`, and the variant.
macro_rules! events {
    ($($(#[$doc:meta])* $variant:ident = $number:literal, $name:literal;)*) => {
        /// Asynchronous events (`IBV_EVENT_*`) that a software device can raise.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum AsyncEventType { $($(#[$doc])* $variant = $number),* }

        impl AsyncEventType {
            /// All events, in the order of their numbers.
            pub const ALL: &[AsyncEventType] = &[$(AsyncEventType::$variant),*];

            /// Returns the name of the event in verbs.
            pub const fn name(self) -> &'static str {
                match self { $(AsyncEventType::$variant => concat!("IBV_EVENT_", $name)),* }
            }
        }
    };
}

events! {
    /// A completion queue overran.
    CqErr = 0, "CQ_ERR";
    /// A completion could not be written.
    QpFatal = 1, "QP_FATAL";
    /// A request was invalid, and no receive request can be blamed.
    QpReqErr = 2, "QP_REQ_ERR";
    /// An access was not allowed, and no receive request can be blamed.
    QpAccessErr = 3, "QP_ACCESS_ERR";
    /// The first packet arrived in RTR.
    CommEst = 4, "COMM_EST";
    /// The send queue is drained after RTS → SQD.
    SqDrained = 5, "SQ_DRAINED";
    /// A connection now uses its alternate path.
    PathMig = 6, "PATH_MIG";
    /// The peer has moved to a path that is not this side's alternate one.
    PathMigErr = 7, "PATH_MIG_ERR";
    /// The device is lost.
    DeviceFatal = 8, "DEVICE_FATAL";
    /// The link went up.
    PortActive = 9, "PORT_ACTIVE";
    /// The link went down.
    PortErr = 10, "PORT_ERR";
    /// The LID changed.
    LidChange = 11, "LID_CHANGE";
    /// The P_Key table changed.
    PkeyChange = 12, "PKEY_CHANGE";
    /// A shared receive queue failed.
    SrqErr = 14, "SRQ_ERR";
    /// The number of requests in a shared receive queue fell below its limit.
    SrqLimitReached = 15, "SRQ_LIMIT_REACHED";
    /// The queue pair takes no more receive requests from its SRQ.
    QpLastWqeReached = 16, "QP_LAST_WQE_REACHED";
    /// The GID table changed.
    GidChange = 18, "GID_CHANGE";
}
