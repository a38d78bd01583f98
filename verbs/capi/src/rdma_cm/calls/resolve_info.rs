//! The call `rdma_resolve_addrinfo`: an `rdma_getaddrinfo` whose answer is an event.

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::sync::Arc;

use pumice_calls::Call;

use crate::abi::rdma_addrinfo;
use crate::entry::arguments::Text;
use crate::entry::outcome::number_of;
use crate::platform::errno::{Errno, INVALID};
use crate::rdma_cm::address::lookup::{LookupResult, look_up};
use crate::rdma_cm::constants::{ADDRINFO_ERROR, ADDRINFO_RESOLVED, RAI_SA};
use crate::rdma_cm::events::fetch::complete;
use crate::rdma_cm::id::identifier::{IdPointer, LocalEvent};

/// Resolves the names at once, with the C library; a name that does not exist causes ADDRINFO_ERROR with the
/// `EAI_*` as its status.
pub(crate) extern "C" fn rdma_resolve_addrinfo(
    id: IdPointer,
    node: Text<'_>,
    service: Text<'_>,
    hints: Option<&rdma_addrinfo>,
) -> c_int {
    number_of(Call::rdma_resolve_addrinfo, id.on(), || {
        let own = id.id()?;
        if hints.is_some_and(|hints| hints.ai_flags & RAI_SA != 0) {
            return Err(Errno(libc::ENOTSUP).because(|| {
                "names of services are InfiniBand's (RAI_SA): RoCE has no subnet administration".to_owned()
            }));
        }
        if own.state().addresses.address_info.is_some() {
            return Err(Errno(libc::EBUSY)
                .because(|| "the last answer was not asked for yet: rdma_query_addrinfo".to_owned()));
        }
        let answer = look_up(node, service, hints)?;
        {
            let mut state = own.state();
            let (info, event, status) = match answer {
                LookupResult::Found(info) => (Some(info), ADDRINFO_RESOLVED, 0),
                LookupResult::NotFound(code) => (None, ADDRINFO_ERROR, code),
            };
            state.addresses.address_info = info;
            state.channel.push(LocalEvent::new(Arc::clone(&own), event, status));
        }
        complete(&own)
    })
}

/// Gives the answer to the program, which frees it.
pub(crate) extern "C" fn rdma_query_addrinfo(
    id: IdPointer,
    info: Option<&mut MaybeUninit<*mut rdma_addrinfo>>,
) -> c_int {
    number_of(Call::rdma_query_addrinfo, id.on(), || {
        let own = id.id()?;
        let info = info.ok_or(INVALID)?;
        let answer = own.state().addresses.address_info.take().ok_or(Errno(libc::ENOENT))?;
        info.write(answer.into_raw());
        Ok(0)
    })
}
