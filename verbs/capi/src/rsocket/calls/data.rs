//! Reading and writing, and mapping of memory for the peer.

use std::ffi::c_int;

use libc::{msghdr, off_t, socklen_t};
use pumice_calls::Call;

use super::{OutputPointer, stream};
use crate::entry::TRY_AGAIN;
use crate::entry::sockets::{attempt, count, number};
use crate::platform::threads::blocking;
use crate::platform::{Errno, INVALID, NOT_SUPPORTED};
use crate::rdma_cm::address::AddressPointer;
use crate::rsocket::parts::buffers::{Buffers, DataPointer, Vector, VectorsPointer, check};
use crate::rsocket::parts::event_thread::ReentryGuard;
use crate::rsocket::sockets::transfer::some_or;
use crate::rsocket::sockets::waiting::{Socket, socket};

pub(crate) extern "C-unwind" fn rrecv(
    descriptor: c_int,
    buf: DataPointer,
    len: usize,
    flags: c_int,
) -> isize {
    receive_one(Call::rrecv, descriptor, buf.vector(len), flags, OutputPointer::NULL, None)
}

pub(crate) extern "C-unwind" fn rrecvfrom(
    descriptor: c_int,
    buf: DataPointer,
    len: usize,
    flags: c_int,
    src_addr: OutputPointer,
    addrlen: Option<&mut socklen_t>,
) -> isize {
    receive_one(Call::rrecvfrom, descriptor, buf.vector(len), flags, src_addr, addrlen)
}

/// Receives into one buffer, for the call of this name.
#[inline(always)]
fn receive_one(
    call: Call,
    descriptor: c_int,
    into: Vector,
    flags: c_int,
    src_addr: OutputPointer,
    mut addrlen: Option<&mut socklen_t>,
) -> isize {
    in_attempts(call, |moved| {
        let list = [into];
        receive(descriptor, check(&list)?, moved, flags, src_addr, addrlen.as_deref_mut())
    })
}

pub(crate) extern "C-unwind" fn rrecvmsg(
    descriptor: c_int,
    mut msg: Option<&mut msghdr>,
    flags: c_int,
) -> isize {
    in_attempts(Call::rrecvmsg, |moved| {
        let msg = msg.as_deref_mut().ok_or(Errno(libc::EFAULT))?;
        let list = parts_of(msg)?;
        let name = OutputPointer::of_name(msg);
        let received = receive(descriptor, list, moved, flags, name, Some(&mut msg.msg_namelen))?;
        // Control data is never received.
        msg.msg_controllen = 0;
        msg.msg_flags = 0;
        Ok(received)
    })
}

fn parts_of<'a>(msg: &msghdr) -> Result<&'a [Vector], Errno> {
    VectorsPointer::of_message(msg).list(c_int::try_from(msg.msg_iovlen).map_err(|_| INVALID)?)
}

pub(crate) extern "C-unwind" fn rread(descriptor: c_int, buf: DataPointer, count: usize) -> isize {
    receive_one(Call::rread, descriptor, buf.vector(count), 0, OutputPointer::NULL, None)
}

pub(crate) extern "C-unwind" fn rreadv(descriptor: c_int, iov: VectorsPointer, iovcnt: c_int) -> isize {
    in_attempts(Call::rreadv, |moved| {
        receive(descriptor, iov.list(iovcnt)?, moved, 0, OutputPointer::NULL, None)
    })
}

pub(crate) extern "C-unwind" fn rsend(
    descriptor: c_int,
    buf: DataPointer,
    len: usize,
    flags: c_int,
) -> isize {
    send_one(Call::rsend, descriptor, buf.vector(len), flags, AddressPointer::NULL, 0)
}

pub(crate) extern "C-unwind" fn rsendto(
    descriptor: c_int,
    buf: DataPointer,
    len: usize,
    flags: c_int,
    dest_addr: AddressPointer,
    addrlen: socklen_t,
) -> isize {
    send_one(Call::rsendto, descriptor, buf.vector(len), flags, dest_addr, addrlen)
}

/// Sends from one buffer, for the call of this name.
#[inline(always)]
fn send_one(
    call: Call,
    descriptor: c_int,
    from: Vector,
    flags: c_int,
    dest_addr: AddressPointer,
    addrlen: socklen_t,
) -> isize {
    in_attempts(call, |moved| {
        let list = [from];
        send(descriptor, check(&list)?, moved, flags, dest_addr, addrlen)
    })
}

/// Sends a message. Control data (credentials, descriptors) cannot be sent: EOPNOTSUPP.
pub(crate) extern "C-unwind" fn rsendmsg(descriptor: c_int, msg: Option<&msghdr>, flags: c_int) -> isize {
    in_attempts(Call::rsendmsg, |moved| {
        let msg = msg.ok_or(Errno(libc::EFAULT))?;
        if !msg.msg_control.is_null() && msg.msg_controllen > 0 {
            return Err(NOT_SUPPORTED);
        }
        send(descriptor, parts_of(msg)?, moved, flags, AddressPointer::of_name(msg), msg.msg_namelen)
    })
}

pub(crate) extern "C-unwind" fn rwrite(descriptor: c_int, buf: DataPointer, count: usize) -> isize {
    send_one(Call::rwrite, descriptor, buf.vector(count), 0, AddressPointer::NULL, 0)
}

pub(crate) extern "C-unwind" fn rwritev(descriptor: c_int, iov: VectorsPointer, iovcnt: c_int) -> isize {
    in_attempts(Call::rwritev, |moved| send(descriptor, iov.list(iovcnt)?, moved, 0, AddressPointer::NULL, 0))
}

/// Makes attempts of the call of this name until one has a result; each gets the number of bytes that those
/// before have moved.
#[inline(always)]
fn in_attempts<F: FnMut(&mut usize) -> Result<isize, Errno>>(call: Call, mut one: F) -> isize {
    const { assert!(!std::mem::needs_drop::<F>(), "what the closure owns would be lost with the thread") };
    let mut moved = 0;
    blocking(isize::from(TRY_AGAIN), || attempt(call, || one(&mut moved)))
}

/// Continues with the part of a list that earlier attempts have left; returns how many bytes all of them have
/// moved.
///
/// # Errors
/// Fails with the errors of `step`, unless bytes were moved, and with RESTART even if bytes were moved.
fn go_on(
    list: &[Vector],
    moved: &mut usize,
    step: impl FnOnce(&mut Buffers<'_>) -> Result<usize, Errno>,
) -> Result<usize, Errno> {
    let mut buffers = Buffers::new(list);
    buffers.skip(*moved);
    let (before, left) = (*moved, buffers.left());
    let outcome = step(&mut buffers);
    *moved = before + (left - buffers.left());
    match outcome {
        Ok(now) => Ok(before + now),
        Err(errno) => some_or(before, errno),
    }
}

/// Sends from buffers; a datagram goes to an address, or the one that the socket is connected to.
fn send(
    descriptor: c_int,
    list: &[Vector],
    moved: &mut usize,
    flags: c_int,
    address: AddressPointer,
    length: socklen_t,
) -> Result<isize, Errno> {
    let _inside = ReentryGuard::enter();
    let sent = match socket(descriptor)? {
        // As for TCP, a stream has its peer already, and the address is ignored.
        Socket::Stream(stream) => go_on(list, moved, |from| stream.send(from, flags))?,
        Socket::Datagram(datagram) => {
            let to = if address.is_null() { None } else { Some(address.parse_within(length)?) };
            datagram.send(&mut Buffers::new(list), flags, to)?
        }
        Socket::Epoll(_) => return Err(Errno(libc::ENOTSOCK)),
    };
    Ok(sent as isize)
}

/// Receives into buffers; returns the length, and the source if it is a datagram.
fn receive(
    descriptor: c_int,
    list: &[Vector],
    moved: &mut usize,
    flags: c_int,
    address: OutputPointer,
    length: Option<&mut socklen_t>,
) -> Result<isize, Errno> {
    let _inside = ReentryGuard::enter();
    match socket(descriptor)? {
        Socket::Stream(stream) => {
            let received = go_on(list, moved, |into| stream.receive(into, flags))?;
            if let Some(peer) = stream.addresses().1.filter(|_| !address.is_null()) {
                address.show_address(peer, length);
            }
            Ok(received as isize)
        }
        Socket::Datagram(datagram) => {
            let (received, from) = datagram.receive(&mut Buffers::new(list), flags)?;
            address.show_address(from, length);
            Ok(received as isize)
        }
        Socket::Epoll(_) => Err(Errno(libc::ENOTSOCK)),
    }
}

/// Maps a buffer for the peer to write to; returns the offset by which it is known there, or -1.
pub(crate) extern "C" fn riomap(
    descriptor: c_int,
    buf: DataPointer,
    len: usize,
    prot: c_int,
    _flags: c_int,
    offset: off_t,
) -> off_t {
    let mapped = count(Call::riomap, || {
        let _inside = ReentryGuard::enter();
        Ok(stream(descriptor)?.map(buf, len, prot, offset)? as isize)
    });
    mapped as off_t
}

pub(crate) extern "C" fn riounmap(descriptor: c_int, buf: DataPointer, len: usize) -> c_int {
    number(Call::riounmap, || {
        let _inside = ReentryGuard::enter();
        stream(descriptor)?.unmap(buf, len)?;
        Ok(0)
    })
}

/// Writes to memory that the peer has mapped.
pub(crate) extern "C-unwind" fn riowrite(
    descriptor: c_int,
    buf: DataPointer,
    length: usize,
    offset: off_t,
    flags: c_int,
) -> usize {
    let written = in_attempts(Call::riowrite, |moved| {
        let _inside = ReentryGuard::enter();
        let from = [buf.vector(length)];
        let (stream, offset) = (stream(descriptor)?, (offset as u64).wrapping_add(*moved as u64));
        let written = go_on(check(&from)?, moved, |from| stream.write_mapped(from, offset, flags));
        Ok(written? as isize)
    });
    written as usize
}
