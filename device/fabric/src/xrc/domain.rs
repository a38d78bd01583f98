//! The XRC domains of this process. A domain is a set of SRQs and targets that may meet; every open of a
//! domain has a handle of its own.

use std::fs::File;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use pumice_model::port::group::SharedResources;
use pumice_platform::error::ResourceError;
use pumice_platform::table::{Handle, Table};

use super::file::DomainFile;
use super::registrations::Registrations;

/// The arguments for opening an XRC domain that a file names (`ibv_open_xrcd` with a descriptor).
#[derive(Debug, Clone, Copy)]
pub struct XrcdFile<'a> {
    /// Open descriptor of the file; it may be closed afterwards.
    pub fd: BorrowedFd<'a>,
    /// `O_CREAT`: make the domain if it is not open in any process.
    pub create: bool,
    /// `O_EXCL`: refuse if it is open.
    pub exclusive: bool,
}

/// The name of a domain: a file, by its device and inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct FileKey {
    device: u64,
    inode: u64,
}

/// The domains that this process has open, and the targets that it knows.
#[derive(Debug)]
pub struct XrcDomains {
    opens: Table<DomainOpen>,
    domains: Table<XrcDomain>,
    #[doc(hidden)]
    pub targets: Registrations,
    /// Number of domains that are shared.
    shared_count: u32,
}

#[derive(Debug)]
pub(crate) struct DomainOpen {
    domain: Handle,
    /// Number of SRQs, queue pairs of OFED 1.x, and registrations for targets.
    users: u32,
}

/// A domain of this process.
#[derive(Debug)]
pub(crate) struct XrcDomain {
    opens: u32,
    key: Option<FileKey>,
    /// File of the domain, held open so that its inode, and so the key, is not assigned to another file.
    _file: Option<File>,
    /// File that the processes of the domain share.
    shared: Option<Arc<DomainFile>>,
}

impl XrcDomains {
    #[doc(hidden)]
    pub fn new(limit: u32) -> XrcDomains {
        XrcDomains {
            opens: Table::new("XRC domain", limit),
            domains: Table::new("XRC domain", limit),
            targets: Registrations::default(),
            shared_count: 0,
        }
    }

    /// Makes a domain that has no name: only this handle leads to it.
    ///
    /// # Errors
    /// Fails with `NoMemory` if the table is full.
    pub fn open_unnamed(&mut self) -> Result<Handle, ResourceError> {
        self.insert(XrcDomain { opens: 0, key: None, _file: None, shared: None })
    }

    /// Opens the domain of a file, by the rules of `ibv_open_xrcd`. Without `shared_resources` the domain is
    /// not shared with other processes.
    ///
    /// # Errors
    /// Fails with `Os`: EAGAIN if it is not open in any process and `create` is not set, EBADF if the
    /// descriptor is invalid. Fails with `Invalid` if it is open and `exclusive` is set, and with `NoMemory`
    /// if the table is full.
    pub fn open_of_file(
        &mut self,
        file: &XrcdFile<'_>,
        shared_resources: Option<&SharedResources>,
    ) -> Result<Handle, ResourceError> {
        let failed = |error: std::io::Error| ResourceError::Os {
            what: "look at the file of the XRC domain",
            errno: error.raw_os_error().unwrap_or(libc::EBADF),
        };
        let pinned = File::from(file.fd.try_clone_to_owned().map_err(failed)?);
        let about = pinned.metadata().map_err(failed)?;
        let key = FileKey { device: about.dev(), inode: about.ino() };
        let known = self.by_key(key);
        let (shared, exists) = match known.and_then(|handle| self.domains.get(handle)) {
            Some(domain) => {
                let others = domain.shared.as_ref().is_some_and(|shared| shared.has_others());
                (None, domain.opens > 0 || others)
            }
            None => match shared_resources {
                Some(shared_resources) => {
                    let (shared, others) = DomainFile::open(shared_resources, key.device, key.inode)?;
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
                what: "open an XRC domain that no process has made (give O_CREAT)",
                errno: libc::EAGAIN,
            });
        }
        match known {
            Some(domain) => self.open(domain),
            None => self.insert(XrcDomain { opens: 0, key: Some(key), _file: Some(pinned), shared }),
        }
    }

    fn by_key(&self, key: FileKey) -> Option<Handle> {
        self.domains.iter().find(|(_, domain)| domain.key == Some(key)).map(|(handle, _)| handle)
    }

    fn insert(&mut self, domain: XrcDomain) -> Result<Handle, ResourceError> {
        let shared = u32::from(domain.shared.is_some());
        let domain = self.domains.insert(domain)?;
        let opened = self.open(domain);
        match opened {
            Ok(_) => self.shared_count += shared,
            Err(_) => {
                self.domains.remove(domain);
            }
        }
        opened
    }

    fn open(&mut self, domain: Handle) -> Result<Handle, ResourceError> {
        let open = self.opens.insert(DomainOpen { domain, users: 0 })?;
        if let Some(domain) = self.domains.get_mut(domain) {
            domain.opens += 1;
        }
        Ok(open)
    }

    /// Returns how many SRQs, queue pairs and registrations were made through a handle.
    ///
    /// # Errors
    /// Fails with `Invalid` if the handle is stale.
    pub fn users(&self, xrcd: Handle) -> Result<u32, ResourceError> {
        Ok(self.opens.require(xrcd)?.users)
    }

    /// Closes a domain without users. The domain ends with its last open.
    ///
    /// # Errors
    /// Fails with `Invalid` if the handle is stale.
    pub fn close(&mut self, xrcd: Handle) -> Result<(), ResourceError> {
        let domain = self.opens.require(xrcd)?.domain;
        self.opens.remove(xrcd);
        if let Some(of) = self.domains.get_mut(domain) {
            of.opens = of.opens.saturating_sub(1);
            self.drop_unused(domain.index);
        }
        Ok(())
    }

    /// Removes a domain that is not open any more. A domain in which other processes have targets with this
    /// process's numbers stays, because the packets for them come here.
    pub fn drop_unused(&mut self, domain: u32) {
        let Some(handle) = self.domains.handle_at(domain) else { return };
        let unused = self.domains.get(handle).is_some_and(|domain| domain.opens == 0);
        if unused && self.targets.of_domain(domain).next().is_none() {
            let removed = self.domains.remove(handle);
            self.shared_count -= u32::from(removed.is_some_and(|domain| domain.shared.is_some()));
        }
    }

    /// Returns the index of the domain behind a handle.
    ///
    /// # Errors
    /// Fails with `Invalid` if the handle is stale.
    pub fn domain_of(&self, xrcd: Handle) -> Result<u32, ResourceError> {
        Ok(self.opens.require(xrcd)?.domain.index)
    }

    /// Counts one more object that was made through a handle.
    pub fn use_open(&mut self, xrcd: Handle) {
        if let Some(open) = self.opens.get_mut(xrcd) {
            open.users += 1;
        }
    }

    /// Counts the destruction of one of these objects.
    pub fn release_open(&mut self, xrcd: Handle) {
        if let Some(open) = self.opens.get_mut(xrcd) {
            open.users = open.users.saturating_sub(1);
        }
    }

    /// Returns the file that a domain shares with other processes, if it is shared.
    pub fn shared(&self, domain: u32) -> Option<&Arc<DomainFile>> {
        self.domains.at(domain)?.shared.as_ref()
    }

    /// Returns all shared domains, by index.
    pub fn all_shared(&self) -> Vec<(u32, Arc<DomainFile>)> {
        let shared = |(handle, domain): (Handle, &XrcDomain)| Some((handle.index, domain.shared.clone()?));
        self.domains.iter().filter_map(shared).collect()
    }

    /// Reports whether a domain stays in the table although this process does not have it open.
    pub fn is_lingering(&self, domain: u32) -> bool {
        self.domains.at(domain).is_some_and(|domain| domain.opens == 0)
    }

    /// Returns the number of opens of domains.
    pub const fn open_count(&self) -> usize {
        self.opens.len()
    }

    /// Reports whether any domain is shared.
    pub const fn shares(&self) -> bool {
        self.shared_count > 0
    }
}
