//! How the processing of a request ends when it is not executed, and what the peer and the program hear of
//! it.

use crate::host::MemoryError;
use crate::qp::inbound::Fault;
use crate::types::{Access, AsyncEventType, Detail, WcStatus};
use crate::wire::NakCode;

/// What a refused request leads to.
pub(super) struct Refused {
    /// None: the peer gets no answer.
    pub(super) code: Option<NakCode>,
    /// Status of the receive request in use, if there is one.
    pub(super) status: WcStatus,
    /// Event if there is none.
    pub(super) event: Option<AsyncEventType>,
    pub(super) reason: &'static str,
    /// The numbers behind it, if they are not the memory that the packet names.
    pub(super) detail: Detail,
}

impl Refused {
    pub(super) const fn invalid(reason: &'static str) -> Refused {
        Refused {
            //= linux:rxe_resp.c#do_class_ac_error
            //| An invalid request gets a NAK, and the receive request in use ends with the status.
            code: Some(NakCode::InvalidRequest),
            status: WcStatus::RemInvReqErr,
            event: Some(AsyncEventType::QpReqErr),
            reason,
            detail: Detail::None,
        }
    }

    /// The same with the numbers behind it.
    pub(super) fn with(self, detail: Detail) -> Refused {
        Refused { detail, ..self }
    }

    /// As [`Refused::access`], of a request that needs this right, which the sentence names.
    pub(super) const fn without(error: MemoryError, right: Access) -> Refused {
        let refused = Refused::access(error);
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
        Refused { reason, ..refused }
    }

    pub(super) const fn access(error: MemoryError) -> Refused {
        //= linux:rxe_resp.c#rxe_receiver
        //| An unaligned address is an invalid request and no access error.
        if matches!(error, MemoryError::Misaligned) {
            return Refused::invalid(error.reason());
        }
        Refused {
            //= statement:10
            //| Memory that may not be accessed gets NAK 0x62.
            code: Some(NakCode::RemoteAccess),
            status: WcStatus::RemAccessErr,
            event: Some(AsyncEventType::QpAccessErr),
            reason: error.reason(),
            detail: Detail::None,
        }
    }
}

/// How a check ends the processing of a request.
pub(super) enum Stop {
    /// No receive request is posted.
    NotReady,
    /// The responses in the queue must leave first; the packet is treated as lost.
    Overloaded,
    Refuse(Refused),
}

impl From<Refused> for Stop {
    fn from(refused: Refused) -> Stop {
        Stop::Refuse(refused)
    }
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Stop {
        let reason = fault.reason();
        Stop::Refuse(match fault {
            //= linux:rxe_resp.c#check_resource
            //| A missing receive request is no error: the peer has to wait.
            Fault::NoReceive => return Stop::NotReady,
            Fault::NoSuchSrq => Refused {
                code: Some(NakCode::InvalidReadRequest),
                event: Some(AsyncEventType::QpAccessErr),
                ..Refused::invalid(reason)
            },
            // A reliable service loses no packet: the peer did not send a first one.
            Fault::Headless => Refused::invalid(Fault::OutOfTurn.reason()),
            Fault::OutOfTurn | Fault::Elsewhere | Fault::Length => Refused::invalid(reason),
            //= statement:29
            //| A SEND that is longer than its receive request gets NAK 0x61, and the receive ends with
            //| LOC_LEN_ERR.
            Fault::TooLong(detail) => {
                Refused { status: WcStatus::LocLenErr, detail, ..Refused::invalid(reason) }
            }
            Fault::ReceiveMemory(detail) => Refused {
                code: Some(NakCode::RemoteOperation),
                status: WcStatus::LocProtErr,
                event: None,
                reason,
                detail,
            },
            // A receive request that was taken for an immediate says so here.
            Fault::RemoteMemory(error) => {
                let status = WcStatus::LocAccessErr;
                Refused { status, ..Refused::without(error, Access::REMOTE_WRITE) }
            }
            //= ibta-1.5#9.9.6.3
            //| A failed remote invalidate is an error of class J: the data has landed, so the peer gets no
            //| answer.
            Fault::Key(error) => {
                Refused { code: None, status: WcStatus::LocQpOpErr, ..Refused::access(error) }
            }
            Fault::Judged(status) => {
                Refused { code: answer_to(status), status, event: None, ..Refused::invalid(reason) }
            }
        })
    }
}

/// The NAK that goes with a receive request that ends so; `None`: the peer gets no answer.
const fn answer_to(status: WcStatus) -> Option<NakCode> {
    match status {
        WcStatus::LocLenErr | WcStatus::RemInvReqErr => Some(NakCode::InvalidRequest),
        WcStatus::LocAccessErr => Some(NakCode::RemoteAccess),
        WcStatus::WrFlushErr | WcStatus::FatalErr => None,
        _ => Some(NakCode::RemoteOperation),
    }
}
