//! Facts about files, the machine and niceness of processes, made the same in every run.
//!
//! Niceness of processes: every world begins with 0, and the kernel does not hear of changes, because threads
//! go on as the world decides.

use super::machine::MEMORY;
use super::serve::{CallOutcome, UNCHANGED};
use super::supervisor::Supervisor;
use super::threads::{Call, ThreadId};
use crate::error::WorldError;

/// The call returns this less the niceness, so that no result looks like an error.
const RESULT_OF_ZERO: i32 = 20;
const LOWEST: i32 = -20;
const HIGHEST: i32 = 19;

impl Supervisor {
    /// Serves `getpriority`.
    pub(crate) fn report_niceness(&mut self, id: ThreadId, call: Call) -> Result<(), WorldError> {
        let process = self.process_of_priority(id, call);
        let found = process.and_then(|process| self.threads.processes.get(&process));
        let result = found.map_or(-libc::ESRCH, |process| RESULT_OF_ZERO - process.niceness);
        self.answer(id, call, i64::from(result))
    }

    /// Serves `setpriority`. No process may lower a niceness, which on other machines some users may.
    pub(crate) fn set_niceness(&mut self, id: ThreadId, call: Call) -> Result<(), WorldError> {
        let process = self.process_of_priority(id, call);
        let [_, _, wanted, ..] = call.arguments();
        let wanted = (wanted as i32).clamp(LOWEST, HIGHEST);
        let result = match process.and_then(|process| self.threads.processes.get_mut(&process)) {
            None => -libc::ESRCH,
            Some(process) if wanted < process.niceness => -libc::EACCES,
            Some(process) => {
                process.niceness = wanted;
                0
            }
        };
        self.answer(id, call, i64::from(result))
    }

    /// Returns the process that the first two arguments name: the calling one for 0, a group or a user.
    fn process_of_priority(&self, id: ThreadId, call: Call) -> Option<u32> {
        let [kind, who, ..] = call.arguments();
        let own = self.threads.get(id)?.process;
        if who as i32 == 0 || kind as u32 != libc::PRIO_PROCESS {
            return Some(own);
        }
        let has_number = |thread: &&super::threads::Thread| thread.tracee.number_inside() == Some(who as i32);
        self.threads.threads.values().find(has_number).map(|thread| thread.process)
    }

    /// Serves `stat` and related calls.
    pub(crate) fn report_stat(
        &mut self,
        id: ThreadId,
        call: Call,
        structure: usize,
    ) -> Result<(), WorldError> {
        let address = call.arguments().get(structure).copied().unwrap_or(0);
        self.report_file_as(id, call, address, &STAT)
    }

    /// Serves `statx`.
    pub(crate) fn report_statx(&mut self, id: ThreadId, call: Call) -> Result<(), WorldError> {
        let address = call.arguments()[4];
        self.report_file_as(id, call, address, &STATX)
    }

    fn report_file_as(
        &mut self,
        id: ThreadId,
        call: Call,
        at: u64,
        layout: &Layout,
    ) -> Result<(), WorldError> {
        let CallOutcome::Result(result) = self.make(id, call, UNCHANGED)? else { return Ok(()) };
        if result == 0 {
            // If the structure cannot be written, the call has reported it.
            let _ = self.normalize_stat(id, at, layout);
        }
        self.note(id, &call.name(), result)?;
        self.go(id, None)
    }

    fn normalize_stat(&mut self, id: ThreadId, at: u64, layout: &Layout) -> nix::Result<()> {
        let Some(tracee) = self.threads.get(id).map(|thread| thread.tracee) else { return Ok(()) };
        let offset = |bytes: u64| at.wrapping_add(bytes);
        let mut device = tracee.read_u64(offset(layout.device))?;
        if layout.has_halves {
            device = libc::makedev(device as u32, (device >> 32) as u32);
        }
        let inode = tracee.read_u64(offset(layout.inode))?;
        let number = self.number_of_file((device, inode));
        tracee.write(offset(layout.inode), &number.to_ne_bytes())?;
        tracee.write(offset(layout.device), &1_u64.to_ne_bytes())?;
        for time in layout.times {
            let seconds = tracee.read_u64(offset(*time))?;
            if seconds >= self.time.began_s {
                // The file was created or changed in this run.
                tracee.write_timespec(offset(*time), self.time.clock.begin_real_ns())?;
            }
        }
        Ok(())
    }

    /// Serves `readlink` and related calls: links of sockets and pipes have the numbers that `stat` shows.
    pub(crate) fn read_link(&mut self, id: ThreadId, call: Call, buffer: usize) -> Result<(), WorldError> {
        let arguments = call.arguments();
        let at = arguments.get(buffer).copied().unwrap_or(0);
        let room = arguments.get(buffer + 1).copied().unwrap_or(0) as usize;
        let CallOutcome::Result(mut result) = self.make(id, call, UNCHANGED)? else { return Ok(()) };
        let mut bytes = vec![0; usize::try_from(result).unwrap_or(0).min(64)];
        let tracee = self.tracee(id)?;
        if !bytes.is_empty()
            && tracee.read(at, &mut bytes).is_ok()
            && let Some((kind, inode)) = nameless_file(&String::from_utf8_lossy(&bytes))
        {
            let mut link = format!("{kind}:[{}]", self.number_nameless(kind, inode)).into_bytes();
            link.truncate(room);
            if tracee.write(at, &link).is_ok() {
                result = link.len() as i64;
                let after = tracee.registers()?;
                tracee.set_registers(super::tracee::Registers { rax: result as u64, ..after })?;
            }
        }
        self.note(id, &call.name(), result)?;
        self.go(id, None)
    }

    /// Returns the number of a socket, a pipe or a namespace, by its inode.
    pub(crate) fn number_nameless(&mut self, kind: &str, inode: u64) -> u64 {
        self.number_of_file((self.files.devices.of_kind(kind), inode))
    }

    /// Returns the number of a file: files are numbered in the order in which programs ask for them.
    fn number_of_file(&mut self, file: (u64, u64)) -> u64 {
        let next = self.files.file_numbers.len() as u64 + 1;
        *self.files.file_numbers.entry(file).or_insert(next)
    }

    /// Lists a folder, sorted by name.
    pub(crate) fn list_folder(&mut self, id: ThreadId, call: Call) -> Result<(), WorldError> {
        let [_, address, ..] = call.arguments();
        let CallOutcome::Result(result) = self.make(id, call, UNCHANGED)? else { return Ok(()) };
        if let Ok(length) = u64::try_from(result)
            && length > 0
        {
            let tracee = self.tracee(id)?;
            let mut bytes = vec![0; length.min(MAX_LISTED) as usize];
            if tracee.read(address, &mut bytes).is_ok() {
                let _ = tracee.write(address, &sorted(&bytes));
            }
        }
        self.note(id, &call.name(), result)?;
        self.go(id, None)
    }

    /// Serves `sysinfo`.
    pub(crate) fn report_sysinfo(&mut self, id: ThreadId, call: Call) -> Result<(), WorldError> {
        let [address, ..] = call.arguments();
        let mut bytes = [0; 112];
        let up_s = self.time.clock.of(libc::CLOCK_MONOTONIC).unwrap_or(0) / 1_000_000_000;
        for (word, value) in [(0, up_s), (4, MEMORY), (5, MEMORY / 2), (10, 1)] {
            if let Some(field) = bytes.get_mut(word * 8..word * 8 + 8) {
                field.copy_from_slice(&u64::to_ne_bytes(value));
            }
        }
        // The number of processes is behind ten words, and the unit of memory behind three more.
        bytes[80..82].copy_from_slice(&1_u16.to_ne_bytes());
        bytes[104..108].copy_from_slice(&1_u32.to_ne_bytes());
        let done = self.tracee(id)?.write(address, &bytes).map(|()| 0);
        self.answer_done(id, call, done)
    }
}

/// Offsets of the device, the inode and the three times in a `stat` structure, in bytes.
const STAT: Layout = Layout { device: 0, has_halves: false, inode: 8, times: &[72, 88, 104] };
/// Offsets in a `statx` structure, whose device is two adjacent numbers of 4 bytes each.
const STATX: Layout = Layout { device: 136, has_halves: true, inode: 32, times: &[64, 80, 96, 112] };
/// Maximum number of bytes of a folder's list that are read at once.
const MAX_LISTED: u64 = 1 << 20;

struct Layout {
    device: u64,
    has_halves: bool,
    inode: u64,
    times: &'static [u64],
}

/// Returns the kind and the inode in a link of a file without a name, as in `socket:[123]`.
fn nameless_file(link: &str) -> Option<(&str, u64)> {
    let (kind, number) = link.strip_suffix(']')?.split_once(":[")?;
    Some((kind, number.parse().ok()?))
}

/// Sorts the entries of a folder by name, and renumbers their inodes and positions.
fn sorted(bytes: &[u8]) -> Vec<u8> {
    let mut entries: Vec<&[u8]> = Vec::new();
    let mut rest = bytes;
    while let Some(length) =
        rest.get(16..18).map(|length| usize::from(u16::from_ne_bytes([length[0], length[1]])))
    {
        let (Some(entry), Some(next)) = (rest.get(..length.max(19)), rest.get(length.max(19)..)) else {
            break;
        };
        entries.push(entry);
        rest = next;
    }
    // The last entry of the list says where the kernel continues.
    let last = entries.last().and_then(|entry| entry.get(8..16)).map(<[u8]>::to_vec);
    entries.sort_by(|one, other| name(one).cmp(name(other)));
    let count = entries.len();
    let mut sorted = Vec::with_capacity(bytes.len());
    for (index, entry) in entries.into_iter().enumerate() {
        let mut entry = entry.to_vec();
        let hash =
            name(&entry).iter().fold(1_u64, |all, byte| all.wrapping_mul(31).wrapping_add(u64::from(*byte)));
        entry[..8].copy_from_slice(&hash.to_ne_bytes());
        if let Some(last) = last.as_deref().filter(|_| index + 1 == count) {
            entry[8..16].copy_from_slice(last);
        }
        sorted.extend(entry);
    }
    sorted.extend(rest);
    sorted
}

/// Returns the name of an entry.
fn name(entry: &[u8]) -> &[u8] {
    let name = entry.get(19..).unwrap_or(&[]);
    name.split(|byte| *byte == 0).next().unwrap_or(&[])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(text: &str, inode: u64, next: u64) -> Vec<u8> {
        let length = (19 + text.len() + 1).next_multiple_of(8);
        let mut bytes = [inode.to_ne_bytes(), next.to_ne_bytes()].concat();
        bytes.extend(u16::try_from(length).unwrap().to_ne_bytes());
        bytes.push(8);
        bytes.extend(text.as_bytes());
        bytes.resize(length, 0);
        bytes
    }

    #[test]
    fn a_folder_is_listed_by_name_and_continues_where_it_stopped() {
        let listed = [entry("zoo", 5, 10), entry("ant", 6, 20)].concat();
        let sorted = sorted(&listed);
        assert_eq!(name(&sorted), b"ant");
        assert_eq!(name(&sorted[24..]), b"zoo");
        assert_eq!(sorted[24 + 8..24 + 16], 20_u64.to_ne_bytes());
        assert_eq!(super::sorted(&[1, 2, 3]), [1, 2, 3]);
    }
}
