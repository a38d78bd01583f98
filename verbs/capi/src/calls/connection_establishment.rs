//! Enhanced connection establishment: options that two ends of a connection agree on. The device's profile
//! has the vendor and the options: by default none.

use std::ffi::c_int;

use pumice_calls::Call;

use crate::abi::{ibv_ece, ibv_qp};
use crate::entry::arguments::{InOut, Out};
use crate::entry::handles::live;
use crate::entry::outcome::status_of;
use crate::objects::queue_pair::Qp;
use crate::platform::errno::INVALID;

pub(crate) extern "C" fn ibv_query_ece(qp: *mut ibv_qp, ece: Out<'_, ibv_ece>) -> c_int {
    status_of(Call::ibv_query_ece, Qp::about(qp), || {
        let held = live::<Qp>(qp)?;
        let vendor_id = held.context()?.device().profile().ece.vendor_id;
        ece.required()?.set(ibv_ece { vendor_id, options: held.ece().get(), comp_mask: 0 });
        Ok(())
    })
}

/// Sets the options of a queue pair; a device without options clears the structure.
pub(crate) extern "C" fn ibv_set_ece(qp: *mut ibv_qp, ece: InOut<'_, ibv_ece>) -> c_int {
    status_of(Call::ibv_set_ece, Qp::about(qp), || {
        let held = live::<Qp>(qp)?;
        let vendor_id = held.context()?.device().profile().ece.vendor_id;
        let ece = ece.get()?;
        if ece.vendor_id != vendor_id || ece.comp_mask != 0 {
            return Err(INVALID.because(|| {
                format!(
                    "options of vendor {:#x} with mask {:#x}: those of this device are of vendor \
                     {vendor_id:#x}",
                    ece.vendor_id, ece.comp_mask
                )
            }));
        }
        match held.ece().of_device() {
            0 => ece.options = 0,
            _ => held.ece().set(ece.options),
        }
        Ok(())
    })
}
