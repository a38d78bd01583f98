use std::sync::{Arc, Mutex};

use pumice_fabric::{Fabric, FabricConfig};
use pumice_model::event::Subscribers;
use pumice_model::port::Port;
use pumice_model::port::batch::GsoBatch;
use pumice_platform::clock::{Clock, VirtualTime};
use pumice_transport::path::ROCE_PORT;
use pumice_transport::wire::{LinkType, decapsulate};

use super::*;

/// A writer the test can look into, or that fails.
#[derive(Clone, Default)]
struct Memory {
    bytes: Arc<Mutex<Vec<u8>>>,
    full: Arc<Mutex<bool>>,
}

impl Write for Memory {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if *self.full.lock().unwrap() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.bytes.lock().unwrap().extend(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A capture that the test keeps a hand on.
struct SharedCapture(Arc<CaptureSubscriber<Memory>>);

impl Subscriber for SharedCapture {
    fn topics(&self) -> Topics {
        self.0.topics()
    }
    fn on_event(&self, at_ns: u64, event: &Event<'_>) {
        self.0.on_event(at_ns, event);
    }
}

/// One enhanced packet block: time, flags, packet.
type Captured = (u64, u32, Vec<u8>);

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

/// Reads a file block by block, checking what every reader relies on.
fn parse(mut file: &[u8]) -> Vec<Captured> {
    assert_eq!((word(file, 0), word(file, 8)), (0x0a0d_0d0a, 0x1a2b_3c4d), "begins with a section header");
    let mut kinds = Vec::new();
    let mut packets = Vec::new();
    while !file.is_empty() {
        let (kind, length) = (word(file, 0), word(file, 4) as usize);
        assert_eq!(length % 4, 0);
        assert_eq!(word(file, length - 4) as usize, length, "the length is repeated");
        let body = &file[8..length - 4];
        kinds.push(kind);
        if kind == 1 {
            assert_eq!(word(body, 0), 101, "raw IP");
        }
        if kind == 6 {
            let time = u64::from(word(body, 4)) << 32 | u64::from(word(body, 8));
            let captured = word(body, 12) as usize;
            assert_eq!(captured, word(body, 16) as usize);
            let options = &body[20 + captured.next_multiple_of(4)..];
            assert_eq!(word(options, 0), 4 << 16 | 2, "packet flags, 4 bytes");
            packets.push((time, word(options, 4), body[20..20 + captured].to_vec()));
        }
        file = &file[length..];
    }
    assert_eq!(kinds[..2], [0x0a0d_0d0a, 1]);
    packets
}

fn path(source: &str, destination: &str) -> Path {
    let flow = Flow {
        source: source.parse().unwrap(),
        destination: destination.parse().unwrap(),
        source_port: 0xc001,
        destination_port: ROCE_PORT,
    };
    Path { flow, traffic_class: 0x68, hop_limit: 9, flow_label: 0 }
}

/// Packets of 23 bytes, so that blocks need padding, with right ICRCs.
fn batch(path: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    for index in 0..3 {
        let mut packet = [index as u8; 23];
        icrc::seal(&path.flow, index, &mut packet);
        bytes.extend(packet);
    }
    bytes
}

#[test]
fn both_directions_are_read_back_with_right_icrcs() {
    for (a, b) in [("10.0.0.1", "10.0.0.2"), ("fd00::1", "fd00::2")] {
        let fabric = Fabric::new(FabricConfig::default());
        let memory = Memory::default();
        let path = path(a, b);
        let base = 1_700_000_000_000_000_000;
        let (time, capture) = (VirtualTime::default(), CaptureSubscriber::new(memory.clone(), base).unwrap());
        let subscribers = Subscribers::new(vec![Box::new(capture)], Clock::Virtual(time.clone()));
        let subscribers = Arc::new(subscribers);
        let mut sender = TapPort::new(fabric.attach(&[path.flow.source]), Arc::clone(&subscribers));
        let mut receiver = TapPort::new(fabric.attach(&[path.flow.destination]), subscribers);

        let bytes = batch(&path);
        time.advance_to(5);
        sender.transmit(5, &GsoBatch::new(&path, 23, &bytes)).unwrap();
        time.advance_to(1_005);
        let mut handed_on = 0;
        while receiver.receive(1_005, &mut |_| handed_on += 1) {}
        assert_eq!(handed_on, 3);

        let packets = parse(&memory.bytes.lock().unwrap());
        let times: Vec<(u64, u32)> = packets.iter().map(|p| (p.0 - base, p.1)).collect();
        assert_eq!(times, [(5, 2), (5, 2), (5, 2), (1_005, 1), (1_005, 1), (1_005, 1)]);
        for (number, (_, flags, packet)) in packets.iter().enumerate() {
            let datagram = decapsulate(LinkType::RawIp, packet).unwrap();
            assert_eq!(datagram.flow, path.flow);
            assert_eq!((datagram.traffic_class, datagram.hop_limit), (0x68, 9));
            assert!(
                icrc::verify_with_header(datagram.ip_header, datagram.udp_header, datagram.payload),
                "packet {number} of {a}"
            );
            if let Some(id) = datagram.ip_id {
                // Sent as a batch, received one by one.
                assert_eq!(usize::from(id), if *flags == 2 { number } else { 0 });
            }
        }
    }
}

#[test]
fn the_ip_id_of_a_received_packet_is_the_one_its_icrc_was_made_for() {
    let flow = path("10.0.0.1", "10.0.0.2").flow;
    for id in [0, 1, 0x1234, 0xffff] {
        let mut packet = [7; 64];
        icrc::seal(&flow, id, &mut packet);
        assert_eq!(likely_ip_id(&flow, 0, &packet), id);
        assert_eq!(likely_ip_id(&flow, 3, &packet), id);
    }
}

#[test]
fn a_full_disk_is_counted_and_disturbs_nothing() {
    let fabric = Fabric::new(FabricConfig::default());
    let memory = Memory::default();
    let path = path("10.0.0.1", "10.0.0.2");
    let capture = Arc::new(CaptureSubscriber::new(memory.clone(), 0).unwrap());
    let subscribers =
        Subscribers::new(vec![Box::new(SharedCapture(Arc::clone(&capture)))], Clock::monotonic());
    let mut port = TapPort::new(fabric.attach(&[path.flow.source]), Arc::new(subscribers));
    *memory.full.lock().unwrap() = true;
    let bytes = batch(&path);
    port.transmit(0, &GsoBatch::new(&path, 23, &bytes)).unwrap();
    assert_eq!(capture.write_errors(), 3);
    assert_eq!(fabric.stats().sent, 3);
    assert!(CaptureSubscriber::new(memory, 0).is_err(), "the head cannot be written");
}

#[test]
fn what_a_plan_did_to_a_call_is_a_comment_of_the_next_packet() {
    use pumice_model::fates::fired::CallFired;
    use pumice_model::fates::{CallFate, CallKey};
    let memory = Memory::default();
    let path = path("10.0.0.1", "10.0.0.2");
    let capture = CaptureSubscriber::new(memory.clone(), 0).unwrap();
    let key = CallKey { call: "ibv_reg_mr", ordinal: 3, qp: None, to: None };
    let fate = CallFate { errno: Some(libc::ENOMEM), ..CallFate::default() };
    let fault = CallFired { rule: "full", tag: "server", key, fate };
    capture.on_event(0, &Event::CallFaultApplied { fault: &fault });
    assert!(parse(&memory.bytes.lock().unwrap()).is_empty());
    let bytes = batch(&path);
    capture.on_event(1, &Event::BatchSent { path: &path, segment_bytes: 23, bytes: &bytes, comments: &[] });
    let file = memory.bytes.lock().unwrap().clone();
    assert_eq!(parse(&file).len(), 3);
    let said = "pumice: before: fault \"full\" fails ibv_reg_mr with ENOMEM (call 3 of this name)";
    assert_eq!(file.windows(said.len()).filter(|part| *part == said.as_bytes()).count(), 1);
}

#[test]
fn a_file_that_cannot_be_created_is_an_error() {
    let nowhere = std::path::Path::new("/nonexistent/directory/capture.pcapng");
    assert!(CaptureSubscriber::create(nowhere, 0).is_err());
}

#[test]
fn a_file_is_complete_when_the_port_is_gone() {
    let file = std::env::temp_dir().join(format!("pumice-capture-{}.pcapng", std::process::id()));
    let fabric = Fabric::new(FabricConfig::default());
    let path = path("10.0.0.1", "10.0.0.2");
    let capture = CaptureSubscriber::create(&file, 0).unwrap();
    let subscribers = Subscribers::new(vec![Box::new(capture)], Clock::monotonic());
    let mut port = TapPort::new(fabric.attach(&[path.flow.source]), Arc::new(subscribers));
    let bytes = batch(&path);
    port.transmit(7, &GsoBatch::new(&path, 23, &bytes)).unwrap();
    drop(port);
    let read = std::fs::read(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    assert_eq!(parse(&read).len(), 3);
}
