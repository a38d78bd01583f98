//! Calls of this crate as fault plans see them: by the names that they have in C.

use std::time::Duration;

use pumice_calls::Call;
use pumice_device::event::Topics;
use pumice_device::hca::{CallEnd, Hca, HcaError};
use pumice_device::outside;
use pumice_transport::wire::Qpn;

use super::Device;
use crate::ground::error::{ListError, Result, VerbsError};

/// The errno of a queue that is full.
const ENOMEM: i32 = 12;

/// What a call answers that was refused.
pub(crate) trait Refusal: From<VerbsError> {
    /// Why.
    fn reason(&self) -> &VerbsError;
}

impl Refusal for VerbsError {
    fn reason(&self) -> &VerbsError {
        self
    }
}

impl Refusal for ListError {
    fn reason(&self) -> &VerbsError {
        &self.error
    }
}

/// A call, by its name in C, and what it is on.
#[derive(Clone, Copy)]
pub(crate) struct CallOn {
    call: Call,
    /// The queue pair that it is on.
    qpn: Option<Qpn>,
}

impl CallOn {
    /// A call that is on no queue pair.
    pub(crate) const fn new(call: Call) -> CallOn {
        CallOn { call, qpn: None }
    }

    /// The same on a queue pair.
    pub(crate) const fn on(self, qpn: Qpn) -> CallOn {
        CallOn { qpn: Some(qpn), ..self }
    }
}

impl Device {
    /// Makes a call, past the gate.
    ///
    /// # Errors
    /// What the call answers; `Planned`, `DeviceLost`; `Refused` in a process that was forked from the
    /// device's.
    pub(crate) fn call<T, E: Refusal>(
        &self,
        call: CallOn,
        run: impl FnOnce() -> std::result::Result<T, E>,
    ) -> std::result::Result<T, E> {
        if !self.hca().is_own() {
            return Err(VerbsError::refused("device")(HcaError::Inherited).into());
        }
        let gate = self.hca().calls();
        let entered = gate.enter(call.call, || self.hca().ordinal_of(call.qpn?));
        self.take_time(entered.delay_ns);
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
                self.look_if_full(call, error.reason());
                let (errno, why) = (error.reason().errno(), error.reason().to_string());
                gate.leave(&entered, CallEnd::Refused { errno, why: &why });
            }
        }
        outcome
    }

    /// Makes a call of the data path, which the gate looks at only if a plan is about calls.
    ///
    /// # Errors
    /// As [`Device::call`].
    #[inline]
    pub(crate) fn data_call<T, E: Refusal>(
        &self,
        hca: &Hca,
        call: CallOn,
        run: impl FnOnce() -> std::result::Result<T, E>,
    ) -> std::result::Result<T, E> {
        if !hca.calls().lets_pass() {
            return self.call(call, run);
        }
        let outcome = run();
        if let Err(error) = &outcome {
            self.look_if_full(call, error.reason());
            refused(hca, call, error.reason());
        }
        outcome
    }

    /// A post was refused: if the send queue is full, the check looks whether it can ever be free again.
    #[cold]
    fn look_if_full(&self, call: CallOn, why: &VerbsError) {
        if let (Some(check), Some(qpn)) = (self.check(), call.qpn)
            && call.call == Call::ibv_post_send
            && why.errno() == ENOMEM
        {
            check.send_queue_is_full(qpn);
        }
    }

    /// A rule of the plan delays a call.
    fn take_time(&self, delay_ns: u64) {
        match self.simulation() {
            _ if delay_ns == 0 => {}
            Some(simulation) => simulation.pass(delay_ns),
            None => outside::sleep(Duration::from_nanos(delay_ns)),
        }
    }
}

/// Tells of a call that was refused without being counted.
#[cold]
fn refused(hca: &Hca, call: CallOn, why: &VerbsError) {
    if hca.events().listen(Topics::CALLS) {
        hca.calls().refused(call.call, None, why.errno(), &why.to_string());
    }
}

/// A call that is not of the data path.
pub(crate) fn called<T>(device: &Device, call: Call, run: impl FnOnce() -> Result<T>) -> Result<T> {
    device.call(CallOn::new(call), run)
}
