//! Sockets by the descriptor that programs know them by.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::c_int;
use std::sync::{Arc, PoisonError, RwLock, TryLockError};

use pumice_device::outside::lineage::PerProcess;

use super::datagram::DatagramSocket;
use super::interest::Interest;
use super::stream::StreamSocket;
use crate::ground::errno::Errno;
use crate::ground::inherited::refuse;
use crate::ground::system_call::{close, is_open};

/// What a descriptor stands for.
#[derive(Clone)]
pub(crate) enum Socket {
    Stream(Arc<StreamSocket>),
    Datagram(Arc<DatagramSocket>),
    Epoll(Arc<Interest>),
}

/// The sockets of a process. Those of its parent, if it is a fork child, stay the parent's, and so does what
/// they would release.
#[derive(Default)]
struct Table {
    sockets: BTreeMap<c_int, Socket>,
    /// Descriptors of the parent's sockets that were closed here.
    closed: BTreeSet<c_int>,
}

static TABLE: PerProcess<RwLock<Table>> = PerProcess::new(|_| RwLock::default());

/// Adds a socket.
pub(crate) fn insert(descriptor: c_int, socket: Socket) {
    let mut table = TABLE.write().unwrap_or_else(PoisonError::into_inner);
    table.sockets.insert(descriptor, socket);
    // The number means another file now.
    table.closed.insert(descriptor);
}

/// What became of a descriptor.
pub(crate) enum Removed {
    /// It is out of the table.
    Own(Socket),
    /// It was the parent's of this fork child, and is closed here.
    Inherited,
}

/// Takes a socket out, if there is one.
pub(crate) fn remove(descriptor: c_int) -> Option<Removed> {
    let mut table = TABLE.write().unwrap_or_else(PoisonError::into_inner);
    if let Some(own) = table.sockets.remove(&descriptor) {
        return Some(Removed::Own(own));
    }
    if !is_parents(&table, descriptor) {
        return None;
    }
    // Only the descriptor is the child's: its connection stays the parent's.
    table.closed.insert(descriptor);
    close(descriptor);
    Some(Removed::Inherited)
}

/// Whether a descriptor that stands for no socket of this process stands for one of the process that this one
/// was forked from.
fn is_parents(own: &Table, descriptor: c_int) -> bool {
    !own.closed.contains(&descriptor)
        && TABLE.inherited().any(|table| match table.try_read() {
            Ok(table) => table.sockets.contains_key(&descriptor),
            Err(TryLockError::Poisoned(table)) => table.into_inner().sockets.contains_key(&descriptor),
            // A thread of the parent was changing it at the fork.
            Err(TryLockError::WouldBlock) => is_open(descriptor),
        })
}

/// The socket of a descriptor, if it stands for one.
pub(crate) fn find(descriptor: c_int) -> Option<Socket> {
    TABLE.read().unwrap_or_else(PoisonError::into_inner).sockets.get(&descriptor).cloned()
}

/// All streams there are.
pub(crate) fn streams() -> Vec<(c_int, Arc<StreamSocket>)> {
    let table = TABLE.read().unwrap_or_else(PoisonError::into_inner);
    let stream = |(descriptor, socket): (&c_int, &Socket)| match socket {
        Socket::Stream(stream) => Some((*descriptor, Arc::clone(stream))),
        _ => None,
    };
    table.sockets.iter().filter_map(stream).collect()
}

/// The socket of a descriptor.
///
/// # Errors
/// EBADF: it stands for none of this process's.
pub(crate) fn socket(descriptor: c_int) -> Result<Socket, Errno> {
    let table = TABLE.read().unwrap_or_else(PoisonError::into_inner);
    match table.sockets.get(&descriptor) {
        Some(socket) => Ok(socket.clone()),
        None => {
            if is_parents(&table, descriptor) {
                // For sockets that has its own errno.
                refuse("socket");
            }
            Err(Errno(libc::EBADF))
        }
    }
}
