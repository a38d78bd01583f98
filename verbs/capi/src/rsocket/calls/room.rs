//! Types that several calls need: the stream of a descriptor, and the program's memory for an address or a
//! value.

use std::ffi::{c_int, c_void};
use std::net::SocketAddr;
use std::sync::Arc;

use libc::{msghdr, socklen_t};

use crate::platform::errno::{Errno, NOT_SUPPORTED};
use crate::rdma_cm::address::socket_address;
use crate::rsocket::sockets::stream::StreamSocket;
use crate::rsocket::sockets::table::{Socket, socket};

/// Returns an open stream.
pub(super) fn stream(descriptor: c_int) -> Result<Arc<StreamSocket>, Errno> {
    match socket(descriptor)? {
        Socket::Stream(stream) => Ok(stream),
        Socket::Datagram(_) => Err(NOT_SUPPORTED),
        Socket::Epoll(_) => Err(Errno(libc::ENOTSOCK)),
    }
}

/// A program's pointer to memory for an address or a value, as a call gets it: null, or as many bytes as the
/// length that comes with it.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct OutputPointer(*mut c_void);

impl OutputPointer {
    pub(super) const NULL: OutputPointer = OutputPointer(std::ptr::null_mut());

    /// Returns the memory for a name of a message.
    pub(super) const fn of_name(message: &msghdr) -> OutputPointer {
        OutputPointer(message.msg_name)
    }

    pub(super) const fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// Writes as many bytes as there is room for, and returns their number.
    fn write(self, bytes: &[u8], room: socklen_t) -> socklen_t {
        let length = if self.is_null() { 0 } else { bytes.len().min(room as usize) };
        // SAFETY: the program's memory has at least this many bytes, if any are written.
        unsafe { self.0.cast::<u8>().copy_from(bytes.as_ptr(), length) };
        length as socklen_t
    }

    /// Writes an address to the program's memory, as much of it as there is room for.
    pub(super) fn show_address(self, shown: SocketAddr, length: Option<&mut socklen_t>) {
        let Some(length) = length else { return };
        let bytes = socket_address::bytes(shown);
        self.write(&bytes, *length);
        *length = bytes.len() as socklen_t;
    }

    /// Writes a value to the program's memory, as much of it as there is room for.
    ///
    /// # Errors
    /// Fails with EFAULT if there is no memory.
    pub(super) fn show_value(self, bytes: &[u8], length: Option<&mut socklen_t>) -> Result<(), Errno> {
        let length = length.filter(|_| !self.is_null()).ok_or(Errno(libc::EFAULT))?;
        *length = self.write(bytes, *length);
        Ok(())
    }
}
