//! Attributes of completion queues and of queue pairs in the API of mlx5, and the trees that define their
//! share of the bandwidth.
//!
//! Calls of `mlx5dv_sched_*`: trees that define the share of the bandwidth that a queue pair gets. They are
//! checked as by mlx5, and have no effect here.

use std::ffi::c_int;

use pumice_calls::Call;
use pumice_device::outside::environment;
use pumice_transport::types::QpType;

use super::super::completion_queue_ex::create;
use super::mlx5::{CQE_FORMATS, check_mlx5, mlx5_of, serves};
use crate::abi::{
    ibv_context, ibv_cq_ex, ibv_cq_init_attr_ex, ibv_qp, mlx5dv_cq_init_attr, mlx5dv_sched_attr,
    mlx5dv_sched_leaf, mlx5dv_sched_node,
};
use crate::entry::arguments::{In, Out};
use crate::entry::handles::{RegisteredObject, hand_out, live, live_or_none, take_back};
use crate::entry::{pointer_about, status_of, unsupported};
use crate::gate::CallSubject;
use crate::objects::mlx5::{SchedLeaf, SchedNode};
use crate::objects::queue_pair::Qp;
use crate::platform::{Errno, INVALID, NOT_SUPPORTED};

/// Bits of `MLX5DV_CQ_INIT_ATTR_MASK_*`: a format for compression, flags, bytes of an entry.
const MASK_COMPRESSED: u64 = 1;
const MASK_FLAGS: u64 = 1 << 1;
const MASK_CQE_SIZE: u64 = 1 << 2;
const MASK_KNOWN: u64 = MASK_COMPRESSED | MASK_FLAGS | MASK_CQE_SIZE;
/// The flag `MLX5DV_CQ_INIT_ATTR_FLAGS_CQE_PAD`: entries of 128 bytes are written whole.
const PAD: u32 = 1;
/// Lengths in bytes that an entry may have, the usual one first.
const CQE_BYTES: [u16; 2] = [64, 128];
/// Variable with which users choose the length of an entry, where the program does not.
const CQE_SIZE_VARIABLE: &str = "MLX5_CQE_SIZE";

/// Checks the attributes that a program asks for. None has an effect: programs read completions through
/// calls.
///
/// # Errors
/// Fails with EINVAL where mlx5 refuses.
fn check_completion_queue(wanted: Option<&mlx5dv_cq_init_attr>) -> Result<(), Errno> {
    let call = Call::mlx5dv_create_cq;
    let given = |bit| wanted.filter(|wanted| wanted.comp_mask & bit != 0);
    let invalid = |what: String| Err(INVALID.because(|| format!("{call} refused: {what}")));
    if wanted.is_some_and(|wanted| wanted.comp_mask & !MASK_KNOWN != 0) {
        return invalid("its comp_mask has bits that are not known".to_owned());
    }
    if let Some(format) = given(MASK_COMPRESSED).map(|wanted| wanted.cqe_comp_res_format)
        && (!format.is_power_of_two() || format & !CQE_FORMATS != 0)
    {
        return invalid(format!("cqe_comp_res_format {format:#x} is not one MLX5DV_CQE_RES_FORMAT_*"));
    }
    let chosen = given(MASK_CQE_SIZE).map(|wanted| wanted.cqe_size.to_string());
    let chosen = chosen.or_else(|| Some(environment::variable(CQE_SIZE_VARIABLE)?.to_string_lossy().into()));
    let bytes = chosen.as_ref().map_or(CQE_BYTES.first().copied(), |chosen| {
        CQE_BYTES.into_iter().find(|bytes| bytes.to_string() == *chosen)
    });
    let Some(bytes) = bytes else {
        let chosen = chosen.unwrap_or_default();
        return invalid(format!(
            "an entry has 64 or 128 bytes, not {chosen} (cqe_size or {CQE_SIZE_VARIABLE})"
        ));
    };
    let flags = given(MASK_FLAGS).map_or(0, |wanted| wanted.flags);
    if flags & !PAD != 0 {
        return invalid(format!("flags {flags:#x} has bits that are not known"));
    }
    if flags & PAD != 0 && bytes != 128 {
        return invalid("only entries of 128 bytes are padded: set cqe_size to 128".to_owned());
    }
    Ok(())
}

pub(crate) extern "C" fn mlx5dv_create_cq(
    context: *mut ibv_context,
    cq_attr: In<'_, ibv_cq_init_attr_ex>,
    mlx5_cq_attr: In<'_, mlx5dv_cq_init_attr>,
) -> *mut ibv_cq_ex {
    let call = Call::mlx5dv_create_cq;
    if !serves() {
        return unsupported::null(call, "").cast();
    }
    pointer_about(call, CallSubject::on(context), || {
        mlx5_of(context)?;
        check_completion_queue(mlx5_cq_attr.optional())?;
        create(context, cq_attr.get()?)
    })
}

/// Sets the UDP port that packets leave from, by which switches spread flows.
pub(crate) extern "C" fn mlx5dv_modify_qp_udp_sport(qp: *mut ibv_qp, udp_sport: u16) -> c_int {
    let call = Call::mlx5dv_modify_qp_udp_sport;
    if !serves() {
        return unsupported::int(call, "");
    }
    status_of(call, Qp::about(qp), || {
        let held = live::<Qp>(qp)?;
        check_mlx5(&*held.context()?)?;
        if held.hca().set_source_port(held.number(), udp_sport) {
            return Ok(());
        }
        Err(NOT_SUPPORTED.because(|| {
            format!(
                "{call} refused: it needs a queue pair of RC or UC in RTS, and a port that no other socket \
                 of this host has"
            )
        }))
    })
}

/// Returns the number of ports of the bond that the device of a queue pair looks like.
///
/// # Errors
/// Fails with EOPNOTSUPP if it looks like none, or is not of mlx5.
fn bond_of(call: Call, qp: &Qp) -> Result<u8, Errno> {
    let open = qp.context()?;
    check_mlx5(&open)?;
    match open.device().profile().lag_ports {
        0 | 1 => Err(NOT_SUPPORTED.because(|| {
            format!("{call} refused: the device looks like no bond; its profile may say lag_ports = 2")
        })),
        ports => Ok(ports),
    }
}

/// Returns the port of a bond that a queue pair is to use, and the one that it uses: all are up.
pub(crate) extern "C" fn mlx5dv_query_qp_lag_port(
    qp: *mut ibv_qp,
    port_num: Out<'_, u8>,
    active_port_num: Out<'_, u8>,
) -> c_int {
    let call = Call::mlx5dv_query_qp_lag_port;
    if !serves() {
        return unsupported::int(call, "");
    }
    status_of(call, Qp::about(qp), || {
        let held = live::<Qp>(qp)?;
        let port = held.lag_port(bond_of(call, &held)?);
        let (chosen, active) = (port_num.required()?, active_port_num.required()?);
        chosen.set(port);
        active.set(port);
        Ok(())
    })
}

/// Sets the port of a bond that a queue pair is to use. Here its packets use the only port.
pub(crate) extern "C" fn mlx5dv_modify_qp_lag_port(qp: *mut ibv_qp, port_num: u8) -> c_int {
    let call = Call::mlx5dv_modify_qp_lag_port;
    if !serves() {
        return unsupported::int(call, "");
    }
    status_of(call, Qp::about(qp), || {
        let held = live::<Qp>(qp)?;
        let ports = bond_of(call, &held)?;
        if port_num == 0 || port_num > ports {
            return Err(INVALID.because(|| {
                format!("{call} refused: the bond has the ports 1 to {ports}, and no port {port_num}")
            }));
        }
        held.choose_lag_port(port_num);
        Ok(())
    })
}

/// Flags of `MLX5DV_SCHED_ELEM_ATTR_FLAGS_*`: a share, and a limit.
const FLAGS_KNOWN: u32 = 3;

/// Kind of an element.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SchedElement {
    Node,
    Leaf,
}

/// Checks a program's attributes of an element.
///
/// # Errors
/// Fails with EINVAL for unknown flags, a root with flags, or a leaf without a node above it, and with ENOENT
/// if the node above it is none.
fn check_element(call: Call, attributes: &mlx5dv_sched_attr, element: SchedElement) -> Result<(), Errno> {
    let invalid = |what: &'static str| Err(INVALID.because(|| format!("{call} refused: {what}")));
    if attributes.comp_mask != 0 || attributes.flags & !FLAGS_KNOWN != 0 {
        return invalid("its comp_mask or its flags have bits that are not known");
    }
    match live_or_none::<SchedNode>(attributes.parent)? {
        None if element == SchedElement::Leaf => invalid("a leaf belongs to a node: set parent"),
        None if attributes.flags != 0 => invalid("a root has no share and no limit: leave flags at 0"),
        _ => Ok(()),
    }
}

pub(crate) extern "C" fn mlx5dv_sched_node_create(
    context: *mut ibv_context,
    sched_attr: In<'_, mlx5dv_sched_attr>,
) -> *mut mlx5dv_sched_node {
    let call = Call::mlx5dv_sched_node_create;
    if !serves() {
        return unsupported::null(call, "").cast();
    }
    pointer_about(call, CallSubject::on(context), || {
        mlx5_of(context)?;
        check_element(call, sched_attr.get()?, SchedElement::Node)?;
        Ok(hand_out(SchedNode::new(context)))
    })
}

pub(crate) extern "C" fn mlx5dv_sched_leaf_create(
    context: *mut ibv_context,
    sched_attr: In<'_, mlx5dv_sched_attr>,
) -> *mut mlx5dv_sched_leaf {
    let call = Call::mlx5dv_sched_leaf_create;
    if !serves() {
        return unsupported::null(call, "").cast();
    }
    pointer_about(call, CallSubject::on(context), || {
        mlx5_of(context)?;
        check_element(call, sched_attr.get()?, SchedElement::Leaf)?;
        Ok(hand_out(SchedLeaf::new(context)))
    })
}

/// Changes an element.
fn modify<T: RegisteredObject>(
    call: Call,
    pointer: *mut T::C,
    sched_attr: In<'_, mlx5dv_sched_attr>,
    element: SchedElement,
) -> c_int {
    if !serves() {
        return unsupported::int(call, "");
    }
    status_of(call, CallSubject::of(pointer), || {
        live::<T>(pointer)?;
        check_element(call, sched_attr.get()?, element)
    })
}

/// Destroys an element. Elements below it remain, as nothing depends on it.
fn destroy<T: RegisteredObject>(call: Call, pointer: *mut T::C) -> c_int {
    if !serves() {
        return unsupported::int(call, "");
    }
    status_of(call, CallSubject::of(pointer), || {
        live::<T>(pointer)?;
        take_back::<T>(pointer);
        Ok(())
    })
}

pub(crate) extern "C" fn mlx5dv_sched_node_modify(
    node: *mut mlx5dv_sched_node,
    sched_attr: In<'_, mlx5dv_sched_attr>,
) -> c_int {
    modify::<SchedNode>(Call::mlx5dv_sched_node_modify, node, sched_attr, SchedElement::Node)
}

pub(crate) extern "C" fn mlx5dv_sched_leaf_modify(
    leaf: *mut mlx5dv_sched_leaf,
    sched_attr: In<'_, mlx5dv_sched_attr>,
) -> c_int {
    modify::<SchedLeaf>(Call::mlx5dv_sched_leaf_modify, leaf, sched_attr, SchedElement::Leaf)
}

pub(crate) extern "C" fn mlx5dv_sched_node_destroy(node: *mut mlx5dv_sched_node) -> c_int {
    destroy::<SchedNode>(Call::mlx5dv_sched_node_destroy, node)
}

pub(crate) extern "C" fn mlx5dv_sched_leaf_destroy(leaf: *mut mlx5dv_sched_leaf) -> c_int {
    destroy::<SchedLeaf>(Call::mlx5dv_sched_leaf_destroy, leaf)
}

/// Assigns a queue pair to leaves: one for its requests, one for its answers.
pub(crate) extern "C" fn mlx5dv_modify_qp_sched_elem(
    qp: *mut ibv_qp,
    requester: *mut mlx5dv_sched_leaf,
    responder: *mut mlx5dv_sched_leaf,
) -> c_int {
    let call = Call::mlx5dv_modify_qp_sched_elem;
    if !serves() {
        return unsupported::int(call, "");
    }
    status_of(call, Qp::about(qp), || {
        let held = live::<Qp>(qp)?;
        check_mlx5(&*held.context()?)?;
        let has_vendor_calls = live_or_none::<SchedLeaf>(responder)?.is_some();
        live_or_none::<SchedLeaf>(requester)?;
        match QpType::of_verbs(held.verbs_type()) {
            Some(QpType::Rc) => Ok(()),
            Some(QpType::Uc | QpType::Ud | QpType::RawPacket) if has_vendor_calls => {
                Err(INVALID.because(|| format!("{call} refused: only RC has a leaf for what it answers")))
            }
            Some(QpType::Uc | QpType::Ud | QpType::RawPacket) => Ok(()),
            _ => Err(NOT_SUPPORTED),
        }
    })
}
