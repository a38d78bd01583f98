//! System calls without the C library, whose `syscall` may be redirected to this library.

use std::ffi::c_long;

/// Makes a system call; a result below 0 is the negative number of an error. errno does not change.
#[cfg(target_arch = "x86_64")]
pub(super) fn make(number: c_long, arguments: &[u64; 6]) -> i64 {
    let [first, second, third, fourth, fifth, sixth] = *arguments;
    let outcome;
    // SAFETY: the call is the program's, with its arguments, or one that asks for a number. For the compiler
    // the assembly may write any memory.
    unsafe {
        std::arch::asm!(
            "syscall",
            inlateout("rax") number => outcome,
            in("rdi") first,
            in("rsi") second,
            in("rdx") third,
            in("r10") fourth,
            in("r8") fifth,
            in("r9") sixth,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    outcome
}

/// Makes a system call; a result below 0 is the negative number of an error. On aarch64 and riscv64 no calls
/// of the C library's `syscall` are watched.
#[cfg(not(target_arch = "x86_64"))]
pub(super) fn make(number: c_long, arguments: &[u64; 6]) -> i64 {
    let [first, second, third, fourth, fifth, sixth] = *arguments;
    // SAFETY: as above; the location of errno is this thread's own.
    unsafe {
        let before = *libc::__errno_location();
        let outcome = libc::syscall(number, first, second, third, fourth, fifth, sixth);
        let error = std::mem::replace(&mut *libc::__errno_location(), before);
        if outcome == -1 { -i64::from(error) } else { i64::from(outcome) }
    }
}
