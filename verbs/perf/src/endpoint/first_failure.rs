//! The first failure of one end, which is the cause of all flushed requests after it.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use pumice_transport::types::Cause;
use pumice_transport::wire::Qpn;
use pumice_verbs::{WcStatus, WorkCompletion};

/// Longest wait for the cause, which comes from a thread of the device: a completion may be here a moment
/// earlier.
const TIMEOUT: Duration = Duration::from_secs(1);

/// First failure, shared by the queues of an end and its device, which reports causes.
#[derive(Debug, Clone, Default)]
pub(super) struct FirstFailure(Arc<FailureReport>);

#[derive(Debug, Default)]
struct FailureReport {
    sentence: Mutex<Option<String>>,
    changed: Condvar,
}

impl FirstFailure {
    /// Records why a queue pair failed, or why a message was dropped; the first failure counts.
    pub(super) fn record(&self, qpn: Qpn, cause: &Cause) {
        if !cause.is_fatal() || cause.is_usual() {
            return;
        }
        let mut sentence = self.0.sentence.lock().unwrap_or_else(PoisonError::into_inner);
        sentence.get_or_insert_with(|| format!("QP {qpn} {cause}"));
        self.0.changed.notify_all();
    }

    /// Returns the sentence about completions of which at least one has failed.
    pub(super) fn sentence(&self, completions: &[WorkCompletion]) -> String {
        let record = self.0.sentence.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.0.changed.wait_timeout_while(record, TIMEOUT, |sentence| sentence.is_none());
        let (record, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if let Some(sentence) = &*record {
            return sentence.clone();
        }
        let failed = |completion: &&WorkCompletion| completion.status != WcStatus::Success;
        let flushed = |completion: &&WorkCompletion| completion.status == WcStatus::WrFlushErr;
        let first = completions.iter().filter(failed).find(|completion| !flushed(completion));
        match first.or_else(|| completions.iter().find(failed)) {
            Some(first) => {
                format!("a request of QP {:#08x} failed with {}", first.qp_num, first.status.name())
            }
            None => "no request failed".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pumice_transport::types::CqUse;

    #[test]
    fn the_first_failure_is_reported_and_not_the_flushes() {
        let first = FirstFailure::default();
        let qpn = Qpn::new(0x11);
        first.record(qpn, &Cause::Modified);
        let flush =
            WorkCompletion { status: WcStatus::WrFlushErr, qp_num: 0x11, ..WorkCompletion::default() };
        let failed = WorkCompletion { status: WcStatus::RemAccessErr, ..flush };
        assert_eq!(
            first.sentence(&[WorkCompletion::default(), flush, failed]),
            "a request of QP 0x000011 failed with REM_ACCESS_ERR"
        );
        assert_eq!(first.sentence(&[flush]), "a request of QP 0x000011 failed with WR_FLUSH_ERR");
        let overrun = |depth| Cause::CqOverrun { cq: 1, depth, completes: CqUse::Both };
        let teller = first.clone();
        let cause = std::thread::spawn(move || {
            teller.record(qpn, &overrun(4));
            teller.record(qpn, &overrun(5));
        });
        assert!(first.sentence(&[flush]).contains("of 4 entries"));
        cause.join().expect("it tells and ends");
        assert!(first.sentence(&[flush]).contains("of 4 entries"));
    }
}
