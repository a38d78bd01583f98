//! The objects that programs create on a device, except queue pairs.
//!
//! Protection domains, XRC domains, and XRC targets that another part of the program created.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use pumice_calls::Call;
use pumice_device::hca::{TargetRegistration, XrcdFile};
use pumice_device::platform::table::Handle;
use pumice_transport::qp::{AttributeMask, QpAttributes};
use pumice_transport::wire::Qpn;

use crate::device::Device;
use crate::device::calls::gated_call;
use crate::error::{Result, VerbsError};

/// A protection domain: its queue pairs reach only its own memory. Cheap to clone; destroyed with its last
/// clone and the last object made in it.
#[derive(Debug, Clone)]
pub struct ProtectionDomain(Arc<DomainInner>);

#[derive(Debug)]
struct DomainInner {
    device: Device,
    handle: Handle,
}

impl Device {
    /// Creates a protection domain.
    ///
    /// # Errors
    /// `Refused`: the device has as many as it can.
    pub fn protection_domain(&self) -> Result<ProtectionDomain> {
        ProtectionDomain::new(self)
    }

    /// Creates an XRC domain.
    ///
    /// # Errors
    /// `Refused`: the device has as many as it can.
    pub fn xrc_domain(&self) -> Result<XrcDomain> {
        XrcDomain::new(self)
    }

    /// Opens the XRC domain of a file: all processes of this user that open it through the same file get the
    /// same domain. The file may be closed afterwards.
    ///
    /// # Errors
    /// `Refused`: it is not open and `opening` asks for one that is, or the other way round; the device
    /// has as many as it can.
    pub fn xrc_domain_of_file(&self, file: &impl AsFd, opening: XrcDomainOpening) -> Result<XrcDomain> {
        XrcDomain::of_file(self, file.as_fd(), opening)
    }
}

impl ProtectionDomain {
    fn new(device: &Device) -> Result<ProtectionDomain> {
        let handle = gated_call(device, Call::ibv_alloc_pd, || {
            device.hca().alloc_pd().map_err(VerbsError::refused("protection domain"))
        })?;
        Ok(ProtectionDomain(Arc::new(DomainInner { device: device.clone(), handle })))
    }

    /// Returns the device of the domain.
    pub fn device(&self) -> &Device {
        &self.0.device
    }

    /// Returns the handle that names the domain in calls of [`Device::hca`].
    pub fn handle(&self) -> Handle {
        self.0.handle
    }
}

impl Drop for DomainInner {
    fn drop(&mut self) {
        // Everything made in it held it alive, so it is unused now.
        let _ = self.device.hca().dealloc_pd(self.handle);
    }
}

/// An XRC domain: targets of it receive for all its shared receive queues. Cheap to clone; closed with its
/// last clone and the last object made in it.
#[derive(Debug, Clone)]
pub struct XrcDomain(Arc<XrcInner>);

#[derive(Debug)]
struct XrcInner {
    device: Device,
    handle: Handle,
}

/// The choice whether an XRC domain must have been opened before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum XrcDomainOpening {
    /// Creates or joins it (`O_CREAT`).
    #[default]
    Any,
    /// Joins it (no flag).
    Existing,
    /// Creates it (`O_CREAT | O_EXCL`).
    New,
}

impl XrcDomain {
    fn of_file(device: &Device, fd: BorrowedFd<'_>, opening: XrcDomainOpening) -> Result<XrcDomain> {
        let (create, exclusive) = (opening != XrcDomainOpening::Existing, opening == XrcDomainOpening::New);
        let handle = gated_call(device, Call::ibv_open_xrcd, || {
            let opened = device.hca().open_xrcd_of_file(&XrcdFile { fd, create, exclusive });
            opened.map_err(VerbsError::refused("XRC domain"))
        })?;
        Ok(XrcDomain(Arc::new(XrcInner { device: device.clone(), handle })))
    }

    fn new(device: &Device) -> Result<XrcDomain> {
        let handle = gated_call(device, Call::ibv_open_xrcd, || {
            device.hca().open_xrcd().map_err(VerbsError::refused("XRC domain"))
        })?;
        Ok(XrcDomain(Arc::new(XrcInner { device: device.clone(), handle })))
    }

    /// Returns the device of the domain.
    pub fn device(&self) -> &Device {
        &self.0.device
    }

    /// Returns the handle that names the domain in calls of [`Device::hca`].
    pub fn handle(&self) -> Handle {
        self.0.handle
    }

    /// Opens a target of this domain by its number; `cookie` names it in asynchronous events.
    ///
    /// # Errors
    /// `Refused`: there is no such target in this domain.
    pub fn open_target(&self, qpn: Qpn, cookie: u64) -> Result<OpenedTarget> {
        let registration = gated_call(self.device(), Call::ibv_open_qp, || {
            let opened = self.device().hca().open_target(self.handle(), qpn, cookie);
            opened.map_err(VerbsError::refused("XRC target"))
        })?;
        Ok(OpenedTarget { registration, domain: self.clone() })
    }

    /// Returns all present attributes of a target of this domain (`ibv_query_xrc_rcv_qp`).
    ///
    /// # Errors
    /// `Refused`: there is no such target in this domain.
    pub fn query_target(&self, qpn: Qpn) -> Result<QpAttributes> {
        gated_call(self.device(), Call::ibv_query_xrc_rcv_qp, || {
            self.device().hca().query_target(self.handle(), qpn).map_err(VerbsError::refused("XRC target"))
        })
    }

    /// Changes state and attributes of a target of this domain (`ibv_modify_xrc_rcv_qp`).
    ///
    /// # Errors
    /// `Refused`: there is no such target in this domain, or an attribute, which the error names, is missing,
    /// not allowed or wrong.
    pub fn modify_target(&self, qpn: Qpn, attributes: &QpAttributes, mask: AttributeMask) -> Result<()> {
        gated_call(self.device(), Call::ibv_modify_xrc_rcv_qp, || {
            let changed = self.device().hca().modify_target(self.handle(), qpn, attributes, mask);
            changed.map_err(VerbsError::refused("XRC target"))
        })
    }
}

impl Drop for XrcInner {
    fn drop(&mut self) {
        // The same as for protection domains.
        let _ = self.device.hca().close_xrcd(self.handle);
    }
}

/// A reference to an XRC target that exists (`ibv_open_qp`, `ibv_reg_xrc_rcv_qp`): the target lives at least
/// as long, and its asynchronous events are delivered here as well. Another process may have created it.
#[derive(Debug)]
pub struct OpenedTarget {
    registration: TargetRegistration,
    domain: XrcDomain,
}

impl OpenedTarget {
    /// Returns its number.
    pub fn qpn(&self) -> Qpn {
        self.registration.qpn
    }

    /// Returns all present attributes.
    ///
    /// # Errors
    /// The errors of [`XrcDomain::query_target`].
    pub fn query(&self) -> Result<QpAttributes> {
        self.domain.query_target(self.qpn())
    }

    /// Changes state and attributes.
    ///
    /// # Errors
    /// The errors of [`XrcDomain::modify_target`].
    pub fn modify(&self, attributes: &QpAttributes, mask: AttributeMask) -> Result<()> {
        self.domain.modify_target(self.qpn(), attributes, mask)
    }
}

impl Drop for OpenedTarget {
    fn drop(&mut self) {
        // It was opened, so it can be closed.
        let _ = self.domain.device().hca().close_target(self.registration);
    }
}

pub(crate) mod address;
pub(crate) mod completion;
pub(crate) mod memory;
pub(crate) mod receive;
