//! The receiving side of raw packet queue pairs: a frame is a message. The device decides by its rules which
//! frames a queue pair gets.

use super::inbound::{BufferFailure, Fault, Inbound};
use super::settings::Settings;
use super::{QueuePair, Receiver};
use crate::event::Actor;
use crate::host::{Counter, Host};
use crate::types::{Cause, Detail, QpState, WcOpcode};
use crate::wire::Psn;

/// A frame that a queue pair did not take, and what counts it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameDropped(pub Counter);

impl QueuePair {
    /// An Ethernet frame for this raw packet queue pair, from the destination address on.
    ///
    /// # Errors
    /// It is dropped: the queue pair is not ready to receive, or has no receive request.
    pub fn handle_frame<H: Host>(&mut self, frame: &[u8], host: &mut H) -> Result<(), FrameDropped> {
        let receptive = matches!(self.state, QpState::Rtr | QpState::Rts | QpState::Sqd | QpState::Sqe);
        let Receiver::Datagram(inbound) = &mut self.receiver else {
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
                    self.enter_error_by(Actor::Responder, host);
                    Ok(())
                }
                None => {
                    let (psn, reason) = (Psn::new(0), fault.reason());
                    let cause = Cause::MessageDropped { psn, reason, detail: Detail::None };
                    host.log(&self.settings.context, cause);
                    Err(FrameDropped(Counter::RxNoReceive))
                }
            },
        }
    }
}

/// Stores the frame in the next receive request, and completes that.
///
/// # Errors
/// There is none, or it cannot hold the frame: it has been taken, not completed.
fn store<H: Host>(
    settings: &Settings,
    frame: &[u8],
    inbound: &mut Inbound,
    host: &mut H,
) -> Result<(), Fault> {
    inbound.take_recv_from(settings, None, host)?;
    if frame.len() as u64 > inbound.room_bytes() {
        return Err(Fault::TooLong(inbound.room_for(frame.len() as u64)));
    }
    inbound.scatter(0, frame, host)?;
    let length_bytes = u32::try_from(frame.len()).unwrap_or(u32::MAX);
    let completion = inbound.plain_completion(settings, WcOpcode::Recv, length_bytes);
    inbound.judge(settings, &completion, host)?;
    inbound.finish(settings, completion, false, host);
    inbound.messages += 1;
    Ok(())
}
