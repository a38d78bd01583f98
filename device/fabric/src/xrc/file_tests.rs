//! Domains' files: opens of one process stand for processes, because locks belong to open files.

use pumice_transport::qp::ReplaySnapshot;

use super::*;
use std::fs;

struct ScratchFolder(PathBuf);

impl ScratchFolder {
    fn new(name: &str) -> ScratchFolder {
        let folder = std::env::temp_dir().join(format!("pumice-domain-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        ScratchFolder(folder)
    }

    fn open(&self, index: u8) -> (DomainFile, bool) {
        let shared_resources = SharedResources {
            folder: Ok(self.0.clone()),
            name: "test".to_owned(),
            process: ProcessIndex::new(index),
        };
        DomainFile::open(&shared_resources, 1, 2).unwrap()
    }

    fn files(&self) -> usize {
        fs::read_dir(&self.0).map_or(0, Iterator::count)
    }
}

impl Drop for ScratchFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn target(qpn: u32) -> TargetRecord {
    TargetRecord { qpn, ..TargetRecord::default() }
}

#[test]
fn a_domain_exists_while_a_process_has_it_open() {
    let scene = ScratchFolder::new("life");
    let (a, existed) = scene.open(1);
    assert!(
        !existed
            && !a.has_others()
            && a.is_open_in(ProcessIndex::new(1))
            && !a.is_open_in(ProcessIndex::new(2))
    );
    let (b, existed) = scene.open(2);
    assert!(
        existed && a.has_others() && a.is_open_in(ProcessIndex::new(2)) && b.is_open_in(ProcessIndex::new(1))
    );
    assert!(!a.is_open_in(ProcessIndex::new(0)) && !a.is_open_in(ProcessIndex::new(255)));
    drop(a);
    assert!(!b.has_others());
    assert_eq!(scene.files(), 1);
    drop(b);
    assert_eq!(scene.files(), 0);
    // What a killed process leaves goes when another process looks.
    fs::write(scene.0.join("test-xrcd-7-7"), "left").unwrap();
    fs::set_permissions(scene.0.join("test-xrcd-7-7"), std::os::unix::fs::PermissionsExt::from_mode(0o600))
        .unwrap();
    drop(scene.open(1));
    assert_eq!(scene.files(), 0);
}

/// A process that has opened the file of a domain, which has ended since, in order to remove it.
#[test]
fn a_file_that_has_lost_its_name_is_not_removed_under_another_files_name() {
    let scene = ScratchFolder::new("name");
    let (first, _) = scene.open(1);
    let path = first.path.clone();
    let late = folder::open(&scene.0, path.file_name().unwrap().to_str().unwrap()).unwrap();
    drop(first);
    assert_eq!(scene.files(), 0);
    let (_second, existed) = scene.open(2);
    assert!(!existed);
    remove_unused(&late, &path);
    assert_eq!(scene.files(), 1, "the second's");
    let (_third, existed) = scene.open(3);
    assert!(existed, "and it is found");
}

#[test]
fn a_record_is_what_was_stored_last() {
    let scene = ScratchFolder::new("record");
    let ((a, _), (b, _)) = (scene.open(1), scene.open(2));
    let mut mine = target(0x01_0011);
    let slot = a.create(&mut mine).unwrap();
    assert_eq!((b.find(0x01_0011), b.find(0x01_0012), b.find(0)), (Some(slot), None, None));
    assert_eq!(a.create(&mut target(0x01_0011)).unwrap_err().errno(), libc::EBUSY);
    let mut theirs = target(0x01_0011);
    let lock = b.lock_record(slot).unwrap();
    assert!(a.lock_record(slot).is_none(), "a process has it");
    assert_eq!(b.load(slot, &mut theirs), RecordCheck::Changed);
    assert!(theirs.is_registered(ProcessIndex::new(1)) && !theirs.is_registered(ProcessIndex::new(2)));
    assert_eq!(b.load(slot, &mut theirs), RecordCheck::Same);
    // Short and long ones, in turn.
    for count in [0_u32, 200, 1, 255, 0, 0] {
        theirs.sequence += 1;
        theirs.snapshot.responder.replays = (0..count).map(|psn| ReplaySnapshot::Empty { psn }).collect();
        b.store(slot, &theirs).unwrap();
        assert_eq!(a.load(slot, &mut mine), RecordCheck::Changed);
        assert_eq!(mine, theirs);
    }
    drop(lock);
    assert_eq!(a.load(slot, &mut target(0x01_0012)), RecordCheck::Removed, "it is another target's");
    let before = a.change();
    b.remove(slot);
    assert_ne!(a.change(), before);
    assert_eq!((a.load(slot, &mut mine), a.find(0x01_0011)), (RecordCheck::Removed, None));
}

#[test]
fn a_store_that_was_cut_short_leaves_the_state_before() {
    let scene = ScratchFolder::new("cut");
    let (a, _) = scene.open(1);
    let mut record = target(0x01_0011);
    let slot = a.create(&mut record).unwrap();
    for replays in [0, 240] {
        record.snapshot.responder.replays = (0..replays).map(|psn| ReplaySnapshot::Empty { psn }).collect();
        record.snapshot.responder.expected_psn = 5;
        record.sequence += 1;
        a.store(slot, &record).unwrap();
        let good = record.clone();
        record.snapshot.responder.expected_psn = 6;
        record.sequence += 1;
        let before = fs::read(&a.path).unwrap();
        a.store(slot, &record).unwrap();
        let after = fs::read(&a.path).unwrap();
        let changed: Vec<usize> = (0..after.len()).filter(|&at| before.get(at) != after.get(at)).collect();
        let short = short_at(slot, record.sequence) as usize;
        let header = short..short + codec::HEADER_BYTES;
        for cut in (0..changed.len()).step_by(1 + changed.len() / 64) {
            // Bytes reach the file in the order in which they are written: a long one's header comes last.
            let mut order = changed.clone();
            if replays > 0 {
                order.sort_by_key(|at| header.contains(at));
            }
            let mut torn = before.clone();
            torn.resize(after.len(), 0);
            order[..cut].iter().for_each(|&at| torn[at] = after[at]);
            fs::write(&a.path, &torn).unwrap();
            let mut loaded = target(0x01_0011);
            assert_eq!(a.load(slot, &mut loaded), RecordCheck::Changed, "cut at {cut} of {}", changed.len());
            assert_eq!(loaded, good);
        }
        fs::write(&a.path, &after).unwrap();
    }
}

#[test]
fn registrations_end_with_their_processes() {
    let scene = ScratchFolder::new("sweep");
    let ((a, _), (b, _)) = (scene.open(1), scene.open(2));
    let (mut both, mut only) = (target(0x01_0011), target(0x01_0012));
    let slot = a.create(&mut both).unwrap();
    let alone = a.create(&mut only).unwrap();
    both.sequence += 1;
    both.register(ProcessIndex::new(2), true);
    b.store(slot, &both).unwrap();
    assert_eq!(b.targets(), [(slot, 0x01_0011), (alone, 0x01_0012)]);
    b.sweep();
    assert_eq!(b.targets().len(), 2, "all processes live");
    // As if killed: the file is not told.
    let DomainFile { .. } = &a;
    lock::unlock_byte(&a.file, 1).unwrap();
    b.sweep();
    assert_eq!(b.targets(), [(slot, 0x01_0011)]);
    assert_eq!(b.load(slot, &mut both), RecordCheck::Changed);
    assert!(!both.is_registered(ProcessIndex::new(1)) && both.is_registered(ProcessIndex::new(2)));
    // A new process with the index of one that is gone inherits nothing.
    drop(b);
    let (c, _) = scene.open(2);
    assert_eq!(c.targets(), []);
    assert_eq!(c.create(&mut target(0x02_0011)).unwrap(), 0, "slots are used again");
}

#[test]
fn the_directory_has_a_limit_and_any_contents_are_safe() {
    let scene = ScratchFolder::new("limit");
    let (a, _) = scene.open(1);
    for qpn in 1..=MAX_TARGETS {
        // Written directly: as if all of them had been damaged.
        let slot = u64::from(qpn - 1);
        a.file.write_all_at(&qpn.to_le_bytes(), DIRECTORY_AT + slot * 4).unwrap();
    }
    a.file.write_all_at(&u32::MAX.to_le_bytes(), USED_AT).unwrap();
    assert_eq!(a.find(MAX_TARGETS), Some(MAX_TARGETS - 1));
    assert_eq!(a.targets().len(), MAX_TARGETS as usize);
    assert!(a.create(&mut target(9_000_000)).is_ok(), "entries without a record are swept");
    assert_eq!(a.targets().len(), 1);
    for bytes in [&[][..], &[0xff; 100_000], &[0x6d; 33_000]] {
        fs::write(&a.path, bytes).unwrap();
        a.sweep();
        let mut record = target(9_000_000);
        assert_eq!(a.load(0, &mut record), RecordCheck::Removed);
        a.create(&mut target(7)).unwrap();
        assert!(a.find(7).is_some());
    }
}
