//! The functions of the C library that take a path, one line each.
//!
//! They have the names of the C library's functions, and replace these in every object of the process. The
//! optional `mode` of `open` is a plain argument here: it is in the register in which a variadic call puts
//! it, and holds any value when the caller gave none, as it does for the C library.

use std::ffi::{c_char, c_int, c_long, c_uint, c_void};
use std::mem::transmute;
use std::ptr::null_mut;

use libc::{DIR, FILE, glob_t, mode_t, size_t, ssize_t};

use crate::kernel::{Original, set_errno};
use crate::live;
use crate::private_path::{PathDestination, PrivatePath, is_private, show};

/// Defines functions whose path, written `@path`, may lead into the private tree, with the value that they
/// return when they fail and, for those that return paths, the function that converts these to public ones.
macro_rules! redirect {
    ($(fn $name:ident($($before:ident: $before_type:ty,)* @path $(, $after:ident: $after_type:ty)*)
        -> $result:ty, failed $failed:expr $(, then $then:expr)?;)*) => {
        /// The original functions by name.
        #[allow(non_upper_case_globals)]
        mod originals {
            use crate::kernel::Original;
            $(pub(super) static $name: Original = {
                match std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                    Ok(name) => Original::new(name),
                    Err(_) => panic!("a name has no NUL"),
                }
            };)*
        }

        /// All originals, which are resolved before the program begins.
        static ORIGINALS: &[&Original] = &[$(&originals::$name),*];

        $(
            /// Calls the C library's function, with a path in the private tree if the path leads there.
            ///
            /// # Safety
            /// The requirements of the C library's function.
            #[unsafe(no_mangle)]
            pub(crate) unsafe extern "C-unwind" fn $name(
                $($before: $before_type,)* path: *const c_char $(, $after: $after_type)*
            ) -> $result {
                type Function =
                    unsafe extern "C-unwind" fn($($before_type,)* *const c_char $(, $after_type)*) -> $result;
                let address = originals::$name.address();
                if address.is_null() {
                    return $failed;
                }
                // SAFETY: the C library's function of this name has this type.
                let original = unsafe { transmute::<*mut c_void, Function>(address) };
                // SAFETY: the caller guarantees what the C library's function requires.
                let call = |path| unsafe { original($($before,)* path $(, $after)*) };
                // SAFETY: the same as above.
                unsafe {
                    if !is_private(path) {
                        // From a folder of the private tree, relative paths lead to its files.
                        $(if live::is_in_private_tree() {
                            let result = call(path);
                            $then(result);
                            return result;
                        })?
                        return call(path);
                    }
                    let mut private = PrivatePath::new();
                    match private.take(path) {
                        PathDestination::Unchanged => call(path),
                        PathDestination::Private => {
                            let result = call(private.as_ptr());
                            $($then(result);)?
                            result
                        }
                        PathDestination::TooLong => {
                            set_errno(libc::ENAMETOOLONG);
                            $failed
                        }
                    }
                }
            }
        )*
    };
}

redirect! {
    // Functions that open files.
    fn open(@path, flags: c_int, mode: mode_t) -> c_int, failed -1, then live::refresh;
    fn open64(@path, flags: c_int, mode: mode_t) -> c_int, failed -1, then live::refresh;
    fn __open(@path, flags: c_int, mode: mode_t) -> c_int, failed -1, then live::refresh;
    fn __open64(@path, flags: c_int, mode: mode_t) -> c_int, failed -1, then live::refresh;
    fn __open_2(@path, flags: c_int) -> c_int, failed -1, then live::refresh;
    fn __open64_2(@path, flags: c_int) -> c_int, failed -1, then live::refresh;
    fn openat(folder: c_int, @path, flags: c_int, mode: mode_t) -> c_int, failed -1, then live::refresh;
    fn openat64(folder: c_int, @path, flags: c_int, mode: mode_t) -> c_int, failed -1, then live::refresh;
    fn __openat_2(folder: c_int, @path, flags: c_int) -> c_int, failed -1, then live::refresh;
    fn __openat64_2(folder: c_int, @path, flags: c_int) -> c_int, failed -1, then live::refresh;
    fn fopen(@path, mode: *const c_char) -> *mut FILE, failed null_mut(), then live::refresh_stream;
    fn fopen64(@path, mode: *const c_char) -> *mut FILE, failed null_mut(), then live::refresh_stream;
    fn freopen(@path, mode: *const c_char, stream: *mut FILE)
        -> *mut FILE, failed null_mut(), then live::refresh_stream;
    fn freopen64(@path, mode: *const c_char, stream: *mut FILE)
        -> *mut FILE, failed null_mut(), then live::refresh_stream;
    fn opendir(@path) -> *mut DIR, failed null_mut();
    fn chdir(@path) -> c_int, failed -1, then live::note_working_folder;
    fn inotify_add_watch(fd: c_int, @path, mask: c_uint) -> c_int, failed -1;

    // Functions that query files.
    fn access(@path, mode: c_int) -> c_int, failed -1;
    fn eaccess(@path, mode: c_int) -> c_int, failed -1;
    fn euidaccess(@path, mode: c_int) -> c_int, failed -1;
    fn faccessat(folder: c_int, @path, mode: c_int, flags: c_int) -> c_int, failed -1;
    fn stat(@path, about: *mut c_void) -> c_int, failed -1;
    fn stat64(@path, about: *mut c_void) -> c_int, failed -1;
    fn lstat(@path, about: *mut c_void) -> c_int, failed -1;
    fn lstat64(@path, about: *mut c_void) -> c_int, failed -1;
    fn fstatat(folder: c_int, @path, about: *mut c_void, flags: c_int) -> c_int, failed -1;
    fn fstatat64(folder: c_int, @path, about: *mut c_void, flags: c_int) -> c_int, failed -1;
    fn statx(folder: c_int, @path, flags: c_int, mask: c_uint, about: *mut c_void) -> c_int, failed -1;
    // The same functions for programs that were built with a C library before 2.33.
    fn __xstat(version: c_int, @path, about: *mut c_void) -> c_int, failed -1;
    fn __xstat64(version: c_int, @path, about: *mut c_void) -> c_int, failed -1;
    fn __lxstat(version: c_int, @path, about: *mut c_void) -> c_int, failed -1;
    fn __lxstat64(version: c_int, @path, about: *mut c_void) -> c_int, failed -1;
    fn __fxstatat(version: c_int, folder: c_int, @path, about: *mut c_void, flags: c_int) -> c_int, failed -1;
    fn __fxstatat64(version: c_int, folder: c_int, @path, about: *mut c_void, flags: c_int) -> c_int, failed -1;
    fn statfs(@path, about: *mut c_void) -> c_int, failed -1;
    fn statfs64(@path, about: *mut c_void) -> c_int, failed -1;
    fn statvfs(@path, about: *mut c_void) -> c_int, failed -1;
    fn statvfs64(@path, about: *mut c_void) -> c_int, failed -1;
    fn pathconf(@path, name: c_int) -> c_long, failed -1;
    // `ls -l` calls these.
    fn getxattr(@path, name: *const c_char, value: *mut c_void, size: size_t) -> ssize_t, failed -1;
    fn lgetxattr(@path, name: *const c_char, value: *mut c_void, size: size_t) -> ssize_t, failed -1;
    fn listxattr(@path, list: *mut c_char, size: size_t) -> ssize_t, failed -1;
    fn llistxattr(@path, list: *mut c_char, size: size_t) -> ssize_t, failed -1;

    // Functions for links. The text of a link is returned unchanged.
    fn readlink(@path, text: *mut c_char, size: size_t) -> ssize_t, failed -1;
    fn readlinkat(folder: c_int, @path, text: *mut c_char, size: size_t) -> ssize_t, failed -1;
    fn __readlink_chk(@path, text: *mut c_char, size: size_t, room: size_t) -> ssize_t, failed -1;
    fn __readlinkat_chk(folder: c_int, @path, text: *mut c_char, size: size_t, room: size_t) -> ssize_t, failed -1;
    fn realpath(@path, text: *mut c_char) -> *mut c_char, failed null_mut(), then show;
    fn __realpath_chk(@path, text: *mut c_char, room: size_t) -> *mut c_char, failed null_mut(), then show;
    fn canonicalize_file_name(@path) -> *mut c_char, failed null_mut(), then show;

    // Functions that list folders, which open them inside of the C library, where `open` is not intercepted.
    fn scandir(@path, list: *mut c_void, filter: *const c_void, order: *const c_void) -> c_int, failed -1;
    fn scandir64(@path, list: *mut c_void, filter: *const c_void, order: *const c_void) -> c_int, failed -1;
    fn scandirat(folder: c_int, @path, list: *mut c_void, filter: *const c_void, order: *const c_void)
        -> c_int, failed -1;
    fn scandirat64(folder: c_int, @path, list: *mut c_void, filter: *const c_void, order: *const c_void)
        -> c_int, failed -1;
    fn ftw(@path, visit: *const c_void, descriptors: c_int) -> c_int, failed -1;
    fn ftw64(@path, visit: *const c_void, descriptors: c_int) -> c_int, failed -1;
    fn nftw(@path, visit: *const c_void, descriptors: c_int, flags: c_int) -> c_int, failed -1;
    fn nftw64(@path, visit: *const c_void, descriptors: c_int, flags: c_int) -> c_int, failed -1;
    fn glob(@path, flags: c_int, error: *const c_void, found: *mut glob_t)
        -> c_int, failed libc::GLOB_ABORTED, then |result| show_found(result, flags, found);
    fn glob64(@path, flags: c_int, error: *const c_void, found: *mut glob_t)
        -> c_int, failed libc::GLOB_ABORTED, then |result| show_found(result, flags, found);
}

/// Converts the paths that `glob` found to public ones.
///
/// # Safety
/// `flags` and `found` are the arguments of `glob`, and `result` is its return value.
unsafe fn show_found(result: c_int, flags: c_int, found: *mut glob_t) {
    if result != 0 {
        return;
    }
    // SAFETY: a successful glob left `gl_pathc` strings of its own, behind the requested number of NULLs.
    unsafe {
        let reserved = if flags & libc::GLOB_DOOFFS == 0 { 0 } else { (*found).gl_offs };
        for index in 0..(*found).gl_pathc {
            show(*(*found).gl_pathv.add(reserved + index));
        }
    }
}

/// Resolves functions and reads variables before the program begins, so that no signal handler has to do it
/// later.
extern "C" fn prepare() {
    crate::kernel::FOLDER.value();
    crate::kernel::LIBRARY.value();
    live::detect_working_folder();
    let others = [&crate::bundled::ORIGINAL, &crate::connections::ORIGINAL];
    let others = others.into_iter().chain(crate::netlink::ORIGINALS);
    ORIGINALS.iter().copied().chain(others).for_each(|original| {
        original.address();
    });
    crate::threads::begin();
}

/// Entry in the initialization array: the loader calls it when it has loaded the object.
#[used]
#[unsafe(link_section = ".init_array")]
static PREPARE: extern "C" fn() = prepare;
