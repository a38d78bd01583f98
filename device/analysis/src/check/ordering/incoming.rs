//! WRITEs of peers into the memory of this process.

use pumice_transport::types::RemoteRange;
use pumice_transport::wire::OperationClass;

use super::words::{in_words, name_of};
use crate::check::context::{CheckContext, FindingParts, related};
use crate::check::kind::REMOTE_RACE;
use crate::check::orders::{IncomingWrite, RequestOrdering, overlap};

/// Number of queue pairs that are compared with one that a WRITE begins on.
const MAX_COMPARED: usize = 64;

impl RequestOrdering {
    pub(super) fn access_begins(
        &mut self,
        context: &CheckContext,
        number: u32,
        class: OperationClass,
        range: &RemoteRange,
        ends: bool,
    ) {
        let others = self.qps.iter_mut().filter(|(other, qp)| **other != number && qp.incoming.is_some());
        for (_, qp) in others.take(MAX_COMPARED) {
            if let Some(open) = qp.incoming.as_mut().filter(|open| overlap(&open.range, range)) {
                open.met.get_or_insert((number, *range));
            }
        }
        let order = self.order_of_arrival(context, number, range.rkey);
        let Some(qp) = self.qps.get_mut(&number) else { return };
        if class == OperationClass::Write {
            qp.echo.begins(range.length_bytes, order.lets_writes_pass());
            qp.incoming = (!ends).then_some(IncomingWrite { range: *range, met: None });
        }
    }

    /// Handles the last packet of a WRITE that was executed.
    pub(super) fn write_ends(&mut self, context: &mut CheckContext, number: u32, has_imm: bool) {
        if !context.is_connected_to_own(number) {
            self.note_peer_progress();
        }
        let notified = self.notified;
        let Some(qp) = self.qps.get_mut(&number) else { return };
        if !has_imm {
            qp.echo.written(notified);
        }
        if let Some(IncomingWrite { range, met: Some((other, its)) }) = qp.incoming.take() {
            self.report_overlap(context, number, &range, other, &its);
        }
    }

    fn report_overlap(
        &mut self,
        context: &mut CheckContext,
        number: u32,
        range: &RemoteRange,
        other: u32,
        its: &RemoteRange,
    ) {
        let (object, second) = (name_of(context, number), name_of(context, other));
        let made = |number: u32| context.qps.get(&number).map(|qp| qp.calls.made.clone()).unwrap_or_default();
        let (stack, second_made) = (made(number), made(other));
        let numbers = format!(
            "while a WRITE came to {object}, {}, another request came to {second}, {}",
            in_words(range),
            in_words(its)
        );
        let related = vec![related(format!("{second} was made here"), &second_made)];
        context.found(&REMOTE_RACE, FindingParts { object, numbers, stack, related });
    }
}
