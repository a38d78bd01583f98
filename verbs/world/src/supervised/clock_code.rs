//! The clocks of a world, as machine code for its programs: it replaces the functions that the kernel maps
//! into every process to read clocks without a call (vDSO). A reading takes a program some nanoseconds, and
//! does not stop it.
//!
//! The code reads and advances the clock in a page that the supervisor fills before a thread continues, and
//! reads when it stops. When a thread has read clocks as often as the page permits, it makes the call.

//!
//! The code is for x86_64, as worlds are: aarch64 and riscv64 would have a file of their own.

use std::arch::global_asm;

global_asm!(
    ".pushsection .rodata.pumice_world, \"a\"",
    ".balign 8",
    "pumice_world_clock_gettime:",
    "cmp edi, 11",
    "ja 2f",
    "mov r8, [rip + 9f]",
    "mov ecx, edi",
    // The value of this clock when the world begins; -1 if all processes do not share it.
    "mov r9, [r8 + rcx * 8 + 80]",
    "cmp r9, -1",
    "je 2f",
    "sub qword ptr [r8 + 8], 1",
    "js 2f",
    // A single instruction advances the clock, because a thread may be stopped between any two.
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
    // getcpu is passed to the supervisor, which answers it.
    "pumice_world_getcpu:",
    "mov eax, 309",
    "syscall",
    "ret",
    ".balign 8",
    // Random bytes come only from the system call, so this function returns ENOSYS.
    "pumice_world_getrandom:",
    "mov eax, -38",
    "ret",
    ".balign 8",
    // A call that the supervisor has the program make, and behind which the program stops.
    "pumice_world_call:",
    "syscall",
    "int3",
    ".balign 8",
    // The address of the page.
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

/// Returns the code, which is position-independent; the last 8 bytes are to be set to the address of the
/// page.
pub(crate) fn code() -> &'static [u8] {
    let length = offset(&raw const END) as usize;
    // SAFETY: the labels enclose constant bytes, which are never written.
    unsafe { std::slice::from_raw_parts(&raw const CLOCK_GETTIME, length) }
}

/// Returns the offset of the code that replaces a function of the kernel, or `None` if the function may stay.
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

/// Returns the offset of a call instruction behind which the program stops.
pub(crate) fn offset_of_call() -> u64 {
    offset(&raw const CALL)
}

fn offset(label: *const u8) -> u64 {
    (label.addr() - (&raw const CLOCK_GETTIME).addr()) as u64
}
