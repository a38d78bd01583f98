//! Memory: buffers that change, overlap or go while posted requests use them, and keys of regions that are
//! gone.
//!
//! What a posted request uses is remembered as ranges of process addresses; contents as checksums, of all
//! bytes up to [`payload::MAX_BYTES`], beyond of blocks. Nothing is found of what is not remembered.

mod changes;
mod freed;
mod hear;
mod overlaps;
mod payload;
mod regions;
mod requests;
mod span;
mod state;
#[cfg(test)]
mod tests;

pub use payload::Read;
pub(super) use state::Memory;
pub use state::{Fill, OwnStack, Watch};
