//! Identifiers that look for the host of their peer: as in Linux, an address is resolved when the kernel
//! knows where the next hop on the way is, and is an error when a time limit passes before. A thread waits
//! for that while there are such identifiers.

use std::mem;
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use pumice_device::outside;
use pumice_device::outside::lineage::PerProcess;
use pumice_device::outside::neighbour::{Neighbour, NeighbourChanges, Neighbours};
use pumice_device::outside::thread::start_without_signals;
use pumice_transport::cm::CmPath;

use super::binding::ephemeral_port;
use super::identifier::{Id, LocalEvent, Stage, State};
use super::shared::shared_at;
use crate::ground::errno::Errno;
use crate::ground::gate::quietly;

use crate::ground::system_call;
use crate::rdma_cm::constants::{ADDR_ERROR, ADDR_RESOLVED};

/// After which time the kernel is made to look for a host again: it gives up after three attempts, a second
/// each.
const AGAIN: Duration = Duration::from_secs(1);

/// The way to a peer: what an identifier has when the peer's address is resolved.
pub(crate) struct ResolvedPath {
    /// The index of the device among the devices.
    pub(crate) device: usize,
    pub(crate) port_num: u8,
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
    pub(crate) path: CmPath,
    /// The host that has to be found first.
    pub(crate) neighbour: Option<Neighbour>,
}

impl ResolvedPath {
    /// The identifier goes this way; its program is told.
    pub(crate) fn take(&self, id: &Arc<Id>, state: &mut State) {
        let Ok(shared) = shared_at(self.device) else {
            return no_way(id, state, self.remote, -libc::ENODEV);
        };
        (state.local, state.remote, state.path) = (Some(self.local), Some(self.remote), Some(self.path));
        state.stage = Stage::AddressResolved;
        id.attach(shared, self.port_num);
        id.show_addresses(state);
        state.channel.push(LocalEvent::new(Arc::clone(id), ADDR_RESOLVED, 0));
    }
}

/// There is no way to the peer: the program is told by a negative errno, and may try again. As in Linux, the
/// identifier has an address now, if only that of no device.
pub(crate) fn no_way(id: &Arc<Id>, state: &mut State, peer: SocketAddr, status: i32) {
    let any = if peer.is_ipv4() { [0, 0, 0, 0].into() } else { [0_u16; 8].into() };
    state.local.get_or_insert_with(|| SocketAddr::new(any, ephemeral_port()));
    state.stage = Stage::Bound;
    state.channel.push(LocalEvent::new(Arc::clone(id), ADDR_ERROR, status));
}

/// Goes a way as soon as its first host is found, if one has to be, within `limit`.
pub(crate) fn take_when_found(id: &Arc<Id>, state: &mut State, way: ResolvedPath, limit: Duration) {
    let tables = way.neighbour.and_then(|neighbour| Some((neighbour, Neighbours::new().ok()?)));
    let Some((neighbour, _)) = tables.filter(|(neighbour, tables)| !tables.has(neighbour)) else {
        return way.take(id, state);
    };
    neighbour.look_for();
    let now = outside::now();
    let search = Search { id: Arc::downgrade(id), way, neighbour, until: now + limit, again: now + AGAIN };
    state.stage = Stage::Resolving;
    // Without a thread that waits, the connection request finds out.
    if let Some(way) = wait_for(search) {
        way.take(id, state);
    }
}

/// An identifier that looks for a host.
struct Search {
    id: Weak<Id>,
    way: ResolvedPath,
    neighbour: Neighbour,
    until: Instant,
    again: Instant,
}

impl Search {
    /// Looks whether the host is found, or the time over; then the search has ended, as it has for an
    /// identifier that is gone.
    fn has_ended(&mut self, tables: &Neighbours) -> bool {
        let Some(id) = self.id.upgrade() else { return true };
        let (found, now) = (tables.has(&self.neighbour), outside::now());
        let mut state = id.state();
        if state.stage != Stage::Resolving {
            return true;
        }
        match () {
            () if found => self.way.take(&id, &mut state),
            () if now >= self.until => no_way(&id, &mut state, self.way.remote, -libc::ETIMEDOUT),
            () => {
                if now >= self.again {
                    self.again = now + AGAIN;
                    self.neighbour.look_for();
                }
                return false;
            }
        }
        true
    }
}

/// The searches of a process, and what wakes the thread that looks after them.
#[derive(Default)]
struct Searches {
    all: Vec<Search>,
    /// While the thread runs.
    wake: Option<OwnedFd>,
}

static SEARCHES: PerProcess<Mutex<Searches>> = PerProcess::new(|_| Mutex::default());

/// The searches, locked. No identifier may be locked by the thread that looks after them meanwhile.
fn searches() -> MutexGuard<'static, Searches> {
    SEARCHES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Has a thread look after a search. The way, if there is no thread to be had.
fn wait_for(search: Search) -> Option<ResolvedPath> {
    let mut searches = searches();
    if let Some(wake) = &searches.wake {
        system_call::signal(wake.as_fd());
        searches.all.push(search);
        return None;
    }
    let Some(wake) = start() else { return Some(search.way) };
    searches.wake = Some(wake);
    searches.all.push(search);
    None
}

/// Starts the thread.
fn start() -> Option<OwnedFd> {
    let (tables, changes) = (Neighbours::new().ok()?, NeighbourChanges::new().ok()?);
    let wake = system_call::event(libc::EFD_CLOEXEC).ok()?;
    let own = wake.try_clone().ok()?;
    // What it does is none of the program's calls.
    start_without_signals("pumice-arp", move || quietly(|| run(&tables, &changes, own.as_fd()))).ok()?;
    Some(wake)
}

/// Looks after the searches until there are none.
fn run(tables: &Neighbours, changes: &NeighbourChanges, wake: BorrowedFd<'_>) {
    loop {
        system_call::clear(wake);
        changes.drain();
        // Taken out, so that others may add some while identifiers are told.
        let mut looked_at = mem::take(&mut searches().all);
        looked_at.retain_mut(|search| !search.has_ended(tables));
        let mut searches = searches();
        searches.all.append(&mut looked_at);
        let Some(next) = searches.all.iter().map(|search| search.until.min(search.again)).min() else {
            searches.wake = None;
            return;
        };
        drop(searches);
        let entry = |descriptor| libc::pollfd { fd: descriptor, events: libc::POLLIN, revents: 0 };
        let mut entries = [entry(wake.as_raw_fd()), entry(changes.as_fd().as_raw_fd())];
        // However it ends, the tables are looked at again.
        let _: Result<usize, Errno> = system_call::poll(&mut entries, Some(next));
    }
}
