//! A port around a port that tells what meets the network.

use std::sync::Arc;

use pumice_events::{Event, Subscribers};
use pumice_transport::path::Path;

use super::{GsoBatch, Peer, Port, PortLayer, PortLimits, Received, TransmitError, segments};

/// Emits an event for every batch that the port below has sent or received, and for none that it refuses. It
/// stands below all layers that change what is sent.
#[derive(Debug)]
pub struct TapPort<P> {
    inner: P,
    subscribers: Arc<Subscribers>,
}

impl<P: Port> TapPort<P> {
    /// Tells these subscribers what passes `inner`.
    pub fn new(inner: P, subscribers: Arc<Subscribers>) -> TapPort<P> {
        TapPort { inner, subscribers }
    }
}

impl<P: Port> PortLayer for TapPort<P> {
    type Below = P;

    fn below(&self) -> &P {
        &self.inner
    }

    fn below_mut(&mut self) -> &mut P {
        &mut self.inner
    }

    /// Captures show the ICRC.
    fn limits_through(&self, peer: Peer) -> PortLimits {
        PortLimits { needs_icrc: true, ..self.inner.limits(peer) }
    }

    fn transmit_through(&mut self, now_ns: u64, batch: &GsoBatch<'_>) -> Result<(), TransmitError> {
        // The receiver may have the packets before the call returns: they leave when it begins.
        let left_ns = self.subscribers.now_ns();
        self.inner.transmit(now_ns, batch)?;
        let GsoBatch { path, segment_bytes, bytes, comments, .. } = *batch;
        // A size of zero makes one packet of everything.
        let segment_bytes = if segment_bytes == 0 { bytes.len() } else { segment_bytes };
        let event = Event::BatchSent { path, segment_bytes, bytes, comments };
        self.subscribers.deliver(left_ns, event.topics(), &event);
        Ok(())
    }

    fn receive_through(&mut self, now_ns: u64, handler: &mut dyn FnMut(&Received<'_>)) -> bool {
        let subscribers = &self.subscribers;
        let took = self.inner.receive(now_ns, &mut |received| {
            let path = Path {
                flow: received.flow,
                traffic_class: received.traffic_class,
                hop_limit: received.hop_limit,
                flow_label: 0,
            };
            let Received { segment_bytes, bytes, .. } = *received;
            if received.has_icrc {
                subscribers.emit(&Event::BatchReceived { path: &path, segment_bytes, bytes });
            } else {
                let sealed = segments::sealed(&path.flow, segment_bytes, bytes);
                subscribers.emit(&Event::BatchReceived { path: &path, segment_bytes, bytes: &sealed });
            }
            handler(received);
        });
        subscribers.pass_time(now_ns);
        took
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};
    use std::sync::Mutex;

    use pumice_events::{Subscriber, Topics};
    use pumice_ground::clock::{Clock, VirtualTime};
    use pumice_transport::path::Flow;

    use super::*;
    use crate::Nowhere;

    /// A port that takes 1000 ns to send.
    struct Slow(Nowhere, VirtualTime);

    impl PortLayer for Slow {
        type Below = Nowhere;

        fn below(&self) -> &Nowhere {
            &self.0
        }

        fn below_mut(&mut self) -> &mut Nowhere {
            &mut self.0
        }

        fn transmit_through(&mut self, _now_ns: u64, _batch: &GsoBatch<'_>) -> Result<(), TransmitError> {
            self.1.advance_to(self.1.now_ns() + 1000);
            Ok(())
        }
    }

    struct Times(Arc<Mutex<Vec<u64>>>);

    impl Subscriber for Times {
        fn topics(&self) -> Topics {
            Topics::BATCHES
        }

        fn hear(&self, at_ns: u64, _event: &Event<'_>) {
            self.0.lock().unwrap().push(at_ns);
        }
    }

    #[test]
    fn a_batch_leaves_before_its_receiver_can_have_it() {
        let (time, times) = (VirtualTime::default(), Arc::new(Mutex::new(Vec::new())));
        let list: Vec<Box<dyn Subscriber>> = vec![Box::new(Times(Arc::clone(&times)))];
        let subscribers = Arc::new(Subscribers::new(list, Clock::Virtual(time.clone())));
        let mut port = TapPort::new(Slow(Nowhere, time), subscribers);
        let (source, destination) = (IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V4(Ipv4Addr::LOCALHOST));
        let flow = Flow { source, destination, source_port: 4791, destination_port: 4791 };
        let path = Path { flow, traffic_class: 0, hop_limit: 64, flow_label: 0 };
        for _ in 0..2 {
            port.transmit(0, &GsoBatch::new(&path, 16, &[0; 16])).unwrap();
        }
        assert_eq!(*times.lock().unwrap(), [0, 1000]);
    }
}
