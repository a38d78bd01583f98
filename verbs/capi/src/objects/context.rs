//! Contexts: an opened device, its tables of operations, and what it owns.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::mem::offset_of;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use pumice_device::ground::table::Handle;
use pumice_device::hca::{Hca, TargetRegistration};
use pumice_device::objects::completion_queue::CompletionQueue;
use pumice_transport::wire::Qpn;

use crate::calls::ofed_xrc::{RegisteredName, close_registration};
use crate::ground::abi::{ibv_context, verbs_context};
use crate::ground::errno::Errno;
use crate::ground::handles::{Shown, check_context, list_context};
use crate::objects::async_event::AsyncQueue;
use crate::objects::command_file::{CommandFile, Owned};
use crate::objects::device::{Adapter, adapter, device_pointer};

/// An opened device. The program's pointer is to `verbs.context`.
#[repr(C)]
pub(crate) struct Context {
    verbs: Shown<verbs_context>,
    pub(crate) adapter: Arc<Adapter>,
    pub(crate) async_events: AsyncQueue,
    /// Programs duplicate this descriptor and compare what it is.
    _command: OwnedFd,
    file: Arc<CommandFile>,
    /// XRC receive queue pairs of OFED 1.x that it is registered for.
    registered: Mutex<BTreeMap<Qpn, (TargetRegistration, RegisteredName)>>,
}

/// From the box to the program's pointer.
const CONTEXT_OFFSET: usize = offset_of!(Context, verbs) + offset_of!(verbs_context, context);

impl Context {
    /// The context behind a program's pointer.
    ///
    /// # Safety
    /// No other thread closes it meanwhile.
    ///
    /// # Errors
    /// EINVAL: it is null. ENOENT: it was closed, or never opened.
    pub(crate) unsafe fn of<'a>(context: *mut ibv_context) -> Result<&'a Context, Errno> {
        check_context(context)?;
        // SAFETY: it is open; the box begins this far before.
        Ok(unsafe { &*context.byte_sub(CONTEXT_OFFSET).cast::<Context>() })
    }

    #[inline]
    pub(crate) fn hca(&self) -> &Hca {
        &self.adapter.hca
    }

    /// What its command descriptor stands for.
    pub(crate) const fn file(&self) -> &Arc<CommandFile> {
        &self.file
    }

    /// The program's pointer.
    pub(crate) const fn as_ptr(&self) -> *mut ibv_context {
        // SAFETY: a field of our own structure.
        unsafe { &raw mut (*self.verbs.as_ptr()).context }
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

    /// Notes a registration of OFED 1.x.
    pub(crate) fn registered(&self, registration: TargetRegistration, name: RegisteredName) {
        let mut all = self.registered.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(registration.qpn, (registration, name));
    }

    pub(crate) fn is_registered(&self, number: Qpn) -> bool {
        self.registered.lock().unwrap_or_else(PoisonError::into_inner).contains_key(&number)
    }

    /// Takes back what [`Context::registered`] noted.
    pub(crate) fn unregistered(&self, number: Qpn) -> Option<(TargetRegistration, RegisteredName)> {
        self.registered.lock().unwrap_or_else(PoisonError::into_inner).remove(&number)
    }

    /// Destroys what the program left, as a kernel does when a device file is closed for the last time.
    pub(crate) fn destroy_leftovers(&self) {
        let registered = std::mem::take(&mut *self.registered.lock().unwrap_or_else(PoisonError::into_inner));
        for (registration, name) in registered.into_values() {
            close_registration(self, registration, name);
        }
        let hca = self.hca();
        for (owned, cq) in CommandFile::leftovers(&self.file) {
            // What another context still uses stays, and goes with the adapter.
            let _ = match owned {
                Owned::Window(handle) => hca.dealloc_mw(Handle::unpack(handle)),
                Owned::QueuePair(number) => hca.destroy_qp(Qpn::new(number)),
                Owned::Target(registration) => hca.close_target(registration),
                Owned::SharedReceiveQueue(handle) => hca.destroy_srq(Handle::unpack(handle)),
                Owned::CompletionQueue(handle) => {
                    // Nobody is left to acknowledge.
                    cq.inspect(|cq| cq.ack_events(u64::MAX));
                    hca.destroy_cq(Handle::unpack(handle))
                }
                Owned::Region(handle) => hca.dereg_mr(Handle::unpack(handle)),
                Owned::AddressHandle(handle) => hca.destroy_ah(Handle::unpack(handle)),
                Owned::XrcDomain(handle) => hca.close_xrcd(Handle::unpack(handle)),
                Owned::ProtectionDomain(handle) => hca.dealloc_pd(Handle::unpack(handle)),
            };
        }
    }

    /// Opens the device on a command file.
    ///
    /// # Errors
    /// Those of the adapter; the descriptor comes back.
    pub(crate) fn open_on(
        command: OwnedFd,
        file: Arc<CommandFile>,
        mut verbs: verbs_context,
    ) -> Result<*mut ibv_context, (Errno, OwnedFd)> {
        let (adapter, async_events) = match adapter().and_then(|adapter| Ok((adapter, AsyncQueue::new()?))) {
            Ok(both) => both,
            Err(errno) => return Err((errno, command)),
        };
        verbs.context.device = device_pointer();
        verbs.context.cmd_fd = command.as_raw_fd();
        verbs.context.async_fd = async_events.fd();
        verbs.context.num_comp_vectors = adapter.hca.limits().num_comp_vectors as c_int;
        let registered = Mutex::new(BTreeMap::new());
        let verbs = Shown::new(verbs);
        let context = Context { verbs, adapter, async_events, _command: command, file, registered };
        let context = Box::leak(Box::new(context));
        list_context(context.as_ptr());
        context.adapter.distributor.register(context.as_ptr());
        Ok(context.as_ptr())
    }
}
