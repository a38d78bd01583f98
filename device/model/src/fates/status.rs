//! Statuses of completions by their names, and which requests can end with them.

use pumice_transport::types::{QpType, WcStatus};

use crate::fates::completion::{CompletionClass, WorkSide};

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
