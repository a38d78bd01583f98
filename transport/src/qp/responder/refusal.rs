//! Results of requests that are not executed, and their effects on the peer and the program.

use crate::host::MemoryError;
use crate::qp::inbound::InboundFault;
use crate::types::{Access, AsyncEventType, FailureDetail, WcStatus};
use crate::wire::NakCode;

/// Effects of a refused request.
pub(super) struct RefusedRequest {
    /// Code of the NAK; `None` if the peer gets no answer.
    pub(super) code: Option<NakCode>,
    /// Status of the receive request in use, if there is one.
    pub(super) status: WcStatus,
    /// Event to raise if there is no such request.
    pub(super) event: Option<AsyncEventType>,
    pub(super) reason: &'static str,
    /// Numbers for the message, if they are not the memory that the packet names.
    pub(super) detail: FailureDetail,
}

impl RefusedRequest {
    pub(super) const fn invalid(reason: &'static str) -> RefusedRequest {
        RefusedRequest {
            //= linux:rxe_resp.c#do_class_ac_error
            //| An invalid request gets a NAK, and the receive request in use ends with the status.
            code: Some(NakCode::InvalidRequest),
            status: WcStatus::RemInvReqErr,
            event: Some(AsyncEventType::QpReqErr),
            reason,
            detail: FailureDetail::None,
        }
    }

    /// Returns the same refusal with the numbers for its message.
    pub(super) fn with(self, detail: FailureDetail) -> RefusedRequest {
        RefusedRequest { detail, ..self }
    }

    /// Creates the refusal as [`RefusedRequest::access`] does, for a request that needs this right, which the
    /// message names.
    pub(super) const fn without(error: MemoryError, right: Access) -> RefusedRequest {
        let refused = RefusedRequest::access(error);
        if !matches!(error, MemoryError::AccessDenied) {
            return refused;
        }
        let reason = if right.contains(Access::REMOTE_READ) {
            "the memory region was registered without IBV_ACCESS_REMOTE_READ"
        } else if right.contains(Access::REMOTE_ATOMIC) {
            "the memory region was registered without IBV_ACCESS_REMOTE_ATOMIC"
        } else {
            "the memory region was registered without IBV_ACCESS_REMOTE_WRITE"
        };
        RefusedRequest { reason, ..refused }
    }

    pub(super) const fn access(error: MemoryError) -> RefusedRequest {
        //= linux:rxe_resp.c#rxe_receiver
        //| An unaligned address is an invalid request and no access error.
        if matches!(error, MemoryError::Misaligned) {
            return RefusedRequest::invalid(error.reason());
        }
        RefusedRequest {
            //= statement:10
            //| Memory that may not be accessed gets NAK 0x62.
            code: Some(NakCode::RemoteAccess),
            status: WcStatus::RemAccessErr,
            event: Some(AsyncEventType::QpAccessErr),
            reason: error.reason(),
            detail: FailureDetail::None,
        }
    }
}

/// Reason why the processing of a request stops at a check.
pub(super) enum RequestStopReason {
    /// No receive request is posted.
    NotReady,
    /// The responses in the queue must leave first; the packet is treated as lost.
    Overloaded,
    Refuse(RefusedRequest),
}

impl From<RefusedRequest> for RequestStopReason {
    fn from(refused: RefusedRequest) -> RequestStopReason {
        RequestStopReason::Refuse(refused)
    }
}

impl From<InboundFault> for RequestStopReason {
    fn from(fault: InboundFault) -> RequestStopReason {
        let reason = fault.reason();
        RequestStopReason::Refuse(match fault {
            //= linux:rxe_resp.c#check_resource
            //| A missing receive request is no error: the peer has to wait.
            InboundFault::NoReceive => return RequestStopReason::NotReady,
            InboundFault::NoSuchSrq => RefusedRequest {
                code: Some(NakCode::InvalidReadRequest),
                event: Some(AsyncEventType::QpAccessErr),
                ..RefusedRequest::invalid(reason)
            },
            // A reliable service loses no packet: the peer did not send a first one.
            InboundFault::Headless => RefusedRequest::invalid(InboundFault::OutOfTurn.reason()),
            InboundFault::OutOfTurn | InboundFault::Elsewhere | InboundFault::Length => {
                RefusedRequest::invalid(reason)
            }
            //= statement:29
            //| A SEND that is longer than its receive request gets NAK 0x61, and the receive ends with
            //| LOC_LEN_ERR.
            InboundFault::TooLong(detail) => {
                RefusedRequest { status: WcStatus::LocLenErr, detail, ..RefusedRequest::invalid(reason) }
            }
            InboundFault::ReceiveMemory(detail) => RefusedRequest {
                code: Some(NakCode::RemoteOperation),
                status: WcStatus::LocProtErr,
                event: None,
                reason,
                detail,
            },
            // A receive request that was taken for an immediate completes with this status.
            InboundFault::RemoteMemory(error) => {
                let status = WcStatus::LocAccessErr;
                RefusedRequest { status, ..RefusedRequest::without(error, Access::REMOTE_WRITE) }
            }
            //= ibta-1.5#9.9.6.3
            //| A failed remote invalidate is an error of class J: the data has landed, so the peer gets no
            //| answer.
            InboundFault::Key(error) => {
                RefusedRequest { code: None, status: WcStatus::LocQpOpErr, ..RefusedRequest::access(error) }
            }
            InboundFault::Judged(status) => RefusedRequest {
                code: answer_to(status),
                status,
                event: None,
                ..RefusedRequest::invalid(reason)
            },
        })
    }
}

/// Returns the NAK for a receive request that completes with this status; `None` if the peer gets no answer.
const fn answer_to(status: WcStatus) -> Option<NakCode> {
    match status {
        WcStatus::LocLenErr | WcStatus::RemInvReqErr => Some(NakCode::InvalidRequest),
        WcStatus::LocAccessErr => Some(NakCode::RemoteAccess),
        WcStatus::WrFlushErr | WcStatus::FatalErr => None,
        _ => Some(NakCode::RemoteOperation),
    }
}
