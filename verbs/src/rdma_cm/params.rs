//! The parameters and the events of a connection, and private data that the two sides exchange, as values.

use pumice_transport::cm::QpParameters;
use pumice_transport::mad::TransportType;

use crate::buffers::RemoteSlice;
use crate::error::{Rejection, Result, VerbsError};
use crate::setters::setters;
use crate::transport::{Connected, PathOptions, Rc, RcConnectOptions, Receiver, Uc, UcConnectOptions};

/// An event of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConnectionEvent {
    /// The connection is established: requests can be posted.
    Established,
    /// The peer's program refused, no program listens there, or the peer gave up.
    Rejected(Rejection),
    /// The peer did not answer any of the repetitions.
    Unreachable,
    /// The connection has ended. The queue pair is in ERR, and what was posted is flushed.
    Disconnected,
    /// No packet of the connection can be under way any more.
    TimewaitExit,
}

/// The parameters that each side can choose: the names are those of `rdma_conn_param`. READs and atomics
/// concern RC only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionParams {
    /// Number of READs and atomics that this side serves at once, 0…128; fewer if the peer wants fewer.
    pub responder_resources: u8,
    /// Number of READs and atomics that this side has outstanding, 0…128; fewer if the peer serves fewer.
    pub initiator_depth: u8,
    /// Number of retries after timeouts and lost packets, 0…7, of both sides: the connecting side sets it.
    pub retry_count: u8,
    /// Number of retries of the peer while no receive is posted here, 0…6; 7 means unlimited.
    pub rnr_retry_count: u8,
    /// Time that peers wait when no receive is posted here: a code of the RNR timer table, 0…31. 12 is 0.64
    /// ms.
    pub min_rnr_timer: u8,
    /// Time within which messages of the connection manager are answered: 4.096 µs · 2^t. 20 is four seconds.
    /// The connecting side sets it for both.
    pub response_timeout: u8,
    /// Number of times that such a message is repeated before the peer counts as unreachable, 0…15.
    pub max_cm_retries: u8,
    /// TOS byte / IPv6 traffic class. The connecting side sets it for both.
    pub traffic_class: u8,
}

impl Default for ConnectionParams {
    /// Returns the defaults: 16 READs and atomics each way, 7 retries, unlimited RNR retries after 0.64 ms,
    /// messages of the connection manager repeated 15 times after 4 s, as in Linux.
    fn default() -> ConnectionParams {
        ConnectionParams {
            responder_resources: 16,
            initiator_depth: 16,
            retry_count: 7,
            rnr_retry_count: 7,
            min_rnr_timer: 12,
            response_timeout: 20,
            max_cm_retries: 15,
            traffic_class: 0,
        }
    }
}

setters!(ConnectionParams {
    responder_resources: u8,
    initiator_depth: u8,
    retry_count: u8,
    rnr_retry_count: u8,
    min_rnr_timer: u8,
    response_timeout: u8,
    max_cm_retries: u8,
    traffic_class: u8,
});

/// A transport service that is connected by address: RC or UC.
pub trait Connectable: Connected<Peer = Self> + Receiver {
    /// Its name in a request.
    #[doc(hidden)]
    const TRANSPORT: TransportType;

    /// Returns the agreed parameters, as options of the queue pair.
    #[doc(hidden)]
    fn options(agreed: &QpParameters, own: &ConnectionParams) -> Self::Options;
}

impl Connectable for Rc {
    const TRANSPORT: TransportType = TransportType::Rc;

    fn options(agreed: &QpParameters, own: &ConnectionParams) -> RcConnectOptions {
        RcConnectOptions {
            path: path(agreed),
            timeout: agreed.timeout,
            retry_count: agreed.retry_count,
            rnr_retry: agreed.rnr_retry_count,
            min_rnr_timer: own.min_rnr_timer,
            max_rd_atomic: agreed.max_rd_atomic.min(own.initiator_depth),
            max_dest_rd_atomic: agreed.max_dest_rd_atomic.min(own.responder_resources),
        }
    }
}

impl Connectable for Uc {
    const TRANSPORT: TransportType = TransportType::Uc;

    fn options(agreed: &QpParameters, _: &ConnectionParams) -> UcConnectOptions {
        UcConnectOptions { path: path(agreed) }
    }
}

fn path(agreed: &QpParameters) -> PathOptions {
    PathOptions {
        mtu: Some(agreed.path_mtu),
        traffic_class: agreed.traffic_class,
        hop_limit: agreed.hop_limit,
        flow_label: agreed.flow_label,
        service_level: agreed.sl,
    }
}

/// A value that travels as private data: 56 bytes fit a request, 196 an acceptance, 148 a rejection, and a
/// type that is too long for where it is used does not compile. The length is not on the wire: the reader
/// gets what was written, and zeros after it.
///
/// The trait is implemented for `()`, arrays of bytes, numbers (big-endian), [`RemoteSlice`], and pairs of
/// such values.
///
/// ```
/// use pumice_verbs::rdma_cm::PrivateData;
///
/// /// How many of which memory.
/// struct Offer {
///     blocks: u32,
///     block_bytes: u32,
/// }
///
/// impl PrivateData for Offer {
///     const LEN: usize = 8;
///
///     fn write(&self, to: &mut [u8]) {
///         (self.blocks, self.block_bytes).write(to);
///     }
///
///     fn read(from: &[u8]) -> Option<Offer> {
///         let (blocks, block_bytes) = PrivateData::read(from)?;
///         (blocks > 0).then_some(Offer { blocks, block_bytes })
///     }
/// }
///
/// let mut bytes = [0; 8];
/// Offer { blocks: 2, block_bytes: 4096 }.write(&mut bytes);
/// assert_eq!(bytes, [0, 0, 0, 2, 0, 0, 0x10, 0]);
/// assert!(Offer::read(&[0; 8]).is_none());
/// ```
///
/// A request has no room for 57 bytes:
///
/// ```compile_fail
/// # use pumice_verbs::{Connection, ConnectionParams, RcQueuePair};
/// fn ask(qp: &RcQueuePair) {
///     let peer = ([10, 0, 0, 1], 7471).into();
///     drop(Connection::start(qp, peer, &ConnectionParams::default(), &[0_u8; 57]));
/// }
/// # let _: fn(&RcQueuePair) = ask;
/// ```
pub trait PrivateData: Sized {
    /// Length of the encoded form in bytes.
    const LEN: usize;

    /// Writes the value to `LEN` bytes, which are zero.
    fn write(&self, to: &mut [u8]);

    /// Decodes the value from at least `LEN` bytes, which any host may have sent; `None` if they are no such
    /// value.
    fn read(from: &[u8]) -> Option<Self>;
}

/// Returns the bytes of a value.
pub(super) fn written<P: PrivateData>(value: &P) -> Vec<u8> {
    let mut bytes = vec![0; P::LEN];
    value.write(&mut bytes);
    bytes
}

/// Decodes the value in private data that was received.
pub(super) fn value<P: PrivateData>(bytes: &[u8]) -> Result<P> {
    let found = if bytes.len() < P::LEN { None } else { P::read(bytes) };
    found.ok_or_else(|| VerbsError::Invalid {
        object: "connection",
        attribute: "private_data",
        problem: format!("of {} bytes is not what was expected", bytes.len()),
        remedy: "agree with the peer on the type of private data",
    })
}

impl Rejection {
    /// Returns the private data of the rejection.
    ///
    /// # Errors
    /// `Invalid`: it is not of this type.
    pub fn private_data<P: PrivateData>(&self) -> Result<P> {
        value(&self.private_data)
    }
}

impl PrivateData for () {
    const LEN: usize = 0;

    fn write(&self, _: &mut [u8]) {}

    fn read(_: &[u8]) -> Option<()> {
        Some(())
    }
}

impl<const N: usize> PrivateData for [u8; N] {
    const LEN: usize = N;

    fn write(&self, to: &mut [u8]) {
        to.iter_mut().zip(self).for_each(|(target, byte)| *target = *byte);
    }

    fn read(from: &[u8]) -> Option<[u8; N]> {
        from.first_chunk().copied()
    }
}

macro_rules! number {
    ($($number:ty),*) => {$(
        impl PrivateData for $number {
            const LEN: usize = size_of::<$number>();

            fn write(&self, to: &mut [u8]) {
                self.to_be_bytes().write(to);
            }

            fn read(from: &[u8]) -> Option<$number> {
                PrivateData::read(from).map(<$number>::from_be_bytes)
            }
        }
    )*};
}

number!(u8, u16, u32, u64, u128);

impl PrivateData for RemoteSlice {
    const LEN: usize = RemoteSlice::LEN;

    fn write(&self, to: &mut [u8]) {
        self.to_bytes().write(to);
    }

    fn read(from: &[u8]) -> Option<RemoteSlice> {
        from.first_chunk().map(RemoteSlice::from_bytes)
    }
}

impl<A: PrivateData, B: PrivateData> PrivateData for (A, B) {
    const LEN: usize = A::LEN + B::LEN;

    fn write(&self, to: &mut [u8]) {
        if let Some((first, second)) = to.split_at_mut_checked(A::LEN) {
            self.0.write(first);
            self.1.write(second);
        }
    }

    fn read(from: &[u8]) -> Option<(A, B)> {
        let (first, second) = from.split_at_checked(A::LEN)?;
        Some((A::read(first)?, B::read(second)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_back_from_padded_bytes() {
        let slice = RemoteSlice { address: 1 << 40, rkey: 7, length: 100 };
        let whole = ((0x1234_u16, slice), [1_u8, 2, 3]);
        let mut bytes = written(&whole);
        assert_eq!(bytes.len(), 2 + 16 + 3);
        assert_eq!(bytes[..2], [0x12, 0x34]);
        bytes.resize(56, 0);
        assert_eq!(value::<((u16, RemoteSlice), [u8; 3])>(&bytes).unwrap(), whole);
        value::<()>(&bytes).unwrap();
        assert_eq!(value::<u64>(&bytes[..7]).unwrap_err().attribute().as_deref(), Some("private_data"));
    }
}
