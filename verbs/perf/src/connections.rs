//! Connections by address, one after the other, beside those of TCP.

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
use crate::statistics::Times;

/// How long one end waits for the other. A busy machine may need seconds for one connection.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long the accepting end waits for a request before it looks for connections that have ended.
const LOOK_AFTER: Duration = Duration::from_millis(100);

/// Where an [`Acceptor`] accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct AcceptsAt {
    /// Connections of queue pairs.
    pub rdma: SocketAddr,
    /// Connections of the yardstick.
    pub tcp: SocketAddr,
}

/// A device, or one end of many connections: what a queue pair of it is made of.
struct Side {
    device: Device,
    domain: ProtectionDomain,
    cq: CompletionQueue,
}

impl Side {
    fn open(address: IpAddr) -> Result<Side> {
        let options = DeviceOptions::new().exclusive(false).wire(Wire::Auto).addresses([address]);
        let device = Device::open(options).map_err(of_device)?;
        let domain = device.protection_domain().map_err(of_device)?;
        let cq = device.completion_queue(16).map_err(of_device)?;
        Ok(Side { device, domain, cq })
    }

    fn queue_pair(&self) -> Result<RcQueuePair> {
        RcQueuePair::builder(&self.domain, &self.cq, &self.cq).build().map_err(of_device)
    }
}

/// Accepts connections of queue pairs, each with a queue pair of its own, and of TCP.
pub struct Acceptor {
    side: Side,
    listener: Listener,
    tcp: TcpListener,
    at: AcceptsAt,
}

impl Acceptor {
    /// Opens a device with this address, and listens at ports of the system's choice.
    ///
    /// # Errors
    /// A device or a port cannot be had.
    pub fn bind(address: IpAddr) -> Result<Acceptor> {
        let side = Side::open(address)?;
        let listener = side.device.listen(0).map_err(of_device)?;
        let unheard = |error| PerfError::Control(format!("no TCP port of {address} is free: {error}"));
        let tcp = TcpListener::bind((address, 0)).map_err(unheard)?;
        let rdma = SocketAddr::new(address, listener.port());
        let at = AcceptsAt { rdma, tcp: tcp.local_addr().map_err(unheard)? };
        Ok(Acceptor { side, listener, tcp, at })
    }

    /// Where it accepts.
    pub fn at(&self) -> AcceptsAt {
        self.at
    }

    /// Accepts until that fails.
    ///
    /// # Errors
    /// Always: why it ended.
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
            match listener.request(LOOK_AFTER) {
                Ok(request) => {
                    let accepted = request.accept(&side.queue_pair()?, &ConnectionParams::default(), &());
                    let accepted = accepted.map_err(of_device)?;
                    accepted.established(PATIENCE).map_err(of_device)?;
                    open.push(accepted);
                }
                Err(VerbsError::TimedOut { .. }) => {}
                Err(error) => return Err(of_device(error)),
            }
            open.retain(|connection| connection.try_disconnected().is_none());
        }
    }
}

/// Connections of one round.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Connected {
    /// Connections that were made and given up again.
    pub per_second: f64,
    /// The time that half of them needed at most until they were established, in ms.
    pub p50_ms: f64,
    /// The time that 99 % of them needed at most.
    pub p99_ms: f64,
}

/// Asks for connections.
pub struct Connector {
    side: Side,
    to: AcceptsAt,
    times: Times,
}

impl Connector {
    /// Opens a device with this address.
    ///
    /// # Errors
    /// A device cannot be had.
    pub fn open(address: IpAddr, to: AcceptsAt) -> Result<Connector> {
        Ok(Connector { side: Side::open(address)?, to, times: Times::new() })
    }

    /// Connects queue pairs for so long, each made for its connection, one after the other.
    ///
    /// # Errors
    /// A queue pair cannot be had, or the other end refuses or does not answer.
    pub fn queue_pairs(&mut self, duration: Duration) -> Result<Connected> {
        let (side, to) = (&self.side, self.to.rdma);
        one_by_one(duration, &mut self.times, || {
            let qp = side.queue_pair()?;
            let asked = Connection::connect(&qp, to, &ConnectionParams::default(), &()).map_err(of_device)?;
            asked.established(PATIENCE).map_err(of_device)
        })
    }

    /// The yardstick: connects TCP for so long, and waits for the first byte of each connection, by which the
    /// other end has accepted it.
    ///
    /// # Errors
    /// The other end refuses.
    pub fn tcp(&mut self, duration: Duration) -> Result<Connected> {
        let to = self.to.tcp;
        one_by_one(duration, &mut self.times, || {
            let greeted = TcpStream::connect(to).and_then(|mut stream| stream.read_exact(&mut [0]));
            greeted.map_err(|error| PerfError::Control(format!("no TCP connection to {to}: {error}")))
        })
    }
}

/// Makes connections for so long, one at least.
fn one_by_one(
    duration: Duration,
    times: &mut Times,
    mut connect: impl FnMut() -> Result<()>,
) -> Result<Connected> {
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
            return Ok(Connected {
                per_second: count / elapsed.as_secs_f64(),
                p50_ms: times.p50,
                p99_ms: times.p99,
            });
        }
    }
}
