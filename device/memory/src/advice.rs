//! Advice about regions (`ibv_advise_mr`): prefetching pages of on-demand regions.

use pumice_platform::error::ResourceError;
use pumice_transport::types::{Access, Sge};

use super::grant::{Backing, EntryKind};
use super::mapping::check_mapped;
use super::region_table::RegionTable;

/// Advice about the coming use of a range of an on-demand region (`IBV_ADVISE_MR_ADVICE_*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Advice {
    /// The range will be read.
    Prefetch,
    /// The range will be written.
    PrefetchWrite,
    /// Pages that are present will be used; others must not be brought in.
    PrefetchNoFault,
}

impl Advice {
    /// Returns the advice with this verbs number.
    ///
    /// # Errors
    /// Fails with `NotSupported` if there is none.
    pub fn from_verbs(number: u32) -> Result<Advice, ResourceError> {
        match number {
            0 => Ok(Advice::Prefetch),
            1 => Ok(Advice::PrefetchWrite),
            2 => Ok(Advice::PrefetchNoFault),
            other => Err(ResourceError::not_supported(format!("advice {other} about memory regions"))),
        }
    }
}

/// A range of this process's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageRange {
    /// Address of the first byte.
    pub address: u64,
    /// Length in bytes.
    pub length: u64,
}

impl RegionTable {
    /// Returns the memory that advice for a range of an on-demand region of domain `pd` is about.
    ///
    /// # Errors
    /// Fails with ENOENT if there is no such key, with EPERM for another domain, or for a write without
    /// `LOCAL_WRITE`, with EINVAL for a memory window, or a region that is not on demand, and with EFAULT
    /// outside of the region.
    pub fn advised(&self, pd: u32, advice: Advice, sge: &Sge) -> Result<PageRange, ResourceError> {
        let unknown =
            ResourceError::Os { what: "advice for an L_Key that no region has", errno: libc::ENOENT };
        let entry = self.by_key(sge.lkey).ok_or(unknown)?;
        //= man:ibv_advise_mr
        //| Only regions on demand can be prefetched.
        if !matches!(entry.kind, EntryKind::Region { .. }) || entry.grant.backing != Backing::OnDemand {
            return Err(ResourceError::invalid("only regions registered with ON_DEMAND can be prefetched"));
        }
        if entry.grant.pd != pd {
            return Err(denied("advice for a region of another protection domain"));
        }
        //= man:ibv_advise_mr
        //| Advice to write needs a region that may be written.
        if advice == Advice::PrefetchWrite && !entry.grant.access.contains(Access::LOCAL_WRITE) {
            return Err(denied("advice to write to a region without LOCAL_WRITE"));
        }
        let length = u64::from(sge.length);
        //= man:ibv_advise_mr
        //| Advice outside of its region fails with EFAULT.
        let outside = ResourceError::BadAddress { address: sge.address, length };
        let address = entry.grant.locate(sge.address, length).map_err(|_| outside)?;
        Ok(PageRange { address, length })
    }
}

fn denied(what: &'static str) -> ResourceError {
    ResourceError::Os { what, errno: libc::EPERM }
}

impl PageRange {
    /// Brings its pages in as the advice says. Without an engine's lock: this may read from disks.
    ///
    /// # Errors
    /// Fails with `BadAddress` if some are not mapped with the right, and with `NoMemory`.
    pub fn page_in(self, advice: Advice) -> Result<(), ResourceError> {
        let how = match advice {
            _ if self.length == 0 => return Ok(()),
            Advice::PrefetchNoFault => return Ok(()),
            Advice::Prefetch => libc::MADV_POPULATE_READ,
            Advice::PrefetchWrite => libc::MADV_POPULATE_WRITE,
        };
        // The kernel reports "no memory" for both holes and exhaustion.
        check_mapped(self.address, self.length, advice == Advice::PrefetchWrite)?;
        // SAFETY: no memory is involved.
        let page = u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096).max(1);
        let first = self.address - self.address % page;
        let bytes = (self.address - first).saturating_add(self.length);
        let start = std::ptr::with_exposed_provenance_mut(first as usize);
        // SAFETY: populating changes no memory, and the kernel checks the range.
        if unsafe { libc::madvise(start, bytes as usize, how) } == 0 {
            return Ok(());
        }
        match std::io::Error::last_os_error().raw_os_error() {
            Some(libc::ENOMEM) => Err(ResourceError::no_memory("pages of an on-demand region")),
            Some(libc::EFAULT) => {
                Err(ResourceError::BadAddress { address: self.address, length: self.length })
            }
            // Kernels before 5.14 do not have this advice: the pages come with the first access.
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_is_for_on_demand_regions_of_the_domain() {
        let mut table = RegionTable::new(4);
        let buffer = vec![0_u8; 10_000];
        let here = buffer.as_ptr() as u64;
        let read_only = Access::ON_DEMAND | Access::REMOTE_READ;
        // SAFETY: nothing is written, and the buffer outlives the table.
        let (demand, pinned) = unsafe {
            (
                table.register(7, here, 10_000, here, read_only),
                table.register(7, here, 10_000, here, Access::empty()),
            )
        };
        let (demand, pinned) = (demand.unwrap(), pinned.unwrap());
        let sge = Sge { address: here + 5, length: 9000, lkey: demand.lkey };
        let errno = |pd, advice, sge: Sge| table.advised(pd, advice, &sge).unwrap_err().errno();
        assert_eq!(errno(7, Advice::Prefetch, Sge { lkey: 0, ..sge }), libc::ENOENT);
        assert_eq!(errno(7, Advice::Prefetch, Sge { lkey: pinned.lkey, ..sge }), libc::EINVAL);
        assert_eq!(errno(8, Advice::Prefetch, sge), libc::EPERM);
        assert_eq!(errno(7, Advice::PrefetchWrite, sge), libc::EPERM);
        assert_eq!(errno(7, Advice::Prefetch, Sge { length: 10_000, ..sge }), libc::EFAULT);
        let range = table.advised(7, Advice::Prefetch, &sge).unwrap();
        assert_eq!(range, PageRange { address: here + 5, length: 9000 });
        for advice in [Advice::Prefetch, Advice::PrefetchWrite, Advice::PrefetchNoFault] {
            assert_eq!(range.page_in(advice), Ok(()));
        }
        let nowhere = PageRange { address: 8, length: 8 };
        assert_eq!(nowhere.page_in(Advice::Prefetch).unwrap_err().errno(), libc::EFAULT);
        assert_eq!(nowhere.page_in(Advice::PrefetchNoFault), Ok(()));
    }
}
