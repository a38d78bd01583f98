//! The responder's part of a lane: the next message, if it is one packet.

use super::Responder;
use crate::host::Host;
use crate::qp::inbound::PartialMessage;
use crate::qp::lane::LaneRequest;
use crate::qp::settings::QpSettings;

impl Responder {
    /// Executes the request that is expected next, and queues its acknowledgement. Returns false if the
    /// request has to be handled in the general way.
    #[inline]
    pub(crate) fn accept_by_lane<H: Host>(
        &mut self,
        settings: &QpSettings,
        request: &LaneRequest<'_>,
        host: &mut H,
    ) -> bool {
        let psn = self.expected;
        let is_next = request.psn == psn && self.inbound.message == PartialMessage::None;
        if !is_next || !self.inbound.accept_by_lane(settings, request, host) {
            return false;
        }
        self.nak_outstanding = false;
        self.expected = psn.next();
        self.message_srqn = None;
        self.msn = (self.msn + 1) & 0xff_ffff;
        if request.ack_request {
            self.responses.acknowledge_message(settings, psn, self.msn, host);
        }
        true
    }
}
