//! Connections: the consumer's calls to the connection manager behind queue pair 1.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::MutexGuard;
use std::time::Duration;

use pumice_ground::outside;
use pumice_ports::gsi::{BindingId, CmChannel, ConnectionError, ServiceEntry};
use pumice_transport::cm::{
    AcceptParams, BacklogOverflow, CmError, ConnectParams, Event, ListenerId, QpParameters, RejectParams,
    ResolveParams, Served, SidrReply, State,
};
use pumice_transport::mad::CommId;
use pumice_transport::types::Gid;

use super::Hca;
use crate::engine::{Acknowledge, Engine};
use crate::resources::MappingCheckPolicy;

impl Hca {
    /// Binds a service: no other part of this process and no other process at the address gets it.
    ///
    /// # Errors
    /// It is bound already (EADDRINUSE); what else [`ConnectionError`] says.
    pub fn cm_bind(&self, entry: &ServiceEntry) -> Result<BindingId, ConnectionError> {
        let mut engine = self.core.lock();
        let Engine { gsi, port, .. } = &mut *engine;
        gsi.bind(entry, &mut **port)
    }

    /// Releases a service, and ends listening for it: requests that wait are rejected.
    ///
    /// # Errors
    /// There is no such binding.
    pub fn cm_unbind(&self, binding: BindingId) -> Result<(), ConnectionError> {
        let ended = self.cm_turn(|engine, now_ns| {
            let Engine { gsi, port, .. } = engine;
            gsi.unbind(binding, now_ns, &mut **port)
        });
        self.noted(ended)
    }

    /// Listens for a service that was bound, and rejects requests for what is not `served`. `backlog`
    /// requests may wait in the channel; more are treated as `overflow` says.
    ///
    /// # Errors
    /// There is no such binding, it listens already, or there are too many listeners.
    pub fn cm_listen(
        &self,
        binding: BindingId,
        served: Served,
        backlog: usize,
        overflow: BacklogOverflow,
        channel: &Arc<CmChannel>,
    ) -> Result<ListenerId, ConnectionError> {
        let mut engine = self.core.lock();
        let Engine { gsi, port, .. } = &mut *engine;
        let listens = gsi.listen(binding, served, backlog, overflow, channel, &mut **port);
        drop(engine);
        self.noted(listens)
    }

    /// Whether another process of this host is a device with this address only. What is sent there goes to
    /// that process.
    pub fn is_address_of_another(&self, address: IpAddr) -> bool {
        let mut engine = self.core.lock();
        engine
            .port
            .group()
            .and_then(|group| group.services())
            .is_some_and(|directory| directory.is_address_of_another(address.into()))
    }

    /// Asks for a connection; see [`Cm::connect`](pumice_transport::cm::Cm::connect). Its events come to
    /// the channel.
    ///
    /// # Errors
    /// The source address is none of the adapter's; what the connection manager says.
    pub fn cm_connect(
        &self,
        params: &ConnectParams<'_>,
        channel: &Arc<CmChannel>,
    ) -> Result<CommId, ConnectionError> {
        let asked = self.cm_begin(params.path.route.local, channel, |engine, now_ns| {
            engine.gsi.call(now_ns, |cm| cm.connect(params, now_ns))
        });
        self.noted(asked)
    }

    /// Asks for a datagram queue pair; see [`Cm::resolve`](pumice_transport::cm::Cm::resolve).
    ///
    /// # Errors
    /// As [`Hca::cm_connect`].
    pub fn cm_resolve(
        &self,
        params: &ResolveParams<'_>,
        channel: &Arc<CmChannel>,
    ) -> Result<CommId, ConnectionError> {
        let asked = self.cm_begin(params.route.local, channel, |engine, now_ns| {
            engine.gsi.call(now_ns, |cm| cm.resolve(params, now_ns))
        });
        self.noted(asked)
    }

    /// Accepts a request; the queue pair must be in RTS.
    ///
    /// # Errors
    /// What the connection manager says.
    pub fn cm_accept(&self, id: CommId, params: &AcceptParams<'_>) -> Result<(), ConnectionError> {
        let accepted = self.cm_call(|cm, now_ns| cm.accept(id, params, now_ns));
        self.noted(accepted)
    }

    /// As [`cm_accept`](Hca::cm_accept); the connection's events come to this channel from then on. What the
    /// peer answers is not seen before, so that it comes before what the peer says later.
    ///
    /// # Errors
    /// What the connection manager says.
    pub fn cm_accept_on(
        &self,
        id: CommId,
        params: &AcceptParams<'_>,
        channel: &Arc<CmChannel>,
    ) -> Result<(), ConnectionError> {
        let accepted = self.cm_turn(|engine, now_ns| {
            engine.gsi.call(now_ns, |cm| cm.accept(id, params, now_ns))?;
            engine.gsi.migrate(id, channel);
            Ok(())
        });
        self.noted(accepted)
    }

    /// Rejects a request or a reply.
    ///
    /// # Errors
    /// What the connection manager says.
    pub fn cm_reject(&self, id: CommId, params: &RejectParams<'_>) -> Result<(), ConnectionError> {
        self.cm_call(|cm, now_ns| cm.reject(id, params, now_ns))
    }

    /// Confirms a reply: the connection is established.
    ///
    /// # Errors
    /// What the connection manager says.
    pub fn cm_send_rtu(&self, id: CommId, private_data: &[u8]) -> Result<(), ConnectionError> {
        self.cm_turn(|engine, now_ns| {
            let Engine { gsi, port, .. } = engine;
            gsi.call(now_ns, |cm| cm.send_rtu(id, private_data))?;
            gsi.watch(id, now_ns, &mut **port);
            Ok(())
        })
    }

    /// Data has come before the RTU (the asynchronous event COMM_EST).
    ///
    /// # Errors
    /// What the connection manager says.
    pub fn cm_establish(&self, id: CommId) -> Result<(), ConnectionError> {
        self.cm_call(|cm, _| cm.establish(id))
    }

    /// Asks the peer for time.
    ///
    /// # Errors
    /// What the connection manager says.
    pub fn cm_mra(
        &self,
        id: CommId,
        service_timeout: u8,
        private_data: &[u8],
    ) -> Result<(), ConnectionError> {
        self.cm_call(|cm, _| cm.mra(id, service_timeout, private_data))
    }

    /// Disconnects, or confirms the peer's disconnection.
    ///
    /// # Errors
    /// What the connection manager says.
    pub fn cm_disconnect(&self, id: CommId, private_data: &[u8]) -> Result<(), ConnectionError> {
        self.cm_call(|cm, now_ns| cm.disconnect(id, private_data, now_ns))
    }

    /// Answers a question for a datagram queue pair.
    ///
    /// # Errors
    /// What the connection manager says.
    pub fn cm_sidr_reply(&self, id: CommId, reply: &SidrReply<'_>) -> Result<(), ConnectionError> {
        self.cm_call(|cm, _| cm.sidr_reply(id, reply))
    }

    /// Gives a connection up: what the peer waits for is said, and no event of it comes any more.
    ///
    /// # Errors
    /// There is no such connection.
    pub fn cm_destroy(&self, id: CommId) -> Result<(), ConnectionError> {
        let ended = self.cm_turn(|engine, now_ns| {
            engine.gsi.call(now_ns, |cm| cm.destroy(id, now_ns))?;
            engine.gsi.detach(id);
            Ok(())
        });
        self.noted(ended)
    }

    /// State of a connection.
    pub fn cm_state(&self, id: CommId) -> Option<State> {
        self.core.lock().gsi.cm.state(id)
    }

    /// What a connection's queue pair needs on its way to RTS.
    pub fn cm_qp_parameters(&self, id: CommId) -> Option<QpParameters> {
        self.core.lock().gsi.cm.qp_parameters(id).copied()
    }

    /// The next event of a channel. Taking a request makes room in its listener's backlog.
    pub fn cm_event(&self, channel: &CmChannel) -> Option<Event> {
        if channel.queued() == 0 {
            return None;
        }
        self.core.lock().gsi.take_event(channel)
    }

    /// Moves a connection, and its events that wait, to another channel.
    ///
    /// # Errors
    /// There is no such connection.
    pub fn cm_migrate(&self, id: CommId, channel: &Arc<CmChannel>) -> Result<(), ConnectionError> {
        let moved = self.core.lock().gsi.migrate(id, channel);
        if moved { Ok(()) } else { Err(CmError::UnknownId(id).into()) }
    }

    /// Moves a listener, and the requests that wait for it, to another channel.
    ///
    /// # Errors
    /// There is no such listener.
    pub fn cm_migrate_listener(
        &self,
        listener: ListenerId,
        channel: &Arc<CmChannel>,
    ) -> Result<(), ConnectionError> {
        let moved = self.core.lock().gsi.migrate_listener(listener, channel);
        if moved { Ok(()) } else { Err(CmError::UnknownListener.into()) }
    }

    /// Connections of any state, those included that their consumers have given up.
    pub fn cm_connection_count(&self) -> usize {
        self.core.lock().gsi.cm.connection_count()
    }

    /// Node GUID in messages of the connection manager.
    pub fn cm_ca_guid(&self) -> u64 {
        self.core.lock().gsi.cm.config().ca_guid
    }

    /// The process ends without having closed the adapter: services are released, and peers told that their
    /// connections end, once. False: the engine was not to be had within `patience`, perhaps because the
    /// thread that ends the process was interrupted in it.
    pub fn cm_leave(&self, patience: Duration) -> bool {
        let begun = outside::now();
        loop {
            match self.core.try_lock() {
                Some(engine) => {
                    self.close_connections(engine);
                    return true;
                }
                None if outside::since(begun) > patience => return false,
                // A mutex of the standard library cannot be waited for with an end.
                None => outside::sleep(Duration::from_millis(1)),
            }
        }
    }

    /// Services are released, and peers told that their connections end: once, without waiting.
    pub(super) fn close_connections(&self, mut engine: MutexGuard<'_, Engine>) {
        let now_ns = self.core.clock.now_ns();
        // Every call leaves fewer.
        loop {
            let Engine { gsi, port, .. } = &mut *engine;
            let more = gsi.close(now_ns, &mut **port);
            engine.transmit(now_ns, Acknowledge::Now, MappingCheckPolicy::Datagrams);
            if !more {
                break;
            }
        }
        engine.port.release(now_ns);
    }

    fn cm_begin(
        &self,
        source: Gid,
        channel: &Arc<CmChannel>,
        begin: impl FnOnce(&mut Engine, u64) -> Result<CommId, CmError>,
    ) -> Result<CommId, ConnectionError> {
        self.cm_turn(|engine, now_ns| {
            if engine.resources.ports.find(source).is_none() {
                return Err(ConnectionError::NoSuchAddress);
            }
            let id = begin(engine, now_ns)?;
            engine.gsi.attach(id, channel);
            Ok(id)
        })
    }

    fn cm_call(
        &self,
        call: impl FnOnce(&mut pumice_transport::cm::Cm, u64) -> Result<(), CmError>,
    ) -> Result<(), ConnectionError> {
        self.cm_turn(|engine, now_ns| Ok(engine.gsi.call(now_ns, |cm| call(cm, now_ns))?))
    }

    /// A call, and the MADs that it made.
    fn cm_turn<T>(
        &self,
        call: impl FnOnce(&mut Engine, u64) -> Result<T, ConnectionError>,
    ) -> Result<T, ConnectionError> {
        let now_ns = self.core.clock.now_ns();
        let mut engine = self.core.lock_own().map_err(|_| ConnectionError::Inherited)?;
        let result = call(&mut engine, now_ns);
        engine.transmit(now_ns, Acknowledge::Now, MappingCheckPolicy::Datagrams);
        self.core.note_deadline(&engine, now_ns);
        result
    }
}
