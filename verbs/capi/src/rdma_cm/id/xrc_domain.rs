//! The XRC domain of the identifiers whose programs name none.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use pumice_device::outside::fork_generation::PerProcess;

use super::identifier::Id;
use super::objects::open_unnamed_xrc_domain;
use crate::abi::ibv_xrcd;
use crate::abi::plain::ForwardedStruct;
use crate::platform::errno::Errno;

/// Returns the XRC domain of this process's identifiers on the device of one, which is never closed. A forked
/// process has its own.
///
/// # Errors
/// Fails with the errors of opening one.
pub(crate) fn xrc_domain(id: &Id) -> Result<*mut ibv_xrcd, Errno> {
    /// Domains by the index of the device.
    static DOMAINS: PerProcess<Mutex<BTreeMap<usize, ForwardedStruct<*mut ibv_xrcd>>>> =
        PerProcess::new(|_| Mutex::default());
    let shared = id.shared()?;
    let mut domains = DOMAINS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(open) = domains.get(&shared.index()) {
        return Ok(open.0);
    }
    let open = open_unnamed_xrc_domain(shared.context())?;
    domains.insert(shared.index(), ForwardedStruct(open));
    Ok(open)
}
