//! The calls that C programs make of libibverbs, librdmacm and the vendors' libraries: one row each.
//!
//! A row has the name of a call, its symbol, how it fails and with what, what it makes or gives back, and its
//! manual page; no other place has these facts. All code that knows verbs asks here: the build script that
//! exports symbols, the gates that count calls and make them fail, checks, documents.
//!
//! ```
//! use pumice_calls::{ErrorReturn, Call, CallObject};
//!
//! let call = Call::of("ibv_alloc_pd").unwrap();
//! assert_eq!(call, Call::ibv_alloc_pd);
//! assert_eq!(call.row().answer, ErrorReturn::Null);
//! assert_eq!(call.row().act.made(), Some(CallObject::Domain));
//! ```
//!
//! A new call is a row in the file of its family: [`Call`] has a variant of that name then.

#![no_std]
#![forbid(unsafe_code)]

mod connections;
mod efa;
mod errnos;
mod mana;
mod mlx4;
mod mlx5;
mod mrc;
mod names;
mod ordinals;
mod private;
mod row;
mod sockets;
mod table;
mod vendors;
mod verbs;

pub use errnos::{ERRNOS, Errnos};
pub use ordinals::{CALLS, CallInfo, Ordinals};
pub use row::{CallAction, CallFacts, CallFamily, CallObject, ErrorReturn};
pub use table::Call;
