//! A port without a device: forged packets leave, answers are collected.

use std::net::IpAddr;

use pumice_device::port::{GsoBatch, Port, SimPort};
use pumice_device::world::World;
use pumice_transport::path::{Flow, Path, ROCE_PORT};
use pumice_transport::wire::{Bth, Headers, Opcode, Psn, Qpn, icrc};

pub struct Forger {
    port: SimPort,
    path: Path,
}

impl Forger {
    /// Attached as `ip`, aiming at `victim`.
    pub fn new(world: &World, ip: &str, victim: IpAddr) -> Forger {
        let source: IpAddr = ip.parse().unwrap();
        let flow = Flow { source, destination: victim, source_port: 50_000, destination_port: ROCE_PORT };
        let path = Path { flow, traffic_class: 0, hop_limit: 64, flow_label: 0 };
        Forger { port: world.fabric().attach(&[source]), path }
    }

    /// A packet with a right ICRC.
    pub fn packet(&self, headers: &Headers, payload: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; headers.len() + payload.len() + 3];
        let length = headers.emit_packet(payload, &mut bytes);
        bytes.truncate(length);
        bytes.extend_from_slice(&[0; 4]);
        self.seal(bytes)
    }

    /// Makes the ICRC (the last four bytes) right again.
    pub fn seal(&self, mut bytes: Vec<u8>) -> Vec<u8> {
        icrc::seal(&self.path.flow, 0, &mut bytes);
        bytes
    }

    pub fn send(&mut self, world: &mut World, bytes: &[u8]) {
        let batch = GsoBatch::new(&self.path, bytes.len(), bytes);
        self.port.transmit(world.now_ns(), &batch).unwrap();
    }

    pub fn send_marked(&mut self, world: &mut World, bytes: &[u8], traffic_class: u8) {
        self.path.traffic_class = traffic_class;
        self.send(world, bytes);
        self.path.traffic_class = 0;
    }

    /// What came back, packet by packet.
    pub fn answers(&mut self, world: &World) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        while self.port.receive(world.now_ns(), &mut |received| {
            let packets = received.bytes.chunks(received.segment_bytes);
            all.extend(packets.map(<[u8]>::to_vec));
        }) {}
        all
    }
}

/// A BTH with this opcode byte.
pub fn headers(opcode: u8, destination: Qpn, psn: u32) -> Headers {
    let bth = Bth { ack_request: true, ..Bth::new(Opcode::from_byte(opcode), destination, Psn::new(psn)) };
    Headers::new(bth)
}
