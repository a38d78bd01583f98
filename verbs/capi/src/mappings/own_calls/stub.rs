//! The target of the jumps of watched system calls, and memory near code so that jumps reach it.
//!
//! This file is for x86_64: aarch64 and riscv64 would need files of their own.

use std::arch::x86_64::{__cpuid, __cpuid_count, _xgetbv};
use std::ffi::c_void;
use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::FileExt as _;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

use pumice_device::outside;

use super::site::{CALL_BYTES, JUMP_BYTES, Site};
use super::stub;
use crate::mappings::calls::change_mappings;

const PAGE: u64 = 4096;
/// Largest distance of a jump, less the length of stubs and pages.
const REACH: u64 = (1 << 31) - (1 << 22);

/// Memory that can be read and executed. It is never freed: a thread may be executing it.
#[derive(Debug)]
pub(super) struct NearPage {
    first: u64,
    next: u64,
    end: u64,
}

impl NearPage {
    /// Maps memory from which all of the code is in reach: below it, where neither the heap nor the stack
    /// grows. Returns `None` if there is no room, or if the kernel refuses.
    pub(super) fn map(code: (u64, u64), bytes: usize, memory: &File) -> Option<NearPage> {
        let bytes = (bytes as u64).next_multiple_of(PAGE);
        let end_of_code = code.0.checked_add(code.1)?;
        let room = rooms(code.0, bytes + 2 * PAGE).into_iter().rev();
        let in_reach = room.map(|end| end - bytes - PAGE).filter(|first| end_of_code - first < REACH);
        let first = in_reach.into_iter().find(|first| map_at(*first, bytes))?;
        let head = stub::head();
        let page = NearPage { first, next: first + head.len() as u64, end: first + bytes };
        write(memory, first, &head).then_some(page)
    }

    /// Returns the address of the next stub, and that of the pointer to which all stubs jump.
    pub(super) fn next(&self) -> (u64, u64) {
        (self.next, self.first)
    }

    /// Adds a stub; returns false if it cannot be written.
    pub(super) fn add(&mut self, stub: &[u8], memory: &File) -> bool {
        let end = self.next + stub.len() as u64;
        let is_written = end <= self.end && write(memory, self.next, stub);
        if is_written {
            self.next = end.next_multiple_of(16).min(self.end);
        }
        is_written
    }
}

/// Returns the ends of all gaps of at least this many bytes below an address, in order.
fn rooms(below: u64, bytes: u64) -> Vec<u64> {
    /// Lowest address that is used: only processes of root may map lower ones.
    const LEAST: u64 = 1 << 16;
    let Ok(maps) = outside::files::open("/proc/self/maps") else { return Vec::new() };
    let (mut rooms, mut end_before) = (Vec::new(), LEAST);
    for line in BufReader::with_capacity(1 << 14, maps).split(b'\n').map_while(Result::ok) {
        let Some((first, end)) = bounds(&line) else { continue };
        if first > below {
            break;
        }
        if first.saturating_sub(end_before) >= bytes {
            rooms.push(first);
        }
        end_before = end_before.max(end);
    }
    rooms
}

/// Returns first address and end of the mapping on a line.
fn bounds(line: &[u8]) -> Option<(u64, u64)> {
    let text = str::from_utf8(line.split(|byte| *byte == b' ').next()?).ok()?;
    let (first, end) = text.split_once('-')?;
    Some((u64::from_str_radix(first, 16).ok()?, u64::from_str_radix(end, 16).ok()?))
}

fn map_at(first: u64, bytes: u64) -> bool {
    let rights = libc::PROT_READ | libc::PROT_EXEC;
    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    let wanted = ptr::with_exposed_provenance_mut(first as usize);
    // SAFETY: new memory, which replaces no other.
    let mapped = unsafe { libc::mmap(wanted, bytes as usize, rights, kind, -1, 0) };
    if mapped != wanted && mapped != libc::MAP_FAILED {
        // An old kernel takes the address for a hint. SAFETY: the memory that was mapped here.
        unsafe { libc::munmap(mapped, bytes as usize) };
    }
    mapped == wanted
}

/// Writes code of this process; returns false if the kernel refuses.
pub(super) fn write(memory: &File, at: u64, code: &[u8]) -> bool {
    memory.write_all_at(code, at).is_ok()
}

/// A system call of the program.
#[derive(Debug)]
#[repr(C)]
struct SystemCall {
    /// Its number before the call, and its result afterwards.
    number: u64,
    arguments: [u64; 6],
    /// Address at which the program continues: its own call in the stub, or the instruction behind that.
    next: u64,
}

/// Makes the call if it changes mappings of registered memory, or lets the program make it.
extern "C" fn on_call(call: &mut SystemCall) {
    if let Some(outcome) = change_mappings(call.number as u32, &call.arguments) {
        call.number = outcome as u64;
        call.next += CALL_BYTES as u64;
    }
}

/// The state of the processor that a system call preserves, and a function does not: the mask of its parts (0
/// for those that every processor has), and their length in bytes.
static STATE: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(512)];

/// Initialises [`STATE`].
pub(super) fn prepare() {
    /// Bit for: `xsave` is there, and the kernel uses it.
    const SAVES: u32 = 1 << 27;
    /// Parts x87, SSE, AVX, AVX-512.
    const PARTS: u64 = 0xe7;
    const LEGACY_AND_HEAD_BYTES: u64 = 576;
    if __cpuid(1).ecx & SAVES == 0 {
        return;
    }
    // SAFETY: the kernel uses these states, so the instruction is there.
    let parts = unsafe { enabled_states() } & PARTS;
    let end = |part: u32| {
        let found = __cpuid_count(13, part);
        u64::from(found.ebx) + u64::from(found.eax)
    };
    let present = (2..8).filter(|part| parts >> part & 1 == 1);
    let bytes = present.map(end).fold(LEGACY_AND_HEAD_BYTES, u64::max);
    let [mask, size] = &STATE;
    size.store(bytes.next_multiple_of(64), Ordering::Relaxed);
    mask.store(parts, Ordering::Release);
}

/// # Safety
/// `cpuid` must say that the kernel uses `xsave`.
#[target_feature(enable = "xsave")]
unsafe fn enabled_states() -> u64 {
    // SAFETY: the caller guarantees it.
    unsafe { _xgetbv(0) }
}

unsafe extern "C" {
    /// The target of all stubs, with the address of the call to make in `r11`. It is not a function: only its
    /// address is used.
    static pumice_watched_call: u8;
}

/// Numbers of calls that change mappings. The assembly below contains them too.
const NUMBERS: [libc::c_long; 9] = [
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_munmap,
    libc::SYS_brk,
    libc::SYS_mremap,
    libc::SYS_shmat,
    libc::SYS_shmdt,
    libc::SYS_remap_file_pages,
    libc::SYS_pkey_mprotect,
];

/// Reports whether calls of this number change mappings.
pub(super) fn changes_mappings(number: u32) -> bool {
    NUMBERS.contains(&libc::c_long::from(number))
}

/// Returns the first bytes of a page, which contain the target of all its stubs.
pub(super) fn head() -> [u8; 8] {
    ((&raw const pumice_watched_call).expose_provenance() as u64).to_le_bytes()
}

/// Largest length of a stub in bytes.
pub(super) const MAX_BYTES: usize = 160;

/// Builds the stub of a site: the instructions before the call, the jump to [`pumice_watched_call`], the call
/// itself, and the jump back. Returns `None` if an address is too far away.
///
/// `code` is the function at address `function`; the stub will be at `at`, and [`head`] is at `head`.
pub(super) fn stub(site: &Site, code: &[u8], function: u64, (at, head): (u64, u64)) -> Option<Vec<u8>> {
    let mut stub = Vec::with_capacity(MAX_BYTES);
    for (first, instruction) in &site.before {
        let mut moved = code.get(*first..first + instruction.bytes)?.to_vec();
        if let Some(offset) = instruction.distance_at {
            let bytes: &mut [u8; 4] = moved.get_mut(offset..offset + 4)?.try_into().ok()?;
            let end = function + (first + instruction.bytes) as u64;
            let target = end.wrapping_add_signed(i64::from(i32::from_le_bytes(*bytes)));
            *bytes = distance(at + (stub.len() + instruction.bytes) as u64, target)?;
        }
        stub.extend(moved);
    }
    // lea r11, [rip + 6]; jmp [rip + …]
    stub.extend([0x4c, 0x8d, 0x1d, 6, 0, 0, 0, 0xff, 0x25]);
    stub.extend(distance(at + stub.len() as u64 + 4, head)?);
    // syscall; jmp …
    stub.extend([0x0f, 0x05, 0xe9]);
    stub.extend(distance(at + stub.len() as u64 + 4, function + (site.call + CALL_BYTES) as u64)?);
    (stub.len() <= MAX_BYTES).then_some(stub)
}

/// Returns the bytes that are written over the replaced instructions: a jump to the stub, and instructions
/// without effect.
pub(super) fn jump(site: &Site, function: u64, to: u64) -> Option<Vec<u8>> {
    let from = function + (site.replaced.start + JUMP_BYTES) as u64;
    let mut jump = vec![0xe9];
    jump.extend(distance(from, to)?);
    jump.resize(site.replaced.len(), 0x90);
    Some(jump)
}

fn distance(from: u64, to: u64) -> Option<[u8; 4]> {
    let distance = i32::try_from(to.wrapping_sub(from).cast_signed()).ok()?;
    Some(distance.to_le_bytes())
}

// A system call preserves all registers except rax, rcx and r11, and so does this; calls with other numbers
// preserve the flags as well.
std::arch::global_asm!(
    ".pushsection .text.pumice_watched_call,\"ax\",@progbits",
    ".p2align 4",
    ".globl pumice_watched_call",
    ".hidden pumice_watched_call",
    ".type pumice_watched_call,@function",
    "pumice_watched_call:",
    "lea ecx, [rax - 9]",
    "jrcxz 2f",
    "lea ecx, [rax - 10]",
    "jrcxz 2f",
    "lea ecx, [rax - 11]",
    "jrcxz 2f",
    "lea ecx, [rax - 12]",
    "jrcxz 2f",
    "lea ecx, [rax - 25]",
    "jrcxz 2f",
    "lea ecx, [rax - 30]",
    "jrcxz 2f",
    "lea ecx, [rax - 67]",
    "jrcxz 2f",
    "lea ecx, [rax - 216]",
    "jrcxz 2f",
    "lea ecx, [rax - 329]",
    "jrcxz 2f",
    "jmp r11",
    "2:",
    // A function may use 128 bytes below its stack pointer.
    "lea rsp, [rsp - 128]",
    "pushfq",
    "cld",
    "push rbx",
    "push r11",
    "push r9",
    "push r8",
    "push r10",
    "push rdx",
    "push rsi",
    "push rdi",
    "push rax",
    "mov rdi, rsp",
    "mov rbx, rsp",
    "sub rsp, qword ptr [rip + {state} + 8]",
    "and rsp, -64",
    "mov rax, qword ptr [rip + {state}]",
    "test rax, rax",
    "jz 3f",
    // The header of the saved state has to be 0, except what the processor writes.
    "xor ecx, ecx",
    "mov [rsp + 512], rcx",
    "mov [rsp + 520], rcx",
    "mov [rsp + 528], rcx",
    "mov [rsp + 536], rcx",
    "mov [rsp + 544], rcx",
    "mov [rsp + 552], rcx",
    "mov [rsp + 560], rcx",
    "mov [rsp + 568], rcx",
    "xor edx, edx",
    "xsave64 [rsp]",
    "call {on_call}",
    "mov rax, qword ptr [rip + {state}]",
    "xor edx, edx",
    "xrstor64 [rsp]",
    "jmp 4f",
    "3:",
    "fxsave64 [rsp]",
    "call {on_call}",
    "fxrstor64 [rsp]",
    "4:",
    "mov rsp, rbx",
    "pop rax",
    "pop rdi",
    "pop rsi",
    "pop rdx",
    "pop r10",
    "pop r8",
    "pop r9",
    "pop r11",
    "pop rbx",
    "popfq",
    "lea rsp, [rsp + 128]",
    "jmp r11",
    ".size pumice_watched_call, . - pumice_watched_call",
    ".popsection",
    state = sym STATE,
    on_call = sym on_call,
);

/// Returns the address of a function of this object, which is not searched.
pub(super) fn own_address() -> u64 {
    let own: extern "C" fn(&mut SystemCall) = on_call;
    (own as *const c_void).expose_provenance() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_found_near_code() {
        let here = (memory_is_found_near_code as fn()) as usize as u64;
        let memory = File::options().read(true).write(true).open("/proc/self/mem").unwrap();
        let mut page = NearPage::map((here, 100), 5000, &memory).unwrap();
        assert!(page.first < here && here - page.first < REACH);
        assert_eq!(page.end - page.first, 2 * PAGE);
        let (at, head) = page.next();
        assert!(page.add(&[1, 2, 3], &memory));
        assert_eq!((at, page.next()), (head + 8, (head + 16, head)));
        let mut found = [0; 3];
        memory.read_exact_at(&mut found, at).unwrap();
        assert_eq!(found, [1, 2, 3]);
        assert!(!page.add(&[0; 9000], &memory));
    }

    #[test]
    fn lines_have_bounds() {
        assert_eq!(bounds(b"1000-2000 r-xp 0 0:0 0"), Some((0x1000, 0x2000)));
        assert_eq!(bounds(b"nonsense"), None);
    }
}
