//! A port around a port that notifies subscribers of the packets on the network.

use std::sync::Arc;

use pumice_model::event::{Event, Subscribers};
use pumice_transport::path::Path;

use pumice_model::port::batch;
use pumice_model::port::batch::{GsoBatch, Peer, PortLimits, ReceivedBatch, TransmitError};
use pumice_model::port::traits::{Port, PortLayer};

/// A port that emits an event for every batch that the port below has sent or received, and for none that it
/// refuses. It is below all layers that change what is sent.
#[derive(Debug)]
pub struct TapPort<P> {
    inner: P,
    subscribers: Arc<Subscribers>,
}

impl<P: Port> TapPort<P> {
    /// Creates a port that notifies these subscribers of what passes `inner`.
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

    /// Returns the limits of the port below, with an ICRC, which captures show.
    fn limits_through(&self, peer: Peer) -> PortLimits {
        PortLimits { needs_icrc: true, ..self.inner.limits(peer) }
    }

    fn transmit_through(&mut self, now_ns: u64, batch: &GsoBatch<'_>) -> Result<(), TransmitError> {
        // The receiver may have the packets before the call returns, so their time is that of its beginning.
        let left_ns = self.subscribers.now_ns();
        self.inner.transmit(now_ns, batch)?;
        let GsoBatch { path, segment_bytes, bytes, comments, .. } = *batch;
        // A size of zero makes one packet of everything.
        let segment_bytes = if segment_bytes == 0 { bytes.len() } else { segment_bytes };
        let event = Event::BatchSent { path, segment_bytes, bytes, comments };
        self.subscribers.deliver(left_ns, event.topics(), &event);
        Ok(())
    }

    fn receive_through(&mut self, now_ns: u64, handler: &mut dyn FnMut(&ReceivedBatch<'_>)) -> bool {
        let subscribers = &self.subscribers;
        let was_received = self.inner.receive(now_ns, &mut |received| {
            let path = Path {
                flow: received.flow,
                traffic_class: received.traffic_class,
                hop_limit: received.hop_limit,
                flow_label: 0,
            };
            let ReceivedBatch { segment_bytes, bytes, .. } = *received;
            if received.has_icrc {
                subscribers.emit(&Event::BatchReceived { path: &path, segment_bytes, bytes });
            } else {
                let sealed = batch::sealed(&path.flow, segment_bytes, bytes);
                subscribers.emit(&Event::BatchReceived { path: &path, segment_bytes, bytes: &sealed });
            }
            handler(received);
        });
        subscribers.pass_time(now_ns);
        was_received
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};
    use std::sync::Mutex;

    use pumice_model::event::{Subscriber, Topics};
    use pumice_platform::clock::{Clock, VirtualTime};
    use pumice_transport::path::Flow;

    use super::*;
    use pumice_model::port::traits::NullPort;

    /// A port that takes 1000 ns to send.
    struct Slow(NullPort, VirtualTime);

    impl PortLayer for Slow {
        type Below = NullPort;

        fn below(&self) -> &NullPort {
            &self.0
        }

        fn below_mut(&mut self) -> &mut NullPort {
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

        fn on_event(&self, at_ns: u64, _event: &Event<'_>) {
            self.0.lock().unwrap().push(at_ns);
        }
    }

    #[test]
    fn a_batch_leaves_before_its_receiver_can_have_it() {
        let (time, times) = (VirtualTime::default(), Arc::new(Mutex::new(Vec::new())));
        let list: Vec<Box<dyn Subscriber>> = vec![Box::new(Times(Arc::clone(&times)))];
        let subscribers = Arc::new(Subscribers::new(list, Clock::Virtual(time.clone())));
        let mut port = TapPort::new(Slow(NullPort, time), subscribers);
        let (source, destination) = (IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V4(Ipv4Addr::LOCALHOST));
        let flow = Flow { source, destination, source_port: 4791, destination_port: 4791 };
        let path = Path { flow, traffic_class: 0, hop_limit: 64, flow_label: 0 };
        for _ in 0..2 {
            port.transmit(0, &GsoBatch::new(&path, 16, &[0; 16])).unwrap();
        }
        assert_eq!(*times.lock().unwrap(), [0, 1000]);
    }
}
