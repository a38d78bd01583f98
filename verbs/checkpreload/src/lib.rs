//! The preload `libpumice_check.so`: loaded with LD_PRELOAD into a program that is checked, it reports to
//! libpumice.so which memory the program frees, so that the checker finds memory that a posted request still
//! uses, and when the program sleeps. In a world it reports locks (`locks`).
//!
//! It replaces free(3), realloc(3), munmap(2), usleep(3), nanosleep(2) and _exit(2) (`calls`), compares the
//! address with the bounds of the memory that requests use (`hooks`), and calls the next object's function.
//! Where the program's own file contains an allocator, the loader prefers that, and no calls are reported.
//!
//! **Invariant**: no locks and no allocation of its own, because these functions are called before `main`, by
//! the loader, in forked children and in signal handlers. No panics either.
//!
//! **Invariant**: only the next object's function is called until libpumice.so registers its callbacks, and
//! always in a program with a sanitizer, which knows freed memory better.

// Unit tests are linked without the functions of the C library's names.
#![cfg_attr(test, allow(dead_code))]

mod hooks;

#[cfg(not(test))]
mod calls;
#[cfg(not(test))]
mod locks;
