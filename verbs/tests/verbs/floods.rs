//! A hostile peer with a UDP socket of its own: requests beyond any backlog, replays, and noise.

use std::net::{IpAddr, SocketAddr, UdpSocket};

use pumice_device::port::wait_readable;
use pumice_transport::mad::{CmMessage, GSI_Q_KEY, MAD_BYTES, PortSpace, ServiceId};
use pumice_transport::path::{Flow, ROCE_PORT};
use pumice_transport::wire::{Bth, Deth, Headers, Opcode, Psn, Qpn, icrc};
use pumice_verbs::{Connection, ConnectionParams, Listener};
use std::os::fd::AsRawFd;

use crate::kit::{LIMIT, TestSide, udp};
use crate::request::request;

const PORT: u16 = 7471;
const BACKLOG: usize = 16;

struct Attacker {
    socket: UdpSocket,
    address: IpAddr,
    victim: IpAddr,
    random: u64,
}

impl Attacker {
    fn new(address: IpAddr, victim: &TestSide) -> Attacker {
        let socket = UdpSocket::bind((address, ROCE_PORT)).unwrap();
        socket.set_nonblocking(true).unwrap();
        Attacker { socket, address, victim: victim.device.gids()[0].1.ip, random: 0x9e37_79b9_7f4a_7c15 }
    }

    fn draw(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    /// A packet for queue pair 1 with a right ICRC.
    fn packet(&self, payload: &[u8], qkey: u32) -> Vec<u8> {
        let mut headers = Headers::new(Bth::new(Opcode::from_byte(0x64), Qpn::GSI, Psn::new(0)));
        headers.deth = Some(Deth { qkey, source: Qpn::GSI });
        let mut bytes = vec![0; headers.len() + payload.len() + 3];
        let length = headers.emit_packet(payload, &mut bytes);
        bytes.truncate(length);
        bytes.extend_from_slice(&[0; 4]);
        let (source, destination) = (self.address, self.victim);
        let flow = Flow { source, destination, source_port: ROCE_PORT, destination_port: ROCE_PORT };
        icrc::seal(&flow, 0, &mut bytes);
        bytes
    }

    fn send(&self, packet: &[u8]) {
        // What the kernel does not take is lost, as anywhere.
        let _ = self.socket.send_to(packet, SocketAddr::new(self.victim, ROCE_PORT));
    }

    fn request(&self, number: u32) -> [u8; MAD_BYTES] {
        let service_id = ServiceId::rdma_cm(PortSpace::Tcp, PORT);
        let request = request(number, service_id, self.address, self.victim);
        CmMessage::Req(request).emit(number.into())
    }

    /// A message that was damaged, or made up.
    fn noise(&mut self) -> Vec<u8> {
        let number = self.draw() as u32 % 64;
        let mut mad = self.request(number).to_vec();
        let flips = self.draw() % 12;
        for _ in 0..flips {
            let (offset, value) = (self.draw() as usize % 64, self.draw() as u8);
            mad[offset] = value;
        }
        // Attributes of messages, most of the time; any method and class now and then.
        if self.draw().is_multiple_of(2) {
            mad[17] = 0x10 + (self.draw() % 12) as u8;
        }
        let length =
            if self.draw().is_multiple_of(16) { self.draw() as usize % 300 / 4 * 4 } else { MAD_BYTES };
        mad.resize(length, 0x5a);
        let qkey = if self.draw().is_multiple_of(16) { self.draw() as u32 } else { GSI_Q_KEY };
        self.packet(&mad, qkey)
    }
}

/// Connects, says something and disconnects, while the other side is being attacked.
fn honest(client: &TestSide, server: &TestSide, listener: &Listener, victim: IpAddr) {
    // A quarter of a second, sixteen times: a busy machine may leave the server without a processor for one.
    let quick = ConnectionParams { response_timeout: 16, ..ConnectionParams::default() };
    let qp = client.rc();
    let asked = Connection::start(&qp, SocketAddr::new(victim, PORT), &quick, b"honest").unwrap();
    let accepted = loop {
        let request = listener.request(LIMIT).unwrap();
        // The attacker's are taken and turned away, until the honest one is asked again.
        if request.private_data::<[u8; 6]>().unwrap() == *b"honest" {
            break request.accept(&server.rc(), &quick, &()).unwrap();
        }
    };
    asked.established(LIMIT).unwrap();
    accepted.established(LIMIT).unwrap();
    asked.disconnect().unwrap();
    accepted.disconnected(LIMIT).unwrap();
}

#[test]
fn a_flood_of_requests_fills_the_backlog_and_honest_clients_come_through() {
    let (client, server) = udp(113);
    let mut attacker = Attacker::new([127, 89, 113, 66].into(), &server);
    let listener = Listener::bind(&server.device, SocketAddr::new(attacker.victim, PORT), BACKLOG).unwrap();
    let packets: Vec<Vec<u8>> =
        (1..=4000).map(|number| attacker.packet(&attacker.request(number), GSI_Q_KEY)).collect();
    for round in 0..3 {
        // The second and third time they are replays.
        packets.iter().for_each(|packet| attacker.send(packet));
        let count = server.device.hca().cm_connection_count();
        assert!(count <= BACKLOG + 4, "round {round}: {count} connections");
        honest(&client, &server, &listener, attacker.victim);
    }
    for _ in 0..4000 {
        let noise = attacker.noise();
        attacker.send(&noise);
    }
    honest(&client, &server, &listener, attacker.victim);
    // What was taken was turned away: the attacker is told so.
    assert!(wait_readable(&[attacker.socket.as_raw_fd()], None, Some(LIMIT)).unwrap());

    // Nothing of it stays but what ends by itself: the honest ones' timewait.
    drop(listener);
    let left = server.device.hca().cm_connection_count();
    assert!(left <= 4 + BACKLOG, "{left} connections stay");
    honest_count_reaches_zero(&server);
}

fn honest_count_reaches_zero(side: &TestSide) {
    let hca = side.device.hca();
    let begun = std::time::Instant::now();
    while hca.cm_connection_count() > 0 {
        assert!(begun.elapsed() < LIMIT, "{} connections leak", hca.cm_connection_count());
        // An event that never comes, as a clock.
        let _ = side.device.async_event(std::time::Duration::from_millis(5));
    }
}
