//! MRC 1.0 (Multipath Reliable Connection) as plain state without I/O: WRITEs over many paths at once.
//!
//! A queue pair sprays its packets over hundreds of entropy values. The responder places each packet in
//! memory on arrival and reports in bitmaps which packets have arrived. The requester retransmits missing
//! packets one by one, and avoids paths that lose packets. Each half has two layers: *reliability* handles
//! packets (window, bitmap, SACK, NACK, timers, paths), and *semantics* handles messages (their order and
//! completion).
//!
//! [`constants`] lists what this implementation chose where the published texts are silent or disagree.

pub mod congestion;
pub mod constants;
pub mod endpoint;
pub mod entropy;
pub mod paths;
mod queue_pair;
mod reliability;
mod requester;
mod responder;
mod semantics;
mod settings;
pub mod wire;

pub use queue_pair::{MrcPostError, MrcProgress, MrcQueuePair};
pub use settings::{MrcSettings, MrcStatistics, RequesterAttributes, ResponderAttributes};
