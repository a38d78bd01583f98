//! Facts about file systems: each has the same size in every world, and half of it is free.

use super::serve::{CallOutcome, UNCHANGED};
use super::supervisor::Supervisor;
use super::threads::{Call, ThreadId};
use crate::error::WorldError;

/// Offset of the five numbers of blocks and files in a `statfs` structure, in bytes, and the id behind them.
const NUMBERS_AT: u64 = 16;
/// Number of blocks and of files.
const BLOCKS: u64 = 1 << 28;
const FILES: u64 = 1 << 24;

impl Supervisor {
    /// Serves `statfs` and `fstatfs`.
    pub(crate) fn describe_file_system(&mut self, id: ThreadId, call: Call) -> Result<(), WorldError> {
        let [_, structure, ..] = call.arguments();
        let CallOutcome::Result(result) = self.make(id, call, UNCHANGED)? else { return Ok(()) };
        if result == 0 {
            // Blocks: all, free, free for users. Files: all, free. The id of the file system.
            let numbers = [BLOCKS, BLOCKS / 2, BLOCKS / 2, FILES, FILES / 2, 1].map(u64::to_ne_bytes);
            // If the structure cannot be written, the call has reported it.
            let _ = self.tracee(id)?.write(structure.wrapping_add(NUMBERS_AT), numbers.as_flattened());
        }
        self.note(id, &call.name(), result)?;
        self.go(id, None)
    }
}
