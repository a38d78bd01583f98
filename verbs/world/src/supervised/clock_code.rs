//! The clocks of a world, as machine code for its programs: it takes the place of what the kernel gives every
//! process to read clocks without a call (vDSO). A reading costs a program some nanoseconds, and no stop.
//!
//! The code reads and moves the clock of a page that the supervisor fills before a thread goes on, and reads
//! when it stops. When a thread has read clocks for so often as the page says, it makes the call.

//!
//! It is for x86_64, as worlds are: aarch64 and riscv64 would have a file of their own.

use std::arch::global_asm;

global_asm!(
    ".pushsection .rodata.pumice_world, \"a\"",
    ".balign 8",
    "pumice_world_clock_gettime:",
    "cmp edi, 11",
    "ja 2f",
    "mov r8, [rip + 9f]",
    "mov ecx, edi",
    // What this clock shows when the world begins; -1: it is none that all processes share.
    "mov r9, [r8 + rcx * 8 + 80]",
    "cmp r9, -1",
    "je 2f",
    "sub qword ptr [r8 + 8], 1",
    "js 2f",
    // One instruction moves the clock: a thread may be stopped between any two.
    "mov rcx, [r8 + 56]",
    "mov rax, rcx",
    "xadd [r8], rax",
    "add rax, rcx",
    "add rax, r9",
    "xor edx, edx",
    "mov ecx, 1000000000",
    "div rcx",
    "mov [rsi], rax",
    "mov [rsi + 8], rdx",
    "xor eax, eax",
    "ret",
    "2: mov eax, 228",
    "syscall",
    "ret",
    ".balign 8",
    "pumice_world_gettimeofday:",
    "test rdi, rdi",
    "jz 2f",
    "mov r8, [rip + 9f]",
    "sub qword ptr [r8 + 8], 1",
    "js 2f",
    "mov rcx, [r8 + 56]",
    "mov rax, rcx",
    "xadd [r8], rax",
    "add rax, rcx",
    "add rax, [r8 + 80]",
    "xor edx, edx",
    "mov ecx, 1000000000",
    "div rcx",
    "mov [rdi], rax",
    "mov eax, edx",
    "xor edx, edx",
    "mov ecx, 1000",
    "div ecx",
    "mov [rdi + 8], rax",
    "xor eax, eax",
    "ret",
    "2: mov eax, 96",
    "syscall",
    "ret",
    ".balign 8",
    "pumice_world_time:",
    "mov r8, [rip + 9f]",
    "sub qword ptr [r8 + 8], 1",
    "js 2f",
    "mov rcx, [r8 + 56]",
    "mov rax, rcx",
    "xadd [r8], rax",
    "add rax, rcx",
    "add rax, [r8 + 80]",
    "xor edx, edx",
    "mov ecx, 1000000000",
    "div rcx",
    "test rdi, rdi",
    "jz 3f",
    "mov [rdi], rax",
    "3: ret",
    "2: mov eax, 201",
    "syscall",
    "ret",
    ".balign 8",
    // The processor that a thread is on: its supervisor says.
    "pumice_world_getcpu:",
    "mov eax, 309",
    "syscall",
    "ret",
    ".balign 8",
    // Random bytes come by the call of this name alone: this one is not there (ENOSYS).
    "pumice_world_getrandom:",
    "mov eax, -38",
    "ret",
    ".balign 8",
    // A call that the supervisor has the program make: then it stops.
    "pumice_world_call:",
    "syscall",
    "int3",
    ".balign 8",
    // Where the page is.
    "9: .quad 0",
    "pumice_world_clock_end:",
    ".popsection",
);

unsafe extern "C" {
    #[link_name = "pumice_world_clock_gettime"]
    safe static CLOCK_GETTIME: u8;
    #[link_name = "pumice_world_gettimeofday"]
    safe static GETTIMEOFDAY: u8;
    #[link_name = "pumice_world_time"]
    safe static TIME: u8;
    #[link_name = "pumice_world_getcpu"]
    safe static GETCPU: u8;
    #[link_name = "pumice_world_getrandom"]
    safe static GETRANDOM: u8;
    #[link_name = "pumice_world_call"]
    safe static CALL: u8;
    #[link_name = "pumice_world_clock_end"]
    safe static END: u8;
}

/// The code, which runs anywhere; the last 8 bytes are to be the address of the page.
pub(crate) fn code() -> &'static [u8] {
    let length = offset(&raw const END) as usize;
    // SAFETY: the labels enclose constant bytes, which no one writes.
    unsafe { std::slice::from_raw_parts(&raw const CLOCK_GETTIME, length) }
}

/// Where the code of a function of the kernel's begins, in bytes; `None`: it may stay as it is.
pub(crate) fn offset_of(function: &str) -> Option<u64> {
    Some(offset(match function {
        "__vdso_clock_gettime" => &raw const CLOCK_GETTIME,
        "__vdso_gettimeofday" => &raw const GETTIMEOFDAY,
        "__vdso_time" => &raw const TIME,
        "__vdso_getcpu" => &raw const GETCPU,
        "__vdso_getrandom" => &raw const GETRANDOM,
        _ => return None,
    }))
}

/// Where a call is made, behind which the program stops.
pub(crate) fn offset_of_call() -> u64 {
    offset(&raw const CALL)
}

fn offset(label: *const u8) -> u64 {
    (label.addr() - (&raw const CLOCK_GETTIME).addr()) as u64
}
