//! Packets of XRC targets for other processes: each goes to the process that owns the SRQ that the packet
//! names.

use pumice_model::port::Port;
use pumice_model::port::batch::ReceivedBatch;
use pumice_transport::path::Flow;
use pumice_transport::wire::ProcessIndex;

/// A run of packets for another process.
#[derive(Debug)]
pub(crate) struct Outgoing {
    process: ProcessIndex,
    flow: Flow,
    traffic_class: u8,
    hop_limit: u8,
    segment_bytes: usize,
    bytes: Vec<u8>,
    has_icrc: bool,
}

/// The queue of packets that leave for other processes when the port is free.
#[derive(Debug, Default)]
pub(crate) struct Forwarding {
    runs: Vec<Outgoing>,
}

impl Forwarding {
    /// Queues a packet for a process. Packets that follow each other are joined.
    pub(crate) fn push(&mut self, process: ProcessIndex, received: &ReceivedBatch<'_>, packet: &[u8]) {
        let step = received.segment_bytes.max(1);
        if let Some(last) = self.runs.last_mut()
            && last.process == process
            && last.flow == received.flow
            && last.segment_bytes == step
            && last.has_icrc == received.has_icrc
            && last.bytes.len().is_multiple_of(step)
            && last.bytes.len() + packet.len() <= usize::from(u16::MAX)
        {
            last.bytes.extend_from_slice(packet);
            return;
        }
        self.runs.push(Outgoing {
            process,
            flow: received.flow,
            traffic_class: received.traffic_class,
            hop_limit: received.hop_limit,
            segment_bytes: step,
            bytes: packet.to_vec(),
            has_icrc: received.has_icrc,
        });
    }

    /// Forwards the queued packets. Packets that the port does not accept are lost, as on a wire.
    pub(crate) fn flush(&mut self, port: &mut dyn Port) {
        if self.runs.is_empty() {
            return;
        }
        let Some(group) = port.group() else { return self.runs.clear() };
        for run in self.runs.drain(..) {
            let Outgoing { process, flow, traffic_class, hop_limit, segment_bytes, ref bytes, has_icrc } =
                run;
            let received = ReceivedBatch { flow, traffic_class, hop_limit, segment_bytes, bytes, has_icrc };
            group.forward(process, &received);
        }
    }
}
