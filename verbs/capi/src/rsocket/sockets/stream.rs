//! A stream socket: its state, how threads wait for it to change, and how it makes progress.
//!
//! Any number of threads use a socket. Senders take turns, and so do receivers; what both touch is the state,
//! which is locked for moments only. Of the threads that wait, one waits in the device, which it drives
//! meanwhile; the others sleep on their wakers, and the thread that changes something wakes them.
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

use crate::ground::cancellation::{RESTART, attempt_ends, begun, earlier};
use crate::ground::errno::Errno;
use crate::ground::log::log_warning;
use crate::rdma_cm::constants::PS_TCP;
use crate::rsocket::parts::identifier::Identifier;
use crate::rsocket::parts::link::{Done, Link};
use crate::rsocket::parts::mappings::Mappings;
use crate::rsocket::parts::options::Options;
use crate::rsocket::parts::region::Entries;
use crate::rsocket::parts::waker::Waker;
use crate::rsocket::protocol::stream::{Stream, StreamEnd};

/// How long a thread polls before it sleeps: shorter than a wake-up takes.
const POLLING: Duration = Duration::from_micros(10);
/// How long a thread waits in the device before it looks whether something else has changed.
const SLICE: Duration = Duration::from_millis(100);

/// How far a socket is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// It may have an address.
    New,
    Listening,
    /// It has asked a peer.
    Connecting,
    /// It has answered a request.
    Accepting,
    /// It is connected, or was.
    Connected,
    /// The connection came to nothing.
    Failed,
    /// The program has closed it.
    Closed,
}

/// A stream and what it runs over.
pub(crate) struct Connection {
    pub(crate) link: Arc<Link>,
    pub(crate) stream: Stream,
    /// An event was asked for.
    armed: bool,
    /// A thread waits in the device.
    driven: bool,
}

impl Connection {
    pub(crate) const fn new(link: Arc<Link>, stream: Stream) -> Connection {
        Connection { link, stream, armed: false, driven: false }
    }
}

/// What changes of a socket.
pub(crate) struct State {
    pub(crate) stage: Stage,
    pub(crate) connection: Option<Connection>,
    pub(crate) options: Options,
    /// To be told of once, by the next call or as SO_ERROR.
    pub(crate) error: c_int,
    /// Connecting has ended, and the program does not know it yet.
    pub(crate) told: bool,
    pub(crate) bound: bool,
    /// When the peer is probed next, if it is to be.
    next_probe: Option<Instant>,
    /// Of a listener: sockets that are being connected, and those that wait to be accepted.
    pub(crate) coming: Vec<Arc<StreamSocket>>,
    pub(crate) waiting: VecDeque<Arc<StreamSocket>>,
    /// Threads that sleep.
    sleepers: Vec<Arc<Waker>>,
}

/// A stream socket.
pub(crate) struct StreamSocket {
    pub(crate) id: Arc<Identifier>,
    pub(crate) family: c_int,
    state: Mutex<State>,
    pub(crate) sending: Mutex<()>,
    pub(crate) receiving: Mutex<()>,
    /// Held while events of the connection manager are taken.
    pub(crate) taking_events: Mutex<()>,
    /// The listener, of a socket that answers a request.
    pub(crate) listener: Weak<StreamSocket>,
    maps: Mutex<Mappings>,
}

/// How long a call may wait.
#[derive(Clone, Copy)]
pub(crate) enum Patience {
    None,
    Until(Instant),
    Endless,
}

impl Patience {
    /// Of a call with these flags on a socket with these options; `limit`: SO_RCVTIMEO or SO_SNDTIMEO.
    pub(crate) fn of(options: &Options, flags: c_int, limit: Option<Duration>) -> Patience {
        if options.is_nonblocking() || flags & libc::MSG_DONTWAIT != 0 {
            return Patience::None;
        }
        limit.map_or(Patience::Endless, |limit| Patience::Until(begun() + limit))
    }

    pub(crate) const fn deadline(self) -> Option<Instant> {
        match self {
            Patience::Until(instant) => Some(instant),
            _ => None,
        }
    }
}

/// When a wait ends that nothing else has ended.
struct Times {
    deadline: Option<Instant>,
    attempt_ends: Option<Instant>,
}

impl Times {
    /// Why it ends now, if it does.
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
pub(crate) type Locked<'a> = MutexGuard<'a, State>;

/// Locks what only orders threads.
pub(crate) fn turn(turns: &Mutex<()>) -> MutexGuard<'_, ()> {
    turns.lock().unwrap_or_else(PoisonError::into_inner)
}

impl StreamSocket {
    /// A new socket.
    ///
    /// # Errors
    /// There is no device, or there are no descriptors.
    pub(crate) fn new(family: c_int, options: Options) -> Result<StreamSocket, Errno> {
        Ok(StreamSocket::of(Identifier::new(PS_TCP)?, family, options, Stage::New, Weak::new()))
    }

    pub(crate) fn of(
        id: Identifier,
        family: c_int,
        options: Options,
        stage: Stage,
        listener: Weak<StreamSocket>,
    ) -> StreamSocket {
        let state = State {
            stage,
            connection: None,
            options,
            error: 0,
            told: false,
            bound: false,
            next_probe: None,
            coming: Vec::new(),
            waiting: VecDeque::new(),
            sleepers: Vec::new(),
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

    /// Locks it, unless another thread has.
    pub(crate) fn try_lock(&self) -> Option<Locked<'_>> {
        self.state.try_lock().ok()
    }

    /// Its mappings, locked.
    pub(crate) fn maps(&self) -> MutexGuard<'_, Mappings> {
        self.maps.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number that programs know it by.
    pub(crate) fn descriptor(&self) -> RawFd {
        self.id.descriptor()
    }

    pub(crate) fn addresses(&self) -> (Option<SocketAddr>, Option<SocketAddr>) {
        self.id.addresses()
    }

    /// Waits until something is so, which is looked at whenever something has changed.
    ///
    /// # Errors
    /// EAGAIN: the time is up. EINTR: a signal handler ran.
    pub(crate) fn wait<'a>(
        &'a self,
        mut state: Locked<'a>,
        patience: Patience,
        mut ready: impl FnMut(&mut State) -> bool,
    ) -> Result<Locked<'a>, Errno> {
        self.progress(&mut state);
        if ready(&mut state) {
            return Ok(state);
        }
        if matches!(patience, Patience::None) {
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
        state.sleepers.push(Arc::clone(&waker));
        let times = Times { deadline: patience.deadline(), attempt_ends: attempt_ends() };
        let (mut state, outcome) = self.sleep(state, times, &waker, &mut ready);
        state.sleepers.retain(|sleeper| !Arc::ptr_eq(sleeper, &waker));
        outcome.map(|()| state)
    }

    fn sleep<'a>(
        &'a self,
        mut state: Locked<'a>,
        times: Times,
        waker: &Arc<Waker>,
        ready: &mut impl FnMut(&mut State) -> bool,
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
                let came = link.is_some_and(|link| link.wait(slice));
                state = self.lock();
                if came && let Some(connection) = &mut state.connection {
                    connection.armed = false;
                }
                self.leave_device(&mut state);
                // A wait that ended early, and without an event, was ended by a signal handler.
                if came || outside::since(begin) >= slice { Ok(()) } else { Err(Errno(libc::EINTR)) }
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

    /// Asks for an event with the next completion, and makes the progress that is there already. `to_wait`:
    /// the calling thread wants to wait in the device; the result says whether it may, because no other
    /// thread does.
    fn arm(&self, state: &mut State, to_wait: bool) -> bool {
        // Until it is connected, nothing completes: a waker tells when it is.
        if state.stage != Stage::Connected {
            return false;
        }
        let Some(connection) = &mut state.connection else { return false };
        let alone = to_wait && !connection.driven;
        connection.driven |= alone;
        if !connection.armed {
            connection.armed = true;
            connection.link.queue_pair.arm();
            // A thread that sleeps after this is woken for what completes later.
            self.advance(state, false);
        }
        alone
    }

    /// Another thread may wait in the device now.
    fn leave_device(&self, state: &mut State) {
        if let Some(connection) = &mut state.connection {
            connection.driven = false;
        }
        wake_all(state);
    }

    /// Of [`super::waiting`]: the thread of this waker is to be woken by changes, those that come with
    /// completions by the descriptor that is returned.
    pub(crate) fn watch(&self, waker: &Arc<Waker>) -> Option<RawFd> {
        let mut state = self.lock();
        if !state.sleepers.iter().any(|sleeper| Arc::ptr_eq(sleeper, waker)) {
            state.sleepers.push(Arc::clone(waker));
        }
        self.arm(&mut state, false);
        state.connection.as_ref().map(|connection| connection.link.queue_pair.descriptor())
    }

    /// It does not wait any more.
    pub(crate) fn unwatch(&self, waker: &Arc<Waker>) {
        self.lock().sleepers.retain(|sleeper| !Arc::ptr_eq(sleeper, waker));
    }

    /// Makes what progress there is: takes completions, obeys the peer's messages, answers them. Wakes the
    /// threads that sleep if something has changed. An empty queue has the device driven, and the processor
    /// yielded if others want it.
    pub(crate) fn progress(&self, state: &mut State) {
        self.advance(state, true);
    }

    /// As [`StreamSocket::progress`]; `drives`: the device has to be driven.
    fn advance(&self, state: &mut State, drives: bool) {
        // A peer that was asked may send messages before its private data has been read.
        if state.stage == Stage::Connecting {
            return;
        }
        let Some(connection) = &mut state.connection else { return };
        let Connection { link, stream, armed, driven } = connection;
        let (mut changed, mut words, mut fault) = (false, 0, None);
        if *armed && !*driven && link.queue_pair.take_event() {
            *armed = false;
        }
        let open = stream.end().is_none();
        while link.poll(drives, |done| {
            changed = true;
            match done {
                Done::Word(word, bytes) => {
                    words += 1;
                    if let Err(violation) = stream.handle_word(word, bytes, &mut Entries(&link.tables)) {
                        log_warning(|| format!("rsocket: the peer broke the protocol: {violation:?}"));
                        fault = fault.or(Some(libc::ECONNRESET));
                    }
                }
                Done::Data(bytes) => stream.sending.handle_done(bytes),
                Done::Control(last) => stream.handle_control_done(last),
                Done::Failed(errno) => fault = fault.or(Some(errno)),
                Done::Flushed => fault = fault.or(Some(libc::ECONNRESET)),
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
            // All other requests complete with errors now.
            self.id.disconnect();
        }
        if changed {
            wake_all(state);
        }
    }

    /// Posts the messages of the protocol that are due.
    pub(crate) fn answer(&self, state: &mut State) {
        let Some(connection) = &mut state.connection else { return };
        // The peer's queue pair is ready only when the connection is there.
        if state.stage != Stage::Connected {
            return;
        }
        while let Some(control) = connection.stream.poll_control() {
            if connection.link.post_control(&control).is_err() {
                connection.stream.handle_end(StreamEnd::Failed(libc::ECONNRESET));
            }
        }
    }

    /// Probes the peer, if it is time: one that is gone does not answer, and the connection fails with
    /// ETIMEDOUT. Whether it may be time again.
    pub(crate) fn probe_peer(&self) -> bool {
        let mut state = self.lock();
        if !state.options.keeps_alive || matches!(state.stage, Stage::Failed | Stage::Closed) {
            return false;
        }
        self.progress(&mut state);
        let (stage, now) = (state.stage, outside::now());
        if stage != Stage::Connected || state.next_probe.is_some_and(|next| next > now) {
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

    /// Before data goes: the connection is there.
    ///
    /// # Errors
    /// ENOTCONN: it is not, and no peer was asked for it. EAGAIN: not yet. What connecting ended with.
    pub(crate) fn connected<'a>(
        &'a self,
        state: Locked<'a>,
        patience: Patience,
    ) -> Result<Locked<'a>, Errno> {
        let mut state = match state.stage {
            Stage::Connecting => self.wait(state, patience, |state| state.stage != Stage::Connecting)?,
            _ => state,
        };
        match state.stage {
            Stage::Connected => Ok(state),
            Stage::Failed => Err(StreamSocket::take_error(&mut state).unwrap_or(Errno(libc::ENOTCONN))),
            Stage::Closed => Err(Errno(libc::EBADF)),
            _ => Err(Errno(libc::ENOTCONN)),
        }
    }

    /// The connection is of no more use.
    pub(crate) fn fail(&self, state: &mut State, errno: c_int) {
        let Some(connection) = &mut state.connection else { return };
        if connection.stream.end().is_none() {
            connection.stream.handle_end(StreamEnd::Failed(errno));
            state.error = errno;
            self.id.disconnect();
        }
        wake_all(state);
    }

    /// The error that is to be told of, once.
    pub(crate) fn take_error(state: &mut State) -> Option<Errno> {
        let error = std::mem::take(&mut state.error);
        (error != 0).then_some(Errno(error))
    }
}

/// Wakes all threads that sleep.
pub(crate) fn wake_all(state: &State) {
    state.sleepers.iter().for_each(|waker| waker.wake());
}
