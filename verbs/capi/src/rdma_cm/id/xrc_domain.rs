//! The XRC domain of the identifiers whose programs name none.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use pumice_device::outside::lineage::PerProcess;

use super::identifier::Id;
use super::objects::open_unnamed_xrc_domain;
use crate::ground::abi::ibv_xrcd;
use crate::ground::errno::Errno;
use crate::ground::plain::PassedOn;

/// The XRC domain of this process's identifiers on the device of one, which is never closed. A fork has its
/// own.
///
/// # Errors
/// Those of opening one.
pub(crate) fn xrc_domain(id: &Id) -> Result<*mut ibv_xrcd, Errno> {
    /// By device.
    static DOMAINS: PerProcess<Mutex<BTreeMap<usize, PassedOn<*mut ibv_xrcd>>>> =
        PerProcess::new(|_| Mutex::default());
    let shared = id.shared()?;
    let mut domains = DOMAINS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(open) = domains.get(&shared.index()) {
        return Ok(open.0);
    }
    let open = open_unnamed_xrc_domain(shared.context())?;
    domains.insert(shared.index(), PassedOn(open));
    Ok(open)
}
