//! The file behind a context's `cmd_fd`: the objects that were made through it. A program imports the device
//! with a duplicate of the descriptor, and then both contexts name the same objects.
//!
//! A descriptor is an anonymous file that only has an identity. A descriptor of another process can be
//! imported too, and gives a context without objects: those live in the process that made them.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use pumice_device::hca::TargetRegistration;
use pumice_device::memory::DeviceMemory;
use pumice_device::objects::completion_queue::CompletionQueue;
use pumice_device::outside;
use pumice_device::outside::fork_generation::PerProcess;

use crate::platform;
use crate::platform::{Errno, FileIdentity, INVALID, NOT_SUPPORTED, identity};

/// An object that is destroyed with its context, in the order of destruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum OwnedObject {
    Window(u64),
    Flow(u32),
    QueuePair(u32),
    Target(TargetRegistration),
    /// A reserved queue pair number without a queue pair.
    ReservedNumber(u32),
    SharedReceiveQueue(u64),
    CompletionQueue(u64),
    IndirectKey(u64),
    Region(u64),
    AddressHandle(u64),
    XrcDomain(u64),
    ProtectionDomain(u64),
}

/// Name of the anonymous files, by which descriptors from other processes are recognised.
const NAME: &str = "pumice-context";

/// Objects of one command file.
pub(crate) struct CommandFile {
    identity: FileIdentity,
    /// True if it was made by another process, or by the one that this was forked from.
    foreign: bool,
    /// Index of its device among the devices.
    device: usize,
    owned: Mutex<BTreeMap<OwnedObject, Option<Arc<CompletionQueue>>>>,
    device_memory: Mutex<DeviceMemories>,
}

#[derive(Default)]
struct DeviceMemories {
    by_handle: BTreeMap<u32, Arc<DeviceMemory>>,
    last_handle: u32,
}

/// Command files of the process that have contexts.
static FILES: PerProcess<Mutex<Vec<Weak<CommandFile>>>> = PerProcess::new(|_| Mutex::default());

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the name of the anonymous file of a device's context.
fn name_of(device: usize) -> CString {
    CString::new(format!("{NAME}-{device}")).unwrap_or_default()
}

/// Returns the device of a context whose anonymous file has this name in /proc.
fn device_in(name: &str) -> Option<usize> {
    let number = name.strip_prefix("/memfd:")?.strip_prefix(NAME)?.strip_prefix('-')?;
    let digits = number.split(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse().ok()
}

impl CommandFile {
    /// Returns the index of its device among the devices.
    pub(crate) const fn device(&self) -> usize {
        self.device
    }

    /// Creates a file and its descriptor.
    ///
    /// # Errors
    /// Fails with the errno of pipe(2), which is used if memfd_create(2) is refused.
    pub(crate) fn create(device: usize) -> Result<(OwnedFd, Arc<CommandFile>), Errno> {
        let descriptor = match platform::anonymous_file(&name_of(device)) {
            Ok(descriptor) => descriptor,
            // A sandbox may forbid it. Any file has an identity; other processes cannot import this one.
            Err(_) => {
                io::pipe().map_err(|error| Errno(error.raw_os_error().unwrap_or(libc::EMFILE)))?.0.into()
            }
        };
        let file = CommandFile::add(identity(descriptor.as_raw_fd())?, device, false);
        Ok((descriptor, file))
    }

    /// Returns the file behind a descriptor.
    ///
    /// # Errors
    /// Fails with EBADF if the number is no descriptor, and with EINVAL if it is no command file.
    pub(crate) fn of(descriptor: RawFd) -> Result<Arc<CommandFile>, Errno> {
        let identity = identity(descriptor)?;
        let known = lock(&FILES).iter().filter_map(Weak::upgrade).find(|file| file.identity == identity);
        if let Some(file) = known {
            return Ok(file);
        }
        let name = outside::files::link(format!("/proc/self/fd/{descriptor}")).unwrap_or_default();
        let device = device_in(&name.to_string_lossy()).ok_or_else(|| {
            INVALID
                .because(|| format!("descriptor {descriptor} is not the cmd_fd of a context of this library"))
        })?;
        Ok(CommandFile::add(identity, device, true))
    }

    fn add(identity: FileIdentity, device: usize, foreign: bool) -> Arc<CommandFile> {
        let file = Arc::new(CommandFile {
            identity,
            foreign,
            device,
            owned: Mutex::default(),
            device_memory: Mutex::default(),
        });
        let mut files = lock(&FILES);
        files.retain(|file| file.strong_count() > 0);
        files.push(Arc::downgrade(&file));
        file
    }

    /// Records an object, with its completion queue if it is one.
    pub(crate) fn own(&self, owned: OwnedObject, cq: Option<Arc<CompletionQueue>>) {
        lock(&self.owned).insert(owned, cq);
    }

    pub(crate) fn disown(&self, owned: OwnedObject) {
        lock(&self.owned).remove(&owned);
    }

    /// Returns the first result of `find` over the objects.
    ///
    /// # Errors
    /// Fails with EOPNOTSUPP if the objects of the file are in another process, and with EINVAL if `find` has
    /// no result.
    pub(crate) fn find<T>(
        &self,
        what: &str,
        find: impl FnMut(&OwnedObject) -> Option<T>,
    ) -> Result<T, Errno> {
        self.check_importable(what)?;
        let found = lock(&self.owned).keys().find_map(find);
        found.ok_or_else(|| INVALID.because(|| format!("this device file has no {what} with that handle")))
    }

    fn check_importable(&self, what: &str) -> Result<(), Errno> {
        if !self.foreign {
            return Ok(());
        }
        Err(NOT_SUPPORTED.because(|| {
            format!("the device file came from another process, whose {what}s cannot be reached from here")
        }))
    }

    /// Returns all objects, if `file` is the last context's share of them.
    pub(crate) fn leftovers(file: &Arc<CommandFile>) -> BTreeMap<OwnedObject, Option<Arc<CompletionQueue>>> {
        // While this lock is held no thread finds the file.
        let _files = lock(&FILES);
        if Arc::strong_count(file) > 1 {
            return BTreeMap::new();
        }
        std::mem::take(&mut *lock(&file.owned))
    }

    /// Stores device memory, and gives it a handle.
    pub(crate) fn store_device_memory(&self, memory: &Arc<DeviceMemory>) -> u32 {
        let mut memories = lock(&self.device_memory);
        memories.last_handle = memories.last_handle.wrapping_add(1);
        let handle = memories.last_handle;
        memories.by_handle.insert(handle, Arc::clone(memory));
        handle
    }

    /// Returns device memory by its handle.
    ///
    /// # Errors
    /// Fails as [`CommandFile::find`].
    pub(crate) fn device_memory(&self, handle: u32) -> Result<Arc<DeviceMemory>, Errno> {
        self.check_importable("device memory allocation")?;
        lock(&self.device_memory).by_handle.get(&handle).cloned().ok_or(INVALID)
    }

    pub(crate) fn forget_device_memory(&self, handle: u32) {
        lock(&self.device_memory).by_handle.remove(&handle);
    }
}
