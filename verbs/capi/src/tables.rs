//! The tables of function pointers through which programs reach calls that are inline in verbs.h, and the
//! calls that return them. This is the only place that knows all calls.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)
)]

use std::ffi::c_int;

use pumice_calls::Call;
use pumice_device::profile::Vendor;

use crate::abi::plain::zeroed;
use crate::abi::{ibv_context, ibv_context_ops, ibv_device, mlx5dv_context_attr, operation, verbs_context};
use crate::calls::{
    completion_queue, completion_queue_ex, device_memory, domains, frames, memory, post_recv, post_send,
    query, queue_pair, queue_pair_attributes, shared_receive_queue, vendors,
};
use crate::entry::arguments::In;
use crate::entry::unsupported::{self, refused};
use crate::entry::{pointer, pointer_about};
use crate::log::settings::settings;
use crate::objects::Context;
use crate::objects::command_file::CommandFile;
use crate::objects::device::{about, device_at, device_of};
use crate::platform::NOT_SUPPORTED;
use crate::{check, platform};

pub(crate) extern "C" fn ibv_open_device(device: *mut ibv_device) -> *mut ibv_context {
    pointer_about(Call::ibv_open_device, about(device), || {
        if check::is_on() {
            check::misuse::opens_device(Call::ibv_open_device, device.addr());
        }
        let device = device_of(device)?;
        let (command, file) = CommandFile::create(device.index())?;
        Context::open(device, command, file, operations()).map_err(|(errno, _)| errno)
    })
}

/// Opens a context of a device that looks like a ConnectX, as `ibv_open_device` does. It fails with the flag
/// for DEVX, whose commands are not implemented.
pub(crate) extern "C" fn mlx5dv_open_device(
    device: *mut ibv_device,
    attributes: In<'_, mlx5dv_context_attr>,
) -> *mut ibv_context {
    if !vendors::has_vendor_calls(Vendor::Mellanox) {
        return unsupported::null(Call::mlx5dv_open_device, "").cast();
    }
    pointer_about(Call::mlx5dv_open_device, about(device), || {
        let wanted = attributes.get()?;
        if !vendors::mlx5::is_served(device) {
            return Err(NOT_SUPPORTED);
        }
        if wanted.flags != 0 || wanted.comp_mask != 0 {
            return Err(NOT_SUPPORTED.because(|| {
                "mlx5dv_open_device refused: nothing here carries out commands of DEVX; open the device \
                 without flags, or by ibv_open_device (UCX: UCX_IB_MLX5_DEVX=n)"
                    .to_owned()
            }));
        }
        if check::is_on() {
            check::misuse::opens_device(Call::mlx5dv_open_device, device.addr());
        }
        let device = device_of(device)?;
        let (command, file) = CommandFile::create(device.index())?;
        Context::open(device, command, file, operations()).map_err(|(errno, _)| errno)
    })
}

/// Opens a further context on a command file; it takes the descriptor over, unless this fails.
pub(crate) extern "C" fn ibv_import_device(cmd_fd: c_int) -> *mut ibv_context {
    pointer(Call::ibv_import_device, || {
        let file = CommandFile::of(cmd_fd)?;
        let device = device_at(file.device())?;
        // SAFETY: it is open, or it would have no file; the program gives it away to `ibv_import_device`.
        let command = unsafe { platform::given_away(cmd_fd) };
        Context::open(device, command, file, operations()).map_err(|(errno, descriptor)| {
            // The descriptor stays the program's.
            std::mem::forget(descriptor);
            errno
        })
    })
}

/// Returns the tables of operations: every entry has a function, because programs do not check for NULL.
fn operations() -> Box<verbs_context> {
    let mut verbs: Box<verbs_context> = Box::new(zeroed());
    let unused = operation!(unsupported::entry);
    verbs.context.ops = ibv_context_ops {
        _compat_query_device: operation!(query::ibv_query_device),
        _compat_query_port: operation!(query::ibv_query_port),
        unused_memory: [unused; 5],
        alloc_mw: operation!(memory::alloc_mw),
        bind_mw: operation!(post_recv::bind_mw),
        dealloc_mw: operation!(memory::dealloc_mw),
        _compat_create_cq: unused,
        poll_cq: operation!(completion_queue::poll_cq),
        req_notify_cq: operation!(completion_queue::req_notify_cq),
        unused_queues: [unused; 7],
        post_srq_recv: operation!(post_recv::post_srq_recv),
        unused_qp: [unused; 4],
        post_send: post_send::operation_of(settings().is_ok_and(|settings| settings.mrc)),
        post_recv: operation!(post_recv::post_recv),
        unused_rest: [unused; 5],
    };
    verbs.context.abi_compat = std::ptr::without_provenance_mut(usize::MAX);
    verbs.sz = size_of::<verbs_context>();

    verbs.query_port = operation!(query::query_port);
    verbs.query_device_ex = operation!(query::query_device_ex);
    verbs.alloc_td = operation!(domains::alloc_td);
    verbs.dealloc_td = operation!(domains::dealloc_td);
    verbs.alloc_parent_domain = operation!(domains::alloc_parent_domain);
    verbs.alloc_dm = operation!(device_memory::alloc_dm);
    verbs.free_dm = operation!(device_memory::free_dm);
    verbs.dm_export_dmabuf_fd = operation!(device_memory::ibv_dm_export_dmabuf_fd);
    verbs.reg_dm_mr = operation!(device_memory::reg_dm_mr);
    verbs.alloc_null_mr = operation!(memory::alloc_null_mr);
    verbs.advise_mr = operation!(memory::advise_mr);
    verbs.modify_cq = operation!(completion_queue_ex::modify_cq);
    verbs.query_rt_values = operation!(query::query_rt_values_ex);
    verbs.create_cq_ex = operation!(completion_queue_ex::create_cq_ex);
    verbs.create_qp_ex = operation!(queue_pair::create_qp_ex);
    verbs.open_qp = operation!(domains::open_qp);
    verbs.create_srq_ex = operation!(shared_receive_queue::create_srq_ex);
    verbs.post_srq_ops = operation!(shared_receive_queue::post_srq_ops);
    verbs.modify_qp_rate_limit = operation!(queue_pair_attributes::modify_qp_rate_limit);
    verbs.get_srq_num = operation!(shared_receive_queue::get_srq_num);
    verbs.open_xrcd = operation!(domains::open_xrcd);
    verbs.close_xrcd = operation!(domains::close_xrcd);
    verbs.alloc_buf = operation!(device_memory::ibv_alloc_buf);
    verbs.free_buf = operation!(device_memory::ibv_free_buf);
    verbs.reg_mr_ex = operation!(device_memory::ibv_reg_mr_ex);
    verbs.alloc_dmah = operation!(device_memory::ibv_alloc_dmah);
    verbs.dealloc_dmah = operation!(device_memory::ibv_dealloc_dmah);
    verbs.create_wq = operation!(frames::create_wq);
    verbs.modify_wq = operation!(frames::modify_wq);
    verbs.destroy_wq = operation!(frames::destroy_wq);
    verbs.create_rwq_ind_table = operation!(frames::create_rwq_ind_table);
    verbs.destroy_rwq_ind_table = operation!(frames::destroy_rwq_ind_table);
    verbs.ibv_create_flow = operation!(frames::create_flow);
    verbs.ibv_destroy_flow = operation!(frames::destroy_flow);
    // Programs of libibverbs 1.1.8 find the same two functions here.
    verbs.ABI_placeholder1 = operation!(frames::create_flow);
    verbs.ABI_placeholder2 = operation!(frames::destroy_flow);
    refuse_the_rest(&mut verbs);
    verbs
}

/// Sets the refusals of counters and of actions of flow rules, which need hardware.
fn refuse_the_rest(verbs: &mut verbs_context) {
    verbs.read_counters = refused!(errno, ibv_read_counters);
    verbs.attach_counters_point_flow = refused!(errno, ibv_attach_counters_point_flow);
    verbs.create_counters = refused!(null, ibv_create_counters);
    verbs.destroy_counters = refused!(errno, ibv_destroy_counters);
    verbs.modify_flow_action_esp = refused!(errno, ibv_modify_flow_action_esp);
    verbs.destroy_flow_action = refused!(errno, ibv_destroy_flow_action);
    verbs.create_flow_action_esp = refused!(null, ibv_create_flow_action_esp);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    #[test]
    fn no_slot_is_null() {
        let verbs = operations();
        let words = size_of::<verbs_context>() / size_of::<usize>();
        let first = std::ptr::from_ref(&*verbs).cast::<usize>();
        let ops = offset_of!(verbs_context, context) + offset_of!(ibv_context, ops);
        let (private, placeholder) =
            (offset_of!(verbs_context, r#priv), offset_of!(verbs_context, _ABI_placeholder3));
        for word in 0..words {
            let offset = word * size_of::<usize>();
            let in_front = offset < placeholder && offset != private;
            let in_ops = (ops..ops + size_of::<ibv_context_ops>()).contains(&offset);
            if in_front || in_ops {
                // SAFETY: the word is inside the structure.
                assert_ne!(unsafe { first.add(word).read() }, 0, "offset {offset}");
            }
        }
    }
}
