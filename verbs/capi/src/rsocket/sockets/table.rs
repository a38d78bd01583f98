//! Sockets by the descriptor that programs know them by.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::mem;
use std::sync::{Arc, PoisonError, RwLock};

use super::datagram::DatagramSocket;
use super::interest::Interest;
use super::stream::StreamSocket;
use crate::ground::errno::Errno;
use crate::ground::process::own_process;
use crate::ground::system_call::close;

/// What a descriptor stands for.
#[derive(Clone)]
pub(crate) enum Socket {
    Stream(Arc<StreamSocket>),
    Datagram(Arc<DatagramSocket>),
    Epoll(Arc<Interest>),
}

struct Table {
    process: u32,
    sockets: BTreeMap<c_int, Socket>,
}

static TABLE: RwLock<Table> = RwLock::new(Table { process: 0, sockets: BTreeMap::new() });

/// Adds a socket.
pub(crate) fn insert(descriptor: c_int, socket: Socket) {
    let mut table = TABLE.write().unwrap_or_else(PoisonError::into_inner);
    if table.process != own_process() {
        // A fork: these are the parent's, and so is what they would release.
        table.process = own_process();
        mem::forget(mem::take(&mut table.sockets));
    }
    table.sockets.insert(descriptor, socket);
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
    if table.process != own_process() {
        // Only the descriptor is the child's: its connection stays the parent's.
        if let Some(socket) = table.sockets.remove(&descriptor) {
            mem::forget(socket);
            close(descriptor);
            return Some(Removed::Inherited);
        }
        return None;
    }
    table.sockets.remove(&descriptor).map(Removed::Own)
}

/// The socket of a descriptor, if it stands for one.
pub(crate) fn find(descriptor: c_int) -> Option<Socket> {
    let table = TABLE.read().unwrap_or_else(PoisonError::into_inner);
    if table.process != own_process() {
        return None;
    }
    table.sockets.get(&descriptor).cloned()
}

/// All streams there are.
pub(crate) fn streams() -> Vec<(c_int, Arc<StreamSocket>)> {
    let table = TABLE.read().unwrap_or_else(PoisonError::into_inner);
    if table.process != own_process() {
        return Vec::new();
    }
    let stream = |(descriptor, socket): (&c_int, &Socket)| match socket {
        Socket::Stream(stream) => Some((*descriptor, Arc::clone(stream))),
        _ => None,
    };
    table.sockets.iter().filter_map(stream).collect()
}

/// The socket of a descriptor.
///
/// # Errors
/// EBADF: it stands for none.
pub(crate) fn socket(descriptor: c_int) -> Result<Socket, Errno> {
    find(descriptor).ok_or(Errno(libc::EBADF))
}
