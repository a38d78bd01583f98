//! Time in a world with a performance model: what calls cost, and when a poll in vain can find something.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use pumice_calls::Call;
use pumice_device::event::{CallMade, CallPhase, Event};
use pumice_device::hca::Hca;
use pumice_device::outside::fork_generation::{InheritedOnce, PerProcess};
use pumice_device::outside::world;
use pumice_device::performance::{Cost, Costs};

/// The costs of the world's model; `None` without a model.
static COSTS: InheritedOnce<Option<Costs>> = InheritedOnce::new();
/// The devices that were opened.
static OPENED: PerProcess<Mutex<Vec<Weak<Hca>>>> = PerProcess::new(|_| Mutex::default());

fn costs() -> Option<&'static Costs> {
    COSTS.get_or_init(|| Costs::parse(&world::model()?)).as_ref()
}

/// Adds a device, whose arrivals polls in vain wait for.
pub(crate) fn device_opened(hca: &Arc<Hca>) {
    if world::is_in_world() && costs().is_some() {
        let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
        opened.retain(|hca| hca.strong_count() > 0);
        opened.push(Arc::downgrade(hca));
    }
}

/// Lets the time of a call pass, or the time until a poll in vain can find something. Returns false if the
/// world has no model.
pub(super) fn pass(event: &Event<'_>) -> bool {
    let Some(costs) = costs() else { return false };
    match event {
        Event::Call { phase: CallPhase::Returns, made: CallMade { call, .. } } => {
            world::charge_call(call_ns(costs, *call), next_change_ns);
        }
        Event::Idle { made } => world::idle_poll_until(next_change_ns(), made.on, drives(made.call)),
        Event::Call { phase: CallPhase::Enters, made: CallMade { call, .. } } => {
            world::begin_call(call_ns(costs, *call) > 0);
        }
        _ => {}
    }
    true
}

/// Reports whether a call drives the device if it finds nothing.
const fn drives(call: Call) -> bool {
    matches!(call, Call::ibv_poll_cq | Call::ibv_start_poll)
}

/// Returns the time that the processor needs for a call, in ns.
fn call_ns(costs: &Costs, call: Call) -> u64 {
    let cost = match call {
        Call::ibv_post_send | Call::ibv_wr_complete => Cost::Post,
        Call::ibv_poll_cq | Call::ibv_start_poll | Call::ibv_next_poll => Cost::Poll,
        Call::ibv_reg_mr | Call::ibv_reg_mr_iova2 => Cost::Register,
        _ => return 0,
    };
    costs.get(cost) / 1000
}

/// Returns when the next of this process's devices does something, by the clock that all processes share.
fn next_change_ns() -> Option<u64> {
    let opened: Vec<Arc<Hca>> = {
        let opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
        opened.iter().filter_map(Weak::upgrade).collect()
    };
    let next_ns = |hca: &Arc<Hca>| Some(hca.next_change_ns()?.saturating_add(hca.clock().origin_ns()));
    opened.iter().filter(|hca| hca.is_own()).filter_map(next_ns).min()
}
