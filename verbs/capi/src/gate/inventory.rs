//! Objects that the program has and has not given back, for the report of calls.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use pumice_calls::Call;
use pumice_device::event::{CallPhase, Event};
use pumice_device::outside::fork_generation::PerProcess;

use crate::call_sites::current_call::current;
use crate::check;

/// An object that the program has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct HeldObject {
    pub(super) kind: &'static str,
    /// Call that made it, and its ordinal.
    pub(super) call: Call,
    pub(super) ordinal: u64,
    /// True if the program has tried to give it back.
    is_excused: bool,
}

#[derive(Default)]
struct Inventory {
    held: BTreeMap<usize, HeldObject>,
    /// Objects that were destroyed with a closed context.
    left: Vec<HeldObject>,
}

static INVENTORY: PerProcess<Mutex<Inventory>> = PerProcess::new(|_| Mutex::default());
static IS_ENABLED: AtomicBool = AtomicBool::new(false);

fn lock() -> Option<MutexGuard<'static, Inventory>> {
    let is_enabled = IS_ENABLED.load(Ordering::Relaxed);
    is_enabled.then(|| INVENTORY.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Starts the inventory; in a forked process it starts empty.
pub(super) fn enable() {
    IS_ENABLED.store(true, Ordering::Relaxed);
    if let Some(mut inventory) = lock() {
        *inventory = Inventory::default();
    }
}

/// Kinds of objects that `rdma_*` calls make for the program, and not for themselves.
const OF_IDENTIFIERS: [&str; 4] = ["identifier", "event channel", "queue pair", "shared receive queue"];

/// Records that the program gets an object.
pub(crate) fn handed_out(address: usize, kind: &'static str) {
    if !IS_ENABLED.load(Ordering::Relaxed) && !check::is_on() {
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
    check::with_checker_of(address, |checker| checker.object_made(address as u64, kind, call.name()));
    let Some(mut inventory) = lock() else { return };
    let object = HeldObject { kind, call, ordinal, is_excused: false };
    inventory.held.insert(address, object);
}

/// Records that the program gave an object back.
pub(crate) fn given_back(address: usize) {
    if check::is_on() {
        check::misuse::forget_object(address);
    }
    check::with_checker(|checker| checker.object_destroyed(address as u64));
    if let Some(mut inventory) = lock() {
        inventory.held.remove(&address);
    }
}

/// Records that an object was destroyed with its context, which the program has closed.
pub(crate) fn left_behind(address: usize) {
    check::with_checker(|checker| checker.object_left_behind(address as u64));
    if let Some(mut inventory) = lock()
        && let Some(object) = inventory.held.remove(&address)
    {
        inventory.left.push(object);
    }
}

/// Records that the program tried to give an object back, with a call that failed.
pub(super) fn on_event(event: &Event<'_>) {
    if let Event::Call { made, phase: CallPhase::Fails } = event
        && made.call.destroys()
        && let Some(mut inventory) = lock()
        && let Some(object) = inventory.held.get_mut(&made.on)
    {
        object.is_excused = true;
    }
}

/// Returns the objects that the program has and never tried to give back; `None` if another thread is
/// changing the inventory.
pub(super) fn leftovers() -> Option<Vec<HeldObject>> {
    let inventory = INVENTORY.try_lock().ok()?;
    let all = inventory.left.iter().chain(inventory.held.values());
    Some(all.filter(|object| !object.is_excused).copied().collect())
}
