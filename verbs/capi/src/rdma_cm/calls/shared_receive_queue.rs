//! Shared receive queues of identifiers, those for XRC included: a process has one XRC domain for all of its
//! identifiers whose programs name none.

use std::ffi::c_int;
use std::ptr;

use pumice_calls::Call;

use crate::abi::zeroed::zeroed;
use crate::abi::{ibv_pd, ibv_srq_init_attr, ibv_srq_init_attr_ex};
use crate::entry::outcome::{number_of, value};
use crate::platform::errno::{Errno, INVALID};
use crate::rdma_cm::constants::QPT_XRC_RECV;
use crate::rdma_cm::id::identifier::{Id, IdPointer};
use crate::rdma_cm::id::objects;
use crate::rdma_cm::id::queue_pair::{destroy_completion_queues, receive_completion_queue};
use crate::rdma_cm::id::xrc_domain::xrc_domain;

/// Flags `IBV_SRQ_INIT_ATTR_*`.
const MASK_TYPE: u32 = 1;
const MASK_PD: u32 = 1 << 1;
const MASK_XRCD: u32 = 1 << 2;
const MASK_CQ: u32 = 1 << 3;
/// Values of `IBV_SRQT_*`.
const TYPE_BASIC: u32 = 0;
const TYPE_XRC: u32 = 1;

/// Creates a shared receive queue of an identifier, which its queue pairs use. An identifier that receives by
/// XRC gets an XRC one.
pub(crate) extern "C" fn rdma_create_srq(
    id: IdPointer,
    pd: *mut ibv_pd,
    attr: Option<&mut ibv_srq_init_attr>,
) -> c_int {
    number_of(Call::rdma_create_srq, id.on(), || {
        let (own, given) = (id.known()?, attr.ok_or(INVALID)?);
        let mut all = ibv_srq_init_attr_ex {
            srq_context: given.srq_context,
            attr: given.attr,
            comp_mask: MASK_TYPE | MASK_PD,
            pd,
            srq_type: if own.c.qp_type() == QPT_XRC_RECV { TYPE_XRC } else { TYPE_BASIC },
            ..zeroed()
        };
        create(&own, &mut all)?;
        given.attr = all.attr;
        Ok(0)
    })
}

/// Creates a shared receive queue as `rdma_create_srq` does; a domain or a completion queue that is not given
/// is the identifier's.
pub(crate) extern "C" fn rdma_create_srq_ex(id: IdPointer, attr: Option<&mut ibv_srq_init_attr_ex>) -> c_int {
    number_of(Call::rdma_create_srq_ex, id.on(), || {
        let (own, given) = (id.known()?, attr.ok_or(INVALID)?);
        if given.comp_mask & MASK_TYPE == 0 {
            return Err(INVALID);
        }
        create(&own, given)?;
        Ok(0)
    })
}

fn create(id: &Id, attr: &mut ibv_srq_init_attr_ex) -> Result<(), Errno> {
    if id.c.verbs().is_null() {
        return Err(INVALID.because(|| "an identifier without an address is on no device yet".to_owned()));
    }
    if !id.c.srq().is_null() {
        return Err(INVALID.because(|| "this identifier has a shared receive queue already".to_owned()));
    }
    if attr.comp_mask & MASK_PD == 0 || attr.pd.is_null() {
        attr.pd = id.c.pd();
        attr.comp_mask |= MASK_PD;
    }
    objects::check_domain(attr.pd, id.c.verbs())?;
    if attr.srq_type == TYPE_XRC {
        if attr.comp_mask & MASK_XRCD == 0 || attr.xrcd.is_null() {
            attr.xrcd = xrc_domain(id)?;
        }
        if attr.comp_mask & MASK_CQ == 0 || attr.cq.is_null() {
            attr.cq = receive_completion_queue(id, attr.attr.max_wr)?;
        }
        attr.comp_mask |= MASK_XRCD | MASK_CQ;
    }
    match objects::create_shared_receive_queue(id.c.verbs(), attr) {
        Ok(srq) => {
            id.c.set_srq(srq);
            id.c.set_pd(attr.pd);
            Ok(())
        }
        Err(errno) => {
            if id.c.qp().is_null() {
                destroy_completion_queues(id);
            }
            Err(errno)
        }
    }
}

pub(crate) extern "C" fn rdma_destroy_srq(id: IdPointer) {
    value((), || {
        if let Ok(own) = id.known() {
            destroy(&own);
        }
    });
}

/// Destroys the identifier's shared receive queue, if it has one.
pub(crate) fn destroy(id: &Id) {
    if id.c.srq().is_null() {
        return;
    }
    objects::destroy_shared_receive_queue(id.c.srq());
    id.c.set_srq(ptr::null_mut());
    // An XRC one used the identifier's completion queue, which is destroyed unless a queue pair still uses
    // it.
    if id.c.qp().is_null() {
        destroy_completion_queues(id);
    }
}
