//! Memory windows, which open a part of a region, for some time, for some peers.

use std::ops::RangeBounds;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use pumice_calls::Call;
use pumice_device::memory::WindowType;
use pumice_device::platform::table::Handle;
use pumice_transport::types::{Access, WindowBind};

use crate::buffers::slice::RemoteSlice;
use crate::device::calls::gated_call;
use crate::error::{Result, VerbsError};
use crate::objects::domain::ProtectionDomain;
use crate::objects::memory::MemoryRegion;
use crate::queue_pair::request::SendRequest;
use crate::transport::Requester;

/// A memory window. Cheap to clone; freed, and thereby unbound, with its last clone. The memory of a region
/// that is dropped while windows are bound to it is freed after them.
#[derive(Debug, Clone)]
pub struct MemoryWindow(Arc<WindowInner>);

#[derive(Debug)]
struct WindowInner {
    domain: ProtectionDomain,
    handle: Handle,
    window: WindowType,
    rkey: AtomicU32,
}

impl ProtectionDomain {
    /// Creates a memory window. Type 1 opens memory to all queue pairs of the domain, type 2 to the one that
    /// binds it, until it is invalidated.
    ///
    /// # Errors
    /// `Refused`: the table is full.
    pub fn memory_window(&self, window: WindowType) -> Result<MemoryWindow> {
        let keys = gated_call(self.device(), Call::ibv_alloc_mw, || {
            let keys = self.device().hca().alloc_mw(self.handle(), window);
            keys.map_err(VerbsError::refused("memory window"))
        })?;
        let rkey = AtomicU32::new(keys.rkey);
        Ok(MemoryWindow(Arc::new(WindowInner { domain: self.clone(), handle: keys.handle, window, rkey })))
    }
}

impl MemoryWindow {
    /// Returns a request that opens a range of a region (by byte offsets; the region needs `MW_BIND`) with
    /// these rights, and the slice by which peers name it once the request has completed. Post it to a queue
    /// pair of the domain; each call takes a new key, so post requests in the order in which they were
    /// created.
    ///
    /// # Errors
    /// `Invalid`: the range leaves the region.
    pub fn bind<T: Requester>(
        &self,
        region: &MemoryRegion,
        range: impl RangeBounds<usize>,
        access: Access,
    ) -> Result<(SendRequest<'static, T>, RemoteSlice)> {
        let local = region.slice(range)?;
        let next = |rkey: u32| rkey & !0xff | rkey.wrapping_add(1) & 0xff;
        let update = self.0.rkey.fetch_update(Ordering::AcqRel, Ordering::Acquire, |rkey| Some(next(rkey)));
        let window_rkey = update.unwrap_or_else(|rkey| rkey);
        let rkey = next(window_rkey);
        let bind = WindowBind {
            window_rkey,
            new_rkey: rkey,
            region_lkey: local.lkey,
            address: local.address,
            length: u64::from(local.length),
            access,
        };
        let address = if access.contains(Access::ZERO_BASED) { 0 } else { local.address };
        Ok((SendRequest::bind_window(bind), RemoteSlice { address, rkey, length: local.length }))
    }

    /// Returns the type, 1 or 2.
    pub fn window_type(&self) -> WindowType {
        self.0.window
    }

    /// Returns the key of the last binding request, which invalidates a type-2 window.
    pub fn rkey(&self) -> u32 {
        self.0.rkey.load(Ordering::Acquire)
    }
}

impl Drop for WindowInner {
    fn drop(&mut self) {
        let device = self.domain.device();
        let _ = device.hca().dealloc_mw(self.handle);
        device.free_orphans();
    }
}
