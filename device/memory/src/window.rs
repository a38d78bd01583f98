//! Memory windows: remote keys for a part of a region, bound and unbound by work requests.

use pumice_platform::error::ResourceError;
use pumice_platform::table::Handle;
use pumice_transport::host::{MemoryError, RemoteKey};
use pumice_transport::types::{Access, WindowBind};
use pumice_transport::wire::Qpn;

use super::grant::{Backing, EntryKind, Grant, KeyEntry, WindowType};
use super::region_table::RegionTable;

/// The key and the handle that the allocation of a window returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowKeys {
    /// First remote key, which opens nothing before the window is bound. Never 0.
    pub rkey: u32,
    /// Handle of the window.
    pub handle: Handle,
}

/// Rights that a window may give.
const WINDOW_ACCESS: Access =
    Access::REMOTE_WRITE.union(Access::REMOTE_READ).union(Access::REMOTE_ATOMIC).union(Access::ZERO_BASED);

impl RegionTable {
    /// Allocates an unbound window.
    ///
    /// # Errors
    /// Fails with `NoMemory` if the table is full.
    pub fn alloc_window(&mut self, pd: u32, window: WindowType) -> Result<WindowKeys, ResourceError> {
        let mut rkey = 0;
        let handle = self.insert_window(|key| {
            rkey = key;
            KeyEntry { grant: unbound(key, pd), kind: EntryKind::Window { window, region: None } }
        })?;
        Ok(WindowKeys { rkey, handle })
    }

    /// Frees a window, bound or not; its key is dead at once. Returns its protection domain.
    ///
    /// # Errors
    /// Fails with `Invalid` for a stale handle, or a region's.
    pub fn dealloc_window(&mut self, handle: Handle) -> Result<u32, ResourceError> {
        let entry = self.entries.require(handle)?;
        if !matches!(entry.kind, EntryKind::Window { .. }) {
            return Err(ResourceError::invalid("a memory region was given where a memory window belongs"));
        }
        //= man:ibv_alloc_mw
        //| A window may be freed while it is bound.
        let pd = entry.grant.pd;
        self.unbind(handle.index);
        self.remove(handle);
        Ok(pd)
    }

    /// Executes BIND_MW on a queue pair of domain `pd`. Type 1: rebinding is allowed and length 0 unbinds.
    /// Type 2: the window must be unbound, and belongs to the queue pair afterwards.
    ///
    /// # Errors
    /// Fails if the window or the region is wrong, of another domain, or in the wrong state.
    pub fn bind_window(&mut self, pd: u32, qpn: Qpn, bind: &WindowBind) -> Result<(), MemoryError> {
        let index = self.index_of(bind.window_rkey);
        let entry = self.entries.at(index).ok_or(MemoryError::UnknownKey)?;
        let EntryKind::Window { window, region: bound_to } = entry.kind else {
            return Err(MemoryError::UnknownKey);
        };
        let old = entry.grant;
        if old.pd != pd {
            return Err(MemoryError::WrongDomain);
        }
        //= man:ibv_inc_rkey
        //| Only the low eight bits of the key of a window change.
        if bind.new_rkey >> 8 != bind.window_rkey >> 8 {
            return Err(MemoryError::UnknownKey);
        }
        if !WINDOW_ACCESS.contains(bind.access) {
            return Err(MemoryError::AccessDenied);
        }
        //= linux:rxe_mw.c#rxe_check_bind_mw
        //| A window of type 2 must be unbound before a bind, and its length is not 0.
        if window == WindowType::Type2 && (bound_to.is_some() || bind.length == 0) {
            return Err(MemoryError::AccessDenied);
        }
        if bind.length == 0 {
            //= statement:46
            //| A window of type 1 that is bound to nothing opens nothing.
            self.unbind(index);
            if let Some(entry) = self.entries.at_mut(index) {
                entry.grant = unbound(bind.new_rkey, pd);
            }
            return Ok(());
        }
        let region = self.index_of(bind.region_lkey);
        let grant = self.window_grant(region, window, pd, qpn, bind)?;
        self.unbind(index);
        if let Some(KeyEntry { kind: EntryKind::Region { bound_windows, .. }, .. }) =
            self.entries.at_mut(region)
        {
            *bound_windows += 1;
        }
        if let Some(entry) = self.entries.at_mut(index) {
            *entry = KeyEntry { grant, kind: EntryKind::Window { window, region: Some(region) } };
        }
        self.qp_bound_windows += u32::from(window == WindowType::Type2);
        Ok(())
    }

    /// Returns the key of a window now: that of its last bind that was executed.
    pub fn window_key(&self, handle: Handle) -> Option<u32> {
        let entry = self.entries.get(handle)?;
        matches!(entry.kind, EntryKind::Window { .. }).then_some(entry.grant.key)
    }

    /// Invalidates a key: LOCAL_INV here, or with `for_peer` a SEND with invalidate. Bound type-2 windows of
    /// the queue pair can be invalidated, and are unbound afterwards; and indirect keys that are configured,
    /// by peers if they were made for that.
    ///
    /// # Errors
    /// Fails if the key is unknown, of another domain or queue pair, or names a region or a type-1 window.
    pub fn invalidate(&mut self, key: RemoteKey, for_peer: bool) -> Result<(), MemoryError> {
        if let Some(outcome) = self.invalidate_indirect(key, for_peer) {
            return outcome;
        }
        let index = self.index_of(key.rkey);
        let entry = self.entries.at(index).ok_or(MemoryError::UnknownKey)?;
        if !entry.grant.has_key(key.rkey) || !entry.grant.live {
            return Err(MemoryError::UnknownKey);
        }
        if entry.grant.pd != key.pd {
            return Err(MemoryError::WrongDomain);
        }
        match (entry.grant.qpn, &entry.kind) {
            //= linux:rxe_mw.c#rxe_check_invalidate_mw
            //| Only a bound window of type 2 can be invalidated.
            (Some(qpn), EntryKind::Window { .. }) if qpn == key.qpn => {}
            (Some(_), EntryKind::Window { .. }) => return Err(MemoryError::WrongDomain),
            _ => return Err(MemoryError::AccessDenied),
        }
        self.unbind(index);
        Ok(())
    }

    /// Unbinds the windows that belong to a queue pair, because it is destroyed.
    pub fn unbind_windows_of(&mut self, qpn: Qpn) {
        if self.qp_bound_windows == 0 {
            return;
        }
        let indices: Vec<u32> = self
            .entries
            .iter()
            .filter(|(_, entry)| entry.grant.live && entry.grant.qpn == Some(qpn))
            .map(|(handle, _)| handle.index)
            .collect();
        for index in indices {
            self.unbind(index);
        }
    }

    /// Returns the grant of a bound window, if the region allows it.
    fn window_grant(
        &self,
        region: u32,
        window: WindowType,
        pd: u32,
        qpn: Qpn,
        bind: &WindowBind,
    ) -> Result<Grant, MemoryError> {
        let entry = self.entries.at(region).ok_or(MemoryError::UnknownKey)?;
        if !entry.grant.has_key(bind.region_lkey) || !matches!(entry.kind, EntryKind::Region { .. }) {
            return Err(MemoryError::UnknownKey);
        }
        let access = entry.grant.access;
        if entry.grant.backing == Backing::Nothing {
            return Err(MemoryError::AccessDenied);
        }
        //= man:ibv_bind_mw
        //| A window that can be written needs a region with LOCAL_WRITE.
        let writes = bind.access.intersects(Access::REMOTE_WRITE | Access::REMOTE_ATOMIC);
        let zero_based = bind.access.contains(Access::ZERO_BASED);
        //= linux:rxe_mw.c#rxe_check_bind_mw
        //| A window needs a region with the right MW_BIND.
        if !access.contains(Access::MW_BIND)
            || (writes && !access.contains(Access::LOCAL_WRITE))
            || access.contains(Access::ZERO_BASED)
            || (zero_based && window == WindowType::Type1)
        {
            return Err(MemoryError::AccessDenied);
        }
        let address = self.locate_local(pd, bind.region_lkey, bind.address, bind.length, false)?;
        Ok(Grant {
            key: bind.new_rkey,
            apart: 0,
            pd,
            address,
            //= man:ibv_bind_mw
            //| The addresses of a zero-based window count from its beginning.
            iova: if zero_based { 0 } else { bind.address },
            length: bind.length,
            access: bind.access,
            backing: entry.grant.backing,
            live: true,
            //= statement:46
            //| A window of type 2 serves the queue pair that it was bound on only.
            qpn: (window == WindowType::Type2).then_some(qpn),
            watched: entry.grant.watched,
        })
    }

    /// Makes a window open nothing; its key stays as its name.
    fn unbind(&mut self, index: u32) {
        let Some(entry) = self.entries.at_mut(index) else { return };
        let EntryKind::Window { window, region } = &mut entry.kind else { return };
        let Some(region) = region.take() else { return };
        let owned = *window == WindowType::Type2;
        entry.grant = unbound(entry.grant.key, entry.grant.pd);
        self.qp_bound_windows -= u32::from(owned);
        if let Some(KeyEntry { kind: EntryKind::Region { bound_windows, .. }, .. }) =
            self.entries.at_mut(region)
        {
            *bound_windows -= 1;
        }
    }
}

/// Returns the grant of a window that is not bound.
fn unbound(key: u32, pd: u32) -> Grant {
    Grant::of_no_memory(key, pd, Backing::Nothing)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RegionKeys;

    const PD: u32 = 7;
    const QPN: Qpn = Qpn::new(0x11);
    const OTHER_QPN: Qpn = Qpn::new(0x12);
    const RIGHTS: Access = Access::REMOTE_WRITE.union(Access::REMOTE_READ);

    fn setup(access: Access) -> (RegionTable, RegionKeys) {
        let mut table = RegionTable::new(8);
        // SAFETY: the range is only located, never accessed.
        let keys = unsafe { table.register(PD, 0x7000, 0x100, 0x7000, access) }.unwrap();
        (table, keys)
    }

    fn bind(rkey: u32, region: RegionKeys) -> WindowBind {
        WindowBind {
            window_rkey: rkey,
            new_rkey: (rkey & !0xff) | u32::from((rkey as u8).wrapping_add(1)),
            region_lkey: region.lkey,
            address: 0x7010,
            length: 0x10,
            access: RIGHTS,
        }
    }

    fn read(table: &RegionTable, rkey: u32, qpn: Qpn, address: u64) -> Result<u64, MemoryError> {
        table.locate_remote(RemoteKey { rkey, pd: PD, qpn }, address, 1, Access::REMOTE_READ)
    }

    const BINDABLE: Access = Access::MW_BIND.union(Access::LOCAL_WRITE);

    #[test]
    fn a_type_1_window_opens_its_part_of_the_region_to_every_qp_of_the_domain() {
        let (mut table, region) = setup(BINDABLE);
        let window = table.alloc_window(PD, WindowType::Type1).unwrap();
        assert_eq!(read(&table, window.rkey, QPN, 0x7010), Err(MemoryError::UnknownKey));
        let first = bind(window.rkey, region);
        table.bind_window(PD, QPN, &first).unwrap();
        assert_eq!(read(&table, first.new_rkey, OTHER_QPN, 0x701f), Ok(0x701f));
        assert_eq!(read(&table, first.new_rkey, QPN, 0x7020), Err(MemoryError::OutOfRange));
        assert_eq!(read(&table, window.rkey, QPN, 0x7010), Err(MemoryError::UnknownKey));
        assert_eq!(table.locate_local(PD, first.new_rkey, 0x7010, 1, false), Err(MemoryError::UnknownKey));
        assert_eq!(table.deregister(region.handle).unwrap_err().errno(), libc::EBUSY);

        let second = WindowBind { address: 0x7040, ..bind(first.new_rkey, region) };
        table.bind_window(PD, QPN, &second).unwrap();
        assert_eq!(read(&table, first.new_rkey, QPN, 0x7010), Err(MemoryError::UnknownKey));
        assert_eq!(read(&table, second.new_rkey, QPN, 0x7040), Ok(0x7040));
        assert_eq!(table.region(region.handle).unwrap().bound_windows, 1);

        let unbinding = WindowBind { length: 0, ..bind(second.new_rkey, region) };
        table.bind_window(PD, QPN, &unbinding).unwrap();
        assert_eq!(read(&table, unbinding.new_rkey, QPN, 0x7040), Err(MemoryError::UnknownKey));
        assert_eq!(table.region(region.handle).unwrap().bound_windows, 0);
        table.deregister(region.handle).unwrap();
    }

    #[test]
    fn a_type_2_window_belongs_to_the_qp_it_was_bound_on() {
        let (mut table, region) = setup(BINDABLE);
        let window = table.alloc_window(PD, WindowType::Type2).unwrap();
        let first = bind(window.rkey, region);
        table.bind_window(PD, QPN, &first).unwrap();
        assert_eq!(read(&table, first.new_rkey, QPN, 0x7010), Ok(0x7010));
        assert_eq!(read(&table, first.new_rkey, OTHER_QPN, 0x7010), Err(MemoryError::WrongDomain));
        assert_eq!(
            table.bind_window(PD, QPN, &bind(first.new_rkey, region)),
            Err(MemoryError::AccessDenied),
            "bound already"
        );

        let key = |qpn| RemoteKey { rkey: first.new_rkey, pd: PD, qpn };
        assert_eq!(table.invalidate(key(OTHER_QPN), false), Err(MemoryError::WrongDomain));
        table.invalidate(key(QPN), false).unwrap();
        assert_eq!(read(&table, first.new_rkey, QPN, 0x7010), Err(MemoryError::UnknownKey));
        assert_eq!(table.invalidate(key(QPN), false), Err(MemoryError::UnknownKey));

        assert_eq!(table.window_key(window.handle), Some(first.new_rkey), "its name until the next bind");
        let same = WindowBind { new_rkey: first.new_rkey, ..bind(first.new_rkey, region) };
        table.bind_window(PD, QPN, &same).unwrap();
        table.invalidate(key(QPN), false).unwrap();
        let second = bind(first.new_rkey, region);
        table.bind_window(PD, QPN, &second).unwrap();
        table.unbind_windows_of(OTHER_QPN);
        assert_eq!(read(&table, second.new_rkey, QPN, 0x7010), Ok(0x7010));
        table.unbind_windows_of(QPN);
        assert_eq!(read(&table, second.new_rkey, QPN, 0x7010), Err(MemoryError::UnknownKey));
        table.deregister(region.handle).unwrap();
    }

    #[test]
    fn bind_rules() {
        let zero_based = Access::ZERO_BASED;
        use WindowType::{Type1, Type2};
        // (type, rights of the region, change to a good bind, expected)
        type Change = fn(&mut WindowBind);
        let denied = Err(MemoryError::AccessDenied);
        let table: [(WindowType, Access, Change, Result<(), MemoryError>); 12] = [
            (Type1, BINDABLE, |_| (), Ok(())),
            (Type2, BINDABLE, |_| (), Ok(())),
            (Type1, Access::LOCAL_WRITE, |_| (), denied),
            (Type1, Access::MW_BIND, |_| (), denied),
            (Type1, Access::MW_BIND, |bind| bind.access = Access::REMOTE_READ, Ok(())),
            (Type1, BINDABLE, |bind| bind.access |= Access::ZERO_BASED, denied),
            (Type2, BINDABLE, |bind| bind.access |= Access::ZERO_BASED, Ok(())),
            (Type2, BINDABLE | zero_based, |bind| bind.address = 0, denied),
            (Type2, BINDABLE, |bind| bind.length = 0, denied),
            (Type1, BINDABLE, |bind| bind.access |= Access::MW_BIND, denied),
            (Type1, BINDABLE, |bind| bind.length = 0xf1, Err(MemoryError::OutOfRange)),
            (Type2, BINDABLE, |bind| bind.new_rkey ^= 0x100, Err(MemoryError::UnknownKey)),
        ];
        for (number, (window_type, access, change, expected)) in table.into_iter().enumerate() {
            let (mut regions, region) = setup(access);
            let window = regions.alloc_window(PD, window_type).unwrap();
            let mut request = bind(window.rkey, region);
            change(&mut request);
            assert_eq!(regions.bind_window(PD, QPN, &request), expected, "case {number}");
            assert_eq!(
                regions.region(region.handle).unwrap().bound_windows,
                u32::from(expected.is_ok()),
                "case {number}"
            );
        }
    }

    #[test]
    fn zero_based_windows_count_from_zero() {
        let (mut table, region) = setup(BINDABLE);
        let window = table.alloc_window(PD, WindowType::Type2).unwrap();
        let request = WindowBind { access: RIGHTS | Access::ZERO_BASED, ..bind(window.rkey, region) };
        table.bind_window(PD, QPN, &request).unwrap();
        assert_eq!(read(&table, request.new_rkey, QPN, 3), Ok(0x7013));
        assert_eq!(read(&table, request.new_rkey, QPN, 0x7013), Err(MemoryError::OutOfRange));
    }

    #[test]
    fn domains_must_agree_and_only_type_2_windows_can_be_invalidated() {
        let (mut table, region) = setup(BINDABLE);
        let window = table.alloc_window(PD, WindowType::Type1).unwrap();
        let foreign = table.alloc_window(PD + 1, WindowType::Type1).unwrap();
        let request = bind(window.rkey, region);
        assert_eq!(table.bind_window(PD + 1, QPN, &request), Err(MemoryError::WrongDomain));
        assert_eq!(
            table.bind_window(PD + 1, QPN, &bind(foreign.rkey, region)),
            Err(MemoryError::WrongDomain),
            "window and QP agree, the region does not"
        );
        table.bind_window(PD, QPN, &request).unwrap();
        let key = |rkey| RemoteKey { rkey, pd: PD, qpn: QPN };
        assert_eq!(table.invalidate(key(request.new_rkey), false), Err(MemoryError::AccessDenied));
        assert_eq!(table.invalidate(key(region.rkey), false), Err(MemoryError::AccessDenied));
        assert_eq!(table.invalidate(key(0), false), Err(MemoryError::UnknownKey));
        assert_eq!(table.dealloc_window(region.handle).unwrap_err().errno(), libc::EINVAL);
        assert_eq!(table.deregister(window.handle).unwrap_err().errno(), libc::EINVAL);
    }

    #[test]
    fn a_bound_window_can_be_freed_and_its_key_stays_dead() {
        let (mut table, region) = setup(BINDABLE);
        let window = table.alloc_window(PD, WindowType::Type2).unwrap();
        let request = bind(window.rkey, region);
        table.bind_window(PD, QPN, &request).unwrap();
        assert_eq!(table.dealloc_window(window.handle).unwrap(), PD);
        assert_eq!(table.region(region.handle).unwrap().bound_windows, 0);
        let next = table.alloc_window(PD, WindowType::Type2).unwrap();
        assert_eq!(next.handle.index, window.handle.index);
        assert_ne!(next.rkey, request.new_rkey);
        assert_eq!(read(&table, request.new_rkey, QPN, 0x7010), Err(MemoryError::UnknownKey));
    }
}
