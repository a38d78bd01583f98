//! Requests of which one writes memory of the peer that another one uses, and nothing orders them.

use pumice_transport::types::{RemoteRange, SendRequest, StoreOrder, WrClass};

use super::words::{in_words, name_of};
use crate::check::context::{CheckContext, FindingParts, related};
use crate::check::kind::{FindingKind, REMOTE_RACE, WRITE_PASSES_READ, WRITE_PASSES_WRITE};
use crate::check::orders::{PeerMemoryAccess, RequestOrdering, conflict, target_of};

impl RequestOrdering {
    /// Checks a posted request: others may use the same memory of the peer.
    pub(super) fn check_target(
        &mut self,
        context: &mut CheckContext,
        number: u32,
        length_bytes: u32,
        request: &SendRequest<'_>,
    ) {
        if self.remote.is_empty() {
            return;
        }
        let Some((class, range)) = target_of(request, length_bytes) else { return };
        let Some(qp) = self.qps.get(&number) else { return };
        let (space, fenced) = ((qp.peer, range.rkey), qp.fenced);
        let order = self.order_of_sent(context, number, range.rkey);
        let source = source_of(request);
        let against = |access: &PeerMemoryAccess| -> Option<&'static FindingKind> {
            if access.number != number {
                return conflict(class, access.class).then_some(&REMOTE_RACE);
            }
            let passes = class == WrClass::Write && access.class == WrClass::Read && access.message >= fenced;
            if passes {
                return Some(&WRITE_PASSES_READ);
            }
            // Storing the same payload again does no harm, in either order.
            let replaces =
                class == WrClass::Write && access.class == WrClass::Write && source != access.source;
            (replaces && order.lets_writes_pass()).then_some(&WRITE_PASSES_WRITE)
        };
        let mut shared = self.remote.sharing(space, range.address, range.length_bytes);
        let found = shared.find_map(|(_, access)| Some((against(access)?, access.clone())));
        drop(shared);
        let Some((kind, access)) = found else { return };
        self.report_order(context, kind, (number, order), request.opcode.name(), &range, &access);
    }

    fn report_order(
        &mut self,
        context: &mut CheckContext,
        kind: &'static FindingKind,
        (number, order): (u32, StoreOrder),
        name: &'static str,
        range: &RemoteRange,
        access: &PeerMemoryAccess,
    ) {
        let stack = context.here();
        let (object, other) = (name_of(context, number), name_of(context, access.number));
        let numbers = format!(
            "{name} on {object}, {}; a {} on {other} of bytes of this range was posted before and is not \
             known to be over{}",
            in_words(range),
            access.name,
            if std::ptr::eq(kind, &raw const WRITE_PASSES_WRITE) { why_passed(order) } else { "" }
        );
        let related = vec![related(format!("the {} was posted here", access.name), &access.stack)];
        context.found(kind, FindingParts { object, numbers, stack, related });
    }

    /// Records how a request uses memory of the peer, if another one can meet it.
    pub(super) fn record_target(
        &mut self,
        context: &mut CheckContext,
        number: u32,
        message: u64,
        length_bytes: u32,
        is_shared: bool,
        request: &SendRequest<'_>,
    ) {
        let Some((class, range)) = target_of(request, length_bytes) else { return };
        let passes = || self.order_of_sent(context, number, range.rkey).lets_writes_pass();
        if !is_shared && class != WrClass::Read && !(class == WrClass::Write && passes()) {
            return;
        }
        let stack = self.stack_of_post(context, number);
        let source = source_of(request);
        let access = PeerMemoryAccess { number, message, class, name: request.opcode.name(), source, stack };
        let Some(qp) = self.qps.get_mut(&number) else { return };
        let space = (qp.peer, range.rkey);
        let noted = self.remote.insert(space, range.address, range.length_bytes, access);
        if let Some(old) = noted.and_then(|id| qp.remote.push(message, id)) {
            self.remote.remove(old);
        }
    }
}

/// Returns the address where the payload of a request begins.
fn source_of(request: &SendRequest<'_>) -> u64 {
    request.sges.first().map_or(0, |sge| sge.address)
}

/// Returns why a WRITE may be stored before an earlier one of its queue pair.
fn why_passed(order: StoreOrder) -> &'static str {
    match order {
        StoreOrder::Relaxed => "; the region has IBV_ACCESS_RELAXED_ORDERING",
        _ => "; the queue pair has MLX5DV_QP_CREATE_OOO_DP",
    }
}
