//! Connections: the consumer's calls to the connection manager behind queue pair 1.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::MutexGuard;
use std::time::Duration;

use pumice_fabric::gsi::{BindingId, CmChannel, ConnectionError};
use pumice_model::port::directory::ServiceEntry;
use pumice_platform::outside;
use pumice_transport::cm::{
    AcceptParams, BacklogOverflow, CmError, CmEvent, CmState, ConnectParams, ListenerId, QpParameters,
    RejectParams, ResolveParams, Served, SidrReply,
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
    /// The service is bound already (EADDRINUSE), or another reason of [`ConnectionError`].
    pub fn cm_bind(&self, entry: &ServiceEntry) -> Result<BindingId, ConnectionError> {
        let mut engine = self.core.lock();
        let Engine { gsi, port, .. } = &mut *engine;
        gsi.bind(entry, &mut **port)
    }

    /// Releases a service, and ends listening for it: requests that wait are rejected.
    ///
    /// # Errors
    /// No such binding exists.
    pub fn cm_unbind(&self, binding: BindingId) -> Result<(), ConnectionError> {
        let ended = self.cm_turn(|engine, now_ns| {
            let Engine { gsi, port, .. } = engine;
            gsi.unbind(binding, now_ns, &mut **port)
        });
        self.publish_after(ended)
    }

    /// Listens for a service that was bound, and rejects requests for what is not `served`. `backlog`
    /// requests may wait in the channel; more are treated as `overflow` says.
    ///
    /// # Errors
    /// No such binding exists, it listens already, or there are too many listeners.
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
        self.publish_after(listens)
    }

    /// Reports whether only another process of this host has this address. What is sent there goes to that
    /// process.
    pub fn is_address_of_another(&self, address: IpAddr) -> bool {
        let mut engine = self.core.lock();
        engine
            .port
            .group()
            .and_then(|group| group.services())
            .is_some_and(|directory| directory.is_address_of_another(address.into()))
    }

    /// Requests a connection; see [`Cm::connect`](pumice_transport::cm::Cm::connect). Its events come to the
    /// channel.
    ///
    /// # Errors
    /// The source address is not one of the adapter's; an error of the connection manager.
    pub fn cm_connect(
        &self,
        params: &ConnectParams<'_>,
        channel: &Arc<CmChannel>,
    ) -> Result<CommId, ConnectionError> {
        let asked = self.cm_begin(params.path.route.local, channel, |engine, now_ns| {
            engine.gsi.call(now_ns, |cm| cm.connect(params, now_ns))
        });
        self.publish_after(asked)
    }

    /// Requests the number of a datagram queue pair; see [`Cm::resolve`](pumice_transport::cm::Cm::resolve).
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
        self.publish_after(asked)
    }

    /// Accepts a request; the queue pair must be in RTS.
    ///
    /// # Errors
    /// An error of the connection manager.
    pub fn cm_accept(&self, id: CommId, params: &AcceptParams<'_>) -> Result<(), ConnectionError> {
        let accepted = self.cm_call(|cm, now_ns| cm.accept(id, params, now_ns));
        self.publish_after(accepted)
    }

    /// Accepts a request as [`cm_accept`](Hca::cm_accept) does, and moves the connection's events to this
    /// channel. The peer's answer is not handled before, so that it precedes the later events of the peer.
    ///
    /// # Errors
    /// An error of the connection manager.
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
        self.publish_after(accepted)
    }

    /// Rejects a request or a reply.
    ///
    /// # Errors
    /// An error of the connection manager.
    pub fn cm_reject(&self, id: CommId, params: &RejectParams<'_>) -> Result<(), ConnectionError> {
        self.cm_call(|cm, now_ns| cm.reject(id, params, now_ns))
    }

    /// Confirms a reply: the connection is established.
    ///
    /// # Errors
    /// An error of the connection manager.
    pub fn cm_send_rtu(&self, id: CommId, private_data: &[u8]) -> Result<(), ConnectionError> {
        self.cm_turn(|engine, now_ns| {
            let Engine { gsi, port, .. } = engine;
            gsi.call(now_ns, |cm| cm.send_rtu(id, private_data))?;
            gsi.watch(id, now_ns, &mut **port);
            Ok(())
        })
    }

    /// Establishes a connection because data has come before the RTU (the asynchronous event COMM_EST).
    ///
    /// # Errors
    /// An error of the connection manager.
    pub fn cm_establish(&self, id: CommId) -> Result<(), ConnectionError> {
        self.cm_call(|cm, _| cm.establish(id))
    }

    /// Disconnects, or confirms the peer's disconnection.
    ///
    /// # Errors
    /// An error of the connection manager.
    pub fn cm_disconnect(&self, id: CommId, private_data: &[u8]) -> Result<(), ConnectionError> {
        self.cm_call(|cm, now_ns| cm.disconnect(id, private_data, now_ns))
    }

    /// Answers a request for a datagram queue pair.
    ///
    /// # Errors
    /// An error of the connection manager.
    pub fn cm_sidr_reply(&self, id: CommId, reply: &SidrReply<'_>) -> Result<(), ConnectionError> {
        self.cm_call(|cm, _| cm.sidr_reply(id, reply))
    }

    /// Gives up a connection: the peer gets the message that it waits for, and no further event of the
    /// connection comes.
    ///
    /// # Errors
    /// No such connection exists.
    pub fn cm_destroy(&self, id: CommId) -> Result<(), ConnectionError> {
        let ended = self.cm_turn(|engine, now_ns| {
            engine.gsi.call(now_ns, |cm| cm.destroy(id, now_ns))?;
            engine.gsi.detach(id);
            Ok(())
        });
        self.publish_after(ended)
    }

    /// Returns the state of a connection.
    pub fn cm_state(&self, id: CommId) -> Option<CmState> {
        self.core.lock().gsi.cm.state(id)
    }

    /// Returns the attributes that a connection's queue pair needs on its way to RTS.
    pub fn cm_qp_parameters(&self, id: CommId) -> Option<QpParameters> {
        self.core.lock().gsi.cm.qp_parameters(id).copied()
    }

    /// Takes the next event of a channel. Taking a request makes room in its listener's backlog.
    pub fn cm_event(&self, channel: &CmChannel) -> Option<CmEvent> {
        if channel.queued() == 0 {
            return None;
        }
        self.core.lock().gsi.take_event(channel)
    }

    /// Moves a connection, and its events that wait, to another channel.
    ///
    /// # Errors
    /// No such connection exists.
    pub fn cm_migrate(&self, id: CommId, channel: &Arc<CmChannel>) -> Result<(), ConnectionError> {
        let moved = self.core.lock().gsi.migrate(id, channel);
        if moved { Ok(()) } else { Err(CmError::UnknownId(id).into()) }
    }

    /// Moves a listener, and the requests that wait for it, to another channel.
    ///
    /// # Errors
    /// No such listener exists.
    pub fn cm_migrate_listener(
        &self,
        listener: ListenerId,
        channel: &Arc<CmChannel>,
    ) -> Result<(), ConnectionError> {
        let moved = self.core.lock().gsi.migrate_listener(listener, channel);
        if moved { Ok(()) } else { Err(CmError::UnknownListener.into()) }
    }

    /// Returns the number of connections in any state, including those that their consumers have given up.
    pub fn cm_connection_count(&self) -> usize {
        self.core.lock().gsi.cm.connection_count()
    }

    /// Returns the node GUID in messages of the connection manager.
    pub fn cm_ca_guid(&self) -> u64 {
        self.core.lock().gsi.cm.config().ca_guid
    }

    /// Releases all services and tells peers once that their connections end, because the process ends
    /// without having closed the adapter. Returns false if the engine could not be locked within `patience`,
    /// perhaps because the thread that ends the process was interrupted while it held the lock.
    pub fn cm_leave(&self, patience: Duration) -> bool {
        let begun = outside::now();
        loop {
            match self.core.try_lock() {
                Some(engine) => {
                    self.close_connections(engine);
                    return true;
                }
                None if outside::since(begun) > patience => return false,
                // A mutex of the standard library cannot be waited for with a time-out.
                None => outside::sleep(Duration::from_millis(1)),
            }
        }
    }

    /// Releases all services and tells peers that their connections end: once, without waiting.
    pub(super) fn close_connections(&self, mut engine: MutexGuard<'_, Engine>) {
        let now_ns = self.core.clock.now_ns();
        // Each iteration leaves fewer connections.
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
            if engine.resources.port.ports.find(source).is_none() {
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

    /// Runs a call, and sends the MADs that it made.
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
