//! The consumers' use of connections: calls to the connection manager, and channels for the events.

use std::mem;
use std::sync::Arc;

use pumice_transport::cm::{Cm, CmEvent, ListenerId};
use pumice_transport::mad::CommId;

use super::agent::Gsi;
use super::channel::CmChannel;
use pumice_model::port::Port;

impl Gsi {
    /// Makes a call of the consumer to the connection manager, and delivers its events.
    pub fn call<T>(&mut self, now_ns: u64, call: impl FnOnce(&mut Cm) -> T) -> T {
        let result = call(&mut self.cm);
        self.deliver(now_ns);
        result
    }

    /// Attaches a connection that was begun to a channel: its events go there.
    pub fn attach(&mut self, id: CommId, channel: &Arc<CmChannel>) {
        self.channels.insert(id, Arc::clone(channel));
    }

    /// Moves a connection, and its events that wait, to another channel. Returns false if there is no such
    /// connection.
    pub fn migrate(&mut self, id: CommId, channel: &Arc<CmChannel>) -> bool {
        let Some(old) = self.channels.insert(id, Arc::clone(channel)) else {
            self.channels.remove(&id);
            return false;
        };
        if !Arc::ptr_eq(&old, channel) {
            for event in old.take_of(id) {
                channel.push(event);
            }
        }
        true
    }

    /// Moves a listener, and the requests that wait, to another channel. Returns false if there is no such
    /// listener.
    pub fn migrate_listener(&mut self, listener: ListenerId, channel: &Arc<CmChannel>) -> bool {
        let Some(old) = self.listeners.get_mut(&listener).map(|at| mem::replace(at, Arc::clone(channel)))
        else {
            return false;
        };
        if !Arc::ptr_eq(&old, channel) {
            for request in old.take_requests(listener) {
                let id = request.id();
                channel.push(request);
                self.migrate(id, channel);
            }
        }
        true
    }

    /// Takes the next event of a channel. Taking a request makes room in its listener's backlog.
    pub fn take_event(&mut self, channel: &CmChannel) -> Option<CmEvent> {
        let event = channel.take()?;
        if let CmEvent::ConnectRequest { id, .. } | CmEvent::SidrRequest { id, .. } = &event {
            self.cm.take_request(*id);
        }
        Some(event)
    }

    /// Detaches a connection that was destroyed: no event of it comes any more.
    pub fn detach(&mut self, id: CommId) {
        if let Some(channel) = self.channels.remove(&id) {
            channel.take_of(id);
        }
    }

    /// Forgets requests that were destroyed with their listener.
    pub fn forget_destroyed(&mut self) {
        let destroyed: Vec<CommId> =
            self.channels.keys().copied().filter(|id| self.cm.state(*id).is_none()).collect();
        for id in destroyed {
            self.detach(id);
        }
    }

    /// Notifies peers that the adapter is being closed. Send, and call again while this returns true.
    pub fn close(&mut self, now_ns: u64, port: &mut dyn Port) -> bool {
        self.unbind_all(now_ns, port);
        let waits = self.cm.send_all_waiting(now_ns);
        let some: Vec<CommId> = self.cm.ids().take(Cm::TIMEOUTS_PER_CALL).collect();
        for id in &some {
            let _ = self.cm.destroy(*id, now_ns);
            self.detach(*id);
        }
        waits || !some.is_empty()
    }
}
