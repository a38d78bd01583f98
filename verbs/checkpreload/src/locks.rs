//! The functions that take a lock or give it back: in a world each is a point at which another thread may
//! continue.
//!
//! A lock that no thread holds is taken without a system call, so that the supervisor of a world does not see
//! it.

use std::ffi::{c_int, c_void};
use std::mem::transmute;

use crate::hooks::{Original, reach_lock};

type Function = unsafe extern "C" fn(*mut c_void) -> c_int;

/// Replaces functions of the C library that have one argument, a lock, and return an error number. `before`:
/// another thread may continue before the call; `after`: after it.
macro_rules! locks {
    ($($when:ident $original:ident $name:ident $literal:literal),+ $(,)?) => {
        $(
            static $original: Original = Original::new($literal);

            #[doc = concat!("Replaces ", stringify!($name), "(3).")]
            ///
            /// # Safety
            /// The requirements are those of the C library's function.
            #[unsafe(no_mangle)]
            pub(crate) unsafe extern "C" fn $name(lock: *mut c_void) -> c_int {
                // SAFETY: the function of that name has this type; the caller vouches for the lock.
                unsafe { locks!(@ $when $original lock) }
            }
        )+

        /// Finds the functions before the program begins.
        pub(crate) fn prepare() {
            for original in [$(&$original),+] {
                original.certain_address();
            }
        }
    };
    (@ before $original:ident $lock:ident) => {{
        reach_lock();
        call(&$original, $lock)
    }};
    (@ after $original:ident $lock:ident) => {{
        let outcome = call(&$original, $lock);
        reach_lock();
        outcome
    }};
}

locks! {
    before MUTEX_LOCK pthread_mutex_lock c"pthread_mutex_lock",
    before MUTEX_TRYLOCK pthread_mutex_trylock c"pthread_mutex_trylock",
    after MUTEX_UNLOCK pthread_mutex_unlock c"pthread_mutex_unlock",
    before READ_LOCK pthread_rwlock_rdlock c"pthread_rwlock_rdlock",
    before WRITE_LOCK pthread_rwlock_wrlock c"pthread_rwlock_wrlock",
    after RW_UNLOCK pthread_rwlock_unlock c"pthread_rwlock_unlock",
    before SPIN_LOCK pthread_spin_lock c"pthread_spin_lock",
    after SPIN_UNLOCK pthread_spin_unlock c"pthread_spin_unlock",
    before C11_LOCK mtx_lock c"mtx_lock",
    after C11_UNLOCK mtx_unlock c"mtx_unlock",
}

/// Calls a function of the next object.
///
/// # Safety
/// The function has this type, and the lock is one of its kind.
unsafe fn call(original: &Original, lock: *mut c_void) -> c_int {
    let function = original.certain_address();
    if function.is_null() {
        return libc::ENOSYS;
    }
    // SAFETY: the caller's promise.
    unsafe { transmute::<*mut c_void, Function>(function)(lock) }
}
