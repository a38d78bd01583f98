//! What indirect keys lead to, and what they refuse.

use std::sync::atomic::{AtomicU8, Ordering};

use pumice_transport::types::{KeyLayout, KeyPiece, Sge};
use pumice_transport::wire::Qpn;

use super::super::MappingCheck::Assumed;
use super::*;

const PD: u32 = 1;
const RIGHTS: Access =
    Access::LOCAL_WRITE.union(Access::REMOTE_WRITE).union(Access::REMOTE_READ).union(Access::REMOTE_ATOMIC);
const INIT: IndirectKeyInit =
    IndirectKeyInit { max_pieces: 4, is_invalidated_by_peers: false, has_signatures: false };

/// A table with one region over memory of a test, and an indirect key.
struct Scene {
    memory: Box<[AtomicU8]>,
    table: RegionTable,
    region: RegionKeys,
    key: u32,
    handle: Handle,
}

impl Scene {
    fn new(init: IndirectKeyInit) -> Scene {
        let memory: Box<[AtomicU8]> = (0..256).map(|_| AtomicU8::new(0)).collect();
        let mut table = RegionTable::new(8);
        let address = memory.as_ptr().expose_provenance() as u64;
        // SAFETY: the memory lives as long as the table, and consists of atomics. Nothing else is accessed by
        // the key.
        let region = unsafe { table.register(PD, address, 256, 0, RIGHTS | Access::ZERO_BASED) }.unwrap();
        let RegionKeys { lkey: key, handle, .. } = table.make_indirect_key(PD, init).unwrap();
        Scene { memory, table, region, key, handle }
    }

    fn piece(&self, address: u64, length: u32, skip: u32) -> KeyPiece {
        KeyPiece { address, length, skip, lkey: self.region.lkey }
    }

    fn configure(&mut self, access: Access, rounds: u32, pieces: &[KeyPiece]) -> Result<(), MemoryError> {
        let layout = Some(KeyLayout { pieces: pieces.to_vec(), rounds });
        let to = KeyConfiguration { access: Some(access), layout, ..KeyConfiguration::new(self.key) };
        self.table.configure_key(PD, &to)
    }

    fn sge(&self, address: u64, length: u32) -> Sge {
        Sge { address, length, lkey: self.key }
    }

    fn remote(&self) -> RemoteKey {
        RemoteKey { rkey: self.key, pd: PD, qpn: Qpn::new(3) }
    }

    fn bytes(&self) -> Vec<u8> {
        self.memory.iter().map(|byte| byte.load(Ordering::Relaxed)).collect()
    }

    fn fill(&self) {
        self.memory.iter().zip(0..=255).for_each(|(byte, value)| byte.store(value, Ordering::Relaxed));
    }
}

/// The places that a layout leads to, spelt out.
fn places(rounds: u64, pieces: &[KeyPiece]) -> Vec<usize> {
    let round = |round| {
        pieces.iter().flat_map(move |piece| {
            let first = piece.address + round * u64::from(piece.length + piece.skip);
            (first..first + u64::from(piece.length)).map(|place| place as usize)
        })
    };
    (0..rounds).flat_map(round).collect()
}

#[test]
fn every_range_of_a_layout_is_the_bytes_that_its_pieces_are() {
    for (rounds, shape) in [
        (1, &[(8, 8, 0), (64, 8, 0)][..]),
        (3, &[(0, 8, 2), (64, 5, 1)]),
        (2, &[(40, 0, 9), (10, 3, 0), (30, 0, 0), (100, 1, 7)]),
        (5, &[(200, 1, 1)]),
    ] {
        let mut scene = Scene::new(INIT);
        let pieces: Vec<_> =
            shape.iter().map(|(address, length, skip)| scene.piece(*address, *length, *skip)).collect();
        scene.configure(RIGHTS, rounds, &pieces).unwrap();
        let places = places(rounds.into(), &pieces);
        for from in 0..=places.len() {
            for to in from..=places.len() {
                scene.fill();
                let sge = scene.sge(from as u64, (to - from) as u32);
                let mut out = vec![0; to - from];
                scene.table.gather(PD, &[sge], 0, &mut out, Assumed).unwrap();
                let expected: Vec<u8> = places[from..to].iter().map(|place| *place as u8).collect();
                assert_eq!(out, expected, "{shape:?} from {from} to {to}");
                let data = vec![0xee; to - from];
                scene.table.remote_write(scene.remote(), from as u64, &data, Assumed).unwrap();
                let after = scene.bytes();
                let is_written = |place: usize| places[from..to].contains(&place);
                assert!(
                    (0..256).all(|place| after[place] == if is_written(place) { 0xee } else { place as u8 })
                );
                let mut ranges = Vec::new();
                let visit = |address: u64, length: u64| ranges.push((address, length));
                scene.table.for_each_range(PD, &[sge], 0..out.len() as u64, true, visit).unwrap();
                assert_eq!(ranges.iter().map(|range| range.1).sum::<u64>(), out.len() as u64);
            }
        }
        let behind = places.len() as u64;
        for (address, length) in [(0, behind + 1), (behind, 1), (behind + 1, 0), (u64::MAX, 2)] {
            let denied = Err(MemoryError::OutOfRange);
            let access = Access::REMOTE_READ;
            assert_eq!(scene.table.check_remote(scene.remote(), address, length, access), denied);
        }
    }
}

#[test]
fn a_key_opens_nothing_before_it_is_configured_and_after_it_is_invalidated() {
    let mut scene = Scene::new(INIT);
    let read = |scene: &Scene| {
        let mut out = [0; 4];
        let there = scene.table.remote_read(scene.remote(), 0, &mut out, Assumed);
        let here = scene.table.gather(PD, &[scene.sge(0, 4)], 0, &mut out, Assumed);
        assert_eq!(there, here);
        here
    };
    let invalidate = |scene: &mut Scene, for_peer| {
        let key = scene.remote();
        scene.table.invalidate(key, for_peer)
    };
    assert_eq!(read(&scene), Err(MemoryError::UnknownKey));
    assert_eq!(invalidate(&mut scene, false), Err(MemoryError::UnknownKey));
    let piece = scene.piece(0, 4, 0);
    scene.configure(RIGHTS, 1, &[piece]).unwrap();
    assert_eq!(read(&scene), Ok(()));
    assert_eq!(invalidate(&mut scene, true), Err(MemoryError::AccessDenied), "only its owner may");
    invalidate(&mut scene, false).unwrap();
    assert_eq!(read(&scene), Err(MemoryError::UnknownKey));
    // Nothing of the old configuration comes back.
    let nothing = KeyConfiguration::new(scene.key);
    scene.table.configure_key(PD, &nothing).unwrap();
    assert_eq!(
        scene.table.gather(PD, &[scene.sge(0, 4)], 0, &mut [0; 4], Assumed),
        Err(MemoryError::OutOfRange)
    );
    let mut scene = Scene::new(IndirectKeyInit { is_invalidated_by_peers: true, ..INIT });
    scene.configure(RIGHTS, 1, &[piece]).unwrap();
    invalidate(&mut scene, true).unwrap();
    assert_eq!(read(&scene), Err(MemoryError::UnknownKey));
}

#[test]
fn rights_are_those_of_the_key_and_of_the_regions_of_its_pieces() {
    let mut scene = Scene::new(INIT);
    let piece = scene.piece(0, 16, 0);
    let (denied, key) = (Err(MemoryError::AccessDenied), scene.remote());
    scene.configure(Access::REMOTE_READ, 1, &[piece]).unwrap();
    assert_eq!(scene.table.remote_read(key, 0, &mut [0; 16], Assumed), Ok(()));
    assert_eq!(scene.table.remote_write(key, 0, &[0; 16], Assumed), denied);
    assert_eq!(scene.table.scatter(PD, &[scene.sge(0, 16)], 0, &[0; 16], Assumed), denied);
    let fault = scene.table.find_fault(PD, &[scene.sge(0, 16)], true).unwrap();
    assert_eq!((fault.error, fault.region), (MemoryError::AccessDenied, None));
    assert_eq!(scene.table.find_fault(PD, &[scene.sge(0, 16)], false), None);
    let wrong = scene.table.find_fault(PD, &[scene.sge(8, 9)], false).unwrap();
    assert_eq!(wrong.error, MemoryError::OutOfRange);
    // A later request changes what it names.
    let change = KeyConfiguration { access: Some(Access::LOCAL_WRITE), ..KeyConfiguration::new(scene.key) };
    scene.table.configure_key(PD, &change).unwrap();
    assert_eq!(scene.table.scatter(PD, &[scene.sge(0, 16)], 0, &[0; 16], Assumed), Ok(()));
    assert_eq!(scene.table.remote_read(key, 0, &mut [0; 16], Assumed), denied);
    let other = RemoteKey { pd: PD + 1, ..key };
    assert_eq!(scene.table.remote_read(other, 0, &mut [0; 1], Assumed), Err(MemoryError::WrongDomain));
    // A deregistered region takes the piece with it, and a key that is no region's gives no piece.
    scene.table.deregister(scene.region.handle).unwrap();
    assert_eq!(scene.table.scatter(PD, &[scene.sge(0, 1)], 0, &[0], Assumed), Err(MemoryError::UnknownKey));
    let itself = KeyPiece { lkey: scene.key, ..piece };
    scene.configure(RIGHTS, 1, &[itself]).unwrap();
    assert_eq!(scene.table.scatter(PD, &[scene.sge(0, 1)], 0, &[0], Assumed), Err(MemoryError::UnknownKey));
}

#[test]
fn atomics_need_a_word_in_one_piece() {
    let mut scene = Scene::new(INIT);
    let pieces = [scene.piece(8, 8, 0), scene.piece(32, 4, 0), scene.piece(36, 4, 0), scene.piece(51, 8, 0)];
    scene.configure(RIGHTS, 1, &pieces).unwrap();
    let key = scene.remote();
    let add = |scene: &Scene, at| scene.table.remote_atomic(key, at, AtomicOperation::FetchAdd { add: 5 });
    let is_aligned = scene.memory.as_ptr().addr().is_multiple_of(8);
    if is_aligned {
        assert_eq!((add(&scene, 0), add(&scene, 0)), (Ok(0), Ok(5)));
        assert_eq!(scene.bytes()[8..16], 10_u64.to_ne_bytes());
    }
    assert_eq!(add(&scene, 8), Err(MemoryError::Misaligned), "two pieces");
    assert_eq!(add(&scene, 16), Err(MemoryError::Misaligned), "an odd address");
    assert_eq!(add(&scene, 20), Err(MemoryError::OutOfRange));
    scene.configure(Access::REMOTE_WRITE, 1, &pieces).unwrap();
    assert_eq!(add(&scene, 0), Err(MemoryError::AccessDenied));
}

#[test]
fn configurations_beyond_what_a_key_was_made_for_are_refused() {
    let mut scene = Scene::new(INIT);
    let piece = scene.piece(0, 1, 0);
    assert_eq!(scene.configure(RIGHTS, 1, &[piece; 5]), Err(MemoryError::OutOfRange));
    assert_eq!(scene.configure(Access::MW_BIND, 1, &[piece]), Err(MemoryError::AccessDenied));
    let wrong = KeyConfiguration::new(scene.region.lkey);
    assert_eq!(scene.table.configure_key(PD, &wrong), Err(MemoryError::UnknownKey));
    let wrong = KeyConfiguration { key: scene.key ^ 1, ..wrong };
    assert_eq!(scene.table.configure_key(PD, &wrong), Err(MemoryError::UnknownKey));
    let good = KeyConfiguration { key: scene.key, ..wrong };
    assert_eq!(scene.table.configure_key(PD + 1, &good), Err(MemoryError::WrongDomain));
    // Huge layouts are bytes like others as long as no request reaches them.
    let huge = KeyPiece { length: u32::MAX, skip: u32::MAX, ..piece };
    assert_eq!(scene.configure(RIGHTS, u32::MAX, &[huge; 4]), Err(MemoryError::OutOfRange));
    scene.configure(RIGHTS, u32::MAX, &[huge]).unwrap();
    let far = scene.table.remote_read(scene.remote(), u64::from(u32::MAX) * 9, &mut [0; 2], Assumed);
    assert_eq!(far, Err(MemoryError::OutOfRange));
    scene.configure(RIGHTS, 0, &[piece]).unwrap();
    assert_eq!(
        scene.table.gather(PD, &[scene.sge(0, 1)], 0, &mut [0], Assumed),
        Err(MemoryError::OutOfRange)
    );
    assert_eq!(scene.table.names_in(PD).len(), 2);
    assert_eq!(scene.table.deregister(scene.handle).unwrap_err().errno(), libc::EINVAL);
    assert_eq!(scene.table.end_indirect_key(scene.region.handle).unwrap_err().errno(), libc::EINVAL);
    assert_eq!(scene.table.end_indirect_key(scene.handle), Ok(PD));
    assert_eq!(
        scene.table.gather(PD, &[scene.sge(0, 1)], 0, &mut [0], Assumed),
        Err(MemoryError::UnknownKey)
    );
}
