//! XRC domains and targets among the objects of a device.

use pumice_fabric::xrc::{TargetClosed, TargetHost, TargetOpened, XrcDomains, XrcdFile};
use pumice_model::port::group::SharedResources;
use pumice_platform::error::ResourceError;
use pumice_platform::table::Handle;
use pumice_transport::host::QpContext;
use pumice_transport::types::AsyncEventType;
use pumice_transport::wire::Qpn;

use super::host_impl::DeviceHost;
use super::tables::{NO_OBJECT, Resources};
use super::users::check_unused;

impl Resources {
    /// Creates an XRC domain that has no name: only this handle leads to it.
    ///
    /// # Errors
    /// `NoMemory`: the table is full.
    pub fn open_xrcd(&mut self) -> Result<Handle, ResourceError> {
        self.objects.xrc.open_unnamed()
    }

    /// Opens the XRC domain of a file, by the rules of `ibv_open_xrcd`. Without `shared_resources` there are
    /// no other processes.
    ///
    /// # Errors
    /// `Os`: EAGAIN, it is not open in any process and `create` is not set; EBADF, the descriptor is none.
    /// `Invalid`: it is open and `exclusive` is set. `NoMemory`: the table is full.
    pub fn open_xrcd_of_file(
        &mut self,
        file: &XrcdFile<'_>,
        shared_resources: Option<&SharedResources>,
    ) -> Result<Handle, ResourceError> {
        self.objects.xrc.open_of_file(file, shared_resources)
    }

    /// Closes an XRC domain; it is destroyed with its last open.
    ///
    /// # Errors
    /// `Busy`: SRQs or targets were created through this handle. `Invalid`: a stale handle.
    pub fn close_xrcd(&mut self, xrcd: Handle) -> Result<(), ResourceError> {
        //= man:ibv_open_xrcd
        //| An XRC domain that is used cannot be closed.
        check_unused("the XRC domain", self.objects.xrc.users(xrcd)?, || self.objects.users_of_xrcd(xrcd))?;
        self.objects.xrc.close(xrcd)
    }

    /// Creates the table entries of a target that is not open yet.
    pub(super) fn insert_target(&mut self, qpn: Qpn, domain: u32, half: bool) -> QpContext {
        let none = NO_OBJECT;
        let context = QpContext {
            qpn,
            pd: none,
            send_cq: none,
            recv_cq: none,
            recv_queue: none,
            xrcd: domain,
            ordinal: self.next_ordinal(),
            out_of_order: false,
        };
        self.objects.xrc.targets.insert(context, half);
        context
    }

    /// Reports whether this number is a target's.
    pub(crate) fn is_target(&self, qpn: Qpn) -> bool {
        self.objects.xrc.targets.contains(qpn)
    }

    /// Checks that a number is that of a target in the domain of this handle.
    ///
    /// # Errors
    /// `Invalid`: it is not.
    pub(crate) fn check_target(&self, xrcd: Handle, qpn: Qpn) -> Result<(), ResourceError> {
        self.objects.xrc.targets.check(self.objects.xrc.domain_of(xrcd)?, qpn)
    }

    /// Opens a target: it lives at least until the registration is closed, and its events come with `cookie`
    /// as well.
    ///
    /// # Errors
    /// `Invalid`: no such target exists in the domain of this handle.
    pub(crate) fn register_target(
        &mut self,
        xrcd: Handle,
        qpn: Qpn,
        cookie: u64,
    ) -> Result<TargetOpened, ResourceError> {
        self.check_target(xrcd, qpn)?;
        let opened = self.objects.xrc.targets.open(qpn, xrcd, cookie)?;
        self.objects.xrc.use_open(xrcd);
        Ok(opened)
    }

    /// Closes a target for one of its owners; the owner's unread events are dropped.
    ///
    /// # Errors
    /// `Invalid`: no such registration exists.
    pub(crate) fn unregister_target(&mut self, qpn: Qpn, id: u32) -> Result<TargetClosed, ResourceError> {
        let closed = self.objects.xrc.targets.close(qpn, id)?;
        self.objects.xrc.release_open(closed.xrcd);
        self.port.async_events.purge(&closed.account);
        Ok(closed)
    }

    /// Raises an event of a target for all who have it open. Returns false if this is no target's number.
    pub(super) fn raise_target_event(&mut self, qpn: Qpn, event: AsyncEventType) -> bool {
        let Some(domain) = self.objects.xrc.targets.domain_of(qpn) else { return false };
        if self.objects.xrc.shared(domain).is_some() {
            self.objects.xrc.targets.note_raised(qpn, event);
        }
        self.objects.xrc.targets.show(qpn, event, &self.port.async_events)
    }
}

impl TargetHost for DeviceHost<'_> {
    fn xrc(&mut self) -> &mut XrcDomains {
        &mut self.objects.xrc
    }

    fn show_target_event(&mut self, qpn: Qpn, event: AsyncEventType) {
        if !self.objects.xrc.targets.show(qpn, event, &self.port.async_events) {
            self.raise_attached_event(qpn, event);
        }
    }

    fn adopt_target(&mut self, qpn: Qpn, domain: u32, half: bool) -> QpContext {
        self.insert_target(qpn, domain, half)
    }

    fn forget_target(&mut self, qpn: Qpn) {
        self.objects.xrc.targets.remove(qpn);
        self.completions.qp_failures.retain(|failure| failure.qpn != qpn);
        self.objects.memory.unbind_windows_of(qpn);
    }
}
