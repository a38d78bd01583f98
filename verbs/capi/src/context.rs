//! Contexts: an opened device, its tables of operations, and what it owns.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::mem::offset_of;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use pumice_device::completion_queue::CompletionQueue;
use pumice_device::hca::{Hca, TargetRegistration};
use pumice_device::table::Handle;
use pumice_transport::wire::Qpn;

use crate::abi::{ibv_context, ibv_context_ops, ibv_device, verbs_context};
use crate::async_event::AsyncQueue;
use crate::command_file::CommandFile;
use crate::device::{Adapter, adapter, device_pointer, release};
use crate::object::{Shown, check_context, forget_context, list_context, zeroed};
use crate::ofed_xrc::{RegisteredName, close_registration};
use crate::outcome::{Errno, INVALID, pointer, status};
use crate::refusal::refused;
use crate::{
    buffer, completion_queue, completion_queue_ex, device_memory, memory, parent_domain, post_recv,
    post_send, query, queue_pair, shared_receive_queue, window_bind, xrc_domain, xrc_target,
};

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

/// What dies with its context, in the order in which it can.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Owned {
    Window(u64),
    QueuePair(u32),
    Target(TargetRegistration),
    SharedReceiveQueue(u64),
    CompletionQueue(u64),
    Region(u64),
    AddressHandle(u64),
    XrcDomain(u64),
    ProtectionDomain(u64),
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
    fn destroy_leftovers(&self) {
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

    fn open() -> Result<*mut ibv_context, Errno> {
        let (command, file) = CommandFile::create()?;
        Context::open_on(command, file).map_err(|(errno, _)| errno)
    }

    /// Opens the device on a command file.
    ///
    /// # Errors
    /// Those of the adapter; the descriptor comes back.
    pub(crate) fn open_on(
        command: OwnedFd,
        file: Arc<CommandFile>,
    ) -> Result<*mut ibv_context, (Errno, OwnedFd)> {
        let (adapter, async_events) = match adapter().and_then(|adapter| Ok((adapter, AsyncQueue::new()?))) {
            Ok(both) => both,
            Err(errno) => return Err((errno, command)),
        };
        let mut verbs = operations();
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

pub(crate) unsafe extern "C" fn ibv_open_device(device: *mut ibv_device) -> *mut ibv_context {
    pointer(|| if device.is_null() { Err(INVALID) } else { Context::open() })
}

/// Closes a device; what was made on it and not destroyed goes with it.
pub(crate) unsafe extern "C" fn ibv_close_device(context: *mut ibv_context) -> c_int {
    status(|| {
        // SAFETY: null or an open context.
        let open = unsafe { Context::of(context) }?;
        if open.adapter.is_inherited() {
            // The parent's: its threads are not here to be waited for, and its objects are in use there.
            return Ok(());
        }
        // Acknowledgements that are owed leave before the socket closes.
        open.hca().drive_out();
        open.adapter.distributor.unregister(context);
        open.destroy_leftovers();
        window_bind::forget_all_of(context);
        forget_context(context);
        // SAFETY: it was boxed in `open`; the program does not use it any more.
        let Context { adapter, .. } = *unsafe { Box::from_raw(std::ptr::from_ref(open).cast_mut()) };
        release(adapter);
        Ok(())
    })
}

/// Names a function as a slot's operation.
macro_rules! operation {
    ($function:expr) => {
        crate::abi::Operation($function as *const std::ffi::c_void)
    };
}
pub(crate) use operation;

/// The tables of operations: every slot has a function, because programs do not look.
fn operations() -> verbs_context {
    // SAFETY: numbers and pointers; every operation is set below.
    let mut verbs: verbs_context = unsafe { zeroed() };
    let unused = refused!(ptr, "ibv_context_ops (a slot that verbs.h does not use)");
    verbs.context.ops = ibv_context_ops {
        _compat_query_device: operation!(query::ibv_query_device),
        _compat_query_port: operation!(query::ibv_query_port),
        unused_memory: [unused; 5],
        alloc_mw: operation!(memory::alloc_mw),
        bind_mw: operation!(window_bind::bind_mw),
        dealloc_mw: operation!(memory::dealloc_mw),
        _compat_create_cq: unused,
        poll_cq: operation!(completion_queue::poll_cq),
        req_notify_cq: operation!(completion_queue::req_notify_cq),
        unused_queues: [unused; 7],
        post_srq_recv: operation!(post_recv::post_srq_recv),
        unused_qp: [unused; 4],
        post_send: operation!(post_send::post_send),
        post_recv: operation!(post_recv::post_recv),
        unused_rest: [unused; 5],
    };
    verbs.context.abi_compat = std::ptr::without_provenance_mut(usize::MAX);
    verbs.sz = size_of::<verbs_context>();

    verbs.query_port = operation!(query::query_port);
    verbs.query_device_ex = operation!(query::query_device_ex);
    verbs.alloc_td = operation!(parent_domain::alloc_td);
    verbs.dealloc_td = operation!(parent_domain::dealloc_td);
    verbs.alloc_parent_domain = operation!(parent_domain::alloc_parent_domain);
    verbs.alloc_dm = operation!(device_memory::alloc_dm);
    verbs.free_dm = operation!(device_memory::free_dm);
    verbs.reg_dm_mr = operation!(device_memory::reg_dm_mr);
    verbs.alloc_null_mr = operation!(memory::alloc_null_mr);
    verbs.advise_mr = operation!(memory::advise_mr);
    verbs.modify_cq = operation!(completion_queue_ex::modify_cq);
    verbs.query_rt_values = operation!(query::query_rt_values);
    verbs.create_cq_ex = operation!(completion_queue_ex::create_cq_ex);
    verbs.create_qp_ex = operation!(queue_pair::create_qp_ex);
    verbs.open_qp = operation!(xrc_target::open_qp);
    verbs.create_srq_ex = operation!(shared_receive_queue::create_srq_ex);
    verbs.get_srq_num = operation!(shared_receive_queue::get_srq_num);
    verbs.open_xrcd = operation!(xrc_domain::open_xrcd);
    verbs.close_xrcd = operation!(xrc_domain::close_xrcd);
    verbs.alloc_buf = operation!(buffer::ibv_alloc_buf);
    verbs.free_buf = operation!(buffer::ibv_free_buf);
    verbs.reg_mr_ex = operation!(buffer::ibv_reg_mr_ex);
    refuse_the_rest(&mut verbs);
    verbs
}

/// Counters, flow steering, work queues, DMA handles, packet pacing and tag matching: hardware's.
fn refuse_the_rest(verbs: &mut verbs_context) {
    verbs.dm_export_dmabuf_fd = refused!(minus, "ibv_dm_export_dmabuf_fd");
    verbs.dealloc_dmah = refused!(int, "ibv_dealloc_dmah");
    verbs.alloc_dmah = refused!(ptr, "ibv_alloc_dmah");
    verbs.read_counters = refused!(int, "ibv_read_counters");
    verbs.attach_counters_point_flow = refused!(int, "ibv_attach_counters_point_flow");
    verbs.create_counters = refused!(ptr, "ibv_create_counters");
    verbs.destroy_counters = refused!(int, "ibv_destroy_counters");
    verbs.modify_flow_action_esp = refused!(int, "ibv_modify_flow_action_esp");
    verbs.destroy_flow_action = refused!(int, "ibv_destroy_flow_action");
    verbs.create_flow_action_esp = refused!(ptr, "ibv_create_flow_action_esp");
    verbs.modify_qp_rate_limit = refused!(int, "ibv_modify_qp_rate_limit");
    verbs.post_srq_ops = refused!(int, "ibv_post_srq_ops");
    verbs.destroy_rwq_ind_table = refused!(int, "ibv_destroy_rwq_ind_table");
    verbs.create_rwq_ind_table = refused!(ptr, "ibv_create_rwq_ind_table");
    verbs.destroy_wq = refused!(int, "ibv_destroy_wq");
    verbs.modify_wq = refused!(int, "ibv_modify_wq");
    verbs.create_wq = refused!(ptr, "ibv_create_wq");
    verbs.ibv_destroy_flow = refused!(int, "ibv_destroy_flow");
    verbs.ibv_create_flow = refused!(ptr, "ibv_create_flow");
    // Programs of libibverbs 1.1.8 find the same two here.
    verbs.ABI_placeholder2 = refused!(int, "ibv_destroy_flow");
    verbs.ABI_placeholder1 = refused!(ptr, "ibv_create_flow");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_slot_is_null() {
        let verbs = operations();
        let words = size_of::<verbs_context>() / size_of::<usize>();
        let first = std::ptr::from_ref(&verbs).cast::<usize>();
        let ops = offset_of!(verbs_context, context) + offset_of!(ibv_context, ops);
        let (private, placeholder) =
            (offset_of!(verbs_context, r#priv), offset_of!(verbs_context, _ABI_placeholder3));
        for word in 0..words {
            let offset = word * size_of::<usize>();
            let in_front = offset < placeholder && offset != private;
            let in_ops = (ops..ops + size_of::<ibv_context_ops>()).contains(&offset);
            if in_front || in_ops {
                // SAFETY: a word of the structure.
                assert_ne!(unsafe { first.add(word).read() }, 0, "offset {offset}");
            }
        }
    }
}
