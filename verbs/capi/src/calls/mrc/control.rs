//! What the device says to a controller of MRC, and its ports.

use std::ffi::{c_char, c_int};
use std::ptr;
use std::sync::Arc;

use pumice_calls::Call;
use pumice_device::hca::{ControlError, EvMode, FormatMode, Hca, MOST_EVS, MOST_PROFILES};

use super::context::{CURRENT_VERSION, tell_versions};
use super::context_of;
use crate::abi::{
    ibv_context, mrc_context, mrc_ctl_cc_limits, mrc_ctl_device_attr, mrc_ctl_ev_limits, mrc_ctl_port_attr,
};
use crate::entry::arguments::{In, Out};
use crate::entry::{number_of, value};
use crate::gate::CallSubject;
use crate::objects::Context;
use crate::platform::{Errno, INVALID};

/// Protocol versions of the controller, as a bitmap: version 1.
const PROTOCOL_VERSIONS: u32 = 1 << 1;
/// Bits of `enum mrc_ctl_attr_opt`: CC profiles that change while they are ONLINE, events, EV probes.
const OPTIONS: u32 = 1 << 1 | 1 << 2 | 1 << 5;
/// Largest width of an entropy value in bits.
const MOST_WIDTH: u32 = 32;
/// The bit of the state in masks of ports.
const ADMIN_STATE: c_int = 1;

/// Names of the algorithms of congestion control, and NULL behind them.
struct Algorithms([*const c_char; 2]);

// SAFETY: the pointers are to constants.
unsafe impl Sync for Algorithms {}

static ALGORITHMS: Algorithms = Algorithms([c"uet-1.0-nscc".as_ptr(), ptr::null()]);

impl From<ControlError> for Errno {
    fn from(error: ControlError) -> Errno {
        Errno(error.errno).because(|| error.what)
    }
}

/// Returns the device of a context of libmrc.
pub(super) fn device_of(context: *mut mrc_context) -> Result<Arc<Hca>, Errno> {
    let (_, of_verbs) = context_of(context)?;
    Ok(Arc::clone(Context::of(of_verbs)?.hca()))
}

/// Returns the limits of the controller.
fn attributes(hca: &Hca) -> mrc_ctl_device_attr {
    let used = hca.mrc_ev_count();
    let most = MOST_EVS * MOST_PROFILES as u32;
    mrc_ctl_device_attr {
        mrc_ctl_protocol_version: PROTOCOL_VERSIONS,
        ev: mrc_ctl_ev_limits {
            ev_max_fmt_profiles: MOST_PROFILES as u32,
            ev_max_profiles: MOST_PROFILES as u32,
            ev_max_count: most,
            ev_free_count: most.saturating_sub(used),
            ev_max_count_profile: MOST_EVS,
            ev_count_align: 1,
            ev_max_width: MOST_WIDTH,
            ev_fmt_mode_mask: FormatMode::MASK,
            ev_mode_mask: EvMode::MASK,
            ev_op_max_entries: MOST_EVS,
        },
        cc: mrc_ctl_cc_limits { cc_max_profiles: MOST_PROFILES as u32, algorithms: ALGORITHMS.0.as_ptr() },
        // Bit n is port n, from 1.
        phy_port_mask: (((1_u64 << hca.mrc_planes().clamp(1, 31)) - 1) << 1) as u32,
        opt_attr: OPTIONS,
    }
}

pub(crate) extern "C" fn mrc_ctl_query_device(
    context: *mut ibv_context,
    attr: Out<'_, mrc_ctl_device_attr>,
) -> c_int {
    number_of(Call::mrc_ctl_query_device, CallSubject::on(context), || {
        let open = Context::of(context)?;
        attr.required()?.set(attributes(open.hca()));
        Ok(0)
    })
}

pub(crate) extern "C" fn mrc_ctl_query_device_ex(
    context: *mut ibv_context,
    _mcontext: *mut mrc_context,
    attr: Out<'_, mrc_ctl_device_attr>,
    supported: Out<'_, c_int>,
) -> c_int {
    number_of(Call::mrc_ctl_query_device_ex, CallSubject::on(context), || {
        let open = Context::of(context)?;
        let supported = supported.required()?;
        attr.required()?.set(attributes(open.hca()));
        supported.set(1);
        Ok(0)
    })
}

pub(crate) extern "C" fn mrc_ctl_query_version(
    current: Out<'_, u32>,
    last_supported: Out<'_, u32>,
    vendor: Out<'_, u32>,
    last_supported_vendor: Out<'_, u32>,
) {
    value((), || tell_versions([current, last_supported, vendor, last_supported_vendor]));
}

/// Reports whether a program was built with a version of the API whose events have a state.
pub(super) const fn has_event_state(version: u32) -> bool {
    version >= CURRENT_VERSION
}

fn no_port(port: u8) -> Errno {
    INVALID.because(|| format!("MRC has no port {port}: ports count from 1"))
}

fn check_port_mask(mask: c_int) -> Result<(), Errno> {
    match mask & !ADMIN_STATE {
        0 => Ok(()),
        unknown => Err(INVALID.because(|| format!("port attribute mask {unknown:#x} is not known"))),
    }
}

pub(crate) extern "C" fn mrc_ctl_query_port(
    context: *mut mrc_context,
    port: u8,
    attr: Out<'_, mrc_ctl_port_attr>,
    mask: c_int,
) -> c_int {
    number_of(Call::mrc_ctl_query_port, CallSubject::on(context), || {
        check_port_mask(mask)?;
        let is_enabled = device_of(context)?.mrc_port_is_enabled(port).ok_or_else(|| no_port(port))?;
        if mask & ADMIN_STATE != 0 {
            attr.required()?.set(mrc_ctl_port_attr { port_admin_state: is_enabled.into() });
        }
        Ok(0)
    })
}

pub(crate) extern "C" fn mrc_ctl_modify_port(
    context: *mut mrc_context,
    port: u8,
    attr: In<'_, mrc_ctl_port_attr>,
    mask: c_int,
) -> c_int {
    number_of(Call::mrc_ctl_modify_port, CallSubject::on(context), || {
        check_port_mask(mask)?;
        let hca = device_of(context)?;
        if mask & ADMIN_STATE == 0 {
            return hca.mrc_port_is_enabled(port).map(|_| 0).ok_or_else(|| no_port(port));
        }
        let is_enabled = match attr.get()?.port_admin_state {
            0 => false,
            1 => true,
            other => return Err(INVALID.because(|| format!("there is no port state {other}"))),
        };
        if hca.enable_mrc_port(port, is_enabled) { Ok(0) } else { Err(no_port(port)) }
    })
}
