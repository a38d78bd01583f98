//! Queue pairs of identifiers: created with their completion queues, and initialised.

use std::ffi::c_int;

use pumice_calls::Call;

use crate::abi::zeroed::zeroed;
use crate::abi::{ibv_cq, ibv_pd, ibv_qp_attr, ibv_qp_init_attr, ibv_qp_init_attr_ex};
use crate::entry::outcome::{number_of, value};
use crate::platform::errno::{Errno, INVALID};
use crate::rdma_cm::constants::{QPT_UD, QPT_XRC_RECV};
use crate::rdma_cm::id::identifier::{Id, IdPointer};
use crate::rdma_cm::id::objects;
use crate::rdma_cm::id::queue_pair::{
    INIT, RTS, attributes, destroy, modify, receive_completion_queue, send_completion_queue,
};
use crate::rdma_cm::id::xrc_domain::xrc_domain;

/// Flags `IBV_QP_INIT_ATTR_PD`, `..._XRCD`.
const MASK_PD: u32 = 1;
const MASK_XRCD: u32 = 1 << 1;

pub(crate) extern "C" fn rdma_init_qp_attr(
    id: IdPointer,
    qp_attr: Option<&mut ibv_qp_attr>,
    qp_attr_mask: Option<&mut c_int>,
) -> c_int {
    number_of(Call::rdma_init_qp_attr, id.on(), || {
        let (own, attr, mask) = (id.id()?, qp_attr.ok_or(INVALID)?, qp_attr_mask.ok_or(INVALID)?);
        let wanted = attr.qp_state;
        let state = own.state();
        // Linux, too, checks only this as long as there is no connection, and for datagrams.
        let unconnected = state.connection.is_none() || own.is_datagram();
        if unconnected && own.c.verbs().is_null() {
            return Err(INVALID.because(|| "this identifier has no device yet".to_owned()));
        }
        let (filled, needed) = attributes(&own, &state, if unconnected { INIT } else { wanted })?;
        *attr = ibv_qp_attr { qp_state: wanted, ..filled };
        //= man:rdma_init_qp_attr
        //| The call returns the attributes and the mask for ibv_modify_qp.
        *mask = needed.bits() as c_int;
        Ok(0)
    })
}

pub(crate) extern "C" fn rdma_create_qp(
    id: IdPointer,
    pd: *mut ibv_pd,
    qp_init_attr: Option<&mut ibv_qp_init_attr>,
) -> c_int {
    number_of(Call::rdma_create_qp, id.about(), || {
        create(&*id.id()?, pd, qp_init_attr.ok_or(INVALID)?)?;
        Ok(0)
    })
}

/// Creates the identifier's queue pair in a domain, or in the identifier's if that is null.
///
/// # Errors
/// Fails with the errors of `rdma_create_qp`.
pub(crate) fn create(id: &Id, pd: *mut ibv_pd, given: &mut ibv_qp_init_attr) -> Result<(), Errno> {
    let mut all = ibv_qp_init_attr_ex {
        qp_context: given.qp_context,
        send_cq: given.send_cq,
        recv_cq: given.recv_cq,
        srq: given.srq,
        cap: given.cap,
        qp_type: given.qp_type,
        sq_sig_all: given.sq_sig_all,
        ..zeroed()
    };
    if !pd.is_null() {
        all.comp_mask = MASK_PD;
        all.pd = pd;
    }
    create_extended(id, &mut all)?;
    given.send_cq = all.send_cq;
    given.recv_cq = all.recv_cq;
    given.srq = all.srq;
    given.cap = all.cap;
    Ok(())
}

pub(crate) extern "C" fn rdma_create_qp_ex(
    id: IdPointer,
    qp_init_attr: Option<&mut ibv_qp_init_attr_ex>,
) -> c_int {
    number_of(Call::rdma_create_qp_ex, id.about(), || {
        create_extended(&*id.id()?, qp_init_attr.ok_or(INVALID)?)?;
        Ok(0)
    })
}

/// Creates the identifier's queue pair, and the completion queues that the attributes lack.
fn create_extended(id: &Id, attr: &mut ibv_qp_init_attr_ex) -> Result<(), Errno> {
    if id.c.verbs().is_null() {
        return Err(INVALID.because(|| "an identifier without an address is on no device yet".to_owned()));
    }
    let conflict = |own: *mut ibv_cq, given: *mut ibv_cq| !own.is_null() && !given.is_null() && own != given;
    let has_others = conflict(id.c.send_cq(), attr.send_cq) || conflict(id.c.recv_cq(), attr.recv_cq);
    //= man:rdma_create_qp
    //| An identifier has one queue pair at most.
    if !id.c.qp().is_null() || has_others {
        return Err(
            INVALID.because(|| "this identifier has a queue pair, or other queues, already".to_owned())
        );
    }
    if attr.comp_mask & MASK_PD == 0 {
        attr.comp_mask |= MASK_PD;
        //= man:rdma_create_qp
        //| Without a protection domain the identifier uses that of its device.
        attr.pd = if id.c.pd().is_null() { id.shared()?.pd() } else { id.c.pd() };
    }
    objects::check_domain(attr.pd, id.c.verbs())?;
    if id.c.qp_type() == QPT_XRC_RECV && (attr.comp_mask & MASK_XRCD == 0 || attr.xrcd.is_null()) {
        attr.xrcd = xrc_domain(id)?;
        attr.comp_mask |= MASK_XRCD;
    }
    let made = complete_queues(id, attr).and_then(|()| objects::create_queue_pair(id.c.verbs(), attr));
    let ready = made.and_then(|qp| {
        id.c.set_qp(qp);
        initialise(id)
    });
    match ready {
        Ok(()) => id.c.set_pd(attr.pd),
        Err(errno) => {
            destroy(id);
            return Err(errno);
        }
    }
    Ok(())
}

/// Moves a new queue pair as far as possible without a peer: to INIT, and one of datagrams to RTS.
fn initialise(id: &Id) -> Result<(), Errno> {
    let state = id.state();
    //= man:rdma_create_qp
    //| A new queue pair can receive, and an unconnected one can send, too.
    let last = if id.c.qp_type() == QPT_UD { RTS } else { INIT };
    for step in INIT..=last {
        let (mut attributes, mask) = attributes(id, &state, step)?;
        modify(id, &mut attributes, mask)?;
    }
    Ok(())
}

/// Creates the completion queues that are not given, with a channel each.
fn complete_queues(id: &Id, attr: &mut ibv_qp_init_attr_ex) -> Result<(), Errno> {
    //= man:rdma_create_qp
    //| Completion queues that are missing are made.
    if attr.send_cq.is_null() {
        let depth = attr.cap.max_send_wr;
        attr.send_cq = if depth > 0 { send_completion_queue(id, depth)? } else { id.c.send_cq() };
    }
    if attr.recv_cq.is_null() {
        let depth = attr.cap.max_recv_wr;
        attr.recv_cq = if depth > 0 { receive_completion_queue(id, depth)? } else { id.c.recv_cq() };
    }
    // A queue pair that only receives still names a queue for sending.
    if attr.send_cq.is_null() {
        attr.send_cq = attr.recv_cq;
    }
    if attr.recv_cq.is_null() {
        attr.recv_cq = attr.send_cq;
    }
    if !id.c.srq().is_null() && attr.srq.is_null() {
        attr.srq = id.c.srq();
    }
    Ok(())
}

pub(crate) extern "C" fn rdma_destroy_qp(id: IdPointer) {
    value((), || {
        if let Ok(own) = id.known() {
            destroy(&own);
        }
    });
}
