//! XRC domains and their targets, as this process sees them. A domain is a set of SRQs and targets that may meet; every open of a
//! domain has a handle of its own. A target belongs to all who have it open, and lives until the last
//! of them closes it.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use pumice_transport::host::QpContext;
use pumice_transport::types::AsyncEventType;
use pumice_transport::wire::Qpn;

use super::users::check_unused;
use super::{NO_OBJECT, Resources};
use crate::ground::error::ResourceError;
use crate::ground::table::{Handle, Table};
use crate::objects::async_event::AsyncElement;
use crate::objects::event_account::EventAccount;
use crate::port::Commons;
use crate::xrc::DomainFile;

/// How to open an XRC domain that a file names (`ibv_open_xrcd` with a descriptor).
#[derive(Debug, Clone, Copy)]
pub struct XrcdFile<'a> {
    /// An open descriptor of the file; it may be closed afterwards.
    pub fd: BorrowedFd<'a>,
    /// `O_CREAT`: make the domain if nobody has it open.
    pub create: bool,
    /// `O_EXCL`: refuse if somebody has it open.
    pub exclusive: bool,
}

/// What names a domain: a file, by its device and inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct FileKey {
    pub(crate) device: u64,
    pub(crate) inode: u64,
}

/// Domains, who has them open, and their targets.
#[derive(Debug)]
pub(crate) struct XrcDomains {
    opens: Table<Open>,
    domains: Table<XrcDomain>,
    targets: BTreeMap<u32, Target>,
    /// Events of targets since the engine last took them, for the other processes of shared domains.
    raised: Vec<(u32, AsyncEventType)>,
    /// Domains that are shared.
    shared_count: u32,
}

#[derive(Debug)]
struct Open {
    domain: Handle,
    /// SRQs, and registrations for targets.
    users: u32,
}

/// A domain of this process.
#[derive(Debug)]
struct XrcDomain {
    opens: u32,
    key: Option<FileKey>,
    /// Keeps the inode, and so the key, from being given to another file.
    _file: Option<File>,
    /// What it has in common with other processes.
    shared: Option<Arc<DomainFile>>,
}

/// An XRC target as the device's tables see it.
#[derive(Debug)]
struct Target {
    context: QpContext,
    registrations: Vec<Registration>,
    next_registration: u32,
    /// Of a queue pair of OFED 1.x, whose maker alone has it.
    half: bool,
    /// QP_FATAL was raised and the engine told.
    fatal: bool,
}

/// Somebody who has a target open.
#[derive(Debug)]
struct Registration {
    id: u32,
    cookie: u64,
    account: Arc<EventAccount>,
    /// The open of the domain through which it was made.
    xrcd: Handle,
}

/// The registration of a target's creator.
pub(crate) const CREATOR: u32 = 0;

/// A registration that ended.
#[derive(Debug)]
pub(crate) struct TargetClosed {
    /// Wait until its events are acknowledged, without the engine's lock.
    pub(crate) account: Arc<EventAccount>,
    /// Nobody of this process has the target open any more.
    pub(crate) last: bool,
}

impl XrcDomains {
    pub(super) fn new(limit: u32) -> XrcDomains {
        XrcDomains {
            opens: Table::new("XRC domain", limit),
            domains: Table::new("XRC domain", limit),
            targets: BTreeMap::new(),
            raised: Vec::new(),
            shared_count: 0,
        }
    }

    /// The index of the domain behind a handle.
    pub(crate) fn domain_of(&self, xrcd: Handle) -> Result<u32, ResourceError> {
        Ok(self.opens.require(xrcd)?.domain.index)
    }

    pub(super) fn use_open(&mut self, xrcd: Handle) {
        if let Some(open) = self.opens.get_mut(xrcd) {
            open.users += 1;
        }
    }

    pub(super) fn release_open(&mut self, xrcd: Handle) {
        if let Some(open) = self.opens.get_mut(xrcd) {
            open.users = open.users.saturating_sub(1);
        }
    }

    fn open(&mut self, domain: Handle) -> Result<Handle, ResourceError> {
        let open = self.opens.insert(Open { domain, users: 0 })?;
        if let Some(domain) = self.domains.get_mut(domain) {
            domain.opens += 1;
        }
        Ok(open)
    }

    fn by_key(&self, key: FileKey) -> Option<Handle> {
        self.domains.iter().find(|(_, domain)| domain.key == Some(key)).map(|(handle, _)| handle)
    }

    /// What a domain has in common with other processes.
    pub(crate) fn shared(&self, domain: u32) -> Option<&Arc<DomainFile>> {
        self.domains.at(domain)?.shared.as_ref()
    }

    /// All shared domains, by index.
    pub(crate) fn all_shared(&self) -> Vec<(u32, Arc<DomainFile>)> {
        let shared = |(handle, domain): (Handle, &XrcDomain)| Some((handle.index, domain.shared.clone()?));
        self.domains.iter().filter_map(shared).collect()
    }

    /// Whether a domain is kept though nobody has it open.
    pub(crate) fn is_lingering(&self, domain: u32) -> bool {
        self.domains.at(domain).is_some_and(|domain| domain.opens == 0)
    }

    /// Opens of domains.
    pub(crate) const fn open_count(&self) -> usize {
        self.opens.len()
    }

    /// Whether any domain is shared.
    pub(crate) fn shares(&self) -> bool {
        self.shared_count > 0
    }

    /// Takes the events of a target that the other processes have not been told.
    pub(crate) fn take_raised(&mut self, qpn: Qpn, mut each: impl FnMut(AsyncEventType)) {
        self.raised.retain(|&(of, event)| {
            if of == qpn.value() {
                each(event);
            }
            of != qpn.value()
        });
    }
}

impl Resources {
    /// Makes an XRC domain that has no name: only this handle leads to it.
    ///
    /// # Errors
    /// `NoMemory`: the table is full.
    pub fn open_xrcd(&mut self) -> Result<Handle, ResourceError> {
        let domain = XrcDomain { opens: 0, key: None, _file: None, shared: None };
        self.insert_domain(domain)
    }

    /// Opens the XRC domain of a file, by the rules of `ibv_open_xrcd`. Without `commons` there are no other
    /// processes.
    ///
    /// # Errors
    /// `Os`: EAGAIN, nobody has it open and `create` is not set; EBADF, the descriptor is none. `Invalid`:
    /// it is open and `exclusive` is set. `NoMemory`: the table is full.
    pub fn open_xrcd_of_file(
        &mut self,
        file: &XrcdFile<'_>,
        commons: Option<&Commons>,
    ) -> Result<Handle, ResourceError> {
        let failed = |error: std::io::Error| ResourceError::Os {
            what: "look at the file of the XRC domain",
            errno: error.raw_os_error().unwrap_or(libc::EBADF),
        };
        let pinned = File::from(file.fd.try_clone_to_owned().map_err(failed)?);
        let about = pinned.metadata().map_err(failed)?;
        let key = FileKey { device: about.dev(), inode: about.ino() };
        let known = self.xrc.by_key(key);
        let (shared, exists) = match known.and_then(|handle| self.xrc.domains.get(handle)) {
            Some(domain) => {
                let others = domain.shared.as_ref().is_some_and(|shared| shared.has_others());
                (None, domain.opens > 0 || others)
            }
            None => match commons {
                Some(commons) => {
                    let (shared, others) = DomainFile::open(commons, key.device, key.inode)?;
                    (Some(Arc::new(shared)), others)
                }
                None => (None, false),
            },
        };
        if exists && file.exclusive {
            return Err(ResourceError::invalid("the XRC domain of the file is open, and O_EXCL was given"));
        }
        if !exists && !file.create {
            return Err(ResourceError::Os {
                what: "open an XRC domain that nobody has made (give O_CREAT)",
                errno: libc::EAGAIN,
            });
        }
        match known {
            Some(domain) => self.xrc.open(domain),
            None => self.insert_domain(XrcDomain { opens: 0, key: Some(key), _file: Some(pinned), shared }),
        }
    }

    fn insert_domain(&mut self, domain: XrcDomain) -> Result<Handle, ResourceError> {
        let shared = u32::from(domain.shared.is_some());
        let domain = self.xrc.domains.insert(domain)?;
        let opened = self.xrc.open(domain);
        match opened {
            Ok(_) => self.xrc.shared_count += shared,
            Err(_) => {
                self.xrc.domains.remove(domain);
            }
        }
        opened
    }

    /// Closes an XRC domain; it dies with its last open.
    ///
    /// # Errors
    /// `Busy`: SRQs or targets were made through this handle. `Invalid`: a stale handle.
    pub fn close_xrcd(&mut self, xrcd: Handle) -> Result<(), ResourceError> {
        let open = self.xrc.opens.require(xrcd)?;
        check_unused("the XRC domain", open.users, || self.users_of_xrcd(xrcd))?;
        let domain = open.domain;
        self.xrc.opens.remove(xrcd);
        if let Some(of) = self.xrc.domains.get_mut(domain) {
            of.opens = of.opens.saturating_sub(1);
            self.drop_unused_domain(domain.index);
        }
        Ok(())
    }

    /// Forgets a domain that nobody has open. One in which other processes have targets with this process's
    /// numbers stays: their packets come here.
    pub(crate) fn drop_unused_domain(&mut self, domain: u32) {
        let Some(handle) = self.xrc.domains.handle_at(domain) else { return };
        let unused = self.xrc.domains.get(handle).is_some_and(|domain| domain.opens == 0);
        if unused && !self.xrc.targets.values().any(|target| target.context.xrcd == domain) {
            let removed = self.xrc.domains.remove(handle);
            self.xrc.shared_count -= u32::from(removed.is_some_and(|domain| domain.shared.is_some()));
        }
    }

    /// The targets of a domain that are known here.
    pub(crate) fn targets_of(&self, domain: u32) -> Vec<Qpn> {
        let targets = self.xrc.targets.values();
        targets.filter(|target| target.context.xrcd == domain).map(|target| target.context.qpn).collect()
    }

    /// Makes the tables' side of a target that nobody has open yet.
    pub(crate) fn insert_target(&mut self, qpn: Qpn, domain: u32, half: bool) -> QpContext {
        let none = NO_OBJECT;
        let context = QpContext {
            qpn,
            pd: none,
            send_cq: none,
            recv_cq: none,
            recv_queue: none,
            xrcd: domain,
            ordinal: self.next_ordinal(),
        };
        let target =
            Target { context, registrations: Vec::new(), next_registration: CREATOR, half, fatal: false };
        self.xrc.targets.insert(qpn.value(), target);
        context
    }

    /// Whether this number is a target's.
    pub(crate) fn is_target(&self, qpn: Qpn) -> bool {
        self.xrc.targets.contains_key(&qpn.value())
    }

    /// Whether anybody of this process has the target open.
    pub(crate) fn has_registrations(&self, qpn: Qpn) -> bool {
        self.xrc.targets.get(&qpn.value()).is_some_and(|target| !target.registrations.is_empty())
    }

    /// Checks that a number is that of a target in the domain of this handle.
    ///
    /// # Errors
    /// `Invalid`: it is not.
    pub(crate) fn check_target(&self, xrcd: Handle, qpn: Qpn) -> Result<(), ResourceError> {
        let domain = self.xrc.domain_of(xrcd)?;
        match self.xrc.targets.get(&qpn.value()) {
            Some(target) if target.context.xrcd == domain && !target.half => Ok(()),
            _ => Err(ResourceError::invalid(format!("there is no XRC target {qpn} in this XRC domain"))),
        }
    }

    /// Opens a target for somebody: it lives at least until they close it, and they get its events.
    ///
    /// # Errors
    /// `Invalid`: there is no such target in the domain of this handle.
    pub(crate) fn register_target(
        &mut self,
        xrcd: Handle,
        qpn: Qpn,
        cookie: u64,
    ) -> Result<(u32, Arc<EventAccount>), ResourceError> {
        self.check_target(xrcd, qpn)?;
        self.xrc.use_open(xrcd);
        let account = Arc::new(EventAccount::new());
        let Some(target) = self.xrc.targets.get_mut(&qpn.value()) else {
            return Err(ResourceError::invalid(format!("there is no XRC target {qpn}")));
        };
        let id = target.next_registration;
        target.next_registration += 1;
        target.registrations.push(Registration { id, cookie, account: Arc::clone(&account), xrcd });
        Ok((id, account))
    }

    /// Closes a target for one of those who have it open; their unread events are gone.
    ///
    /// # Errors
    /// `Invalid`: there is no such registration.
    pub(crate) fn unregister_target(&mut self, qpn: Qpn, id: u32) -> Result<TargetClosed, ResourceError> {
        let target = self.xrc.targets.get_mut(&qpn.value());
        let found = target.and_then(|target| {
            let place = target.registrations.iter().position(|registration| registration.id == id)?;
            let gone = target.registrations.remove(place);
            Some((gone, target.registrations.is_empty()))
        });
        let Some((gone, last)) = found else {
            return Err(ResourceError::invalid(format!("XRC target {qpn} is not open here")));
        };
        self.xrc.release_open(gone.xrcd);
        self.async_events.purge(&gone.account);
        Ok(TargetClosed { account: gone.account, last })
    }

    /// Forgets a target that is destroyed.
    pub(crate) fn remove_target(&mut self, qpn: Qpn) {
        self.xrc.targets.remove(&qpn.value());
        self.xrc.take_raised(qpn, |_| {});
        self.qp_faults.retain(|fault| fault.qpn != qpn);
        self.memory.unbind_windows_of(qpn);
    }

    /// Raises an event of a target for all who have it open. False: this is no target's number.
    pub(super) fn raise_target_event(&mut self, qpn: Qpn, event: AsyncEventType) -> bool {
        let Some(target) = self.xrc.targets.get(&qpn.value()) else { return false };
        if self.xrc.shared(target.context.xrcd).is_some() {
            self.xrc.raised.push((qpn.value(), event));
        }
        self.show_target_event(qpn, event);
        true
    }

    /// Shows an event, which perhaps another process raised, to all of this process who have the target open.
    pub(crate) fn show_target_event(&self, qpn: Qpn, event: AsyncEventType) {
        let Some(target) = self.xrc.targets.get(&qpn.value()) else {
            return self.raise_attached_event(qpn, event);
        };
        for registration in &target.registrations {
            let element = AsyncElement::Qp { qpn: qpn.value(), cookie: registration.cookie };
            self.async_events.raise_for(event, element, &registration.account);
        }
    }

    /// The flag that says that a target's QP_FATAL was raised.
    pub(super) fn target_fatal(&mut self, qpn: Qpn) -> Option<&mut bool> {
        self.xrc.targets.get_mut(&qpn.value()).map(|target| &mut target.fatal)
    }
}
