//! Channels: where a program hears of its identifiers.

use std::collections::VecDeque;
use std::ffi::c_int;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use pumice_device::gsi::CmChannel;

use super::acknowledgement::Reader;
use super::event::{self, Event, Said};
use super::id::Id;
use super::registry::registry;
use super::shared::shared;
use super::translation::translate;
use crate::ground::abi::{rdma_cm_event, rdma_event_channel};
use crate::ground::cancellation::{RESTART, attempt_ends, blocking};
use crate::ground::errno::{Errno, INVALID};
use crate::ground::handles::{Held, Shown, hand_out};
use crate::ground::outcome::{TRY_AGAIN, attempt, pointer, value};
use crate::ground::process::own_thread;
use crate::rsocket::bell;

/// A channel: the device's events, and those that this library makes itself. Its descriptor is an epoll
/// instance over both, readable while there are any.
#[repr(C)]
pub(crate) struct Channel {
    c: Shown<rdma_event_channel>,
    poll: OwnedFd,
    device: Arc<CmChannel>,
    local: Mutex<VecDeque<(LocalEvent, Said)>>,
    local_waits: OwnedFd,
    reader: Reader,
}

// SAFETY: the C structure is not written after it is made.
unsafe impl Send for Channel {}
// SAFETY: as above.
unsafe impl Sync for Channel {}
// SAFETY: the first field is the C structure.
unsafe impl Held for Channel {
    type C = rdma_event_channel;
}

/// An event without a message of the peer's.
pub(crate) struct LocalEvent {
    pub(crate) id: Arc<Id>,
    pub(crate) event: u32,
    /// 0 or a negative errno.
    pub(crate) status: c_int,
}

fn descriptor(fd: c_int) -> Result<OwnedFd, Errno> {
    if fd < 0 {
        return Err(Errno(crate::ground::errno::errno()));
    }
    // SAFETY: it is new, and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

impl Channel {
    /// An empty channel.
    ///
    /// # Errors
    /// No descriptors are to be had.
    pub(crate) fn new() -> Result<Arc<Channel>, Errno> {
        let device = Arc::new(CmChannel::new()?);
        // SAFETY: no memory is involved.
        let (poll, local_waits) = unsafe {
            (
                descriptor(libc::epoll_create1(libc::EPOLL_CLOEXEC))?,
                descriptor(libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK))?,
            )
        };
        for fd in [device.as_fd().as_raw_fd(), local_waits.as_raw_fd()] {
            let mut interest = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
            // SAFETY: a live structure.
            if unsafe { libc::epoll_ctl(poll.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, &mut interest) } != 0 {
                return Err(Errno(crate::ground::errno::errno()));
            }
        }
        let c = Shown::new(rdma_event_channel { fd: poll.as_raw_fd() });
        Ok(Arc::new(Channel {
            c,
            poll,
            device,
            local: Mutex::default(),
            local_waits,
            reader: Reader::default(),
        }))
    }

    /// The channel behind a program's pointer.
    ///
    /// # Safety
    /// `channel` is null, or of this library and not destroyed.
    pub(crate) unsafe fn of(channel: *mut rdma_event_channel) -> Option<Arc<Channel>> {
        if channel.is_null() {
            return None;
        }
        let channel = channel.cast_const().cast::<Channel>();
        // SAFETY: the caller's promise: it is an `Arc`'s.
        Some(unsafe {
            Arc::increment_strong_count(channel);
            Arc::from_raw(channel)
        })
    }

    /// The program's pointer.
    pub(crate) const fn as_ptr(&self) -> *mut rdma_event_channel {
        self.c.as_ptr()
    }

    pub(crate) const fn device(&self) -> &Arc<CmChannel> {
        &self.device
    }

    /// Queues an event of this library's own.
    pub(crate) fn push(&self, event: LocalEvent) {
        self.push_saying(event, Said::Nothing);
    }

    /// As [`Channel::push`], with what the event says.
    pub(crate) fn push_saying(&self, event: LocalEvent, said: Said) {
        self.change_local(|local| local.push_back((event, said)));
    }

    /// Drops what waits of an identifier and says this.
    pub(crate) fn retract(&self, id: &Arc<Id>, says: impl Fn(&Said) -> bool) {
        self.change_local(|local| local.retain(|(event, said)| !(Arc::ptr_eq(&event.id, id) && says(said))));
    }

    /// Drops what waits of an identifier.
    pub(crate) fn forget(&self, id: &Arc<Id>) {
        self.change_local(|local| local.retain(|(event, _)| !Arc::ptr_eq(&event.id, id)));
    }

    /// Moves what waits of an identifier to another channel.
    pub(crate) fn move_local(&self, id: &Arc<Id>, to: &Channel) {
        let moved = self.change_local(|local| {
            let (moved, stay) = local.drain(..).partition(|(event, _)| Arc::ptr_eq(&event.id, id));
            *local = stay;
            let moved: VecDeque<(LocalEvent, Said)> = moved;
            moved
        });
        moved.into_iter().for_each(|(event, said)| to.push_saying(event, said));
    }

    /// Changes the queue, and says by the descriptor whether anything is in it.
    fn change_local<T>(&self, change: impl FnOnce(&mut VecDeque<(LocalEvent, Said)>) -> T) -> T {
        let mut local = self.local.lock().unwrap_or_else(PoisonError::into_inner);
        let before = local.len();
        let result = change(&mut local);
        let fd = self.local_waits.as_raw_fd();
        let mut word = 1_u64;
        // SAFETY: eight bytes, as an eventfd takes and gives; it is non-blocking.
        unsafe {
            if local.len() > before {
                libc::write(fd, (&raw const word).cast(), 8);
            } else if local.is_empty() && before != 0 {
                libc::read(fd, (&raw mut word).cast(), 8);
            }
        }
        result
    }

    /// The next event, if there is one.
    ///
    /// # Errors
    /// Those of opening the device.
    pub(crate) fn take(&self) -> Result<Option<Event>, Errno> {
        let mut registry = registry();
        if let Some((event, said)) = self.change_local(VecDeque::pop_front) {
            return Ok(Some(event::local(event, said)));
        }
        let shared = shared()?;
        while let Some(event) = shared.hca().cm_event(&self.device) {
            if let Some(event) = translate(&mut registry, shared, event) {
                return Ok(Some(event));
            }
        }
        Ok(None)
    }

    /// Sleeps until there may be an event.
    fn sleep(&self) -> Result<(), Errno> {
        let ends = attempt_ends();
        let mut entry = [libc::pollfd { fd: self.poll.as_raw_fd(), events: libc::POLLIN, revents: 0 }];
        match bell::poll(&mut entry, ends) {
            Ok(0) if ends.is_some_and(|end| end <= Instant::now()) => Err(RESTART),
            Ok(_) => Ok(()),
            Err(errno) => {
                self.reader.is_at(false);
                Err(errno)
            }
        }
    }

    fn is_nonblocking(&self) -> bool {
        // SAFETY: no memory is involved.
        unsafe { libc::fcntl(self.poll.as_raw_fd(), libc::F_GETFL) & libc::O_NONBLOCK != 0 }
    }
}

pub(crate) unsafe extern "C" fn rdma_create_event_channel() -> *mut rdma_event_channel {
    pointer(|| {
        // Without a device there is nothing to hear of.
        shared()?;
        Ok(Arc::into_raw(Channel::new()?).cast_mut().cast())
    })
}

/// Identifiers that are still on it keep what they need of it. A thread that waits in it, or is about to, waits for
/// ever, as in rdma-core; the channel then stays.
pub(crate) unsafe extern "C" fn rdma_destroy_event_channel(channel: *mut rdma_event_channel) {
    value((), || {
        if channel.is_null() {
            return;
        }
        // SAFETY: the program gives back what it was handed.
        let channel = unsafe { Arc::from_raw(channel.cast_const().cast::<Channel>()) };
        if !channel.is_nonblocking() && channel.reader.stays() {
            mem::forget(channel);
        }
    });
}

/// The next event of a channel: waits for it unless the descriptor is O_NONBLOCK (EAGAIN). A signal
/// ends the wait (EINTR). A thread that waits can be cancelled.
pub(crate) unsafe extern "C-unwind" fn rdma_get_cm_event(
    channel: *mut rdma_event_channel,
    event: *mut *mut rdma_cm_event,
) -> c_int {
    blocking(c_int::from(TRY_AGAIN), || {
        attempt(|| {
            // SAFETY: the caller's promise.
            unsafe { next_event(channel, event) }?;
            Ok(0)
        })
    })
}

/// As [`rdma_get_cm_event`], for calls that do more than that.
///
/// # Errors
/// EAGAIN, EINTR. [`crate::ground::cancellation::RESTART`]: nothing has come within the slice of the attempt.
///
/// # Safety
/// That of `rdma_get_cm_event`.
pub(crate) unsafe fn next_event(
    channel: *mut rdma_event_channel,
    event: *mut *mut rdma_cm_event,
) -> Result<(), Errno> {
    if event.is_null() {
        return Err(INVALID);
    }
    // SAFETY: null or live.
    let channel = unsafe { Channel::of(channel) }.ok_or(INVALID)?;
    loop {
        let taken = channel.take()?;
        let waits = taken.is_none() && !channel.is_nonblocking();
        channel.reader.is_at(waits);
        match taken {
            Some(taken) => {
                // SAFETY: the caller's variable.
                unsafe { event.write(hand_out(taken.fetched(own_thread()))) };
                return Ok(());
            }
            None if waits => channel.sleep()?,
            None => return Err(Errno(libc::EAGAIN)),
        }
    }
}
