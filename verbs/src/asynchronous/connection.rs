//! Futures for connections by address.

use std::net::SocketAddr;
use std::ops::Deref;
use std::os::fd::AsFd as _;

use pumice_calls::Call;

use super::event::Readiness;
use crate::device::calls::gated_call;
use crate::error::Result;
use crate::queue_pair::QueuePair;
use crate::rdma_cm::{
    Connectable, Connection, ConnectionEvent, ConnectionParams, ConnectionRequest, Listener, PrivateData,
};

/// Call of C verbs by which fault plans name the wait for events of the connection manager.
const WAITS: Call = Call::rdma_get_cm_event;

/// A listener whose requests are awaited.
#[derive(Debug)]
pub struct AsyncListener {
    listener: Listener,
    readiness: Readiness,
}

impl AsyncListener {
    /// Creates a listener whose requests are awaited.
    ///
    /// # Errors
    /// `Os`: no file descriptor is available.
    pub fn new(listener: Listener) -> Result<AsyncListener> {
        let readiness = Readiness::new(listener.device(), listener.as_fd())?;
        Ok(AsyncListener { listener, readiness })
    }

    /// Waits for the next peer that requests a connection.
    ///
    /// # Errors
    /// The errors of [`Listener::request`] except `TimedOut`; `Stalled`, `Os`.
    pub async fn request(&self) -> Result<ConnectionRequest> {
        gated_call(self.listener.device(), WAITS, || Ok(()))?;
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
    /// Creates a connection whose events are awaited.
    ///
    /// # Errors
    /// `Os`: no file descriptor is available.
    pub fn new(connection: Connection<T>) -> Result<AsyncConnection<T>> {
        let readiness = Readiness::new(connection.queue_pair().device(), connection.as_fd())?;
        Ok(AsyncConnection { connection, readiness })
    }

    /// Connects as [`Connection::connect`] does, without a time-out: a future that is dropped gives the
    /// attempt up.
    ///
    /// # Errors
    /// As [`Connection::start`] and [`AsyncConnection::established`].
    pub async fn connect<P: PrivateData>(
        qp: &QueuePair<T>,
        peer: SocketAddr,
        params: &ConnectionParams,
        private_data: &P,
    ) -> Result<AsyncConnection<T>> {
        let connection = AsyncConnection::new(Connection::start(qp, peer, params, private_data)?)?;
        connection.established().await?;
        Ok(connection)
    }

    /// Waits until the connection is established, so that requests can be posted.
    ///
    /// # Errors
    /// The errors of [`Connection::established`] except `TimedOut`; `Stalled`, `Os`.
    pub async fn established(&self) -> Result<()> {
        self.wait("establishment of the connection", Connection::try_established).await
    }

    /// Waits until the connection has ended. Either side may end it, in any way.
    ///
    /// # Errors
    /// `Stalled`, `Os`.
    pub async fn disconnected(&self) -> Result<()> {
        self.wait("disconnection", Connection::try_disconnected).await
    }

    /// Waits for the next event of the connection.
    ///
    /// # Errors
    /// The errors of [`Connection::event`] except `TimedOut`; `Stalled`, `Os`.
    pub async fn event(&self) -> Result<ConnectionEvent> {
        self.wait("event of the connection", Connection::try_event).await
    }

    async fn wait<R>(
        &self,
        awaited: &'static str,
        attempt: impl Fn(&Connection<T>) -> Option<Result<R>>,
    ) -> Result<R> {
        gated_call(self.connection.queue_pair().device(), WAITS, || Ok(()))?;
        self.readiness.until(awaited, |_| attempt(&self.connection)).await?
    }
}

impl<T: Connectable> Deref for AsyncConnection<T> {
    type Target = Connection<T>;

    fn deref(&self) -> &Connection<T> {
        &self.connection
    }
}
