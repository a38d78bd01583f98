//! Data that loses and gets the fields of blocks on its way between memory and the wire.

use std::sync::atomic::{AtomicU8, Ordering};

use pumice_transport::host::RemoteKey;
use pumice_transport::types::{
    Access, BlockSignature, KeyConfiguration, KeyLayout, KeyPiece, SignatureChange,
};
use pumice_transport::wire::Qpn;

use super::super::MappingCheck::Assumed;
use super::super::{IndirectKeyInit, SignaturePart};
use super::*;

const PD: u32 = 1;
const BYTES: usize = 4096;
const CRC: SignedBlocks =
    SignedBlocks { block_bytes: 512, signature: BlockSignature::Crc32 { seed: u32::MAX } };
const DIF: SignedBlocks = SignedBlocks {
    block_bytes: 512,
    signature: BlockSignature::T10Dif {
        is_checksum: false,
        seed: 0,
        app_tag: 0xabcd,
        ref_tag: 7,
        counts: true,
        app_escapes: false,
        tags_escape: false,
    },
};

/// Memory, and a key that leads to its first bytes.
struct Scene {
    memory: Box<[AtomicU8]>,
    table: RegionTable,
    key: u32,
}

impl Scene {
    fn new(length: u32, signature: KeySignature) -> Scene {
        let memory: Box<[AtomicU8]> = (0..BYTES).map(|_| AtomicU8::new(0xee)).collect();
        let mut table = RegionTable::new(8);
        let (address, rights) = (memory.as_ptr().expose_provenance() as u64, Access::LOCAL_WRITE);
        // SAFETY: the memory lives as long as the table, and consists of atomics.
        let region = unsafe { table.register(PD, address, BYTES as u64, address, rights) }.unwrap();
        let init = IndirectKeyInit { max_pieces: 4, is_invalidated_by_peers: false, has_signatures: true };
        let key = table.make_indirect_key(PD, init).unwrap().lkey;
        // Two pieces, of which one ends in the middle of a block.
        let piece = |from: u32, to: u32| KeyPiece {
            address: address + u64::from(from),
            length: to - from,
            skip: 0,
            lkey: region.lkey,
        };
        let to = KeyConfiguration {
            access: Some(Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ),
            layout: Some(KeyLayout { pieces: vec![piece(0, 700), piece(700, length)], rounds: 1 }),
            signature: SignatureChange::Set(signature),
            ..KeyConfiguration::new(key)
        };
        table.key_posted(PD, &to);
        table.configure_key(PD, &to).unwrap();
        Scene { memory, table, key }
    }

    fn sge(&self, address: u64, length: u32) -> Sge {
        Sge { address, length, lkey: self.key }
    }

    /// Stores what came from the wire, so many bytes at a time.
    fn receive(&self, bytes: &[u8], data: u32, chunk: usize) {
        for (index, part) in bytes.chunks(chunk).enumerate() {
            let sges = [self.sge(0, data)];
            self.table.scatter(PD, &sges, (index * chunk) as u64, part, Assumed).unwrap();
        }
    }

    /// What leaves on the wire, so many bytes at a time.
    fn send(&self, data: u32, chunk: usize) -> Vec<u8> {
        let sges = [self.sge(0, data)];
        let length = self.table.wire_bytes_of(&sges[0], true) as usize;
        let mut sent = vec![0; length];
        for (index, part) in sent.chunks_mut(chunk).enumerate() {
            self.table.gather(PD, &sges, (index * chunk) as u64, part, Assumed).unwrap();
        }
        sent
    }

    fn bytes(&self) -> Vec<u8> {
        self.memory.iter().map(|byte| byte.load(Ordering::Relaxed)).collect()
    }

    fn flip(&self, at: usize) {
        self.memory[at].fetch_xor(1, Ordering::Relaxed);
    }

    fn error(&self) -> Option<SignatureError> {
        self.table.take_signature_error(self.key).unwrap()
    }
}

fn data(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at * 7 % 253) as u8).collect()
}

/// Data with the fields of these blocks.
fn signed(blocks: SignedBlocks, data: &[u8]) -> Vec<u8> {
    let mut all = Vec::new();
    for (index, block) in data.chunks(512).enumerate() {
        all.extend_from_slice(block);
        let field = field_of(&blocks, index as u64, block);
        all.extend_from_slice(&field[..blocks.signature.field_bytes() as usize]);
    }
    all
}

#[test]
fn blocks_of_memory_get_their_fields_and_lose_them_when_they_leave() {
    for chunk in [1, 100, 511, 512, 513, 1024] {
        let scene = Scene::new(
            3 * 516,
            KeySignature { memory: Some(CRC), check_mask: 0xf0, ..KeySignature::default() },
        );
        let data = data(1536);
        scene.receive(&data, 1536, chunk);
        assert_eq!(scene.bytes()[..1548], signed(CRC, &data), "{chunk}");
        assert!(scene.bytes()[1548..].iter().all(|byte| *byte == 0xee));
        assert_eq!((scene.send(1536, chunk), scene.error()), (data.clone(), None));
        // A bit of the second block, and then one of the third one's field.
        scene.flip(600);
        scene.flip(1544);
        assert_ne!(scene.send(1536, chunk), data);
        let error = scene.error().unwrap();
        assert_eq!((error.part, error.offset), (SignaturePart::Guard, 512));
        assert_ne!(error.calculated, error.found);
        assert_eq!(scene.error(), None, "it was asked for");
        scene.flip(600);
        assert_eq!(scene.send(1024, chunk), data[..1024]);
        assert_eq!(scene.error(), None);
        assert_eq!(scene.send(1536, chunk), data);
        assert_eq!(scene.error().map(|error| error.offset), Some(1024));
    }
}

#[test]
fn blocks_on_the_wire_have_fields_that_memory_has_not() {
    for chunk in [1, 100, 516, 520, 1024] {
        let signature = KeySignature { wire: Some(DIF), check_mask: 0xff, ..KeySignature::default() };
        let scene = Scene::new(1024, signature);
        let data = data(1024);
        let mut wire = signed(DIF, &data);
        assert_eq!(wire.len(), 1040);
        scene.receive(&wire, 1024, chunk);
        assert_eq!((&scene.bytes()[..1024], scene.error()), (&data[..], None), "{chunk}");
        assert!(scene.bytes()[1024..].iter().all(|byte| *byte == 0xee));
        assert_eq!(scene.send(1024, chunk), wire);
        assert_eq!(scene.send(512, chunk), wire[..520]);
        for (at, part, calculated) in [(514, SignaturePart::AppTag, 0xabcd), (1039, SignaturePart::RefTag, 8)]
        {
            wire[at] ^= 1;
            scene.receive(&wire, 1024, chunk);
            let error = scene.error().unwrap();
            assert_eq!((error.part, error.calculated), (part, calculated));
            wire[at] ^= 1;
        }
        // Peers name the bytes of the wire.
        let key = RemoteKey { rkey: scene.key, pd: PD, qpn: Qpn::new(3) };
        let mut out = vec![0; 1040];
        scene.table.remote_read(key, 0, &mut out, Assumed).unwrap();
        assert_eq!(out, wire);
        scene.table.remote_write(key, 500, &wire[500..600], Assumed).unwrap();
        assert_eq!((scene.bytes()[..1024].to_vec(), scene.error()), (data.clone(), None));
        let beyond = scene.table.check_remote(key, 1, 1040, Access::REMOTE_READ);
        assert_eq!(beyond, Err(MemoryError::OutOfRange));
    }
}

#[test]
fn fields_of_memory_and_of_the_wire_are_told_apart_and_can_be_copied() {
    let both = KeySignature { memory: Some(CRC), wire: Some(DIF), check_mask: 0xff, copy_mask: 0xff };
    let scene = Scene::new(2 * 516, both);
    let data = data(1024);
    scene.receive(&signed(DIF, &data), 1024, 100);
    assert_eq!((&scene.bytes()[..1032], scene.error()), (&signed(CRC, &data)[..], None));
    assert_eq!(scene.send(1024, 100), signed(DIF, &data));
    // Where both are alike the mask says which bytes go through: here the application tags.
    let alike = KeySignature { memory: Some(DIF), wire: Some(DIF), check_mask: 0xcf, copy_mask: 0x30 };
    let scene = Scene::new(2 * 520, alike);
    let mut wire = signed(DIF, &data);
    (wire[514], wire[1035]) = (0x55, 0x66);
    scene.receive(&wire, 1024, 100);
    assert_eq!((&scene.bytes()[..1040], scene.error()), (&wire[..], None));
    assert_eq!((scene.send(1024, 100), scene.error()), (wire, None));
}

#[test]
fn lengths_count_what_the_wire_has_once_a_configuration_was_posted() {
    let mut scene = Scene::new(1024, KeySignature { wire: Some(CRC), ..KeySignature::default() });
    let lengths = |scene: &Scene, address, length| {
        let sge = scene.sge(address, length);
        [true, false].map(|posted| scene.table.wire_bytes_of(&sge, posted))
    };
    assert_eq!(lengths(&scene, 0, 1024), [1032; 2]);
    assert_eq!(lengths(&scene, 0, 511), [511; 2]);
    assert_eq!(lengths(&scene, 512, 512), [516; 2]);
    assert_eq!(lengths(&scene, 100, 500), [504; 2]);
    let reset = KeyConfiguration { signature: SignatureChange::Reset, ..KeyConfiguration::new(scene.key) };
    scene.table.key_posted(PD, &reset);
    assert_eq!(lengths(&scene, 0, 1024), [1024, 1032]);
    scene.table.configure_key(PD, &reset).unwrap();
    assert_eq!(lengths(&scene, 0, 1024), [1024; 2]);
    assert_eq!(
        scene.table.gather(PD, &[scene.sge(0, 1024)], 0, &mut [0; 1025], Assumed),
        Err(MemoryError::OutOfRange)
    );
    // Keys that were made without signatures get none.
    let init = IndirectKeyInit { max_pieces: 1, is_invalidated_by_peers: false, has_signatures: false };
    let plain = scene.table.make_indirect_key(PD, init).unwrap();
    let set = SignatureChange::Set(KeySignature::default());
    let wrong = KeyConfiguration { signature: set, ..KeyConfiguration::new(plain.lkey) };
    assert_eq!(scene.table.configure_key(PD, &wrong), Err(MemoryError::AccessDenied));
    assert_eq!(scene.table.take_signature_error(0), None);
}
