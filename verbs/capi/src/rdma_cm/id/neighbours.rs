//! Identifiers that search for the host of their peer: as in Linux, an address is resolved when the kernel
//! knows the next hop's link address, and fails when a time limit passes before. A thread waits for that
//! while there are such identifiers.

use std::mem;
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use pumice_device::outside;
use pumice_device::outside::fork_generation::PerProcess;
use pumice_device::outside::neighbour::{Neighbour, NeighbourChanges, Neighbours};
use pumice_device::outside::thread::start_without_signals;
use pumice_transport::cm::CmPath;

use super::binding::ephemeral_port;
use super::shared::shared_at;
use super::{Id, IdStage, IdState, LocalEvent};
use crate::call_sites::current_call::run_internally;
use crate::objects::peer_host;
use crate::platform::{Errno, system_call};

use crate::rdma_cm::constants::{ADDR_ERROR, ADDR_RESOLVED};

/// Time after which the kernel is made to search for a host again: it gives up after three attempts, a second
/// each.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// The path to a peer, which an identifier gets when the peer's address is resolved.
pub(crate) struct ResolvedCmPath {
    /// Index of the device among the devices.
    pub(crate) device: usize,
    pub(crate) port_num: u8,
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
    pub(crate) path: CmPath,
    /// Host that has to be found first.
    pub(crate) neighbour: Option<Neighbour>,
}

impl ResolvedCmPath {
    /// Gives the identifier this path, and notifies its program.
    pub(crate) fn take(&self, id: &Arc<Id>, state: &mut IdState) {
        let Ok(shared) = shared_at(self.device) else {
            return fail_resolution(id, state, self.remote, -libc::ENODEV);
        };
        (state.addresses.local, state.addresses.remote, state.addresses.path) =
            (Some(self.local), Some(self.remote), Some(self.path));
        state.stage = IdStage::AddressResolved;
        id.attach(shared, self.port_num);
        id.show_addresses(state);
        state.channel.push(LocalEvent::new(Arc::clone(id), ADDR_RESOLVED, 0));
    }
}

/// Notifies the program with a negative errno that there is no path to the peer; it may try again. As in
/// Linux, the identifier has an address now, even if it is that of no device.
pub(crate) fn fail_resolution(id: &Arc<Id>, state: &mut IdState, peer: SocketAddr, status: i32) {
    let any = if peer.is_ipv4() { [0, 0, 0, 0].into() } else { [0_u16; 8].into() };
    state.addresses.local.get_or_insert_with(|| SocketAddr::new(any, ephemeral_port()));
    state.stage = IdStage::Bound;
    state.channel.push(LocalEvent::new(Arc::clone(id), ADDR_ERROR, status));
}

/// Takes a path as soon as its first host is found, if one has to be, within `limit`.
pub(crate) fn apply_when_found(id: &Arc<Id>, state: &mut IdState, resolved: ResolvedCmPath, limit: Duration) {
    let is_own = resolved.local.ip() == resolved.remote.ip();
    if let Err(Errno(errno)) =
        if is_own { Ok(()) } else { peer_host::check_answers_arp(resolved.remote.ip()) }
    {
        return fail_resolution(id, state, resolved.remote, -errno);
    }
    let tables = resolved.neighbour.and_then(|neighbour| Some((neighbour, Neighbours::new().ok()?)));
    let Some((neighbour, _)) = tables.filter(|(neighbour, tables)| !tables.has(neighbour)) else {
        return resolved.take(id, state);
    };
    neighbour.start_resolution();
    let now = outside::now();
    let search = NeighbourSearch {
        id: Arc::downgrade(id),
        resolved,
        neighbour,
        until: now + limit,
        retry_at: now + RETRY_INTERVAL,
    };
    state.stage = IdStage::Resolving;
    // Without a thread that waits, the connection request shows whether the host is there.
    if let Some(resolved) = wait_for(search) {
        resolved.take(id, state);
    }
}

/// An identifier that searches for a host.
struct NeighbourSearch {
    id: Weak<Id>,
    resolved: ResolvedCmPath,
    neighbour: Neighbour,
    until: Instant,
    retry_at: Instant,
}

impl NeighbourSearch {
    /// Checks whether the search has ended: the host is found, the time is over, or the identifier is gone.
    fn has_ended(&mut self, tables: &Neighbours) -> bool {
        let Some(id) = self.id.upgrade() else { return true };
        let (found, now) = (tables.has(&self.neighbour), outside::now());
        let mut state = id.state();
        if state.stage != IdStage::Resolving {
            return true;
        }
        match () {
            () if found => self.resolved.take(&id, &mut state),
            () if now >= self.until => {
                fail_resolution(&id, &mut state, self.resolved.remote, -libc::ETIMEDOUT)
            }
            () => {
                if now >= self.retry_at {
                    self.retry_at = now + RETRY_INTERVAL;
                    self.neighbour.start_resolution();
                }
                return false;
            }
        }
        true
    }
}

/// The searches of a process, and the descriptor that wakes their thread.
#[derive(Default)]
struct NeighbourSearches {
    all: Vec<NeighbourSearch>,
    /// Descriptor that wakes the thread, while it runs.
    wake: Option<OwnedFd>,
}

static SEARCHES: PerProcess<Mutex<NeighbourSearches>> = PerProcess::new(|_| Mutex::default());

/// Locks the searches and returns them. While the searching thread holds this lock, it must not lock an
/// identifier.
fn searches() -> MutexGuard<'static, NeighbourSearches> {
    SEARCHES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Hands a search to the thread. Returns the path if no thread is available.
fn wait_for(search: NeighbourSearch) -> Option<ResolvedCmPath> {
    let mut searches = searches();
    if let Some(wake) = &searches.wake {
        system_call::signal(wake.as_fd());
        searches.all.push(search);
        return None;
    }
    let Some(wake) = start() else { return Some(search.resolved) };
    searches.wake = Some(wake);
    searches.all.push(search);
    None
}

/// Starts the thread.
fn start() -> Option<OwnedFd> {
    let (tables, changes) = (Neighbours::new().ok()?, NeighbourChanges::new().ok()?);
    let wake = system_call::event(libc::EFD_CLOEXEC).ok()?;
    let own = wake.try_clone().ok()?;
    // Its calls do not count as the program's.
    start_without_signals("pumice-arp", move || run_internally(|| run(&tables, &changes, own.as_fd())))
        .ok()?;
    Some(wake)
}

/// Runs the searches until there are none.
fn run(tables: &Neighbours, changes: &NeighbourChanges, wake: BorrowedFd<'_>) {
    loop {
        system_call::clear(wake);
        changes.drain();
        // The searches are taken out, so that others may be added while identifiers are notified.
        let mut due = mem::take(&mut searches().all);
        due.retain_mut(|search| !search.has_ended(tables));
        let mut searches = searches();
        searches.all.append(&mut due);
        let Some(next) = searches.all.iter().map(|search| search.until.min(search.retry_at)).min() else {
            searches.wake = None;
            return;
        };
        drop(searches);
        let entry = |descriptor| libc::pollfd { fd: descriptor, events: libc::POLLIN, revents: 0 };
        let mut entries = [entry(wake.as_raw_fd()), entry(changes.as_fd().as_raw_fd())];
        // The tables are checked again after every result of the wait.
        let _: Result<usize, Errno> = system_call::poll(&mut entries, Some(next));
    }
}
