//! Communication ids.

use core::fmt;

use crate::wire::ProcessIndex;

/// A communication id: names a connection at one of its ends; 0 stands for no connection.
///
/// The top byte is the index of the process, so that a process that gets a message for a connection knows
/// which process has the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct CommId(pub u32);

impl CommId {
    /// The id that stands for no connection.
    pub const NONE: CommId = CommId(0);

    /// Returns the id with this number, of which the low 24 bits count, in this process.
    pub const fn of(process: ProcessIndex, number: u32) -> CommId {
        CommId((process.value() as u32) << 24 | number & 0xff_ffff)
    }

    /// Returns the process that chose this id.
    pub const fn process(self) -> ProcessIndex {
        ProcessIndex::new((self.0 >> 24) as u8)
    }
}

impl fmt::Display for CommId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#010x}", self.0)
    }
}
