//! Asynchronous events. The HCA has one queue of them; every context has its own, with a descriptor. A thread
//! that sleeps until there is an event moves them to the contexts.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::c_void;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;

use pumice_calls::Call;
use pumice_device::event::async_event::AsyncElement;
use pumice_device::hca::Hca;
use pumice_device::outside;
use pumice_device::outside::event_fd::EventPipe;
use pumice_device::outside::fork_generation::PerProcess;
use pumice_device::platform::event_queue::Awaited;
use pumice_device::port::wait_readable;
use pumice_transport::types::AsyncEventType;
use pumice_transport::wire::Qpn;

use super::{device, peer_host};
use crate::abi::{EVENT_FLAG, ibv_async_event, ibv_context};
use crate::platform::{Errno, system_call};
use crate::waits::AcknowledgementWait;

/// The event `IBV_EVENT_LID_CHANGE`, of this library: the device knows no LIDs.
const LID_CHANGE: u32 = 11;
/// Largest element that is the number of a queue pair or port: no object has so low an address.
const NUMBERS: u64 = 0xff_ffff;

/// Sources of events, of all objects that have any, by cookie.
static SOURCES: PerProcess<Mutex<BTreeMap<u64, Weak<EventSource>>>> = PerProcess::new(|_| Mutex::default());
/// Descriptors from which asynchronous events are read.
static DESCRIPTORS: PerProcess<Mutex<Vec<RawFd>>> = PerProcess::new(|_| Mutex::default());

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A source of events: an object of the program, or an XRC receive queue pair of OFED 1.x.
pub(crate) struct EventSource {
    /// Cookie by which the HCA names it.
    cookie: u64,
    /// Address of its context, which gets the events.
    context: usize,
    kind: SourceKind,
    /// Number of events that the program got and has not acknowledged.
    unacknowledged: Awaited<u32>,
}

enum SourceKind {
    /// An object, whose cookie is the address of its structure.
    Object,
    /// A number, which is known once the queue pair exists.
    Number(AtomicU32),
}

impl EventSource {
    /// Creates the source of an object, whose cookie is the address of its structure.
    pub(crate) fn of_object(context: *mut ibv_context, cookie: u64) -> Arc<EventSource> {
        EventSource::add(context, cookie, SourceKind::Object)
    }

    /// Creates the source of a receive queue pair of OFED 1.x, which has no object.
    pub(crate) fn of_number(context: *mut ibv_context) -> Arc<EventSource> {
        // Addresses of structures are even, so odd cookies are free.
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let cookie = NEXT.fetch_add(2, Ordering::Relaxed);
        EventSource::add(context, cookie, SourceKind::Number(AtomicU32::new(0)))
    }

    fn add(context: *mut ibv_context, cookie: u64, kind: SourceKind) -> Arc<EventSource> {
        let context = context.addr();
        let source = Arc::new(EventSource { cookie, context, kind, unacknowledged: Awaited::default() });
        lock(&SOURCES).insert(cookie, Arc::downgrade(&source));
        source
    }

    fn find(cookie: u64) -> Option<Arc<EventSource>> {
        lock(&SOURCES).get(&cookie).and_then(Weak::upgrade)
    }

    /// Returns the cookie by which the HCA names it.
    pub(crate) const fn cookie(&self) -> u64 {
        self.cookie
    }

    /// Sets the number of the queue pair.
    pub(crate) fn set_number(&self, number: Qpn) {
        if let SourceKind::Number(own) = &self.kind {
            own.store(number.value(), Ordering::Relaxed);
        }
    }

    /// Returns the number of events that the program got and has not acknowledged.
    pub(crate) fn unacknowledged(&self) -> u64 {
        self.unacknowledged.look(|count| u64::from(*count))
    }

    /// Blocks until the program has acknowledged all events: an object must not be freed while a thread reads
    /// its event. `call` is the call that waits, `address` that of the object.
    pub(crate) fn wait_acknowledged(&self, call: Call, address: usize) {
        let waits = AcknowledgementWait {
            call,
            by: Call::ibv_ack_async_event,
            address,
            left: &|| self.unacknowledged(),
            wait_for: &|patience| self.unacknowledged.wait_for(patience, |count| *count == 0),
        };
        waits.wait(|| self.unacknowledged.wait(|count| *count == 0));
    }
}

impl Drop for EventSource {
    fn drop(&mut self) {
        let mut sources = lock(&SOURCES);
        // A newer object may have the address by now.
        if sources.get(&self.cookie).is_some_and(|source| source.strong_count() == 0) {
            sources.remove(&self.cookie);
        }
    }
}

/// Element of an event: a source or a port.
#[derive(Clone)]
enum EventElement {
    Source(Arc<EventSource>),
    Port(u8),
}

impl EventElement {
    /// Returns the element; `None` if the object is gone.
    fn of(element: AsyncElement) -> Option<EventElement> {
        match element {
            AsyncElement::Cq { cookie } | AsyncElement::Qp { cookie, .. } | AsyncElement::Srq { cookie } => {
                EventSource::find(cookie).map(EventElement::Source)
            }
            AsyncElement::Port(port) => Some(EventElement::Port(port)),
            AsyncElement::Device => Some(EventElement::Port(1)),
        }
    }

    /// Reports whether a context gets the event.
    fn concerns(&self, context: usize) -> bool {
        match self {
            EventElement::Source(source) => source.context == context,
            EventElement::Port(_) => true,
        }
    }

    fn is(&self, other: &EventSource) -> bool {
        matches!(self, EventElement::Source(source) if ptr::eq(Arc::as_ptr(source), other))
    }

    /// Returns the event for the program; an event of an object has to be acknowledged.
    fn hand_out(&self, event_type: u32) -> ibv_async_event {
        let (element, flag): (*mut c_void, u32) = match self {
            EventElement::Port(port) => (ptr::without_provenance_mut(usize::from(*port)), 0),
            EventElement::Source(source) => match &source.kind {
                SourceKind::Object => {
                    source.unacknowledged.change(|count| *count += 1);
                    (ptr::with_exposed_provenance_mut(source.cookie as usize), 0)
                }
                SourceKind::Number(number) => {
                    let number = number.load(Ordering::Relaxed);
                    (ptr::without_provenance_mut(number as usize), EVENT_FLAG)
                }
            },
        };
        ibv_async_event { element, event_type: event_type | flag }
    }
}

/// Acknowledges an event for the program.
pub(crate) fn acknowledge(event: &ibv_async_event) {
    let cookie = event.element.addr() as u64;
    // Events of CQs, QPs and SRQs have objects. A number of OFED 1.x, whose flag the program may have
    // cleared, is no object.
    let of_object = matches!(event.event_type, 0..=7 | 14..=16) && cookie > NUMBERS;
    if let Some(source) = EventSource::find(cookie).filter(|_| of_object) {
        source.unacknowledged.change(|count| *count = count.saturating_sub(1));
    }
}

/// Asynchronous events of one context.
pub(crate) struct AsyncQueue {
    /// Pipe with as many bytes as events are queued, so that one read(2) waits for one event.
    waiting: EventPipe,
    queued: Mutex<VecDeque<(u32, EventElement)>>,
}

impl AsyncQueue {
    /// Largest number of events that wait for the program; further ones are lost.
    const CAPACITY: usize = 1 << 16;

    pub(crate) fn new() -> Result<AsyncQueue, Errno> {
        let queue = AsyncQueue { waiting: EventPipe::new()?, queued: Mutex::new(VecDeque::new()) };
        lock(&DESCRIPTORS).push(queue.fd());
        Ok(queue)
    }

    /// Returns the descriptors of all queues.
    pub(crate) fn descriptors() -> Vec<RawFd> {
        lock(&DESCRIPTORS).clone()
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.waiting.as_fd().as_raw_fd()
    }

    fn push(&self, event: u32, element: EventElement) {
        let mut queued = lock(&self.queued);
        if queued.len() < AsyncQueue::CAPACITY && self.waiting.put() {
            queued.push_back((event, element));
        }
    }

    /// Takes the oldest event.
    pub(crate) fn take(&self) -> Option<ibv_async_event> {
        let mut queued = lock(&self.queued);
        let (event_type, element) = queued.pop_front()?;
        Some(element.hand_out(event_type))
    }

    fn forget(&self, source: &EventSource) {
        let mut queued = lock(&self.queued);
        let before = queued.len();
        queued.retain(|(_, element)| !element.is(source));
        // A reader that was faster finds the queue empty and waits again.
        self.waiting.take(before - queued.len());
    }
}

impl Drop for AsyncQueue {
    fn drop(&mut self) {
        let own = self.fd();
        lock(&DESCRIPTORS).retain(|fd| *fd != own);
    }
}

/// A thread that moves events of the HCA to the contexts.
pub(crate) struct EventDistributor {
    shared: Arc<EventCarrier>,
    thread: Option<JoinHandle<()>>,
}

/// State that the thread and the contexts share.
struct EventCarrier {
    hca: Arc<Hca>,
    /// The index of the device among the devices.
    index: usize,
    /// Open contexts by address. The lock is held while an event is moved: a thread that has held it since an
    /// object left the HCA knows that no event of the object is under way.
    contexts: Mutex<Vec<(usize, Arc<AsyncQueue>)>>,
    wake: OwnedFd,
    stopping: AtomicBool,
    /// Number of address changes that identifiers were notified of.
    address_changes: AtomicU64,
    /// LID of each port.
    lids: [AtomicU16; 2],
}

impl EventCarrier {
    fn carry(&self) {
        if self.carry_all() && self.hca.back_ns().is_some() {
            device::removed(self.index);
        }
        let changes = self.hca.presence().address_changes();
        if self.address_changes.swap(changes, Ordering::AcqRel) != changes {
            device::address_changed(self.index);
        }
    }

    /// Moves all events. Returns true if the device is lost.
    fn carry_all(&self) -> bool {
        let mut is_lost = false;
        let contexts = lock(&self.contexts);
        while let Some(event) = self.hca.async_events().try_event() {
            is_lost |= event.event == AsyncEventType::DeviceFatal;
            if event.event == AsyncEventType::GidChange {
                self.update_lid(&contexts);
            }
            if let Some(element) = EventElement::of(event.element) {
                for (_, queue) in contexts.iter().filter(|(context, _)| element.concerns(*context)) {
                    queue.push(event.event as u32, element.clone());
                }
            }
            event.ack();
        }
        is_lost
    }

    /// Notes a change of a port's LID, which with PUMICE_LID is made of its first address and may have
    /// changed with it.
    fn update_lid(&self, contexts: &[(usize, Arc<AsyncQueue>)]) {
        for (port_num, known) in (1..).zip(&self.lids) {
            let lid = peer_host::lid_of_port(&self.hca, port_num);
            if known.swap(lid, Ordering::Relaxed) != lid {
                contexts.iter().for_each(|(_, queue)| queue.push(LID_CHANGE, EventElement::Port(port_num)));
            }
        }
    }

    /// Runs the thread.
    fn run(&self) {
        let fd = self.hca.async_events().as_fd().as_raw_fd();
        while !self.stopping.load(Ordering::Acquire) {
            // After a failing ppoll(2) the loop only looks for events again.
            let _ = wait_readable(&[fd], Some(self.wake.as_raw_fd()), None);
            self.carry();
        }
    }
}

impl EventDistributor {
    pub(crate) fn start(hca: &Arc<Hca>, index: usize) -> Result<EventDistributor, Errno> {
        let shared = Arc::new(EventCarrier {
            hca: Arc::clone(hca),
            index,
            contexts: Mutex::new(Vec::new()),
            wake: system_call::event(libc::EFD_CLOEXEC)?,
            stopping: AtomicBool::new(false),
            address_changes: AtomicU64::new(hca.presence().address_changes()),
            lids: [1, 2].map(|port_num| AtomicU16::new(peer_host::lid_of_port(hca, port_num))),
        });
        let thread = outside::thread::start("pumice-model", Some(128 << 10), {
            let shared = Arc::clone(&shared);
            move || shared.run()
        });
        let thread = thread.map_err(|e| Errno(e.raw_os_error().unwrap_or(libc::EAGAIN)))?;
        Ok(EventDistributor { shared, thread: Some(thread) })
    }

    pub(crate) fn register(&self, context: *mut ibv_context, events: &Arc<AsyncQueue>) {
        lock(&self.shared.contexts).push((context.addr(), Arc::clone(events)));
    }

    pub(crate) fn unregister(&self, context: *mut ibv_context) {
        lock(&self.shared.contexts).retain(|(other, _)| *other != context.addr());
    }

    /// Drops queued events of an object that has left the HCA.
    pub(crate) fn forget(&self, events: &AsyncQueue, source: &EventSource) {
        // Events that were being moved when it left have arrived once this lock is held.
        let _carried = lock(&self.shared.contexts);
        events.forget(source);
    }
}

impl Drop for EventDistributor {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::Release);
        system_call::signal(self.shared.wake.as_fd());
        // A panic in the thread was reported where it happened.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
