//! What consumers do with connections: calls to the connection manager, and channels for what happens to
//! them.

use std::mem;
use std::sync::Arc;

use pumice_transport::cm::{Cm, Event, ListenerId};
use pumice_transport::mad::CommId;

use super::agent::Gsi;
use super::channel::CmChannel;
use crate::Port;

impl Gsi {
    /// A call of the consumer's to the connection manager; its events are delivered.
    pub fn call<T>(&mut self, now_ns: u64, call: impl FnOnce(&mut Cm) -> T) -> T {
        let result = call(&mut self.cm);
        self.deliver(now_ns);
        result
    }

    /// A connection was begun: its events go to this channel.
    pub fn attach(&mut self, id: CommId, channel: &Arc<CmChannel>) {
        self.channels.insert(id, Arc::clone(channel));
    }

    /// Moves a connection, and its events that wait, to another channel. False: there is none.
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

    /// Moves a listener, and the requests that wait, to another channel. False: there is none.
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

    /// The next event of a channel. Taking a request makes room in its listener's backlog.
    pub fn take_event(&mut self, channel: &CmChannel) -> Option<Event> {
        let event = channel.take()?;
        if let Event::ConnectRequest { id, .. } | Event::SidrRequest { id, .. } = &event {
            self.cm.take_request(*id);
        }
        Some(event)
    }

    /// A connection was destroyed: no event of it comes any more.
    pub fn detach(&mut self, id: CommId) {
        if let Some(channel) = self.channels.remove(&id) {
            channel.take_of(id);
        }
    }

    /// Requests that went with their listener.
    pub fn forget_destroyed(&mut self) {
        let gone: Vec<CommId> =
            self.channels.keys().copied().filter(|id| self.cm.state(*id).is_none()).collect();
        for id in gone {
            self.detach(id);
        }
    }

    /// The adapter is being closed: peers are told. Send, and call again while this is true.
    pub fn close(&mut self, now_ns: u64, port: &mut dyn Port) -> bool {
        self.unbind_all(now_ns, port);
        let waits = self.cm.hurry(now_ns);
        let some: Vec<CommId> = self.cm.ids().take(Cm::TIMEOUTS_PER_CALL).collect();
        for id in &some {
            let _ = self.cm.destroy(*id, now_ns);
            self.detach(*id);
        }
        waits || !some.is_empty()
    }
}
