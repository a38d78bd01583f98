//! Any bytes as answers to requests of every kind: nothing panics, each request completes at most once and in
//! order, and an answer changes no memory but that which its request names.

use pumice_transport::types::{
    Access, AtomicOperation, FlushRange, LocalData, Operand, QpState, QpType, RemoteTarget, SendRequest,
    WR_OPCODES, WcStatus, WrClass, WrInfo,
};
use pumice_transport::wire::Position;

use super::scene::{FuzzScene, IOVA, MEMORY_BYTES, packets};

/// Answers are stored below this offset; no request owns the bytes behind it.
const ANSWERS_END: usize = 1024;

/// How much of the input meant something.
pub(crate) fn survive(bytes: &[u8]) -> usize {
    let mut scene = FuzzScene::new(Access::empty());
    let guard: Vec<u8> = (ANSWERS_END..MEMORY_BYTES).map(|at| (at * 7) as u8).collect();
    assert!(scene.memory.write(ANSWERS_END, &guard));
    let qpn = scene.queue_pair(&scene.init(QpType::Rc), QpState::Rts);
    let (&mix, script) = bytes.split_first().unwrap_or((&0, &[]));
    // All that a peer answers, which an RC queue pair has.
    let kinds: Vec<&WrInfo> = WR_OPCODES.iter().filter(|info| info.class != WrClass::Local).collect();
    for number in 0..8_u8 {
        let info = kinds[usize::from(mix.rotate_left(number.into()) ^ number) % kinds.len()];
        // A READ of several packets; an atomic of eight bytes.
        let length = match info.data {
            LocalData::Stored => 600,
            LocalData::Unused => 0,
            _ => 8,
        };
        let sges = [scene.memory.sge(0, length)];
        let request = SendRequest {
            sges: if length == 0 { &[] } else { &sges },
            remote: RemoteTarget { address: IOVA, rkey: 0x101 },
            atomic: info
                .packets
                .at(Position::Only)
                .and_then(|operation| AtomicOperation::from_operands(operation, 1, 0)),
            flush: (info.operand == Operand::FlushRange).then_some(FlushRange {
                placement: 1,
                selectivity: 0,
                length: 8,
            }),
            ..SendRequest::new(number.into(), info.opcode)
        };
        let _ = scene.hca.post_send(qpn, &request);
    }
    scene.world.run_until(10_000, || false);
    let (mut completed, mut succeeded) = (Vec::new(), 0);
    for packet in packets(script) {
        scene.inject(qpn, packet);
        for completion in scene.completions() {
            completed.push(completion.wr_id);
            succeeded += usize::from(completion.status == WcStatus::Success);
        }
        scene.answers();
    }
    // The transport timer fires for what was never answered.
    scene.world.run_until(1_000_000_000, || false);
    completed.extend(scene.completions().iter().map(|completion| completion.wr_id));
    assert!(completed.is_sorted_by(|one, next| one < next), "{completed:?}");
    assert_eq!(scene.bytes(ANSWERS_END, MEMORY_BYTES - ANSWERS_END), guard);
    succeeded
}
