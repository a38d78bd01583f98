//! The identity of a completion, what happens to it, and statuses by their names.

use std::hash::Hasher as _;

use fnv::FnvHasher;
use pumice_platform::clock::Random;
use pumice_transport::types::{QpType, WcOpcode, WcStatus};

use crate::fates::trigger::Trigger;

/// Returns the name of a status in plans and reports.
pub const fn status_name(status: WcStatus) -> &'static str {
    match status {
        WcStatus::Success => "success",
        WcStatus::LocLenErr => "local-length",
        WcStatus::LocQpOpErr => "local-qp-operation",
        WcStatus::LocEecOpErr => "local-eec-operation",
        WcStatus::LocProtErr => "local-protection",
        WcStatus::WrFlushErr => "flushed",
        WcStatus::MwBindErr => "window-bind",
        WcStatus::BadRespErr => "bad-response",
        WcStatus::LocAccessErr => "local-access",
        WcStatus::RemInvReqErr => "remote-invalid-request",
        WcStatus::RemAccessErr => "remote-access",
        WcStatus::RemOpErr => "remote-operation",
        WcStatus::RetryExcErr => "retry-exceeded",
        WcStatus::RnrRetryExcErr => "rnr-retry-exceeded",
        WcStatus::LocRddViolErr => "local-rdd-violation",
        WcStatus::RemInvRdReqErr => "remote-invalid-rd-request",
        WcStatus::RemAbortErr => "remote-aborted",
        WcStatus::InvEecnErr => "invalid-eec-number",
        WcStatus::InvEecStateErr => "invalid-eec-state",
        WcStatus::FatalErr => "fatal",
        WcStatus::RespTimeoutErr => "response-timeout",
        WcStatus::GeneralErr => "general",
        WcStatus::TmErr => "tag-matching",
        WcStatus::TmRndvIncomplete => "tag-matching-rendezvous",
    }
}

/// Returns the status of a name in plans and reports, or of its name in verbs.
///
/// # Errors
/// No status has this name, or it is that of success; the sentence lists the statuses.
pub fn status_from(text: &str) -> Result<WcStatus, String> {
    let verbs = text.strip_prefix("IBV_WC_").unwrap_or(text);
    let is_named = |status: &&WcStatus| status_name(**status) == text || status.name() == verbs;
    match WcStatus::ALL.iter().find(is_named) {
        Some(WcStatus::Success) => {
            Err("success is what happens without a rule: write another one".to_owned())
        }
        Some(status) => Ok(*status),
        None => {
            let names = WcStatus::ALL.iter().filter(|one| **one != WcStatus::Success);
            let names: Vec<&str> = names.map(|one| status_name(*one)).collect();
            Err(format!("{text} is none of {}", names.join(", ")))
        }
    }
}

/// Reports whether a work queue of this side can have a completion with this status.
pub const fn is_of_side(status: WcStatus, side: WorkSide) -> bool {
    use WcStatus as S;
    match status {
        S::LocLenErr | S::LocQpOpErr | S::LocProtErr | S::WrFlushErr | S::FatalErr | S::GeneralErr => true,
        S::LocEecOpErr | S::LocRddViolErr | S::InvEecnErr | S::InvEecStateErr => true,
        S::LocAccessErr | S::RemInvReqErr | S::TmErr => true,
        S::TmRndvIncomplete => matches!(side, WorkSide::Receive),
        _ => matches!(side, WorkSide::Send),
    }
}

/// Reports whether a work request of this class, on a queue pair of this service, can end with this status.
pub const fn can_end(status: WcStatus, class: CompletionClass, qp_type: QpType) -> bool {
    use WcStatus as S;
    let tells_of_peer = matches!(
        status,
        S::BadRespErr
            | S::RemInvReqErr
            | S::RemAccessErr
            | S::RemOpErr
            | S::RetryExcErr
            | S::RnrRetryExcErr
            | S::RemInvRdReqErr
            | S::RemAbortErr
            | S::RespTimeoutErr
    );
    let is_local = matches!(
        class,
        CompletionClass::Bind
            | CompletionClass::Invalidate
            | CompletionClass::Configure
            | CompletionClass::Copy
    );
    let is_receive = matches!(class.side(), WorkSide::Receive);
    let of_service = !tells_of_peer || (!is_local && (qp_type.is_reliable() || is_receive));
    let of_class = match status {
        S::MwBindErr => matches!(class, CompletionClass::Bind),
        _ => true,
    };
    of_service && of_class && is_of_side(status, class.side())
}

named! {
    /// A work queue of a queue pair.
    WorkSide {
        /// The send queue.
        Send = "send",
        /// The receive queue.
        Receive = "receive",
    }
}

named! {
    /// The class of a work request: what it did.
    CompletionClass {
        /// SEND.
        Send = "send",
        /// RDMA WRITE.
        Write = "write",
        /// RDMA READ.
        Read = "read",
        /// Compare and swap, fetch and add, or ATOMIC WRITE.
        Atomic = "atomic",
        /// FLUSH.
        Flush = "flush",
        /// A memory window was bound.
        Bind = "bind",
        /// A key was invalidated.
        Invalidate = "invalidate",
        /// An indirect memory key was configured.
        Configure = "configure",
        /// Memory of the device was copied.
        Copy = "copy",
        /// A request that the program wrote in the adapter's own format was executed.
        Raw = "raw",
        /// A SEND was received.
        Recv = "recv",
        /// An RDMA WRITE with immediate data was received.
        RecvWrite = "recv-write",
    }
}

impl CompletionClass {
    #[doc(hidden)]
    pub const fn of(opcode: WcOpcode) -> CompletionClass {
        match opcode {
            WcOpcode::Send => CompletionClass::Send,
            WcOpcode::RdmaWrite => CompletionClass::Write,
            WcOpcode::RdmaRead => CompletionClass::Read,
            WcOpcode::CompareSwap | WcOpcode::FetchAdd | WcOpcode::AtomicWrite => CompletionClass::Atomic,
            WcOpcode::Flush => CompletionClass::Flush,
            WcOpcode::BindWindow => CompletionClass::Bind,
            WcOpcode::LocalInvalidate => CompletionClass::Invalidate,
            WcOpcode::ConfigureKey => CompletionClass::Configure,
            WcOpcode::CopyMemory => CompletionClass::Copy,
            WcOpcode::RawRequest => CompletionClass::Raw,
            WcOpcode::Recv | WcOpcode::TagRecv | WcOpcode::TagNoTag => CompletionClass::Recv,
            // Operations on lists of tags are no work of a queue pair: no plan is asked about them.
            WcOpcode::TagAdd | WcOpcode::TagDelete | WcOpcode::TagSync => CompletionClass::Recv,
            WcOpcode::RecvRdmaWithImm => CompletionClass::RecvWrite,
        }
    }

    /// Returns the work queue that holds requests of this class.
    pub const fn side(self) -> WorkSide {
        match self {
            CompletionClass::Recv | CompletionClass::RecvWrite => WorkSide::Receive,
            _ => WorkSide::Send,
        }
    }
}

/// The identity of a completion in a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CompletionKey {
    /// The ordinal of the queue pair in its process, from 0.
    pub qp: u32,
    /// Number of times that the queue pair was reset before.
    pub connection: u32,
    /// The class of the work request.
    pub class: CompletionClass,
    /// The ordinal of the work request on its work queue, from 0, among the executed ones, including those
    /// that make no completion. With a shared receive queue only the requests that this queue pair used are
    /// counted.
    pub message: u64,
}

/// The fate of a completion: how its work request ends, and how long the completion is delayed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CompletionFate {
    /// The status with which the work request ends.
    pub status: Option<WcStatus>,
    /// The `vendor_err` of the completion.
    pub vendor_err: u32,
    /// Additional time before the completion comes, in ns.
    pub delay_ns: u64,
    /// The trigger until which the completion is held.
    pub until: Option<Trigger>,
}

impl CompletionKey {
    /// Returns the random numbers of a rule for this completion: a function of the seed, the rule's name, the
    /// process and the work request.
    pub fn draw(&self, seed: u64, rule: &str, tag: &str) -> Random {
        let mut hasher = FnvHasher::default();
        for text in [rule, tag, self.class.side().name()] {
            hasher.write(text.as_bytes());
            // The byte 0xff is in no UTF-8 text, so it separates.
            hasher.write(&[0xff]);
        }
        for number in [self.qp.into(), self.connection.into(), self.message, seed] {
            hasher.write(&number.to_le_bytes());
        }
        Random::new(hasher.finish())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_statuses_are_inverses() {
        for status in WcStatus::ALL.into_iter().filter(|status| *status != WcStatus::Success) {
            assert_eq!(status_from(status_name(status)), Ok(status));
            assert_eq!(status_from(status.name()), Ok(status));
            assert_eq!(status_from(&format!("IBV_WC_{}", status.name())), Ok(status));
            assert!([WorkSide::Send, WorkSide::Receive].into_iter().any(|side| is_of_side(status, side)));
        }
        assert!(status_from("success").is_err() && status_from("sucess").unwrap_err().contains("general"));
    }

    #[test]
    fn only_reliable_services_hear_of_the_peer() {
        let send = |status, qp_type| can_end(status, CompletionClass::Send, qp_type);
        assert!(send(WcStatus::RetryExcErr, QpType::Rc) && send(WcStatus::RetryExcErr, QpType::XrcInitiator));
        assert!(!send(WcStatus::RetryExcErr, QpType::Ud) && !send(WcStatus::RemAccessErr, QpType::Uc));
        assert!(send(WcStatus::LocProtErr, QpType::Ud) && !send(WcStatus::MwBindErr, QpType::Rc));
        assert!(can_end(WcStatus::MwBindErr, CompletionClass::Bind, QpType::Rc));
        assert!(!can_end(WcStatus::RetryExcErr, CompletionClass::Recv, QpType::Rc));
        assert!(!can_end(WcStatus::RetryExcErr, CompletionClass::Invalidate, QpType::Rc));
    }
}
