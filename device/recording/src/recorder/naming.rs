//! Names that records have for the variants of enums elsewhere.

use pumice_transport::cm::{CmEvent, CmState};
use pumice_transport::event::{PacketSide, RetransmitReason, StateChangeActor};
use pumice_transport::mad::CmMessage;

/// Returns the name of a message of connection management.
pub(super) const fn cm_message(message: &CmMessage) -> &'static str {
    match message {
        CmMessage::Req(_) => "REQ",
        CmMessage::Mra(_) => "MRA",
        CmMessage::Rej(_) => "REJ",
        CmMessage::Rep(_) => "REP",
        CmMessage::Rtu(_) => "RTU",
        CmMessage::Dreq(_) => "DREQ",
        CmMessage::Drep(_) => "DREP",
        CmMessage::SidrReq(_) => "SIDR_REQ",
        CmMessage::SidrRep(_) => "SIDR_REP",
    }
}

/// Returns the name of an event of a connection.
pub(super) const fn cm_event(event: &CmEvent) -> &'static str {
    match event {
        CmEvent::ConnectRequest { .. } => "connect request",
        CmEvent::ConnectResponse { .. } => "connect response",
        CmEvent::Established { .. } => "established",
        CmEvent::Rejected { .. } => "rejected",
        CmEvent::Unreachable { .. } => "unreachable",
        CmEvent::MraReceived { .. } => "more time asked for",
        CmEvent::DisconnectRequest { .. } => "disconnect request",
        CmEvent::Disconnected { .. } => "disconnected",
        CmEvent::TimewaitExit { .. } => "timewait over",
        CmEvent::SidrRequest { .. } => "SIDR request",
        CmEvent::SidrResolved { .. } => "SIDR resolved",
    }
}

/// Returns the name of the state of a connection.
pub(super) const fn cm_state(state: Option<CmState>) -> &'static str {
    match state {
        None => "",
        Some(CmState::Idle) => "idle",
        Some(CmState::ReqSent) => "REQ sent",
        Some(CmState::MraReqReceived) => "MRA for REQ received",
        Some(CmState::ReqReceived) => "REQ received",
        Some(CmState::MraReqSent) => "MRA for REQ sent",
        Some(CmState::RepSent) => "REP sent",
        Some(CmState::MraRepReceived) => "MRA for REP received",
        Some(CmState::RepReceived) => "REP received",
        Some(CmState::MraRepSent) => "MRA for REP sent",
        Some(CmState::Established) => "established",
        Some(CmState::DreqSent) => "DREQ sent",
        Some(CmState::DreqReceived) => "DREQ received",
        Some(_) => "other",
    }
}

/// Returns the number of the side that sends a packet.
pub(super) const fn side(side: PacketSide) -> u8 {
    match side {
        PacketSide::Requester => 0,
        PacketSide::Responder => 1,
        PacketSide::Notification => 2,
    }
}

/// Returns the number of the actor that changed a state.
pub(super) const fn actor(actor: StateChangeActor) -> u8 {
    match actor {
        StateChangeActor::Program => 0,
        StateChangeActor::Requester => 1,
        StateChangeActor::Responder => 2,
        StateChangeActor::Device => 3,
    }
}

/// Returns the number of the reason why packets are sent again.
pub(super) const fn repetition(why: RetransmitReason) -> u8 {
    match why {
        RetransmitReason::Timeout => 0,
        RetransmitReason::Silence => 1,
        RetransmitReason::SequenceNak => 2,
        RetransmitReason::MissingAnswer => 3,
        RetransmitReason::ReceiverNotReady => 4,
    }
}
