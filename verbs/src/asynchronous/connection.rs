//! Futures for connections by address.

use std::ops::Deref;
use std::os::fd::AsFd as _;

use pumice_calls::Call;

use super::readiness::Readiness;
use crate::device::calls::called;
use crate::ground::error::Result;
use crate::rdma_cm::{Connectable, Connection, ConnectionEvent, ConnectionRequest, Listener};

/// What a future for events of the connection manager is to fault plans.
const WAITS: Call = Call::rdma_get_cm_event;

/// A listener whose requests are awaited.
#[derive(Debug)]
pub struct AsyncListener {
    listener: Listener,
    readiness: Readiness,
}

impl AsyncListener {
    /// Awaits requests of this listener.
    ///
    /// # Errors
    /// `Os`: no file descriptor is to be had.
    pub fn new(listener: Listener) -> Result<AsyncListener> {
        let readiness = Readiness::new(listener.device(), listener.as_fd())?;
        Ok(AsyncListener { listener, readiness })
    }

    /// The next peer that asks for a connection.
    ///
    /// # Errors
    /// As [`Listener::request`], without `TimedOut`; `Stalled`, `Os`.
    pub async fn request(&self) -> Result<ConnectionRequest> {
        called(self.listener.device(), WAITS, || Ok(()))?;
        self.readiness.until("connection request", |_| self.listener.try_request()).await?
    }
}

impl Deref for AsyncListener {
    type Target = Listener;

    fn deref(&self) -> &Listener {
        &self.listener
    }
}

/// A connection whose events are awaited. Dropping it disconnects.
#[derive(Debug)]
pub struct AsyncConnection<T: Connectable> {
    connection: Connection<T>,
    readiness: Readiness,
}

impl<T: Connectable> AsyncConnection<T> {
    /// Awaits events of this connection.
    ///
    /// # Errors
    /// `Os`: no file descriptor is to be had.
    pub fn new(connection: Connection<T>) -> Result<AsyncConnection<T>> {
        let readiness = Readiness::new(connection.queue_pair().device(), connection.as_fd())?;
        Ok(AsyncConnection { connection, readiness })
    }

    /// Both sides are there: requests can be posted.
    ///
    /// # Errors
    /// As [`Connection::established`], without `TimedOut`; `Stalled`, `Os`.
    pub async fn established(&self) -> Result<()> {
        self.wait("establishment of the connection", Connection::try_established).await
    }

    /// The connection is over. Either side may end it, in any way.
    ///
    /// # Errors
    /// `Stalled`, `Os`.
    pub async fn disconnected(&self) -> Result<()> {
        self.wait("disconnection", Connection::try_disconnected).await
    }

    /// The next event of the connection.
    ///
    /// # Errors
    /// As [`Connection::event`], without `TimedOut`; `Stalled`, `Os`.
    pub async fn event(&self) -> Result<ConnectionEvent> {
        self.wait("event of the connection", Connection::try_event).await
    }

    async fn wait<R>(
        &self,
        awaited: &'static str,
        attempt: impl Fn(&Connection<T>) -> Option<Result<R>>,
    ) -> Result<R> {
        called(self.connection.queue_pair().device(), WAITS, || Ok(()))?;
        self.readiness.until(awaited, |_| attempt(&self.connection)).await?
    }
}

impl<T: Connectable> Deref for AsyncConnection<T> {
    type Target = Connection<T>;

    fn deref(&self) -> &Connection<T> {
        &self.connection
    }
}
