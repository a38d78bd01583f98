//! Asynchronous events. The HCA has one queue of them; every context has its own, with a descriptor.
//! A thread that sleeps until there is one carries them over.

use std::collections::VecDeque;
use std::ffi::{c_int, c_void};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use pumice_device::ground::awaited::Awaited;
use pumice_device::hca::Hca;
use pumice_device::objects::async_event::AsyncElement;
use pumice_device::port::wait_readable;
use pumice_device::system::event_pipe::EventPipe;
use pumice_transport::types::AsyncEventType;

use crate::calls::completion_queue::Cq;
use crate::calls::ofed_xrc::{EVENT_FLAG, Registered};
use crate::calls::queue_pair::Qp;
use crate::calls::shared_receive_queue::Srq;
use crate::ground::abi::{ibv_async_event, ibv_context, ibv_cq, ibv_qp, ibv_srq};
use crate::ground::errno::{Errno, set_errno};
use crate::ground::handles::held_or_none;
use crate::ground::outcome::value;
use crate::objects::context::Context;
use crate::objects::local_identifier;

/// Events of one object that the program got and has not acknowledged.
#[derive(Default)]
pub(crate) struct Unacknowledged(Awaited<u32>);

impl Unacknowledged {
    fn got(&self) {
        self.0.change(|count| *count += 1);
    }

    fn acknowledge(&self) {
        self.0.change(|count| *count = count.saturating_sub(1));
    }

    /// Blocks until there are none: an object must not vanish under a thread that looks at its event.
    pub(crate) fn wait(&self) {
        self.0.wait(|count| *count == 0);
    }
}

/// What an event is about. The pointers are the objects of the program.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Element {
    Cq(*mut ibv_cq),
    Qp(*mut ibv_qp),
    Srq(*mut ibv_srq),
    Port(u8),
    /// An XRC receive queue pair of OFED 1.x.
    Registered(*const Registered),
}

impl Element {
    fn of(element: AsyncElement) -> Element {
        match element {
            AsyncElement::Cq { cookie } => Element::Cq(ptr::with_exposed_provenance_mut(cookie as usize)),
            AsyncElement::Qp { cookie, .. } if Registered::of_cookie(cookie).is_some() => {
                Element::Registered(Registered::of_cookie(cookie).unwrap_or(ptr::null()))
            }
            AsyncElement::Qp { cookie, .. } => Element::Qp(ptr::with_exposed_provenance_mut(cookie as usize)),
            AsyncElement::Srq { cookie } => Element::Srq(ptr::with_exposed_provenance_mut(cookie as usize)),
            AsyncElement::Port(port) => Element::Port(port),
            AsyncElement::Device => Element::Port(1),
        }
    }

    fn of_event(event: &ibv_async_event) -> Element {
        match event.event_type {
            // A number of OFED 1.x, whose flag the program may have taken away: there is no object.
            _ if event.element.addr() <= NUMBERS => Element::Port(1),
            0 => Element::Cq(event.element.cast()),
            1..=7 | 16 => Element::Qp(event.element.cast()),
            14 | 15 => Element::Srq(event.element.cast()),
            _ => Element::Port(1),
        }
    }

    fn pointer(self) -> *mut c_void {
        match self {
            Element::Cq(cq) => cq.cast(),
            Element::Qp(qp) => qp.cast(),
            Element::Srq(srq) => srq.cast(),
            Element::Port(port) => ptr::without_provenance_mut(usize::from(port)),
            // SAFETY: an event leaves the queue before its registration goes.
            Element::Registered(registered) => unsafe {
                ptr::without_provenance_mut((*registered).number as usize)
            },
        }
    }

    /// # Safety
    /// The object exists.
    unsafe fn unacknowledged<'a>(self) -> Option<&'a Unacknowledged> {
        // SAFETY: the caller's promise.
        unsafe {
            match self {
                Element::Cq(cq) => held_or_none::<Cq>(cq).map(Cq::unacknowledged),
                Element::Qp(qp) => held_or_none::<Qp>(qp).map(Qp::unacknowledged),
                Element::Srq(srq) => held_or_none::<Srq>(srq).map(Srq::unacknowledged),
                Element::Port(_) | Element::Registered(_) => None,
            }
        }
    }

    /// # Safety
    /// The object exists.
    unsafe fn context(self) -> Option<*mut ibv_context> {
        // SAFETY: the caller's promise; the first field of each is its context.
        unsafe {
            match self {
                Element::Cq(cq) => Some((*cq).context),
                Element::Qp(qp) => Some((*qp).context),
                Element::Srq(srq) => Some((*srq).context),
                Element::Registered(registered) => Some((*registered).context),
                Element::Port(_) => None,
            }
        }
    }
}

/// Asynchronous events of one context.
pub(crate) struct AsyncQueue {
    /// As many bytes as events are queued, so that one read(2) waits for one event.
    waiting: EventPipe,
    queued: Mutex<VecDeque<(u32, Element)>>,
}

// SAFETY: the pointers are names; the program serialises what happens to the objects.
unsafe impl Send for AsyncQueue {}
// SAFETY: as above.
unsafe impl Sync for AsyncQueue {}

impl AsyncQueue {
    /// Most events that wait for the program; further ones are lost.
    const CAPACITY: usize = 1 << 16;

    pub(crate) fn new() -> Result<AsyncQueue, Errno> {
        Ok(AsyncQueue { waiting: EventPipe::new()?, queued: Mutex::new(VecDeque::new()) })
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.waiting.as_fd().as_raw_fd()
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<(u32, Element)>> {
        self.queued.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, event: u32, element: Element) {
        let mut queued = self.lock();
        if queued.len() < AsyncQueue::CAPACITY && self.waiting.put() {
            queued.push_back((event, element));
        }
    }

    fn take(&self) -> Option<ibv_async_event> {
        let mut queued = self.lock();
        let (event_type, element) = queued.pop_front()?;
        // SAFETY: an object's events leave the queue before the object goes.
        if let Some(unacknowledged) = unsafe { element.unacknowledged() } {
            unacknowledged.got();
        }
        let flag = if matches!(element, Element::Registered(_)) { EVENT_FLAG } else { 0 };
        Some(ibv_async_event { element: element.pointer(), event_type: event_type | flag })
    }

    fn forget(&self, element: Element) {
        let mut queued = self.lock();
        let before = queued.len();
        queued.retain(|(_, other)| *other != element);
        // A reader that was faster finds the queue empty and waits again.
        self.waiting.take(before - queued.len());
    }
}

static ONE: u64 = 1;

/// `IBV_EVENT_LID_CHANGE`: of this library, not of the device, which knows no LIDs.
const LID_CHANGE: u32 = 11;

/// Elements up to here are numbers of queue pairs or ports: no object is at so low an address.
const NUMBERS: usize = 0xff_ffff;

/// Carries events of the HCA to the contexts.
pub(crate) struct Distributor {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    hca: Arc<Hca>,
    /// Open contexts. Held while an event is carried, so that whoever has held it since an object
    /// left the HCA knows that no event of the object is under way.
    contexts: Mutex<Vec<ContextName>>,
    wake: OwnedFd,
    stopping: AtomicBool,
    lid: AtomicU16,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct ContextName(*mut ibv_context);

// SAFETY: dereferenced only while it is registered, and a context unregisters before it goes.
unsafe impl Send for ContextName {}

impl Shared {
    fn contexts(&self) -> MutexGuard<'_, Vec<ContextName>> {
        self.contexts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn carry(&self) {
        let contexts = self.contexts();
        while let Some(event) = self.hca.async_events().try_event() {
            let (kind, element) = (event.event as u32, Element::of(event.element));
            if event.event == AsyncEventType::GidChange {
                self.note_lid(&contexts, element);
            }
            // SAFETY: destroying the object waits for this event's acknowledgement, below.
            let owner = unsafe { element.context() };
            for context in contexts.iter().filter(|context| owner.is_none_or(|owner| owner == context.0)) {
                // SAFETY: registered contexts are open.
                if let Ok(context) = unsafe { Context::of(context.0) } {
                    context.async_events.push(kind, element);
                }
            }
            event.ack();
        }
    }
}

impl Shared {
    /// With PUMICE_LID the port's LID is made of its first address, and may have changed with it.
    fn note_lid(&self, contexts: &[ContextName], port: Element) {
        let lid = local_identifier::of_port(&self.hca);
        if self.lid.swap(lid, Ordering::Relaxed) == lid {
            return;
        }
        for context in contexts {
            // SAFETY: registered contexts are open.
            if let Ok(context) = unsafe { Context::of(context.0) } {
                context.async_events.push(LID_CHANGE, port);
            }
        }
    }
}

impl Distributor {
    pub(crate) fn start(hca: &Arc<Hca>) -> Result<Distributor, Errno> {
        // SAFETY: no memory is involved.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
        if fd < 0 {
            return Err(Errno(crate::ground::errno::errno()));
        }
        // SAFETY: the descriptor is new.
        let wake = unsafe { OwnedFd::from_raw_fd(fd) };
        let shared = Arc::new(Shared {
            hca: Arc::clone(hca),
            contexts: Mutex::new(Vec::new()),
            wake,
            stopping: AtomicBool::new(false),
            lid: AtomicU16::new(local_identifier::of_port(hca)),
        });
        let thread =
            std::thread::Builder::new().name("pumice-events".to_owned()).stack_size(128 << 10).spawn({
                let shared = Arc::clone(&shared);
                move || {
                    let fd = shared.hca.async_events().as_fd().as_raw_fd();
                    while !shared.stopping.load(Ordering::Acquire) {
                        // A failing ppoll(2) makes this look again, nothing worse.
                        let _ = wait_readable(&[fd], Some(shared.wake.as_raw_fd()), None);
                        shared.carry();
                    }
                }
            });
        let thread = thread.map_err(|e| Errno(e.raw_os_error().unwrap_or(libc::EAGAIN)))?;
        Ok(Distributor { shared, thread: Some(thread) })
    }

    pub(crate) fn register(&self, context: *mut ibv_context) {
        self.shared.contexts().push(ContextName(context));
    }

    pub(crate) fn unregister(&self, context: *mut ibv_context) {
        self.shared.contexts().retain(|other| *other != ContextName(context));
    }

    /// Forgets the events of an object that has left the HCA.
    fn forget(&self, events: &AsyncQueue, element: Element) {
        // What was being carried when the object left has arrived once this lock is had.
        let _carried = self.shared.contexts();
        events.forget(element);
    }

    pub(crate) fn forget_cq(&self, events: &AsyncQueue, cq: *mut ibv_cq) {
        self.forget(events, Element::Cq(cq));
    }

    pub(crate) fn forget_qp(&self, events: &AsyncQueue, qp: *mut ibv_qp) {
        self.forget(events, Element::Qp(qp));
    }

    pub(crate) fn forget_registered(&self, events: &AsyncQueue, registered: *const Registered) {
        self.forget(events, Element::Registered(registered));
    }

    pub(crate) fn forget_srq(&self, events: &AsyncQueue, srq: *mut ibv_srq) {
        self.forget(events, Element::Srq(srq));
    }
}

impl Drop for Distributor {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::Release);
        // SAFETY: eight bytes of a constant.
        unsafe { libc::write(self.shared.wake.as_raw_fd(), (&raw const ONE).cast(), 8) };
        // A panic in the thread has been reported where it happened.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

unsafe extern "C-unwind" {
    fn read(fd: c_int, bytes: *mut c_void, count: usize) -> isize;
}

/// Waits for an event unless the descriptor is O_NONBLOCK. A signal ends the wait, and a thread that
/// waits can be cancelled: nothing in this frame is to be dropped.
pub(crate) unsafe extern "C-unwind" fn ibv_get_async_event(
    context: *mut ibv_context,
    event: *mut ibv_async_event,
) -> c_int {
    if context.is_null() || event.is_null() {
        set_errno(libc::EINVAL);
        return -1;
    }
    loop {
        let mut byte = 0_u8;
        // SAFETY: the context's descriptor, and a byte.
        let got = unsafe { read((*context).async_fd, (&raw mut byte).cast(), 1) };
        if got != 1 {
            return -1;
        }
        // SAFETY: the caller's promise.
        if unsafe { take_event(context, event) } {
            return 0;
        }
    }
}

/// False: another thread was faster, or the event's object is gone.
#[inline(never)]
unsafe extern "C" fn take_event(context: *mut ibv_context, event: *mut ibv_async_event) -> bool {
    value(false, || {
        // SAFETY: an open context.
        let Some(taken) = unsafe { Context::of(context) }.ok().and_then(|open| open.async_events.take())
        else {
            return false;
        };
        // SAFETY: the caller's structure.
        unsafe { event.write(taken) };
        true
    })
}

pub(crate) unsafe extern "C" fn ibv_ack_async_event(event: *mut ibv_async_event) {
    value((), || {
        // SAFETY: null or the caller's structure.
        let Some(event) = (unsafe { event.as_ref() }) else { return };
        // SAFETY: an object with an unacknowledged event is not gone.
        if let Some(unacknowledged) = unsafe { Element::of_event(event).unacknowledged() } {
            unacknowledged.acknowledge();
        }
    });
}
