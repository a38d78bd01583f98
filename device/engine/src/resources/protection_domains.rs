//! Protection domains of a device, and its address handles, which are used only with domains.

use std::net::IpAddr;

use pumice_model::addresses::{Ports, address_handle};
use pumice_platform::error::ResourceError;
use pumice_platform::table::Handle;
use pumice_transport::path::Path;
use pumice_transport::types::AddressVector;

use super::tables::{AddressHandleEntry, ObjectTables, ProtectionDomain};
use super::users::check_unused;

impl ObjectTables {
    /// Creates a protection domain.
    ///
    /// # Errors
    /// `NoMemory`: the table is full.
    pub(crate) fn alloc_pd(&mut self) -> Result<Handle, ResourceError> {
        self.pds.insert(ProtectionDomain::default())
    }

    /// Destroys a protection domain.
    ///
    /// # Errors
    /// `Busy`: objects belong to it. `Invalid`: a stale handle.
    pub(crate) fn dealloc_pd(&mut self, pd: Handle) -> Result<(), ResourceError> {
        let users = self.pds.require(pd)?.users;
        let name = format!("protection domain {}", pd.index);
        //= man:ibv_alloc_pd
        //| A protection domain that is used cannot be freed.
        check_unused(&name, users, || self.users_of_pd(pd.index))?;
        self.pds.remove(pd);
        Ok(())
    }

    /// Creates an address handle. Returns its handle, and the path for the datagrams that use it. Keep `pd`
    /// with it: a UD queue pair only sends along address handles of its own domain.
    ///
    /// # Errors
    /// As [`address_handle::resolve`]; a stale PD. `NoMemory`: the table is full.
    pub(crate) fn create_ah(
        &mut self,
        ports: &Ports,
        pd: Handle,
        vector: &AddressVector,
    ) -> Result<(Handle, Path), ResourceError> {
        self.pds.require(pd)?;
        let path = address_handle::resolve(vector, ports)?;
        let handle =
            self.ahs.insert(AddressHandleEntry { pd, destination: path.flow.destination, number: None })?;
        self.use_pd(pd);
        Ok((handle, path))
    }

    /// Returns the number of the address handles of a domain that lead to an address; `None` if there are
    /// none.
    pub(super) fn ah_number_to(&mut self, pd: u32, destination: IpAddr) -> Option<u16> {
        let leads = |ah: &AddressHandleEntry| ah.pd.index == pd && ah.destination == destination;
        let known = self.ahs.iter().filter(|(_, ah)| leads(ah)).find_map(|(_, ah)| ah.number);
        if known.is_some() {
            return known;
        }
        let (first, _) = self.ahs.iter().find(|(_, ah)| leads(ah))?;
        let is_free = |number: &u16| self.ahs.iter().all(|(_, ah)| ah.number != Some(*number));
        // The last number means that there is none.
        let own = u16::try_from(first.index).ok().filter(|number| *number != u16::MAX);
        let number = own.into_iter().chain(0..u16::MAX).find(is_free)?;
        self.ahs.get_mut(first)?.number = Some(number);
        Some(number)
    }

    /// Returns the number of an address handle, which it keeps. `None`: the domain or the handle was
    /// destroyed.
    pub(crate) fn ah_number(&mut self, ah: Handle) -> Option<u16> {
        let AddressHandleEntry { pd, destination, number } = *self.ahs.get(ah)?;
        let number = number.or_else(|| self.ah_number_to(pd.index, destination))?;
        self.ahs.get_mut(ah)?.number = Some(number);
        Some(number)
    }

    /// Destroys an address handle; posted datagrams keep their path.
    ///
    /// # Errors
    /// `Invalid`: a stale handle.
    pub(crate) fn destroy_ah(&mut self, ah: Handle) -> Result<(), ResourceError> {
        let pd = self.ahs.require(ah)?.pd;
        self.ahs.remove(ah);
        self.release_pd(pd.index);
        Ok(())
    }

    pub(super) fn use_pd(&mut self, pd: Handle) {
        if let Some(protection_domain) = self.pds.get_mut(pd) {
            protection_domain.users += 1;
        }
    }

    pub(super) fn release_pd(&mut self, pd: u32) {
        if let Some(protection_domain) = self.pds.at_mut(pd) {
            protection_domain.users = protection_domain.users.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use pumice_memory::{RegionChange, WindowType};
    use pumice_model::addresses::gid_table::GidEntry;
    use pumice_platform::limits::Limits;
    use pumice_transport::types::{Access, Gid, Mtu};

    use super::*;
    use crate::resources::Resources;

    #[test]
    fn a_pd_counts_its_users() {
        let mut resources = Resources::new(Limits::default()).unwrap();
        let ip: IpAddr = "10.0.0.1".parse().unwrap();
        resources.port.ports.add(GidEntry::new(ip, "lo", 1, Mtu::Mtu4096)).unwrap();
        let (pd, other) = (resources.objects.alloc_pd().unwrap(), resources.objects.alloc_pd().unwrap());
        let vector =
            AddressVector { is_global: true, dgid: Gid::from(ip), port_num: 1, ..AddressVector::default() };
        // SAFETY: the range is never accessed.
        let region = unsafe { resources.register_region(pd, 0x1000, 8, 0x1000, Access::empty()) }.unwrap();
        let window = resources.alloc_window(pd, WindowType::Type1).unwrap();
        let (ah, path) = resources.objects.create_ah(&resources.port.ports, pd, &vector).unwrap();
        assert_eq!(path.flow.destination, ip);

        let busy =
            |resources: &mut Resources, pd| resources.objects.dealloc_pd(pd).map_err(|error| error.errno());
        assert_eq!(busy(&mut resources, pd), Err(libc::EBUSY));
        // SAFETY: the range is never accessed.
        unsafe { resources.rereg_region(region.handle, Some(other), RegionChange::default()) }.unwrap();
        assert_eq!(busy(&mut resources, other), Err(libc::EBUSY));
        resources.deregister_region(region.handle).unwrap();
        assert_eq!(busy(&mut resources, other), Ok(()));
        resources.dealloc_window(window.handle).unwrap();
        assert_eq!(busy(&mut resources, pd), Err(libc::EBUSY));
        resources.objects.destroy_ah(ah).unwrap();
        assert_eq!(resources.objects.destroy_ah(ah).unwrap_err().errno(), libc::EINVAL);
        assert_eq!(busy(&mut resources, pd), Ok(()));
        assert_eq!(busy(&mut resources, pd), Err(libc::EINVAL));
        assert_eq!(
            resources.objects.create_ah(&resources.port.ports, pd, &vector).unwrap_err().errno(),
            libc::EINVAL
        );
    }
}
