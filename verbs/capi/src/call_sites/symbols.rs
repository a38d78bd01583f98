//! Names and lines of return addresses.

use std::ffi::{CStr, c_void};
use std::ptr;

use pumice_device::check::report::Frame;

use super::python;
use crate::platform::reserve;

/// Functions before `main` and before the first function of a thread, which are left out.
const BEFORE_MAIN: [&str; 6] =
    ["_start", "__libc_start_main", "__libc_start_call_main", "start_thread", "clone", "clone3"];

/// End of the header's path that programs include, with inline functions that they call.
const HEADER: &str = "/infiniband/verbs.h";

/// Returns the frames of return addresses, inlined functions included; those before `main` are left out. The
/// caller holds the lock of the writer, without which no thread searches for symbols.
pub(crate) fn frames(addresses: &[u64]) -> Vec<Frame> {
    let mut frames: Vec<Frame> = addresses.iter().flat_map(|address| at(*address)).collect();
    let is_before = |frame: &Frame| {
        let name = frame.function.as_deref().unwrap_or_default();
        let base = name.split("@@").next().unwrap_or_default();
        BEFORE_MAIN.iter().any(|known| base == *known || base.starts_with("__libc_start_main"))
    };
    if let Some(end) = frames.iter().position(is_before) {
        frames.truncate(end);
    }
    // Inline functions of the library's own header are not the program's.
    let is_header = |frame: &Frame| frame.file.as_ref().is_some_and(|file| file.ends_with(HEADER));
    frames.retain(|frame| !is_header(frame));
    if addresses.iter().any(|address| python::frame_at(*address).is_some()) {
        // Frames of the interpreter are of no use.
        frames.retain(|frame| frame.line.is_some());
    }
    frames
}

fn at(address: u64) -> Vec<Frame> {
    if let Some(line) = python::frame_at(address) {
        return vec![line];
    }
    let pointer = ptr::without_provenance_mut::<c_void>(address as usize);
    let (object, offset) = object_of(address);
    let unknown = Frame { object, offset, ..Frame::default() };
    let mut found = Vec::new();
    let add_symbol = |symbol: &backtrace::Symbol| {
        found.push(Frame {
            function: symbol.name().map(|name| format!("{name:#}")),
            file: symbol.filename().map(|file| file.to_string_lossy().into_owned()),
            line: symbol.lineno(),
            ..unknown.clone()
        });
    };
    // Debug information is as large as it is, and to look into it needs memory that cannot be refused.
    if reserve::has_room_for_symbols() {
        backtrace::resolve(pointer, add_symbol);
    }
    if found.is_empty() {
        found.push(unknown);
    }
    found
}

/// Returns the loaded object that has the call before a return address, and the offset in it.
fn object_of(address: u64) -> (String, u64) {
    let mut about = libc::Dl_info {
        dli_fname: ptr::null(),
        dli_fbase: ptr::null_mut(),
        dli_sname: ptr::null(),
        dli_saddr: ptr::null_mut(),
    };
    let call = ptr::without_provenance::<c_void>((address as usize).saturating_sub(1));
    // SAFETY: the function only compares the address, and writes the structure of this frame.
    if unsafe { libc::dladdr(call, &mut about) } == 0 || about.dli_fname.is_null() {
        return ("?".to_owned(), address);
    }
    // SAFETY: the loader's name of an object that is not unloaded meanwhile, or shortly before.
    let name = unsafe { CStr::from_ptr(about.dli_fname) }.to_string_lossy().into_owned();
    (name, address.saturating_sub(about.dli_fbase.addr() as u64))
}
