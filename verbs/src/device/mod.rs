//! A device: the HCA, and what lets time pass while a program waits.

mod async_event;
pub(crate) mod calls;
mod opening;
pub(crate) mod options;
mod profile;
pub(crate) mod simulation;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pumice_device::addresses::gid_table::GidEntry;
use pumice_device::check::report::Entry;
use pumice_device::counters::Counters;
use pumice_device::ground::limits::Limits;
use pumice_device::ground::table::Handle;
use pumice_device::hca::Hca;
use pumice_device::objects::async_event::AsyncElement;
use pumice_device::outside;
use pumice_transport::types::{AsyncEventType, Mtu};
use pumice_transport::wire::Qpn;

use crate::check::Check;
use crate::ground::buffer::Buffer;
use crate::ground::error::{Result, VerbsError};
use options::DeviceOptions;
use simulation::Simulation;

/// Empty polls between two looks at the clock.
const POLLS_PER_LOOK: u32 = 64;

/// An opened device. Cheap to clone; closed with its last clone and the last object made with it.
#[derive(Debug, Clone)]
pub struct Device(Arc<DeviceInner>);

#[derive(Debug)]
struct DeviceInner {
    hca: Arc<Hca>,
    simulation: Option<Simulation>,
    check: Option<Arc<Check>>,
    /// Memory whose owner let go of it while windows were bound to it.
    orphans: Mutex<Vec<(Handle, Buffer)>>,
}

/// What a device would be, as [`DeviceInfo::all`] finds it, or is.
#[derive(Debug, Clone)]
pub struct DeviceInfo {
    /// Device name.
    pub name: String,
    /// Addresses by GID index.
    pub gids: Vec<(u32, GidEntry)>,
    /// Largest path MTU of its port.
    pub active_mtu: Mtu,
}

impl DeviceInfo {
    /// The devices of this machine: one, with all of its addresses, or none if it has no address.
    ///
    /// # Errors
    /// `Os`: the interfaces cannot be listed.
    pub fn all() -> Result<Vec<DeviceInfo>> {
        let gids = options::machine_gids()?;
        let Some(active_mtu) = gids.first().map(|entry| entry.mtu) else { return Ok(Vec::new()) };
        let gids = (0..).zip(gids).collect();
        Ok(vec![DeviceInfo { name: options::DEFAULT_NAME.to_owned(), gids, active_mtu }])
    }
}

/// An asynchronous event, acknowledged already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AsyncEvent {
    /// What happened.
    pub event: AsyncEventType,
    /// To what.
    pub element: AsyncElement,
}

impl Device {
    /// Opens a device on this machine's network.
    ///
    /// ```
    /// use std::time::Duration;
    /// use pumice_verbs::{Access, Device, DeviceOptions, RcQueuePair, Result, SendRequest};
    ///
    /// # fn main() -> Result<()> {
    /// // Two devices in one process: each has UDP port 4791 of its own loopback address.
    /// let side = |address: [u8; 4]| -> Result<_> {
    ///     let device = Device::open(DeviceOptions::new().addresses([address.into()]))?;
    ///     let domain = device.protection_domain()?;
    ///     let cq = device.completion_queue(16)?;
    ///     let access = Access::LOCAL_WRITE | Access::REMOTE_READ;
    ///     let memory = domain.allocate(4096, access)?;
    ///     let qp = RcQueuePair::builder(&domain, &cq, &cq).build()?;
    ///     Ok((qp, cq, memory))
    /// };
    /// let (reader, cq, memory) = side([127, 89, 250, 1])?;
    /// let (passive, _, source) = side([127, 89, 250, 2])?;
    /// reader.connect(&passive.endpoint(), &Default::default())?;
    /// passive.connect(&reader.endpoint(), &Default::default())?;
    /// source.write(0, b"stone")?;
    /// let local = [memory.slice(..5)?];
    /// reader.post_send(&SendRequest::read(&local, source.remote()).signaled())?;
    /// cq.wait_success(Duration::from_secs(10))?;
    /// assert_eq!(memory.to_vec(0, 5)?, b"stone");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Invalid`: an address is not of this machine, or there is none. `Port`: the UDP port cannot be had.
    /// `Os`: no capture file, descriptor or thread.
    pub fn open(mut options: DeviceOptions) -> Result<Device> {
        let (check, subscriber) = options.take_check()?.map(Check::new).unzip();
        let device = Device::new(options.open(subscriber)?, None, check);
        device.check().inspect(|check| check.begin());
        Ok(device)
    }

    pub(crate) fn new(hca: Arc<Hca>, simulation: Option<Simulation>, check: Option<Arc<Check>>) -> Device {
        let orphans = Mutex::default();
        Device(Arc::new(DeviceInner { hca, simulation, check, orphans }))
    }

    /// What the program did wrong with this device until now ([`DeviceOptions::check`]).
    pub fn findings(&self) -> Vec<Entry> {
        self.0.check.as_ref().map(|check| check.findings()).unwrap_or_default()
    }

    /// A forked child tells nothing of what is its parent's.
    pub(crate) fn check(&self) -> Option<&Arc<Check>> {
        self.0.check.as_ref().filter(|_| self.0.hca.is_own())
    }

    /// Device name.
    pub fn name(&self) -> &str {
        self.0.hca.name()
    }

    /// Name, addresses and MTU.
    pub fn info(&self) -> DeviceInfo {
        DeviceInfo { name: self.name().to_owned(), gids: self.gids(), active_mtu: self.active_mtu() }
    }

    /// Addresses by GID index.
    pub fn gids(&self) -> Vec<(u32, GidEntry)> {
        self.0.hca.gids()
    }

    /// Largest path MTU of the port.
    pub fn active_mtu(&self) -> Mtu {
        self.0.hca.active_mtu()
    }

    /// Sizes of tables and queues.
    pub fn limits(&self) -> &Limits {
        self.0.hca.limits()
    }

    /// Counters of traffic, drops by reason, retries.
    pub fn counters(&self) -> &Arc<Counters> {
        self.0.hca.counters()
    }

    /// The simulation it is part of.
    pub fn simulation(&self) -> Option<&Simulation> {
        self.0.simulation.as_ref()
    }

    /// The device below, for what has no call here.
    pub fn hca(&self) -> &Hca {
        &self.0.hca
    }

    pub(crate) fn is_same(&self, other: &Device) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    pub(crate) fn shared_hca(&self) -> &Arc<Hca> {
        &self.0.hca
    }

    /// Tries until something comes: on a simulated device in virtual time. `sleep` may pass up to that long;
    /// the clock is looked at every `tries_per_look` attempts.
    pub(crate) fn wait<R>(
        &self,
        awaited: &'static str,
        timeout: Duration,
        tries_per_look: u32,
        mut attempt: impl FnMut() -> Option<R>,
        mut sleep: impl FnMut(Duration),
    ) -> Result<R> {
        let timed_out = || Err(VerbsError::TimedOut { awaited, after: timeout });
        if let Some(simulation) = &self.0.simulation {
            return simulation.wait(timeout, attempt).map_or_else(timed_out, Ok);
        }
        let start = outside::now();
        loop {
            for _ in 0..tries_per_look {
                if let Some(result) = attempt() {
                    return Ok(result);
                }
            }
            let Some(left) = timeout.checked_sub(outside::since(start)).filter(|left| !left.is_zero()) else {
                return timed_out();
            };
            sleep(left);
        }
    }

    /// As [`Device::wait`], polling.
    pub(crate) fn spin<R>(
        &self,
        awaited: &'static str,
        timeout: Duration,
        attempt: impl FnMut() -> Option<R>,
    ) -> Result<R> {
        self.wait(awaited, timeout, POLLS_PER_LOOK, attempt, |_| ())
    }

    /// A first PSN: unpredictable on a real network, the same in every run of a simulation.
    pub(crate) fn first_psn(&self, qpn: Qpn) -> u32 {
        let hash = match &self.0.simulation {
            Some(_) => u64::from(qpn.value()).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40,
            None => outside::random(),
        };
        hash as u32 & 0xff_ffff
    }

    /// Ends a registration. The memory is freed once no peer can reach it.
    pub(crate) fn deregister(&self, region: Handle, buffer: Option<Buffer>) {
        if !self.0.hca.is_own() {
            return;
        }
        if self.0.hca.dereg_mr(region).is_err()
            && let Some(buffer) = buffer
        {
            self.0.orphans().push((region, buffer));
        }
    }

    /// A window was freed: orphaned memory may be freed as well.
    pub(crate) fn free_orphans(&self) {
        let hca = &self.0.hca;
        if !hca.is_own() {
            return;
        }
        self.0.orphans().retain(|(region, _)| hca.dereg_mr(*region).is_err());
    }
}

impl DeviceInner {
    fn orphans(&self) -> MutexGuard<'_, Vec<(Handle, Buffer)>> {
        self.orphans.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for DeviceInner {
    fn drop(&mut self) {
        if !self.hca.is_own() {
            // A forked child's copy.
            std::mem::forget((self.check.take(), std::mem::take(&mut self.orphans)));
            return;
        }
        if let Some(check) = &self.check {
            check.end();
        }
        // A simulation may drive the HCA further. What is still registered must stay.
        for (region, buffer) in self.orphans().drain(..) {
            if self.hca.dereg_mr(region).is_err() {
                std::mem::forget(buffer);
            }
        }
    }
}
