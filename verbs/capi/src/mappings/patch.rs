//! Jumps that replace the first instructions of functions of the C library.
//!
//! The long jumps to this library are in the room between the end of the C library's code and the end of its
//! last page, so that a jump to one of them fits into the first instructions. They are written through
//! `/proc/self/mem`, which needs no page that is writable and executable. A function that differs from the C
//! library's file is left alone: another library (UCX, a sanitizer, a debugger) has changed it before.

use std::ffi::{CStr, OsStr, c_int, c_void};
use std::fmt;
use std::fs::File;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt as _;

use pumice_device::outside;

use super::calls::{Function, heap_end_is_at};

/// Reason why functions are not changed.
#[derive(Debug)]
pub(super) enum PatchRefused {
    NoLibrary,
    Processor,
    NoRoom,
    File(std::io::Error),
    Memory(std::io::Error),
    /// The functions differ from the C library's file, or have no room for a jump.
    Functions(String),
}

impl fmt::Display for PatchRefused {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PatchRefused::NoLibrary => write!(out, "there is no libc.so.6 in this process"),
            PatchRefused::Processor => write!(out, "jumps for this processor are not known"),
            PatchRefused::NoRoom => write!(out, "behind the C library's code is no room for jumps"),
            PatchRefused::File(error) => write!(out, "the C library's file cannot be read: {error}"),
            PatchRefused::Memory(error) => write!(out, "/proc/self/mem cannot be written: {error}"),
            PatchRefused::Functions(names) => write!(out, "other libraries have changed {names}"),
        }
    }
}

/// Number of bytes of a function that are compared with the file: more than a jump takes.
const HEAD_BYTES: usize = 16;
/// Length of a long jump in bytes.
const LONG_BYTES: usize = 16;

/// Makes calls of these functions jump to their replacements.
///
/// # Errors
/// Fails with the reason why some or all are not changed.
pub(super) fn redirect(functions: &[Function]) -> Result<(), PatchRefused> {
    let library = CLibrary::find()?;
    let file =
        outside::files::open(OsStr::from_bytes(library.path.to_bytes())).map_err(PatchRefused::File)?;
    let memory =
        File::options().read(true).write(true).open("/proc/self/mem").map_err(PatchRefused::Memory)?;
    let mut room = library.room(&memory, functions.len())?;
    let mut left = Vec::new();
    for function in functions {
        let address = library.address_of(function.name);
        let is_pristine = address.is_some_and(|address| library.is_as_in_file(&file, &memory, address));
        let jump = address.filter(|_| is_pristine).and_then(|address| JumpPatch::at(&memory, address, room));
        let Some(jump) = jump else {
            left.push(function.name.to_string_lossy());
            continue;
        };
        let long = long_jump((function.address)() as u64).ok_or(PatchRefused::Processor)?;
        memory.write_all_at(&long, room).map_err(PatchRefused::Memory)?;
        memory.write_all_at(&jump.bytes, jump.at).map_err(PatchRefused::Memory)?;
        room += LONG_BYTES as u64;
    }
    if left.is_empty() { Ok(()) } else { Err(PatchRefused::Functions(left.join(", "))) }
}

/// The C library, as it is loaded.
struct CLibrary {
    handle: *mut c_void,
    path: &'static CStr,
    base: u64,
    /// First address, length in bytes, and offset in the file of its code.
    code: (u64, u64, u64),
}

impl CLibrary {
    fn find() -> Result<CLibrary, PatchRefused> {
        // SAFETY: a name that ends with NUL; nothing is loaded.
        let handle = unsafe { libc::dlopen(c"libc.so.6".as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
        if handle.is_null() {
            return Err(PatchRefused::NoLibrary);
        }
        // SAFETY: a handle of the loader, and a name that ends with NUL.
        let inside = unsafe { libc::dlsym(handle, c"munmap".as_ptr()) };
        let mut sought = Sought { address: inside.addr() as u64, found: None };
        // SAFETY: the function is called with `sought` while it lives.
        unsafe { libc::dl_iterate_phdr(Some(match_object), (&raw mut sought).cast()) };
        let (path, base, code) = sought.found.ok_or(PatchRefused::NoLibrary)?;
        // SAFETY: as above.
        let heap_end = unsafe { libc::dlsym(handle, c"__curbrk".as_ptr()) };
        heap_end_is_at(heap_end);
        Ok(CLibrary { handle, path, base, code })
    }

    /// Returns the address of a function, if it is in the C library's code.
    fn address_of(&self, name: &CStr) -> Option<u64> {
        // SAFETY: a handle of the loader, and a name that ends with NUL.
        let at = unsafe { libc::dlsym(self.handle, name.as_ptr()) }.addr() as u64;
        // SAFETY: as above.
        let knows_heap_end = !unsafe { libc::dlsym(self.handle, c"__curbrk".as_ptr()) }.is_null();
        let (first, bytes, _) = self.code;
        let is_code = at >= first && at - first < bytes.saturating_sub(HEAD_BYTES as u64);
        (is_code && (knows_heap_end || name != c"brk")).then_some(at)
    }

    fn is_as_in_file(&self, file: &File, memory: &File, at: u64) -> bool {
        let (first, _, offset) = self.code;
        let (mut loaded, mut stored) = ([0; HEAD_BYTES], [0; HEAD_BYTES]);
        memory.read_exact_at(&mut loaded, at).is_ok()
            && file.read_exact_at(&mut stored, at - first + offset).is_ok()
            && loaded == stored
    }

    /// Returns the address for the first of `count` long jumps: zeros between the end of the code and of its
    /// last page.
    fn room(&self, memory: &File, count: usize) -> Result<u64, PatchRefused> {
        let page = 4096;
        let (first, bytes, _) = self.code;
        let end = first + bytes;
        let room = end.next_multiple_of(LONG_BYTES as u64);
        let wanted = count * LONG_BYTES;
        if room + wanted as u64 > end.next_multiple_of(page) || self.base > room {
            return Err(PatchRefused::NoRoom);
        }
        let mut found = vec![1; wanted];
        memory.read_exact_at(&mut found, room).map_err(PatchRefused::Memory)?;
        if found.iter().any(|byte| *byte != 0) {
            return Err(PatchRefused::NoRoom);
        }
        Ok(room)
    }
}

/// Path, base and code of an object.
type FoundLibrary = (&'static CStr, u64, (u64, u64, u64));

/// An address, and the object that has it in its code, once it is found.
struct Sought {
    address: u64,
    found: Option<FoundLibrary>,
}

/// Examines a loaded object; ends the iteration at the one that contains the address.
unsafe extern "C" fn match_object(info: *mut libc::dl_phdr_info, _size: usize, sought: *mut c_void) -> c_int {
    // SAFETY: `CLibrary::find` gives the address of its variable.
    let sought = unsafe { &mut *sought.cast::<Sought>() };
    // SAFETY: the loader gives a description that is valid during the call.
    let info = unsafe { &*info };
    if info.dlpi_phdr.is_null() || info.dlpi_name.is_null() {
        return 0;
    }
    // SAFETY: the loader gives the number of headers.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
    let has = |header: &&libc::Elf64_Phdr| {
        let first = info.dlpi_addr.wrapping_add(header.p_vaddr);
        header.p_type == libc::PT_LOAD
            && header.p_flags & libc::PF_X != 0
            && sought.address >= first
            && sought.address - first < header.p_filesz
    };
    let Some(code) = headers.iter().find(has) else { return 0 };
    // SAFETY: a name of the loader, which lives as long as the object is loaded: the C library always is.
    let path = unsafe { CStr::from_ptr(info.dlpi_name) };
    let first = info.dlpi_addr.wrapping_add(code.p_vaddr);
    sought.found = Some((path, info.dlpi_addr, (first, code.p_filesz, code.p_offset)));
    1
}

/// A jump to a long one, and its address.
struct JumpPatch {
    at: u64,
    bytes: Vec<u8>,
}

impl JumpPatch {
    /// Creates a jump from the beginning of a function to `to`; `None` if it is too far, or the processor is
    /// not known.
    fn at(memory: &File, function: u64, to: u64) -> Option<JumpPatch> {
        let mut head = [0; 8];
        memory.read_exact_at(&mut head, function).ok()?;
        // Calls through pointers may be allowed only to this instruction.
        let mark = landing_mark();
        let at = if head.starts_with(&mark) { function + mark.len() as u64 } else { function };
        let bytes = short_jump(memory, at, to)?;
        Some(JumpPatch { at, bytes })
    }
}

/// Returns the instruction `endbr64`.
#[cfg(target_arch = "x86_64")]
fn landing_mark() -> [u8; 4] {
    [0xf3, 0x0f, 0x1e, 0xfa]
}

/// Returns the instruction `bti c`.
#[cfg(not(target_arch = "x86_64"))]
fn landing_mark() -> [u8; 4] {
    0xd503_245f_u32.to_le_bytes()
}

/// Returns a `jmp` with a distance. In functions that begin with a system call's number, the fifth byte stays
/// the zero that it is: then four bytes are written, at a multiple of four, so that no thread sees half of
/// them.
#[cfg(target_arch = "x86_64")]
fn short_jump(memory: &File, from: u64, to: u64) -> Option<Vec<u8>> {
    const BYTES: u64 = 5;
    let distance = u32::try_from(to.checked_sub(from + BYTES)?).ok()?;
    let distance = i32::try_from(distance).ok()?;
    let mut before = [0; BYTES as usize];
    memory.read_exact_at(&mut before, from).ok()?;
    let mut bytes = vec![0xe9];
    bytes.extend(distance.to_le_bytes());
    if bytes.last() == before.last() {
        bytes.pop();
    }
    Some(bytes)
}

/// Returns a `b`: one instruction, which replaces one.
#[cfg(target_arch = "aarch64")]
fn short_jump(_memory: &File, from: u64, to: u64) -> Option<Vec<u8>> {
    const REACH: u64 = 1 << 27;
    let distance = to.checked_sub(from).filter(|distance| *distance < REACH)?;
    let instruction = 0x1400_0000_u32 | u32::try_from(distance / 4).ok()?;
    Some(instruction.to_le_bytes().to_vec())
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn short_jump(_memory: &File, _from: u64, _to: u64) -> Option<Vec<u8>> {
    None
}

/// Returns a jump to any address, through the eight bytes behind it.
fn long_jump(to: u64) -> Option<[u8; LONG_BYTES]> {
    let mut bytes = [0; LONG_BYTES];
    let (code, address) = if cfg!(target_arch = "x86_64") {
        // jmp [rip + 0]
        (&[0xff, 0x25, 0, 0, 0, 0][..], 6)
    } else if cfg!(target_arch = "aarch64") {
        // ldr x16, 8; br x16
        (&[0x50, 0, 0, 0x58, 0, 0x02, 0x1f, 0xd6][..], 8)
    } else {
        return None;
    };
    bytes.get_mut(..code.len())?.copy_from_slice(code);
    bytes.get_mut(address..address + 8)?.copy_from_slice(&to.to_le_bytes());
    Some(bytes)
}
