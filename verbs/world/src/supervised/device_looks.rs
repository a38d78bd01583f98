//! Looks of the library's own threads at the device of their process, in a world of exact time.
//!
//! Such a thread drives the device whenever the program does not. It can find only what this process has
//! done, packets that were handed over to it, and what is due; hints of the program's own threads say when
//! that is. So it looks far less often than a thread of the program, which may look at memory as well. While
//! a thread of the program polls the device, it need not look at all.

use super::look::LookedFor;
use super::points::{NEVER, UNKNOWN};
use super::state::Segment;
use super::supervisor::Supervisor;
use super::threads::ThreadId;

impl Supervisor {
    /// Notes that a thread is about to run.
    pub(crate) fn begin_segment(&mut self, id: ThreadId) {
        let Some(process) = self.threads.get(id).map(|thread| thread.process) else { return };
        let occasion = self.turns.occasions.of_devices(process);
        self.turns.segment = Some(Segment { id, process, occasion });
    }

    /// Notes that a thread has run. If it has not said what that means for the device of its process, a look
    /// may find something.
    pub(crate) fn end_segment(&mut self) {
        if let Some(segment) = self.turns.segment.take() {
            self.turns.occasions.on_devices(segment.process);
        }
    }

    /// Notes when the devices of a process have something to do, as one of its threads says, which may have
    /// looked at them just now.
    pub(crate) fn note_devices(&mut self, id: ThreadId, due_ns: u64, has_looked: bool) {
        let Some(segment) = self.turns.segment.take_if(|segment| segment.id == id) else { return };
        let Some(process) = self.threads.processes.get_mut(&segment.process) else { return };
        process.devices.due_ns = due_ns;
        if has_looked {
            process.devices.looked = process.devices.looked.max(segment.occasion);
        }
        if due_ns <= self.time.clock.now_ns() {
            self.turns.occasions.on_devices(segment.process);
        }
    }

    /// Serves the hint of a thread of the library that has looked at a device in vain, and looks again at
    /// `end_ns` in any case. Times are of the monotonic clock.
    pub(crate) fn found_no_work(&mut self, id: ThreadId, end_ns: u64, due_ns: u64, device: u64) {
        let (end_ns, due_ns) = (self.world_ns(end_ns), self.world_ns(due_ns));
        let Some(thread) = self.threads.get_mut(id) else { return };
        (thread.polls.idle_poll, thread.polls.calls_in_row) = (true, 0);
        thread.polls.idle_polls = thread.polls.idle_polls.saturating_add(1);
        let number = thread.process;
        let Some(process) = self.threads.processes.get_mut(&number) else { return };
        if !process.devices.looks_at(device) {
            let looked_for = LookedFor { what: device, is_told: true, of_devices: false };
            return self.park(id, end_ns.min(due_ns), looked_for);
        }
        // What is due by now cannot be done now: this thread looks again when something has changed.
        let due_ns = if due_ns > self.time.clock.now_ns() { due_ns } else { NEVER };
        self.note_devices(id, due_ns, true);
        self.park(id, end_ns, LookedFor { what: device, is_told: true, of_devices: true });
    }

    /// Returns the time of the world for one of the monotonic clock.
    pub(crate) fn world_ns(&self, shown_ns: u64) -> u64 {
        match shown_ns {
            UNKNOWN | NEVER => shown_ns,
            shown_ns => self.time.clock.until(libc::CLOCK_MONOTONIC, shown_ns),
        }
    }
}
