//! Contexts: an opened device, its tables of operations, and what it owns.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::mem::offset_of;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use pumice_device::ground::table::Handle;
use pumice_device::hca::{Hca, TargetRegistration};
use pumice_device::objects::completion_queue::CompletionQueue;
use pumice_device::profile::Vendor;
use pumice_transport::wire::Qpn;

use super::adapter::{Adapter, adapter};
use super::command_file::{CommandFile, Owned};
use super::device::Device;
use super::events::{AsyncQueue, EventSource};
use crate::ground::abi::{ibv_context, verbs_context};
use crate::ground::check;
use crate::ground::errno::{Errno, INVALID};
use crate::ground::gate::context_opened;
use crate::ground::handles::{
    Held, Identity, Listed, Shown, hand_out_shared, live, live_or_inherited, pointer_to,
};

/// An opened device. The program's pointer is to `verbs.context`.
#[repr(C)]
pub(crate) struct Context {
    verbs: Shown<verbs_context>,
    device: &'static Device,
    adapter: Arc<Adapter>,
    async_events: Arc<AsyncQueue>,
    /// Programs duplicate this descriptor and compare what it is.
    _command: OwnedFd,
    file: Arc<CommandFile>,
    /// XRC receive queue pairs of OFED 1.x that it is registered for.
    registered: Mutex<BTreeMap<Qpn, (TargetRegistration, Arc<EventSource>)>>,
}

// SAFETY: that far from the beginning is the context in the structure around it.
unsafe impl Held for Context {
    type C = ibv_context;
    const OFFSET: usize = offset_of!(Context, verbs) + offset_of!(verbs_context, context);
}

impl Listed for Context {
    const KIND: &'static str = "context";

    fn identity(_c: &ibv_context) -> Identity {
        Identity::NONE
    }
}

impl Context {
    /// The context behind a program's pointer.
    ///
    /// # Errors
    /// EINVAL: it is null. ENOENT: it was closed, or never opened.
    pub(crate) fn of(context: *mut ibv_context) -> Result<Arc<Context>, Errno> {
        if context.is_null() { Err(INVALID) } else { live(context) }
    }

    /// As [`Context::of`], also of a context that this process inherited: to ask for its device and limits,
    /// which never change.
    ///
    /// # Errors
    /// As [`Context::of`].
    pub(crate) fn facts_of(context: *mut ibv_context) -> Result<Arc<Context>, Errno> {
        if context.is_null() { Err(INVALID) } else { live_or_inherited(context) }
    }

    /// The device that it is of.
    pub(crate) const fn device(&self) -> &'static Device {
        self.device
    }

    /// Checks that an object is of this context, or of one that was imported with its descriptor: a kernel
    /// looks for its handle among the objects of the open file, and finds none, or another object.
    ///
    /// # Errors
    /// EINVAL: it is of another context, maybe of another device.
    pub(crate) fn check_same(&self, object: &str, other: &Context) -> Result<(), Errno> {
        if Arc::ptr_eq(&self.file, &other.file) {
            return Ok(());
        }
        let (own, other) = (self.device, other.device);
        check::tell(|checker| checker.of_other_context(object));
        Err(INVALID.because(|| {
            if own.index() != other.index() {
                return format!("the {object} is on {}, and this is {}", other.name(), own.name());
            }
            format!(
                "the {object} is of another context of {}: what is used together must be made on one \
                 context; open the device once, or import it with ibv_import_device",
                own.name()
            )
        }))
    }

    pub(crate) fn adapter(&self) -> &Arc<Adapter> {
        &self.adapter
    }

    pub(crate) fn hca(&self) -> &Arc<Hca> {
        self.adapter.hca()
    }

    /// Whether its device looks like one of a vendor.
    pub(crate) fn is_of(&self, vendor: Vendor) -> bool {
        self.device().profile().vendor() == Some(vendor)
    }

    /// Its asynchronous events.
    pub(crate) fn async_events(&self) -> &AsyncQueue {
        &self.async_events
    }

    /// What its command descriptor stands for.
    pub(crate) fn file(&self) -> &Arc<CommandFile> {
        &self.file
    }

    pub(crate) fn own(&self, owned: Owned) {
        self.own_cq(owned, None);
    }

    pub(crate) fn own_cq(&self, owned: Owned, cq: Option<Arc<CompletionQueue>>) {
        self.file.own(owned, cq);
    }

    pub(crate) fn disown(&self, owned: Owned) {
        self.file.disown(owned);
    }

    /// Forgets the events of what has left the HCA.
    pub(crate) fn forget_events(&self, source: &EventSource) {
        self.adapter.distributor().forget(&self.async_events, source);
    }

    /// Notes a registration of OFED 1.x.
    pub(crate) fn registered(&self, registration: TargetRegistration, source: Arc<EventSource>) {
        let mut all = self.registered.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(registration.qpn, (registration, source));
    }

    pub(crate) fn is_registered(&self, number: Qpn) -> bool {
        self.registered.lock().unwrap_or_else(PoisonError::into_inner).contains_key(&number)
    }

    /// Takes back what [`Context::registered`] noted.
    pub(crate) fn unregistered(&self, number: Qpn) -> Option<(TargetRegistration, Arc<EventSource>)> {
        self.registered.lock().unwrap_or_else(PoisonError::into_inner).remove(&number)
    }

    /// Destroys what the program left, as a kernel does when a device file is closed for the last time.
    pub(crate) fn destroy_leftovers(&self) {
        let hca = self.hca();
        let registered = std::mem::take(&mut *self.registered.lock().unwrap_or_else(PoisonError::into_inner));
        for (registration, source) in registered.into_values() {
            // It has been opened, so it can be closed.
            let _ = hca.close_target(registration);
            self.forget_events(&source);
        }
        for (owned, cq) in CommandFile::leftovers(&self.file) {
            // What another context still uses stays, and goes with the adapter.
            let _ = match owned {
                Owned::Window(handle) => hca.dealloc_mw(Handle::unpack(handle)),
                Owned::Flow(id) => hca.destroy_flow(id),
                Owned::QueuePair(number) => hca.destroy_qp(Qpn::new(number)),
                Owned::Target(registration) => hca.close_target(registration),
                Owned::ReservedNumber(number) => {
                    hca.release_number(Qpn::new(number));
                    Ok(())
                }
                Owned::SharedReceiveQueue(handle) => hca.destroy_srq(Handle::unpack(handle)),
                Owned::CompletionQueue(handle) => {
                    // No thread is left to acknowledge.
                    cq.inspect(|cq| cq.ack_events(u64::MAX));
                    hca.destroy_cq(Handle::unpack(handle))
                }
                Owned::IndirectKey(handle) => hca.end_indirect_key(Handle::unpack(handle)),
                Owned::Region(handle) => hca.dereg_mr(Handle::unpack(handle)),
                Owned::AddressHandle(handle) => hca.destroy_ah(Handle::unpack(handle)),
                Owned::XrcDomain(handle) => hca.close_xrcd(Handle::unpack(handle)),
                Owned::ProtectionDomain(handle) => hca.dealloc_pd(Handle::unpack(handle)),
            };
        }
    }

    /// Opens a device on a command file, with a table of operations.
    ///
    /// # Errors
    /// Those of the adapter; the descriptor comes back.
    pub(crate) fn open(
        device: &'static Device,
        command: OwnedFd,
        file: Arc<CommandFile>,
        mut verbs: Box<verbs_context>,
    ) -> Result<*mut ibv_context, (Errno, OwnedFd)> {
        let opened = adapter(device.index()).and_then(|adapter| Ok((adapter, Arc::new(AsyncQueue::new()?))));
        let (adapter, async_events) = match opened {
            Ok(both) => both,
            Err(errno) => return Err((errno, command)),
        };
        verbs.context.device = device.as_ptr();
        verbs.context.cmd_fd = command.as_raw_fd();
        verbs.context.async_fd = async_events.fd();
        verbs.context.num_comp_vectors = adapter.hca().limits().num_comp_vectors as c_int;
        let context = Arc::new(Context {
            verbs: Shown::new(*verbs),
            device,
            adapter,
            async_events,
            _command: command,
            file,
            registered: Mutex::default(),
        });
        context.adapter.distributor().register(pointer_to(&context), &context.async_events);
        context_opened(pointer_to(&context).addr(), context.adapter.life());
        Ok(hand_out_shared(&context))
    }
}
