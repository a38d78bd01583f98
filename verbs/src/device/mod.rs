//! A device: the HCA, and the time that passes while a program waits.

mod async_event;
pub(crate) mod calls;
mod opening;
pub(crate) mod options;
mod profile;
pub(crate) mod simulation;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pumice_device::addresses::gid_table::GidEntry;
use pumice_device::check::recorded::ReportEntry;
use pumice_device::counters::Counters;
use pumice_device::event::async_event::AsyncElement;
use pumice_device::hca::Hca;
use pumice_device::outside;
use pumice_device::platform::limits::Limits;
use pumice_device::platform::table::Handle;
use pumice_transport::types::{AsyncEventType, Mtu};
use pumice_transport::wire::Qpn;

use crate::buffers::buffer::RegionBuffer;
use crate::check::DeviceCheck;
use crate::error::{Result, VerbsError};
use options::DeviceOptions;
use simulation::Simulation;

/// Number of idle polls between two readings of the clock.
const POLLS_PER_LOOK: u32 = 64;

/// An opened device. Cheap to clone; closed with its last clone and the last object made with it.
#[derive(Debug, Clone)]
pub struct Device(Arc<DeviceInner>);

#[derive(Debug)]
struct DeviceInner {
    hca: Arc<Hca>,
    simulation: Option<Simulation>,
    check: Option<Arc<DeviceCheck>>,
    /// Memory whose owner dropped it while windows were bound to it.
    orphans: Mutex<Vec<(Handle, RegionBuffer)>>,
}

/// The properties of a device, or of one that could be opened ([`DeviceInfo::all`]).
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
    /// Returns the devices of this machine: one, with all of its addresses, or none if it has no address.
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

/// An asynchronous event, which is already acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AsyncEvent {
    /// Kind of the event.
    pub event: AsyncEventType,
    /// Object that the event is about.
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
        let (check, subscriber) = options.take_check()?.map(DeviceCheck::new).unzip();
        let device = Device::new(options.open(subscriber)?, None, check);
        device.check().inspect(|check| check.begin());
        Ok(device)
    }

    pub(crate) fn new(
        hca: Arc<Hca>,
        simulation: Option<Simulation>,
        check: Option<Arc<DeviceCheck>>,
    ) -> Device {
        let orphans = Mutex::default();
        Device(Arc::new(DeviceInner { hca, simulation, check, orphans }))
    }

    /// Returns the program's mistakes with this device that were found so far ([`DeviceOptions::check`]).
    pub fn findings(&self) -> Vec<ReportEntry> {
        self.0.check.as_ref().map(|check| check.findings()).unwrap_or_default()
    }

    /// Returns the check, except in a forked child, which reports nothing about its parent's objects.
    pub(crate) fn check(&self) -> Option<&Arc<DeviceCheck>> {
        self.0.check.as_ref().filter(|_| self.0.hca.is_own())
    }

    /// Returns the name of the device.
    pub fn name(&self) -> &str {
        self.0.hca.name()
    }

    /// Returns name, addresses and MTU.
    pub fn info(&self) -> DeviceInfo {
        DeviceInfo { name: self.name().to_owned(), gids: self.gids(), active_mtu: self.active_mtu() }
    }

    /// Returns the addresses by GID index.
    pub fn gids(&self) -> Vec<(u32, GidEntry)> {
        self.0.hca.gids()
    }

    /// Returns the largest path MTU of the port.
    pub fn active_mtu(&self) -> Mtu {
        self.0.hca.active_mtu()
    }

    /// Returns the sizes of tables and queues.
    pub fn limits(&self) -> &Limits {
        self.0.hca.limits()
    }

    /// Returns the counters of traffic, drops by reason, and retries.
    pub fn counters(&self) -> &Arc<Counters> {
        self.0.hca.counters()
    }

    /// Returns the simulation that the device is part of, if it is simulated.
    pub fn simulation(&self) -> Option<&Simulation> {
        self.0.simulation.as_ref()
    }

    /// Returns the underlying HCA, for operations that have no call here.
    pub fn hca(&self) -> &Hca {
        &self.0.hca
    }

    pub(crate) fn is_same(&self, other: &Device) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    pub(crate) fn shared_hca(&self) -> &Arc<Hca> {
        &self.0.hca
    }

    /// Calls `attempt` until it returns something; on a simulated device in virtual time. `sleep` may take up
    /// to the time given; the clock is read every `tries_per_look` attempts.
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

    /// Waits as [`Device::wait`] does, by polling.
    pub(crate) fn spin<R>(
        &self,
        awaited: &'static str,
        timeout: Duration,
        attempt: impl FnMut() -> Option<R>,
    ) -> Result<R> {
        self.wait(awaited, timeout, POLLS_PER_LOOK, attempt, |_| ())
    }

    /// Returns a first PSN: unpredictable on a real network, the same in every run of a simulation.
    pub(crate) fn first_psn(&self, qpn: Qpn) -> u32 {
        let hash = match &self.0.simulation {
            Some(_) => u64::from(qpn.value()).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40,
            None => outside::random(),
        };
        hash as u32 & 0xff_ffff
    }

    /// Ends a registration. The memory is freed once no peer can reach it.
    pub(crate) fn deregister(&self, region: Handle, buffer: Option<RegionBuffer>) {
        if !self.0.hca.is_own() {
            return;
        }
        if self.0.hca.dereg_mr(region).is_err()
            && let Some(buffer) = buffer
        {
            self.0.orphans().push((region, buffer));
        }
    }

    /// Frees orphaned memory that no window is bound to any more.
    pub(crate) fn free_orphans(&self) {
        let hca = &self.0.hca;
        if !hca.is_own() {
            return;
        }
        self.0.orphans().retain(|(region, _)| hca.dereg_mr(*region).is_err());
    }
}

impl DeviceInner {
    fn orphans(&self) -> MutexGuard<'_, Vec<(Handle, RegionBuffer)>> {
        self.orphans.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for DeviceInner {
    fn drop(&mut self) {
        if !self.hca.is_own() {
            // The copy of a forked child.
            std::mem::forget((self.check.take(), std::mem::take(&mut self.orphans)));
            return;
        }
        if let Some(check) = &self.check {
            check.end();
        }
        // A simulation may drive the HCA further, so memory that is still registered is leaked.
        for (region, buffer) in self.orphans().drain(..) {
            if self.hca.dereg_mr(region).is_err() {
                std::mem::forget(buffer);
            }
        }
    }
}
