//! XRC: domains, their targets, and targets that several processes execute together.
//!
//! A domain that a file names is open in several processes. Its targets belong to all of them: the process
//! that owns the SRQ which a packet names executes the packet. A file per domain, beside the registry, holds
//! for each target all that the target remembers (`record`, `codec`, `file`). That process takes the target's
//! lock, loads the record, executes the packet, and writes the record back before any answer leaves. If a
//! process dies at any point, the others go on with a state that the peer knows.
//!
//! * `domain` and `registrations` are the tables of this process: domains, targets, and who has them open.
//! * `target` is one shared target: [`TargetSharing::with`] runs an operation on a queue pair in its current
//!   state among all processes. The engine calls it through its entry of the queue pair, shared or not.
//! * `shared_targets` finds the targets of other processes, opens and closes targets together with these
//!   processes, and reads what they did. `forwarding` holds packets for other processes until the port is
//!   free.
//!
//! The modules know neither the objects of the device nor the table of queue pairs: [`TargetHost`] and
//! [`Entries`] say what they need of them.
//!
//! **Invariant**: which processes have the domain open is what the kernel says: each holds a lock on a byte
//! of the file. A target lives while a process that is registered for it lives.
//!
//! **Invariant**: what is in the file is checked like a packet. Records are stored twice, with a checksum, so
//! that one copy is whole whenever a writer is killed.

mod codec;
mod domain;
mod file;
mod forwarding;
mod record;
mod registrations;
mod shared_targets;
mod stability;
mod target;

pub use domain::XrcdFile;

pub use domain::XrcDomains;
#[cfg(test)]
pub(crate) use file::{DomainFile, RecordCheck};
#[cfg(test)]
pub(crate) use record::TargetRecord;
pub use registrations::{CREATOR, TargetClosed, TargetOpened};
pub use shared_targets::{Entries, SharedTargets};
pub use stability::is_stable;
pub use target::{TargetHost, TargetSharing, Unavailable};
