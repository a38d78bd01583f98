//! A call that a fault can end.
//!
//! It saves all registers that a function must preserve, records the stack pointer, and calls. The signal
//! handler restores the stack pointer and continues at the landing, which restores the registers and returns
//! 1.

use std::ffi::{c_int, c_void};
use std::sync::atomic::AtomicUsize;

/// A C function whose call may be ended at any access to memory: it holds no resource and takes no lock.
pub type Guarded = unsafe extern "C" fn(*mut c_void, *const c_void, usize);

unsafe extern "C" {
    /// Calls `function(first, second, third)`. Returns 0 if it returned, 1 if a fault ended it. `stack`
    /// contains the stack pointer meanwhile.
    pub(crate) fn pumice_guarded_call(
        first: *mut c_void,
        second: *const c_void,
        third: usize,
        function: Guarded,
        stack: *const AtomicUsize,
    ) -> c_int;
    /// The code at which a call continues that a fault ended. It is no function: only its address is used.
    pub(crate) static pumice_guarded_landing: u8;
    /// Copies 8, 16, 24, … 64 bytes word by word, upwards, or 1, 2 or 4 bytes in one piece. Returns 0 if it
    /// did, 1 if a fault ended it. A call that saves registers and calls a function takes longer than the
    /// copy itself.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn pumice_short_copy(
        to: *mut c_void,
        from: *const c_void,
        bytes: usize,
        stack: *const AtomicUsize,
    ) -> c_int;
    #[cfg(target_arch = "x86_64")]
    pub(crate) static pumice_short_copy_landing: u8;
}

/// Returns the address at which a call continues that a fault ended, and the stack pointer that it needs;
/// `noted` is the record's stack pointer.
pub(crate) fn landing(noted: usize) -> (usize, usize) {
    #[cfg(target_arch = "x86_64")]
    if noted & OF_SHORT_COPY != 0 {
        return ((&raw const pumice_short_copy_landing).expose_provenance(), noted & !OF_SHORT_COPY);
    }
    ((&raw const pumice_guarded_landing).expose_provenance(), noted)
}

/// The bit that marks the stack pointer of a short copy, which has saved no registers. Stack pointers are
/// multiples of 8.
#[cfg(target_arch = "x86_64")]
pub(crate) const OF_SHORT_COPY: usize = 1;

#[cfg(target_arch = "x86_64")]
std::arch::global_asm!(
    ".pushsection .text.pumice_short_copy,\"ax\",@progbits",
    ".p2align 4",
    ".globl pumice_short_copy",
    ".hidden pumice_short_copy",
    ".type pumice_short_copy,@function",
    "pumice_short_copy:",
    ".cfi_startproc",
    "lea rax, [rsp + 1]",
    "mov [rcx], rax",
    "xor eax, eax",
    "test dl, 7",
    "jnz 3f",
    "2:",
    "mov r8, [rsi + rax]",
    "mov [rdi + rax], r8",
    "add rax, 8",
    "cmp rax, rdx",
    "jne 2b",
    "xor eax, eax",
    "ret",
    "3:",
    "test dl, 4",
    "jz 4f",
    "mov r8d, [rsi]",
    "mov [rdi], r8d",
    "ret",
    "4:",
    "test dl, 2",
    "jz 5f",
    "movzx r8d, word ptr [rsi]",
    "mov [rdi], r8w",
    "ret",
    "5:",
    "movzx r8d, byte ptr [rsi]",
    "mov [rdi], r8b",
    "ret",
    ".globl pumice_short_copy_landing",
    ".hidden pumice_short_copy_landing",
    "pumice_short_copy_landing:",
    "mov eax, 1",
    "ret",
    ".cfi_endproc",
    ".size pumice_short_copy, . - pumice_short_copy",
    ".popsection",
);

#[cfg(target_arch = "x86_64")]
std::arch::global_asm!(
    ".pushsection .text.pumice_guarded_call,\"ax\",@progbits",
    ".p2align 4",
    ".globl pumice_guarded_call",
    ".hidden pumice_guarded_call",
    ".type pumice_guarded_call,@function",
    "pumice_guarded_call:",
    ".cfi_startproc",
    "push rbp",
    ".cfi_adjust_cfa_offset 8",
    ".cfi_rel_offset rbp, 0",
    "push rbx",
    ".cfi_adjust_cfa_offset 8",
    ".cfi_rel_offset rbx, 0",
    "push r12",
    ".cfi_adjust_cfa_offset 8",
    ".cfi_rel_offset r12, 0",
    "push r13",
    ".cfi_adjust_cfa_offset 8",
    ".cfi_rel_offset r13, 0",
    "push r14",
    ".cfi_adjust_cfa_offset 8",
    ".cfi_rel_offset r14, 0",
    "push r15",
    ".cfi_adjust_cfa_offset 8",
    ".cfi_rel_offset r15, 0",
    // The stack pointer is a multiple of 16 at a call.
    "push r8",
    ".cfi_adjust_cfa_offset 8",
    "mov [r8], rsp",
    "call rcx",
    "xor eax, eax",
    "2:",
    ".cfi_remember_state",
    "pop r8",
    ".cfi_adjust_cfa_offset -8",
    "pop r15",
    ".cfi_adjust_cfa_offset -8",
    "pop r14",
    ".cfi_adjust_cfa_offset -8",
    "pop r13",
    ".cfi_adjust_cfa_offset -8",
    "pop r12",
    ".cfi_adjust_cfa_offset -8",
    "pop rbx",
    ".cfi_adjust_cfa_offset -8",
    "pop rbp",
    ".cfi_adjust_cfa_offset -8",
    "ret",
    ".globl pumice_guarded_landing",
    ".hidden pumice_guarded_landing",
    "pumice_guarded_landing:",
    ".cfi_restore_state",
    "mov eax, 1",
    "jmp 2b",
    ".cfi_endproc",
    ".size pumice_guarded_call, . - pumice_guarded_call",
    ".popsection",
);

#[cfg(target_arch = "aarch64")]
std::arch::global_asm!(
    ".pushsection .text.pumice_guarded_call,\"ax\",@progbits",
    ".p2align 4",
    ".globl pumice_guarded_call",
    ".hidden pumice_guarded_call",
    ".type pumice_guarded_call,@function",
    "pumice_guarded_call:",
    ".cfi_startproc",
    "stp x29, x30, [sp, #-160]!",
    ".cfi_def_cfa_offset 160",
    ".cfi_offset 29, -160",
    ".cfi_offset 30, -152",
    "mov x29, sp",
    "stp x19, x20, [sp, #16]",
    "stp x21, x22, [sp, #32]",
    "stp x23, x24, [sp, #48]",
    "stp x25, x26, [sp, #64]",
    "stp x27, x28, [sp, #80]",
    "stp d8, d9, [sp, #96]",
    "stp d10, d11, [sp, #112]",
    "stp d12, d13, [sp, #128]",
    "stp d14, d15, [sp, #144]",
    "mov x5, sp",
    "str x5, [x4]",
    "blr x3",
    "mov w0, #0",
    "2:",
    "ldp x19, x20, [sp, #16]",
    "ldp x21, x22, [sp, #32]",
    "ldp x23, x24, [sp, #48]",
    "ldp x25, x26, [sp, #64]",
    "ldp x27, x28, [sp, #80]",
    "ldp d8, d9, [sp, #96]",
    "ldp d10, d11, [sp, #112]",
    "ldp d12, d13, [sp, #128]",
    "ldp d14, d15, [sp, #144]",
    "ldp x29, x30, [sp], #160",
    "ret",
    ".globl pumice_guarded_landing",
    ".hidden pumice_guarded_landing",
    "pumice_guarded_landing:",
    "mov w0, #1",
    "b 2b",
    ".cfi_endproc",
    ".size pumice_guarded_call, . - pumice_guarded_call",
    ".popsection",
);

#[cfg(target_arch = "riscv64")]
std::arch::global_asm!(
    ".pushsection .text.pumice_guarded_call,\"ax\",@progbits",
    ".p2align 2",
    ".globl pumice_guarded_call",
    ".hidden pumice_guarded_call",
    ".type pumice_guarded_call,@function",
    "pumice_guarded_call:",
    ".cfi_startproc",
    "addi sp, sp, -208",
    ".cfi_def_cfa_offset 208",
    "sd ra, 0(sp)",
    ".cfi_offset ra, -208",
    "sd s0, 8(sp)",
    "sd s1, 16(sp)",
    "sd s2, 24(sp)",
    "sd s3, 32(sp)",
    "sd s4, 40(sp)",
    "sd s5, 48(sp)",
    "sd s6, 56(sp)",
    "sd s7, 64(sp)",
    "sd s8, 72(sp)",
    "sd s9, 80(sp)",
    "sd s10, 88(sp)",
    "sd s11, 96(sp)",
    "fsd fs0, 104(sp)",
    "fsd fs1, 112(sp)",
    "fsd fs2, 120(sp)",
    "fsd fs3, 128(sp)",
    "fsd fs4, 136(sp)",
    "fsd fs5, 144(sp)",
    "fsd fs6, 152(sp)",
    "fsd fs7, 160(sp)",
    "fsd fs8, 168(sp)",
    "fsd fs9, 176(sp)",
    "fsd fs10, 184(sp)",
    "fsd fs11, 192(sp)",
    "sd sp, 0(a4)",
    "jalr a3",
    "li a0, 0",
    "2:",
    "ld ra, 0(sp)",
    "ld s0, 8(sp)",
    "ld s1, 16(sp)",
    "ld s2, 24(sp)",
    "ld s3, 32(sp)",
    "ld s4, 40(sp)",
    "ld s5, 48(sp)",
    "ld s6, 56(sp)",
    "ld s7, 64(sp)",
    "ld s8, 72(sp)",
    "ld s9, 80(sp)",
    "ld s10, 88(sp)",
    "ld s11, 96(sp)",
    "fld fs0, 104(sp)",
    "fld fs1, 112(sp)",
    "fld fs2, 120(sp)",
    "fld fs3, 128(sp)",
    "fld fs4, 136(sp)",
    "fld fs5, 144(sp)",
    "fld fs6, 152(sp)",
    "fld fs7, 160(sp)",
    "fld fs8, 168(sp)",
    "fld fs9, 176(sp)",
    "fld fs10, 184(sp)",
    "fld fs11, 192(sp)",
    "addi sp, sp, 208",
    "ret",
    ".globl pumice_guarded_landing",
    ".hidden pumice_guarded_landing",
    "pumice_guarded_landing:",
    "li a0, 1",
    "j 2b",
    ".cfi_endproc",
    ".size pumice_guarded_call, . - pumice_guarded_call",
    ".popsection",
);
