//! The end of send requests: completions, failures, flushing.

use super::{Requester, SendFailure};
use crate::host::{Ended, Host, count_ended};
use crate::qp::send_queue::SendWqe;
use crate::qp::settings::QpSettings;
use crate::types::{Cause, FailedSend, Peer, PostError, QpType, WcStatus, WorkCompletion};

impl Requester {
    /// Reports a local failure once everything before it has completed.
    #[inline]
    pub(crate) fn fail_if_due(&self, settings: &QpSettings) -> Result<(), SendFailure> {
        if let Some(status) = self.failures.judged {
            return Err(SendFailure { status, local: stays_local(settings, status) });
        }
        match self.failures.local_failure {
            Some((entry, status)) if entry == self.queue.head() => {
                Err(SendFailure { status, local: !settings.qp_type.is_reliable() })
            }
            _ => Ok(()),
        }
    }

    /// Completes entries from the head as long as they are answered (or executed).
    pub(crate) fn complete_ready<H: Host>(&mut self, settings: &QpSettings, host: &mut H) {
        while self.queue.head() < self.position.started {
            let Some(wqe) = self.queue.entry(self.queue.head()) else { return };
            //= linux:rxe_comp.c#get_wqe
            //| Requests complete in the order in which they were posted.
            let done = if wqe.is_local() { wqe.executed } else { !self.psns.acked.is_before(wqe.end_psn()) };
            if !done {
                return;
            }
            if host.judges() {
                self.judge_head(settings, host);
            }
            if self.failures.judged.is_some() {
                return;
            }
            if settings.stops_at_bad_signature {
                self.check_signatures(host);
            }
            self.complete_head(settings, WcStatus::Success, host);
        }
    }

    /// Asks the host whether the data of the entry at the head, which is done, fits its signatures.
    #[cold]
    fn check_signatures<H: Host>(&mut self, host: &mut H) {
        let head = self.queue.entry(self.queue.head());
        self.failures.has_bad_signature |= head.is_some_and(|wqe| host.has_bad_signature(wqe.sges()));
    }

    /// Asks the host for the status of the entry at the head, which is done.
    #[cold]
    fn judge_head<H: Host>(&mut self, settings: &QpSettings, host: &mut H) {
        let head = self.queue.entry(self.queue.head()).filter(|_| self.failures.judged.is_none());
        let Some(wqe) = head else { return };
        let ended = Ended {
            connection: settings.connection,
            qp_type: settings.qp_type,
            opcode: wqe.completion(),
            length_bytes: wqe.span.length_bytes,
            reports: wqe.signaled,
            before: self.queue.head(),
        };
        self.failures.judged = host.judge(&settings.context, &ended);
    }

    /// Completes and removes the entry at the head.
    pub(crate) fn complete_head<H: Host>(&mut self, settings: &QpSettings, status: WcStatus, host: &mut H) {
        let Some(wqe) = self.queue.entry(self.queue.head()) else { return };
        count_ended(&settings.context, wqe.info().completion, status, host);
        //= linux:rxe_comp.c#do_complete
        //| An unsignaled request makes a completion only if it fails.
        if wqe.signaled || status != WcStatus::Success {
            let completion = WorkCompletion {
                wr_id: wqe.wr_id,
                status,
                opcode: wqe.completion(),
                byte_len: wqe.span.length_bytes,
                qp_num: settings.context.qpn.value(),
                src_qp: settings.destination.value(),
                ..WorkCompletion::default()
            };
            host.complete_send(&settings.context, completion, self.unreported + 1);
            self.unreported = 0;
        } else {
            self.unreported += 1;
        }
        self.queue.pop();
        let head = self.queue.head();
        if self.position.cursor < head {
            self.position.cursor = head;
            self.position.cursor_packet = 0;
        }
        self.position.started = self.position.started.max(head);
    }

    /// Fails the head with `status` and flushes the rest, in order.
    pub(crate) fn fail<H: Host>(&mut self, settings: &QpSettings, failure: SendFailure, host: &mut H) {
        let fault = self.failures.fault.take();
        let judged = self.failures.judged.take();
        let status = judged.unwrap_or(failure.status);
        // A status that the host has decided needs no explanation.
        let head = self.queue.entry(self.queue.head()).filter(|_| judged.is_none());
        if let Some(wqe) = head {
            let peer = settings
                .path
                .as_deref()
                .map(|path| Peer { address: path.flow.destination, qpn: settings.destination });
            let cause = Cause::SendFailed(FailedSend {
                status,
                wr_id: wqe.wr_id,
                opcode: wqe.opcode,
                length_bytes: wqe.span.length_bytes,
                psn: self.psns.acked,
                mtu_bytes: if settings.qp_type.is_raw() { 0 } else { settings.mtu_bytes as u32 },
                retry_count: settings.retry_count,
                rnr_retry: settings.rnr_retry,
                timeout: settings.timeout,
                exponential_retries: None,
                adaptive_ns: settings.adaptive_timeout.map(|adaptive| adaptive.first_ns),
                peer: peer.filter(|_| settings.qp_type.is_connected()),
                remote: wqe.remote_range(),
                fault,
                misfit: misfit(settings, wqe).filter(|_| status == WcStatus::LocQpOpErr && fault.is_none()),
                ignored_answers: self.fruitless.ignored_answers,
                was_acknowledged: self.psns.acked != self.psns.first_psn,
                peer_is_absent: core::mem::take(&mut self.retries.peer_is_absent),
                peer_is_itself: settings.qp_type.is_connected() && settings.is_self_connected(),
            });
            host.log(&settings.context, cause);
        }
        //= statement:30
        //| The first request that fails has its own status.
        self.complete_head(settings, status, host);
        self.flush(settings, host);
    }

    /// Flushes all entries with `WR_FLUSH_ERR` and stops all timers.
    pub(crate) fn flush<H: Host>(&mut self, settings: &QpSettings, host: &mut H) {
        //= linux:rxe_comp.c#flush_send_queue
        //| Every request that is left in the queue ends with WR_FLUSH_ERR.
        while !self.queue.is_empty() {
            self.complete_head(settings, WcStatus::WrFlushErr, host);
        }
        self.position.cursor = self.queue.tail();
        self.position.cursor_packet = 0;
        self.position.started = self.queue.tail();
        self.psns.acked = self.psns.next_psn;
        self.outstanding.clear();
        self.retries.timer_ns = None;
        self.retries.rnr_until_ns = None;
        self.early.timer_ns = None;
        self.failures.local_failure = None;
        self.failures.injected = None;
        self.failures.judged = None;
    }
}

/// Reports whether a failure affects only the send side. A flushed request shows that both sides are in
/// error.
const fn stays_local(settings: &QpSettings, status: WcStatus) -> bool {
    !settings.qp_type.is_reliable() && !matches!(status, WcStatus::WrFlushErr | WcStatus::FatalErr)
}

/// Returns the reason why a posted request cannot be executed: a fault that adapters find when its turn
/// comes.
fn misfit(settings: &QpSettings, wqe: &SendWqe) -> Option<PostError> {
    let (opcode, qp_type) = (wqe.opcode, settings.qp_type);
    if !opcode.info().qp_types.contains(qp_type) {
        return Some(PostError::WrongOpcode { opcode, qp_type });
    }
    (qp_type == QpType::Ud).then_some(PostError::ForeignAddressHandle)
}
