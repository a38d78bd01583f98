//! The C library's functions, which this object's functions of the same names hide, and librdmacm's.

use std::ffi::{CStr, c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A function of another object.
pub(crate) struct LazyFunction {
    name: &'static CStr,
    of_librdmacm: bool,
    /// Address of the function; null until it is known.
    address: AtomicPtr<c_void>,
}

/// Handle of librdmacm, once it is loaded.
static LIBRARY: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

impl LazyFunction {
    /// Names a function of the next object.
    pub(crate) const fn original(name: &'static CStr) -> LazyFunction {
        LazyFunction { name, of_librdmacm: false, address: AtomicPtr::new(null_mut()) }
    }

    /// Names a function of librdmacm.
    pub(crate) const fn of_librdmacm(name: &'static CStr) -> LazyFunction {
        LazyFunction { name, of_librdmacm: true, address: AtomicPtr::new(null_mut()) }
    }

    /// Returns its address; null, with errno set, if there is none.
    #[inline]
    pub(crate) fn address(&self) -> *mut c_void {
        let known = self.address.load(Ordering::Relaxed);
        if known.is_null() { self.find() } else { known }
    }

    /// Finds the address. Two threads may do this at once: they find the same one.
    #[cold]
    fn find(&self) -> *mut c_void {
        let object = if self.of_librdmacm { library() } else { libc::RTLD_NEXT };
        let found = if self.of_librdmacm && object.is_null() {
            null_mut()
        } else {
            // SAFETY: a name that ends with NUL; an object that stays loaded.
            unsafe { libc::dlsym(object, self.name.as_ptr()) }
        };
        if found.is_null() {
            set_errno(libc::ENOSYS);
        }
        self.address.store(found, Ordering::Relaxed);
        found
    }
}

/// Returns the handle of librdmacm, which is loaded when the first socket is made: `pumice run` has put it
/// where the loader searches.
fn library() -> *mut c_void {
    let known = LIBRARY.load(Ordering::Relaxed);
    if !known.is_null() {
        return known;
    }
    // SAFETY: a name that ends with NUL. The object's initialisation calls no function here that waits for
    // this.
    let loaded = unsafe { libc::dlopen(c"librdmacm.so.1".as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    LIBRARY.store(loaded, Ordering::Relaxed);
    loaded
}

/// Sets this thread's errno.
pub(crate) fn set_errno(errno: c_int) {
    // SAFETY: the location is this thread's own.
    unsafe { *libc::__errno_location() = errno }
}

/// Returns this thread's errno.
pub(crate) fn errno() -> c_int {
    // SAFETY: the location is this thread's own.
    unsafe { *libc::__errno_location() }
}

/// Calls a function of another object: `call!(original "close", (fd: c_int) -> c_int)`, or librdmacm's. The
/// result of a function that does not exist is -1.
macro_rules! call {
    ($whose:ident $name:literal, ($($argument:ident: $type:ty),*) -> $result:ty) => {{
        static FUNCTION: $crate::functions::LazyFunction =
            match std::ffi::CStr::from_bytes_with_nul(concat!($name, "\0").as_bytes()) {
                Ok(name) => $crate::functions::LazyFunction::$whose(name),
                Err(_) => panic!("a name has no NUL"),
            };
        let address = FUNCTION.address();
        if address.is_null() {
            -1
        } else {
            // SAFETY: the function of this name has this type; the caller keeps its requirements.
            unsafe {
                std::mem::transmute::<*mut std::ffi::c_void, unsafe extern "C-unwind" fn($($type),*) -> $result>(address)(
                    $($argument),*
                )
            }
        }
    }};
}
pub(crate) use call;
