//! The users of an object: names for the sentence that says why it cannot be destroyed.

use pumice_platform::error::ResourceError;
use pumice_platform::table::Handle;
use pumice_transport::types::CqUse;

use super::tables::{ObjectTables, Receives};

/// Number of users that a sentence names; of the others it only gives the number.
const NAMED: usize = 6;

/// Refuses to destroy an object that has users.
///
/// # Errors
/// `Busy`, with the names of the users.
pub(super) fn check_unused(
    object: &str,
    users: u32,
    names: impl FnOnce() -> Vec<String>,
) -> Result<(), ResourceError> {
    if users == 0 {
        return Ok(());
    }
    let names = names();
    let listed = match names.get(..NAMED) {
        Some(first) if names.len() > NAMED => {
            format!("{} and {} more", first.join(", "), names.len() - NAMED)
        }
        _ => names.join(", "),
    };
    Err(ResourceError::busy(format!("{object} is used by {listed}; destroy what uses it first")))
}

impl ObjectTables {
    /// Returns the names of memory regions, windows, queue pairs, SRQs and address handles of a protection
    /// domain.
    pub(super) fn users_of_pd(&self, pd: u32) -> Vec<String> {
        let mut names = self.memory.names_in(pd);
        let attached = self.qps.iter().flatten().filter(|attachment| attachment.context.pd == pd);
        names.extend(attached.map(|attachment| format!("QP {}", attachment.context.qpn)));
        for (handle, receives) in self.receives.iter() {
            if let Receives::Shared(srq) = receives
                && srq.pd() == pd
            {
                names.push(format!("SRQ {}", handle.index));
            }
        }
        match self.ahs.iter().filter(|(_, ah)| ah.pd.index == pd).count() {
            0 => {}
            1 => names.push("1 address handle".to_owned()),
            count => names.push(format!("{count} address handles")),
        }
        names
    }

    /// Returns the names of queue pairs whose requests complete in a completion queue, and of XRC SRQs.
    pub(super) fn users_of_cq(&self, cq: u32) -> Vec<String> {
        let mut names = Vec::new();
        for attachment in self.qps.iter().flatten() {
            let context = &attachment.context;
            if let Some(completes) = cq_use(context.send_cq == cq, context.recv_cq == cq) {
                names.push(format!("QP {} ({completes})", context.qpn));
            }
        }
        for (handle, receives) in self.receives.iter() {
            if let Receives::Shared(srq) = receives
                && srq.xrc().is_some_and(|xrc| xrc.cq == cq)
            {
                names.push(format!("XRC SRQ {}", handle.index));
            }
        }
        names
    }

    /// Returns the names of queue pairs that take their receives from an SRQ.
    pub(super) fn users_of_srq(&self, srq: Handle) -> Vec<String> {
        let attached = self.qps.iter().flatten().filter(|attachment| attachment.srq == Some(srq));
        attached.map(|attachment| format!("QP {}", attachment.context.qpn)).collect()
    }

    /// Returns the names of SRQs and queue pairs that were created with an open XRC domain.
    pub(super) fn users_of_xrcd(&self, xrcd: Handle) -> Vec<String> {
        let attached = self.qps.iter().flatten().filter(|attachment| attachment.xrcd == Some(xrcd));
        let mut names: Vec<String> =
            attached.map(|attachment| format!("QP {}", attachment.context.qpn)).collect();
        for (handle, receives) in self.receives.iter() {
            if let Receives::Shared(srq) = receives
                && srq.xrc().is_some_and(|xrc| xrc.opened == xrcd)
            {
                names.push(format!("XRC SRQ {}", handle.index));
            }
        }
        if names.is_empty() {
            names.push("target queue pairs".to_owned());
        }
        names
    }
}

/// Returns which requests of a queue pair complete in a queue that is its send completion queue, its receive
/// completion queue, or both.
pub(super) const fn cq_use(sends: bool, receives: bool) -> Option<CqUse> {
    match (sends, receives) {
        (true, true) => Some(CqUse::Both),
        (true, false) => Some(CqUse::Sends),
        (false, true) => Some(CqUse::Receives),
        (false, false) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_named_and_many_are_counted() {
        let refused = |count: usize| {
            let names = || (0..count).map(|number| format!("QP {number}")).collect();
            check_unused("CQ 7", count as u32, names).map_err(|error| error.to_string())
        };
        assert_eq!(refused(0), Ok(()));
        assert_eq!(
            refused(2),
            Err("still in use: CQ 7 is used by QP 0, QP 1; destroy what uses it first".to_owned())
        );
        let many = refused(9).unwrap_err();
        assert!(many.contains("QP 5 and 3 more"), "{many}");
    }
}
