//! A process that uses a shared XRC domain: it executes requests for targets, whose records have to remember
//! them.

use std::collections::{BTreeMap, BTreeSet};

use pumice_model::port::group::ProcessGroup;
use pumice_platform::clock::Random;
use pumice_transport::wire::{ProcessIndex, Qpn};

use super::actor::SharedLedger;
use super::kernel::Pid;
use crate::shared_port::SharedPort;
use crate::xrc::{DomainFile, RecordCheck, TargetRecord};

/// Number of targets of the domain at a time: few, so that processes meet.
const MAX_TARGETS: usize = 4;

pub(super) struct Domains {
    pid: Pid,
    ledger: SharedLedger,
    file: Option<DomainFile>,
    /// Records as this process saw them last.
    records: BTreeMap<u32, TargetRecord>,
    adopted: BTreeSet<ProcessIndex>,
}

impl Domains {
    pub(super) fn new(pid: Pid, ledger: SharedLedger) -> Domains {
        Domains { pid, ledger, file: None, records: BTreeMap::new(), adopted: BTreeSet::new() }
    }

    /// Opens the domain, unless a stopped process holds its lock.
    pub(super) fn open(&mut self, port: &SharedPort) {
        let shared_resources = port.shared_resources().unwrap();
        let opened = DomainFile::open(&shared_resources, 1, 2);
        let trusted = !matches!(&opened, Err(error) if error.errno() == libc::EPERM);
        assert!(trusted, "a file that this user alone has is not trusted: {opened:?}");
        self.file = opened.ok().map(|(file, _)| file);
    }

    /// Does one random action, or nothing.
    pub(super) fn act(&mut self, random: &mut Random, port: &mut SharedPort) {
        let Some(file) = self.file.take() else {
            if random.below(3) == 0 {
                self.open(port);
            }
            return;
        };
        match random.below(12) {
            0..=1 => self.create(&file),
            2..=6 => {
                let targets = file.targets();
                if let Some(&target) = targets.get(random.below(targets.len() as u64) as usize) {
                    self.execute(&file, target, random.below(2) == 0);
                }
            }
            7 => file.sweep(),
            8..=9 => self.adopt_indices(&file, random, port),
            10 if random.below(4) == 0 => {
                self.file = Some(file);
                return self.close();
            }
            _ => {}
        }
        self.file = Some(file);
    }

    fn create(&self, file: &DomainFile) {
        if file.targets().len() >= MAX_TARGETS {
            return;
        }
        let number = self.ledger.borrow_mut().number();
        let qpn = file.process().number_base() | (number & 0xffff) as u32;
        let mut record = TargetRecord { qpn, ..TargetRecord::default() };
        if file.create(&mut record).is_ok() {
            self.ledger.borrow_mut().registered(self.pid, qpn);
        }
    }

    /// Executes a request as the owner of an SRQ does: the record is locked, loaded, changed and stored
    /// before the peer is answered.
    fn execute(&mut self, file: &DomainFile, (slot, qpn): (u32, u32), registers: bool) {
        let Some(guard) = file.lock_record(slot) else { return };
        self.ledger.borrow_mut().locked(self.pid, qpn);
        let empty = || TargetRecord { qpn, ..TargetRecord::default() };
        let mut record = self.records.get(&qpn).cloned().unwrap_or_else(empty);
        match file.load(slot, &mut record) {
            RecordCheck::Removed => self.process_ended(file, slot, qpn),
            RecordCheck::Same | RecordCheck::Changed => {
                let responder = &mut record.snapshot.responder;
                self.ledger.borrow_mut().record_read(qpn, responder.expected_psn);
                responder.expected_psn += 1;
                self.ledger.borrow_mut().record_stores(qpn, responder.expected_psn);
                record.sequence += 1;
                if registers {
                    record.register(file.process(), true);
                }
                if file.store(slot, &record).is_ok() {
                    self.ledger.borrow_mut().record_stored(qpn);
                    if registers {
                        self.ledger.borrow_mut().registered(self.pid, qpn);
                    }
                }
                self.records.insert(qpn, record);
            }
        }
        self.ledger.borrow_mut().unlocks(qpn);
        drop(guard);
    }

    /// Checks a missing record: the slot may be another target's by now.
    fn process_ended(&self, file: &DomainFile, slot: u32, qpn: u32) {
        if file.find(qpn) == Some(slot) {
            self.ledger.borrow_mut().record_gone(qpn);
        }
    }

    /// Keeps the process indices of targets from being assigned, and takes over those whose process is gone.
    fn adopt_indices(&mut self, file: &DomainFile, random: &mut Random, port: &mut SharedPort) {
        let indices: BTreeSet<ProcessIndex> =
            file.targets().iter().map(|(_, qpn)| Qpn::new(*qpn).process()).collect();
        for index in self.adopted.difference(&indices).copied().collect::<Vec<ProcessIndex>>() {
            self.adopted.remove(&index);
            self.ledger.borrow_mut().released(index);
            port.release_index(index);
        }
        let own = port.process();
        for index in indices.into_iter().filter(|index| *index != own) {
            port.reserve_index(index);
            if random.below(2) == 0 && port.adopt_index(index) {
                self.ledger.borrow_mut().adopted(self.pid, index);
                self.adopted.insert(index);
            }
        }
    }

    pub(super) fn close(&mut self) {
        self.ledger.borrow_mut().closes_domain(self.pid);
        self.records.clear();
        self.file = None;
    }
}
