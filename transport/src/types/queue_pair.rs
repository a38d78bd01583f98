//! Types, states and sizes of queue pairs.

use crate::wire::Service;

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
    /// Scalable reliable datagrams of EFA: its packets are datagrams of UD, with a header of their own.
    /// Programs create it with a vendor call.
    Srd = 11,
    /// An initiator of DC (dynamically connected), of mlx5: each request names its target. Its packets are
    /// datagrams of UD, with a header of their own. Programs create it with a vendor call.
    Dci = 12,
    /// A target of DC, which executes the requests of initiators. Programs create it with a vendor call.
    Dct = 13,
}

/// A service whose queue pairs only vendor calls create, with the parameters of its creation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VendorService {
    /// SRD.
    Srd {
        /// True if WRITEs with immediate data take no receive request.
        takes_unsolicited: bool,
    },
    /// An initiator of DC.
    DcInitiator {
        /// Streams of the initiator; `None` if its requests have one order, and the first error ends it.
        streams: Option<DcStreams>,
    },
    /// A target of DC.
    DcTarget {
        /// Access key that requests have to name.
        access_key: u64,
    },
}

/// The streams of an initiator of DC: each has an order of its own, and fails alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DcStreams {
    /// Exponent of the number of streams.
    pub log_concurrent: u8,
    /// Exponent of the number of failed streams at which the initiator fails.
    pub log_errored: u8,
}

impl DcStreams {
    /// Largest value of both exponents.
    pub const MAX_LOG: u8 = 6;

    /// Returns the number of streams.
    pub const fn concurrent(self) -> u16 {
        1 << if self.log_concurrent < DcStreams::MAX_LOG { self.log_concurrent } else { DcStreams::MAX_LOG }
    }

    /// Returns the number of failed streams at which the initiator fails.
    pub const fn errored(self) -> u16 {
        1 << if self.log_errored < DcStreams::MAX_LOG { self.log_errored } else { DcStreams::MAX_LOG }
    }
}

impl VendorService {
    /// Returns the service of a type with the simplest parameters; `None` if the type has none.
    pub const fn plain(qp_type: QpType) -> Option<VendorService> {
        Some(match qp_type {
            QpType::Srd => VendorService::Srd { takes_unsolicited: false },
            QpType::Dci => VendorService::DcInitiator { streams: None },
            QpType::Dct => VendorService::DcTarget { access_key: 0 },
            _ => return None,
        })
    }

    /// Returns the type of the queue pair.
    pub const fn qp_type(self) -> QpType {
        match self {
            VendorService::Srd { .. } => QpType::Srd,
            VendorService::DcInitiator { .. } => QpType::Dci,
            VendorService::DcTarget { .. } => QpType::Dct,
        }
    }
}

/// Properties of a type of queue pairs.
#[derive(Debug, Clone, Copy)]
pub struct QpTypeRow {
    /// Type of the queue pairs.
    pub qp_type: QpType,
    /// Name used in messages.
    pub name: &'static str,
    /// Service of the packets; [`Service::Reserved`] if they are not RoCE packets.
    pub service: Service,
    /// True if it has a send queue.
    pub has_send_queue: bool,
    /// True if it executes requests of peers.
    pub is_responder: bool,
    /// True if receives come from its own queue, or from the SRQ that it was made with. Otherwise they come
    /// from the SRQ that a request names, or there are none.
    pub has_receives: bool,
    /// True if it belongs to an XRC domain.
    pub has_xrc_domain: bool,
    /// True if programs create it.
    pub is_made_by_programs: bool,
}

const fn row(qp_type: QpType, name: &'static str, service: Service, is: [bool; 5]) -> QpTypeRow {
    let [has_send_queue, is_responder, has_receives, has_xrc_domain, is_made_by_programs] = is;
    QpTypeRow {
        qp_type,
        name,
        service,
        has_send_queue,
        is_responder,
        has_receives,
        has_xrc_domain,
        is_made_by_programs,
    }
}

/// The table of all types. The columns: send queue, responder, receives of its own, XRC domain, made by
/// programs.
pub const QP_TYPES: [QpTypeRow; 11] = [
    row(QpType::Gsi, "GSI", Service::Ud, [true, true, true, false, false]),
    row(QpType::Rc, "RC", Service::Rc, [true, true, true, false, true]),
    row(QpType::Uc, "UC", Service::Uc, [true, true, true, false, true]),
    row(QpType::Ud, "UD", Service::Ud, [true, true, true, false, true]),
    row(QpType::XrcDuplex, "XRC", Service::Xrc, [true, true, false, true, true]),
    row(QpType::RawPacket, "RAW_PACKET", Service::Reserved, [true, true, true, false, true]),
    row(QpType::XrcInitiator, "XRC_SEND", Service::Xrc, [true, false, false, false, true]),
    row(QpType::XrcTarget, "XRC_RECV", Service::Xrc, [false, true, false, true, true]),
    row(QpType::Srd, "SRD", Service::Ud, [true, true, true, false, false]),
    row(QpType::Dci, "DCI", Service::Ud, [true, false, false, false, false]),
    row(QpType::Dct, "DCT", Service::Ud, [false, true, true, false, false]),
];

/// Evaluates a question for each row, as bits by number, so that an answer costs a shift and no load.
#[expect(clippy::indexing_slicing, reason = "evaluated when this is compiled")]
pub(super) const fn bits(property: QpTypeProperty) -> u16 {
    let (mut bits, mut index) = (0, 0);
    while index < QP_TYPES.len() {
        let row = &QP_TYPES[index];
        let is = match property {
            QpTypeProperty::Reliable => row.service.is_reliable(),
            QpTypeProperty::Connected => row.service.is_connected(),
            QpTypeProperty::Datagram => row.service.is_datagram(),
            QpTypeProperty::SentOnce => row.service.is_sent_once(),
            QpTypeProperty::Roce => row.service.has_messages(),
            QpTypeProperty::NamesSrq => row.service.names_srq(),
            QpTypeProperty::SendQueue => row.has_send_queue,
            QpTypeProperty::Responder => row.is_responder,
            QpTypeProperty::Receives => row.has_receives,
            QpTypeProperty::Domain => row.has_xrc_domain,
            QpTypeProperty::Programs => row.is_made_by_programs,
        };
        bits |= (is as u16) << row.qp_type as u8;
        index += 1;
    }
    bits
}

/// Questions about the properties of a type.
#[derive(Debug, Clone, Copy)]
pub(super) enum QpTypeProperty {
    Reliable,
    Connected,
    Datagram,
    SentOnce,
    Roce,
    NamesSrq,
    SendQueue,
    Responder,
    Receives,
    Domain,
    Programs,
}

macro_rules! answers {
    ($($(#[$doc:meta])* $name:ident: $property:ident),+ $(,)?) => {
        $($(#[$doc])*
        #[inline]
        pub const fn $name(self) -> bool {
            const BITS: u16 = bits(QpTypeProperty::$property);
            BITS >> self as u8 & 1 != 0
        })+
    };
}

impl QpType {
    answers! {
        /// Reports whether the service acknowledges: RC and XRC of all kinds.
        is_reliable: Reliable,
        /// Reports whether the queue pair has one peer: everything but datagrams and raw packets.
        is_connected: Connected,
        /// Reports whether each request names its peer: UD and GSI.
        is_datagram: Datagram,
        /// Reports whether packets are sent once: UC, UD and GSI.
        is_sent_once: SentOnce,
        /// Reports whether it sends and receives RoCE packets.
        has_packets: Roce,
        /// Reports whether requests name the SRQ that they are for: XRC.
        is_xrc: NamesSrq,
        /// Reports whether it has a send queue: all but targets of XRC and DC.
        has_send_queue: SendQueue,
        /// Reports whether it executes requests of peers: all but initiators of XRC and DC.
        is_responder: Responder,
        /// Reports whether receives come from its own queue, or from the SRQ that it was made with: all but
        /// XRC, and initiators of DC.
        has_receives: Receives,
        /// Reports whether it belongs to an XRC domain: the receiving kinds of XRC.
        has_xrc_domain: Domain,
        /// Reports whether programs create it with verbs: all but GSI, SRD and DC.
        is_made_by_programs: Programs,
    }

    /// Reports whether its messages are Ethernet frames.
    #[inline]
    pub const fn is_raw(self) -> bool {
        !self.has_packets()
    }

    /// Reports whether its messages are numbered and answered in the datagrams themselves, so that each
    /// arrives once.
    #[inline]
    pub const fn is_srd(self) -> bool {
        matches!(self, QpType::Srd)
    }

    /// Reports whether it has its own state machine, which numbers its messages and answers in datagrams: SRD
    /// and DC.
    #[inline]
    pub const fn is_numbered(self) -> bool {
        matches!(self, QpType::Srd | QpType::Dci | QpType::Dct)
    }

    /// Reports whether each of its requests names a target of DC.
    #[inline]
    pub const fn is_dc_initiator(self) -> bool {
        matches!(self, QpType::Dci)
    }

    /// Reports whether it is an XRC queue pair with both halves.
    #[inline]
    pub const fn is_both_halves(self) -> bool {
        self.has_xrc_domain() && self.has_send_queue()
    }

    /// Reports whether it is an XRC queue pair that only executes requests.
    #[inline]
    pub const fn is_target(self) -> bool {
        self.has_xrc_domain() && !self.has_send_queue()
    }

    /// Reports whether it may join multicast groups: datagrams of programs.
    #[inline]
    pub const fn joins_groups(self) -> bool {
        self.is_datagram() && self.is_made_by_programs()
    }

    /// Returns the type with the number of verbs.h; `None` if there is none, or if programs do not create it.
    pub fn of_verbs(number: u32) -> Option<QpType> {
        let has = |row: &&QpTypeRow| row.qp_type as u32 == number && row.is_made_by_programs;
        QP_TYPES.iter().find(has).map(|row| row.qp_type)
    }

    /// Returns the service of its packets.
    #[inline]
    #[expect(clippy::indexing_slicing, reason = "an entry for each number, as the type of the array says")]
    pub const fn service(self) -> Service {
        const BY_NUMBER: [Service; QpType::Dct as usize + 1] = {
            let (mut services, mut index) = ([Service::Reserved; QpType::Dct as usize + 1], 0);
            while index < QP_TYPES.len() {
                services[QP_TYPES[index].qp_type as usize] = QP_TYPES[index].service;
                index += 1;
            }
            services
        };
        BY_NUMBER[self as usize]
    }

    /// Returns the properties of the type.
    #[expect(clippy::indexing_slicing, reason = "evaluated when this is compiled, or a row of the table")]
    pub const fn row(self) -> &'static QpTypeRow {
        let mut index = 0;
        while index + 1 < QP_TYPES.len() && QP_TYPES[index].qp_type as u8 != self as u8 {
            index += 1;
        }
        &QP_TYPES[index]
    }

    /// Returns the name used in messages: "RC", "UC", "UD", "GSI", "XRC", "XRC_SEND", "XRC_RECV",
    /// "RAW_PACKET", "SRD", "DCI", "DCT".
    pub const fn name(self) -> &'static str {
        self.row().name
    }
}

/// State of a queue pair (`IBV_QPS_*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(u8)]
pub enum QpState {
    /// No request and no packet is accepted.
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
    /// Send queue error (UC and UD): receives continue.
    Sqe = 5,
    /// Error: everything is flushed.
    Err = 6,
}

impl QpState {
    /// All states in numeric order.
    pub const ALL: [QpState; 7] =
        [QpState::Reset, QpState::Init, QpState::Rtr, QpState::Rts, QpState::Sqd, QpState::Sqe, QpState::Err];

    /// Returns the state with this verbs number (0…6).
    pub fn from_verbs(number: u32) -> Option<QpState> {
        QpState::ALL.get(number as usize).copied()
    }

    /// Returns the name used in messages: "RESET", "INIT", …
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_has_one_row_and_its_number() {
        for row in QP_TYPES {
            assert_eq!((row.qp_type.name(), row.qp_type.service()), (row.name, row.service));
            let made = row.is_made_by_programs.then_some(row.qp_type);
            assert_eq!(QpType::of_verbs(row.qp_type as u32), made, "{}", row.name);
        }
        assert_eq!([QpType::of_verbs(0), QpType::of_verbs(6), QpType::of_verbs(0xff)], [None; 3]);
    }

    #[test]
    fn the_questions_are_answered_by_the_rows() {
        let those = |is: fn(QpType) -> bool| QP_TYPES.map(|row| is(row.qp_type).then_some(row.name));
        let names = |is| those(is).into_iter().flatten().collect::<alloc::vec::Vec<_>>();
        assert_eq!(names(QpType::is_reliable), ["RC", "XRC", "XRC_SEND", "XRC_RECV"]);
        assert_eq!(names(QpType::is_sent_once), ["GSI", "UC", "UD", "SRD", "DCI", "DCT"]);
        assert_eq!(names(QpType::is_raw), ["RAW_PACKET"]);
        assert_eq!(names(QpType::is_both_halves), ["XRC"]);
        assert_eq!(names(QpType::is_target), ["XRC_RECV"]);
        assert_eq!(names(QpType::joins_groups), ["UD"]);
        assert_eq!(names(|one| !one.is_responder()), ["XRC_SEND", "DCI"]);
        assert_eq!(names(|one| !one.has_send_queue()), ["XRC_RECV", "DCT"]);
        assert_eq!(names(QpType::is_numbered), ["SRD", "DCI", "DCT"]);
    }
}
