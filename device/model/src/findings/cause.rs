//! The cause of a failed queue pair or of a dropped message, as a finding.

use pumice_transport::types::Cause;
use pumice_transport::wire::Qpn;

use super::finding::Finding;
use super::kind::{FindingFamily, FindingKind, Level};

static QUEUE_PAIR_FAILED: FindingKind = FindingKind::new(
    "queue-pair-failed",
    FindingFamily::Messages,
    Level::Error,
    "A queue pair went to an error state.",
);
static QUEUE_PAIR_GOES_ON: FindingKind = FindingKind::new(
    "queue-pair-goes-on",
    FindingFamily::Messages,
    Level::Warning,
    "A queue pair goes on without a message, or with a request that cannot be right.",
);
static USUAL: FindingKind = FindingKind::new(
    "usual-event",
    FindingFamily::Messages,
    Level::Note,
    "Something happened to a queue pair that also happens in correct programs.",
);

/// Returns the kind of finding for a cause; its level is that of the log.
pub const fn kind_of_cause(cause: &Cause) -> &'static FindingKind {
    if cause.is_usual() {
        &USUAL
    } else if cause.is_fatal() {
        &QUEUE_PAIR_FAILED
    } else {
        &QUEUE_PAIR_GOES_ON
    }
}

/// Returns a finding about the cause of a problem of a queue pair.
pub fn finding_of_cause(qpn: Qpn, cause: &Cause) -> Finding {
    Finding::new(kind_of_cause(cause), format!("QP {qpn}"), cause.to_string())
}

#[cfg(test)]
mod tests {
    use super::super::text;
    use super::*;

    #[test]
    fn a_cause_is_a_finding_that_the_log_says_in_a_sentence() {
        let finding = finding_of_cause(Qpn::new(0x12), &Cause::Modified);
        assert_eq!((finding.kind.name, finding.level), ("usual-event", Level::Note));
        assert_eq!(text::sentence(&finding), format!("QP {} {}", Qpn::new(0x12), Cause::Modified));
        let dropped = Cause::CompletionLost { cq: 0, depth: 1 };
        assert_eq!(kind_of_cause(&dropped).level, Level::Warning);
    }
}
