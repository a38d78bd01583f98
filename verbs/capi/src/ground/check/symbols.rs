//! Names and lines of return addresses.

use std::ffi::{CStr, c_void};
use std::ptr;

use pumice_device::check::report::Frame;

/// Functions before `main` and before the first function of a thread, which say nothing.
const BEFORE_MAIN: [&str; 6] =
    ["_start", "__libc_start_main", "__libc_start_call_main", "start_thread", "clone", "clone3"];

/// What programs include, with functions that they call.
const HEADER: &str = "/infiniband/verbs.h";

/// The frames of return addresses, inlined functions included; those before `main` are left out. The caller
/// holds the lock of the writer, without which no thread looks for symbols.
pub(super) fn frames(addresses: &[u64]) -> Vec<Frame> {
    let mut frames: Vec<Frame> = addresses.iter().flat_map(|address| at(*address)).collect();
    let is_before = |frame: &Frame| {
        let name = frame.function.as_deref().unwrap_or_default();
        let base = name.split("@@").next().unwrap_or_default();
        BEFORE_MAIN.iter().any(|known| base == *known || base.starts_with("__libc_start_main"))
    };
    if let Some(end) = frames.iter().position(is_before) {
        frames.truncate(end);
    }
    // Inline functions of the library's own header are none of the program's.
    let is_header = |frame: &Frame| frame.file.as_ref().is_some_and(|file| file.ends_with(HEADER));
    frames.retain(|frame| !is_header(frame));
    frames
}

fn at(address: u64) -> Vec<Frame> {
    let pointer = ptr::without_provenance_mut::<c_void>(address as usize);
    let (object, offset) = object_of(address);
    let unknown = Frame { object, offset, ..Frame::default() };
    let mut found = Vec::new();
    backtrace::resolve(pointer, |symbol| {
        found.push(Frame {
            function: symbol.name().map(|name| format!("{name:#}")),
            file: symbol.filename().map(|file| file.to_string_lossy().into_owned()),
            line: symbol.lineno(),
            ..unknown.clone()
        });
    });
    if found.is_empty() {
        found.push(unknown);
    }
    found
}

/// The loaded object that has the call before a return address, and where in it.
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
    // SAFETY: the loader's name of an object that is not unloaded meanwhile, or shortly ago.
    let name = unsafe { CStr::from_ptr(about.dli_fname) }.to_string_lossy().into_owned();
    (name, address.saturating_sub(about.dli_fbase.addr() as u64))
}
