//! Datagram sockets. The socket that programs see is a UDP socket. The first datagrams to a peer go over it,
//! with a header that names this side's queue pair; the peer answers with its own, and from then on datagrams
//! go from queue pair to queue pair. Datagrams that are too long for a packet always go over UDP.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::c_int;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd as _, AsRawFd as _, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pumice_device::hca::Hca;
use pumice_device::outside;
use pumice_transport::path::Path;
use pumice_transport::types::UdDestination;
use pumice_transport::wire::Qpn;

use super::WaitLimit;
use crate::platform::threads::{RESTART, attempt_ends, earlier};
use crate::platform::{Errno, system_call};
use crate::rdma_cm::address;
use crate::rdma_cm::address::lookup;
use crate::rdma_cm::id::shared::{all, shared_towards};
use crate::rsocket::parts::buffers::Buffers;
use crate::rsocket::parts::datagram_queue_pair::DatagramQueuePair;
use crate::rsocket::parts::event_thread::Waker;
use crate::rsocket::parts::options::{SOL_RDMA, SocketOptions};
use crate::rsocket::protocol::headers::{Source, UdpHeader};

/// Largest number of datagrams that wait to be received; more are left where they are.
const MAX_WAITING: usize = 1024;
/// Largest number of known peers; the one with the lowest address is dropped for another.
const MAX_PEERS: usize = 1 << 16;
/// Longest datagram in bytes, as with UDP.
const LONGEST: usize = 65507 - 28;
/// Largest number of datagrams between queue pairs in each direction.
const MAX_BUFFERS: u16 = 384;
/// Longest time that closing waits for sent datagrams to leave.
const LINGERING: Duration = Duration::from_secs(2);

/// A peer.
#[derive(Default)]
struct DatagramPeer {
    /// Queue pair of the peer and the path to it, once it has sent them.
    known: Option<(u32, Arc<Path>)>,
}

struct DatagramState {
    ends: Vec<DatagramQueuePair>,
    peers: BTreeMap<SocketAddr, DatagramPeer>,
    connected: Option<SocketAddr>,
    bound: bool,
    waiting: VecDeque<(SocketAddr, Box<[u8]>)>,
    options: SocketOptions,
    waiters: Vec<Arc<Waker>>,
    /// Buffer for a datagram over UDP.
    scratch: Box<[u8]>,
}

/// A datagram socket.
pub(crate) struct DatagramSocket {
    udp: UdpSocket,
    state: Mutex<DatagramState>,
}

fn from_io(error: &io::Error) -> Errno {
    Errno(error.raw_os_error().unwrap_or(libc::EIO))
}

/// Returns the address from which a peer is reached.
fn own_address(hca: &Hca, peer: SocketAddr) -> Result<IpAddr, Errno> {
    let entry = lookup::source_for(hca, peer)?;
    Ok(lookup::shown_source(hca, &entry, peer.ip()))
}

impl DatagramSocket {
    /// Creates a socket.
    ///
    /// # Errors
    /// Fails if there is no device, or if there are no descriptors.
    pub(crate) fn new(family: c_int, options: SocketOptions) -> Result<DatagramSocket, Errno> {
        all()?;
        let udp = UdpSocket::from(system_call::udp_socket(family)?);
        let state = DatagramState {
            ends: Vec::new(),
            peers: BTreeMap::new(),
            connected: None,
            bound: false,
            waiting: VecDeque::new(),
            options,
            waiters: Vec::new(),
            scratch: vec![0; 1 << 16].into(),
        };
        Ok(DatagramSocket { udp, state: Mutex::new(state) })
    }

    /// Returns the descriptor by which programs know it.
    pub(crate) fn descriptor(&self) -> RawFd {
        self.udp.as_raw_fd()
    }

    fn lock(&self) -> MutexGuard<'_, DatagramState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// # Errors
    /// Fails with the errors of bind(2).
    pub(crate) fn bind(&self, to: SocketAddr) -> Result<(), Errno> {
        self.bind_locked(&mut self.lock(), to)
    }

    fn bind_locked(&self, state: &mut DatagramState, mut to: SocketAddr) -> Result<(), Errno> {
        // If the devices have only one address of this family, answers must come from it.
        if to.ip().is_unspecified() {
            let gids = all()?.iter().flat_map(|device| device.hca().gids());
            let mut same = gids.map(|(_, entry)| entry.ip).filter(|ip| ip.is_ipv4() == to.is_ipv4());
            if let (Some(only), None) = (same.next(), same.next()) {
                to.set_ip(only);
            }
        }
        let (c, length) = address::to_c(to);
        system_call::bind(self.udp.as_fd(), &c, length)?;
        state.bound = true;
        Ok(())
    }

    /// # Errors
    /// Fails if there is no path to the peer.
    pub(crate) fn connect(&self, to: SocketAddr) -> Result<(), Errno> {
        let mut state = self.lock();
        self.end_for(&mut state, to)?;
        state.connected = Some(to);
        Ok(())
    }

    /// Returns the end from which a peer is reached.
    fn end_for(&self, state: &mut DatagramState, peer: SocketAddr) -> Result<usize, Errno> {
        let hca = shared_towards(peer)?.hca();
        if !state.bound {
            let own = own_address(hca, peer)?;
            self.bind_locked(state, SocketAddr::new(own, 0))?;
        }
        let mut own = self.udp.local_addr().map_err(|error| from_io(&error))?.ip();
        if own.is_unspecified() {
            own = own_address(hca, peer)?;
        }
        if let Some(index) = state.ends.iter().position(|end| end.ip == own) {
            return Ok(index);
        }
        let sizes = state.options.sizes(MAX_BUFFERS.into());
        let buffers = |bytes: u32| u16::try_from(bytes / 2048).unwrap_or(MAX_BUFFERS).clamp(16, MAX_BUFFERS);
        state.ends.push(DatagramQueuePair::new(
            own,
            buffers(sizes.send_buffer),
            buffers(sizes.receive_buffer),
        )?);
        Ok(state.ends.len() - 1)
    }

    /// # Errors
    /// Fails with the errors of getsockname(2).
    pub(crate) fn own(&self) -> Result<SocketAddr, Errno> {
        self.udp.local_addr().map_err(|error| from_io(&error))
    }

    pub(crate) fn peer(&self) -> Option<SocketAddr> {
        self.lock().connected
    }

    /// Takes received datagrams, over UDP and from queue pairs.
    fn progress(&self, state: &mut DatagramState) {
        let mut changed = false;
        let DatagramState { ends, waiting, connected, .. } = state;
        for end in ends {
            while waiting.len() < MAX_WAITING
                && end.poll(|Source(from), data| {
                    if connected.is_none_or(|peer| peer == from) {
                        waiting.push_back((from, data.into()));
                    }
                })
            {
                changed = true;
            }
        }
        let mut bytes = std::mem::take(&mut state.scratch);
        while state.waiting.len() < MAX_WAITING {
            let Ok((length, from)) = self.udp.recv_from(&mut bytes) else { break };
            changed = true;
            let Some((header, data)) = UdpHeader::parse(bytes.get(..length).unwrap_or_default()) else {
                continue;
            };
            // The datagram is received even if its sender cannot be answered.
            let _ = self.learn_queue_pair(state, from, &header);
            if !header.is_answer && state.connected.is_none_or(|peer| peer == from) {
                state.waiting.push_back((from, data.into()));
            }
        }
        state.scratch = bytes;
        if changed {
            state.waiters.iter().for_each(|waker| waker.wake());
        }
    }

    /// Stores the number of a peer's queue pair that the peer has sent, and answers.
    fn learn_queue_pair(
        &self,
        state: &mut DatagramState,
        from: SocketAddr,
        header: &UdpHeader,
    ) -> Result<(), Errno> {
        let index = self.end_for(state, from)?;
        let Some(end) = state.ends.get(index) else { return Ok(()) };
        if !header.is_answer {
            let answer = UdpHeader { is_answer: true, qpn: end.qpn(), ip: end.ip };
            // A lost answer is asked for again.
            let _ = self.udp.send_to(&answer.emit(), from);
        }
        if state.peers.len() >= MAX_PEERS && !state.peers.contains_key(&from) {
            state.peers.pop_first();
        }
        let known = state.peers.get(&from).and_then(|peer| peer.known.as_ref()).map(|(qpn, _)| *qpn);
        if known != Some(header.qpn) {
            let peer_path = end.path_to(from.ip())?;
            state.peers.insert(from, DatagramPeer { known: Some((header.qpn, peer_path)) });
        }
        Ok(())
    }

    /// Waits until a condition holds.
    fn wait<'a>(
        &'a self,
        mut state: MutexGuard<'a, DatagramState>,
        patience: WaitLimit,
        mut ready: impl FnMut(&DatagramState) -> bool,
    ) -> Result<MutexGuard<'a, DatagramState>, Errno> {
        let begin = outside::now();
        loop {
            self.progress(&mut state);
            if ready(&state) {
                return Ok(state);
            }
            match patience {
                WaitLimit::None => return Err(Errno(libc::EAGAIN)),
                WaitLimit::Until(end) if end <= outside::now() => return Err(Errno(libc::EAGAIN)),
                _ => {}
            }
            // This is shorter than a wake-up takes.
            if outside::since(begin) < Duration::from_micros(10) {
                drop(state);
                state = self.lock();
                continue;
            }
            let waker = Waker::of_thread()?;
            state.ends.iter_mut().for_each(DatagramQueuePair::arm);
            self.progress(&mut state);
            if ready(&state) {
                return Ok(state);
            }
            waker.clear();
            state.waiters.push(Arc::clone(&waker));
            let mut descriptors = vec![self.descriptor()];
            descriptors.extend(state.ends.iter().map(DatagramQueuePair::descriptor));
            drop(state);
            let ends = attempt_ends();
            let slept = waker.sleep(&descriptors, earlier(patience.deadline(), ends));
            state = self.lock();
            state.waiters.retain(|waiter| !Arc::ptr_eq(waiter, &waker));
            state.ends.iter_mut().for_each(DatagramQueuePair::arm);
            slept?;
            if ends.is_some_and(|end| end <= outside::now()) {
                self.progress(&mut state);
                return if ready(&state) { Ok(state) } else { Err(RESTART) };
            }
        }
    }

    /// Sends a datagram, to an address or the one that the socket is connected to.
    ///
    /// # Errors
    /// Fails with EDESTADDRREQ if there is no address to send to, with EMSGSIZE if it is too long, with
    /// EAGAIN, and with EINTR.
    pub(crate) fn send(
        &self,
        from: &mut Buffers<'_>,
        flags: c_int,
        to: Option<SocketAddr>,
    ) -> Result<usize, Errno> {
        let mut state = self.lock();
        let to = to.or(state.connected).ok_or(Errno(libc::EDESTADDRREQ))?;
        let length = from.left();
        if length > LONGEST {
            return Err(Errno(libc::EMSGSIZE));
        }
        let index = self.end_for(&mut state, to)?;
        if !state.peers.contains_key(&to) {
            // The answer may have arrived.
            self.progress(&mut state);
        }
        let header =
            Source(SocketAddr::new(state.ends.get(index).map_or(to.ip(), |end| end.ip), self.own()?.port()));
        let header = header.emit();
        let fits = state.ends.get(index).is_some_and(|end| end.takes(header.len() + length));
        let known = state.peers.get(&to).and_then(|peer| peer.known.clone()).filter(|_| fits);
        let Some((qpn, path)) = known else {
            let Some(end) = state.ends.get(index) else { return Err(Errno(libc::ENETUNREACH)) };
            let mut bytes = UdpHeader { is_answer: false, qpn: end.qpn(), ip: end.ip }.emit();
            let begin = bytes.len();
            bytes.resize(begin + length, 0);
            from.gather_into(bytes.get_mut(begin..).unwrap_or_default());
            self.udp.send_to(&bytes, to).map_err(|error| from_io(&error))?;
            return Ok(length);
        };
        let patience = WaitLimit::of(&state.options, flags, state.options.send_limit);
        let room = |state: &DatagramState| state.ends.get(index).is_some_and(DatagramQueuePair::has_room);
        if !room(&state) {
            state = self.wait(state, patience, room)?;
        }
        let to = UdDestination { path, qpn: Qpn::new(qpn), qkey: 0 };
        match state.ends.get_mut(index) {
            Some(end) => end.send(&header, from, to),
            None => Err(Errno(libc::ENETUNREACH)),
        }
    }

    /// Receives a datagram: returns how many bytes of it fit, and its source.
    ///
    /// # Errors
    /// Fails with EAGAIN or EINTR.
    pub(crate) fn receive(&self, into: &mut Buffers<'_>, flags: c_int) -> Result<(usize, SocketAddr), Errno> {
        let mut state = self.lock();
        let patience = WaitLimit::of(&state.options, flags, state.options.receive_limit);
        if state.waiting.is_empty() {
            state = self.wait(state, patience, |state| !state.waiting.is_empty())?;
        }
        let Some((from, data)) = state.waiting.front() else { return Err(Errno(libc::EAGAIN)) };
        let (length, from) = (data.len().min(into.left()), *from);
        into.scatter_from(data.get(..length).unwrap_or_default());
        let reported_length = if flags & libc::MSG_TRUNC != 0 { data.len() } else { length };
        if flags & libc::MSG_PEEK == 0 {
            state.waiting.pop_front();
        }
        Ok((reported_length, from))
    }

    /// Closes the socket: sent datagrams leave; those that were not received are lost.
    pub(crate) fn close(&self) {
        let patience = WaitLimit::Until(outside::now() + LINGERING);
        let mut state = self.lock();
        state.waiting.clear();
        // Datagrams that have not left by then never will.
        drop(self.wait(state, patience, |state| state.ends.iter().all(DatagramQueuePair::is_idle)));
    }

    /// # Errors
    /// Fails as setsockopt(2).
    pub(crate) fn set_option(&self, level: c_int, option: c_int, value: Option<&[u8]>) -> Result<(), Errno> {
        let mut state = self.lock();
        let made = !state.ends.is_empty();
        let ours = state.options.set(level, option, value, made);
        if level == SOL_RDMA {
            return ours;
        }
        system_call::set_option(self.udp.as_fd(), level, option, value)
    }

    /// Returns the bytes of an option's value, of which the program has room for `room`.
    ///
    /// # Errors
    /// Fails as getsockopt(2).
    pub(crate) fn show_option(&self, level: c_int, option: c_int, room: usize) -> Result<Vec<u8>, Errno> {
        if level == SOL_RDMA {
            return self.lock().options.show(level, option);
        }
        /// Length in bytes beyond the value of any option.
        const MOST: usize = 1 << 16;
        system_call::option(self.udp.as_fd(), level, option, room.min(MOST))
    }

    pub(crate) fn change_options(
        &self,
        change: impl FnOnce(&mut SocketOptions) -> Result<c_int, Errno>,
    ) -> Result<c_int, Errno> {
        change(&mut self.lock().options)
    }

    /// Returns the events that it is ready for, without waiting.
    pub(crate) fn readiness(&self, events: i16) -> i16 {
        let mut state = self.lock();
        self.progress(&mut state);
        let reads = if state.waiting.is_empty() { 0 } else { libc::POLLIN | libc::POLLRDNORM };
        let room = state.ends.iter().all(DatagramQueuePair::has_room);
        let writes = if room { libc::POLLOUT | libc::POLLWRNORM } else { 0 };
        events & (reads | writes)
    }

    /// Makes changes, or these descriptors, wake the thread of this waker.
    pub(crate) fn watch(&self, waker: &Arc<Waker>, descriptors: &mut Vec<RawFd>) {
        let mut state = self.lock();
        if !state.waiters.iter().any(|waiter| Arc::ptr_eq(waiter, waker)) {
            state.waiters.push(Arc::clone(waker));
        }
        state.ends.iter_mut().for_each(DatagramQueuePair::arm);
        descriptors.push(self.descriptor());
        descriptors.extend(state.ends.iter().map(DatagramQueuePair::descriptor));
    }

    /// Ends the waiting of the thread of this waker.
    pub(crate) fn unwatch(&self, waker: &Arc<Waker>) {
        let mut state = self.lock();
        state.waiters.retain(|waiter| !Arc::ptr_eq(waiter, waker));
        state.ends.iter_mut().for_each(DatagramQueuePair::arm);
    }
}
