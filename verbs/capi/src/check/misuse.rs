//! Mistakes that the device never sees: device lists that are used after they are freed, and identifiers of
//! rdma_cm that are used although an event has said that they are not connected. Used only if programs are
//! checked.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use pumice_calls::Call;
use pumice_device::check::FindingKind;
use pumice_device::check::kind::{
    CHANNEL_DESTROYED_EARLY, CONNECTED_WITHOUT_QP, EVENTS_ACKNOWLEDGED_TWICE, FAILED_CONNECTION_USED,
    STEP_BEFORE_EVENT, USED_AFTER_DESTROY,
};
use pumice_device::outside::fork_generation::PerProcess;

use crate::call_sites::current_call::current;
use crate::call_sites::state::{call_stack, with_checker};

/// Largest number of remembered entries of each kind; further ones are not checked.
const MAX_ENTRIES: usize = 1024;

/// Names of the events of steps.
pub(crate) const ADDRESS: &str = "RDMA_CM_EVENT_ADDR_RESOLVED";
pub(crate) const ROUTE: &str = "RDMA_CM_EVENT_ROUTE_RESOLVED";

/// Return addresses of the program's frames, innermost first.
type CallStack = Vec<u64>;

/// A mistake that was found.
struct Misuse {
    kind: &'static FindingKind,
    /// Address of the object.
    object: usize,
    /// Sentence for the finding, with {} in place of the object.
    sentence: String,
    /// Description and call site of the earlier call.
    before: (&'static str, CallStack),
}

#[derive(Default)]
struct MisuseHistory {
    /// Devices of each list that the program has, by the address of the list.
    lists: BTreeMap<usize, Vec<usize>>,
    /// Call sites at which lists were freed.
    freed: BTreeMap<usize, CallStack>,
    /// Devices that the program has opened: it may use them without a list.
    opened: BTreeSet<usize>,
    /// Call sites at which events of rdma_cm were acknowledged, by the events' addresses, until new events
    /// have these.
    acknowledged: BTreeMap<usize, CallStack>,
    /// Events of a step that the program has not got yet, by the addresses of the identifiers.
    awaited: BTreeMap<usize, &'static str>,
    /// Identifiers that are not connected, by their addresses.
    failed: BTreeMap<usize, FailedConnection>,
}

/// An identifier that is not connected, as an event has said.
struct FailedConnection {
    /// Address of its queue pair; 0 if it has none.
    qp: usize,
    event: String,
    got: CallStack,
}

static HISTORY: PerProcess<Mutex<MisuseHistory>> = PerProcess::new(|_| Mutex::default());
/// True if an identifier has failed: each post then has to check the record of those.
static HAS_FAILED: AtomicBool = AtomicBool::new(false);

/// Checks the record, and reports the mistake that the check finds.
fn check_history(check_history: impl FnOnce(&mut MisuseHistory) -> Option<Misuse>) {
    let found = check_history(&mut HISTORY.lock().unwrap_or_else(PoisonError::into_inner));
    if let Some(Misuse { kind, object, sentence, before: (what, stack) }) = found {
        with_checker(|checker| checker.misused(kind, object as u64, &sentence, (what, &stack)));
    }
}

/// Records the call site for an address, if there is room.
fn record_call_site(call_sites: &mut BTreeMap<usize, CallStack>, address: usize) {
    if call_sites.len() < MAX_ENTRIES {
        call_sites.insert(address, call_stack());
    }
}

/// Reports whether the program itself makes this call, and not the library for another call.
fn is_of_program(call: Call) -> bool {
    current().is_none_or(|made| made.call() == Some(call))
}

/// Records that the program gets a list of these devices.
pub(crate) fn got_list(list: usize, devices: Vec<usize>) {
    if !is_of_program(Call::ibv_get_device_list) {
        return;
    }
    check_history(|history| {
        history.freed.remove(&list);
        if history.lists.len() < MAX_ENTRIES {
            history.lists.insert(list, devices);
        }
        None
    });
}

/// Checks that the program frees a list of devices.
pub(crate) fn frees_list(list: usize) {
    if !is_of_program(Call::ibv_free_device_list) {
        return;
    }
    check_history(|history| {
        if history.lists.remove(&list).is_some() {
            record_call_site(&mut history.freed, list);
            return None;
        }
        let sentence = "ibv_free_device_list is given a list of devices that was freed before".to_owned();
        let freed = history.freed.get(&list)?.clone();
        let before = ("the list was freed here", freed);
        Some(Misuse { kind: &USED_AFTER_DESTROY, object: 0, sentence, before })
    });
}

/// Checks that this call opens the device at this address. Calls by which the library opens devices on the
/// program's behalf are not checked.
pub(crate) fn opens_device(call: Call, device: usize) {
    if !is_of_program(call) {
        return;
    }
    check_history(|history| {
        let is_new = history.opened.insert(device);
        let is_listed =
            history.lists.len() >= MAX_ENTRIES || history.lists.values().flatten().any(|one| *one == device);
        let freed = history.freed.values().next().filter(|_| is_new && !is_listed)?.clone();
        let sentence = format!("{call} is given a device whose list was freed");
        let before = ("the list was freed here", freed);
        Some(Misuse { kind: &USED_AFTER_DESTROY, object: 0, sentence, before })
    });
}

/// Records that the program has asked for a step of an identifier, whose event it has to get before the next
/// one.
pub(crate) fn step_requested(identifier: usize, event: &'static str) {
    check_history(|history| {
        if history.awaited.len() < MAX_ENTRIES {
            history.awaited.insert(identifier, event);
        }
        None
    });
}

/// Records that the step has failed, and has no event.
pub(crate) fn step_failed(identifier: usize) {
    check_history(|history| {
        history.awaited.remove(&identifier);
        None
    });
}

/// Records that the program gets an event of rdma_cm about an identifier. `failed` is given if the event says
/// that the identifier is not connected: the addresses of identifier and queue pair, and the name of the
/// event.
pub(crate) fn got_event(event: usize, about: usize, failed: Option<(usize, usize, String)>) {
    check_history(|history| {
        history.acknowledged.remove(&event);
        history.awaited.remove(&about);
        if let Some((identifier, qp, event)) = failed.filter(|_| history.failed.len() < MAX_ENTRIES) {
            history.failed.insert(identifier, FailedConnection { qp, event, got: call_stack() });
            HAS_FAILED.store(true, Ordering::Relaxed);
        }
        None
    });
}

/// Checks that the program acknowledges an event of rdma_cm; `is_one` is true if there is an event at this
/// address.
pub(crate) fn acknowledges_event(event: usize, is_one: bool) {
    check_history(|history| {
        if is_one {
            record_call_site(&mut history.acknowledged, event);
            return None;
        }
        let before = ("it was acknowledged here", history.acknowledged.remove(&event)?);
        let sentence = "rdma_ack_cm_event is given an event that was acknowledged before".to_owned();
        Some(Misuse { kind: &EVENTS_ACKNOWLEDGED_TWICE, object: 0, sentence, before })
    });
}

/// Checks that the program destroys an event channel of rdma_cm which these identifiers use.
pub(crate) fn destroys_channel(channel: usize, identifiers: &[usize]) {
    check_history(|_| {
        let mut count = 0;
        with_checker(|checker| {
            count = identifiers.iter().filter(|one| checker.is_object(**one as u64)).count()
        });
        let are = match count {
            0 => return None,
            1 => "an identifier on it is".to_owned(),
            count => format!("{count} identifiers on it are"),
        };
        let sentence = format!("{{}} is destroyed, and {are} not");
        let before = ("", Vec::new());
        Some(Misuse { kind: &CHANNEL_DESTROYED_EARLY, object: channel, sentence, before })
    });
}

/// Reports that the program connects an identifier without a queue pair.
pub(crate) fn connects_without_qp() {
    let sentence = "an identifier is connected that has no queue pair, and qp_num of the parameters is 0";
    with_checker(|checker| checker.misused(&CONNECTED_WITHOUT_QP, 0, sentence, ("", &[])));
}

/// Removes the record of an object that the program has destroyed.
pub(crate) fn forget_object(address: usize) {
    check_history(|history| {
        history.awaited.remove(&address);
        history.failed.retain(|identifier, failed| address != *identifier && address != failed.qp);
        None
    });
}

/// Checks a call of the program that is given the object at this address.
#[inline]
pub(super) fn enters(call: Call, address: usize) {
    check_step(call, address);
    uses_connection(call, address);
}

/// Checks a call that may be the next step of an identifier.
#[inline]
fn check_step(call: Call, address: usize) {
    if !matches!(call, Call::rdma_resolve_route | Call::rdma_create_qp | Call::rdma_connect) {
        return;
    }
    check_history(|history| {
        let event = *history.awaited.get(&address)?;
        if call == Call::rdma_create_qp && event != ADDRESS {
            return None;
        }
        history.awaited.remove(&address);
        let sentence = format!("{call} is called on {{}} before the program has got {event}");
        Some(Misuse { kind: &STEP_BEFORE_EVENT, object: address, sentence, before: ("", Vec::new()) })
    });
}

/// Checks a call that may use an identifier that is not connected.
#[inline]
fn uses_connection(call: Call, address: usize) {
    let is_restart = matches!(call, Call::rdma_resolve_addr | Call::ibv_modify_qp);
    let uses_connection = matches!(
        call,
        Call::ibv_post_send | Call::rdma_resolve_route | Call::rdma_create_qp | Call::rdma_create_qp_ex
    );
    if address == 0 || !(is_restart || uses_connection) || !HAS_FAILED.load(Ordering::Relaxed) {
        return;
    }
    check_history(|history| {
        let is_it =
            |identifier: usize, failed: &FailedConnection| address == identifier || address == failed.qp;
        let (identifier, _) =
            history.failed.iter().find(|(identifier, failed)| is_it(**identifier, failed))?;
        let (object, failed) = history.failed.remove_entry(&identifier.clone())?;
        let of = if address == failed.qp { "the queue pair of " } else { "" };
        let event = failed.event;
        let sentence =
            format!("{call} is called on {of}{{}}, for which the program got {event}: it is not connected");
        let before = ("the program got the event here", failed.got);
        uses_connection.then_some(Misuse { kind: &FAILED_CONNECTION_USED, object, sentence, before })
    });
}
