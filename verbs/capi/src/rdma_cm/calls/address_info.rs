//! The call `rdma_getaddrinfo`: name resolution by the C library.

use std::ffi::c_int;
use std::mem::MaybeUninit;

use pumice_calls::Call;

use crate::abi::rdma_addrinfo;
use crate::entry::arguments::Text;
use crate::entry::outcome::{number, value};
use crate::platform::errno::INVALID;
use crate::rdma_cm::address::lookup::{LookupResult, free, look_up};

/// Resolves a name. Returns 0, an `EAI_*` as getaddrinfo(3) does, or -1 and errno.
pub(crate) extern "C" fn rdma_getaddrinfo(
    node: Text<'_>,
    service: Text<'_>,
    hints: Option<&rdma_addrinfo>,
    res: Option<&mut MaybeUninit<*mut rdma_addrinfo>>,
) -> c_int {
    number(Call::rdma_getaddrinfo, || {
        let res = res.ok_or(INVALID)?;
        match look_up(node, service, hints)? {
            LookupResult::Found(info) => {
                res.write(info.into_raw());
                Ok(0)
            }
            LookupResult::NotFound(code) => Ok(code),
        }
    })
}

pub(crate) unsafe extern "C" fn rdma_freeaddrinfo(res: *mut rdma_addrinfo) {
    // SAFETY: the program gives back what `rdma_getaddrinfo` or `rdma_query_addrinfo` gave it.
    value((), || unsafe { free(res) });
}
