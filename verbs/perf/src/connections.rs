//! Connections by address, made one after the other, compared with those of TCP.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use pumice_device::settings::Wire;
use pumice_verbs::{
    CompletionQueue, Connection, ConnectionParams, Device, DeviceOptions, Listener, ProtectionDomain,
    RcQueuePair, VerbsError,
};
use serde::{Deserialize, Serialize};

use crate::error::{PerfError, Result, of_device};
use crate::statistics::LatencySamples;

/// Longest time that one end waits for the other. A busy machine may need seconds for one connection.
const TIMEOUT: Duration = Duration::from_secs(120);
/// Time that the accepting end waits for a request before it checks for connections that have ended.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// Addresses at which an [`Acceptor`] accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct AcceptorAddresses {
    /// Address for connections of queue pairs.
    pub rdma: SocketAddr,
    /// Address for connections of the yardstick.
    pub tcp: SocketAddr,
}

/// The device of one end of many connections, with the objects that its queue pairs need.
struct ConnectionSide {
    device: Device,
    domain: ProtectionDomain,
    cq: CompletionQueue,
}

impl ConnectionSide {
    fn open(address: IpAddr) -> Result<ConnectionSide> {
        let options = DeviceOptions::new().exclusive(false).wire(Wire::Auto).addresses([address]);
        let device = Device::open(options).map_err(of_device)?;
        let domain = device.protection_domain().map_err(of_device)?;
        let cq = device.completion_queue(16).map_err(of_device)?;
        Ok(ConnectionSide { device, domain, cq })
    }

    fn queue_pair(&self) -> Result<RcQueuePair> {
        RcQueuePair::builder(&self.domain, &self.cq, &self.cq).build().map_err(of_device)
    }
}

/// Accepts connections of queue pairs, each with a queue pair of its own, and of TCP.
pub struct Acceptor {
    side: ConnectionSide,
    listener: Listener,
    tcp: TcpListener,
    at: AcceptorAddresses,
}

impl Acceptor {
    /// Opens a device with this address, and listens at ports that the system chooses.
    ///
    /// # Errors
    /// Fails if a device or a port is not available.
    pub fn bind(address: IpAddr) -> Result<Acceptor> {
        let side = ConnectionSide::open(address)?;
        let listener = side.device.listen(0).map_err(of_device)?;
        let unanswered = |error| PerfError::Control(format!("no TCP port of {address} is free: {error}"));
        let tcp = TcpListener::bind((address, 0)).map_err(unanswered)?;
        let rdma = SocketAddr::new(address, listener.port());
        let at = AcceptorAddresses { rdma, tcp: tcp.local_addr().map_err(unanswered)? };
        Ok(Acceptor { side, listener, tcp, at })
    }

    /// Returns the addresses at which it accepts.
    pub fn at(&self) -> AcceptorAddresses {
        self.at
    }

    /// Accepts connections until that fails.
    ///
    /// # Errors
    /// Always fails, with the reason of the end.
    pub fn serve(self) -> Result<std::convert::Infallible> {
        let Acceptor { side, listener, tcp, .. } = self;
        thread::spawn(move || {
            for stream in tcp.incoming() {
                // A client that has gone already is no failure of this end.
                let _ = stream.and_then(|mut stream| stream.write_all(&[1]));
            }
        });
        let mut open = Vec::new();
        loop {
            match listener.request(CHECK_INTERVAL) {
                Ok(request) => {
                    let accepted = request.accept(&side.queue_pair()?, &ConnectionParams::default(), &());
                    let accepted = accepted.map_err(of_device)?;
                    accepted.established(TIMEOUT).map_err(of_device)?;
                    open.push(accepted);
                }
                Err(VerbsError::TimedOut { .. }) => {}
                Err(error) => return Err(of_device(error)),
            }
            open.retain(|connection| connection.try_disconnected().is_none());
        }
    }
}

/// Results of one round of connections.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ConnectionRates {
    /// Connections per second that were made and closed again.
    pub per_second: f64,
    /// Median of the times until they were established, in ms.
    pub p50_ms: f64,
    /// The 99th percentile of these times, in ms.
    pub p99_ms: f64,
}

/// Requests connections.
pub struct Connector {
    side: ConnectionSide,
    to: AcceptorAddresses,
    times: LatencySamples,
}

impl Connector {
    /// Opens a device with this address.
    ///
    /// # Errors
    /// Fails if a device is not available.
    pub fn open(address: IpAddr, to: AcceptorAddresses) -> Result<Connector> {
        Ok(Connector { side: ConnectionSide::open(address)?, to, times: LatencySamples::new() })
    }

    /// Connects queue pairs for this duration, each made for its connection, one after the other.
    ///
    /// # Errors
    /// Fails if a queue pair is not available, or if the other end refuses or does not answer.
    pub fn queue_pairs(&mut self, duration: Duration) -> Result<ConnectionRates> {
        let (side, to) = (&self.side, self.to.rdma);
        one_by_one(duration, &mut self.times, || {
            let qp = side.queue_pair()?;
            let params = ConnectionParams::default();
            Connection::connect(&qp, to, &params, &(), TIMEOUT).map(drop).map_err(of_device)
        })
    }

    /// Measures the yardstick: connects TCP for this duration, and waits for the first byte of each
    /// connection, which shows that the other end has accepted it.
    ///
    /// # Errors
    /// Fails if the other end refuses.
    pub fn tcp(&mut self, duration: Duration) -> Result<ConnectionRates> {
        let to = self.to.tcp;
        one_by_one(duration, &mut self.times, || {
            let greeted = TcpStream::connect(to).and_then(|mut stream| stream.read_exact(&mut [0]));
            greeted.map_err(|error| PerfError::Control(format!("no TCP connection to {to}: {error}")))
        })
    }
}

/// Makes connections for this duration, at least one.
fn one_by_one(
    duration: Duration,
    times: &mut LatencySamples,
    mut connect: impl FnMut() -> Result<()>,
) -> Result<ConnectionRates> {
    times.clear();
    let start = Instant::now();
    let mut count = 0.0;
    loop {
        let begin = Instant::now();
        connect()?;
        times.push(begin.elapsed());
        count += 1.0;
        let elapsed = start.elapsed();
        if elapsed >= duration {
            let none = || PerfError::Lost("no connection was made".to_owned());
            let times = times.percentiles().ok_or_else(none)?.scaled(1e-3);
            return Ok(ConnectionRates {
                per_second: count / elapsed.as_secs_f64(),
                p50_ms: times.p50,
                p99_ms: times.p99,
            });
        }
    }
}
