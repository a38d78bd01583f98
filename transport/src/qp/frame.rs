//! The receiving side of raw packet queue pairs: a frame is a message. The flow rules of the device decide
//! which frames a queue pair gets.

use super::inbound::{BufferFailure, Inbound, InboundFault};
use super::settings::QpSettings;
use super::{QueuePair, ReceivingSide};
use crate::event::StateChangeActor;
use crate::host::{Counter, Host};
use crate::types::{Cause, FailureDetail, QpState, WcOpcode};
use crate::wire::Psn;

/// Error of a frame that a queue pair did not accept, with the counter for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameDropped(pub Counter);

impl QueuePair {
    /// Handles an Ethernet frame for this raw packet queue pair, from the destination address on.
    ///
    /// # Errors
    /// Fails if the frame is dropped: the queue pair is not ready to receive, or has no receive request.
    pub fn handle_frame<H: Host>(&mut self, frame: &[u8], host: &mut H) -> Result<(), FrameDropped> {
        let receptive = matches!(self.state, QpState::Rtr | QpState::Rts | QpState::Sqd | QpState::Sqe);
        let ReceivingSide::Datagram(inbound) = &mut self.receiver else {
            return Err(FrameDropped(Counter::RxWrongService));
        };
        if !self.settings.qp_type.is_raw() || !receptive {
            return Err(FrameDropped(Counter::RxWrongState));
        }
        match store(&self.settings, frame, inbound, host) {
            Ok(()) => Ok(()),
            Err(fault) => match fault.buffer_failure() {
                Some(BufferFailure { status, detail }) => {
                    let cause = Cause::ReceiveFailed { status, psn: Psn::new(0), detail };
                    host.log(&self.settings.context, cause);
                    self.complete_held_recv(status, host);
                    self.enter_error_by(StateChangeActor::Responder, host);
                    Ok(())
                }
                None => {
                    let (psn, reason) = (Psn::new(0), fault.reason());
                    let cause = Cause::MessageDropped { psn, reason, detail: FailureDetail::None };
                    host.log(&self.settings.context, cause);
                    Err(FrameDropped(Counter::RxNoReceive))
                }
            },
        }
    }
}

/// Stores the frame in the next receive request, and completes the request.
///
/// # Errors
/// Fails if there is no request, or if it cannot hold the frame: it has been taken, not completed.
fn store<H: Host>(
    settings: &QpSettings,
    frame: &[u8],
    inbound: &mut Inbound,
    host: &mut H,
) -> Result<(), InboundFault> {
    inbound.take_recv_from(settings, None, host)?;
    if frame.len() as u64 > inbound.room_bytes() {
        return Err(InboundFault::TooLong(inbound.room_for(frame.len() as u64)));
    }
    inbound.scatter(0, frame, host)?;
    let length_bytes = u32::try_from(frame.len()).unwrap_or(u32::MAX);
    let completion = inbound.plain_completion(settings, WcOpcode::Recv, length_bytes);
    inbound.judge(settings, &completion, host)?;
    inbound.finish(settings, completion, false, host);
    inbound.messages += 1;
    Ok(())
}
