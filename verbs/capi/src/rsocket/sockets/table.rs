//! The table of sockets, by the descriptor that programs know them by.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::c_int;
use std::sync::{Arc, PoisonError, RwLock, TryLockError};

use pumice_device::outside::fork_generation::PerProcess;

use super::datagram::DatagramSocket;
use super::interest::EpollInterest;
use super::stream::StreamSocket;
use crate::log::inherited::refuse;
use crate::platform::errno::Errno;
use crate::platform::system_call::{close, is_open};

/// An object that a descriptor stands for.
#[derive(Clone)]
pub(crate) enum Socket {
    Stream(Arc<StreamSocket>),
    Datagram(Arc<DatagramSocket>),
    Epoll(Arc<EpollInterest>),
}

/// The sockets of a process. If it is a forked child, its parent's sockets remain the parent's, with all that
/// they would release.
#[derive(Default)]
struct SocketTable {
    sockets: BTreeMap<c_int, Socket>,
    /// Descriptors of the parent's sockets that were closed here.
    closed: BTreeSet<c_int>,
}

static TABLE: PerProcess<RwLock<SocketTable>> = PerProcess::new(|_| RwLock::default());

/// Adds a socket.
pub(crate) fn insert(descriptor: c_int, socket: Socket) {
    let mut table = TABLE.write().unwrap_or_else(PoisonError::into_inner);
    table.sockets.insert(descriptor, socket);
    // The number means another file now.
    table.closed.insert(descriptor);
}

/// Result of removing a descriptor.
pub(crate) enum RemovedSocket {
    /// The socket was removed from the table.
    Own(Socket),
    /// The descriptor was that of the parent of this forked child, and is closed here.
    Inherited,
}

/// Removes a socket, if there is one.
pub(crate) fn remove(descriptor: c_int) -> Option<RemovedSocket> {
    let mut table = TABLE.write().unwrap_or_else(PoisonError::into_inner);
    if let Some(own) = table.sockets.remove(&descriptor) {
        return Some(RemovedSocket::Own(own));
    }
    if !is_parents(&table, descriptor) {
        return None;
    }
    // Only the descriptor is the child's: its connection remains the parent's.
    table.closed.insert(descriptor);
    close(descriptor);
    Some(RemovedSocket::Inherited)
}

/// Reports whether a descriptor of no socket of this process is that of a socket of the process that this one
/// was forked from.
fn is_parents(own: &SocketTable, descriptor: c_int) -> bool {
    !own.closed.contains(&descriptor)
        && TABLE.inherited().any(|table| match table.try_read() {
            Ok(table) => table.sockets.contains_key(&descriptor),
            Err(TryLockError::Poisoned(table)) => table.into_inner().sockets.contains_key(&descriptor),
            // A thread of the parent was changing the table at the fork.
            Err(TryLockError::WouldBlock) => is_open(descriptor),
        })
}

/// Returns the socket of a descriptor, if there is one.
pub(crate) fn find(descriptor: c_int) -> Option<Socket> {
    TABLE.read().unwrap_or_else(PoisonError::into_inner).sockets.get(&descriptor).cloned()
}

/// Returns all streams.
pub(crate) fn streams() -> Vec<(c_int, Arc<StreamSocket>)> {
    let table = TABLE.read().unwrap_or_else(PoisonError::into_inner);
    let stream = |(descriptor, socket): (&c_int, &Socket)| match socket {
        Socket::Stream(stream) => Some((*descriptor, Arc::clone(stream))),
        _ => None,
    };
    table.sockets.iter().filter_map(stream).collect()
}

/// Returns the socket of a descriptor.
///
/// # Errors
/// Fails with EBADF if this process has no socket of this descriptor.
pub(crate) fn socket(descriptor: c_int) -> Result<Socket, Errno> {
    let table = TABLE.read().unwrap_or_else(PoisonError::into_inner);
    match table.sockets.get(&descriptor) {
        Some(socket) => Ok(socket.clone()),
        None => {
            if is_parents(&table, descriptor) {
                // For sockets this has its own errno.
                refuse("socket");
            }
            Err(Errno(libc::EBADF))
        }
    }
}
