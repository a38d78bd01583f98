//! Channels, from which a program fetches the events of its identifiers.

use std::collections::VecDeque;
use std::ffi::c_int;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use pumice_device::gsi::CmChannel;
use pumice_device::outside;
use pumice_device::outside::fork_generation::Generation;
use pumice_device::outside::process::{Credentials, credentials};
use pumice_device::outside::world::EndlessWait;

use super::acknowledgement::{ChannelReader, UnacknowledgedEvents};
use crate::abi::plain::ForwardedStruct;
use crate::abi::{rdma_conn_param, rdma_event_channel, rdma_ud_param};
use crate::gate::{given_back, handed_out};
use crate::log::refusal;
use crate::objects::device::devices;
use crate::platform::threads::{RESTART, attempt_ends};
use crate::platform::{Errno, system_call};

/// A channel of identifiers `I`: the devices' events, and those that this library makes itself. Its
/// descriptor is an epoll instance over both, readable while there are any.
#[repr(C)]
pub(crate) struct EventChannel<I> {
    c: rdma_event_channel,
    generation: Generation,
    /// Users and groups of the process that opened it.
    opener: Credentials,
    poll: OwnedFd,
    /// Events of the first device, and of each other one.
    first: Arc<CmChannel>,
    others: Vec<Arc<CmChannel>>,
    local: Mutex<VecDeque<LocalEvent<I>>>,
    /// Descriptor that is readable while `local` has events.
    local_waits: OwnedFd,
    pub(crate) reader: ChannelReader,
}

/// An event that this library makes, without a message of the peer.
pub(crate) struct LocalEvent<I> {
    pub(crate) id: Arc<I>,
    /// Kind of event (`RDMA_CM_EVENT_*`).
    pub(crate) event: u32,
    /// Status: 0 or a negative errno.
    pub(crate) status: c_int,
    pub(crate) parameters: EventParameters,
}

impl<I> LocalEvent<I> {
    /// Creates an event without parameters.
    pub(crate) const fn new(id: Arc<I>, event: u32, status: c_int) -> LocalEvent<I> {
        LocalEvent { id, event, status, parameters: EventParameters::None }
    }
}

/// Data of an event beside its name and status.
pub(crate) enum EventParameters {
    None,
    /// Parameters of a connection.
    Connection(ForwardedStruct<rdma_conn_param>),
    /// Parameters of datagrams.
    Datagram(ForwardedStruct<rdma_ud_param>),
    /// Parameters of a multicast group, with the event count of the membership; the private data is the
    /// program's own pointer.
    Group(ForwardedStruct<rdma_ud_param>, Arc<UnacknowledgedEvents>),
    /// A number of the program.
    Number(u64),
}

impl EventParameters {
    /// Returns the event count of the membership, for the event of joining a group.
    pub(crate) fn membership(&self) -> Option<Arc<UnacknowledgedEvents>> {
        match self {
            EventParameters::Group(_, membership) => Some(Arc::clone(membership)),
            _ => None,
        }
    }
}

/// A program's pointer to a channel of identifiers `I`, as a call gets it: null, or a channel that is not
/// destroyed.
#[repr(transparent)]
pub(crate) struct EventChannelPointer<I>(*mut EventChannel<I>);

impl<I> Clone for EventChannelPointer<I> {
    fn clone(&self) -> EventChannelPointer<I> {
        *self
    }
}

impl<I> Copy for EventChannelPointer<I> {}

impl<I> EventChannelPointer<I> {
    /// Returns the channel, if the pointer is not null.
    ///
    /// # Errors
    /// Fails with EINVAL if it is of the process that this one was forked from, and with EACCES as
    /// [`EventChannel::check_opener`].
    pub(crate) fn channel(self) -> Result<Option<Arc<EventChannel<I>>>, Errno> {
        if self.0.is_null() {
            return Ok(None);
        }
        self.check_own()?;
        // SAFETY: the program's pointer came from `EventChannel::hand_out`, whose reference has not been
        // given back yet.
        let channel = unsafe {
            Arc::increment_strong_count(self.0);
            Arc::from_raw(self.0)
        };
        channel.check_opener()?;
        Ok(Some(channel))
    }

    /// Returns the address of the channel.
    pub(crate) fn addr(self) -> usize {
        self.0.addr()
    }

    /// Checks that this process made the channel. The pointer is not null.
    fn check_own(self) -> Result<(), Errno> {
        // SAFETY: the program's pointer came from `EventChannel::hand_out`, whose reference has not been
        // given back yet; a child has a copy.
        let generation = unsafe { (*self.0).generation };
        if generation.is_own() { Ok(()) } else { Err(refusal::refuse("event channel")) }
    }

    /// Takes the program's reference to the channel back, if the pointer is not null and the channel is this
    /// process's.
    pub(crate) fn take_back(self) -> Option<Arc<EventChannel<I>>> {
        if !self.0.is_null() && self.check_own().is_err() {
            return None;
        }
        given_back(self.0.addr());
        // SAFETY: the pointer came from `EventChannel::hand_out`, and the program gives it back once.
        (!self.0.is_null()).then(|| unsafe { Arc::from_raw(self.0) })
    }
}

impl<I> EventChannel<I> {
    /// Creates an empty channel.
    ///
    /// # Errors
    /// Fails if no descriptors are available, or if a setting of the devices is wrong.
    pub(crate) fn new() -> Result<Arc<EventChannel<I>>, Errno> {
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
        Ok(Arc::new(EventChannel {
            c: rdma_event_channel { fd: poll.as_raw_fd() },
            generation: Generation::own(),
            opener: credentials(),
            poll,
            first,
            others,
            local: Mutex::default(),
            local_waits,
            reader: ChannelReader::default(),
        }))
    }

    /// Checks that the process has the same users and groups as when it opened the channel.
    ///
    /// # Errors
    /// Fails with EACCES if it has others now.
    pub(crate) fn check_opener(&self) -> Result<(), Errno> {
        //= linux:ucma.c#ucma_write
        //| Commands of a process that has other credentials than the opener of the channel are refused.
        if self.opener == credentials() {
            return Ok(());
        }
        Err(Errno(libc::EACCES).because(|| {
            "the process has changed its user or group (setuid, setgid) since it made the event channel, and \
             Linux takes no more calls on such a channel: make channels and identifiers after the change"
                .to_owned()
        }))
    }

    /// Gives the channel to the program, until `rdma_destroy_event_channel`.
    pub(crate) fn hand_out(self: Arc<EventChannel<I>>) -> *mut rdma_event_channel {
        handed_out(Arc::as_ptr(&self).addr(), "event channel");
        Arc::into_raw(self).cast_mut().cast()
    }

    /// Returns the program's pointer. The program only reads the structure.
    pub(crate) const fn as_ptr(&self) -> *mut rdma_event_channel {
        std::ptr::from_ref(self).cast_mut().cast()
    }

    /// Returns the events of the device with an index among the devices.
    pub(crate) fn device(&self, index: usize) -> &Arc<CmChannel> {
        index.checked_sub(1).and_then(|other| self.others.get(other)).unwrap_or(&self.first)
    }

    /// Returns the descriptor, which is readable while there are events.
    pub(crate) const fn descriptor(&self) -> c_int {
        self.c.fd
    }

    /// Queues an event of this library's own.
    pub(crate) fn push(&self, event: LocalEvent<I>) {
        self.change_local(|local| local.push_back(event));
    }

    /// Returns the number of events that the program has not fetched.
    pub(crate) fn waiting(&self) -> u32 {
        let of_devices = std::iter::once(&self.first).chain(&self.others).map(|channel| channel.queued());
        let local = self.local.lock().unwrap_or_else(PoisonError::into_inner).len();
        u32::try_from(of_devices.sum::<usize>().saturating_add(local)).unwrap_or(u32::MAX)
    }

    /// Takes the oldest event of this library's own.
    pub(crate) fn pop_local(&self) -> Option<LocalEvent<I>> {
        self.change_local(VecDeque::pop_front)
    }

    /// Drops the waiting events of an identifier for which `dropped` returns true.
    pub(crate) fn retract(&self, id: &Arc<I>, dropped: impl Fn(&EventParameters) -> bool) {
        self.change_local(|local| {
            local.retain(|event| !(Arc::ptr_eq(&event.id, id) && dropped(&event.parameters)));
        });
    }

    /// Moves the waiting events of an identifier to another channel.
    pub(crate) fn move_local(&self, id: &Arc<I>, to: &EventChannel<I>) {
        let moved: VecDeque<LocalEvent<I>> = self.change_local(|local| {
            let (moved, remaining) = local.drain(..).partition(|event| Arc::ptr_eq(&event.id, id));
            *local = remaining;
            moved
        });
        moved.into_iter().for_each(|event| to.push(event));
    }

    /// Changes the queue, and makes the descriptor readable if there are events.
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
    /// Fails with EINTR if a signal handler ran, and with RESTART if the slice of the attempt is over.
    pub(crate) fn sleep(&self) -> Result<(), Errno> {
        let ends = attempt_ends();
        let mut entry = [libc::pollfd { fd: self.poll.as_raw_fd(), events: libc::POLLIN, revents: 0 }];
        // The threads of the devices say themselves whether they have work.
        outside::world::waits_without_end(Some(EndlessWait::ConnectionEvent(self.c.fd)));
        let polled = system_call::poll(&mut entry, ends);
        if polled == Ok(0) && ends.is_some_and(|end| end <= outside::now()) {
            return Err(RESTART);
        }
        outside::world::waits_without_end(None);
        match polled {
            Ok(_) => Ok(()),
            Err(errno) => {
                self.reader.is_at(false);
                Err(errno)
            }
        }
    }

    /// Reports whether the program has made the descriptor O_NONBLOCK.
    pub(crate) fn is_nonblocking(&self) -> bool {
        system_call::is_nonblocking(self.poll.as_fd())
    }
}
