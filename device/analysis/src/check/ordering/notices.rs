//! WRITEs on one queue pair, and the messages that tell of them on another.

use pumice_transport::types::{SendOpcode, SendRequest, WrClass};

use super::words::name_of;
use crate::check::context::{CheckContext, FindingParts, counted, related};
use crate::check::kind::NOTIFIED_ON_OTHER_QP;
use crate::check::orders::{LatestWrite, NOTICE_TURNS, RequestOrdering};

impl RequestOrdering {
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
}
