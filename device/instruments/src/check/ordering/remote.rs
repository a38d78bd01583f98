//! Requests of which one writes memory of the peer that another one uses, and nothing orders them.

use pumice_transport::types::{RemoteRange, SendRequest, WrClass};

use super::words::{in_words, name_of};
use crate::check::context::{Context, Found, related};
use crate::check::kind::{FindingKind, REMOTE_RACE, WRITE_PASSES_READ};
use crate::check::orders::{Access, Ordering, conflict, target_of};

impl Ordering {
    /// A request is posted: others may use the same memory of the peer.
    pub(super) fn look_at_target(
        &mut self,
        context: &mut Context,
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
        let against = |access: &Access| -> Option<&'static FindingKind> {
            if access.number != number {
                return conflict(class, access.class).then_some(&REMOTE_RACE);
            }
            let passes = class == WrClass::Write && access.class == WrClass::Read && access.message >= fenced;
            passes.then_some(&WRITE_PASSES_READ)
        };
        let mut shared = self.remote.sharing(space, range.address, range.length_bytes);
        let found = shared.find_map(|(_, access)| Some((against(access)?, access.clone())));
        drop(shared);
        let Some((kind, access)) = found else { return };
        self.tell_order(context, kind, number, request.opcode.name(), &range, &access);
    }

    fn tell_order(
        &mut self,
        context: &mut Context,
        kind: &'static FindingKind,
        number: u32,
        name: &'static str,
        range: &RemoteRange,
        access: &Access,
    ) {
        let stack = context.here();
        let (object, other) = (name_of(context, number), name_of(context, access.number));
        let numbers = format!(
            "{name} on {object}, {}; a {} on {other} of bytes of this range was posted before and is not \
             known to be over",
            in_words(range),
            access.name
        );
        let related = vec![related(format!("the {} was posted here", access.name), &access.stack)];
        context.found(kind, Found { object, numbers, stack, related });
    }

    /// Keeps what a request does with memory of the peer, if another one can meet it.
    pub(super) fn keep_target(
        &mut self,
        context: &mut Context,
        number: u32,
        message: u64,
        length_bytes: u32,
        is_shared: bool,
        request: &SendRequest<'_>,
    ) {
        let Some((class, range)) = target_of(request, length_bytes) else { return };
        if !is_shared && class != WrClass::Read {
            return;
        }
        let stack = self.stack_of_post(context, number);
        let access = Access { number, message, class, name: request.opcode.name(), stack };
        let Some(qp) = self.qps.get_mut(&number) else { return };
        let space = (qp.peer, range.rkey);
        let noted = self.remote.insert(space, range.address, range.length_bytes, access);
        if let Some(old) = noted.and_then(|id| qp.remote.keep(message, id)) {
            self.remote.remove(old);
        }
    }
}
