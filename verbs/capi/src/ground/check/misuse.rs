//! Mistakes that are mistakes in themselves, and of which the device never hears: lists of devices that are
//! used when they are freed, and identifiers of rdma_cm that are used though an event has said that they
//! are not connected. Asked only if programs are checked.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use pumice_calls::Call;
use pumice_device::check::FindingKind;
use pumice_device::check::kind::{
    CHANNEL_DESTROYED_EARLY, CONNECTED_WITHOUT_QP, EVENTS_ACKNOWLEDGED_TWICE, FAILED_CONNECTION_USED,
    STEP_BEFORE_EVENT, USED_AFTER_DESTROY,
};
use pumice_device::outside::lineage::PerProcess;

use super::{own_stack, tell};

/// What is remembered of each kind; of more nothing is said.
const MOST: usize = 1024;

/// Events of steps.
pub(crate) const ADDRESS: &str = "RDMA_CM_EVENT_ADDR_RESOLVED";
pub(crate) const ROUTE: &str = "RDMA_CM_EVENT_ROUTE_RESOLVED";

/// Return addresses of the program's frames, innermost first.
type Place = Vec<u64>;

/// What was found.
struct Misuse {
    kind: &'static FindingKind,
    /// The address of the object.
    object: usize,
    /// With {} where the object belongs.
    sentence: String,
    /// What came before it, and where.
    before: (&'static str, Place),
}

#[derive(Default)]
struct Known {
    /// The devices of each list that the program has, by the address of the list.
    lists: BTreeMap<usize, Vec<usize>>,
    /// Where lists were freed.
    freed: BTreeMap<usize, Place>,
    /// Devices that the program has opened: it may use them without a list.
    opened: BTreeSet<usize>,
    /// Where events of rdma_cm were acknowledged, by their addresses, until there are others.
    acknowledged: BTreeMap<usize, Place>,
    /// Events of a step that the program has not got, by the addresses of the identifiers.
    awaited: BTreeMap<usize, &'static str>,
    /// Identifiers that are not connected, by their addresses.
    failed: BTreeMap<usize, Failed>,
}

/// An event has said that an identifier is not connected.
struct Failed {
    /// The address of its queue pair; 0 if it has none.
    qp: usize,
    event: String,
    got: Place,
}

static KNOWN: PerProcess<Mutex<Known>> = PerProcess::new(|_| Mutex::default());
/// An identifier has failed: what is kept of those has to be looked at by each post.
static HAS_FAILED: AtomicBool = AtomicBool::new(false);

/// Looks at what is known, and tells what that finds.
fn look(look: impl FnOnce(&mut Known) -> Option<Misuse>) {
    let found = look(&mut KNOWN.lock().unwrap_or_else(PoisonError::into_inner));
    if let Some(Misuse { kind, object, sentence, before: (what, place) }) = found {
        tell(|checker| checker.misused(kind, object as u64, &sentence, (what, &place)));
    }
}

/// Keeps the place of something, if there is room.
fn keep(places: &mut BTreeMap<usize, Place>, address: usize) {
    if places.len() < MOST {
        places.insert(address, own_stack());
    }
}

/// The program gets a list of these devices.
pub(crate) fn got_list(list: usize, devices: Vec<usize>) {
    look(|known| {
        known.freed.remove(&list);
        if known.lists.len() < MOST {
            known.lists.insert(list, devices);
        }
        None
    });
}

/// The program frees a list of devices.
pub(crate) fn frees_list(list: usize) {
    look(|known| {
        if known.lists.remove(&list).is_some() {
            keep(&mut known.freed, list);
            return None;
        }
        let sentence = "ibv_free_device_list is given a list of devices that was freed before".to_owned();
        let freed = known.freed.get(&list)?.clone();
        let before = ("the list was freed here", freed);
        Some(Misuse { kind: &USED_AFTER_DESTROY, object: 0, sentence, before })
    });
}

/// The program opens the device at this address.
pub(crate) fn opens_device(device: usize) {
    look(|known| {
        let is_new = known.opened.insert(device);
        let is_listed = known.lists.len() >= MOST || known.lists.values().flatten().any(|one| *one == device);
        let freed = known.freed.values().next().filter(|_| is_new && !is_listed)?.clone();
        let sentence = "ibv_open_device is given a device whose list was freed".to_owned();
        let before = ("the list was freed here", freed);
        Some(Misuse { kind: &USED_AFTER_DESTROY, object: 0, sentence, before })
    });
}

/// The program has asked for a step of an identifier, whose event it has to get before the next one.
pub(crate) fn asks(identifier: usize, event: &'static str) {
    look(|known| {
        if known.awaited.len() < MOST {
            known.awaited.insert(identifier, event);
        }
        None
    });
}

/// That step has failed, and has no event.
pub(crate) fn asks_in_vain(identifier: usize) {
    look(|known| {
        known.awaited.remove(&identifier);
        None
    });
}

/// The program gets an event of rdma_cm about an identifier; `failed`: it says that the identifier at an
/// address is not connected, nor is its queue pair at another one, and has this name.
pub(crate) fn got_event(event: usize, about: usize, failed: Option<(usize, usize, String)>) {
    look(|known| {
        known.acknowledged.remove(&event);
        known.awaited.remove(&about);
        if let Some((identifier, qp, event)) = failed.filter(|_| known.failed.len() < MOST) {
            known.failed.insert(identifier, Failed { qp, event, got: own_stack() });
            HAS_FAILED.store(true, Ordering::Relaxed);
        }
        None
    });
}

/// The program acknowledges an event of rdma_cm; `is_one`: there is one at this address.
pub(crate) fn acknowledges_event(event: usize, is_one: bool) {
    look(|known| {
        if is_one {
            keep(&mut known.acknowledged, event);
            return None;
        }
        let before = ("it was acknowledged here", known.acknowledged.remove(&event)?);
        let sentence = "rdma_ack_cm_event is given an event that was acknowledged before".to_owned();
        Some(Misuse { kind: &EVENTS_ACKNOWLEDGED_TWICE, object: 0, sentence, before })
    });
}

/// The program destroys an event channel of rdma_cm which these identifiers have.
pub(crate) fn destroys_channel(channel: usize, identifiers: &[usize]) {
    look(|_| {
        let mut count = 0;
        tell(|checker| count = identifiers.iter().filter(|one| checker.is_object(**one as u64)).count());
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

/// The program connects an identifier without a queue pair.
pub(crate) fn connects_without_qp() {
    let sentence = "an identifier is connected that has no queue pair, and qp_num of the parameters is 0";
    tell(|checker| checker.misused(&CONNECTED_WITHOUT_QP, 0, sentence, ("", &[])));
}

/// The program has destroyed an object.
pub(crate) fn is_gone(address: usize) {
    look(|known| {
        known.awaited.remove(&address);
        known.failed.retain(|identifier, failed| address != *identifier && address != failed.qp);
        None
    });
}

/// The program makes a call, which is given the object at this address.
#[inline]
pub(super) fn enters(call: Call, address: usize) {
    steps(call, address);
    goes_on(call, address);
}

/// It may be the next step of an identifier.
#[inline]
fn steps(call: Call, address: usize) {
    if !matches!(call, Call::rdma_resolve_route | Call::rdma_create_qp | Call::rdma_connect) {
        return;
    }
    look(|known| {
        let event = *known.awaited.get(&address)?;
        if call == Call::rdma_create_qp && event != ADDRESS {
            return None;
        }
        known.awaited.remove(&address);
        let sentence = format!("{call} is called on {{}} before the program has got {event}");
        Some(Misuse { kind: &STEP_BEFORE_EVENT, object: address, sentence, before: ("", Vec::new()) })
    });
}

/// It may use an identifier that is not connected.
#[inline]
fn goes_on(call: Call, address: usize) {
    let is_anew = matches!(call, Call::rdma_resolve_addr | Call::ibv_modify_qp);
    let goes_on = matches!(
        call,
        Call::ibv_post_send | Call::rdma_resolve_route | Call::rdma_create_qp | Call::rdma_create_qp_ex
    );
    if address == 0 || !(is_anew || goes_on) || !HAS_FAILED.load(Ordering::Relaxed) {
        return;
    }
    look(|known| {
        let is_it = |identifier: usize, failed: &Failed| address == identifier || address == failed.qp;
        let (identifier, _) = known.failed.iter().find(|(identifier, failed)| is_it(**identifier, failed))?;
        let (object, failed) = known.failed.remove_entry(&identifier.clone())?;
        let of = if address == failed.qp { "the queue pair of " } else { "" };
        let event = failed.event;
        let sentence =
            format!("{call} is called on {of}{{}}, for which the program got {event}: it is not connected");
        let before = ("the program got the event here", failed.got);
        goes_on.then_some(Misuse { kind: &FAILED_CONNECTION_USED, object, sentence, before })
    });
}
