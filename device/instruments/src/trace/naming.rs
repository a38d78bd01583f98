//! Names that records have for what is an enum elsewhere.

use pumice_transport::cm::{Event as CmEvent, State as CmState};
use pumice_transport::event::{Actor, Repetition, Side};
use pumice_transport::mad::CmMessage;
use pumice_transport::types::AsyncEventType;

/// A message of connection management.
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

/// Something that happened to a connection.
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

/// The state of a connection.
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

/// An asynchronous event, as verbs call it.
pub(super) const fn async_event(event: AsyncEventType) -> &'static str {
    match event {
        AsyncEventType::CqErr => "IBV_EVENT_CQ_ERR",
        AsyncEventType::QpFatal => "IBV_EVENT_QP_FATAL",
        AsyncEventType::QpReqErr => "IBV_EVENT_QP_REQ_ERR",
        AsyncEventType::QpAccessErr => "IBV_EVENT_QP_ACCESS_ERR",
        AsyncEventType::CommEst => "IBV_EVENT_COMM_EST",
        AsyncEventType::SqDrained => "IBV_EVENT_SQ_DRAINED",
        AsyncEventType::PathMig => "IBV_EVENT_PATH_MIG",
        AsyncEventType::PathMigErr => "IBV_EVENT_PATH_MIG_ERR",
        AsyncEventType::DeviceFatal => "IBV_EVENT_DEVICE_FATAL",
        AsyncEventType::PortActive => "IBV_EVENT_PORT_ACTIVE",
        AsyncEventType::PortErr => "IBV_EVENT_PORT_ERR",
        AsyncEventType::LidChange => "IBV_EVENT_LID_CHANGE",
        AsyncEventType::PkeyChange => "IBV_EVENT_PKEY_CHANGE",
        AsyncEventType::SrqErr => "IBV_EVENT_SRQ_ERR",
        AsyncEventType::SrqLimitReached => "IBV_EVENT_SRQ_LIMIT_REACHED",
        AsyncEventType::QpLastWqeReached => "IBV_EVENT_QP_LAST_WQE_REACHED",
        AsyncEventType::GidChange => "IBV_EVENT_GID_CHANGE",
    }
}

/// Who sends a packet.
pub(super) const fn side(side: Side) -> u8 {
    match side {
        Side::Requester => 0,
        Side::Responder => 1,
        Side::Notification => 2,
    }
}

/// Who changed a state.
pub(super) const fn actor(actor: Actor) -> u8 {
    match actor {
        Actor::Program => 0,
        Actor::Requester => 1,
        Actor::Responder => 2,
        Actor::Device => 3,
    }
}

/// Why packets are sent again.
pub(super) const fn repetition(why: Repetition) -> u8 {
    match why {
        Repetition::Timeout => 0,
        Repetition::Silence => 1,
        Repetition::SequenceNak => 2,
        Repetition::MissingAnswer => 3,
        Repetition::ReceiverNotReady => 4,
    }
}
