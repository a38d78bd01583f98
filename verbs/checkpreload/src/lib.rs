//! `libpumice_check.so`: loaded with LD_PRELOAD into a program that is checked, it tells libpumice.so which
//! memory the program frees, so that memory is found that a posted request still uses.
//!
//! It takes the place of free(3), realloc(3), munmap(2) and _exit(2) (`calls`), compares the address with
//! the bounds of the memory that requests use (`watch`), and calls the next object's function. Where the
//! program has an allocator of its own in its file, the loader prefers that, and nothing is told.
//!
//! **Invariant**: no locks and no allocation of its own, because these functions are called before `main`,
//! by
//! the loader, in fork children and in signal handlers. No panics either.
//!
//! **Invariant**: nothing but the next object's function is called until libpumice.so asks for more, and
//! never in a program with a sanitizer, which knows freed memory better.

// Unit tests are linked without the functions of the C library's names.
#![cfg_attr(test, allow(dead_code))]

mod original;
mod watch;

#[cfg(not(test))]
mod calls;
