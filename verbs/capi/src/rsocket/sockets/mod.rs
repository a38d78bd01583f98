//! Sockets, their table, and waiting for them.
//!
//! A stream ([`StreamSocket`]) sends and receives in [`transfer`], and [`connecting`] has its life from bind
//! to close. Datagrams ([`datagram`]) go over UD queue pairs, and over UDP until those are known.
//!
//! A stream socket: its state, the waiting of threads for changes of it, and its progress.
//!
//! Any number of threads use a socket. Senders take turns, and so do receivers; both access the state, which
//! is locked only for short times. One of the waiting threads waits in the device, which it drives meanwhile;
//! the others sleep on their wakers, and the thread that changes the state wakes them.
//!
//! **Invariant**: turns are taken before the state is locked, and the state is locked before an identifier's
//! or the device. A thread that takes events of the connection manager does not hold the state.

use std::collections::VecDeque;
use std::ffi::c_int;
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use pumice_device::outside;

use crate::log::log_warning;
use crate::platform::Errno;
use crate::platform::threads::{RESTART, attempt_ends, begun, earlier};
use crate::rdma_cm::constants::PS_TCP;
use crate::rsocket::parts::buffers::{Mappings, TableEntries};
use crate::rsocket::parts::event_thread::Waker;
use crate::rsocket::parts::identifier::SocketId;
use crate::rsocket::parts::link::{LinkCompletion, StreamLink};
use crate::rsocket::parts::options::SocketOptions;
use crate::rsocket::protocol::stream::{StreamEnd, StreamProtocol};

/// Time for which a thread polls before it sleeps: shorter than a wake-up takes.
const POLLING: Duration = Duration::from_micros(10);
/// Time for which a thread waits in the device before it checks for other changes.
const SLICE: Duration = Duration::from_millis(100);

/// Stage of a socket's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StreamStage {
    /// The socket is new; it may have an address.
    New,
    Listening,
    /// The socket has sent a request to a peer.
    Connecting,
    /// The socket has accepted a request.
    Accepting,
    /// The socket is connected, or was.
    Connected,
    /// The connection failed.
    Failed,
    /// The program has closed it.
    Closed,
}

/// A stream and the link that it uses.
pub(crate) struct StreamConnection {
    pub(crate) link: Arc<StreamLink>,
    pub(crate) stream: StreamProtocol,
    /// True if an event was requested.
    armed: bool,
    /// True if a thread waits in the device.
    driven: bool,
}

impl StreamConnection {
    pub(crate) const fn new(link: Arc<StreamLink>, stream: StreamProtocol) -> StreamConnection {
        StreamConnection { link, stream, armed: false, driven: false }
    }
}

/// The part of a socket that changes.
pub(crate) struct StreamState {
    pub(crate) stage: StreamStage,
    pub(crate) connection: Option<StreamConnection>,
    pub(crate) options: SocketOptions,
    /// Error to be reported once, by the next call or as SO_ERROR.
    pub(crate) error: c_int,
    /// True if connecting has ended, and the program does not know it yet.
    pub(crate) is_connect_reported: bool,
    pub(crate) bound: bool,
    /// Time at which the peer is probed next, if it is to be.
    next_probe: Option<Instant>,
    /// Sockets of a listener that are being connected, and those that wait to be accepted.
    pub(crate) connecting_sockets: Vec<Arc<StreamSocket>>,
    pub(crate) waiting: VecDeque<Arc<StreamSocket>>,
    /// Threads that sleep.
    waiters: Vec<Arc<Waker>>,
}

/// A stream socket.
pub(crate) struct StreamSocket {
    pub(crate) id: Arc<SocketId>,
    pub(crate) family: c_int,
    state: Mutex<StreamState>,
    pub(crate) sending: Mutex<()>,
    pub(crate) receiving: Mutex<()>,
    /// Lock that is held while events of the connection manager are taken.
    pub(crate) taking_events: Mutex<()>,
    /// Listener of a socket that answers a request.
    pub(crate) listener: Weak<StreamSocket>,
    maps: Mutex<Mappings>,
}

/// Longest time that a call may wait.
#[derive(Clone, Copy)]
pub(crate) enum WaitLimit {
    None,
    Until(Instant),
    Endless,
}

impl WaitLimit {
    /// Returns the patience of a call with these flags on a socket with these options; `limit` is SO_RCVTIMEO
    /// or SO_SNDTIMEO.
    pub(crate) fn of(options: &SocketOptions, flags: c_int, limit: Option<Duration>) -> WaitLimit {
        if options.is_nonblocking() || flags & libc::MSG_DONTWAIT != 0 {
            return WaitLimit::None;
        }
        limit.map_or(WaitLimit::Endless, |limit| WaitLimit::Until(begun() + limit))
    }

    pub(crate) const fn deadline(self) -> Option<Instant> {
        match self {
            WaitLimit::Until(instant) => Some(instant),
            _ => None,
        }
    }
}

/// Times at which a wait ends by itself.
struct WaitTimes {
    deadline: Option<Instant>,
    attempt_ends: Option<Instant>,
}

impl WaitTimes {
    /// Returns the error with which it ends now, if it does.
    fn over(&self) -> Option<Errno> {
        let now = outside::now();
        let is_over = |time: Option<Instant>| time.is_some_and(|time| time <= now);
        if is_over(self.deadline) {
            return Some(Errno(libc::EAGAIN));
        }
        is_over(self.attempt_ends).then_some(RESTART)
    }
}

/// A locked socket.
pub(crate) type Locked<'a> = MutexGuard<'a, StreamState>;

/// Locks a mutex that only orders threads.
pub(crate) fn turn(turns: &Mutex<()>) -> MutexGuard<'_, ()> {
    turns.lock().unwrap_or_else(PoisonError::into_inner)
}

impl StreamSocket {
    /// Creates a socket.
    ///
    /// # Errors
    /// Fails if there is no device, or if there are no descriptors.
    pub(crate) fn new(family: c_int, options: SocketOptions) -> Result<StreamSocket, Errno> {
        Ok(StreamSocket::of(SocketId::new(PS_TCP)?, family, options, StreamStage::New, Weak::new()))
    }

    pub(crate) fn of(
        id: SocketId,
        family: c_int,
        options: SocketOptions,
        stage: StreamStage,
        listener: Weak<StreamSocket>,
    ) -> StreamSocket {
        let state = StreamState {
            stage,
            connection: None,
            options,
            error: 0,
            is_connect_reported: false,
            bound: false,
            next_probe: None,
            connecting_sockets: Vec::new(),
            waiting: VecDeque::new(),
            waiters: Vec::new(),
        };
        StreamSocket {
            id: Arc::new(id),
            family,
            state: Mutex::new(state),
            sending: Mutex::default(),
            receiving: Mutex::default(),
            taking_events: Mutex::default(),
            listener,
            maps: Mutex::default(),
        }
    }

    pub(crate) fn lock(&self) -> Locked<'_> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the state, unless another thread holds the lock.
    pub(crate) fn try_lock(&self) -> Option<Locked<'_>> {
        self.state.try_lock().ok()
    }

    /// Locks its mappings and returns them.
    pub(crate) fn maps(&self) -> MutexGuard<'_, Mappings> {
        self.maps.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the descriptor by which programs know it.
    pub(crate) fn descriptor(&self) -> RawFd {
        self.id.descriptor()
    }

    pub(crate) fn addresses(&self) -> (Option<SocketAddr>, Option<SocketAddr>) {
        self.id.addresses()
    }

    /// Waits until a condition holds, which is evaluated after each change.
    ///
    /// # Errors
    /// Fails with EAGAIN if the time is up, and with EINTR if a signal handler ran.
    pub(crate) fn wait<'a>(
        &'a self,
        mut state: Locked<'a>,
        patience: WaitLimit,
        mut ready: impl FnMut(&mut StreamState) -> bool,
    ) -> Result<Locked<'a>, Errno> {
        self.progress(&mut state);
        if ready(&mut state) {
            return Ok(state);
        }
        if matches!(patience, WaitLimit::None) {
            return Err(Errno(libc::EAGAIN));
        }
        if state.connection.is_some() {
            let begin = outside::now();
            while outside::since(begin) < POLLING {
                drop(state);
                state = self.lock();
                self.progress(&mut state);
                if ready(&mut state) {
                    return Ok(state);
                }
            }
        }
        let waker = Waker::of_thread()?;
        waker.clear();
        state.waiters.push(Arc::clone(&waker));
        let times = WaitTimes { deadline: patience.deadline(), attempt_ends: attempt_ends() };
        let (mut state, outcome) = self.sleep(state, times, &waker, &mut ready);
        state.waiters.retain(|waiter| !Arc::ptr_eq(waiter, &waker));
        outcome.map(|()| state)
    }

    fn sleep<'a>(
        &'a self,
        mut state: Locked<'a>,
        times: WaitTimes,
        waker: &Arc<Waker>,
        ready: &mut impl FnMut(&mut StreamState) -> bool,
    ) -> (Locked<'a>, Result<(), Errno>) {
        let wakes_at = earlier(times.deadline, times.attempt_ends);
        loop {
            let waits_in_device = self.arm(&mut state, true);
            if ready(&mut state) {
                if waits_in_device {
                    self.leave_device(&mut state);
                }
                return (state, Ok(()));
            }
            if let Some(errno) = times.over() {
                if waits_in_device {
                    self.leave_device(&mut state);
                }
                return (state, Err(errno));
            }
            let slept = if waits_in_device {
                let link = state.connection.as_ref().map(|connection| Arc::clone(&connection.link));
                drop(state);
                let left = wakes_at.map_or(SLICE, |end| end.saturating_duration_since(outside::now()));
                let (slice, begin) = (left.min(SLICE), outside::now());
                let has_event = link.is_some_and(|link| link.wait(slice));
                state = self.lock();
                if has_event && let Some(connection) = &mut state.connection {
                    connection.armed = false;
                }
                self.leave_device(&mut state);
                // A wait that ended early, and without an event, was ended by a signal handler.
                if has_event || outside::since(begin) >= slice { Ok(()) } else { Err(Errno(libc::EINTR)) }
            } else {
                drop(state);
                let slept = waker.sleep(&[], wakes_at);
                state = self.lock();
                slept
            };
            // The device was driven meanwhile.
            self.advance(&mut state, false);
            if let Err(errno) = slept {
                let outcome = if ready(&mut state) { Ok(()) } else { Err(errno) };
                return (state, outcome);
            }
        }
    }

    /// Requests an event with the next completion, and handles completions that are there already. `to_wait`
    /// says that the calling thread wants to wait in the device; the result says whether it may, because no
    /// other thread does.
    fn arm(&self, state: &mut StreamState, to_wait: bool) -> bool {
        // No request completes before it is connected: a waker signals the connection.
        if state.stage != StreamStage::Connected {
            return false;
        }
        let Some(connection) = &mut state.connection else { return false };
        let alone = to_wait && !connection.driven;
        connection.driven |= alone;
        if !connection.armed {
            connection.armed = true;
            connection.link.queue_pair.arm();
            // A thread that sleeps after this is woken by later completions.
            self.advance(state, false);
        }
        alone
    }

    /// Allows another thread to wait in the device.
    fn leave_device(&self, state: &mut StreamState) {
        if let Some(connection) = &mut state.connection {
            connection.driven = false;
        }
        wake_all(state);
    }

    /// Makes changes wake the thread of this waker, for [`self::waiting`]; the returned descriptor signals
    /// changes by completions.
    pub(crate) fn watch(&self, waker: &Arc<Waker>) -> Option<RawFd> {
        let mut state = self.lock();
        if !state.waiters.iter().any(|waiter| Arc::ptr_eq(waiter, waker)) {
            state.waiters.push(Arc::clone(waker));
        }
        self.arm(&mut state, false);
        state.connection.as_ref().map(|connection| connection.link.queue_pair.descriptor())
    }

    /// Ends the waiting of the thread of this waker.
    pub(crate) fn unwatch(&self, waker: &Arc<Waker>) {
        self.lock().waiters.retain(|waiter| !Arc::ptr_eq(waiter, waker));
    }

    /// Makes all possible progress: takes completions, applies the peer's messages, answers them. Wakes the
    /// sleeping threads after a change. If the queue is empty, the device is driven, and the processor is
    /// yielded if others want it.
    pub(crate) fn progress(&self, state: &mut StreamState) {
        self.advance(state, true);
    }

    /// Makes progress as [`StreamSocket::progress`] does; `drives` says whether the device has to be driven.
    fn advance(&self, state: &mut StreamState, drives: bool) {
        // The peer may send messages before its private data has been read.
        if state.stage == StreamStage::Connecting {
            return;
        }
        let Some(connection) = &mut state.connection else { return };
        let StreamConnection { link, stream, armed, driven } = connection;
        let (mut changed, mut words, mut fault) = (false, 0, None);
        if *armed && !*driven && link.queue_pair.take_event() {
            *armed = false;
        }
        let open = stream.end().is_none();
        while link.poll(drives, |done| {
            changed = true;
            match done {
                LinkCompletion::RsMessage(word, bytes) => {
                    words += 1;
                    if let Err(violation) = stream.handle_word(word, bytes, &mut TableEntries(&link.tables)) {
                        log_warning(|| format!("rsocket: the peer broke the protocol: {violation:?}"));
                        fault = fault.or(Some(libc::ECONNRESET));
                    }
                }
                LinkCompletion::Data(bytes) => stream.sending.handle_done(bytes),
                LinkCompletion::ControlMessage(last) => stream.handle_control_done(last),
                LinkCompletion::Failed(errno) => fault = fault.or(Some(errno)),
                LinkCompletion::Flushed => fault = fault.or(Some(libc::ECONNRESET)),
            }
        }) {}
        if stream.end().is_none() && words > 0 && fault.is_none() && link.post_receives(words).is_err() {
            fault = Some(libc::ECONNRESET);
        }
        if let Some(errno) = fault {
            stream.handle_end(StreamEnd::Failed(errno));
        }
        self.answer(state);
        if open
            && let Some(connection) = &state.connection
            && let Some(StreamEnd::Failed(errno)) = connection.stream.end()
        {
            state.error = errno;
            // This completes all other requests with errors.
            self.id.disconnect();
        }
        if changed {
            wake_all(state);
        }
    }

    /// Posts the messages of the protocol that are due.
    pub(crate) fn answer(&self, state: &mut StreamState) {
        let Some(connection) = &mut state.connection else { return };
        // The peer's queue pair is ready only when the connection is established.
        if state.stage != StreamStage::Connected {
            return;
        }
        while let Some(control) = connection.stream.poll_control() {
            if connection.link.post_control(&control).is_err() {
                connection.stream.handle_end(StreamEnd::Failed(libc::ECONNRESET));
            }
        }
    }

    /// Probes the peer, if it is time: one that is gone does not answer, and the connection fails with
    /// ETIMEDOUT. Returns whether it may be time again.
    pub(crate) fn probe_peer(&self) -> bool {
        let mut state = self.lock();
        if !state.options.keepalive_enabled
            || matches!(state.stage, StreamStage::Failed | StreamStage::Closed)
        {
            return false;
        }
        self.progress(&mut state);
        let (stage, now) = (state.stage, outside::now());
        if stage != StreamStage::Connected || state.next_probe.is_some_and(|next| next > now) {
            return true;
        }
        let first = state.next_probe.is_none();
        state.next_probe = Some(now + Duration::from_secs(state.options.keep_idle.max(1) as u64));
        let Some(connection) = &mut state.connection else { return true };
        if !first && connection.stream.probe() && connection.link.post_probe().is_err() {
            self.fail(&mut state, libc::ECONNRESET);
        }
        true
    }

    /// Waits, before data is sent, until the connection is established.
    ///
    /// # Errors
    /// Fails with ENOTCONN if it is not, and was not requested, with EAGAIN if it is not yet, and with the
    /// error of connecting.
    pub(crate) fn connected<'a>(
        &'a self,
        state: Locked<'a>,
        patience: WaitLimit,
    ) -> Result<Locked<'a>, Errno> {
        let mut state = match state.stage {
            StreamStage::Connecting => {
                self.wait(state, patience, |state| state.stage != StreamStage::Connecting)?
            }
            _ => state,
        };
        match state.stage {
            StreamStage::Connected => Ok(state),
            StreamStage::Failed => Err(StreamSocket::take_error(&mut state).unwrap_or(Errno(libc::ENOTCONN))),
            StreamStage::Closed => Err(Errno(libc::EBADF)),
            _ => Err(Errno(libc::ENOTCONN)),
        }
    }

    /// Marks the connection as failed.
    pub(crate) fn fail(&self, state: &mut StreamState, errno: c_int) {
        let Some(connection) = &mut state.connection else { return };
        if connection.stream.end().is_none() {
            connection.stream.handle_end(StreamEnd::Failed(errno));
            state.error = errno;
            self.id.disconnect();
        }
        wake_all(state);
    }

    /// Takes the error that is to be reported, once.
    pub(crate) fn take_error(state: &mut StreamState) -> Option<Errno> {
        let error = std::mem::take(&mut state.error);
        (error != 0).then_some(Errno(error))
    }
}

/// Wakes all threads that sleep.
pub(crate) fn wake_all(state: &StreamState) {
    state.waiters.iter().for_each(|waker| waker.wake());
}

pub(crate) mod connecting;
pub(crate) mod datagram;
pub(crate) mod transfer;
pub(crate) mod waiting;
