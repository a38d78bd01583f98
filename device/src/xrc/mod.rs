//! XRC domains that processes share: a file per domain, beside the registry.
//!
//! The file holds, for each target, all that the target remembers ([`TargetRecord`]): the process that owns the
//! SRQ which a packet names takes the target's lock, loads the record, executes the packet, and writes the
//! record back before any answer leaves. So whoever dies at whatever point, the others go on with a state that
//! the peer knows.
//!
//! **Invariant**: who has the domain open is what the kernel says: each process holds a lock on a byte of the
//! file. A target lives while a process that is registered for it lives.
//!
//! **Invariant**: what is in the file is checked like a packet. Records are kept twice, with a checksum, so that
//! one half is whole whenever a writer is killed.

mod codec;
mod file;
mod record;
mod stability;

pub(crate) use codec::event_of;
pub(crate) use file::{DomainFile, Seen};
pub(crate) use record::TargetRecord;
pub(crate) use stability::is_stable;
