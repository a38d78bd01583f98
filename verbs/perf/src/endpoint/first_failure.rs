//! What went wrong first on one end: the cause of all the flushed requests that follow.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use pumice_transport::types::Cause;
use pumice_transport::wire::Qpn;
use pumice_verbs::{WcStatus, WorkCompletion};

/// The cause reaches us from a thread of the device's, so that a completion may be here a moment earlier.
const PATIENCE: Duration = Duration::from_secs(1);

/// Shared by the queues of an end and its device, which tells causes.
#[derive(Debug, Clone, Default)]
pub(super) struct FirstFailure(Arc<Told>);

#[derive(Debug, Default)]
struct Told {
    sentence: Mutex<Option<String>>,
    changed: Condvar,
}

impl FirstFailure {
    /// The device says why a queue pair failed, or why a message was dropped; the first failure counts.
    pub(super) fn told(&self, qpn: Qpn, cause: &Cause) {
        if !cause.is_fatal() || cause.is_usual() {
            return;
        }
        let mut sentence = self.0.sentence.lock().unwrap_or_else(PoisonError::into_inner);
        sentence.get_or_insert_with(|| format!("QP {qpn} {cause}"));
        self.0.changed.notify_all();
    }

    /// The sentence about completions of which one at least has failed.
    pub(super) fn sentence(&self, completions: &[WorkCompletion]) -> String {
        let told = self.0.sentence.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.0.changed.wait_timeout_while(told, PATIENCE, |sentence| sentence.is_none());
        let (told, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if let Some(sentence) = &*told {
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
    fn the_first_failure_is_told_and_not_the_flushes() {
        let first = FirstFailure::default();
        let qpn = Qpn::new(0x11);
        first.told(qpn, &Cause::Modified);
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
            teller.told(qpn, &overrun(4));
            teller.told(qpn, &overrun(5));
        });
        assert!(first.sentence(&[flush]).contains("of 4 entries"));
        cause.join().expect("it tells and ends");
        assert!(first.sentence(&[flush]).contains("of 4 entries"));
    }
}
