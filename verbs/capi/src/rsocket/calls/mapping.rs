//! Mapping of memory for the peer, and writing to the peer's mappings.

use std::ffi::c_int;

use libc::off_t;
use pumice_calls::Call;

use super::data::{go_on, in_attempts};
use super::room::stream;
use crate::entry::outcome::sockets::{count, number};
use crate::rsocket::parts::buffers::{DataPointer, check};
use crate::rsocket::parts::reentry::ReentryGuard;

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
