//! What a packet costs this program, without sockets: ICRC, headers, and whole messages between two
//! simulated devices in one thread.

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use pumice_transport::path::Flow;
use pumice_transport::wire::{Bth, Packet, icrc};
use pumice_verbs::{
    Access, CompletionQueue, FabricConfig, MemoryRegion, RcQueuePair, RecvRequest, SendRequest, Simulation,
};

const SECOND: Duration = Duration::from_secs(1);

fn flow() -> Flow {
    let address = |last| IpAddr::V4(Ipv4Addr::new(192, 0, 2, last));
    Flow { source: address(1), destination: address(2), source_port: 49_152, destination_port: 4791 }
}

/// A SEND only with a payload of so many bytes, sealed.
fn packet(payload_bytes: usize) -> Vec<u8> {
    let mut bytes = vec![0x5a; Bth::LEN + payload_bytes + 4];
    // RC SEND ONLY, partition 0xffff, no pad.
    bytes[..Bth::LEN].copy_from_slice(&[0x04, 0, 0xff, 0xff, 0, 0, 0, 17, 0, 0, 0, 1]);
    icrc::seal(&flow(), 0, &mut bytes);
    bytes
}

fn wire(c: &mut Criterion) {
    let mut group = c.benchmark_group("icrc");
    for payload_bytes in [8, 1024, 4096] {
        let bytes = packet(payload_bytes);
        group.throughput(Throughput::Bytes(bytes.len() as u64));
        group.bench_with_input(BenchmarkId::new("verify", payload_bytes), &bytes, |b, bytes| {
            b.iter(|| icrc::verify(&flow(), 0, black_box(bytes)));
        });
    }
    group.finish();
    let bytes = packet(8);
    let mut group = c.benchmark_group("packet");
    group.bench_function("parse", |b| b.iter(|| Packet::parse(black_box(&bytes)).is_ok()));
    let parsed = Packet::parse(&bytes).expect("the packet is well-formed");
    assert_eq!(parsed.payload().len(), 8);
    let headers = parsed.headers();
    let mut out = [0; 64];
    group.bench_function("emit", |b| b.iter(|| black_box(&headers).emit(black_box(&mut out))));
    group.finish();
}

struct BenchSide {
    qp: RcQueuePair,
    cq: CompletionQueue,
    memory: MemoryRegion,
}

fn sides(simulation: &Simulation, length: usize) -> [BenchSide; 2] {
    let sides = ["192.0.2.1", "192.0.2.2"].map(|address| {
        let device = simulation.device(address.parse().expect("an address")).expect("a device");
        let domain = device.protection_domain().expect("a domain");
        let cq = device.completion_queue(64).expect("a queue");
        let memory = domain.allocate(length, Access::LOCAL_WRITE | Access::REMOTE_WRITE).expect("memory");
        let qp = RcQueuePair::builder(&domain, &cq, &cq).build().expect("a queue pair");
        BenchSide { qp, cq, memory }
    });
    let [a, b] = &sides;
    a.qp.connect(&b.qp.endpoint(), &Default::default()).expect("connected");
    b.qp.connect(&a.qp.endpoint(), &Default::default()).expect("connected");
    sides
}

fn messages(c: &mut Criterion) {
    let mut group = c.benchmark_group("message");
    for length in [8, 65_536] {
        let simulation = Simulation::new(FabricConfig::default());
        let [a, b] = sides(&simulation, length);
        let (local, remote) = ([a.memory.slice(..).expect("all")], b.memory.remote());
        group.throughput(Throughput::Bytes(length as u64));
        group.bench_function(BenchmarkId::new("write", length), |bencher| {
            bencher.iter(|| {
                a.qp.post_send(&SendRequest::write(&local, remote).signaled()).expect("posted");
                a.cq.wait_success(SECOND).expect("complete")
            });
        });
        let into = [b.memory.slice(..).expect("all")];
        group.bench_function(BenchmarkId::new("send", length), |bencher| {
            bencher.iter(|| {
                b.qp.post_recv(&RecvRequest { wr_id: 0, sges: &into }).expect("posted");
                a.qp.post_send(&SendRequest::send(&local).signaled()).expect("posted");
                b.cq.wait_success(SECOND).expect("received");
                a.cq.wait_success(SECOND).expect("complete")
            });
        });
    }
    group.finish();
}

criterion_group!(benches, wire, messages);
criterion_main!(benches);
