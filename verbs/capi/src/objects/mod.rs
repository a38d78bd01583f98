//! Objects that programs hold, one file per kind of objects, and the adapter that they share.
//!
//! Contexts: an opened device, its tables of operations, and the objects that it owns.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)
)]

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::mem::offset_of;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use pumice_device::hca::{Hca, TargetRegistration};
use pumice_device::objects::completion_queue::CompletionQueue;
use pumice_device::platform::table::Handle;
use pumice_device::profile::Vendor;
use pumice_transport::wire::Qpn;

use self::adapter::{DeviceAdapter, adapter};
use self::command_file::{CommandFile, OwnedObject};
use self::device::Device;
use self::events::{AsyncQueue, EventSource};
use crate::abi::{ibv_context, verbs_context};
use crate::check;
use crate::entry::handles::{
    CObject, HandleIdentity, RegisteredObject, SharedStruct, hand_out_shared, live, live_or_inherited,
    pointer_to,
};
use crate::gate::context_opened;
use crate::platform::{Errno, INVALID};

/// An opened device. The program's pointer is to `verbs.context`.
#[repr(C)]
pub(crate) struct Context {
    verbs: SharedStruct<verbs_context>,
    device: &'static Device,
    adapter: Arc<DeviceAdapter>,
    async_events: Arc<AsyncQueue>,
    /// Command descriptor, which programs duplicate and compare.
    _command: OwnedFd,
    file: Arc<CommandFile>,
    /// Registrations for XRC receive queue pairs of OFED 1.x.
    registered: Mutex<BTreeMap<Qpn, (TargetRegistration, Arc<EventSource>)>>,
}

// SAFETY: this offset is that of the context in the structure around it.
unsafe impl CObject for Context {
    type C = ibv_context;
    const OFFSET: usize = offset_of!(Context, verbs) + offset_of!(verbs_context, context);
}

impl RegisteredObject for Context {
    const KIND: &'static str = "context";

    fn identity(_c: &ibv_context) -> HandleIdentity {
        HandleIdentity::NONE
    }
}

impl Context {
    /// Returns the context behind a program's pointer.
    ///
    /// # Errors
    /// Fails with EINVAL if the pointer is null, and with ENOENT if the context was closed, or never opened.
    pub(crate) fn of(context: *mut ibv_context) -> Result<Arc<Context>, Errno> {
        if context.is_null() { Err(INVALID) } else { live(context) }
    }

    /// Returns the context as [`Context::of`] does, also one that this process inherited: for its device and
    /// limits, which never change.
    ///
    /// # Errors
    /// Fails as [`Context::of`].
    pub(crate) fn facts_of(context: *mut ibv_context) -> Result<Arc<Context>, Errno> {
        if context.is_null() { Err(INVALID) } else { live_or_inherited(context) }
    }

    /// Returns the device that it is of.
    pub(crate) const fn device(&self) -> &'static Device {
        self.device
    }

    /// Checks that an object is of this context, or of one that was imported with its descriptor: a kernel
    /// searches for its handle among the objects of the open file, and finds none, or another object.
    ///
    /// # Errors
    /// Fails with EINVAL if it is of another context, maybe of another device.
    pub(crate) fn check_same(&self, object: &str, other: &Context) -> Result<(), Errno> {
        if Arc::ptr_eq(&self.file, &other.file) {
            return Ok(());
        }
        let (own, other) = (self.device, other.device);
        check::with_checker(|checker| checker.of_other_context(object));
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

    pub(crate) fn adapter(&self) -> &Arc<DeviceAdapter> {
        &self.adapter
    }

    pub(crate) fn hca(&self) -> &Arc<Hca> {
        self.adapter.hca()
    }

    /// Drives the device once, for a program that waits and polls no completion queue.
    pub(crate) fn drive(&self) {
        self.adapter.drive();
    }

    /// Reports whether its device looks like one of a vendor.
    pub(crate) fn is_of(&self, vendor: Vendor) -> bool {
        self.device().profile().vendor() == Some(vendor)
    }

    /// Returns its asynchronous events.
    pub(crate) fn async_events(&self) -> &AsyncQueue {
        &self.async_events
    }

    /// Returns the file behind its command descriptor.
    pub(crate) fn file(&self) -> &Arc<CommandFile> {
        &self.file
    }

    pub(crate) fn own(&self, owned: OwnedObject) {
        self.own_cq(owned, None);
    }

    pub(crate) fn own_cq(&self, owned: OwnedObject, cq: Option<Arc<CompletionQueue>>) {
        self.file.own(owned, cq);
    }

    pub(crate) fn disown(&self, owned: OwnedObject) {
        self.file.disown(owned);
    }

    /// Drops queued events of an object that has left the HCA.
    pub(crate) fn forget_events(&self, source: &EventSource) {
        self.adapter.distributor().forget(&self.async_events, source);
    }

    /// Records a registration of OFED 1.x.
    pub(crate) fn registered(&self, registration: TargetRegistration, source: Arc<EventSource>) {
        let mut all = self.registered.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(registration.qpn, (registration, source));
    }

    pub(crate) fn is_registered(&self, number: Qpn) -> bool {
        self.registered.lock().unwrap_or_else(PoisonError::into_inner).contains_key(&number)
    }

    /// Removes the registration that [`Context::registered`] recorded.
    pub(crate) fn unregistered(&self, number: Qpn) -> Option<(TargetRegistration, Arc<EventSource>)> {
        self.registered.lock().unwrap_or_else(PoisonError::into_inner).remove(&number)
    }

    /// Destroys the remaining objects of the program, as a kernel does when a device file is closed for the
    /// last time.
    pub(crate) fn destroy_leftovers(&self) {
        let hca = self.hca();
        let registered = std::mem::take(&mut *self.registered.lock().unwrap_or_else(PoisonError::into_inner));
        for (registration, source) in registered.into_values() {
            // It has been opened, so it can be closed.
            let _ = hca.close_target(registration);
            self.forget_events(&source);
        }
        for (owned, cq) in CommandFile::leftovers(&self.file) {
            // Objects that another context still uses remain, and are destroyed with the adapter.
            let _ = match owned {
                OwnedObject::Window(handle) => hca.dealloc_mw(Handle::unpack(handle)),
                OwnedObject::Flow(id) => hca.destroy_flow(id),
                OwnedObject::QueuePair(number) => hca.destroy_qp(Qpn::new(number)),
                OwnedObject::Target(registration) => hca.close_target(registration),
                OwnedObject::ReservedNumber(number) => {
                    hca.release_number(Qpn::new(number));
                    Ok(())
                }
                OwnedObject::SharedReceiveQueue(handle) => hca.destroy_srq(Handle::unpack(handle)),
                OwnedObject::CompletionQueue(handle) => {
                    // No thread is left to acknowledge events.
                    cq.inspect(|cq| cq.ack_events(u64::MAX));
                    hca.destroy_cq(Handle::unpack(handle))
                }
                OwnedObject::IndirectKey(handle) => hca.end_indirect_key(Handle::unpack(handle)),
                OwnedObject::Region(handle) => hca.dereg_mr(Handle::unpack(handle)),
                OwnedObject::AddressHandle(handle) => hca.destroy_ah(Handle::unpack(handle)),
                OwnedObject::XrcDomain(handle) => hca.close_xrcd(Handle::unpack(handle)),
                OwnedObject::ProtectionDomain(handle) => hca.dealloc_pd(Handle::unpack(handle)),
            };
        }
    }

    /// Opens a device on a command file, with a table of operations.
    ///
    /// # Errors
    /// Fails with the errors of the adapter; the descriptor is returned.
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
            verbs: SharedStruct::new(*verbs),
            device,
            adapter,
            async_events,
            _command: command,
            file,
            registered: Mutex::default(),
        });
        context.adapter.distributor().register(pointer_to(&context), &context.async_events);
        context_opened(pointer_to(&context).addr(), context.adapter.loss_state());
        Ok(hand_out_shared(&context))
    }
}

pub(crate) mod adapter;
pub(crate) mod capture;
pub(crate) mod command_file;
pub(crate) mod completion_queue;
pub(crate) mod device;
pub(crate) mod device_memory;
pub(crate) mod domains;
pub(crate) mod events;
pub(crate) mod memory_region;
pub(crate) mod mlx5;
pub(crate) mod mrc;
pub(crate) mod peer_host;
pub(crate) mod queue_pair;
pub(crate) mod receive_queues;
pub(crate) mod unused;
pub(crate) mod waits;
