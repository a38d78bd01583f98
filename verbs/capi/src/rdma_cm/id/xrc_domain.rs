//! The XRC domain of the identifiers whose programs name none.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use super::identifier::Id;
use super::objects::open_unnamed_xrc_domain;
use crate::ground::abi::ibv_xrcd;
use crate::ground::errno::Errno;
use crate::ground::plain::PassedOn;
use crate::ground::process::own_process;

/// The XRC domain of this process's identifiers on the device of one, which is never closed. A fork has its
/// own.
///
/// # Errors
/// Those of opening one.
pub(crate) fn xrc_domain(id: &Id) -> Result<*mut ibv_xrcd, Errno> {
    /// By process and device.
    static DOMAINS: Mutex<BTreeMap<(u32, usize), PassedOn<*mut ibv_xrcd>>> = Mutex::new(BTreeMap::new());
    let shared = id.shared()?;
    let key = (own_process(), shared.index());
    let mut domains = DOMAINS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(open) = domains.get(&key) {
        return Ok(open.0);
    }
    let open = open_unnamed_xrc_domain(shared.context())?;
    domains.insert(key, PassedOn(open));
    Ok(open)
}
