//! Channels: where a program is told what happens to its identifiers.

use std::collections::VecDeque;
use std::ffi::c_int;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use pumice_device::gsi::CmChannel;
use pumice_device::outside;
use pumice_device::outside::lineage::Generation;

use super::acknowledgement::{Reader, Unacknowledged};
use crate::ground::abi::{rdma_conn_param, rdma_event_channel, rdma_ud_param};
use crate::ground::cancellation::{RESTART, attempt_ends};
use crate::ground::errno::Errno;
use crate::ground::gate::{given_back, handed_out};
use crate::ground::inherited;
use crate::ground::plain::PassedOn;
use crate::ground::system_call;
use crate::objects::device::devices;

/// A channel of identifiers `I`: the devices' events, and those that this library makes itself. Its
/// descriptor is an epoll instance over both, readable while there are any.
#[repr(C)]
pub(crate) struct Channel<I> {
    c: rdma_event_channel,
    generation: Generation,
    poll: OwnedFd,
    /// The events of the first device, and of each other one.
    first: Arc<CmChannel>,
    others: Vec<Arc<CmChannel>>,
    local: Mutex<VecDeque<LocalEvent<I>>>,
    /// Readable while `local` has events.
    local_waits: OwnedFd,
    pub(crate) reader: Reader,
}

/// An event that no message of the peer's has caused.
pub(crate) struct LocalEvent<I> {
    pub(crate) id: Arc<I>,
    /// `RDMA_CM_EVENT_*`.
    pub(crate) event: u32,
    /// 0 or a negative errno.
    pub(crate) status: c_int,
    pub(crate) parameters: EventParameters,
}

impl<I> LocalEvent<I> {
    /// An event without parameters.
    pub(crate) const fn new(id: Arc<I>, event: u32, status: c_int) -> LocalEvent<I> {
        LocalEvent { id, event, status, parameters: EventParameters::None }
    }
}

/// What an event carries beside its name and status.
pub(crate) enum EventParameters {
    None,
    /// Of a connection.
    Connection(PassedOn<rdma_conn_param>),
    /// Of datagrams.
    Datagram(PassedOn<rdma_ud_param>),
    /// Of a multicast group, with the count of the membership; the private data is the program's own pointer.
    Group(PassedOn<rdma_ud_param>, Arc<Unacknowledged>),
    /// A number of the program's.
    Number(u64),
}

impl EventParameters {
    /// Of joining a group: the count of the membership.
    pub(crate) fn membership(&self) -> Option<Arc<Unacknowledged>> {
        match self {
            EventParameters::Group(_, membership) => Some(Arc::clone(membership)),
            _ => None,
        }
    }
}

/// A program's pointer to a channel of identifiers `I`, as a call gets it: null, or a channel that is not
/// destroyed.
#[repr(transparent)]
pub(crate) struct ChannelPointer<I>(*mut Channel<I>);

impl<I> Clone for ChannelPointer<I> {
    fn clone(&self) -> ChannelPointer<I> {
        *self
    }
}

impl<I> Copy for ChannelPointer<I> {}

impl<I> ChannelPointer<I> {
    /// The channel, if the pointer is not null.
    ///
    /// # Errors
    /// EINVAL: it is of the process that this one was forked from.
    pub(crate) fn channel(self) -> Result<Option<Arc<Channel<I>>>, Errno> {
        if self.0.is_null() {
            return Ok(None);
        }
        self.check_own()?;
        // SAFETY: the program's pointer came from `Channel::hand_out`, and what that counted is not given
        // back yet.
        Ok(Some(unsafe {
            Arc::increment_strong_count(self.0);
            Arc::from_raw(self.0)
        }))
    }

    /// The address that it has.
    pub(crate) fn addr(self) -> usize {
        self.0.addr()
    }

    /// Whether this process made the channel. The pointer is not null.
    fn check_own(self) -> Result<(), Errno> {
        // SAFETY: the program's pointer came from `Channel::hand_out`, and what that counted is not given
        // back yet; a child has a copy.
        let generation = unsafe { (*self.0).generation };
        if generation.is_own() { Ok(()) } else { Err(inherited::refuse("event channel")) }
    }

    /// Takes the program's channel back, if the pointer is not null and the channel is this process's.
    pub(crate) fn take_back(self) -> Option<Arc<Channel<I>>> {
        if !self.0.is_null() && self.check_own().is_err() {
            return None;
        }
        given_back(self.0.addr());
        // SAFETY: the pointer came from `Channel::hand_out`, and the program gives it back once.
        (!self.0.is_null()).then(|| unsafe { Arc::from_raw(self.0) })
    }
}

impl<I> Channel<I> {
    /// An empty channel.
    ///
    /// # Errors
    /// No descriptors are to be had. A setting of the devices is wrong.
    pub(crate) fn new() -> Result<Arc<Channel<I>>, Errno> {
        let first = Arc::new(CmChannel::new()?);
        let mut others = Vec::new();
        for _ in devices()?.iter().skip(1) {
            others.push(Arc::new(CmChannel::new()?));
        }
        let (poll, local_waits) = (system_call::epoll()?, system_call::event(libc::EFD_CLOEXEC)?);
        let sources = std::iter::once(&first).chain(&others).map(|channel| channel.as_fd());
        for fd in sources.chain([local_waits.as_fd()]) {
            system_call::epoll_change(poll.as_fd(), libc::EPOLL_CTL_ADD, fd.as_raw_fd())?;
        }
        Ok(Arc::new(Channel {
            c: rdma_event_channel { fd: poll.as_raw_fd() },
            generation: Generation::own(),
            poll,
            first,
            others,
            local: Mutex::default(),
            local_waits,
            reader: Reader::default(),
        }))
    }

    /// Gives the channel to the program, until `rdma_destroy_event_channel`.
    pub(crate) fn hand_out(self: Arc<Channel<I>>) -> *mut rdma_event_channel {
        handed_out(Arc::as_ptr(&self).addr(), "event channel");
        Arc::into_raw(self).cast_mut().cast()
    }

    /// The program's pointer. The program only reads what is there.
    pub(crate) const fn as_ptr(&self) -> *mut rdma_event_channel {
        std::ptr::from_ref(self).cast_mut().cast()
    }

    /// The events of the device with an index among the devices.
    pub(crate) fn device(&self, index: usize) -> &Arc<CmChannel> {
        index.checked_sub(1).and_then(|other| self.others.get(other)).unwrap_or(&self.first)
    }

    /// Readable while there are events.
    pub(crate) const fn descriptor(&self) -> c_int {
        self.c.fd
    }

    /// Queues an event of this library's own.
    pub(crate) fn push(&self, event: LocalEvent<I>) {
        self.change_local(|local| local.push_back(event));
    }

    /// Events that the program has not fetched.
    pub(crate) fn waiting(&self) -> u32 {
        let of_devices = std::iter::once(&self.first).chain(&self.others).map(|channel| channel.queued());
        let local = self.local.lock().unwrap_or_else(PoisonError::into_inner).len();
        u32::try_from(of_devices.sum::<usize>().saturating_add(local)).unwrap_or(u32::MAX)
    }

    /// The oldest event of this library's own.
    pub(crate) fn pop_local(&self) -> Option<LocalEvent<I>> {
        self.change_local(VecDeque::pop_front)
    }

    /// Drops those events of an identifier that wait and are `dropped`.
    pub(crate) fn retract(&self, id: &Arc<I>, dropped: impl Fn(&EventParameters) -> bool) {
        self.change_local(|local| {
            local.retain(|event| !(Arc::ptr_eq(&event.id, id) && dropped(&event.parameters)));
        });
    }

    /// Moves the events of an identifier that wait to another channel.
    pub(crate) fn move_local(&self, id: &Arc<I>, to: &Channel<I>) {
        let moved: VecDeque<LocalEvent<I>> = self.change_local(|local| {
            let (moved, stay) = local.drain(..).partition(|event| Arc::ptr_eq(&event.id, id));
            *local = stay;
            moved
        });
        moved.into_iter().for_each(|event| to.push(event));
    }

    /// Changes the queue, and says by the descriptor whether anything is in it.
    fn change_local<T>(&self, change: impl FnOnce(&mut VecDeque<LocalEvent<I>>) -> T) -> T {
        let mut local = self.local.lock().unwrap_or_else(PoisonError::into_inner);
        let before = local.len();
        let result = change(&mut local);
        if local.len() > before {
            system_call::signal(self.local_waits.as_fd());
        } else if local.is_empty() && before != 0 {
            system_call::clear(self.local_waits.as_fd());
        }
        result
    }

    /// Sleeps until there may be an event.
    ///
    /// # Errors
    /// EINTR: a signal handler ran. RESTART: the slice of the attempt is over.
    pub(crate) fn sleep(&self) -> Result<(), Errno> {
        let ends = attempt_ends();
        let mut entry = [libc::pollfd { fd: self.poll.as_raw_fd(), events: libc::POLLIN, revents: 0 }];
        match system_call::poll(&mut entry, ends) {
            Ok(0) if ends.is_some_and(|end| end <= outside::now()) => Err(RESTART),
            Ok(_) => Ok(()),
            Err(errno) => {
                self.reader.is_at(false);
                Err(errno)
            }
        }
    }

    /// Whether the program has made the descriptor O_NONBLOCK.
    pub(crate) fn is_nonblocking(&self) -> bool {
        system_call::is_nonblocking(self.poll.as_fd())
    }
}
