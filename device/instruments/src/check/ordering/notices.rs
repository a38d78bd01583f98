//! WRITEs on one queue pair, and the messages that tell of them on another.

use pumice_transport::types::{SendOpcode, SendRequest, WrClass};

use super::words::name_of;
use crate::check::context::{Context, Found, counted, related};
use crate::check::kind::NOTIFIED_ON_OTHER_QP;
use crate::check::orders::{NOTICE_TURNS, Ordering, Written};

impl Ordering {
    pub(super) fn look_at_notice(
        &mut self,
        context: &mut Context,
        number: u32,
        message: u64,
        request: &SendRequest<'_>,
    ) {
        let Some(peer) = self.qps.get(&number).map(|qp| qp.peer) else { return };
        if self.notices.get(&peer).is_some_and(|notices| notices.is_told) {
            return;
        }
        let opcode = request.opcode;
        if opcode == SendOpcode::RdmaWrite {
            let written = Written { number, message, stack: self.stack_of_post(context, number) };
            self.notices.entry(peer).or_default().written = Some(written);
            return;
        }
        if !matches!(opcode.info().class, WrClass::Send | WrClass::Write) {
            return;
        }
        let known =
            |written: &Written| self.qps.get(&written.number).is_none_or(|qp| written.message < qp.known);
        let Some(notices) = self.notices.get_mut(&peer) else { return };
        if let Some(written) = notices.told_of(number, known) {
            self.tell_notice(context, number, opcode.name(), &written);
        }
    }

    fn tell_notice(&mut self, context: &mut Context, number: u32, name: &'static str, written: &Written) {
        let stack = context.here();
        let (object, other) = (name_of(context, number), name_of(context, written.number));
        let numbers = format!(
            "{name} on {object} followed RDMA_WRITEs on {other} to the same peer {}, each time before the \
             WRITE's completion was polled",
            counted(NOTICE_TURNS.into(), "time")
        );
        let related = vec![related("the last RDMA_WRITE was posted here", &written.stack)];
        context.found(&NOTIFIED_ON_OTHER_QP, Found { object, numbers, stack, related });
    }
}
