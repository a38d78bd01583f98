//! Endpoints: synchronous identifiers, prepared as far as an address allows.

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

use pumice_calls::Call;

use super::identifier::destroy;
use super::resolve::{resolve_address, resolve_route};
use super::{path_option, queue_pair, shared_receive_queue};
use crate::abi::plain::ForwardedStruct;
use crate::abi::{ibv_pd, ibv_qp_init_attr, rdma_addrinfo, rdma_cm_id};
use crate::entry::outcome::{TRY_AGAIN, attempt, number, value};
use crate::platform::cancellation::blocking;
use crate::platform::errno::{Errno, INVALID};
use crate::rdma_cm::address::lookup::{connect_data, route};
use crate::rdma_cm::address::socket_address::AddressPointer;
use crate::rdma_cm::constants::{CONNECT_REQUEST, RAI_PASSIVE};
use crate::rdma_cm::events::fetch::next_of;
use crate::rdma_cm::id::binding::bind;
use crate::rdma_cm::id::identifier::{Id, IdPointer};
use crate::rdma_cm::id::queue_pair::destroy as destroy_queue_pair;
use crate::rdma_cm::id::removal::register_loss_callbacks;

/// Longest time that an endpoint searches for the host of its peer, as in rdma-core.
const PATIENCE: Duration = Duration::from_secs(2);

/// Creates a synchronous identifier, and prepares it as far as the address allows.
pub(crate) extern "C" fn rdma_create_ep(
    id: Option<&mut MaybeUninit<*mut rdma_cm_id>>,
    res: Option<&rdma_addrinfo>,
    pd: *mut ibv_pd,
    qp_init_attr: Option<&mut ibv_qp_init_attr>,
) -> c_int {
    number(Call::rdma_create_ep, || {
        let (info, id) = (res.ok_or(INVALID)?, id.ok_or(INVALID)?);
        let (ps, kind) = (info.ai_port_space as u32, info.ai_qp_type as u32);
        register_loss_callbacks();
        let own = Id::create(None, ptr::null_mut(), ps, (kind != 0).then_some(kind))?;
        match prepare(&own, info, pd, qp_init_attr) {
            Ok(()) => {
                id.write(own.hand_out());
                Ok(0)
            }
            Err(errno) => {
                destroy_queue_pair(&own);
                // The call fails for the first reason.
                let _ = destroy(&own, Call::rdma_create_ep);
                Err(errno)
            }
        }
    })
}

fn prepare(
    own: &Arc<Id>,
    info: &rdma_addrinfo,
    pd: *mut ibv_pd,
    qp_init_attr: Option<&mut ibv_qp_init_attr>,
) -> Result<(), Errno> {
    let qp_type = own.c.qp_type();
    let source = AddressPointer::source_of(info);
    //= man:rdma_create_ep
    //| An endpoint for the passive side is bound and keeps its attributes for requests.
    if info.ai_flags & RAI_PASSIVE != 0 {
        let address = source.parse()?;
        let mut state = own.state();
        state.addresses.by_gid = source.is_gid();
        bind(own, &mut state, address)?;
        if !pd.is_null() {
            own.c.set_pd(pd);
        }
        state.offer.queue_pair =
            qp_init_attr.map(|wanted| ForwardedStruct(ibv_qp_init_attr { qp_type, ..*wanted }));
        return Ok(());
    }
    resolve_address(own, source, AddressPointer::destination_of(info), PATIENCE)?;
    match route(info) {
        Some(paths) => path_option::set(own, Some(paths))?,
        None => resolve_route(own)?,
    };
    own.state().offer.connect_data = connect_data(info).to_vec();
    //= man:rdma_create_ep
    //| An endpoint for the active side gets its queue pair at once.
    if let Some(wanted) = qp_init_attr {
        wanted.qp_type = qp_type;
        queue_pair::create(own, pd, wanted)?;
    }
    Ok(())
}

pub(crate) extern "C" fn rdma_destroy_ep(id: IdPointer) {
    value((), || {
        let Ok(own) = id.known() else { return };
        destroy_queue_pair(&own);
        shared_receive_queue::destroy(&own);
        if destroy(&own, Call::rdma_destroy_ep).is_ok() {
            drop(id.take_back());
        }
    });
}

/// Returns the next request of a synchronous listener. A thread that waits for it can be cancelled.
pub(crate) extern "C-unwind" fn rdma_get_request(
    listen: IdPointer,
    mut id: Option<&mut MaybeUninit<*mut rdma_cm_id>>,
) -> c_int {
    blocking(c_int::from(TRY_AGAIN), || {
        attempt(Call::rdma_get_request, listen.on(), || {
            let own = listen.id()?;
            //= man:rdma_get_request
            //| Only synchronous listeners give their requests by this call.
            if id.is_none() || !own.state().synchronous {
                return Err(
                    INVALID.because(|| "only synchronous listeners give their requests so".to_owned())
                );
            }
            let request = next_request(&own)?;
            if let Some(id) = id.as_deref_mut() {
                id.write(request);
            }
            Ok(0)
        })
    })
}

/// Waits for the next request of a synchronous listener, and gives its identifier to the program.
///
/// # Errors
/// Fails with the errors of `rdma_get_request`, and with [`crate::platform::cancellation::RESTART`].
fn next_request(own: &Arc<Id>) -> Result<*mut rdma_cm_id, Errno> {
    let event = next_of(own)?;
    let (kind, status) = event.facts();
    if status != 0 {
        return Err(Errno(status.saturating_abs()));
    }
    if kind != CONNECT_REQUEST {
        return Err(INVALID);
    }
    let request = Arc::clone(event.id());
    let wanted = own.state().offer.queue_pair;
    if let Some(ForwardedStruct(mut wanted)) = wanted
        && let Err(errno) = queue_pair::create(&request, own.c.pd(), &mut wanted)
    {
        drop(event);
        let _ = destroy(&request, Call::rdma_get_request);
        return Err(errno);
    }
    // The event belongs to the request from here on.
    request.c.set_event(event.hand_out());
    Ok(request.as_ptr())
}
