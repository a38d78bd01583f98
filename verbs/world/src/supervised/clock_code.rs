//! The clocks of a world, as machine code for its programs: it replaces the functions that the kernel maps
//! into every process to read clocks without a call (vDSO). A reading takes a program some nanoseconds, and
//! does not stop it.
//!
//! The code reads and advances the clock in a page that the supervisor fills before a thread continues, and
//! reads when it stops. When a thread has read clocks as often as the page permits, it makes the call.
//!
//! The code is for x86_64, as worlds are: aarch64 and riscv64 would have a file of their own.

use std::arch::global_asm;
use std::sync::OnceLock;

use object::{Object as _, ObjectSymbol as _};

use super::tracee::Tracee;

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

/// Maximum length of the image, in bytes.
const MAX_BYTES: usize = 1 << 16;
/// Length of the beginning of an image by which images are distinguished.
const HEAD: usize = 64;
/// Function whose bytes have room for all of the code.
const MIN_CODE_BYTES: &str = "__vdso_clock_gettime";
/// Length of a jump instruction, in bytes.
pub(crate) const JUMP: usize = 5;

/// The functions of an image.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Functions {
    head: [u8; HEAD],
    /// Offset of the code in the image, in bytes.
    pub(crate) code_at: u64,
    /// Offsets of the functions that are to jump, and of their targets.
    pub(crate) jumps: Vec<(u64, u64)>,
}

/// Returns the functions of the image at this address of a program's memory; `None` if it is no known image
/// into which the code fits.
pub(crate) fn functions(tracee: Tracee, at: u64) -> Option<&'static Functions> {
    static KNOWN: OnceLock<Option<Functions>> = OnceLock::new();
    let mut head = [0; HEAD];
    tracee.read(at, &mut head).ok()?;
    let known = KNOWN.get_or_init(|| Functions::of_image(&image(tracee, at)?)).as_ref()?;
    (known.head == head).then_some(known)
}

/// Reads the whole image from the program's memory.
fn image(tracee: Tracee, at: u64) -> Option<Vec<u8>> {
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", tracee.0)).ok()?;
    let (begin, end) = maps.lines().find_map(|line| {
        let (begin, end) = line.split_whitespace().next()?.split_once('-')?;
        let hex = |text: &str| u64::from_str_radix(text, 16).ok();
        Some((hex(begin)?, hex(end)?)).filter(|(begin, _)| *begin == at)
    })?;
    let mut image = vec![0; usize::try_from(end - begin).ok().filter(|length| *length <= MAX_BYTES)?];
    tracee.read(at, &mut image).ok()?;
    Some(image)
}

impl Functions {
    fn of_image(image: &[u8]) -> Option<Functions> {
        let file = object::read::elf::ElfFile64::<object::Endianness>::parse(image).ok()?;
        let found = |name: &str| {
            let symbol = file.dynamic_symbols().find(|symbol| symbol.name() == Ok(name))?;
            Some((symbol.address(), symbol.size()))
        };
        let (code_at, room) = found(MIN_CODE_BYTES)?;
        if room < code().len() as u64 {
            return None;
        }
        let mut jumps = Vec::new();
        for symbol in file.dynamic_symbols() {
            let Some(to) = symbol.name().ok().and_then(offset_of).filter(|to| *to > 0) else { continue };
            if symbol.size() < JUMP as u64 {
                return None;
            }
            jumps.push((symbol.address(), code_at + to));
        }
        Some(Functions { head: image.get(..HEAD)?.try_into().ok()?, code_at, jumps })
    }
}

#[cfg(test)]
mod tests {
    use nix::unistd::getpid;

    use super::*;

    #[test]
    fn the_code_fits_into_what_this_kernel_gives_every_process() {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let line = maps.lines().find(|line| line.ends_with("[vdso]")).expect("a kernel with a vDSO");
        let at = u64::from_str_radix(line.split_once('-').unwrap().0, 16).unwrap();
        let found = functions(Tracee(getpid()), at).expect("room for the code");
        assert!(found.jumps.len() >= 3, "{found:?}");
        assert_eq!(functions(Tracee(getpid()), at + 8), None);
    }
}
