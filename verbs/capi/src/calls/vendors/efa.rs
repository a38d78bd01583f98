//! Calls of `efadv_*` on a device that looks like EFA.

use std::ffi::c_int;
use std::sync::Arc;

use pumice_calls::Call;
use pumice_device::profile::{DirectCalls, Vendor};
use pumice_transport::types::{Gid, QpType, VendorService, WcOpcode};
use pumice_transport::wire::Qpn;

use super::super::completion_queue_ex::create as create_cq;
use super::super::queue_pair::{QPT_DRIVER, QpCreateParameters, check_operations, create};
use super::has_vendor_calls;
use crate::abi::plain::zeroed;
use crate::abi::{
    efadv_ah_attr, efadv_cq, efadv_cq_init_attr, efadv_device_attr, efadv_mr_attr, efadv_qp,
    efadv_qp_init_attr, efadv_rq_depth_attr, efadv_sq_depth_attr, ibv_ah, ibv_context, ibv_cq, ibv_cq_ex,
    ibv_cq_init_attr_ex, ibv_gid, ibv_mr, ibv_pd, ibv_qp, ibv_qp_cap, ibv_qp_ex, ibv_qp_init_attr,
    ibv_qp_init_attr_ex, operation,
};
use crate::entry::arguments::{In, InOut, Out};
use crate::entry::handles::live;
use crate::entry::{negative_of, pointer_about, status_of, unsupported, value};
use crate::gate::CallSubject;
use crate::objects::Context;
use crate::objects::completion_queue::{Cq, EfaCq};
use crate::objects::domains::{Ah, Pd};
use crate::objects::memory_region::Mr;
use crate::objects::queue_pair::Qp;
use crate::platform::{Errno, INVALID, NOT_SUPPORTED};

/// Lengths in bytes of the first version of each structure, which every program has at least.
const DEVICE_ATTR_PREFIX: u32 = 24;
const AH_ATTR_PREFIX: u32 = 10;

/// Flags of `EFADV_DEVICE_ATTR_CAPS_*`: RDMA READ, RNR_RETRY, completion queues with the sender's GID, RDMA
/// WRITE, WRITEs with immediate data that take no receive request.
const CAPABILITIES: u32 = 1 | 1 << 1 | 1 << 2 | 1 << 3 | 1 << 4;
const MAX_RDMA_BYTES: u32 = 1 << 30;
/// The value `EFADV_QP_DRIVER_TYPE_SRD`.
const TYPE_SRD: u32 = 0;
/// The flags `EFADV_QP_FLAGS_UNSOLICITED_WRITE_RECV` and `.._INLINE_WRITE`.
const QP_UNSOLICITED: u16 = 1;
const QP_INLINE_WRITE: u16 = 1 << 1;
/// The flag `EFADV_WR_EX_WITH_PROCESSING_HINTS`: hints are accepted and have no effect.
const WITH_HINTS: u64 = 1;
/// The flags `EFADV_WC_EX_WITH_SGID` and `.._WITH_IS_UNSOLICITED`.
const WC_SGID: u64 = 1;
const WC_UNSOLICITED: u64 = 1 << 1;
/// The flag `EFADV_SQ_DEPTH_ATTR_INLINE_WRITE`.
const DEPTH_INLINE_WRITE: u32 = 1;
/// Largest inline data in bytes that an entry of 64 bytes has room for; longer entries have 128.
const SHORT_INLINE_BYTES: u32 = 32;
/// Value of `slid` in a completion whose sender has no address handle here.
const NO_HANDLE: u16 = 0xffff;
/// Bits of `ibv_qp_init_attr_ex.comp_mask`: the domain, and the send operations.
const MASK_PD: u32 = 1;
const MASK_SEND_OPERATIONS: u32 = 1 << 6;
/// Length in bytes of the part of `efadv_qp_init_attr` and `efadv_cq_init_attr` that every program has.
const QP_ATTR_PREFIX: u32 = 12;
const CQ_ATTR_PREFIX: u32 = 16;
/// Lengths in bytes of structures that were never shorter.
const MR_ATTR_PREFIX: u32 = 16;
const SQ_DEPTH_PREFIX: u32 = 24;
const RQ_DEPTH_PREFIX: u32 = 12;

/// Returns the context, if its device looks like EFA.
///
/// # Errors
/// Fails with EOPNOTSUPP if it does not, and as [`Context::of`].
fn efa_of(context: *mut ibv_context) -> Result<Arc<Context>, Errno> {
    let open = Context::of(context)?;
    check_efa(&open)?;
    Ok(open)
}

/// Checks that the device of a context looks like EFA.
///
/// # Errors
/// Fails with EOPNOTSUPP if it does not.
fn check_efa(open: &Context) -> Result<(), Errno> {
    let is_efa = open.is_of(Vendor::Amazon) && open.device().profile().dv == DirectCalls::Calls;
    if is_efa { Ok(()) } else { Err(NOT_SUPPORTED) }
}

/// Checks that a program's structure has at least the length of its first version.
fn check_length(call: Call, inlen: u32, prefix: u32) -> Result<(), Errno> {
    if inlen >= prefix {
        return Ok(());
    }
    Err(INVALID
        .because(|| format!("{call} refused: its structure has {inlen} bytes, and needs {prefix} at least")))
}

/// Returns the sizes of queues, and the capabilities of SRD.
pub(crate) extern "C" fn efadv_query_device(
    context: *mut ibv_context,
    attr: Out<'_, efadv_device_attr>,
    inlen: u32,
) -> c_int {
    if !has_vendor_calls(Vendor::Amazon) {
        return unsupported::int(Call::efadv_query_device, "");
    }
    status_of(Call::efadv_query_device, CallSubject::on(context), || {
        let open = efa_of(context)?;
        check_length(Call::efadv_query_device, inlen, DEVICE_ATTR_PREFIX)?;
        let limits = open.hca().limits();
        let short = |limit: u32| u16::try_from(limit).unwrap_or(u16::MAX);
        let all = efadv_device_attr {
            comp_mask: 0,
            max_sq_wr: limits.max_qp_wr,
            max_rq_wr: limits.max_qp_wr,
            max_sq_sge: short(limits.max_sge),
            max_rq_sge: short(limits.max_sge),
            inline_buf_size: short(limits.max_inline_data),
            inline_buf_size_ex: short(limits.max_inline_data),
            device_caps: CAPABILITIES,
            max_rdma_size: MAX_RDMA_BYTES,
        };
        attr.required()?.set_within(&all, inlen as usize);
        Ok(())
    })
}

/// Returns the number by which the device knows an address handle.
pub(crate) extern "C" fn efadv_query_ah(ah: *mut ibv_ah, attr: Out<'_, efadv_ah_attr>, inlen: u32) -> c_int {
    if !has_vendor_calls(Vendor::Amazon) {
        return unsupported::int(Call::efadv_query_ah, "");
    }
    status_of(Call::efadv_query_ah, CallSubject::on(ah), || {
        let held = live::<Ah>(ah)?;
        let open = efa_of(held.context_pointer())?;
        check_length(Call::efadv_query_ah, inlen, AH_ATTR_PREFIX)?;
        // The profile's limit makes the number fit 16 bits.
        let ahn = open.hca().ah_number(held.handle()).ok_or(INVALID)?;
        let all = efadv_ah_attr { comp_mask: 0, ahn, reserved: [0; 6] };
        attr.required()?.set_within(&all, inlen as usize);
        Ok(())
    })
}

/// Checks that a program asks for no feature that is unknown here: bytes behind the known structure must be
/// 0.
///
/// # Errors
/// Fails with EINVAL if it does.
fn check_input<T>(call: Call, input: In<'_, T>, inlen: u32, prefix: u32) -> Result<(), Errno> {
    check_length(call, inlen, prefix)?;
    if input.is_zero_behind(inlen as usize)? {
        return Ok(());
    }
    Err(INVALID.because(|| format!("{call} refused: its structure asks for what this device does not know")))
}

/// Returns the depth of a queue, which is a power of two.
fn rounded(entries: u32) -> u32 {
    if entries == 0 { 0 } else { entries.next_power_of_two() }
}

/// Creates a queue pair of SRD.
fn create_srd(
    open: &Context,
    context: *mut ibv_context,
    pd: *mut ibv_pd,
    mut attributes: ibv_qp_init_attr,
    (send_operations, takes_unsolicited): (Option<u64>, bool),
) -> Result<(*mut ibv_qp, ibv_qp_cap), Errno> {
    if attributes.qp_type != QPT_DRIVER {
        return Err(INVALID.because(|| "a queue pair of SRD has the type IBV_QPT_DRIVER".to_owned()));
    }
    if pd.is_null() || attributes.send_cq.is_null() || attributes.recv_cq.is_null() {
        return Err(INVALID);
    }
    if !attributes.srq.is_null() {
        return Err(INVALID.because(|| "a queue pair of SRD has no shared receive queue".to_owned()));
    }
    let most = open.hca().limits().max_qp_wr;
    for entries in [&mut attributes.cap.max_send_wr, &mut attributes.cap.max_recv_wr] {
        *entries = if *entries <= most { rounded(*entries).min(most) } else { *entries };
    }
    let own = Some(VendorService::Srd { takes_unsolicited });
    let xrcd = std::ptr::null_mut();
    let parameters = QpCreateParameters {
        own,
        is_mrc: false,
        context,
        pd,
        xrcd,
        attributes,
        spread: None,
        send_operations,
    };
    let (qp, granted) = create(&parameters)?;
    Ok((qp, granted.cap))
}

pub(crate) extern "C" fn efadv_create_driver_qp(
    pd: *mut ibv_pd,
    attr: InOut<'_, ibv_qp_init_attr>,
    driver_qp_type: u32,
) -> *mut ibv_qp {
    if !has_vendor_calls(Vendor::Amazon) {
        return unsupported::null(Call::efadv_create_driver_qp, "").cast();
    }
    pointer_about(Call::efadv_create_driver_qp, CallSubject::on(pd), || {
        let context = live::<Pd>(pd)?.context_pointer();
        let open = efa_of(context)?;
        if driver_qp_type != TYPE_SRD {
            return Err(NOT_SUPPORTED);
        }
        let attributes = attr.get()?;
        let (qp, capacity) = create_srd(&open, context, pd, *attributes, (None, false))?;
        attributes.cap = capacity;
        Ok(qp)
    })
}

pub(crate) extern "C" fn efadv_create_qp_ex(
    context: *mut ibv_context,
    attr_ex: InOut<'_, ibv_qp_init_attr_ex>,
    efa_attr: In<'_, efadv_qp_init_attr>,
    inlen: u32,
) -> *mut ibv_qp {
    let call = Call::efadv_create_qp_ex;
    if !has_vendor_calls(Vendor::Amazon) {
        return unsupported::null(call, "").cast();
    }
    pointer_about(call, CallSubject::on(context), || {
        let open = efa_of(context)?;
        let attributes = attr_ex.get()?;
        check_input(call, efa_attr, inlen, QP_ATTR_PREFIX)?;
        let efa = efa_attr.beginning(inlen as usize, zeroed())?;
        if efa.comp_mask != 0 {
            return Err(INVALID);
        }
        let unknown = attributes.comp_mask & !(MASK_PD | MASK_SEND_OPERATIONS);
        let unknown_flags = efa.flags & !(QP_UNSOLICITED | QP_INLINE_WRITE);
        let unknown = unknown != 0 || unknown_flags != 0 || efa.wr_flags & !WITH_HINTS != 0;
        if efa.driver_qp_type != TYPE_SRD || unknown {
            return Err(NOT_SUPPORTED.because(|| {
                format!("{call} refused: it asks for more than SRD has here: another type, flags or options")
            }));
        }
        let operations =
            (attributes.comp_mask & MASK_SEND_OPERATIONS != 0).then_some(attributes.send_ops_flags);
        if let Some(operations) = operations {
            check_operations(QpType::Srd, operations)?;
        }
        let pd = if attributes.comp_mask & MASK_PD != 0 { attributes.pd } else { std::ptr::null_mut() };
        let plain = ibv_qp_init_attr {
            qp_context: attributes.qp_context,
            send_cq: attributes.send_cq,
            recv_cq: attributes.recv_cq,
            srq: attributes.srq,
            cap: attributes.cap,
            qp_type: attributes.qp_type,
            sq_sig_all: attributes.sq_sig_all,
        };
        let (qp, capacity) =
            create_srd(&open, context, pd, plain, (operations, efa.flags & QP_UNSOLICITED != 0))?;
        attributes.cap = capacity;
        Ok(qp)
    })
}

pub(crate) extern "C" fn efadv_create_cq(
    context: *mut ibv_context,
    attr_ex: In<'_, ibv_cq_init_attr_ex>,
    efa_attr: In<'_, efadv_cq_init_attr>,
    inlen: u32,
) -> *mut ibv_cq_ex {
    let call = Call::efadv_create_cq;
    if !has_vendor_calls(Vendor::Amazon) {
        return unsupported::null(call, "").cast();
    }
    pointer_about(call, CallSubject::on(context), || {
        efa_of(context)?;
        let attributes = attr_ex.get()?;
        check_input(call, efa_attr, inlen, CQ_ATTR_PREFIX)?;
        let efa = efa_attr.beginning(inlen as usize, zeroed())?;
        if efa.comp_mask != 0 {
            return Err(INVALID);
        }
        if efa.wc_flags & !(WC_SGID | WC_UNSOLICITED) != 0 || efa.memory != [0; 5] {
            return Err(NOT_SUPPORTED.because(|| {
                format!("{call} refused: it asks for unknown fields or for memory of the program's choice")
            }));
        }
        create_cq(context, attributes)
    })
}

/// Returns the interface with which programs read the sender's GID.
pub(crate) extern "C" fn efadv_cq_from_ibv_cq_ex(cq_ex: *mut ibv_cq_ex) -> *mut efadv_cq {
    if !has_vendor_calls(Vendor::Amazon) {
        return unsupported::null(Call::efadv_cq_from_ibv_cq_ex, "").cast();
    }
    let cq = cq_ex.cast::<ibv_cq>();
    pointer_about(Call::efadv_cq_from_ibv_cq_ex, CallSubject::on(cq), || {
        let held = live::<Cq>(cq)?;
        let make = || efadv_cq {
            comp_mask: 0,
            wc_read_sgid: operation!(read_sgid),
            wc_is_unsolicited: operation!(is_unsolicited),
        };
        Ok(held.efa(cq, make))
    })
}

/// Returns the GID of the sender of the polled completion, if it has no address handle here; otherwise
/// -ENOENT.
extern "C" fn read_sgid(efa: In<'_, efadv_cq>, gid: Out<'_, ibv_gid>) -> c_int {
    value(-libc::EINVAL, || {
        let Some(cq) = EfaCq::queue_of(efa) else { return -libc::EINVAL };
        let Ok(held) = live::<Cq>(cq) else { return -libc::EINVAL };
        let completion = held.turn().with(|polled| polled.completion);
        if completion.slid != NO_HANDLE {
            return -libc::ENOENT;
        }
        let (own, from) = (Qpn::new(completion.qp_num), Qpn::new(completion.src_qp));
        match (held.hca().srd_source(own, from), gid.optional()) {
            (Some(address), Some(gid)) => {
                gid.set(ibv_gid { raw: Gid::from(address).0 });
                0
            }
            _ => -libc::ENOENT,
        }
    })
}

/// Reports whether the completion that was polled last is of a WRITE with immediate data that took no receive
/// request.
extern "C" fn is_unsolicited(efa: In<'_, efadv_cq>) -> bool {
    value(false, || {
        let cq = EfaCq::queue_of(efa).map(live::<Cq>);
        let Some(Ok(cq)) = cq else { return false };
        let completion = cq.turn().with(|polled| polled.completion);
        completion.opcode == WcOpcode::RecvRdmaWithImm
            && cq.hca().takes_unsolicited(Qpn::new(completion.qp_num))
    })
}

/// Returns the interface with which programs set hints of a request.
pub(crate) extern "C" fn efadv_qp_from_ibv_qp_ex(qp_ex: *mut ibv_qp_ex) -> *mut efadv_qp {
    let call = Call::efadv_qp_from_ibv_qp_ex;
    if !has_vendor_calls(Vendor::Amazon) {
        return unsupported::null(call, "").cast();
    }
    let qp = qp_ex.cast::<ibv_qp>();
    if qp.is_null() {
        // rdma-core's tests ask for it with queue pairs without send operations.
        return std::ptr::null_mut();
    }
    pointer_about(call, Qp::about(qp), || {
        let held = live::<Qp>(qp)?;
        efa_of(held.context_pointer())?;
        Ok(held.efa(|| efadv_qp { comp_mask: 0, wr_set_processing_hints: operation!(set_processing_hints) }))
    })
}

/// Ignores the hints: packets leave as they would without.
extern "C" fn set_processing_hints(_qp: *mut efadv_qp, _hints: u32) {}

/// Returns which of several connections to memory a region uses: there is only one, so none is named.
pub(crate) extern "C" fn efadv_query_mr(mr: *mut ibv_mr, attr: Out<'_, efadv_mr_attr>, inlen: u32) -> c_int {
    let call = Call::efadv_query_mr;
    if !has_vendor_calls(Vendor::Amazon) {
        return unsupported::int(call, "");
    }
    status_of(call, CallSubject::on(mr), || {
        check_efa(&*live::<Mr>(mr)?.context()?)?;
        check_length(call, inlen, MR_ATTR_PREFIX)?;
        attr.required()?.set_within(&zeroed(), inlen as usize);
        Ok(())
    })
}

/// Returns the largest depth of a send queue for such requests. As every call that returns a number, it
/// returns a negative errno.
pub(crate) extern "C" fn efadv_get_max_sq_depth(
    context: *mut ibv_context,
    attr: In<'_, efadv_sq_depth_attr>,
    inlen: u32,
) -> c_int {
    let call = Call::efadv_get_max_sq_depth;
    if !has_vendor_calls(Vendor::Amazon) {
        return unsupported::negative(call, "");
    }
    negative_of(call, CallSubject::on(context), || {
        let open = efa_of(context)?;
        check_length(call, inlen, SQ_DEPTH_PREFIX)?;
        let parameters = attr.beginning(inlen as usize, zeroed())?;
        let limits = open.hca().limits();
        for (what, given, most) in [
            ("comp_mask", parameters.comp_mask, 0),
            ("max_send_sge", parameters.max_send_sge.into(), limits.max_sge),
            ("max_rdma_sge", parameters.max_rdma_sge.into(), 1),
            ("max_inline_data", parameters.max_inline_data.into(), limits.max_inline_data),
        ] {
            check_max(call, what, given, most)?;
        }
        let is_short =
            parameters.max_inline_data <= SHORT_INLINE_BYTES && parameters.flags & DEPTH_INLINE_WRITE == 0;
        Ok((if is_short { limits.max_qp_wr } else { limits.max_qp_wr / 2 }) as c_int)
    })
}

/// Returns the largest depth of a receive queue for such requests.
pub(crate) extern "C" fn efadv_get_max_rq_depth(
    context: *mut ibv_context,
    attr: In<'_, efadv_rq_depth_attr>,
    inlen: u32,
) -> c_int {
    let call = Call::efadv_get_max_rq_depth;
    if !has_vendor_calls(Vendor::Amazon) {
        return unsupported::negative(call, "");
    }
    negative_of(call, CallSubject::on(context), || {
        let open = efa_of(context)?;
        check_length(call, inlen, RQ_DEPTH_PREFIX)?;
        let parameters = attr.beginning(inlen as usize, zeroed())?;
        let limits = open.hca().limits();
        check_max(call, "comp_mask", parameters.comp_mask, 0)?;
        check_max(call, "max_recv_sge", parameters.max_recv_sge.into(), limits.max_sge)?;
        Ok((limits.max_qp_wr / parameters.max_recv_sge.max(1)) as c_int)
    })
}

/// Checks a field of a query's input.
///
/// # Errors
/// Fails with EINVAL if it is larger than it may be.
fn check_max(call: Call, what: &str, given: u64, most: u32) -> Result<(), Errno> {
    if given <= most.into() {
        return Ok(());
    }
    Err(INVALID.because(|| format!("{call} refused: {what} is {given}, and may be {most} at most")))
}
