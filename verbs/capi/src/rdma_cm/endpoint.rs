//! Synchronous identifiers: calls that wait for their event, and endpoints.

use std::ffi::c_int;
use std::ptr;
use std::sync::Arc;

use super::address;
use super::address_info::{RAI_PASSIVE, private_data};
use super::bind::bind;
use super::channel::next_event;
use super::event::{CONNECT_REQUEST, REJECTED, rdma_ack_cm_event};
use super::id::{Id, create, rdma_destroy_id};
use super::path_option;
use super::queue_pair::{self, rdma_create_qp};
use super::resolve::{rdma_resolve_addr, rdma_resolve_route};
use super::shared_receive_queue::rdma_destroy_srq;
use crate::ground::abi::{ibv_pd, ibv_qp_init_attr, rdma_addrinfo, rdma_cm_event, rdma_cm_id};
use crate::ground::cancellation::blocking;
use crate::ground::errno::{Errno, INVALID, errno};
use crate::ground::outcome::{TRY_AGAIN, attempt, number, value};

/// How long resolving may take, in milliseconds; here it takes no time.
const PATIENCE: c_int = 2000;

/// Of a synchronous identifier: waits for the event that a call has asked for, and leaves it in `event`.
///
/// # Errors
/// What the event says; ECONNREFUSED: the peer does not want to; EINTR: a signal came first.
pub(crate) fn complete(id: &Arc<Id>) -> Result<c_int, Errno> {
    if !id.state().synchronous {
        return Ok(0);
    }
    let event = next(id)?;
    // SAFETY: an event of ours.
    let (event, status) = unsafe { ((*event).event, (*event).status) };
    match (event, status) {
        (_, 0) => Ok(0),
        (REJECTED, _) => Err(Errno(libc::ECONNREFUSED)),
        (_, status) => Err(Errno(status.saturating_abs())),
    }
}

/// Acknowledges the event in `event`, waits for the next and leaves it there.
fn next(id: &Arc<Id>) -> Result<*mut rdma_cm_event, Errno> {
    // SAFETY: our own structure; a synchronous identifier's channel is live; the event is one of ours.
    unsafe {
        let c = id.c();
        let old = (*c).event;
        if !old.is_null() {
            (*c).event = ptr::null_mut();
            rdma_ack_cm_event(old);
        }
        let mut event = ptr::null_mut();
        next_event((*c).channel, &mut event)?;
        (*c).event = event;
        Ok(event)
    }
}

/// As the call returned: 0, or -1 and errno.
fn outcome(returned: c_int) -> Result<(), Errno> {
    if returned == 0 { Ok(()) } else { Err(Errno(errno())) }
}

/// A synchronous identifier, as far on its way as the address says.
pub(crate) unsafe extern "C" fn rdma_create_ep(
    id: *mut *mut rdma_cm_id,
    res: *mut rdma_addrinfo,
    pd: *mut ibv_pd,
    qp_init_attr: *mut ibv_qp_init_attr,
) -> c_int {
    number(|| {
        // SAFETY: null or the caller's structure.
        let info = unsafe { res.as_ref() }.ok_or(INVALID)?;
        if id.is_null() {
            return Err(INVALID);
        }
        let (ps, kind) = (info.ai_port_space as u32, info.ai_qp_type as u32);
        // SAFETY: no channel.
        let own = unsafe { create(ptr::null_mut(), ptr::null_mut(), ps, (kind != 0).then_some(kind)) }?;
        let handed = own.hand_out();
        // SAFETY: the caller's structures; live.
        match unsafe { prepare(&own, info, pd, qp_init_attr) } {
            Ok(()) => {
                // SAFETY: the caller's variable.
                unsafe { id.write(handed) };
                Ok(0)
            }
            Err(errno) => {
                queue_pair::destroy(&own);
                // SAFETY: nobody else has it.
                unsafe { rdma_destroy_id(handed) };
                Err(errno)
            }
        }
    })
}

/// # Safety
/// The caller's structures; null or live.
unsafe fn prepare(
    own: &Arc<Id>,
    info: &rdma_addrinfo,
    pd: *mut ibv_pd,
    qp_init_attr: *mut ibv_qp_init_attr,
) -> Result<(), Errno> {
    let c = own.c();
    // SAFETY: the caller's promise; our own structure.
    unsafe {
        if info.ai_flags & RAI_PASSIVE != 0 {
            let address = address::from_c(info.ai_src_addr)?;
            let mut state = own.state();
            state.by_gid = address::is_gid(info.ai_src_addr);
            bind(own, &mut state, address)?;
            if !pd.is_null() {
                (*c).pd = pd;
            }
            state.queue_pair =
                qp_init_attr.as_ref().map(|wanted| ibv_qp_init_attr { qp_type: (*c).qp_type, ..*wanted });
            return Ok(());
        }
        outcome(rdma_resolve_addr(c, info.ai_src_addr, info.ai_dst_addr, PATIENCE))?;
        if info.ai_route.is_null() || info.ai_route_len == 0 {
            outcome(rdma_resolve_route(c, PATIENCE))?;
        } else {
            path_option::set(own, info.ai_route, info.ai_route_len)?;
        }
        own.state().greeting = private_data(info).to_vec();
        if let Some(wanted) = qp_init_attr.as_mut() {
            wanted.qp_type = (*c).qp_type;
            outcome(rdma_create_qp(c, pd, wanted))?;
        }
    }
    Ok(())
}

pub(crate) unsafe extern "C" fn rdma_destroy_ep(id: *mut rdma_cm_id) {
    value((), || {
        // SAFETY: null or live.
        let Ok(own) = (unsafe { Id::of(id) }) else { return };
        queue_pair::destroy(&own);
        // SAFETY: live; the program gives it up.
        unsafe {
            rdma_destroy_srq(id);
            rdma_destroy_id(id);
        }
    });
}

/// The next request of a synchronous listener. A thread that waits for it can be cancelled.
pub(crate) unsafe extern "C-unwind" fn rdma_get_request(
    listen: *mut rdma_cm_id,
    id: *mut *mut rdma_cm_id,
) -> c_int {
    // SAFETY: the caller's promise.
    blocking(c_int::from(TRY_AGAIN), || attempt(|| unsafe { request(listen, id) }))
}

/// # Errors
/// Those of `rdma_get_request`. [`crate::ground::cancellation::RESTART`].
///
/// # Safety
/// That of `rdma_get_request`.
unsafe fn request(listen: *mut rdma_cm_id, id: *mut *mut rdma_cm_id) -> Result<c_int, Errno> {
    // SAFETY: null or live.
    let own = unsafe { Id::of(listen) }?;
    let wanted = {
        let state = own.state();
        if id.is_null() || !state.synchronous {
            return Err(INVALID.because(|| "only synchronous listeners give their requests so".to_owned()));
        }
        state.queue_pair
    };
    let event = next(&own)?;
    // SAFETY: an event of ours and its identifier; the event is the request's from here on.
    unsafe {
        (*listen).event = ptr::null_mut();
        let (kind, status, request) = ((*event).event, (*event).status, (*event).id);
        if status != 0 || kind != CONNECT_REQUEST {
            rdma_ack_cm_event(event);
            return Err(if status == 0 { INVALID } else { Errno(status.saturating_abs()) });
        }
        if let Some(mut wanted) = wanted
            && let Err(errno) = outcome(rdma_create_qp(request, (*listen).pd, &mut wanted))
        {
            rdma_ack_cm_event(event);
            rdma_destroy_id(request);
            return Err(errno);
        }
        (*request).event = event;
        id.write(request);
    }
    Ok(0)
}
