//! Kinds, states and sizes of queue pairs.

/// Transport service of a queue pair (`IBV_QPT_*`; `Gsi` is QP1, which verbs programs never create).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum QpType {
    /// General services interface: QP1, a UD queue pair for management datagrams.
    Gsi = 1,
    /// Reliable connection.
    Rc = 2,
    /// Unreliable connection.
    Uc = 3,
    /// Unreliable datagram.
    Ud = 4,
    /// XRC of OFED 1.x (its `IBV_QPT_XRC`): requester, and responder for the SRQs of its XRC domain.
    XrcDuplex = 5,
    /// Raw packets: whole Ethernet frames, with no RoCE packet around them.
    RawPacket = 8,
    /// XRC initiator (`IBV_QPT_XRC_SEND`): requester only.
    XrcInitiator = 9,
    /// XRC target (`IBV_QPT_XRC_RECV`): responder only.
    XrcTarget = 10,
}

impl QpType {
    /// Reliable services acknowledge: RC and XRC of all kinds.
    pub const fn is_reliable(self) -> bool {
        matches!(self, QpType::Rc) || self.is_xrc()
    }

    /// XRC: requests name the SRQ that they are for.
    pub const fn is_xrc(self) -> bool {
        matches!(self, QpType::XrcDuplex | QpType::XrcInitiator | QpType::XrcTarget)
    }

    /// Connected services name their peer in the QP: everything but datagrams and raw packets.
    pub const fn is_connected(self) -> bool {
        !self.is_datagram() && !self.is_raw()
    }

    /// Its messages are Ethernet frames.
    pub const fn is_raw(self) -> bool {
        matches!(self, QpType::RawPacket)
    }

    /// UD and GSI.
    pub const fn is_datagram(self) -> bool {
        matches!(self, QpType::Ud | QpType::Gsi)
    }

    /// Name used in messages: "RC", "UC", "UD", "GSI", "XRC", "XRC_SEND", "XRC_RECV", "RAW_PACKET".
    pub const fn name(self) -> &'static str {
        match self {
            QpType::Gsi => "GSI",
            QpType::Rc => "RC",
            QpType::Uc => "UC",
            QpType::Ud => "UD",
            QpType::XrcDuplex => "XRC",
            QpType::RawPacket => "RAW_PACKET",
            QpType::XrcInitiator => "XRC_SEND",
            QpType::XrcTarget => "XRC_RECV",
        }
    }
}

/// State of a queue pair (`IBV_QPS_*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(u8)]
pub enum QpState {
    /// Nothing is accepted.
    #[default]
    Reset = 0,
    /// Receives may be posted.
    Init = 1,
    /// Ready to receive.
    Rtr = 2,
    /// Ready to send.
    Rts = 3,
    /// Send queue draining or drained.
    Sqd = 4,
    /// Send queue error (UC and UD): receives go on.
    Sqe = 5,
    /// Error: everything is flushed.
    Err = 6,
}

impl QpState {
    /// All states in numeric order.
    pub const ALL: [QpState; 7] =
        [QpState::Reset, QpState::Init, QpState::Rtr, QpState::Rts, QpState::Sqd, QpState::Sqe, QpState::Err];

    /// The state with this verbs number (0…6).
    pub fn from_verbs(number: u32) -> Option<QpState> {
        QpState::ALL.get(number as usize).copied()
    }

    /// Name used in messages: "RESET", "INIT", …
    pub const fn name(self) -> &'static str {
        match self {
            QpState::Reset => "RESET",
            QpState::Init => "INIT",
            QpState::Rtr => "RTR",
            QpState::Rts => "RTS",
            QpState::Sqd => "SQD",
            QpState::Sqe => "SQE",
            QpState::Err => "ERR",
        }
    }
}

/// Sizes of the queues of a queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QpCapacity {
    /// Send queue depth in work requests.
    pub max_send_wr: u32,
    /// Receive queue depth in work requests; 0 with an SRQ.
    pub max_recv_wr: u32,
    /// Scatter/gather elements of one send request.
    pub max_send_sge: u32,
    /// Scatter/gather elements of one receive request.
    pub max_recv_sge: u32,
    /// Bytes of inline data of one send request.
    pub max_inline_data: u32,
}
