//! What an idle connection costs: memory, and neither threads nor descriptors.
#![allow(clippy::print_stdout)]

mod kit;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicI64, Ordering};

use kit::{Connection, Node};
use pumice_device::port::FabricConfig;
use pumice_device::world::World;
use pumice_transport::types::*;
use pumice_transport::wire::Qpn;

/// Counts the bytes that are allocated.
struct Counting;

static ALLOCATED: AtomicI64 = AtomicI64::new(0);

// SAFETY: everything is handed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.fetch_add(layout.size() as i64, Ordering::Relaxed);
        // SAFETY: the caller's promises are those of the system's allocator.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        ALLOCATED.fetch_sub(layout.size() as i64, Ordering::Relaxed);
        // SAFETY: the caller's promises are those of the system's allocator.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const QUEUE_PAIRS: usize = 10_000;
const LIMIT_BYTES: i64 = 4096;

fn entries(directory: &str) -> usize {
    std::fs::read_dir(directory).unwrap().count()
}

#[test]
fn ten_thousand_idle_queue_pairs_cost_memory_only_and_little_of_it() {
    let mut world = World::new(FabricConfig::default());
    let a = Node::new(&mut world, "10.0.0.1", 4096, 64);
    let b = Node::new(&mut world, "10.0.0.2", 4096, 64);
    let mut init = a.qp_init(QpType::Rc);
    init.capacity =
        QpCapacity { max_send_wr: 1, max_recv_wr: 1, max_send_sge: 1, max_recv_sge: 1, max_inline_data: 0 };
    let count = || (entries("/proc/self/fd"), entries("/proc/self/task"));
    let (system_before, before) = (count(), ALLOCATED.load(Ordering::Relaxed));
    let numbers = Connection { timeout: 14, ..Connection::default() };
    let mut qpns: Vec<Qpn> = Vec::with_capacity(QUEUE_PAIRS);
    for k in 0..QUEUE_PAIRS {
        let qpn = a.hca.create_qp(&init).unwrap().0;
        a.to_rtr(qpn, true, b.ip, Qpn::new(1000 + k as u32), numbers);
        a.to_rts(qpn, true, numbers);
        qpns.push(qpn);
    }
    let vector_bytes = (qpns.capacity() * size_of::<Qpn>()) as i64;
    let bytes = ALLOCATED.load(Ordering::Relaxed) - before - vector_bytes;
    let each = bytes / QUEUE_PAIRS as i64;
    eprintln!("{QUEUE_PAIRS} idle RC queue pairs in RTS: {each} bytes each, queues of depth 1 included");
    assert!(each <= LIMIT_BYTES, "{each} bytes per queue pair");
    assert_eq!(count(), system_before, "descriptors and threads do not grow with queue pairs");
    assert_eq!(a.hca.deadline_ns(), None, "an idle queue pair has no timer");
    for qpn in qpns {
        a.hca.destroy_qp(qpn).unwrap();
    }
    // Numbers go round, so the tables grow until each was in use once. Then nothing may be left over.
    let round = || {
        for _ in 0..65_536 {
            let qpn = a.hca.create_qp(&init).unwrap().0;
            a.hca.destroy_qp(qpn).unwrap();
        }
        ALLOCATED.load(Ordering::Relaxed)
    };
    let (first, second) = (round(), round());
    assert!(second - first < 65_536, "{} bytes leaked by 65536 queue pairs", second - first);
}
