//! Endpoints, which are synchronous identifiers; options of identifiers; and the end of a process that has
//! not disconnected.
//!
//! The end of a process that has not disconnected: its peers are notified, as by a kernel when a process with
//! connections has ended. If a process is killed, other processes of its address or the peers' timers notice
//! it.

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

use pumice_calls::Call;
use pumice_transport::mad::Ece;

use super::identifier::destroy;
use super::resolve::{resolve_address, resolve_route};
use super::{queue_pair, resolve};
use crate::abi::plain::{ForwardedStruct, Plain as _};
use crate::abi::{ibv_ece, ibv_pd, ibv_qp_init_attr, rdma_addrinfo, rdma_cm_id};
use crate::entry::arguments::Bytes;
use crate::entry::{TRY_AGAIN, attempt, number, number_of, value};
use crate::gate::finish;
use crate::objects::capture::flush_captures;
use crate::platform::threads::blocking;
use crate::platform::{Errno, INVALID};
use crate::rdma_cm::address::AddressPointer;
use crate::rdma_cm::address::lookup::{connect_data, route};
use crate::rdma_cm::constants::{
    ACK_TIMEOUT, CONNECT_REQUEST, LEVEL_ID, ONE_FAMILY, RAI_PASSIVE, REUSE_ADDRESS, TYPE_OF_SERVICE,
};
use crate::rdma_cm::events::translation::next_of;
use crate::rdma_cm::id::binding::{bind, update_port_sharing};
use crate::rdma_cm::id::queue_pair::destroy as destroy_queue_pair;
use crate::rdma_cm::id::registry::register_loss_callbacks;
use crate::rdma_cm::id::shared::if_open;
use crate::rdma_cm::id::{Id, IdPointer, IdStage};

pub(crate) extern "C" fn rdma_set_option(
    id: IdPointer,
    level: c_int,
    optname: c_int,
    optval: Bytes<'_>,
    optlen: usize,
) -> c_int {
    number_of(Call::rdma_set_option, id.on(), || {
        let own = id.id()?;
        let given = optval.get(optlen).ok();
        match level {
            resolve::LEVEL if optname == resolve::PATH => resolve::set(&own, given),
            LEVEL_ID => {
                set(&own, optname, given)?;
                Ok(0)
            }
            _ => Err(Errno(libc::ENOSYS)),
        }
    })
}

/// Sets an option of the level RDMA_OPTION_ID.
///
/// # Errors
/// Fails with ENOSYS if there is no such option, and with EINVAL if the value has another length, is out of
/// range, or comes too late.
pub(crate) fn set(own: &Id, option: c_int, given: Option<&[u8]>) -> Result<(), Errno> {
    let length = given.map_or(0, <[u8]>::len);
    let wanted = match option {
        //= man:rdma_set_option
        //| The type of service and the ACK timeout have one byte.
        TYPE_OF_SERVICE | ACK_TIMEOUT => size_of::<u8>(),
        //= man:rdma_set_option
        //| The options about addresses have the size of an int.
        REUSE_ADDRESS | ONE_FAMILY => size_of::<c_int>(),
        _ => return Err(Errno(libc::ENOSYS)),
    };
    let value = match given {
        Some(&[byte]) if wanted == 1 => Some(c_int::from(byte)),
        Some(bytes) if bytes.len() == wanted => c_int::parse(bytes),
        _ => None,
    };
    let value = value
        .ok_or_else(|| INVALID.because(|| format!("option {option} has {wanted} bytes, not {length}")))?;
    let mut state = own.state();
    match option {
        TYPE_OF_SERVICE => state.options.type_of_service = value as u8,
        ACK_TIMEOUT if value > 31 => return Err(INVALID),
        ACK_TIMEOUT => state.options.ack_timeout = (value != 0).then_some(value as u8),
        // As in Linux, a port may be shared until a listener has it; the family option counts until there is
        // a peer.
        REUSE_ADDRESS if state.stage == IdStage::Idle || value != 0 && state.stage != IdStage::Listening => {
            state.options.reuse_address = value != 0;
            return update_port_sharing(own, &mut state);
        }
        ONE_FAMILY if matches!(state.stage, IdStage::Idle | IdStage::Bound) => {
            state.options.one_family = Some(value != 0);
            return update_port_sharing(own, &mut state);
        }
        _ => {
            return Err(INVALID.because(|| format!("option {option} is set before the address is used")));
        }
    }
    Ok(())
}

/// Sets the options of this side that the peer gets.
pub(crate) extern "C" fn rdma_set_local_ece(id: IdPointer, ece: Option<&ibv_ece>) -> c_int {
    number_of(Call::rdma_set_local_ece, id.on(), || {
        let (own, ece) = (id.known()?, ece.ok_or(INVALID)?);
        if ece.comp_mask != 0 {
            return Err(INVALID);
        }
        own.state().offer.local_ece = Ece { vendor_id: ece.vendor_id, options: ece.options };
        Ok(0)
    })
}

/// Returns the options of the peer.
pub(crate) extern "C" fn rdma_get_remote_ece(id: IdPointer, ece: Option<&mut MaybeUninit<ibv_ece>>) -> c_int {
    number_of(Call::rdma_get_remote_ece, id.on(), || {
        let (own, ece) = (id.known()?, ece.ok_or(INVALID)?);
        let remote = own.state().offer.remote_ece;
        ece.write(ibv_ece { vendor_id: remote.vendor_id, options: remote.options, comp_mask: 0 });
        Ok(0)
    })
}

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
        Some(paths) => resolve::set(own, Some(paths))?,
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
        queue_pair::destroy_srq(&own);
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
/// Fails with the errors of `rdma_get_request`, and with [`crate::platform::threads::RESTART`].
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

/// Longest wait for the lock of the adapter. A signal handler that ends the process may have interrupted the
/// thread that holds it.
const LIMIT: Duration = Duration::from_millis(100);

/// Function that runs when the process calls `exit`, after all handlers of `atexit`: they may still
/// disconnect, and wait for it.
#[used]
#[unsafe(link_section = ".fini_array")]
static AT_EXIT: extern "C" fn() = disconnect_all;

extern "C" fn disconnect_all() {
    value((), || {
        if let Some(shared) = if_open() {
            for device in shared {
                let _ = device.hca().cm_leave(LIMIT);
            }
            flush_captures();
        }
    });
    finish();
}
