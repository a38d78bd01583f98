//! XRC: domains, their targets, and what makes one target be several processes.
//!
//! A domain that a file names is open in several processes. Its targets belong to all of them: the process
//! that owns the SRQ which a packet names executes the packet. A file per domain, beside the registry, holds
//! for each target all that the target remembers (`record`, `codec`, `file`). That process takes the target's
//! lock, loads the record, executes the packet, and writes the record back before any answer leaves. If a
//! process dies at any point, the others go on with a state that the peer knows.
//!
//! * `domain` and `registrations` are the tables of this process: domains, targets, and who has them open.
//! * `target` is one shared target: [`Sharing::with`] lets something happen to a queue pair as it is now
//!   among all processes. The engine calls it through its entry of the queue pair, shared or not.
//! * `shared_targets` finds the targets of other processes, opens and closes targets together with these
//!   processes, and learns what they did. `forwarding` holds packets for other processes until the port is
//!   free.
//!
//! The wing knows neither the objects of the device nor the table of queue pairs: [`TargetHost`] and
//! [`Entries`] say what it needs of them.
//!
//! **Invariant**: which processes have the domain open is what the kernel says: each holds a lock on a byte
//! of the file. A target lives while a process that is registered for it lives.
//!
//! **Invariant**: what is in the file is checked like a packet. Records are kept twice, with a checksum, so
//! that one half is whole whenever a writer is killed.

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
pub(crate) use file::{DomainFile, Seen};
#[cfg(test)]
pub(crate) use record::TargetRecord;
pub use registrations::{CREATOR, TargetClosed, TargetOpened};
pub use shared_targets::{Entries, SharedTargets};
pub use stability::is_stable;
pub use target::{Sharing, TargetHost, Unavailable};
