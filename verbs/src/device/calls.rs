//! Calls of this crate by the names that they have in C, as fault plans know them.

use std::time::Duration;

use pumice_calls::Call;
use pumice_device::event::Topics;
use pumice_device::hca::{CallEnd, Hca, HcaError};
use pumice_device::outside;
use pumice_transport::types::QpState;
use pumice_transport::wire::Qpn;

use super::Device;
use crate::error::{ListError, Result, VerbsError};

/// The error of a call that was refused.
pub(crate) trait CallError: From<VerbsError> {
    /// Returns the reason.
    fn reason(&self) -> &VerbsError;
}

impl CallError for VerbsError {
    fn reason(&self) -> &VerbsError {
        self
    }
}

impl CallError for ListError {
    fn reason(&self) -> &VerbsError {
        &self.error
    }
}

/// A call, by its name in C, and its object.
#[derive(Clone, Copy)]
pub(crate) struct CallContext {
    call: Call,
    /// Queue pair that the call acts on.
    qpn: Option<Qpn>,
    /// State to which the call is to bring the queue pair.
    to: Option<QpState>,
}

impl CallContext {
    /// Creates a call that acts on no queue pair.
    pub(crate) const fn new(call: Call) -> CallContext {
        CallContext { call, qpn: None, to: None }
    }

    /// Sets the state to which the call is to bring its queue pair.
    pub(crate) const fn to_state(self, to: Option<QpState>) -> CallContext {
        CallContext { to, ..self }
    }

    /// Sets the queue pair of the call.
    pub(crate) const fn on(self, qpn: Qpn) -> CallContext {
        CallContext { qpn: Some(qpn), ..self }
    }
}

impl Device {
    /// Makes a call after the gate has admitted it.
    ///
    /// # Errors
    /// The error of the call; `Planned`, `DeviceLost`; `Refused` in a process that was forked from the
    /// device's.
    pub(crate) fn call<T, E: CallError>(
        &self,
        call: CallContext,
        run: impl FnOnce() -> std::result::Result<T, E>,
    ) -> std::result::Result<T, E> {
        if !self.hca().is_own() {
            return Err(VerbsError::refused("device")(HcaError::Inherited).into());
        }
        let gate = self.hca().calls();
        let entered = gate.enter(call.call, call.to, || self.hca().ordinal_of(call.qpn?));
        self.delay_call(entered.delay_ns);
        let outcome = match entered.refused {
            Some(_) if entered.is_lost => Err(VerbsError::DeviceLost.into()),
            Some(errno) => Err(VerbsError::Planned { call: call.call.name(), errno }.into()),
            None => run(),
        };
        match &outcome {
            Ok(_) => gate.leave(&entered, CallEnd::Done),
            Err(error) if matches!(error.reason(), VerbsError::TimedOut { .. }) => {
                gate.leave(&entered, CallEnd::Idle);
            }
            Err(error) => {
                self.check_full_queue(call, error.reason());
                let (errno, why) = (error.reason().errno(), error.reason().to_string());
                gate.leave(&entered, CallEnd::Refused { errno, why: &why });
            }
        }
        outcome
    }

    /// Makes a call of the data path, which the gate examines only if a plan has rules for calls.
    ///
    /// # Errors
    /// The errors of [`Device::call`].
    #[inline]
    pub(crate) fn data_call<T, E: CallError>(
        &self,
        hca: &Hca,
        call: CallContext,
        run: impl FnOnce() -> std::result::Result<T, E>,
    ) -> std::result::Result<T, E> {
        if !hca.calls().lets_pass() {
            return self.call(call, run);
        }
        let outcome = run();
        if let Err(error) = &outcome {
            self.check_full_queue(call, error.reason());
            refused(hca, call, error.reason());
        }
        outcome
    }

    /// Notifies the check if a post was refused because the send queue is full; the check examines whether it
    /// can ever be free again.
    #[cold]
    fn check_full_queue(&self, call: CallContext, why: &VerbsError) {
        if let (Some(check), Some(qpn)) = (self.check(), call.qpn)
            && call.call == Call::ibv_post_send
            && is_full(why)
        {
            check.send_queue_is_full(qpn);
        }
    }

    /// Delays a call as a rule of the plan says.
    fn delay_call(&self, delay_ns: u64) {
        match self.simulation() {
            _ if delay_ns == 0 => {}
            Some(simulation) => simulation.pass(delay_ns),
            None => outside::sleep(Duration::from_nanos(delay_ns)),
        }
    }
}

/// Reports whether a post was refused because the send queue is full.
fn is_full(why: &VerbsError) -> bool {
    let VerbsError::Refused { error: HcaError::Post { error, .. }, .. } = why else { return false };
    error.is_queue_full()
}

/// Reports a call that was refused without being counted.
#[cold]
fn refused(hca: &Hca, call: CallContext, why: &VerbsError) {
    if hca.events().listen(Topics::CALLS) {
        hca.calls().refused(call.call, None, why.errno(), &why.to_string());
    }
}

/// Makes a call that is not of the data path.
pub(crate) fn gated_call<T>(device: &Device, call: Call, run: impl FnOnce() -> Result<T>) -> Result<T> {
    device.call(CallContext::new(call), run)
}
