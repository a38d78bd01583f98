//! Requests on memory of the peer or of this process that nothing orders.

use pumice_transport::types::{RemoteRange, SendFlags, SendOpcode, SendRequest, StoreOrder, WrClass};
use pumice_transport::wire::OperationClass;

use crate::check::context::{CheckContext, FindingParts, counted, related};
use crate::check::kind::{
    FindingKind, NOTIFIED_ON_OTHER_QP, READ_RESULT_EARLY, REMOTE_RACE, WRITE_PASSES_READ, WRITE_PASSES_WRITE,
    WRITE_POLLED_IN_MEMORY,
};
use crate::check::orders::{
    IncomingWrite, LandingBuffer, LatestWrite, NOTICE_TURNS, PeerMemoryAccess, RequestOrdering, conflict,
    overlap, target_of,
};

/// Returns a range in words, as in "64 bytes at 0x1000".
fn in_words(range: &RemoteRange) -> String {
    format!("{} at {:#x}", counted(range.length_bytes, "byte"), range.address)
}

/// Returns the name of a queue pair in messages.
pub(super) fn name_of(context: &CheckContext, number: u32) -> String {
    context.qps.get(&number).map_or_else(|| format!("queue pair number {number:#x}"), |qp| qp.name.clone())
}

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

    /// Checks a posted request whose buffers may be those of a READ that is not over.
    pub(super) fn check_source(
        &mut self,
        context: &mut CheckContext,
        number: u32,
        request: &SendRequest<'_>,
    ) {
        let is_sent = request.opcode.info().data.is_sent() && !request.flags.contains(SendFlags::INLINE);
        if !is_sent || self.landings.is_empty() {
            return;
        }
        let fenced = self.qps.get(&number).map_or(0, |qp| qp.fenced);
        let open = |landing: &&LandingBuffer| landing.number != number || landing.message >= fenced;
        let ranges = request.sges.iter().flat_map(|sge| {
            self.landings.sharing((), sge.address, sge.length.into()).map(|(_, landing)| landing)
        });
        let Some(landing) = ranges.into_iter().find(open).cloned() else { return };
        let object = name_of(context, number);
        let stack = context.here();
        let way = if landing.number == number { "IBV_SEND_FENCE" } else { "a polled completion" };
        let numbers = format!(
            "{} on {object} sends memory that a {} of {} fills, which is not known to be over; there is no \
             {way} between them",
            request.opcode.name(),
            landing.name,
            name_of(context, landing.number),
        );
        let related = vec![related(format!("the {} was posted here", landing.name), &landing.stack)];
        context.found(&READ_RESULT_EARLY, FindingParts { object, numbers, stack, related });
    }

    /// Records the destination of a request's answer.
    pub(super) fn record_destination(
        &mut self,
        context: &mut CheckContext,
        number: u32,
        message: u64,
        request: &SendRequest<'_>,
    ) {
        let info = request.opcode.info();
        if info.data.is_sent() || !info.needs_response() || request.sges.is_empty() {
            return;
        }
        let landing =
            LandingBuffer { number, message, name: info.name, stack: self.stack_of_post(context, number) };
        let Some(qp) = self.qps.get_mut(&number) else { return };
        for sge in request.sges {
            let noted = self.landings.insert((), sge.address, sge.length.into(), landing.clone());
            if let Some(old) = noted.and_then(|id| qp.local.push(message, id)) {
                self.landings.remove(old);
            }
        }
    }

    pub(super) fn check_notice(
        &mut self,
        context: &mut CheckContext,
        number: u32,
        message: u64,
        request: &SendRequest<'_>,
    ) {
        let Some(peer) = self.qps.get(&number).map(|qp| qp.peer) else { return };
        if self.notices.get(&peer).is_some_and(|notices| notices.is_reported) {
            return;
        }
        let opcode = request.opcode;
        if opcode == SendOpcode::RdmaWrite {
            let written = LatestWrite { number, message, stack: self.stack_of_post(context, number) };
            self.notices.entry(peer).or_default().written = Some(written);
            return;
        }
        if !matches!(opcode.info().class, WrClass::Send | WrClass::Write) {
            return;
        }
        let known =
            |written: &LatestWrite| self.qps.get(&written.number).is_none_or(|qp| written.message < qp.known);
        let Some(notices) = self.notices.get_mut(&peer) else { return };
        if let Some(written) = notices.message_sent(number, known) {
            self.report_notice(context, number, opcode.name(), &written);
        }
    }

    fn report_notice(
        &mut self,
        context: &mut CheckContext,
        number: u32,
        name: &'static str,
        written: &LatestWrite,
    ) {
        let stack = context.here();
        let (object, other) = (name_of(context, number), name_of(context, written.number));
        let numbers = format!(
            "{name} on {object} followed RDMA_WRITEs on {other} to the same peer {}, each time before the \
             WRITE's completion was polled",
            counted(NOTICE_TURNS.into(), "time")
        );
        let related = vec![related("the last RDMA_WRITE was posted here", &written.stack)];
        context.found(&NOTIFIED_ON_OTHER_QP, FindingParts { object, numbers, stack, related });
    }

    pub(super) fn check_spinning(&mut self, context: &mut CheckContext, number: u32) {
        let (notified, Some(switches)) = (self.notified, context.callbacks.switches) else { return };
        let Some(qp) = self.qps.get_mut(&number) else { return };
        if qp.echo.length_bytes == 0 || !qp.echo.posted(notified, switches) {
            return;
        }
        let (turns, bytes) = (qp.echo.turns, qp.echo.length_bytes);
        let stack = context.here();
        let object = name_of(context, number);
        let made = context.qps.get(&number).map(|qp| qp.calls.made.clone()).unwrap_or_default();
        let numbers = format!(
            "{turns} times in sequence the program posted on {object} right after a WRITE had come to it \
             (the last of {bytes} bytes); no completion and no system call had told it"
        );
        let related = vec![related(format!("{object} was made here"), &made)];
        context.found(&WRITE_POLLED_IN_MEMORY, FindingParts { object, numbers, stack, related });
    }

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
