//! Waits for a signal that is then taken (`sigwait`, `sigtimedwait`).

use super::serve::CallOutcome;
use super::supervisor::Supervisor;
use super::system::TIMES_OF_CHILD;
use super::threads::{Call, ThreadId};
use super::tracee::Registers;
use super::waits::{Wait, WaitFor, Woken};
use crate::error::WorldError;

impl Supervisor {
    /// Serves `rt_sigtimedwait`: waits here if no such signal is pending.
    pub(crate) fn wait_for_signal(
        &mut self,
        id: ThreadId,
        call: Call,
        woken: Option<Woken>,
    ) -> Result<(), WorldError> {
        let tracee = self.tracee(id)?;
        let [_, about, timeout, ..] = call.arguments();
        let timeout_ns = if timeout == 0 { None } else { tracee.read_timespec(timeout).ok() };
        if woken.is_none() {
            self.turns.sleeps.remove(&id);
            if let Some(ns) = timeout_ns {
                self.turns.sleeps.insert(id, self.time.clock.now_ns().saturating_add(ns));
            }
        }
        // A time of zero is put below the stack, where the program has no data.
        let zero = call.registers.rsp.wrapping_sub(1024) & !15;
        if tracee.write(zero, &[0; 16]).is_err() {
            return self.answer(id, call, -i64::from(libc::EFAULT));
        }
        let without_waiting = |registers: &mut Registers| registers.rdx = zero;
        let CallOutcome::Result(result) = self.make(id, call, &without_waiting)? else { return Ok(()) };
        let looks_only = timeout_ns == Some(0) || woken == Some(Woken::TimedOut);
        if result == -i64::from(libc::EAGAIN) && !looks_only {
            let until_ns = self.turns.sleeps.get(&id).copied();
            return self.wait_again(id, call, Wait::new(WaitFor::Signal, until_ns));
        }
        if result == i64::from(libc::SIGCHLD) && about != 0 {
            let times = [0; TIMES_OF_CHILD.end - TIMES_OF_CHILD.start];
            let _ = tracee.write(about.wrapping_add(TIMES_OF_CHILD.start as u64), &times);
        }
        self.note(id, &call.name(), result)?;
        self.go(id, None)
    }
}
