//! The controller's calls of MRC: profiles, states of paths, their events, ports.

use std::collections::VecDeque;
use std::net::IpAddr;

use pumice_platform::table::Handle;
use pumice_transport::mrc::entropy::{Entropy, Plane, Planes};
use pumice_transport::mrc::paths::{Ev, PathState};
use pumice_transport::path::Flow;
use pumice_transport::wire::source_port;

use super::Hca;
use crate::engine::{
    Acknowledge, CcChange, CcProfile, ControlError, ENDPOINT_INDEX, EndpointAsk, EvChange, EvName, EvRecord,
    FormatChange, FormatProfile, MrcEvEvent,
};
use crate::resources::MappingCheckPolicy;

/// An endpoint request of a controller.
#[derive(Debug, Clone, Copy)]
pub struct EndpointRequest {
    /// Own address, from which the request leaves.
    pub own: IpAddr,
    /// Address of the peer.
    pub peer: IpAddr,
    /// The path.
    pub name: EvName,
    /// DSCP of the packet.
    pub dscp: u8,
    /// Ports that are up, bit n for port n, of a port status update; `None` for an EV probe.
    pub ports: Option<u32>,
}

impl Hca {
    /// Changes a format of entropy values.
    ///
    /// # Errors
    /// EINVAL, EBUSY and ENOMEM, with the reason; nothing has changed.
    pub fn change_mrc_format(&self, id: u64, change: &FormatChange) -> Result<(), ControlError> {
        self.core.lock().mrc.control.change_format(id, change)
    }

    /// Returns a format of entropy values; one that was never named is in INIT.
    pub fn mrc_format(&self, id: u64) -> FormatProfile {
        self.core.lock().mrc.control.format(id)
    }

    /// Changes a profile of entropy values.
    ///
    /// # Errors
    /// EINVAL, EBUSY, E2BIG and ENOMEM, with the reason; nothing has changed.
    pub fn change_mrc_evs(&self, id: u64, change: &EvChange) -> Result<(), ControlError> {
        let mut engine = self.core.lock();
        let is_used = engine.mrc.uses_evs(id);
        engine.mrc.control.change_evs(id, change, is_used)
    }

    /// Returns a profile of entropy values; one that was never named is in INIT.
    pub fn mrc_evs(&self, id: u64) -> EvRecord {
        self.core.lock().mrc.control.evs(id)
    }

    /// Returns the number of entropy values of all profiles.
    pub fn mrc_ev_count(&self) -> u32 {
        self.core.lock().mrc.control.ev_count()
    }

    /// Replaces a value of a profile by another one: the first such value, or all copies of it.
    ///
    /// # Errors
    /// EBUSY: the profile is ONLINE. ENOENT: it has no such value.
    pub fn replace_mrc_ev(
        &self,
        id: u64,
        (old, new): (EvName, EvName),
        state: PathState,
        all: bool,
    ) -> Result<(), ControlError> {
        self.core.lock().mrc.control.evs_mut(id)?.replace(old, new, state, all)
    }

    /// Sets the state of a value of a profile, also for the queue pairs that use it.
    ///
    /// # Errors
    /// ENOENT: the profile has no such value.
    pub fn set_mrc_ev_state(
        &self,
        id: u64,
        name: EvName,
        state: PathState,
        all: bool,
    ) -> Result<(), ControlError> {
        let now_ns = self.core.clock.now_ns();
        let mut engine = self.core.lock();
        engine.mrc.control.evs_mut(id)?.set_state(name, state, all)?;
        engine.mrc.apply_state(now_ns, id, name, state);
        Ok(())
    }

    /// Changes a profile of congestion control.
    ///
    /// # Errors
    /// EINVAL, EBUSY and ENOMEM, with the reason; nothing has changed.
    pub fn change_mrc_cc(&self, id: u64, change: &CcChange) -> Result<(), ControlError> {
        let mut engine = self.core.lock();
        let is_used = engine.mrc.uses_cc(id);
        engine.mrc.control.change_cc(id, change, is_used)
    }

    /// Returns a profile of congestion control; one that was never named is in INIT.
    pub fn mrc_cc(&self, id: u64) -> CcProfile {
        self.core.lock().mrc.control.cc(id)
    }

    /// Returns the number of planes, which are the ports of MRC.
    pub fn mrc_planes(&self) -> u8 {
        self.core.lock().mrc.planes
    }

    /// Reports whether a port of MRC, from 1, is enabled; `None`: there is no such port.
    pub fn mrc_port_is_enabled(&self, port: u8) -> Option<bool> {
        self.core.lock().mrc.port_is_enabled(port)
    }

    /// Enables or disables a port of MRC, from 1. Returns false if there is no such port.
    pub fn enable_mrc_port(&self, port: u8, is_enabled: bool) -> bool {
        let mut guard = self.core.lock();
        let engine = &mut *guard;
        let changed = engine.mrc.enable_port(port, is_enabled);
        for index in engine.mrc.indices() {
            engine.touch(index);
        }
        engine.settle();
        self.core.note_deadline(engine, self.core.clock.now_ns());
        changed
    }

    /// Makes the device answer endpoint requests of peers from now on.
    pub fn open_mrc(&self) {
        let mut engine = self.core.lock();
        engine.mrc.open();
        engine.listen_for_mrc();
    }

    /// Sends an endpoint request from an own address to a peer, and returns its number: an EV probe, or a
    /// port status update with the ports of the API that are up, bit n for port n.
    ///
    /// # Errors
    /// EINVAL: the device has no such address, or no such port.
    pub fn ask_mrc_endpoint(&self, ask: &EndpointRequest) -> Result<u16, ControlError> {
        let mut guard = self.core.lock();
        let engine = &mut *guard;
        if engine.resources.port.ports.number_of(ask.own).is_none() {
            return Err(ControlError::invalid(format!("the device has no address {}", ask.own)));
        }
        if ask.name.port == 0 || ask.name.port > engine.mrc.planes.max(1) {
            return Err(ControlError::invalid(format!(
                "MRC has no port {}: they count from 1",
                ask.name.port
            )));
        }
        let now_ns = self.core.clock.now_ns();
        let entropy = Entropy(ask.name.value);
        let wanted = Flow {
            source: ask.own,
            destination: ask.peer,
            source_port: entropy.source_port() | source_port::FIRST,
            destination_port: engine.mrc.udp_port,
        };
        let given = engine.port.source_port(now_ns, &wanted);
        let ev = Ev { entropy: Entropy::of(0, given), plane: Plane(ask.name.port - 1) };
        engine.mrc.open();
        engine.listen_for_mrc();
        let request = EndpointAsk {
            own: ask.own,
            peer: ask.peer,
            ev,
            traffic_class: ask.dscp << 2,
            ports: ask.ports.map(|ports| Planes(ports >> 1)),
        };
        let id = engine.mrc.endpoint.as_mut().map_or(0, |desk| desk.ask(&request));
        engine.touch(ENDPOINT_INDEX);
        engine.transmit(now_ns, Acknowledge::Now, MappingCheckPolicy::Datagrams);
        self.core.note_deadline(engine, now_ns);
        Ok(id)
    }

    /// Returns how an endpoint request ended, once: its round trip in ns, or that no answer came. `None`: it
    /// has not ended.
    pub fn mrc_endpoint_end(&self, id: u16) -> Option<Option<u64>> {
        self.core.lock().mrc.endpoint.as_mut()?.take_end(id)
    }

    /// Makes a completion queue get events of entropy values from now on.
    pub fn take_mrc_events(&self, cq: Handle) {
        self.core.lock().mrc.event_queues.insert(cq.index, VecDeque::new());
    }

    /// Takes the event that belongs to a completion that was polled from such a queue.
    pub fn next_mrc_event(&self, cq: Handle) -> Option<MrcEvEvent> {
        self.core.lock().mrc.event_queues.get_mut(&cq.index)?.pop_front()
    }

    /// Forgets the events of a queue that is destroyed.
    pub fn forget_mrc_events(&self, cq: Handle) {
        self.core.lock().mrc.event_queues.remove(&cq.index);
    }
}
