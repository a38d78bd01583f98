//! What `share` asks of the operating system, in one place: files with their locks, mapped memory, the clock,
//! the UDP sockets of a group, and this process's number and user.
//!
//! The rest of `share` makes no system call of its own, so that the tests can put another system below it: a
//! model of the kernel (`simulation`) in which processes run, stop and die in an order that a seed decides.
//! The library itself is built with [`real`] only, and its types are the standard library's in a thin coat.

mod memory;
mod real;
mod ring_pages;
#[cfg(test)]
mod switch;

pub(super) use ring_pages::{RingFile, RingPages};

#[cfg(not(test))]
pub(super) use memory::SharedMemory;
#[cfg(not(test))]
pub(crate) use real::*;
#[cfg(test)]
pub(crate) use switch::*;

/// What keeps processes from harm. The simulation takes it out, to show that it finds the harm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Guard {
    /// Sockets have names in a folder of this user's, not names that any user may take.
    #[cfg_attr(not(test), expect(dead_code, reason = "only the simulated system has names without it"))]
    PrivateNames,
    /// Nothing is sent to the name of a process index without an owner.
    OwnerBeforeRelay,
    /// A stopped process serves no other process.
    AroundStopped,
    /// Requests are steered to the process that listens.
    RequestsToListeners,
}

/// What the file system says about a file or a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct About {
    pub(super) is_file: bool,
    pub(super) is_folder: bool,
    /// Its owner.
    pub(super) uid: u32,
    /// Its access rights, and in the higher bits its kind.
    pub(super) mode: u32,
    /// How many names it has.
    pub(crate) names: u64,
    pub(super) length_bytes: u64,
    pub(super) device: u64,
    pub(super) inode: u64,
}
