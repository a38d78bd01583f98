//! Calls of `mlx5dv_sched_*`: trees that define the share of the bandwidth that a queue pair gets. They are
//! checked as by mlx5, and have no effect here.

use std::ffi::c_int;

use pumice_calls::Call;
use pumice_transport::types::QpType;

use super::mlx5::{check_mlx5, mlx5_of, serves};
use crate::abi::{ibv_context, ibv_qp, mlx5dv_sched_attr, mlx5dv_sched_leaf, mlx5dv_sched_node};
use crate::entry::arguments::In;
use crate::entry::handles::{RegisteredObject, hand_out, live, live_or_none, take_back};
use crate::entry::outcome::{pointer_about, status_of};
use crate::entry::unsupported;
use crate::gate::CallSubject;
use crate::objects::queue_pair::Qp;
use crate::objects::sched_element::{SchedLeaf, SchedNode};
use crate::platform::errno::{Errno, INVALID, NOT_SUPPORTED};

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
fn check(call: Call, attributes: &mlx5dv_sched_attr, element: SchedElement) -> Result<(), Errno> {
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
        check(call, sched_attr.get()?, SchedElement::Node)?;
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
        check(call, sched_attr.get()?, SchedElement::Leaf)?;
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
        check(call, sched_attr.get()?, element)
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
