//! Bind and listen.

use std::ffi::c_int;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use pumice_calls::Call;
use pumice_transport::cm::BacklogOverflow;

use crate::entry::outcome::number_of;
use crate::platform::errno::{Errno, INVALID};
use crate::rdma_cm::address::socket_address::AddressPointer;
use crate::rdma_cm::id::binding::{bind, stop_sharing};
use crate::rdma_cm::id::identifier::{Id, IdPointer, IdStage};
use crate::rdma_cm::id::registry::registry;
use crate::rdma_cm::id::shared::shared_at;

/// Largest number of waiting requests, also used when the program gives none, as in Linux.
const BACKLOG: usize = 1024;

pub(crate) extern "C" fn rdma_bind_addr(id: IdPointer, addr: AddressPointer) -> c_int {
    number_of(Call::rdma_bind_addr, id.on(), || {
        let (own, address) = (id.id()?, addr.parse()?);
        let mut state = own.state();
        state.addresses.by_gid = addr.is_gid();
        bind(&own, &mut state, address)?;
        Ok(0)
    })
}

pub(crate) extern "C" fn rdma_listen(id: IdPointer, backlog: c_int) -> c_int {
    number_of(Call::rdma_listen, id.on(), || {
        listen(&id.id()?, backlog)?;
        Ok(0)
    })
}

/// Offers the service of the identifier's address.
///
/// # Errors
/// Fails with the errors of `rdma_listen`.
pub(crate) fn listen(own: &Arc<Id>, backlog: c_int) -> Result<(), Errno> {
    let mut registry = registry();
    let mut state = own.state();
    if state.stage == IdStage::Idle {
        let any = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
        bind(own, &mut state, any)?;
    }
    //= man:rdma_listen
    //| An identifier is bound before it listens.
    if state.stage != IdStage::Bound {
        return Err(INVALID.because(|| "only an identifier that is bound, and no more, listens".to_owned()));
    }
    if state.bindings.is_empty() {
        state.bindings = stop_sharing(own, &state)?;
    }
    //= man:rdma_listen
    //| The backlog limits the requests that wait.
    let backlog = usize::try_from(backlog).ok().filter(|backlog| (1..BACKLOG).contains(backlog));
    let (backlog, overflow) = (backlog.unwrap_or(BACKLOG), BacklogOverflow::Ignore);
    for (index, binding) in state.bindings.clone() {
        let (hca, channel) = (shared_at(index)?.hca(), Arc::clone(state.channel.device(index)));
        let listener = hca.cm_listen(binding, own.served(), backlog, overflow, &channel)?;
        state.listeners.push((index, listener));
        registry.listeners.insert((index, listener), Arc::clone(own));
    }
    state.stage = IdStage::Listening;
    Ok(())
}
