//! The operating system as `share` uses it, in one place: files with their locks, mapped memory, the clock,
//! the UDP sockets of a group, and this process's number and user.
//!
//! The rest of `share` makes no system call of its own, so that the tests can put another system below it: a
//! model of the kernel (`simulation`) in which processes run, stop and die in an order that a seed decides.
//! The library itself is built with [`real`] only, and its types are thin wrappers of the standard library's.

pub(crate) mod datagram;
pub(crate) mod medium;
mod memory;
mod real;
mod ring_pages;
#[cfg(test)]
mod switch;

pub(crate) use ring_pages::{RingFile, RingPages, can_stream};

#[cfg(not(test))]
pub(crate) use memory::SharedMemory;
#[cfg(not(test))]
pub(crate) use real::*;
#[cfg(test)]
pub(crate) use switch::*;

/// A measure that protects processes. The simulation switches it off, to show that it finds the damage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Guard {
    /// Sockets have names in a folder of this user's, not names that any user may take.
    #[cfg_attr(not(test), expect(dead_code, reason = "only the simulated system has names without it"))]
    PrivateNames,
    /// Senders send nothing to the name of a process index without an owner.
    OwnerBeforeRelay,
    /// A stopped process serves no other process.
    AroundStopped,
    /// Requests are steered to the process that listens.
    RequestsToListeners,
}

/// Metadata of a file or a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileInfo {
    pub(crate) is_file: bool,
    pub(crate) is_folder: bool,
    /// Owner's user ID.
    pub(crate) uid: u32,
    /// Access rights, and in the higher bits the kind.
    pub(crate) mode: u32,
    /// Number of names (links).
    pub(crate) names: u64,
    pub(crate) length_bytes: u64,
    pub(crate) device: u64,
    pub(crate) inode: u64,
}
