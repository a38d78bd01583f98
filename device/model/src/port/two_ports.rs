//! A port around a port whose device shows two ports: it tells their packets apart.

use std::net::IpAddr;
use std::sync::Arc;

use crate::counters::Counters;
use pumice_transport::host::Counter;

use super::batch::{GsoBatch, ReceivedBatch, TransmitError};
use super::{Port, PortLayer};

/// A port that counts what each of the device's ports sends and receives: a packet is of the port whose
/// address it leaves from or goes to. It is right above the network, and devices with one port do not have
/// it.
#[derive(Debug)]
pub struct TwoPorts<P> {
    inner: P,
    addresses: [IpAddr; 2],
    counters: [Arc<Counters>; 2],
}

impl<P: Port> TwoPorts<P> {
    /// Creates a port that tells the packets of `inner` apart; `addresses` are those of the ports, in order.
    pub fn new(inner: P, addresses: [IpAddr; 2], counters: [Arc<Counters>; 2]) -> TwoPorts<P> {
        TwoPorts { inner, addresses, counters }
    }
}

/// Returns the counters of the port with an address.
fn of<'a>(addresses: &[IpAddr; 2], counters: &'a [Arc<Counters>; 2], own: IpAddr) -> Option<&'a Counters> {
    addresses.iter().zip(counters).find(|(address, _)| **address == own).map(|(_, counters)| &**counters)
}

impl<P: Port> PortLayer for TwoPorts<P> {
    type Below = P;

    fn below(&self) -> &P {
        &self.inner
    }

    fn below_mut(&mut self) -> &mut P {
        &mut self.inner
    }

    fn transmit_through(&mut self, now_ns: u64, batch: &GsoBatch<'_>) -> Result<(), TransmitError> {
        let sent = self.inner.transmit(now_ns, batch);
        if sent == Err(TransmitError::Busy) {
            return sent;
        }
        let packets = batch.segments().len() as u64;
        if let Some(counters) = of(&self.addresses, &self.counters, batch.path.flow.source) {
            match sent {
                Ok(()) => {
                    counters.add(Counter::TxBatches, 1);
                    counters.add(Counter::TxPackets, packets);
                    counters.add(Counter::TxBytes, batch.bytes.len() as u64);
                }
                Err(_) => counters.add(Counter::TxDropped, packets),
            }
        }
        sent
    }

    fn receive_through(&mut self, now_ns: u64, handler: &mut dyn FnMut(&ReceivedBatch<'_>)) -> bool {
        let (addresses, counters) = (&self.addresses, &self.counters);
        self.inner.receive(now_ns, &mut |received| {
            // A packet to a group comes to the port that groups are joined by: the first.
            let to = received.flow.destination;
            let own = if to.is_multicast() { addresses[0] } else { to };
            if let Some(counters) = of(addresses, counters, own) {
                counters.add(Counter::RxBatches, 1);
                counters.add(Counter::RxPackets, received.segments().len() as u64);
                counters.add(Counter::RxBytes, received.bytes.len() as u64);
            }
            handler(received);
        })
    }
}

#[cfg(test)]
mod tests {
    use pumice_transport::path::{Flow, Path};

    use super::*;
    use crate::port::NullPort;

    #[test]
    fn a_packet_is_of_the_port_whose_address_it_leaves_from() {
        let addresses = [1, 2].map(|last| IpAddr::from([127, 0, 0, last]));
        let counters = [Arc::new(Counters::new()), Arc::new(Counters::new())];
        let mut port = TwoPorts::new(Sink(NullPort), addresses, counters.clone());
        let send = |port: &mut TwoPorts<Sink>, source: IpAddr| {
            let flow = Flow { source, destination: addresses[0], source_port: 4791, destination_port: 4791 };
            let path = Path { flow, traffic_class: 0, hop_limit: 64, flow_label: 0 };
            port.transmit(0, &GsoBatch::new(&path, 16, &[0; 48])).unwrap();
        };
        send(&mut port, addresses[1]);
        send(&mut port, addresses[1]);
        send(&mut port, IpAddr::from([127, 0, 0, 3]));
        let of = |counter| counters.clone().map(|port| port.value(counter));
        assert_eq!(of(Counter::TxPackets), [0, 6]);
        assert_eq!(of(Counter::TxBytes), [0, 96]);
    }

    struct Sink(NullPort);

    impl PortLayer for Sink {
        type Below = NullPort;

        fn below(&self) -> &NullPort {
            &self.0
        }

        fn below_mut(&mut self) -> &mut NullPort {
            &mut self.0
        }

        fn transmit_through(&mut self, _now_ns: u64, _batch: &GsoBatch<'_>) -> Result<(), TransmitError> {
            Ok(())
        }
    }
}
