//! Niceness of processes: every world begins with 0, and the kernel does not hear of changes, because threads
//! go on as the world decides.

use super::supervisor::Supervisor;
use super::threads::{Call, ThreadId};
use crate::error::WorldError;

/// The call returns this less the niceness, so that no result looks like an error.
const RESULT_OF_ZERO: i32 = 20;
const LOWEST: i32 = -20;
const HIGHEST: i32 = 19;

impl Supervisor {
    /// Serves `getpriority`.
    pub(crate) fn report_niceness(&mut self, id: ThreadId, call: Call) -> Result<(), WorldError> {
        let process = self.process_of_priority(id, call);
        let found = process.and_then(|process| self.threads.processes.get(&process));
        let result = found.map_or(-libc::ESRCH, |process| RESULT_OF_ZERO - process.niceness);
        self.answer(id, call, i64::from(result))
    }

    /// Serves `setpriority`. No process may lower a niceness, which on other machines some users may.
    pub(crate) fn set_niceness(&mut self, id: ThreadId, call: Call) -> Result<(), WorldError> {
        let process = self.process_of_priority(id, call);
        let [_, _, wanted, ..] = call.arguments();
        let wanted = (wanted as i32).clamp(LOWEST, HIGHEST);
        let result = match process.and_then(|process| self.threads.processes.get_mut(&process)) {
            None => -libc::ESRCH,
            Some(process) if wanted < process.niceness => -libc::EACCES,
            Some(process) => {
                process.niceness = wanted;
                0
            }
        };
        self.answer(id, call, i64::from(result))
    }

    /// Returns the process that the first two arguments name: the calling one for 0, a group or a user.
    fn process_of_priority(&self, id: ThreadId, call: Call) -> Option<u32> {
        let [kind, who, ..] = call.arguments();
        let own = self.threads.get(id)?.process;
        if who as i32 == 0 || kind as u32 != libc::PRIO_PROCESS {
            return Some(own);
        }
        let has_number = |thread: &&super::threads::Thread| thread.tracee.number_inside() == Some(who as i32);
        self.threads.threads.values().find(has_number).map(|thread| thread.process)
    }
}
