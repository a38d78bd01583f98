//! The XRC domain of the identifiers whose programs name none.

use std::sync::{Mutex, PoisonError};

use super::objects::open_unnamed_xrc_domain;
use super::shared::shared;
use crate::ground::abi::ibv_xrcd;
use crate::ground::errno::Errno;
use crate::ground::plain::PassedOn;
use crate::ground::process::own_process;

/// The XRC domain of this process's identifiers, which is never closed. A fork has its own.
///
/// # Errors
/// Those of opening one.
pub(crate) fn xrc_domain() -> Result<*mut ibv_xrcd, Errno> {
    static DOMAIN: Mutex<Option<(u32, PassedOn<*mut ibv_xrcd>)>> = Mutex::new(None);
    let shared = shared()?;
    let process = own_process();
    let mut domain = DOMAIN.lock().unwrap_or_else(PoisonError::into_inner);
    match &*domain {
        Some((owner, open)) if *owner == process => Ok(open.0),
        _ => {
            let open = open_unnamed_xrc_domain(shared.context())?;
            *domain = Some((process, PassedOn(open)));
            Ok(open)
        }
    }
}
