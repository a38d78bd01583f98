//! A port around a port that tells what meets the network.

use std::sync::Arc;

use pumice_transport::path::Path;

use super::{GsoBatch, Peer, Port, PortLayer, PortLimits, Received, TransmitError, segments};
use crate::event::{Event, Subscribers};

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
        self.inner.transmit(now_ns, batch)?;
        let GsoBatch { path, segment_bytes, bytes, comments, .. } = *batch;
        // A size of zero makes one packet of everything.
        let segment_bytes = if segment_bytes == 0 { bytes.len() } else { segment_bytes };
        self.subscribers.emit(&Event::BatchSent { path, segment_bytes, bytes, comments });
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
