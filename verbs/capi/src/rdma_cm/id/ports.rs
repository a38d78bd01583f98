//! Ports that identifiers of this process have, and the rules of Linux for sharing them (`cma_check_port`).
//! The devices handle other processes.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use pumice_device::outside::fork_generation::PerProcess;
use pumice_transport::mad::PortSpace;

use crate::platform::errno::Errno;

/// An identifier that has a port.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PortOwner {
    /// Address of the identifier in memory, which identifies it here.
    pub(crate) id: usize,
    pub(crate) address: SocketAddr,
    /// True if all addresses are those of one family.
    pub(crate) one_family: bool,
    /// True if it shares the port with others that do.
    pub(crate) reuses: bool,
}

type PortKey = (u16, u16);

/// Owners of each port.
type PortOwners = BTreeMap<PortKey, Vec<PortOwner>>;

static OWNERS: PerProcess<Mutex<PortOwners>> = PerProcess::new(|_| Mutex::default());

fn owners() -> MutexGuard<'static, PortOwners> {
    OWNERS.lock().unwrap_or_else(PoisonError::into_inner)
}

const fn key(space: PortSpace, port: u16) -> PortKey {
    (space as u16, port)
}

impl PortOwner {
    /// # Errors
    /// Fails with EADDRNOTAVAIL if one of both has all addresses, and with EADDRINUSE if they have the same
    /// one.
    fn check_coexistence(&self, other: &PortOwner) -> Result<(), Errno> {
        let families_differ = self.address.is_ipv4() != other.address.is_ipv4();
        if self.one_family && other.one_family && families_differ {
            return Ok(());
        }
        let (own, its) = (self.address.ip(), other.address.ip());
        let errno = match () {
            //= linux:cma.c#cma_check_port
            //| A port that another identifier has at all addresses is not available.
            () if own.is_unspecified() || its.is_unspecified() => libc::EADDRNOTAVAIL,
            () if own == its => libc::EADDRINUSE,
            () => return Ok(()),
        };
        let port = self.address.port();
        Err(Errno(errno).because(|| {
            format!(
                "another identifier of this process has port {port} at {its}: choose another port, or set \
                 RDMA_OPTION_ID_REUSEADDR of both before they are bound"
            )
        }))
    }
}

/// Claims a port for an identifier.
///
/// # Errors
/// Fails if another one has it, and not both share it.
pub(crate) fn claim(space: PortSpace, owner: PortOwner) -> Result<(), Errno> {
    let mut owners = owners();
    let same = owners.entry(key(space, owner.address.port())).or_default();
    let mut others = same.iter().filter(|other| !(owner.reuses && other.reuses));
    others.try_for_each(|other| owner.check_coexistence(other))?;
    same.push(owner);
    Ok(())
}

/// Makes an identifier the only owner of a port that it shared, because it listens.
///
/// # Errors
/// Fails if another one has it, too.
pub(crate) fn stop_sharing(space: PortSpace, id: usize, port: u16) -> Result<(), Errno> {
    let mut owners = owners();
    let Some(same) = owners.get_mut(&key(space, port)) else { return Ok(()) };
    let Some(own) = same.iter().find(|owner| owner.id == id).copied() else { return Ok(()) };
    same.iter().filter(|other| other.id != id).try_for_each(|other| own.check_coexistence(other))?;
    same.iter_mut().filter(|owner| owner.id == id).for_each(|owner| owner.reuses = false);
    Ok(())
}

/// Changes how a bound identifier shares its port.
pub(crate) fn change(space: PortSpace, id: usize, port: u16, change: impl FnOnce(&mut PortOwner)) {
    let mut owners = owners();
    let same = owners.get_mut(&key(space, port));
    if let Some(own) = same.and_then(|same| same.iter_mut().find(|owner| owner.id == id)) {
        change(own);
    }
}

/// Reports whether no identifier has a port.
pub(crate) fn is_unused(space: PortSpace, port: u16) -> bool {
    !owners().contains_key(&key(space, port))
}

/// Releases the port of an identifier, if it has one.
pub(crate) fn release(space: PortSpace, id: usize, port: u16) {
    let mut owners = owners();
    if let Some(same) = owners.get_mut(&key(space, port)) {
        same.retain(|owner| owner.id != id);
        if same.is_empty() {
            owners.remove(&key(space, port));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(id: usize, address: &str, reuses: bool) -> PortOwner {
        let address: SocketAddr = address.parse().unwrap();
        PortOwner { id, address, one_family: address.is_ipv4(), reuses }
    }

    #[test]
    fn ports_are_shared_as_linux_shares_them() {
        let space = PortSpace::Tcp;
        let claim = |id, address, reuses| super::claim(space, owner(id, address, reuses)).err();
        let (in_use, not_available) = (Some(Errno(libc::EADDRINUSE)), Some(Errno(libc::EADDRNOTAVAIL)));
        assert_eq!(claim(1, "127.0.0.1:7", false), None);
        assert_eq!(claim(2, "127.0.0.1:7", false), in_use);
        assert_eq!(claim(2, "127.0.0.1:7", true), in_use, "the first does not share");
        assert_eq!(claim(2, "127.0.0.2:7", false), None);
        assert_eq!(claim(3, "0.0.0.0:7", false), not_available);
        assert_eq!(claim(3, "[::]:7", false), not_available, "it has addresses of both families");
        assert_eq!(super::claim(space, PortOwner { one_family: true, ..owner(3, "[::]:7", false) }), Ok(()));
        assert_eq!(super::claim(PortSpace::Udp, owner(4, "127.0.0.1:7", false)), Ok(()));
        assert_eq!(claim(5, "127.0.0.1:8", true), None);
        assert_eq!(claim(6, "127.0.0.1:8", true), None);
        assert_eq!(claim(7, "0.0.0.0:8", false), not_available);
        assert_eq!(stop_sharing(space, 5, 8).err(), in_use);
        release(space, 6, 8);
        assert_eq!(stop_sharing(space, 5, 8), Ok(()));
        assert_eq!(claim(6, "127.0.0.1:8", true), in_use, "one that listens shares no longer");
        assert!(!is_unused(space, 8));
        release(space, 5, 8);
        release(space, 5, 8);
        assert!(is_unused(space, 8));
        assert_eq!(stop_sharing(space, 5, 8), Ok(()));
    }
}
