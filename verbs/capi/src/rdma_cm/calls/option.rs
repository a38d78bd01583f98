//! Options of identifiers, those of vendors (ECE) included.

use std::ffi::c_int;
use std::mem::MaybeUninit;

use pumice_calls::Call;
use pumice_transport::mad::Ece;

use super::path_option;
use crate::abi::ibv_ece;
use crate::abi::plain::Plain as _;
use crate::entry::arguments::Bytes;
use crate::entry::outcome::number_of;
use crate::platform::errno::{Errno, INVALID};
use crate::rdma_cm::constants::{ACK_TIMEOUT, LEVEL_ID, ONE_FAMILY, REUSE_ADDRESS, TYPE_OF_SERVICE};
use crate::rdma_cm::id::binding::update_port_sharing;
use crate::rdma_cm::id::identifier::{Id, IdPointer, IdStage};

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
            path_option::LEVEL if optname == path_option::PATH => path_option::set(&own, given),
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
