//! Asynchronous events.

/// Asynchronous events (`IBV_EVENT_*`) that a software device can raise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum AsyncEventType {
    /// CQ overrun.
    CqErr = 0,
    /// A completion could not be written.
    QpFatal = 1,
    /// Invalid request with no receive to blame.
    QpReqErr = 2,
    /// Access violation with no receive to blame.
    QpAccessErr = 3,
    /// First packet in RTR.
    CommEst = 4,
    /// Send queue drained after RTS → SQD.
    SqDrained = 5,
    /// A connection uses its alternate path now.
    PathMig = 6,
    /// The peer has moved to a path that is not this side's alternate one.
    PathMigErr = 7,
    /// Device lost.
    DeviceFatal = 8,
    /// Link up.
    PortActive = 9,
    /// Link down.
    PortErr = 10,
    /// LID changed.
    LidChange = 11,
    /// P_Key table changed.
    PkeyChange = 12,
    /// SRQ failed.
    SrqErr = 14,
    /// SRQ fell below its limit.
    SrqLimitReached = 15,
    /// No receive of the SRQ is in use by this QP any more.
    QpLastWqeReached = 16,
    /// GID table changed.
    GidChange = 18,
}
