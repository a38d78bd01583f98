//! The one device of this host, `pumice0`, and the HCA that all contexts of a process share.
//! The PUMICE_* variables (`pumice_device::settings`) say what it is like.

use std::ffi::{c_char, c_int};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex, Once, OnceLock, PoisonError, Weak};
use std::time::Duration;

use pumice_device::addresses::gid_table::GidEntry;
use pumice_device::addresses::guid::node_guid;
use pumice_device::ground::clock::Clock;
use pumice_device::ground::limits::Limits;
use pumice_device::hca::{CqSetup, Hca, HcaConfig};
use pumice_device::objects::completion_queue::CompletionQueue;
use pumice_device::port::UdpConfig;
use pumice_device::settings::{DEFAULT_DEVICE, Log};
use pumice_device::share::{ShareConfig, SharedPort};
use pumice_device::system::interface::{Interface, interfaces};
use pumice_transport::types::WorkCompletion;

use crate::ground::abi::ibv_device;
use crate::ground::errno::Errno;
use crate::ground::handles::{Held, zeroed};
use crate::ground::log::{self, complain, explain, explain_cause, logs};
use crate::ground::outcome::{pointer, value};
use crate::ground::settings::{profile, settings};
use crate::objects::async_event::Distributor;
use crate::objects::capture;

/// `IBV_NODE_CA`.
const NODE_CHANNEL_ADAPTER: c_int = 1;

/// The device as programs see it.
#[repr(C)]
pub(crate) struct Device {
    c: ibv_device,
    /// The system's libmlx5 and libefa look behind `ibv_device` for their own fields: zero is "not mine".
    behind: [u64; 16],
    guid: [u8; 8],
}

// SAFETY: nothing in it changes once it is made, and its pointers are null.
unsafe impl Send for Device {}
// SAFETY: as above.
unsafe impl Sync for Device {}
// SAFETY: the first field is the C structure.
unsafe impl Held for Device {
    type C = ibv_device;
}

impl Device {
    fn new() -> Device {
        // Wrong settings are refused before anybody gets the device.
        let name = settings().map_or(DEFAULT_DEVICE, |settings| &settings.device);
        // SAFETY: numbers, null pointers and empty strings.
        let mut c: ibv_device = unsafe { zeroed() };
        c.node_type = NODE_CHANNEL_ADAPTER;
        set_text(&mut c.name, name);
        set_text(&mut c.dev_name, "uverbs0");
        set_text(&mut c.dev_path, "/sys/class/infiniband_verbs/uverbs0");
        set_text(&mut c.ibdev_path, &format!("/sys/class/infiniband/{name}"));
        let found = interfaces().unwrap_or_default();
        let guid = node_guid(&found, gid_entries().as_deref().unwrap_or_default());
        Device { c, behind: [0; 16], guid }
    }

    /// GUID of the node, as it travels.
    pub(crate) const fn guid(&self) -> [u8; 8] {
        self.guid
    }

    /// Its name.
    pub(crate) fn name(&self) -> String {
        self.c.name.iter().take_while(|c| **c != 0).map(|c| char::from(*c as u8)).collect()
    }
}

fn set_text(field: &mut [c_char], text: &str) {
    let room = field.len().saturating_sub(1);
    for (place, byte) in field.iter_mut().zip(text.bytes()).take(room) {
        *place = byte as c_char;
    }
}

/// The addresses that the device offers, in GID table order.
pub(crate) fn gid_entries() -> Result<Vec<GidEntry>, Errno> {
    let found = interfaces().map_err(|e| Errno(e.raw_os_error().unwrap_or(libc::EIO)))?;
    gid_entries_among(&found)
}

/// The addresses of the device that are there, on interfaces that are up; none if the system does not tell.
/// 127.0.0.1 and ::1 stay if they were offered before the host had other addresses: queue pairs may use them.
fn gid_entries_now(offered: &[GidEntry]) -> Option<Vec<GidEntry>> {
    let found = interfaces().ok()?;
    // The one address that was asked for may have gone.
    let mut entries = gid_entries_among(&found).unwrap_or_default();
    let has =
        |ip: IpAddr| found.iter().any(|interface| interface.addresses.iter().any(|(own, _)| *own == ip));
    let loopback = offered.iter().filter(|entry| entry.ip.is_loopback() && has(entry.ip));
    let stay: Vec<GidEntry> = loopback.filter(|entry| !entries.contains(entry)).cloned().collect();
    entries.extend(stay);
    let is_up = |name: &str| found.iter().any(|interface| interface.up && interface.name == name);
    entries.retain(|entry| is_up(&entry.interface));
    Some(entries)
}

fn gid_entries_among(found: &[Interface]) -> Result<Vec<GidEntry>, Errno> {
    let mut entries = settings()?.gid_entries(found)?;
    let most = profile()?.port.max_mtu;
    entries.iter_mut().for_each(|entry| entry.mtu = entry.mtu.min(most));
    Ok(entries)
}

/// What the contexts of a process share. Dropped with the last of them: the port is free again then.
pub(crate) struct Adapter {
    /// Stops before the HCA does.
    pub(crate) distributor: Distributor,
    pub(crate) hca: Arc<Hca>,
    /// The process that opened it. Its threads and its locks are nobody's in a fork.
    process: u32,
    /// A queue that stays empty: polling it drives the HCA if nobody else does, and never waits.
    idle: Arc<CompletionQueue>,
}

impl Adapter {
    fn open() -> Result<Adapter, Errno> {
        let (settings, profile) = (settings()?, profile()?);
        let gids = gid_entries()?;
        let address = match (gids.as_slice(), settings.address) {
            ([], _) => {
                complain(
                    "no interface that is up has an address: bring one up, `ip link set lo up` is enough",
                );
                return Err(Errno(libc::ENODEV));
            }
            (_, Some(address)) => address,
            (some, None) if some.iter().all(|entry| entry.ip.is_ipv4()) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            (_, None) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        let shared = SharedPort::open(&ShareConfig::new(UdpConfig::new(address))).map_err(|error| {
            complain(&error.to_string());
            Errno(error.errno())
        })?;
        if let Some(notice) = shared.notice() {
            explain(|| notice.to_owned());
        }
        let process_slot = shared.slot();
        let clock = Clock::monotonic();
        let port = capture::wrap(shared, settings, &clock)?;
        let mut config = HcaConfig {
            process_slot,
            ca_guid: u64::from_be_bytes(the_device().guid()),
            // One completion queue is this library's own.
            limits: Limits { max_cq: profile.limits.max_cq.saturating_add(1), ..profile.limits },
            pkeys: profile.port.pkeys.clone(),
            ..HcaConfig::new(&the_device().name(), gids)
        };
        // An address that comes later can be used if the socket has its IP version.
        let any_version = address.is_ipv6();
        let offered = config.gids.clone();
        config.gid_source = Some(Box::new(move || {
            let mut entries = gid_entries_now(&offered)?;
            entries.retain(|entry| any_version || entry.ip.is_ipv4());
            Some(entries)
        }));
        if logs(Log::Error) {
            config.log = Some(Box::new(|qp, cause| explain_cause(qp.qpn, cause)));
        }
        if logs(Log::Debug) {
            config.steps = Some(Box::new(log::print_step));
        }
        // Signals are for the application's threads.
        let hca = Arc::new(with_signals_blocked(|| Hca::open(config, port, clock))?);
        let distributor = with_signals_blocked(|| Distributor::start(&hca))?;
        let idle = hca.create_cq(CqSetup { depth: 1, ..CqSetup::default() })?;
        static FAREWELL: Once = Once::new();
        // SAFETY: the object is never unmapped (it is linked with -z nodelete).
        FAREWELL.call_once(|| unsafe {
            libc::atexit(farewell);
        });
        Ok(Adapter { distributor, hca, process: std::process::id(), idle })
    }

    /// Whether this process is a fork of the one that opened it.
    pub(crate) fn is_inherited(&self) -> bool {
        self.process != std::process::id()
    }

    /// The entry of the GID table at an index, as it is now.
    pub(crate) fn gid(&self, index: u32) -> Option<GidEntry> {
        self.hca.gid(index)
    }
}

/// Runs `start`, whose new threads inherit that they get no signals.
fn with_signals_blocked<T>(start: impl FnOnce() -> T) -> T {
    // SAFETY: a signal set is plain bits; both live through the calls.
    let old = unsafe {
        let (mut all, mut old): (libc::sigset_t, libc::sigset_t) = (zeroed(), zeroed());
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut old);
        old
    };
    let started = start();
    // SAFETY: as above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &old, std::ptr::null_mut()) };
    started
}

/// The adapter of this process, if a context is open.
static SHARED: Mutex<Weak<Adapter>> = Mutex::new(Weak::new());

/// How long an exit waits for explanations to be written to a slow terminal.
const EXPLANATIONS_PATIENCE: Duration = Duration::from_millis(100);

/// At exit: a program that exits right after its last completion has not sent the acknowledgement for
/// it. Takes no lock that is held, because programs also exit from signal handlers.
extern "C" fn farewell() {
    value((), || {
        let Some(adapter) = SHARED.try_lock().ok().and_then(|shared| shared.upgrade()) else {
            return log::account();
        };
        if !adapter.is_inherited() {
            adapter.hca.poll_cq(&adapter.idle, &mut [WorkCompletion::default()]);
            adapter.hca.poll_cq(&adapter.idle, &mut [WorkCompletion::default()]);
            adapter.hca.events().settle(EXPLANATIONS_PATIENCE);
            capture::flush_capture();
        }
        log::account();
        // Whatever this drops would wait for threads.
        std::mem::forget(adapter);
    });
}

/// This process's adapter, opened if it is not yet.
pub(crate) fn adapter() -> Result<Arc<Adapter>, Errno> {
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(adapter) = shared.upgrade() {
        if !adapter.is_inherited() {
            return Ok(adapter);
        }
        std::mem::forget(adapter);
    }
    let adapter = Arc::new(Adapter::open()?);
    *shared = Arc::downgrade(&adapter);
    Ok(adapter)
}

/// Gives up a context's share of the adapter. The last one closes the port, before anybody can ask for
/// the device again.
pub(crate) fn release(adapter: Arc<Adapter>) {
    let _shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    drop(adapter);
}

/// The device; made when it is first asked for, and for good.
pub(crate) fn the_device() -> &'static Device {
    static DEVICE: OnceLock<Device> = OnceLock::new();
    DEVICE.get_or_init(Device::new)
}

/// The device as a C pointer. Programs only read it.
pub(crate) fn device_pointer() -> *mut ibv_device {
    std::ptr::from_ref(the_device()).cast_mut().cast()
}

/// A list of devices that ends with NULL: one device, or none on a host without addresses.
pub(crate) unsafe extern "C" fn ibv_get_device_list(num_devices: *mut c_int) -> *mut *mut ibv_device {
    pointer(|| {
        let usable = !gid_entries()?.is_empty();
        // SAFETY: two pointers, zeroed: NULL.
        let list = unsafe { libc::calloc(2, size_of::<*mut ibv_device>()) }.cast::<*mut ibv_device>();
        if list.is_null() {
            return Err(Errno(libc::ENOMEM));
        }
        if usable {
            // SAFETY: the first of the two.
            unsafe { list.write(device_pointer()) };
        }
        if !num_devices.is_null() {
            // SAFETY: the caller's variable.
            unsafe { num_devices.write(usable.into()) };
        }
        Ok(list)
    })
}

pub(crate) unsafe extern "C" fn ibv_free_device_list(list: *mut *mut ibv_device) {
    // SAFETY: NULL, or from `ibv_get_device_list`. The device itself stays.
    unsafe { libc::free(list.cast()) }
}

pub(crate) unsafe extern "C" fn ibv_get_device_name(device: *mut ibv_device) -> *const c_char {
    if device.is_null() {
        return std::ptr::null();
    }
    // SAFETY: a device of ours.
    unsafe { (&raw const (*device).name).cast() }
}

/// In network order.
pub(crate) unsafe extern "C" fn ibv_get_device_guid(device: *mut ibv_device) -> u64 {
    // SAFETY: null or a device of ours.
    unsafe { crate::ground::handles::held_or_none::<Device>(device) }
        .map_or(0, |device| u64::from_ne_bytes(device.guid()))
}

/// -1, which the manual page has for a kernel that gives no indexes: programs ask the kernel about the device
/// of an index (UCX does, by netlink), and 0 may be another device there, or none.
pub(crate) extern "C" fn ibv_get_device_index(_device: *mut ibv_device) -> c_int {
    -1
}
