//! Requests that send what an earlier READ or atomic has still to bring.

use pumice_transport::types::{SendFlags, SendRequest};

use super::words::name_of;
use crate::check::context::{CheckContext, FindingParts, related};
use crate::check::kind::READ_RESULT_EARLY;
use crate::check::orders::{LandingBuffer, RequestOrdering};

impl RequestOrdering {
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
}
