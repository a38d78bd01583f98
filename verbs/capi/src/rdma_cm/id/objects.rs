//! The verbs objects that identifiers and rsockets make, with the calls that programs use: the program sees
//! their pointers in its identifier, and gives them to other calls.
//!
//! The pointers may be the program's own. The calls look them up in the register of live objects, so that a
//! wrong one is refused; verbs.h requires programs not to destroy an object in another thread meanwhile.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use pumice_device::objects::completion_channel::CompletionChannel;
use pumice_device::objects::completion_queue::CompletionQueue;
use pumice_transport::path::Path;
use pumice_transport::qp::AttributeMask;
use pumice_transport::types::Gid;

use crate::abi::plain::ForwardedStruct;
use crate::abi::{
    ibv_ah_attr, ibv_comp_channel, ibv_context, ibv_cq, ibv_gid, ibv_mr, ibv_pd, ibv_qp, ibv_qp_attr,
    ibv_qp_init_attr_ex, ibv_srq, ibv_srq_init_attr_ex, ibv_xrcd, ibv_xrcd_init_attr,
};
use crate::calls::address_handle::{ibv_attach_mcast, ibv_create_ah, ibv_destroy_ah, ibv_detach_mcast};
use crate::calls::completion_channel::{
    ibv_ack_cq_events, ibv_create_comp_channel, ibv_destroy_comp_channel,
};
use crate::calls::completion_queue::{ibv_create_cq, ibv_destroy_cq};
use crate::calls::domains::{ibv_alloc_pd, open_xrcd};
use crate::calls::memory::{ibv_dereg_mr, ibv_reg_mr};
use crate::calls::queue_pair::{create_qp_ex, ibv_destroy_qp};
use crate::calls::queue_pair_attributes::ibv_modify_qp;
use crate::calls::shared_receive_queue::{create_srq_ex, ibv_destroy_srq};
use crate::check;
use crate::entry::arguments::{LastingPointer, Trusted};
use crate::entry::handles::live;
use crate::objects::Context;
use crate::objects::completion_queue::{CompChannel, Cq};
use crate::objects::device::Device;
use crate::objects::domains::{Ah, Pd};
use crate::objects::queue_pair::Qp;
use crate::platform::{Errno, INVALID, errno};
use crate::tables::ibv_open_device;

/// Returns the pointer of a call, or the errno that it set.
fn made<T>(pointer: *mut T) -> Result<*mut T, Errno> {
    if pointer.is_null() { Err(Errno(errno())) } else { Ok(pointer) }
}

/// Converts the result of a call that returns an errno.
const fn done(status: c_int) -> Result<(), Errno> {
    if status == 0 { Ok(()) } else { Err(Errno(status)) }
}

/// Opens a device, which is never closed, and allocates a protection domain of it.
///
/// # Errors
/// Fails with the errors of opening it.
pub(crate) fn open_device(
    device: &Device,
) -> Result<(*mut ibv_context, &'static Context, *mut ibv_pd), Errno> {
    let context = made(ibv_open_device(device.as_ptr()))?;
    // It is never closed.
    let open: &'static Context = Box::leak(Box::new(Context::of(context)?));
    let pd = made(ibv_alloc_pd(context))?;
    Ok((context, open, pd))
}

/// A completion queue with a channel of its own.
#[derive(Clone, Copy)]
pub(crate) struct CompletionObjects {
    channel: ForwardedStruct<*mut ibv_comp_channel>,
    cq: ForwardedStruct<*mut ibv_cq>,
}

impl CompletionObjects {
    /// Creates a pair of these pointers, of which either may be null.
    pub(crate) const fn new(channel: *mut ibv_comp_channel, cq: *mut ibv_cq) -> CompletionObjects {
        CompletionObjects { channel: ForwardedStruct(channel), cq: ForwardedStruct(cq) }
    }

    pub(crate) const fn channel(self) -> *mut ibv_comp_channel {
        self.channel.0
    }

    pub(crate) const fn cq(self) -> *mut ibv_cq {
        self.cq.0
    }

    /// Creates a completion queue of `depth` entries; `cookie` is its `cq_context`.
    ///
    /// # Errors
    /// Fails with the errors of making the objects.
    pub(crate) fn create(
        context: *mut ibv_context,
        depth: c_int,
        cookie: *mut c_void,
    ) -> Result<CompletionObjects, Errno> {
        let channel = made(ibv_create_comp_channel(context))?;
        match made(ibv_create_cq(context, depth, cookie, channel, 0)) {
            Ok(cq) => Ok(CompletionObjects::new(channel, cq)),
            Err(errno) => {
                CompletionObjects::new(channel, std::ptr::null_mut()).destroy();
                Err(errno)
            }
        }
    }

    /// Returns the device's objects behind the pointers.
    ///
    /// # Errors
    /// Fails with ENOENT if an object was destroyed.
    pub(crate) fn objects(self) -> Result<(Arc<CompletionQueue>, Arc<CompletionChannel>), Errno> {
        let (cq, channel) = (live::<Cq>(self.cq())?, live::<CompChannel>(self.channel())?);
        Ok((Arc::clone(cq.queue()), Arc::clone(channel.channel())))
    }

    /// Acknowledges all events that were fetched, which destroying waits for: those of a socket, which its
    /// program does not see.
    pub(crate) fn acknowledge_all(self) {
        if !self.cq().is_null() {
            // SAFETY: the queue is live: the socket that has it gives it up only now.
            ibv_ack_cq_events(unsafe { Trusted::new(self.cq()) }, u32::MAX);
        }
    }

    /// Reports whether the program's queue pairs use the completion queue.
    fn is_used(self) -> bool {
        live::<Cq>(self.cq()).is_ok_and(|cq| cq.hca().cq_is_used(cq.queue().handle()))
    }

    /// Destroys the objects that are not null, once no queue pair uses them any more. Waits for the
    /// acknowledgement of events that the program has fetched. A queue that is used stays, and so does its
    /// channel: `rdma_create_qp` writes it to the program's attributes, with which the next queue pair may be
    /// made.
    pub(crate) fn destroy(self) {
        // librdmacm ignores what ibv_destroy_cq returns (cma.c, ucma_destroy_cqs).
        if !self.cq().is_null() && self.is_used() {
            check::with_checker_of(self.cq().addr(), |checker| {
                checker.destroy_failed(self.cq().addr() as u64);
                checker.destroy_failed(self.channel().addr() as u64);
            });
            return;
        }
        if !self.cq().is_null() {
            ibv_destroy_cq(self.cq());
        }
        if !self.channel().is_null() {
            ibv_destroy_comp_channel(self.channel());
        }
    }
}

/// # Errors
/// Fails with the errors of `ibv_create_qp_ex`.
pub(crate) fn create_queue_pair(
    context: *mut ibv_context,
    attributes: &mut ibv_qp_init_attr_ex,
) -> Result<*mut ibv_qp, Errno> {
    made(create_qp_ex(context, attributes.into()))
}

/// # Errors
/// Fails with the errors of `ibv_modify_qp`.
pub(crate) fn modify_queue_pair(
    qp: *mut ibv_qp,
    attributes: &mut ibv_qp_attr,
    mask: AttributeMask,
) -> Result<(), Errno> {
    done(ibv_modify_qp(qp, (&*attributes).into(), mask.bits() as c_int))
}

pub(crate) fn destroy_queue_pair(qp: *mut ibv_qp) {
    ibv_destroy_qp(qp);
}

/// Returns the number of a queue pair, and whether its receives are those of a shared receive queue.
///
/// # Errors
/// Fails with ENOENT if it was destroyed.
pub(crate) fn queue_pair_number(qp: *mut ibv_qp) -> Result<(u32, bool), Errno> {
    live::<Qp>(qp)?;
    // SAFETY: it was live above, and the program does not destroy it during its call; both fields are only
    // read.
    Ok(unsafe { ((*qp).qp_num, !(*qp).srq.is_null()) })
}

/// # Errors
/// Fails with the errors of `ibv_attach_mcast`.
pub(crate) fn attach(qp: *mut ibv_qp, group: Gid) -> Result<(), Errno> {
    done(ibv_attach_mcast(qp, (&ibv_gid { raw: group.0 }).into(), 0))
}

/// # Errors
/// Fails with the errors of `ibv_detach_mcast`.
pub(crate) fn detach(qp: *mut ibv_qp, group: Gid) -> Result<(), Errno> {
    done(ibv_detach_mcast(qp, (&ibv_gid { raw: group.0 }).into(), 0))
}

/// Checks that a protection domain is of a context.
///
/// # Errors
/// Fails with EINVAL if it is null, or of another context, and with ENOENT if there is no such domain (any
/// more).
pub(crate) fn check_domain(pd: *mut ibv_pd, context: *mut ibv_context) -> Result<(), Errno> {
    if live::<Pd>(pd)?.context_pointer() == context {
        return Ok(());
    }
    Err(INVALID.because(|| {
        "the protection domain is of another context than the identifier's (id->verbs)".to_owned()
    }))
}

/// # Errors
/// Fails with the errors of `ibv_create_srq_ex`.
pub(crate) fn create_shared_receive_queue(
    context: *mut ibv_context,
    attributes: &mut ibv_srq_init_attr_ex,
) -> Result<*mut ibv_srq, Errno> {
    made(create_srq_ex(context, attributes.into()))
}

pub(crate) fn destroy_shared_receive_queue(srq: *mut ibv_srq) {
    ibv_destroy_srq(srq);
}

/// Opens an XRC domain without a file.
///
/// # Errors
/// Fails with the errors of `ibv_open_xrcd`.
pub(crate) fn open_unnamed_xrc_domain(context: *mut ibv_context) -> Result<*mut ibv_xrcd, Errno> {
    let wanted = ibv_xrcd_init_attr { comp_mask: 3, fd: -1, oflags: libc::O_CREAT };
    made(open_xrcd(context, (&wanted).into()))
}

/// Returns the path of an address vector.
///
/// # Errors
/// Fails with the errors of `ibv_create_ah`.
pub(crate) fn path_of(pd: *mut ibv_pd, vector: &ibv_ah_attr) -> Result<Arc<Path>, Errno> {
    let ah = made(ibv_create_ah(pd, vector.into()))?;
    let path = live::<Ah>(ah).map(|ah| Arc::clone(ah.path()));
    ibv_destroy_ah(ah);
    path
}

/// A memory region with its keys, until it is dropped.
pub(crate) struct Registration {
    mr: ForwardedStruct<*mut ibv_mr>,
    pub(crate) lkey: u32,
    pub(crate) rkey: u32,
}

impl Registration {
    /// Registers memory.
    ///
    /// # Errors
    /// Fails with the errors of `ibv_reg_mr`.
    ///
    /// # Safety
    /// The memory must stay valid as long as the region: the device and peers read and write it as `access`
    /// says.
    pub(crate) unsafe fn new(
        pd: *mut ibv_pd,
        address: *mut c_void,
        length: usize,
        access: c_int,
    ) -> Result<Registration, Errno> {
        // SAFETY: the function's own contract.
        let memory = unsafe { LastingPointer::new(address) };
        let mr = made(ibv_reg_mr(pd, memory, length, access))?;
        // SAFETY: the region was just made, and its keys are not written any more.
        let (lkey, rkey) = unsafe { ((*mr).lkey, (*mr).rkey) };
        Ok(Registration { mr: ForwardedStruct(mr), lkey, rkey })
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        ibv_dereg_mr(self.mr.0);
    }
}
