//! Enhanced connection establishment: options that two ends of a connection agree on. This device has
//! none, and says so by the rules.

use std::ffi::c_int;

use pumice_calls::Call;

use crate::ground::abi::{ibv_ece, ibv_qp};
use crate::ground::arguments::{InOut, Out};
use crate::ground::errno::INVALID;
use crate::ground::handles::live;
use crate::ground::outcome::status_of;
use crate::objects::queue_pair::Qp;

/// The vendor of the options: always this project, also if the device's profile names another vendor. No
/// vendor has this OUI.
const VENDOR_ID: u32 = 0xff_ffff;
/// Options that the queue pair has: none.
const OPTIONS: u32 = 0;

pub(crate) extern "C" fn ibv_query_ece(qp: *mut ibv_qp, ece: Out<'_, ibv_ece>) -> c_int {
    status_of(Call::ibv_query_ece, Qp::about(qp), || {
        live::<Qp>(qp)?;
        ece.required()?.set(ibv_ece { vendor_id: VENDOR_ID, options: OPTIONS, comp_mask: 0 });
        Ok(())
    })
}

/// Leaves in the structure what is accepted of it.
pub(crate) extern "C" fn ibv_set_ece(qp: *mut ibv_qp, ece: InOut<'_, ibv_ece>) -> c_int {
    status_of(Call::ibv_set_ece, Qp::about(qp), || {
        live::<Qp>(qp)?;
        let ece = ece.get()?;
        if ece.vendor_id != VENDOR_ID || ece.comp_mask != 0 {
            return Err(INVALID.because(|| {
                format!(
                    "options of vendor {:#x} with mask {:#x}: those of this device are of vendor \
                     {VENDOR_ID:#x}",
                    ece.vendor_id, ece.comp_mask
                )
            }));
        }
        ece.options &= OPTIONS;
        Ok(())
    })
}
