//! What the device says about MRC, and contexts of libmrc.

use std::ffi::c_int;

use pumice_calls::Call;
use pumice_device::hca::MrcChosen;

use crate::abi::{
    ibv_context, mrc_context, mrc_context_attr, mrc_device_attr, mrc_mpr_limits, mrc_qp_limits,
    mrc_wimm_limits,
};
use crate::entry::arguments::{In, Out};
use crate::entry::handles::{hand_out, live, take_back};
use crate::entry::outcome::{number_of, pointer_about, value};
use crate::gate::CallSubject;
use crate::objects::context::Context;
use crate::objects::mrc::{MrcContext, check_unused};
use crate::platform::errno::{Errno, INVALID};

/// Versions of the API: major, minor and sub number in the bytes from the top.
pub(super) const CURRENT_VERSION: u32 = 1 << 24 | 1;
const LAST_SUPPORTED_VERSION: u32 = 0;
const VENDOR_VERSION: u32 = 1 << 24;
/// The version that stands for the latest one.
const LATEST: u32 = u32::MAX;

/// Protocol versions of the device, as a bitmap: version 1.
const PROTOCOL_VERSIONS: u32 = 1 << 1;
/// Number of PSNs in a unit of the window.
const MPR_UNIT: u8 = 128;
/// Number of hints that a program may have.
const MOST_HINTS: u32 = 1 << 16;
/// Bits of `enum mrc_device_cap`: NACKs of trimmed packets, and windows that change.
const CAPABILITIES: u32 = 1 | 1 << 1;

/// Returns the limits of MRC on the device.
fn attributes() -> mrc_device_attr {
    mrc_device_attr {
        mrc_protocol_version: PROTOCOL_VERSIONS,
        wimm_attr: mrc_wimm_limits { max_wimm: MrcChosen::MOST_WIMM, max_wimm_dest: MrcChosen::MOST_WIMM },
        mpr_attr: mrc_mpr_limits { max_mpr: MrcChosen::MOST_MPR, mpr_resolution: MPR_UNIT },
        qp_attr: mrc_qp_limits { max_qp_hint: MOST_HINTS },
        cap: CAPABILITIES,
    }
}

/// Answers a query of the device: it has MRC.
fn query(
    call: Call,
    context: *mut ibv_context,
    attr: Out<'_, mrc_device_attr>,
    supported: Out<'_, c_int>,
) -> c_int {
    number_of(call, CallSubject::on(context), || {
        Context::of(context)?;
        let supported = supported.required()?;
        attr.required()?.set(attributes());
        supported.set(1);
        Ok(0)
    })
}

pub(crate) extern "C" fn mrc_query_device(
    context: *mut ibv_context,
    attr: Out<'_, mrc_device_attr>,
    supported: Out<'_, c_int>,
) -> c_int {
    query(Call::mrc_query_device, context, attr, supported)
}

/// Queries the device for a program whose context of libmrc may be NULL: its version changes nothing here.
pub(crate) extern "C" fn mrc_query_device_ex(
    context: *mut ibv_context,
    _mcontext: *mut mrc_context,
    attr: Out<'_, mrc_device_attr>,
    supported: Out<'_, c_int>,
) -> c_int {
    query(Call::mrc_query_device_ex, context, attr, supported)
}

/// Writes the versions of the API; each pointer may be NULL.
pub(super) fn tell_versions([current, last, vendor, last_vendor]: [Out<'_, u32>; 4]) {
    for (target, version) in [
        (current, CURRENT_VERSION),
        (last, LAST_SUPPORTED_VERSION),
        (vendor, VENDOR_VERSION),
        (last_vendor, VENDOR_VERSION),
    ] {
        if let Some(target) = target.optional() {
            target.set(version);
        }
    }
}

pub(crate) extern "C" fn mrc_query_version(
    current: Out<'_, u32>,
    last_supported: Out<'_, u32>,
    vendor: Out<'_, u32>,
    last_supported_vendor: Out<'_, u32>,
) {
    value((), || tell_versions([current, last_supported, vendor, last_supported_vendor]));
}

/// Returns the version of the API that a program was built with: 0 and the latest stand for the current one.
fn version_of(given: u32) -> Result<u32, Errno> {
    match given {
        0 | LATEST => Ok(CURRENT_VERSION),
        // Programs give the protocol's version 1, too.
        version if version <= CURRENT_VERSION => Ok(version),
        newer => Err(INVALID.because(|| {
            format!(
                "version {newer:#x} of the API is newer than {CURRENT_VERSION:#x}, which this library has"
            )
        })),
    }
}

pub(crate) extern "C" fn mrc_create_context(
    context: *mut ibv_context,
    attr: In<'_, mrc_context_attr>,
) -> *mut mrc_context {
    pointer_about(Call::mrc_create_context, CallSubject::on(context), || {
        let open = Context::of(context)?;
        open.hca().open_mrc();
        let version = version_of(attr.optional().map_or(0, |given| given.mrc_api_version_used))?;
        Ok(hand_out(MrcContext::new(context, version)))
    })
}

pub(crate) extern "C" fn mrc_destroy_context(context: *mut mrc_context) -> c_int {
    number_of(Call::mrc_destroy_context, CallSubject::of(context), || {
        check_unused(&*live::<MrcContext>(context)?)?;
        take_back::<MrcContext>(context);
        Ok(0)
    })
}
