//! Lines of Python, found through the functions of an interpreter in this process.
//!
//! A call stack of CPython is that of the interpreter, not of the program that it interprets. If the calling
//! thread holds the interpreter's lock, as in calls of pyverbs, it may ask for its Python frames. They are
//! stored as *addresses* that no memory has, so that they pass for return addresses until symbols are
//! searched for.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::{Mutex, PoisonError};

use pumice_device::check::recorded::Frame;
use pumice_device::outside::fork_generation::{InheritedOnce, PerProcess};

/// Largest number of lines that are stored; further ones are not reported.
const MAX_LINES: usize = 4096;
/// Largest number of frames of a stack, the innermost first.
const MAX_DEPTH: usize = 8;
/// First address that stands for a line: no processor has memory there.
const FIRST_LINE_ADDRESS: u64 = 0xe000_7079_0000_0000;
/// Longest name that is stored, in bytes.
const MAX_NAME: usize = 4096;

/// A line of a Python file.
#[derive(Debug, Clone, PartialEq, Eq)]
struct PythonLine {
    function: String,
    file: String,
    line: u32,
}

static LINES: PerProcess<Mutex<Vec<PythonLine>>> = PerProcess::new(|before| {
    // Stacks that a child inherits from its parent mean the same lines.
    let known = before.and_then(|before| before.try_lock().ok().map(|lines| lines.clone()));
    Mutex::new(known.unwrap_or_default())
});

/// An object of the interpreter.
type PyObjectPointer = *mut c_void;

/// Signatures of functions of the interpreter.
type IntFn = unsafe extern "C" fn() -> c_int;
type ObjectFn = unsafe extern "C" fn() -> PyObjectPointer;
type ObjectIntFn = unsafe extern "C" fn(PyObjectPointer) -> c_int;
type AttributeFn = unsafe extern "C" fn(PyObjectPointer, *const c_char) -> PyObjectPointer;
type TextFn = unsafe extern "C" fn(PyObjectPointer) -> *const c_char;
type RefCountFn = unsafe extern "C" fn(PyObjectPointer);
type FetchErrorFn = unsafe extern "C" fn(*mut PyObjectPointer, *mut PyObjectPointer, *mut PyObjectPointer);
type RestoreErrorFn = unsafe extern "C" fn(PyObjectPointer, PyObjectPointer, PyObjectPointer);
type ClearErrorFn = unsafe extern "C" fn();

/// Functions of CPython, of 3.8 and later: they have these signatures in all versions.
#[derive(Clone, Copy)]
struct Interpreter {
    is_initialized: IntFn,
    /// Returns the state of the thread that holds the lock, or since 3.12 of this one if it does.
    current: ObjectFn,
    own: ObjectFn,
    frame: ObjectFn,
    line: ObjectIntFn,
    attribute: AttributeFn,
    text: TextFn,
    release: RefCountFn,
    retain: RefCountFn,
    take_error: FetchErrorFn,
    put_error: RestoreErrorFn,
    clear_error: ClearErrorFn,
    /// Functions that turn garbage collection off and on, which since 3.11 a frame may begin. `None` before
    /// 3.10.
    collection: Option<(IntFn, IntFn)>,
}

/// Returns the address of a function of the program or of its libraries.
fn symbol(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: a name that ends with NUL.
    let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!address.is_null()).then_some(address)
}

macro_rules! function {
    ($name:literal, $signature:ty) => {{
        let address = symbol($name)?;
        // SAFETY: a function of CPython's interface with this name has this signature.
        unsafe { std::mem::transmute::<*mut c_void, $signature>(address) }
    }};
}

impl Interpreter {
    fn find() -> Option<Interpreter> {
        let newer = || Some(function!(c"PyThreadState_GetUnchecked", ObjectFn));
        let older = || Some(function!(c"_PyThreadState_UncheckedGet", ObjectFn));
        let collection = || Some((function!(c"PyGC_Disable", IntFn), function!(c"PyGC_Enable", IntFn)));
        Some(Interpreter {
            is_initialized: function!(c"Py_IsInitialized", IntFn),
            current: newer().or_else(older)?,
            own: function!(c"PyGILState_GetThisThreadState", ObjectFn),
            frame: function!(c"PyEval_GetFrame", ObjectFn),
            line: function!(c"PyFrame_GetLineNumber", ObjectIntFn),
            attribute: function!(c"PyObject_GetAttrString", AttributeFn),
            text: function!(c"PyUnicode_AsUTF8", TextFn),
            release: function!(c"Py_DecRef", RefCountFn),
            retain: function!(c"Py_IncRef", RefCountFn),
            take_error: function!(c"PyErr_Fetch", FetchErrorFn),
            put_error: function!(c"PyErr_Restore", RestoreErrorFn),
            clear_error: function!(c"PyErr_Clear", ClearErrorFn),
            collection: collection(),
        })
    }

    /// Reports whether the calling thread holds the lock.
    fn holds_lock(&self) -> bool {
        // SAFETY: three functions that only read words of the interpreter, in any thread.
        unsafe {
            (self.is_initialized)() != 0 && {
                let current = (self.current)();
                !current.is_null() && current == (self.own)()
            }
        }
    }

    /// Visits the frames of the calling thread, innermost first, until `visit` returns false.
    ///
    /// # Safety
    /// The calling thread must hold the lock.
    unsafe fn frames(&self, mut visit: impl FnMut(PythonLine) -> bool) {
        // SAFETY: the thread holds the lock, so it may call all of these; returned references are released,
        // except that of `frame`, which is borrowed.
        unsafe {
            let mut error = [std::ptr::null_mut(); 3];
            let [kind, value, trace] = &mut error;
            (self.take_error)(kind, value, trace);
            let collects = self.collection.map(|(disable, _)| disable());
            let mut frame = (self.frame)();
            if !frame.is_null() {
                (self.retain)(frame);
            }
            while !frame.is_null() {
                let outer = match self.line_of(frame).map(&mut visit) {
                    Some(true) => (self.attribute)(frame, c"f_back".as_ptr()),
                    _ => std::ptr::null_mut(),
                };
                (self.release)(frame);
                frame = outer;
            }
            (self.clear_error)();
            if let (Some(1), Some((_, enable))) = (collects, self.collection) {
                enable();
            }
            let [kind, value, trace] = error;
            (self.put_error)(kind, value, trace);
        }
    }

    /// Returns the line of a frame; `None` if the object is no frame.
    ///
    /// # Safety
    /// As for [`Interpreter::frames`]; `frame` must be a live object.
    unsafe fn line_of(&self, frame: PyObjectPointer) -> Option<PythonLine> {
        // SAFETY: as in `frames`.
        unsafe {
            let code = (self.attribute)(frame, c"f_code".as_ptr());
            if code.is_null() {
                return None;
            }
            let line = u32::try_from((self.line)(frame)).unwrap_or_default();
            let (file, function) = (self.text_of(code, c"co_filename"), self.text_of(code, c"co_name"));
            (self.release)(code);
            Some(PythonLine { function: function?, file: file?, line })
        }
    }

    /// Returns a text that is an attribute of an object.
    ///
    /// # Safety
    /// As for [`Interpreter::line_of`].
    unsafe fn text_of(&self, object: PyObjectPointer, name: &CStr) -> Option<String> {
        // SAFETY: as in `frames`; the bytes of a text live as long as the text.
        unsafe {
            let text = (self.attribute)(object, name.as_ptr());
            if text.is_null() {
                return None;
            }
            let bytes = (self.text)(text);
            let copy = (!bytes.is_null()).then(|| CStr::from_ptr(bytes).to_string_lossy().into_owned());
            (self.release)(text);
            copy.filter(|copy| copy.len() <= MAX_NAME)
        }
    }
}

/// Searches for an interpreter, which takes locks of the loader.
pub(crate) fn prepare() {
    let _ = interpreter();
}

fn interpreter() -> Option<&'static Interpreter> {
    static FOUND: InheritedOnce<Option<Interpreter>> = InheritedOnce::new();
    FOUND.get_or_init(Interpreter::find).as_ref()
}

/// Inserts the calling thread's lines of Python before the return addresses of its frames.
pub(crate) fn add_lines(addresses: &mut Vec<u64>) {
    let Some(interpreter) = interpreter().filter(|interpreter| interpreter.holds_lock()) else { return };
    let mut own = Vec::new();
    let push_line = |line: PythonLine| {
        own.extend(address_of(line));
        own.len() < MAX_DEPTH
    };
    // SAFETY: the calling thread holds the lock.
    unsafe { interpreter.frames(push_line) };
    addresses.splice(0..0, own);
}

/// Returns the address that stands for a line.
fn address_of(line: PythonLine) -> Option<u64> {
    let mut lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
    let index = match lines.iter().position(|known| *known == line) {
        Some(index) => index,
        None if lines.len() < MAX_LINES => {
            lines.push(line);
            lines.len() - 1
        }
        None => return None,
    };
    Some(FIRST_LINE_ADDRESS + index as u64)
}

/// Returns the frame of a line, if the address stands for one.
pub(crate) fn frame_at(address: u64) -> Option<Frame> {
    let index = usize::try_from(address.checked_sub(FIRST_LINE_ADDRESS)?).ok()?;
    let lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
    let PythonLine { function, file, line } = lines.get(index)?.clone();
    Some(Frame { function: Some(function), file: Some(file), line: Some(line), ..Frame::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_one_address_which_no_memory_has() {
        let line = |line| PythonLine { function: "main".to_owned(), file: "/x/a.py".to_owned(), line };
        let [first, second] = [3, 4].map(|number| address_of(line(number)).unwrap());
        assert_eq!(address_of(line(3)), Some(first));
        assert_ne!(first, second);
        assert_eq!(frame_at(second).map(|frame| frame.to_string()).as_deref(), Some("main (/x/a.py:4)"));
        assert_eq!([0x7f00_0000_1000, FIRST_LINE_ADDRESS + MAX_LINES as u64].map(frame_at), [None, None]);
    }

    #[test]
    fn a_program_without_an_interpreter_has_no_lines() {
        let mut addresses = vec![7];
        add_lines(&mut addresses);
        assert_eq!(addresses, [7]);
    }
}
