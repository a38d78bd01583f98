//! What the program has and has not given back, for the report of calls.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use pumice_calls::Call;
use pumice_device::event::{CallPhase, Event};
use pumice_device::outside::lineage::PerProcess;

use super::current::current;
use crate::ground::check;

/// An object that the program has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Object {
    pub(super) kind: &'static str,
    /// The call that made it, and its ordinal.
    pub(super) call: Call,
    pub(super) ordinal: u64,
    /// The program has tried to give it back.
    is_excused: bool,
}

#[derive(Default)]
struct Inventory {
    held: BTreeMap<usize, Object>,
    /// Those that a closed context took with it.
    left: Vec<Object>,
}

static INVENTORY: PerProcess<Mutex<Inventory>> = PerProcess::new(|_| Mutex::default());
static IS_KEPT: AtomicBool = AtomicBool::new(false);

fn lock() -> Option<MutexGuard<'static, Inventory>> {
    let is_kept = IS_KEPT.load(Ordering::Relaxed);
    is_kept.then(|| INVENTORY.lock().unwrap_or_else(PoisonError::into_inner))
}

/// From now on an inventory is kept; in a fork, from the beginning.
pub(super) fn keep() {
    IS_KEPT.store(true, Ordering::Relaxed);
    if let Some(mut inventory) = lock() {
        *inventory = Inventory::default();
    }
}

/// What `rdma_*` calls make for the program, and not for themselves.
const OF_IDENTIFIERS: [&str; 4] = ["identifier", "event channel", "queue pair", "shared receive queue"];

/// The program gets an object.
pub(crate) fn handed_out(address: usize, kind: &'static str) {
    if !IS_KEPT.load(Ordering::Relaxed) && !check::is_on() {
        return;
    }
    let Some((call, ordinal)) = current().and_then(|made| Some((made.call()?, made.ordinal()))) else {
        return;
    };
    if call.is_of_sockets() {
        return;
    }
    if call.is_of_connections() && !OF_IDENTIFIERS.contains(&kind) {
        return;
    }
    check::tell_of(address, |checker| checker.object_made(address as u64, kind, call.name()));
    let Some(mut inventory) = lock() else { return };
    let object = Object { kind, call, ordinal, is_excused: false };
    inventory.held.insert(address, object);
}

/// The program gave an object back.
pub(crate) fn given_back(address: usize) {
    if check::is_on() {
        check::misuse::is_gone(address);
    }
    check::tell(|checker| checker.object_destroyed(address as u64));
    if let Some(mut inventory) = lock() {
        inventory.held.remove(&address);
    }
}

/// An object went with its context, which the program has closed.
pub(crate) fn left_behind(address: usize) {
    check::tell(|checker| checker.object_left_behind(address as u64));
    if let Some(mut inventory) = lock()
        && let Some(object) = inventory.held.remove(&address)
    {
        inventory.left.push(object);
    }
}

/// A call that gives an object back has failed: the program has tried.
pub(super) fn hear(event: &Event<'_>) {
    if let Event::Call { made, phase: CallPhase::Fails } = event
        && made.call.gives_back()
        && let Some(mut inventory) = lock()
        && let Some(object) = inventory.held.get_mut(&made.on)
    {
        object.is_excused = true;
    }
}

/// What the program has and never tried to give back; `None` if another thread is changing it.
pub(super) fn leftovers() -> Option<Vec<Object>> {
    let inventory = INVENTORY.try_lock().ok()?;
    let all = inventory.left.iter().chain(inventory.held.values());
    Some(all.filter(|object| !object.is_excused).copied().collect())
}
