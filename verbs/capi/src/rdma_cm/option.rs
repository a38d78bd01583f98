//! Options of identifiers, those of vendors (ECE) included.

use std::ffi::{c_int, c_void};

use pumice_transport::mad::Ece;

use super::id::{Id, Stage};
use super::path_option;
use crate::ground::abi::{ibv_ece, rdma_cm_id};
use crate::ground::errno::{Errno, INVALID};
use crate::ground::outcome::number;

/// `RDMA_OPTION_ID`, and its options.
const LEVEL_ID: c_int = 0;
const TYPE_OF_SERVICE: c_int = 0;
const REUSE_ADDRESS: c_int = 1;
const ONE_FAMILY: c_int = 2;
const ACK_TIMEOUT: c_int = 3;

pub(crate) unsafe extern "C" fn rdma_set_option(
    id: *mut rdma_cm_id,
    level: c_int,
    optname: c_int,
    optval: *mut c_void,
    optlen: usize,
) -> c_int {
    number(|| {
        // SAFETY: null or live.
        let own = unsafe { Id::of(id) }?;
        if (level, optname) == (path_option::LEVEL, path_option::PATH) {
            return path_option::set(&own, optval, optlen);
        }
        let wanted = match (level, optname) {
            (LEVEL_ID, TYPE_OF_SERVICE | ACK_TIMEOUT) => size_of::<u8>(),
            (LEVEL_ID, REUSE_ADDRESS | ONE_FAMILY) => size_of::<c_int>(),
            _ => return Err(Errno(libc::ENOSYS)),
        };
        if optval.is_null() || optlen != wanted {
            return Err(INVALID.because(|| format!("option {optname} has {wanted} bytes, not {optlen}")));
        }
        // SAFETY: the caller's value has so many bytes.
        let value = unsafe {
            if wanted == 1 {
                c_int::from(optval.cast::<u8>().read())
            } else {
                optval.cast::<c_int>().read_unaligned()
            }
        };
        let mut state = own.state();
        match optname {
            TYPE_OF_SERVICE => state.options.type_of_service = value as u8,
            ACK_TIMEOUT if value > 31 => return Err(INVALID),
            ACK_TIMEOUT => state.options.ack_timeout = (value != 0).then_some(value as u8),
            _ if state.stage != Stage::Idle => {
                return Err(INVALID.because(|| format!("option {optname} is set before the address")));
            }
            REUSE_ADDRESS => state.options.reuse_address = value != 0,
            _ => state.options.one_family = Some(value != 0),
        }
        Ok(0)
    })
}

/// What the peer is told of this side's options.
pub(crate) unsafe extern "C" fn rdma_set_local_ece(id: *mut rdma_cm_id, ece: *mut ibv_ece) -> c_int {
    number(|| {
        // SAFETY: null or live; null or the caller's structure.
        let (own, ece) = unsafe { (Id::of(id)?, ece.as_ref().ok_or(INVALID)?) };
        if ece.comp_mask != 0 {
            return Err(INVALID);
        }
        own.state().local_ece = Ece { vendor_id: ece.vendor_id, options: ece.options };
        Ok(0)
    })
}

/// What the peer said of its options.
pub(crate) unsafe extern "C" fn rdma_get_remote_ece(id: *mut rdma_cm_id, ece: *mut ibv_ece) -> c_int {
    number(|| {
        // SAFETY: null or live; null or the caller's structure.
        let (own, ece) = unsafe { (Id::of(id)?, ece.as_mut().ok_or(INVALID)?) };
        let remote = own.state().remote_ece;
        *ece = ibv_ece { vendor_id: remote.vendor_id, options: remote.options, comp_mask: 0 };
        Ok(0)
    })
}
