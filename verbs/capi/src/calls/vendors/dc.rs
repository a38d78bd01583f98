//! DC: queue pairs that `mlx5dv_create_qp` makes, and the setters of requests to a target.

use std::ffi::c_int;
use std::ptr;

use pumice_calls::Call;
use pumice_device::profile::Vendor;
use pumice_transport::types::{DcDestination, DcStreams, QpType, VendorService};

use super::super::post_send::destination;
use super::super::queue_pair::{QPT_DRIVER, QpCreateParameters, check_operations, create, create_extended};
use super::super::queue_pair_ex::set;
use super::{imitates, mlx5_keys, mlx5_requests};
use crate::abi::plain::zeroed;
use crate::abi::{
    ibv_ah, ibv_context, ibv_qp, ibv_qp_ex, ibv_qp_init_attr, ibv_qp_init_attr_ex, mlx5dv_qp_ex,
    mlx5dv_qp_init_attr, operation,
};
use crate::entry::arguments::{In, InOut, Trusted};
use crate::entry::handles::live;
use crate::entry::{pointer_about, status_of, unsupported, value};
use crate::gate::CallSubject;
use crate::objects::Context;
use crate::objects::domains::Ah;
use crate::objects::queue_pair::{Mlx5Qp, Qp};
use crate::platform::{Errno, INVALID, NOT_SUPPORTED};

/// Bits of `MLX5DV_QP_INIT_ATTR_MASK_*`: creation flags, DC, send operations of mlx5, streams.
const MASK_FLAGS: u64 = 1;
const MASK_DC: u64 = 1 << 1;
const MASK_OPERATIONS: u64 = 1 << 2;
const MASK_STREAMS: u64 = 1 << 3;
const MASK_KNOWN: u64 = (1 << 4) - 1;
/// Flags of `MLX5DV_QP_CREATE_*`: no data in completions, and data in completions; credits for packets; data
/// out of order. None of these has an effect here.
const NO_DATA_IN_CQE: u32 = 1 << 3;
const DATA_IN_CQE: u32 = 1 << 4;
const PACKET_CREDITS: u32 = 1 << 5;
const OUT_OF_ORDER: u32 = 1 << 7;
/// Flag: the send queue stops after data that does not fit its signatures.
const SIGNATURE_PIPELINING: u32 = 1 << 6;
const FLAGS_SERVED: u32 = NO_DATA_IN_CQE | DATA_IN_CQE | PACKET_CREDITS | OUT_OF_ORDER | SIGNATURE_PIPELINING;
const FLAGS_KNOWN: u32 = (1 << 8) - 1;
/// Values of `MLX5DV_DCTYPE_*`.
const TYPE_TARGET: u32 = 1;
const TYPE_INITIATOR: u32 = 2;
/// Bits of `ibv_qp_init_attr_ex.comp_mask`: the domain, and the send operations.
const MASK_PD: u32 = 1;
const MASK_SEND_OPERATIONS: u32 = 1 << 6;
/// Largest exponent of the streams of an initiator.
pub(super) const MAX_LOG_STREAMS: u8 = DcStreams::MAX_LOG;

/// Reports whether a device of this process may have DC.
fn serves() -> bool {
    imitates(Vendor::Mellanox)
}

/// Returns the context, if its device has DC.
///
/// # Errors
/// Fails with EOPNOTSUPP if it has not, and as [`Context::of`].
fn with_dc(context: *mut ibv_context) -> Result<std::sync::Arc<Context>, Errno> {
    let open = Context::of(context)?;
    if has_dc(&open) { Ok(open) } else { Err(NOT_SUPPORTED) }
}

/// Reports whether a device looks like mlx5, and its profile has queue pairs of DC.
pub(crate) fn has_dc(open: &Context) -> bool {
    open.is_of(Vendor::Mellanox) && open.device().profile().queue_pairs.has(QpType::Dci)
}

/// Operations of `MLX5DV_QP_EX_WITH_*` that are implemented.
const OPERATIONS_SERVED: u64 = mlx5_keys::OPERATION_INTERLEAVED
    | mlx5_keys::OPERATION_LIST
    | mlx5_keys::OPERATION_CONFIGURE
    | mlx5_requests::OPERATION_RAW
    | mlx5_requests::OPERATION_COPY;

/// Returns the operations of mlx5 that a program asks for.
const fn operations_of(mlx5: &mlx5dv_qp_init_attr) -> u64 {
    if mlx5.comp_mask & MASK_OPERATIONS != 0 { mlx5.send_ops_flags } else { 0 }
}

/// Returns the flags with which a program makes a queue pair.
const fn flags_of(mlx5: &mlx5dv_qp_init_attr) -> u32 {
    if mlx5.comp_mask & MASK_FLAGS != 0 { mlx5.create_flags } else { 0 }
}

/// Returns the functions of a queue pair that has these operations.
fn functions(operations: u64) -> mlx5dv_qp_ex {
    let mut all = mlx5dv_qp_ex {
        wr_set_dc_addr: operation!(set_dc_addr),
        wr_set_dc_addr_stream: operation!(set_dc_addr_stream),
        ..zeroed()
    };
    mlx5_keys::fill_operations(&mut all, operations);
    mlx5_requests::fill_operations(&mut all, operations);
    all
}

/// Creates a queue pair of verbs' own types, with flags and operations of mlx5.
fn create_with(
    context: *mut ibv_context,
    attributes: &mut ibv_qp_init_attr_ex,
    flags: u32,
    operations: u64,
) -> Result<*mut ibv_qp, Errno> {
    // Operations of mlx5 are posted by calls between wr_start and wr_complete.
    if operations != 0 && attributes.comp_mask & MASK_SEND_OPERATIONS == 0 {
        attributes.comp_mask |= MASK_SEND_OPERATIONS;
        attributes.send_ops_flags = 0;
    }
    let qp = create_extended(context, attributes)?;
    let held = live::<Qp>(qp)?;
    if operations != 0 {
        held.mlx5(qp, || functions(operations));
    }
    if flags & SIGNATURE_PIPELINING != 0 {
        held.hca().stop_at_bad_signature(held.number());
    }
    if flags & OUT_OF_ORDER != 0 {
        held.hca().place_out_of_order(held.number());
    }
    Ok(qp)
}

/// Returns the vendor's service that a program asks for; `None` if it asks for no feature of DC.
fn service_of(
    call: Call,
    attributes: &ibv_qp_init_attr_ex,
    mlx5: &mlx5dv_qp_init_attr,
) -> Result<Option<VendorService>, Errno> {
    let given = |bit| mlx5.comp_mask & bit != 0;
    let invalid = |what: &'static str| INVALID.because(|| format!("{call} refused: {what}"));
    if mlx5.comp_mask & !MASK_KNOWN != 0 {
        return Err(invalid("its comp_mask has bits that are not known"));
    }
    let flags = flags_of(mlx5);
    if flags & !FLAGS_KNOWN != 0 || flags & DATA_IN_CQE != 0 && flags & NO_DATA_IN_CQE != 0 {
        return Err(invalid("its create_flags are not known, or exclude each other"));
    }
    if flags & !FLAGS_SERVED != 0 {
        return Err(NOT_SUPPORTED
            .because(|| format!("{call} refused: it asks for tunnels, which this device does not have")));
    }
    let operations = operations_of(mlx5);
    if operations & !OPERATIONS_SERVED != 0 || operations != 0 && attributes.qp_type != QpType::Rc as u32 {
        return Err(NOT_SUPPORTED.because(|| {
            format!(
                "{call} refused: only RC has operations of MLX5DV_QP_EX_WITH_*, and {operations:#x} has bits \
                 that are not known"
            )
        }));
    }
    if flags & OUT_OF_ORDER != 0 && ![QPT_DRIVER, QpType::Rc as u32].contains(&attributes.qp_type) {
        return Err(
            NOT_SUPPORTED.because(|| format!("{call} refused: only RC and DC take MLX5DV_QP_CREATE_OOO_DP"))
        );
    }
    if flags & SIGNATURE_PIPELINING != 0 && attributes.qp_type != QpType::Rc as u32 {
        return Err(NOT_SUPPORTED
            .because(|| format!("{call} refused: only RC takes MLX5DV_QP_CREATE_SIG_PIPELINING")));
    }
    if attributes.qp_type != QPT_DRIVER {
        return Ok(None);
    }
    if !given(MASK_DC) {
        return Err(invalid("IBV_QPT_DRIVER needs MLX5DV_QP_INIT_ATTR_MASK_DC"));
    }
    match mlx5.dc_type {
        TYPE_TARGET if attributes.comp_mask & !MASK_PD != 0 || given(MASK_OPERATIONS | MASK_STREAMS) => {
            Err(invalid("a target has no send operations, and nothing but a domain beside its queues"))
        }
        TYPE_TARGET if attributes.srq.is_null() || attributes.recv_cq.is_null() => {
            Err(invalid("a target needs a shared receive queue and a completion queue for it"))
        }
        TYPE_TARGET => Ok(Some(VendorService::DcTarget { access_key: mlx5.dc_union })),
        TYPE_INITIATOR => {
            let [log_concurrent, log_errored, ..] = mlx5.dc_union.to_ne_bytes();
            if given(MASK_STREAMS) && log_concurrent.max(log_errored) > MAX_LOG_STREAMS {
                return Err(invalid("an initiator has 2^6 streams at most"));
            }
            let streams = given(MASK_STREAMS).then_some(DcStreams { log_concurrent, log_errored });
            Ok(Some(VendorService::DcInitiator { streams }))
        }
        _ => Err(invalid("its dc_type is neither that of a target nor that of an initiator")),
    }
}

pub(crate) extern "C" fn mlx5dv_create_qp(
    context: *mut ibv_context,
    qp_attr: InOut<'_, ibv_qp_init_attr_ex>,
    mlx5_qp_attr: In<'_, mlx5dv_qp_init_attr>,
) -> *mut ibv_qp {
    let call = Call::mlx5dv_create_qp;
    if !serves() {
        return unsupported::null(call, "").cast();
    }
    pointer_about(call, CallSubject::on(context), || {
        with_dc(context)?;
        let attributes = qp_attr.get()?;
        let own = match mlx5_qp_attr.optional() {
            Some(mlx5) => service_of(call, attributes, mlx5)?,
            None if attributes.qp_type == QPT_DRIVER => return Err(INVALID),
            None => None,
        };
        let Some(own) = own else {
            let mlx5 = mlx5_qp_attr.optional();
            let (flags, operations) = (mlx5.map_or(0, flags_of), mlx5.map_or(0, operations_of));
            return create_with(context, attributes, flags, operations);
        };
        if attributes.comp_mask & !(MASK_PD | MASK_SEND_OPERATIONS) != 0 {
            return Err(INVALID);
        }
        let operations =
            (attributes.comp_mask & MASK_SEND_OPERATIONS != 0).then_some(attributes.send_ops_flags);
        if let Some(operations) = operations {
            check_operations(own.qp_type(), operations)?;
        }
        let parameters = QpCreateParameters {
            own: Some(own),
            is_mrc: false,
            context,
            pd: if attributes.comp_mask & MASK_PD != 0 { attributes.pd } else { ptr::null_mut() },
            xrcd: ptr::null_mut(),
            attributes: ibv_qp_init_attr {
                qp_context: attributes.qp_context,
                send_cq: attributes.send_cq,
                recv_cq: attributes.recv_cq,
                srq: attributes.srq,
                cap: attributes.cap,
                qp_type: attributes.qp_type,
                sq_sig_all: attributes.sq_sig_all,
            },
            spread: None,
            send_operations: operations,
        };
        let (qp, granted) = create(&parameters)?;
        attributes.cap = granted.cap;
        if mlx5_qp_attr.optional().map_or(0, flags_of) & OUT_OF_ORDER != 0 {
            let held = live::<Qp>(qp)?;
            held.hca().place_out_of_order(held.number());
        }
        Ok(qp)
    })
}

/// Returns the interface with which programs name targets.
pub(crate) extern "C" fn mlx5dv_qp_ex_from_ibv_qp_ex(qp_ex: *mut ibv_qp_ex) -> *mut mlx5dv_qp_ex {
    let call = Call::mlx5dv_qp_ex_from_ibv_qp_ex;
    if !serves() {
        return unsupported::null(call, "").cast();
    }
    let qp = qp_ex.cast::<ibv_qp>();
    if qp.is_null() {
        // perftest asks for it with a target, which has no send operations.
        return ptr::null_mut();
    }
    pointer_about(call, Qp::about(qp), || {
        let held = live::<Qp>(qp)?;
        with_dc(held.context_pointer())?;
        Ok(held.mlx5(qp, || functions(0)))
    })
}

extern "C" fn set_dc_addr(
    mlx5: In<'_, mlx5dv_qp_ex>,
    ah: Trusted<'_, ibv_ah>,
    remote_dctn: u32,
    remote_dc_key: u64,
) {
    set_dc_addr_stream(mlx5, ah, remote_dctn, remote_dc_key, 0);
}

extern "C" fn set_dc_addr_stream(
    mlx5: In<'_, mlx5dv_qp_ex>,
    ah: Trusted<'_, ibv_ah>,
    remote_dctn: u32,
    access_key: u64,
    stream: u16,
) {
    value((), || {
        let Some(qp) = Mlx5Qp::queue_pair_of(mlx5) else { return };
        set(qp, |qp, series| {
            let to = destination(qp, ah, remote_dctn, 0)?;
            let last = series.requests.last_mut().ok_or(INVALID)?;
            (last.request.ud, last.request.dc) = (to, Some(DcDestination { access_key, stream }));
            Ok(())
        });
    });
}

/// Makes a failed stream work again.
pub(crate) extern "C" fn mlx5dv_dci_stream_id_reset(qp: *mut ibv_qp, stream_id: u16) -> c_int {
    let call = Call::mlx5dv_dci_stream_id_reset;
    if !serves() {
        return unsupported::int(call, "");
    }
    status_of(call, Qp::about(qp), || {
        let held = live::<Qp>(qp)?;
        with_dc(held.context_pointer())?;
        if !matches!(held.own_service(), Some(VendorService::DcInitiator { .. })) {
            return Err(INVALID.because(|| format!("{call} refused: the queue pair is no initiator of DC")));
        }
        if held.hca().reset_dc_stream(held.number(), stream_id) {
            return Ok(());
        }
        Err(NOT_SUPPORTED
            .because(|| format!("{call} refused: the initiator was made without streams, or is not in RTS")))
    })
}

/// Does nothing: an address handle leads to one queue pair as well as to all.
pub(crate) extern "C" fn mlx5dv_map_ah_to_qp(ah: *mut ibv_ah, _qp_num: u32) -> c_int {
    let call = Call::mlx5dv_map_ah_to_qp;
    if !serves() {
        return unsupported::int(call, "");
    }
    status_of(call, CallSubject::on(ah), || {
        with_dc(live::<Ah>(ah)?.context_pointer())?;
        Ok(())
    })
}
