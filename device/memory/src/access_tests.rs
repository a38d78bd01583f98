//! Copies in and out, and what they refuse.

use std::sync::atomic::AtomicU64;

use pumice_transport::wire::Qpn;

use super::MappingCheck::Assumed;
use super::*;
use crate::RegionKeys;

/// Application memory, reached like the device reaches it.
struct Buffer {
    words: Box<[AtomicU64]>,
}

impl Buffer {
    fn new(words: usize) -> Buffer {
        Buffer { words: (0..words).map(|_| AtomicU64::new(0)).collect() }
    }

    fn address(&self) -> u64 {
        self.words.as_ptr().expose_provenance() as u64
    }

    fn bytes(&self) -> Vec<u8> {
        self.words.iter().flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes()).collect()
    }

    fn register(&self, table: &mut RegionTable) -> RegionKeys {
        let access = Access::all() - Access::ZERO_BASED;
        // SAFETY: the buffer outlives the table in every test, and consists of atomics.
        unsafe { table.register(1, self.address(), 8 * self.words.len() as u64, self.address(), access) }
            .unwrap()
    }
}

fn key(keys: RegionKeys) -> RemoteKey {
    RemoteKey { rkey: keys.rkey, pd: 1, qpn: Qpn::new(3) }
}

#[test]
fn gather_and_scatter_are_inverses_at_every_offset() {
    let buffer = Buffer::new(8);
    let mut table = RegionTable::new(4);
    let keys = buffer.register(&mut table);
    let sge = |start, length| Sge { address: buffer.address() + start, length, lkey: keys.lkey };
    let lists: [&[Sge]; 3] =
        [&[sge(3, 20)], &[sge(40, 5), sge(0, 0), sge(3, 15)], &[sge(0, 1), sge(9, 18), sge(63, 1)]];
    for sges in lists {
        for offset in 0..=20_u64 {
            for length in 0..=(20 - offset as usize) {
                let data: Vec<u8> = (0..length).map(|n| (n as u8) ^ 0xa5 ^ offset as u8).collect();
                table.scatter(1, sges, offset, &data, Assumed).unwrap();
                let mut back = vec![0; length];
                table.gather(1, sges, offset, &mut back, Assumed).unwrap();
                assert_eq!(back, data, "{length} bytes at offset {offset} of {sges:?}");
            }
            let too_many = vec![0; 21 - offset as usize];
            assert_eq!(table.scatter(1, sges, offset, &too_many, Assumed), Err(MemoryError::OutOfRange));
        }
    }
}

#[test]
fn stores_touch_exactly_their_range() {
    let buffer = Buffer::new(6);
    let mut table = RegionTable::new(4);
    let keys = buffer.register(&mut table);
    for start in 0..16_usize {
        for length in 0..24_usize {
            for word in &buffer.words {
                word.store(u64::MAX, Ordering::Relaxed);
            }
            let data: Vec<u8> = (1..=length as u8).collect();
            table.remote_write(key(keys), buffer.address() + start as u64, &data, Assumed).unwrap();
            let bytes = buffer.bytes();
            assert_eq!(bytes[start..start + length], data[..]);
            assert!(bytes[..start].iter().chain(&bytes[start + length..]).all(|byte| *byte == 0xff));
            let mut back = vec![0; length];
            table.remote_read(key(keys), buffer.address() + start as u64, &mut back, Assumed).unwrap();
            assert_eq!(back, data);
        }
    }
}

#[test]
fn empty_elements_and_empty_data_need_no_key() {
    let table = RegionTable::new(4);
    let nothing = Sge { address: 0, length: 0, lkey: 0 };
    assert_eq!(table.scatter(1, &[nothing], 0, &[], Assumed), Ok(()));
    assert_eq!(table.scatter(1, &[], 0, &[], Assumed), Ok(()));
    assert_eq!(table.gather(1, &[nothing, nothing], 0, &mut [], Assumed), Ok(()));
    assert_eq!(table.gather(1, &[], 0, &mut [0], Assumed), Err(MemoryError::OutOfRange));
    let wrong = Sge { address: 0, length: 8, lkey: 0x1234 };
    assert_eq!(table.gather(1, &[wrong], 0, &mut [0], Assumed), Err(MemoryError::UnknownKey));
    let wrapping = Sge { address: u64::MAX, length: 8, lkey: 0x1234 };
    assert_eq!(table.gather(1, &[wrapping], 4, &mut [0], Assumed), Err(MemoryError::OutOfRange));
}

#[test]
fn atomics_return_the_original_value() {
    let buffer = Buffer::new(2);
    let mut table = RegionTable::new(4);
    let keys = buffer.register(&mut table);
    buffer.words[1].store(5, Ordering::Relaxed);
    let at = |offset| buffer.address() + offset;
    let add = |offset, add| table.remote_atomic(key(keys), at(offset), AtomicOperation::FetchAdd { add });
    let swap =
        |compare, swap| table.remote_atomic(key(keys), at(8), AtomicOperation::CompareSwap { compare, swap });
    assert_eq!(add(8, u64::MAX), Ok(5));
    assert_eq!(swap(5, 9), Ok(4));
    assert_eq!(swap(4, 9), Ok(4));
    assert_eq!(buffer.words[1].load(Ordering::Relaxed), 9);
    assert_eq!(add(4, 1), Err(MemoryError::Misaligned));
    assert_eq!(add(16, 1), Err(MemoryError::OutOfRange));
    let write = AtomicOperation::Write { bytes: [1, 2, 3, 4, 5, 6, 7, 8] };
    table.remote_atomic(key(keys), at(0), write).unwrap();
    assert_eq!(buffer.bytes()[..8], [1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(table.remote_atomic(key(keys), at(1), write), Err(MemoryError::Misaligned));
}

#[test]
fn an_iova_that_hides_a_misaligned_buffer_is_noticed() {
    let buffer = Buffer::new(4);
    let mut table = RegionTable::new(4);
    let access = Access::LOCAL_WRITE | Access::REMOTE_ATOMIC;
    // SAFETY: the buffer outlives the table, and consists of atomics.
    let keys = unsafe { table.register(1, buffer.address() + 4, 16, 0x1000, access) }.unwrap();
    let operation = AtomicOperation::FetchAdd { add: 1 };
    assert_eq!(table.remote_atomic(key(keys), 0x1000, operation), Err(MemoryError::Misaligned));
}

#[test]
fn flush_checks_rights_and_range() {
    let buffer = Buffer::new(4);
    let mut table = RegionTable::new(4);
    let keys = buffer.register(&mut table);
    let both = Access::FLUSH_GLOBAL | Access::FLUSH_PERSISTENT;
    assert_eq!(table.remote_flush(key(keys), Some((buffer.address() + 1, 31)), both), Ok(()));
    assert_eq!(table.remote_flush(key(keys), None, both), Ok(()));
    assert_eq!(
        table.remote_flush(key(keys), Some((buffer.address() + 1, 32)), both),
        Err(MemoryError::OutOfRange)
    );
    // SAFETY: the buffer outlives the table, and consists of atomics.
    let plain =
        unsafe { table.register(1, buffer.address(), 8, buffer.address(), Access::REMOTE_READ) }.unwrap();
    assert_eq!(table.remote_flush(key(plain), None, Access::FLUSH_GLOBAL), Err(MemoryError::AccessDenied));
}

#[test]
fn on_demand_regions_fail_where_nothing_is_mapped() {
    let buffer = Buffer::new(2);
    let mut table = RegionTable::new(4);
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC | Access::ON_DEMAND;
    // SAFETY: the whole address space, of which only the buffer is accessed.
    let keys = unsafe { table.register(1, 0, u64::MAX, 0, access) }.unwrap();
    let sge = |address, length| [Sge { address, length, lkey: keys.lkey }];
    table.scatter(1, &sge(buffer.address(), 16), 0, b"0123456789abcdef", Assumed).unwrap();
    let mut out = [0; 4];
    table.gather(1, &sge(buffer.address(), 16), 3, &mut out, Assumed).unwrap();
    assert_eq!(&out, b"3456");
    assert_eq!(table.gather(1, &sge(16, 8), 0, &mut out, Assumed), Err(MemoryError::NotMapped));
    assert_eq!(table.scatter(1, &sge(16, 8), 0, &out, Assumed), Err(MemoryError::NotMapped));
    assert_eq!(table.remote_write(key(keys), 16, &out, Assumed), Err(MemoryError::NotMapped));
    assert_eq!(table.remote_write(key(keys), u64::MAX - 1, &out, Assumed), Err(MemoryError::OutOfRange));

    buffer.words[1].store(5, Ordering::Relaxed);
    let word = buffer.address() + 8;
    let add = AtomicOperation::FetchAdd { add: 2 };
    assert_eq!(table.remote_atomic(key(keys), word, add), Ok(5));
    let swap = AtomicOperation::CompareSwap { compare: 6, swap: 9 };
    assert_eq!(table.remote_atomic(key(keys), word, swap), Ok(7));
    assert_eq!(buffer.words[1].load(Ordering::Relaxed), 7);
    let write = AtomicOperation::Write { bytes: 9_u64.to_ne_bytes() };
    assert_eq!(table.remote_atomic(key(keys), word, write), Ok(7));
    assert_eq!(buffer.words[1].load(Ordering::Relaxed), 9);
    assert_eq!(table.remote_atomic(key(keys), 16, add), Err(MemoryError::NotMapped));
    assert_eq!(table.remote_atomic(key(keys), word + 4, add), Err(MemoryError::Misaligned));
}

/// Pages of this process that a test takes away.
struct Pages {
    first: u64,
}

const PAGE: u64 = 4096;

impl Pages {
    fn new() -> Pages {
        let (rights, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: new memory.
        let first = unsafe { libc::mmap(std::ptr::null_mut(), 4 * PAGE as usize, rights, kind, -1, 0) };
        assert_ne!(first, libc::MAP_FAILED);
        Pages { first: first.expose_provenance() as u64 }
    }

    fn allow(&self, page: u64, rights: libc::c_int) {
        let at = std::ptr::with_exposed_provenance_mut((self.first + page * PAGE) as usize);
        // SAFETY: pages of this test, which only tables touch that are told.
        assert_eq!(unsafe { libc::mprotect(at, PAGE as usize, rights) }, 0);
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        let first = std::ptr::with_exposed_provenance_mut(self.first as usize);
        // SAFETY: pages of this test.
        unsafe { libc::munmap(first, 4 * PAGE as usize) };
    }
}

#[test]
fn memory_without_rights_is_an_error_and_works_again_with_them() {
    crate::guard_copies();
    let pages = Pages::new();
    let mut table = RegionTable::new(4);
    let access = Access::all() - Access::ON_DEMAND - Access::ZERO_BASED;
    // SAFETY: the pages outlive the table.
    let keys = unsafe { table.register(1, pages.first, 4 * PAGE, pages.first, access) }.unwrap();
    let (key, second) = (key(keys), pages.first + PAGE);
    let add = AtomicOperation::FetchAdd { add: 2 };
    // Of lengths and addresses at which a copy is made in different ways.
    let table_of_lengths = [1, 2, 3, 4, 8, 9, 16, 56, 64, 72, 700, PAGE as usize];
    for (rights, reads, writes) in [
        (libc::PROT_READ | libc::PROT_WRITE, true, true),
        (libc::PROT_NONE, false, false),
        (libc::PROT_READ, true, false),
        (libc::PROT_READ | libc::PROT_WRITE, true, true),
    ] {
        pages.allow(1, rights);
        let outcome = |works| if works { Ok(()) } else { Err(MemoryError::NotMapped) };
        for length in table_of_lengths {
            let mut bytes = vec![7; length];
            for at in [second, second - length as u64 / 2] {
                let is_inside = at == second || length > 1;
                let (reads, writes) = (reads || !is_inside, writes || !is_inside);
                assert_eq!(table.remote_write(key, at, &bytes, Assumed), outcome(writes), "{length}");
                assert_eq!(table.remote_read(key, at, &mut bytes, Assumed), outcome(reads), "{length}");
                let sges = [Sge { address: at, length: length as u32, lkey: keys.lkey }];
                assert_eq!(table.scatter(1, &sges, 0, &bytes, Assumed), outcome(writes), "{length}");
                assert_eq!(table.gather(1, &sges, 0, &mut bytes, Assumed), outcome(reads), "{length}");
            }
        }
        assert_eq!(table.remote_atomic(key, second + 8, add).map(|_| ()), outcome(writes));
        assert_eq!(table.remote_write(key, pages.first, &[1; PAGE as usize], Assumed), Ok(()), "beside it");
    }
}

/// A thread that was there before the program made its key may not use it. Adapters ask for no keys.
#[test]
fn memory_with_a_protection_key_of_the_program_is_reached_by_every_thread() {
    crate::guard_copies();
    let pages = Pages::new();
    let mut table = RegionTable::new(4);
    let access = Access::all() - Access::ON_DEMAND - Access::ZERO_BASED;
    // SAFETY: the pages outlive the table.
    let keys = unsafe { table.register(1, pages.first, 4 * PAGE, pages.first, access) }.unwrap();
    let (key, word) = (key(keys), pages.first + PAGE + 8);
    let (sender, receiver) = std::sync::mpsc::channel();
    let before = std::thread::spawn(move || {
        let table: RegionTable = receiver.recv().unwrap();
        for length in [1, 3, 8, 64, 700] {
            let (data, mut back) = (vec![length as u8; length], vec![0; length]);
            table.remote_write(key, word, &data, Assumed).unwrap();
            table.remote_read(key, word, &mut back, Assumed).unwrap();
            assert_eq!(back, data);
        }
        let add = AtomicOperation::FetchAdd { add: 1 };
        table.remote_atomic(key, word, add).unwrap();
        assert_eq!(table.remote_atomic(key, word, add).map(|found| found as u8), Ok((700_u32 as u8) + 1));
    });
    // SAFETY: numbers, and pages of this test.
    let has_key = unsafe {
        let of_program = libc::syscall(libc::SYS_pkey_alloc, 0_u64, 0_u64);
        let rights = (libc::PROT_READ | libc::PROT_WRITE) as u64;
        of_program > 0
            && libc::syscall(libc::SYS_pkey_mprotect, pages.first, 4 * PAGE, rights, of_program) == 0
    };
    if !has_key {
        eprintln!("**** SKIPPED in part: this processor or kernel has no protection keys");
    }
    sender.send(table).unwrap();
    before.join().unwrap();
}

#[test]
fn what_a_region_has_lost_is_not_written_though_memory_is_there_again() {
    let buffer = Buffer::new(64);
    let mut table = RegionTable::new(4);
    let register = |table: &mut RegionTable| {
        let access = Access::all() - Access::ON_DEMAND - Access::ZERO_BASED;
        // SAFETY: the buffer outlives the table, and consists of atomics.
        unsafe { table.register(1, buffer.address(), 512, buffer.address(), access) }.unwrap()
    };
    let keys = register(&mut table);
    let (key, first) = (key(keys), buffer.address());
    let lost = first + 64..first + 128;
    crate::MappingChange::begin(lost.clone()).unwrap().end(lost);
    let add = AtomicOperation::FetchAdd { add: 2 };
    for (at, there) in [(first, true), (first + 60, false), (first + 120, false), (first + 128, true)] {
        let outcome = if there { Ok(()) } else { Err(MemoryError::NotMapped) };
        assert_eq!(table.remote_write(key, at, &[5; 8], Assumed), outcome);
        assert_eq!(table.remote_write(key, at, &[5; 8], MappingCheck::ByKernel), outcome);
        assert_eq!(table.remote_read(key, at, &mut [0; 8], Assumed), outcome);
        let word = at.next_multiple_of(8);
        assert_eq!(table.remote_atomic(key, word, add).map(|_| ()), outcome);
        let sge = Sge { address: at, length: 8, lkey: keys.lkey };
        let fault = table.find_fault(1, &[sge], false).map(|fault| (fault.error, fault.element));
        assert_eq!(fault, (!there).then_some((MemoryError::NotMapped, Some(sge))));
    }
    assert_eq!(&buffer.bytes()[64..128], &[0; 64]);
    // A registration of today has what is there now.
    let again = register(&mut table);
    table.remote_write(self::key(again), first + 64, &[6; 8], Assumed).unwrap();
    assert_eq!(buffer.bytes()[64..72], [6; 8]);
    table.deregister(keys.handle).unwrap();
    table.deregister(again.handle).unwrap();
}

#[test]
fn a_null_region_reads_as_zeros_and_keeps_nothing() {
    let mut table = RegionTable::new(4);
    let keys = table.register_nothing(1).unwrap();
    let sges = [Sge { address: 0x1234, length: 8, lkey: keys.lkey }];
    let mut out = [7; 8];
    table.scatter(1, &sges, 0, &out, Assumed).unwrap();
    table.gather(1, &sges, 0, &mut out, Assumed).unwrap();
    assert_eq!(out, [0; 8]);
    assert_eq!(table.gather(2, &sges, 0, &mut out, Assumed), Err(MemoryError::WrongDomain));
    assert_eq!(table.remote_read(key(keys), 0, &mut out, Assumed), Err(MemoryError::AccessDenied));
    assert_eq!(table.remote_write(key(keys), 0, &out, Assumed), Err(MemoryError::AccessDenied));
    let change = super::super::RegionChange { access: Some(Access::all()), ..Default::default() };
    // SAFETY: it is refused.
    assert_eq!(unsafe { table.rereg(keys.handle, change) }.unwrap_err().errno(), libc::EINVAL);
}

#[test]
fn device_memory_lives_as_long_as_it_is_registered() {
    let pool = super::super::DeviceMemoryPool::new(64);
    let memory = pool.allocate(64, 0).unwrap();
    let mut table = RegionTable::new(4);
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::ZERO_BASED;
    let register = |table: &mut RegionTable, offset, length, access| {
        table.register_device_memory(1, &memory, offset, length, access)
    };
    for (offset, length, access) in
        [(0, 65, access), (60, 8, access), (0, 8, Access::LOCAL_WRITE), (0, 8, access | Access::ON_DEMAND)]
    {
        assert_eq!(register(&mut table, offset, length, access).unwrap_err().errno(), libc::EINVAL);
    }
    let keys = register(&mut table, 16, 48, access).unwrap();
    table.remote_write(key(keys), 4, b"text", Assumed).unwrap();
    let mut out = [0; 4];
    memory.read(20, &mut out).unwrap();
    assert_eq!(&out, b"text");
    assert_eq!(table.remote_write(key(keys), 45, b"text", Assumed), Err(MemoryError::OutOfRange));
    drop(memory);
    assert!(pool.allocate(1, 0).is_err());
    table.deregister(keys.handle).unwrap();
    pool.allocate(64, 0).unwrap();
}
